/* What the files of TLS share: tls.c (settings), tls_verify.c (whose certificate is it?),
 * tls_stream.c (a connection). */
#ifndef MILLRACE_RPC_TLS_TLS_INTERNAL_H
#define MILLRACE_RPC_TLS_TLS_INTERNAL_H

#include <openssl/ssl.h>
#include <stdatomic.h>

#include "common/base/metrics.h"
#include "rpc/tls/tls.h"

enum { TLS_NAMES_MAX_BYTES = 512 }; /* of the names that a message cites */

struct tls {
    _Atomic unsigned n_refs;
    char *cert_file, *key_file, *ca_file, *protocol, *cluster;
    SSL_CTX *context;
    int64_t expires_s, loaded_s;
    uint64_t n_reloads;
    struct str names;            /* of the own certificate */
    struct status *reload_error; /* of the last reload; NULL: it went well */
};

extern struct metric tls_handshakes_total, tls_handshake_failures_total;

/* ---- tls.c ---- */
/* OpenSSL's oldest waiting error, in words, or `otherwise`; the rest is dropped. */
void tls_take_error(struct str *out, const char *otherwise);

/* ---- tls_verify.c ---- */
/* "DNS:ps0.example, URI:millrace://default/job/ps/task/0", else the subject's common name; cut
 * at TLS_NAMES_MAX_BYTES. */
void tls_names_of(X509 *cert, struct str *out);
/* Does it carry the name: a URI where `name` has "://", else a DNS name or an address? */
bool tls_cert_has_name(X509 *cert, const char *name);
/* What is wrong with the other end's certificate, for people. */
struct status *tls_verify_error(const struct tls *tls, const char *peer, X509 *cert,
                                int error) MUST_USE;
/* Unix time; 0 where the date makes no sense. */
int64_t tls_time_of(const ASN1_TIME *time);

#endif
