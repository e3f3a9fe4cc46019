/* The TLS settings of one kind of connection, from PEM files: the certificate of this process, and
 * the authorities that it trusts. rpc/tls/tls_stream.h is one connection. Only rpc/tls uses
 * OpenSSL.
 *
 * TLS 1.2 or later. No renegotiation, no compression, and no session tickets: each connection is
 * checked.
 *
 * Names. A task's certificate carries, as subject alternative name, a URI that says which it is:
 *
 *   millrace://CLUSTER/master             the master
 *   millrace://CLUSTER/admin              an operator, who may change things through admin ports
 *   millrace://CLUSTER/job/ps/task/0      one task
 *   millrace://CLUSTER/job/ps/task/ *     any task of the job (without the blank): the tasks of the
 *                                         job may then pass for each other, but not for others
 *
 * The master's certificate also has the DNS names and addresses at which clients reach it. Loop
 * thread only, except that any thread may count references. */
#ifndef MILLRACE_RPC_TLS_TLS_H
#define MILLRACE_RPC_TLS_TLS_H

#include "common/base/status.h"
#include "common/base/str.h"

struct tls;

#define TLS_ALPN_GRPC "h2"
#define TLS_ALPN_WIRE "millrace"
#define TLS_ALPN_HTTP "http/1.1"

struct tls_options {
    /* this process' certificates and key, PEM. Both NULL: it shows none, which a client may do */
    const char *cert_file, *key_file;
    /* The authorities that vouch for the other end, PEM. With it a server refuses a client without
     * a certificate. NULL: a server asks for none, and a client trusts the system's authorities. */
    const char *ca_file;
    /* With ca_file, a server also accepts a client that shows no certificate. */
    bool accepts_strangers;
    const char *protocol; /* TLS_ALPN_… */
    const char *cluster;  /* of the names above; NULL: "default" */
};

/* Reads the files. The caller holds one reference. Errors: INVALID_ARGUMENT, which names the
 * file and what is wrong with it. */
struct status *tls_new(const struct tls_options *options, struct tls **ret_tls) MUST_USE;
struct tls *tls_ref(struct tls *tls); /* accepts NULL, as does unref */
void tls_unref(struct tls *tls);
enum { TLS_RELOAD_MAX = 8 };
/* Reads the files of all of them again. New connections use what the files say; those that exist
 * are not affected. On an error all settings stay as they were, and tls_describe shows the error
 * until the next reload. */
struct status *tls_reload(struct tls *const *all, size_t n) MUST_USE;

/* Appends the URI that the certificate of "/job:ps/replica:0/task:0" or "master" has to carry. */
void tls_task_name(const struct tls *tls, const char *task, struct str *out);
/* Returns when this process' certificate expires, in seconds of Unix time; 0 without one. */
int64_t tls_expires_s(const struct tls *tls);
/* Appends a JSON object: files, names, expiry, the result of the last reload. */
void tls_describe(const struct tls *tls, struct str *out);

#endif
