/* The TLS flags of the daemons, and the TLS settings that are made from them. */
#ifndef MILLRACE_RPC_TLS_TLS_FLAGS_H
#define MILLRACE_RPC_TLS_TLS_FLAGS_H

#include "common/base/options.h"
#include "rpc/tls/tls.h"

struct tls_flags {
    const char *cert, *key, *ca, *client_ca;
    bool admin;
};

/* rpc/tls/tls_flag_rows.inc has the rows of a daemon's option table. The master has one more,
 * --tls-client-ca. */

static inline bool tls_flags_is_on(const struct tls_flags *flags) { return flags->cert != NULL; }
/* Checks whether the flags fit together. Reads no file. Errors: INVALID_ARGUMENT. */
struct status *tls_flags_check(const struct tls_flags *flags) MUST_USE;

/* The TLS settings of a daemon's ports. All NULL: no TLS. */
struct tls_set {
    struct tls *wire;    /* between master and tasks: both ends show certificates */
    struct tls *clients; /* of the master's clients; NULL in a worker */
    struct tls *admin;   /* of the admin pages; NULL: no TLS */
};

/* Reads the files, and logs names and expiry of the certificate. `has_clients`: a master.
 * Errors: as tls_new. */
struct status *tls_set_open(const struct tls_flags *flags, const char *cluster_name,
                            bool has_clients, struct tls_set *ret_set) MUST_USE;
void tls_set_close(struct tls_set *set);
/* Reads all files again after HUP, and logs the result. */
void tls_set_reload(struct tls_set *set);
void tls_set_describe(const struct tls_set *set, struct str *out); /* a JSON object, or null */

#endif
