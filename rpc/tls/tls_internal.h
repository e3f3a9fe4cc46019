/* What the files of TLS share: tls.c (settings), tls_verify.c (the names in a certificate),
 * tls_stream.c (a connection). */
#ifndef MILLRACE_RPC_TLS_TLS_INTERNAL_H
#define MILLRACE_RPC_TLS_TLS_INTERNAL_H

#include <openssl/ssl.h>
#include <stdatomic.h>

#include "common/base/metrics.h"
#include "rpc/tls/tls.h"

enum { TLS_NAMES_MAX_BYTES = 512 }; /* of the names that a message quotes */

struct tls {
    _Atomic unsigned n_refs;
    char *cert_file, *key_file, *ca_file, *protocol, *cluster;
    bool accepts_strangers;
    SSL_CTX *context;
    int64_t expires_s, loaded_s;
    uint64_t n_reloads;
    struct str names;            /* of the own certificate */
    struct status *reload_error; /* of the last reload; NULL: it succeeded */
};

extern struct metric tls_handshakes_total, tls_handshake_failures_total;

/* ---- tls.c ---- */
/* Appends OpenSSL's oldest queued error in words, or `otherwise`; drops the other errors. */
void tls_take_error(struct str *out, const char *otherwise);

/* ---- tls_verify.c ---- */
/* Appends the names, "DNS:ps0.example, URI:millrace://default/job/ps/task/0", or the subject's
 * common name if there are none; cut at TLS_NAMES_MAX_BYTES. */
void tls_names_of(X509 *cert, struct str *out);
/* Does the certificate carry the name? It is a URI if it has "://", else a DNS name or an
 * address. */
bool tls_cert_has_name(X509 *cert, const char *name);
/* Makes the status that says what is wrong with the other end's certificate. */
struct status *tls_verify_error(const struct tls *tls, const char *peer, X509 *cert,
                                int error) MUST_USE;
/* Returns Unix time; 0 for an invalid date. */
int64_t tls_time_of(const ASN1_TIME *time);

#endif
