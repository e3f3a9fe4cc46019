/* Reads PEM files into an OpenSSL context, and replaces the context on a reload. */
#include "rpc/tls/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "rpc/tls/tls_internal.h"

/* AES-128 comes first: it is secure, and the fastest where the processor has instructions for
 * it. */
#define TLS13_CIPHERS "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
#define TLS12_CIPHERS "ECDHE+AESGCM:ECDHE+CHACHA20"

static struct metric expires =
    METRIC_GAUGE_INIT("millrace_tls_certificate_expiry_seconds",
                      "when this process' certificate expires, in seconds of Unix time");
static struct metric reloads_total =
    METRIC_COUNTER_INIT("millrace_tls_reloads_total", "times that TLS files were read again");
static struct metric reload_failures_total = METRIC_COUNTER_INIT(
    "millrace_tls_reload_failures_total", "times that TLS files could not be taken over");
struct metric tls_handshakes_total =
    METRIC_COUNTER_INIT("millrace_tls_handshakes_total", "TLS handshakes completed");
struct metric tls_handshake_failures_total =
    METRIC_COUNTER_INIT("millrace_tls_handshake_failures_total", "TLS handshakes that failed");

static void register_metrics(void) {
    metrics_register(&expires);
    metrics_register(&reloads_total);
    metrics_register(&reload_failures_total);
    metrics_register(&tls_handshakes_total);
    metrics_register(&tls_handshake_failures_total);
}

void tls_take_error(struct str *out, const char *otherwise) {
    unsigned long code = ERR_get_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;
    str_add(out, text ? text : otherwise);
    ERR_clear_error();
}

/* ---- the files ---- */

/* OpenSSL reports little about a file that it cannot open. */
static struct status *check_readable(const char *what, const char *path) {
    return access(path, R_OK) == 0 ? NULL
                                   : status_invalid("%s %s: %s", what, path, strerror(errno));
}

static struct status *bad_file(const char *what, const char *path, const char *otherwise) {
    struct str why = STR_INIT;
    tls_take_error(&why, otherwise);
    struct status *st = status_invalid("%s %s: %s", what, path, str_text(&why));
    str_fini(&why);
    return st;
}

/* No passphrase is asked for, because a daemon has no terminal. */
static int no_passphrase(char *text, int size, int is_writing, void *arg) { return 0; }

static struct status *use_own(const struct tls *tls, SSL_CTX *context) {
    TRY(check_readable("certificate", tls->cert_file));
    TRY(check_readable("key", tls->key_file));
    if (SSL_CTX_use_certificate_chain_file(context, tls->cert_file) != 1)
        return bad_file("certificate", tls->cert_file, "not a PEM certificate");
    if (SSL_CTX_use_PrivateKey_file(context, tls->key_file, SSL_FILETYPE_PEM) != 1)
        return bad_file("key", tls->key_file, "not a PEM key without a passphrase");
    if (SSL_CTX_check_private_key(context) != 1)
        return bad_file("key", tls->key_file, "it does not belong to the certificate");
    return NULL;
}

static struct status *use_authorities(const struct tls *tls, SSL_CTX *context) {
    if (!tls->ca_file) {
        SSL_CTX_set_default_verify_paths(context);
        ERR_clear_error();
        return NULL;
    }
    TRY(check_readable("authorities", tls->ca_file));
    if (SSL_CTX_load_verify_file(context, tls->ca_file) != 1)
        return bad_file("authorities", tls->ca_file, "no PEM certificate in it");
    STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(tls->ca_file);
    if (!names)
        return bad_file("authorities", tls->ca_file, "no PEM certificate in it");
    SSL_CTX_set_client_CA_list(context, names);
    return NULL;
}

/* ---- what is spoken over it ---- */

static void alpn_of(const struct tls *tls, unsigned char *out, unsigned *ret_len) {
    size_t len = strlen(tls->protocol);
    out[0] = (unsigned char)len;
    memcpy(out + 1, tls->protocol, len);
    *ret_len = (unsigned)len + 1;
}

/* A client that offers nothing is accepted. One that offers only other protocols has dialled the
 * wrong port. */
static int choose_protocol(SSL *ssl, const unsigned char **ret, unsigned char *ret_len,
                           const unsigned char *offered, unsigned len, void *arg) {
    const struct tls *tls = arg;
    size_t wanted = strlen(tls->protocol);
    for (unsigned at = 0; at < len && offered[at] < len - at; at += offered[at] + 1u)
        if (offered[at] == wanted && memcmp(offered + at + 1, tls->protocol, wanted) == 0) {
            *ret = offered + at + 1;
            *ret_len = offered[at];
            return SSL_TLSEXT_ERR_OK;
        }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static struct status *set_up(const struct tls *tls, SSL_CTX *context) {
    unsigned char alpn[64];
    unsigned alpn_len;
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                     SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                  SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_default_passwd_cb(context, no_passphrase);
    CHECK(SSL_CTX_set_ciphersuites(context, TLS13_CIPHERS) == 1);
    CHECK(SSL_CTX_set_cipher_list(context, TLS12_CIPHERS) == 1);
    alpn_of(tls, alpn, &alpn_len);
    CHECK(SSL_CTX_set_alpn_protos(context, alpn, alpn_len) == 0);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, (void *)(uintptr_t)tls);
    if (tls->cert_file)
        TRY(use_own(tls, context));
    return use_authorities(tls, context);
}

