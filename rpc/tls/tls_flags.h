/* What the daemons ask about TLS, and what they do with the answers. */
#ifndef MILLRACE_RPC_TLS_TLS_FLAGS_H
#define MILLRACE_RPC_TLS_TLS_FLAGS_H

#include "common/base/options.h"
#include "rpc/tls/tls.h"

struct tls_flags {
    const char *cert, *key, *ca, *client_ca;
    bool admin;
};

/* The rows of a daemon's option table; ROW is its macro for a row, the struct's field is `tls`. */
// clang-format off
#define TLS_FLAG_ROWS(ROW) \
    {ROW("tls-cert", OPTION_STRING, tls.cert, NULL, "PATH", "speak TLS: this process' certificate and those that lead to its authority (PEM); docs/security.md")}, \
    {ROW("tls-key", OPTION_STRING, tls.key, NULL, "PATH", "its private key (PEM); HUP reads all of these files anew")}, \
    {ROW("tls-ca", OPTION_STRING, tls.ca, NULL, "PATH", "who vouches for the certificates of the master and the tasks (PEM)")}, \
    {ROW("tls-admin", OPTION_BOOL, tls.admin, NULL, NULL, "the admin pages are HTTPS, too, with the same certificate")}
#define TLS_CLIENT_FLAG_ROW(ROW) \
    {ROW("tls-client-ca", OPTION_STRING, tls.client_ca, NULL, "PATH", "clients need a certificate for which this vouches (PEM); without it they need none")}
// clang-format on

static inline bool tls_flags_is_on(const struct tls_flags *flags) { return flags->cert != NULL; }
/* Do they go together? No file is looked at. */
struct status *tls_flags_check(const struct tls_flags *flags) MUST_USE;

/* What a daemon speaks TLS with. All NULL: it does not. */
struct tls_set {
    struct tls *wire;    /* between master and tasks: both ends show certificates */
    struct tls *clients; /* of the master's clients; NULL in a worker */
    struct tls *admin;   /* pages; NULL: in the clear */
};

/* Reads the files; logs what is to be known about them. `has_clients`: a master. */
struct status *tls_set_open(const struct tls_flags *flags, const char *cluster_name,
                            bool has_clients, struct tls_set *ret_set) MUST_USE;
void tls_set_close(struct tls_set *set);
/* HUP: reads all files again, and logs how it went. */
void tls_set_reload(struct tls_set *set);
void tls_set_describe(const struct tls_set *set, struct str *out); /* a JSON object, or null */

#endif
