/* A small certificate authority, which makes the keys and certificates of a cluster (tfctl certs,
 * tests). Keys are ECDSA on P-256, for quick handshakes. An organisation may use its own authority
 * instead; tls.h says which names the certificates have to carry. */
#ifndef MILLRACE_RPC_TLS_TLS_CERTS_H
#define MILLRACE_RPC_TLS_TLS_CERTS_H

#include "common/base/status.h"

struct tls_authority;

/* Makes a new authority. It is valid from a minute ago, because clocks differ. */
struct status *tls_authority_new(const char *name, int64_t lifetime_s,
                                 struct tls_authority **ret) MUST_USE;
/* Errors: INVALID_ARGUMENT, which names the file. */
struct status *tls_authority_load(const char *cert_path, const char *key_path,
                                  struct tls_authority **ret) MUST_USE;
/* Key files are readable by their owner only. Each file is written completely or not at all.
 * Errors: UNAVAILABLE, which names the file. */
struct status *tls_authority_save(const struct tls_authority *authority, const char *cert_path,
                                  const char *key_path) MUST_USE;
void tls_authority_free(struct tls_authority *authority); /* accepts NULL */

struct tls_cert_request {
    const char *common_name;
    const char *const *names; /* URIs ("millrace://…"), addresses, DNS names */
    size_t n_names;
    int64_t lifetime_s; /* from now on; it is valid from a minute ago */
};
/* Makes a new key and a certificate for it, for either end of a connection, and writes both files.
 * Errors: INVALID_ARGUMENT (a name), UNAVAILABLE (a file). */
struct status *tls_authority_issue(const struct tls_authority *authority,
                                   const struct tls_cert_request *request, const char *cert_path,
                                   const char *key_path) MUST_USE;

#endif