static int64_t expiry_of(const SSL_CTX *context) {
    const X509 *own = SSL_CTX_get0_certificate(context);
    return own ? tls_time_of(X509_get0_notAfter(own)) : 0;
}

static struct status *make_context(const struct tls *tls, SSL_CTX **ret) {
    ERR_clear_error();
    SSL_CTX *context = SSL_CTX_new(TLS_method());
    CHECK(context);
    struct status *st = set_up(tls, context);
    if (st)
        SSL_CTX_free(context);
    else
        *ret = context;
    return st;
}

/* Connections keep the old context as long as they live. */
static void take_context(struct tls *tls, SSL_CTX *context_take) {
    SSL_CTX_free(tls->context);
    tls->context = context_take;
    tls->expires_s = expiry_of(context_take);
    tls->loaded_s = (int64_t)time(NULL);
    str_clear(&tls->names);
    if (tls->cert_file)
        tls_names_of(SSL_CTX_get0_certificate(context_take), &tls->names);
    if (tls->expires_s)
        metric_set(&expires, tls->expires_s);
}

/* ---- life ---- */

static char *copy(const char *text) { return text ? xstrdup(text) : NULL; }

struct status *tls_new(const struct tls_options *options, struct tls **ret_tls) {
    register_metrics();
    CHECK(strlen(options->protocol) < 63);
    if (!options->cert_file != !options->key_file)
        return status_invalid("a certificate needs its key: only one of the two files is given");
    struct tls *tls = xcalloc(1, sizeof(*tls));
    atomic_init(&tls->n_refs, 1);
    tls->cert_file = copy(options->cert_file);
    tls->key_file = copy(options->key_file);
    tls->ca_file = copy(options->ca_file);
    tls->accepts_strangers = options->accepts_strangers;
    tls->protocol = copy(options->protocol);
    tls->cluster = copy(options->cluster ? options->cluster : "default");
    SSL_CTX *context;
    struct status *st = make_context(tls, &context);
    if (st) {
        tls_unref(tls);
        return st;
    }
    take_context(tls, context);
    *ret_tls = tls;
    return NULL;
}

struct tls *tls_ref(struct tls *tls) {
    if (tls)
        atomic_fetch_add_explicit(&tls->n_refs, 1, memory_order_relaxed);
    return tls;
}

void tls_unref(struct tls *tls) {
    if (!tls || atomic_fetch_sub_explicit(&tls->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    SSL_CTX_free(tls->context);
    status_unref(tls->reload_error);
    str_fini(&tls->names);
    free(tls->cert_file);
    free(tls->key_file);
    free(tls->ca_file);
    free(tls->protocol);
    free(tls->cluster);
    free(tls);
}

struct status *tls_reload(struct tls *const *all, size_t n) {
    SSL_CTX *contexts[TLS_RELOAD_MAX];
    struct status *st = NULL;
    size_t n_made = 0;
    CHECK(n <= TLS_RELOAD_MAX);
    while (n_made < n && !st) {
        st = make_context(all[n_made], &contexts[n_made]);
        n_made += st ? 0 : 1;
    }
    for (size_t i = 0; i < n; i++) {
        status_unref(all[i]->reload_error);
        all[i]->reload_error = status_ref(st);
        all[i]->n_reloads += st ? 0 : 1;
    }
    for (size_t i = 0; i < n_made; i++) {
        if (st)
            SSL_CTX_free(contexts[i]);
        else
            take_context(all[i], contexts[i]);
    }
    metric_add(st ? &reload_failures_total : &reloads_total, 1);
    return st;
}

/* ---- what others ask ---- */

void tls_task_name(const struct tls *tls, const char *task, struct str *out) {
    const char *job = strncmp(task, "/job:", 5) == 0 ? task + 5 : NULL,
               *index = job ? strstr(job, "/task:") : NULL;
    str_addf(out, "millrace://%s/", tls->cluster);
    if (index)
        str_addf(out, "job/%.*s/task/%s", (int)strcspn(job, "/"), job, index + 6);
    else
        str_add(out, task);
}

int64_t tls_expires_s(const struct tls *tls) { return tls->expires_s; }

static void add_text(struct str *out, const char *name, const char *text) {
    str_addf(out, "\"%s\": ", name);
    if (!text) {
        str_add(out, "null, ");
        return;
    }
    str_add_char(out, '"');
    str_add_json_escaped(out, text, strlen(text));
    str_add(out, "\", ");
}

static void add_date(struct str *out, const char *name, int64_t at_s) {
    char text[32] = "";
    time_t at = (time_t)at_s;
    struct tm tm;
    if (at_s && gmtime_r(&at, &tm))
        strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
    add_text(out, name, at_s ? text : NULL);
}

void tls_describe(const struct tls *tls, struct str *out) {
    str_add_char(out, '{');
    add_text(out, "certificate", tls->cert_file);
    add_text(out, "names", tls->cert_file ? str_text(&tls->names) : NULL);
    add_date(out, "expires", tls->expires_s);
    str_addf(out, "\"expires_in_s\": %lld, ",
             tls->expires_s ? (long long)(tls->expires_s - (int64_t)time(NULL)) : 0);
    add_text(out, "authorities", tls->ca_file);
    add_text(out, "protocol", tls->protocol);
    add_date(out, "loaded", tls->loaded_s);
    add_text(out, "reload_error", tls->reload_error ? status_message(tls->reload_error) : NULL);
    str_addf(out, "\"reloads\": %llu}", (unsigned long long)tls->n_reloads);
}
