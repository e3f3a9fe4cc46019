/* A small certificate authority: makes what a cluster needs to speak TLS (tfctl certs, tests).
 * Keys are ECDSA on P-256: quick handshakes. Whoever has an authority of their own needs none of
 * this; the names that certificates have to carry are in tls.h. */
#ifndef MILLRACE_RPC_TLS_TLS_CERTS_H
#define MILLRACE_RPC_TLS_TLS_CERTS_H

#include "common/base/status.h"

struct tls_authority;

/* A new one, valid from a minute ago. */
struct status *tls_authority_new(const char *name, int64_t lifetime_s,
                                 struct tls_authority **ret) MUST_USE;
/* Errors: INVALID_ARGUMENT naming the file. */
struct status *tls_authority_load(const char *cert_path, const char *key_path,
                                  struct tls_authority **ret) MUST_USE;
/* Key files are readable by their owner only; each file is there as a whole or not at all.
 * Errors: UNAVAILABLE naming the file. */
struct status *tls_authority_save(const struct tls_authority *authority, const char *cert_path,
                                  const char *key_path) MUST_USE;
void tls_authority_free(struct tls_authority *authority); /* accepts NULL */

struct tls_cert_request {
    const char *common_name;
    const char *const *names; /* URIs ("millrace://…"), addresses, DNS names */
    size_t n_names;
    int64_t lifetime_s; /* from now on; it is valid from a minute ago */
};
/* A new key and a certificate for it, for both ends of a connection. Errors: INVALID_ARGUMENT (a
 * name), UNAVAILABLE (a file). */
struct status *tls_authority_issue(const struct tls_authority *authority,
                                   const struct tls_cert_request *request, const char *cert_path,
                                   const char *key_path) MUST_USE;

#endif
