/* What the daemons ask about TLS, and what they do with the answers. */
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
