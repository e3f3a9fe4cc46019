/* TLS: who this process is, and whom it believes. The settings of one kind of connection, from PEM
 * files; rpc/tls/tls_stream.h is one connection. OpenSSL is used in rpc/tls/tls*.c only.
 *
 * At least TLS 1.2; no renegotiation, no session tickets (each connection is checked anew), no
 * compression.
 *
 * Names. A task's certificate carries, as subject alternative name, a URI that says which it is:
 *
 *   millrace://CLUSTER/master             the master
 *   millrace://CLUSTER/job/ps/task/0      one task
 *   millrace://CLUSTER/job/ps/task/ *     any task of the job (without the blank): its tasks may then pass for each other, but for no
 *                                         other job's nor for the master
 *
 * and, where clients connect, the host's DNS names and addresses as on every server. Loop
 * thread, but for counting references. */
#ifndef MILLRACE_RPC_TLS_TLS_H
#define MILLRACE_RPC_TLS_TLS_H

#include "common/base/status.h"
#include "common/base/str.h"

struct tls;

#define TLS_ALPN_GRPC "h2"
#define TLS_ALPN_WIRE "millrace"
#define TLS_ALPN_HTTP "http/1.1"

struct tls_options {
    /* this process' chain and its key, PEM; both NULL: it shows none, as clients may */
    const char *cert_file, *key_file;
    /* Who vouches for the other end, PEM: a server then asks for a certificate and refuses who
     * has none. NULL: a server asks for none, a client believes whom the system believes. */
    const char *ca_file;
    const char *protocol; /* TLS_ALPN_… */
    const char *cluster;  /* of the names above; NULL: "default" */
};

/* Reads the files. Errors: INVALID_ARGUMENT naming the file and what is wrong with it. */
struct status *tls_new(const struct tls_options *options, struct tls **ret_tls) MUST_USE;
struct tls *tls_ref(struct tls *tls); /* accepts NULL, as does unref */
void tls_unref(struct tls *tls);
enum { TLS_RELOAD_MAX = 8 };
/* Reads the files of all of them again: connections that begin from now on get what they say,
 * those that exist live on. On an error all stay as they were, half of a change being no state
 * to be in, and tls_describe says so until the next reload. */
struct status *tls_reload(struct tls *const *all, size_t n) MUST_USE;

/* "/job:ps/replica:0/task:0" or "master" → the URI that its certificate has to carry. */
void tls_task_name(const struct tls *tls, const char *task, struct str *out);
/* When the process' own certificate expires, in seconds of Unix time; 0 without one. */
int64_t tls_expires_s(const struct tls *tls);
/* A JSON object: files, names, expiry, what the last reload said. */
void tls_describe(const struct tls *tls, struct str *out);

#endif
