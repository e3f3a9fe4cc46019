/* Makes the TLS settings of a daemon's ports from its flags, and reloads them together. */
#include "rpc/tls/tls_flags.h"

#include <time.h>

#include "common/base/log.h"

enum { EXPIRES_SOON_S = 7 * 86400 };

struct status *tls_flags_check(const struct tls_flags *flags) {
    int n = (flags->cert != NULL) + (flags->key != NULL) + (flags->ca != NULL);
    if (n != 0 && n != 3)
        return status_invalid("tls-cert, tls-key and tls-ca must be given together: %s is missing",
                              !flags->cert  ? "tls-cert"
                              : !flags->key ? "tls-key"
                                            : "tls-ca");
    if (n == 0 && (flags->client_ca || flags->admin))
        return status_invalid("%s works only with tls-cert, tls-key and tls-ca",
                              flags->client_ca ? "tls-client-ca" : "tls-admin");
    return NULL;
}

static void log_expiry(const struct tls_flags *flags, const struct tls *tls) {
    int64_t left_s = tls_expires_s(tls) - (int64_t)time(NULL);
    if (left_s <= 0)
        log_event(EVENT_TLS_EXPIRED,
                  "the certificate %s has expired: other processes will refuse it", flags->cert);
    else if (left_s < EXPIRES_SOON_S)
        log_event(EVENT_TLS_EXPIRES, "the certificate %s expires in %lld hours", flags->cert,
                  (long long)left_s / 3600);
}

struct status *tls_set_open(const struct tls_flags *flags, const char *cluster_name,
                            bool has_clients, struct tls_set *ret_set) {
    *ret_set = (struct tls_set){.wire = NULL};
    if (!tls_flags_is_on(flags))
        return NULL;
    struct tls_options options = {.cert_file = flags->cert,
                                  .key_file = flags->key,
                                  .ca_file = flags->ca,
                                  .protocol = TLS_ALPN_WIRE,
                                  .cluster = cluster_name};
    struct status *st = tls_new(&options, &ret_set->wire);
    options.ca_file = flags->client_ca;
    options.protocol = TLS_ALPN_GRPC;
    if (!st && has_clients)
        st = tls_new(&options, &ret_set->clients);
    /* Pages are for everybody, but changes are for operators, who prove it. */
    options.ca_file = flags->ca;
    options.accepts_strangers = true;
    options.protocol = TLS_ALPN_HTTP;
    if (!st && flags->admin)
        st = tls_new(&options, &ret_set->admin);
    if (st) {
        tls_set_close(ret_set);
        return status_prefix_take(st, "TLS: ");
    }
    log_expiry(flags, ret_set->wire);
    return NULL;
}

void tls_set_close(struct tls_set *set) {
    tls_unref(set->wire);
    tls_unref(set->clients);
    tls_unref(set->admin);
    *set = (struct tls_set){.wire = NULL};
}

void tls_set_reload(struct tls_set *set) {
    struct tls *all[TLS_RELOAD_MAX];
    size_t n = 0;
    if (!set->wire) {
        log_event(EVENT_TLS_RELOADED, "HUP: no TLS files are in use, so none are read again");
        return;
    }
    all[n++] = set->wire;
    if (set->clients)
        all[n++] = set->clients;
    if (set->admin)
        all[n++] = set->admin;
    struct status *st = tls_reload(all, n);
    if (st) {
        log_event(EVENT_TLS_RELOAD_FAILED,
                  "the new TLS files were not taken over, and the old ones stay in use: %s",
                  status_message(st));
    } else {
        struct str text = STR_INIT;
        tls_describe(set->wire, &text);
        log_event(EVENT_TLS_RELOADED, "the TLS files were read again: %s", str_text(&text));
        str_fini(&text);
    }
    status_unref(st);
}

void tls_set_describe(const struct tls_set *set, struct str *out) {
    if (!set->wire) {
        str_add(out, "null");
        return;
    }
    str_add(out, "{\"wire\": ");
    tls_describe(set->wire, out);
    if (set->clients) {
        str_add(out, ", \"clients\": ");
        tls_describe(set->clients, out);
    }
    str_addf(out, ", \"admin\": %s}", set->admin ? "true" : "false");
}
