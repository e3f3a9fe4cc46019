/* Fills in TLS settings from the environment, and splits grpcs:// targets. */
#include "client/tls_client.h"

#include <stdlib.h>

const char *tls_client_split(const char *target, bool *ret_is_tls) {
    *ret_is_tls = strncmp(target, "grpcs://", 8) == 0;
    return target + (*ret_is_tls ? 8 : strncmp(target, "grpc://", 7) == 0 ? 7 : 0);
}

static void fill(const char **field, const char *variable) {
    const char *text = *field ? *field : getenv(variable);
    *field = text && *text ? text : NULL;
}

void tls_client_fill(struct tls_client *client) {
    fill(&client->ca, "MILLRACE_TLS_CA");
    fill(&client->cert, "MILLRACE_TLS_CERT");
    fill(&client->key, "MILLRACE_TLS_KEY");
    fill(&client->name, "MILLRACE_TLS_NAME");
}

struct status *tls_client_new(const struct tls_client *client, struct tls **ret_tls) {
    struct tls_options options = {.cert_file = client->cert,
                                  .key_file = client->key,
                                  .ca_file = client->ca,
                                  .protocol = TLS_ALPN_GRPC};
    return status_prefix_take(tls_new(&options, ret_tls), "TLS: ");
}
