/* The TLS settings of a client: authorities, certificate, and the expected name. A setting
 * without a flag comes from the environment: MILLRACE_TLS_CA, MILLRACE_TLS_CERT,
 * MILLRACE_TLS_KEY, MILLRACE_TLS_NAME. */
#ifndef MILLRACE_CLIENT_TLS_CLIENT_H
#define MILLRACE_CLIENT_TLS_CLIENT_H

#include "common/base/status.h"
#include "rpc/tls/tls.h"

struct tls_client {
    const char *ca, *cert, *key; /* PEM files; NULL: the system's authorities, no certificate */
    /* that the server's certificate must carry; NULL: the target's host */
    const char *name;
};

/* client/tls_client_rows.inc has the rows of a subcommand's option table. */

/* Returns the address without its scheme: "grpcs://" (then *ret_is_tls is true), "grpc://" or
 * none. */
const char *tls_client_split(const char *target, bool *ret_is_tls);
/* Sets each field that is NULL from the environment. */
void tls_client_fill(struct tls_client *client);
/* Errors: as tls_new. */
struct status *tls_client_new(const struct tls_client *client, struct tls **ret_tls) MUST_USE;

#endif
