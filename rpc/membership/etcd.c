/* Sends calls to one of several endpoints of etcd, and keeps a watch open. */
#include "rpc/membership/etcd.h"

#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/metrics.h"

enum { DEFAULT_TIMEOUT_MS = 2000, MAX_URL_BYTES = 512 };

static struct metric etcd_up = METRIC_GAUGE_INIT("millrace_etcd_up", "1 while etcd answers");
static struct metric etcd_failures_total =
    METRIC_COUNTER_INIT("millrace_etcd_failures_total", "Calls to an etcd endpoint that failed");

struct etcd {
    struct http_client *http;
    struct etcd_options options; /* its strings are its own */
    char *urls[ETCD_MAX_ENDPOINTS];
    int n_urls, current;
    struct list calls, watches;
    struct etcd_login login;
    int login_endpoint;
    struct status *why_down; /* NULL: etcd answers */
    int64_t down_since_ns;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* ---- endpoints ---- */

/* "host:port" means "http://host:port". A slash at the end is accepted, any other path is not. */
static struct status *read_url(struct span text, char **ret) {
    bool is_https = text.len > 8 && memcmp(text.data, "https://", 8) == 0;
    bool is_http = text.len > 7 && memcmp(text.data, "http://", 7) == 0;
    size_t scheme = is_https ? 8 : is_http ? 7 : 0;
    while (text.len > scheme && text.data[text.len - 1] == '/')
        text.len--;
    struct span host = {text.data + scheme, text.len - scheme};
    bool is_good = host.len > 0 && host.data[host.len - 1] != ':' && text.len < MAX_URL_BYTES;
    for (size_t i = 0; i < host.len && is_good; i++)
        is_good = (unsigned char)host.data[i] > ' ' && !strchr("/?#@\"\\", host.data[i]);
    if (!is_good)
        return status_invalid("'%.*s' is not of the form http://HOST:PORT",
                              (int)MIN(text.len, (size_t)100), text.data);
    struct str url = STR_INIT;
    str_addf(&url, "%s%.*s", scheme ? "" : "http://", (int)text.len, text.data);
    *ret = str_detach(&url);
    return NULL;
}

static struct status *read_urls(const char *urls, char **ret, int *ret_n) {
    struct status *st = NULL;
    *ret_n = 0;
    for (const char *at = urls; !st && at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        if (*ret_n == ETCD_MAX_ENDPOINTS)
            st = status_invalid("more than %d endpoints", ETCD_MAX_ENDPOINTS);
        else if (!(st = read_url((struct span){at, strcspn(at, ",")}, &ret[*ret_n])))
            ++*ret_n;
    }
    return st;
}

struct status *etcd_check_urls(const char *urls) {
    char *read[ETCD_MAX_ENDPOINTS];
    int n;
    struct status *st = read_urls(urls, read, &n);
    for (int i = 0; i < n; i++)
        free(read[i]);
    return st;
}

bool etcd_is_up(const struct etcd *etcd, struct str *why_not) {
    if (etcd->why_down && why_not)
        str_addf(why_not, "etcd has not answered for %.0f s: %s",
                 (double)(clock_now_ns() - etcd->down_since_ns) / 1e9,
                 status_message(etcd->why_down));
    return !etcd->why_down;
}

struct http_client *etcd_http(struct etcd *etcd) {
    return etcd->http;
}

static void note_up(struct etcd *etcd) {
    status_unref(etcd->why_down);
    etcd->why_down = NULL;
    metric_set(&etcd_up, 1);
}

static void note_down(struct etcd *etcd, struct status *why) {
    if (!etcd->why_down)
        etcd->down_since_ns = clock_now_ns();
    status_unref(etcd->why_down);
    etcd->why_down = status_ref(why);
    metric_set(&etcd_up, 0);
}

static void watch_end(struct etcd_watch *watch, struct status *why_take) {
    etcd_watch_stop(watch);
    watch->on_end(watch, why_take);
}

/* Nothing else tells a watch that its endpoint is silent, so it ends with the call that found
 * out. */
static void endpoint_failed(struct etcd *etcd, int endpoint, struct status *why) {
    metric_add(&etcd_failures_total, 1);
    if (etcd->current == endpoint)
        etcd->current = (endpoint + 1) % etcd->n_urls;
    for (bool found = true; found;) {
        found = false;
        LIST_FOR_EACH (link, &etcd->watches) {
            struct etcd_watch *watch = LIST_ENTRY(link, struct etcd_watch, link);
            if (watch->endpoint != endpoint)
                continue;
            watch_end(watch, status_ref(why));
            found = true;
            break; /* the callback may have changed the list */
        }
    }
}

/* ---- calls ---- */

enum { N_HEADERS = 3 };

static void fill_headers(const struct etcd *etcd, const char *ret[N_HEADERS]) {
    ret[0] = "Content-Type: application/json";
    ret[1] = etcd->login.header;
    ret[2] = NULL;
}

static void fill_request(const struct etcd *etcd, const char *url, const struct str *body,
                         const char *const *headers, struct http_request *ret) {
    *ret = (struct http_request){.url = url,
                                 .body = {str_text(body), body->len},
                                 .headers = headers,
                                 .timeout_ms = etcd->options.timeout_ms,
                                 .connect_timeout_ms = etcd->options.timeout_ms,
                                 .max_body_bytes = ETCD_MAX_REPLY_BYTES,
                                 .ca_file = etcd->options.ca_file,
                                 .cert_file = etcd->options.cert_file,
                                 .key_file = etcd->options.key_file};
}

static void send_call(struct etcd_call *call) {
    struct etcd *etcd = call->etcd;
    struct http_request request;
    const char *headers[N_HEADERS];
    struct str url = STR_INIT;
    call->endpoint = etcd->current;
    call->login = etcd->login.number;
    str_addf(&url, "%s%s", etcd->urls[call->endpoint], call->path);
    fill_headers(etcd, headers);
    fill_request(etcd, str_text(&url), &call->body, headers, &request);
    http_call_start(etcd->http, &call->http, &request);
    str_fini(&url);
}

static void log_in(struct etcd *etcd) {
    struct http_request request;
    struct str url = STR_INIT, no_body = STR_INIT;
    etcd->login_endpoint = etcd->current;
    str_addf(&url, "%s/v3/auth/authenticate", etcd->urls[etcd->login_endpoint]);
    fill_request(etcd, str_text(&url), &no_body, NULL, &request);
    etcd_login_start(&etcd->login, etcd->http, &request);
    str_fini(&url);
}

static void try_endpoint(struct etcd_call *call) {
    struct etcd *etcd = call->etcd;
    call->n_tries++;
    if (!etcd_login_is_due(&etcd->login)) {
        send_call(call);
        return;
    }
    if (!etcd_login_is_running(&etcd->login))
        log_in(etcd);
    call->is_waiting = true;
    call->login = etcd->login.number;
}

void etcd_call_cancel(struct etcd_call *call) {
    if (!call->etcd)
        return;
    http_call_cancel(&call->http);
    list_remove(&call->link);
    str_fini(&call->body);
    call->etcd = NULL;
    call->is_waiting = false;
}

/* Drops the token if it is the one that was refused. Returns true when the call is sent again,
 * which happens once. */
static bool log_in_again(struct etcd_call *call, const struct status *why) {
    struct etcd *etcd = call->etcd;
    if (!etcd->login.user || call->has_logged_in || !etcd_login_is_wanted(why))
        return false;
    call->has_logged_in = true;
    call->n_tries--;
    etcd_login_drop(&etcd->login, call->login);
    try_endpoint(call);
    return true;
}

/* The reply is borrowed; it is used only without a status. */
static void end_call(struct etcd_call *call, struct status *status_take,
                     const struct etcd_reply *reply) {
    struct etcd *etcd = call->etcd;
    struct status *st = status_take;
    if (status_code(st) == STATUS_UNAVAILABLE) {
        endpoint_failed(etcd, call->endpoint, st);
        if (call->n_tries < etcd->n_urls) {
            status_unref(st);
            try_endpoint(call);
            return;
        }
        note_down(etcd, st);
    } else {
        note_up(etcd);
        if (log_in_again(call, st)) {
            status_unref(st);
            return;
        }
    }
    etcd_call_cancel(call);
    call->on_reply(call, st, st ? NULL : reply);
}

static void call_answered(struct http_call *http, struct status *status_take, int http_code,
                          struct span body) {
    struct etcd_call *call = CONTAINER_OF(http, struct etcd_call, http);
    struct etcd_reply reply;
    struct status *st = status_take;
    etcd_reply_init(&reply);
    if (!st)
        st =
            http_code == 200 ? etcd_reply_parse(body, &reply) : etcd_failure_parse(http_code, body);
    end_call(call, st, &reply);
    etcd_reply_fini(&reply);
}

static struct etcd_call *find_waiting(struct etcd *etcd, uint64_t login) {
    LIST_FOR_EACH (link, &etcd->calls) {
        struct etcd_call *call = LIST_ENTRY(link, struct etcd_call, link);
        if (call->is_waiting && call->login == login)
            return call;
    }
    return NULL;
}

/* Without a token the calls that waited for it fail as if each had been refused. */
static void on_logged_in(struct etcd_login *login, struct status *status_take) {
    struct etcd *etcd = CONTAINER_OF(login, struct etcd, login);
    uint64_t number = login->number;
    int endpoint = etcd->login_endpoint;
    for (struct etcd_call *call; (call = find_waiting(etcd, number));) {
        call->is_waiting = false;
        if (!status_take) {
            send_call(call);
            continue;
        }
        call->endpoint = endpoint;
        call->has_logged_in = true;
        end_call(call, status_ref(status_take), NULL);
    }
    status_unref(status_take);
}

static struct str *begin_call(struct etcd *etcd, struct etcd_call *call, const char *path) {
    CHECK(!call->etcd);
    call->etcd = etcd;
    call->path = path;
    call->n_tries = 0;
    call->is_waiting = call->has_logged_in = false;
    call->body = STR_INIT;
    call->http = (struct http_call){.on_done = call_answered};
    list_push_back(&etcd->calls, &call->link);
    return &call->body;
}

void etcd_range(struct etcd *etcd, struct etcd_call *call, const char *key, bool is_prefix) {
    etcd_write_range(begin_call(etcd, call, "/v3/kv/range"), key, is_prefix);
    try_endpoint(call);
}

void etcd_read(struct etcd *etcd, struct etcd_call *call, const char *const *keys, int n) {
    etcd_write_read(begin_call(etcd, call, "/v3/kv/txn"), keys, n);
    try_endpoint(call);
}

void etcd_put(struct etcd *etcd, struct etcd_call *call, const char *key, struct span value,
              int64_t lease) {
    etcd_write_put(begin_call(etcd, call, "/v3/kv/put"), key, value, lease);
    try_endpoint(call);
}

void etcd_claim(struct etcd *etcd, struct etcd_call *call, const char *key, int64_t mod_revision,
                struct span value, int64_t lease) {
    etcd_write_claim(begin_call(etcd, call, "/v3/kv/txn"), key, mod_revision, value, lease);
    try_endpoint(call);
}

void etcd_delete(struct etcd *etcd, struct etcd_call *call, const char *key) {
    etcd_write_delete(begin_call(etcd, call, "/v3/kv/deleterange"), key);
    try_endpoint(call);
}

void etcd_lease_grant(struct etcd *etcd, struct etcd_call *call, int64_t ttl_s) {
    etcd_write_grant(begin_call(etcd, call, "/v3/lease/grant"), ttl_s);
    try_endpoint(call);
}

void etcd_lease_keep_alive(struct etcd *etcd, struct etcd_call *call, int64_t lease) {
    etcd_write_lease(begin_call(etcd, call, "/v3/lease/keepalive"), lease);
    try_endpoint(call);
}

void etcd_lease_time_to_live(struct etcd *etcd, struct etcd_call *call, int64_t lease) {
    etcd_write_lease(begin_call(etcd, call, "/v3/lease/timetolive"), lease);
    try_endpoint(call);
}

void etcd_lease_revoke(struct etcd *etcd, struct etcd_call *call, int64_t lease) {
    etcd_write_lease(begin_call(etcd, call, "/v3/lease/revoke"), lease);
    try_endpoint(call);
}

/* ---- the watch ---- */

void etcd_watch_stop(struct etcd_watch *watch) {
    if (!watch->etcd)
        return;
    http_call_cancel(&watch->http);
    list_remove(&watch->link);
    str_fini(&watch->pending);
    watch->etcd = NULL;
}

/* Returns false when the watch has ended. */
static bool take_line(struct etcd_watch *watch, struct span line) {
    struct etcd_reply reply;
    etcd_reply_init(&reply);
    struct status *st = etcd_reply_parse(line, &reply);
    if (!st && reply.compact_revision > 0)
        st = status_out_of_range("etcd: the revision was compacted; the oldest is %lld",
                                 (long long)reply.compact_revision);
    else if (!st && reply.is_cancelled)
        st = status_unavailable("etcd: the watch was cancelled%s%.300s",
                                reply.cancel_reason ? ": " : "",
                                reply.cancel_reason ? reply.cancel_reason : "");
    if (!st)
        watch->on_events(watch, &reply);
    else
        watch_end(watch, st);
    etcd_reply_fini(&reply);
    return watch->etcd != NULL;
}

static void watch_data(struct http_call *http, struct span bytes) {
    struct etcd_watch *watch = CONTAINER_OF(http, struct etcd_watch, http);
    const char *end;
    while (bytes.len > 0 && (end = memchr(bytes.data, '\n', bytes.len))) {
        size_t len = (size_t)(end - bytes.data);
        struct str line = watch->pending;
        watch->pending = STR_INIT;
        str_add_bytes(&line, bytes.data, len);
        bytes = (struct span){end + 1, bytes.len - len - 1};
        bool goes_on = line.len == 0 || take_line(watch, (struct span){line.data, line.len});
        str_fini(&line);
        if (!goes_on)
            return;
    }
    str_add_bytes(&watch->pending, bytes.data, bytes.len);
    if (watch->pending.len > ETCD_MAX_REPLY_BYTES)
        watch_end(watch, status_exhausted("etcd: a line of more than %d bytes in a watch",
                                          ETCD_MAX_REPLY_BYTES));
}

static void watch_done(struct http_call *http, struct status *status_take, int http_code,
                       struct span body) {
    struct etcd_watch *watch = CONTAINER_OF(http, struct etcd_watch, http);
    struct status *st = status_take;
    if (!st && http_code != 200)
        st = etcd_failure_parse(http_code,
                                (struct span){str_text(&watch->pending), watch->pending.len});
    watch_end(watch, st ? st : status_unavailable("etcd ended the watch"));
}

void etcd_watch_start(struct etcd *etcd, struct etcd_watch *watch, const char *prefix,
                      int64_t from_revision) {
    struct str url = STR_INIT, body = STR_INIT;
    struct http_request request;
    const char *headers[N_HEADERS];
    CHECK(!watch->etcd);
    watch->etcd = etcd;
    watch->endpoint = etcd->current;
    watch->pending = STR_INIT;
    watch->http = (struct http_call){.on_data = watch_data, .on_done = watch_done};
    list_push_back(&etcd->watches, &watch->link);
    str_addf(&url, "%s/v3/watch", etcd->urls[watch->endpoint]);
    etcd_write_watch(&body, prefix, from_revision);
    fill_headers(etcd, headers);
    fill_request(etcd, str_text(&url), &body, headers, &request);
    request.timeout_ms = 0;
    http_call_start(etcd->http, &watch->http, &request);
    str_fini(&url);
    str_fini(&body);
}

/* ---- life ---- */

static char *dup_or_null(const char *text) { return text ? xstrdup(text) : NULL; }

static void free_memory(struct etcd *etcd) {
    for (int i = 0; i < etcd->n_urls; i++)
        free(etcd->urls[i]);
    free((char *)(uintptr_t)etcd->options.ca_file);
    free((char *)(uintptr_t)etcd->options.cert_file);
    free((char *)(uintptr_t)etcd->options.key_file);
    etcd_login_fini(&etcd->login);
    status_unref(etcd->why_down);
    free(etcd);
}

struct status *etcd_new(struct loop *loop, const struct etcd_options *options,
                        struct etcd **ret_etcd) {
    struct etcd *etcd = xcalloc(1, sizeof(*etcd));
    etcd->options.timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : DEFAULT_TIMEOUT_MS;
    etcd->options.ca_file = dup_or_null(options->ca_file);
    etcd->options.cert_file = dup_or_null(options->cert_file);
    etcd->options.key_file = dup_or_null(options->key_file);
    list_init(&etcd->calls);
    list_init(&etcd->watches);
    struct status *st = read_urls(options->urls, etcd->urls, &etcd->n_urls);
    etcd->login.on_done = on_logged_in;
    if (!st)
        st = etcd_login_init(&etcd->login, options->user, options->password_file);
    if (!st)
        st = http_client_new(loop, &etcd->http);
    if (st) {
        free_memory(etcd);
        return status_prefix_take(st, "etcd: ");
    }
    metrics_register(&etcd_up);
    metrics_register(&etcd_failures_total);
    *ret_etcd = etcd;
    return NULL;
}

static void on_http_closed(void *arg) {
    struct etcd *etcd = arg;
    void (*on_closed)(void *arg) = etcd->on_closed;
    void *on_closed_arg = etcd->on_closed_arg;
    free_memory(etcd);
    if (on_closed)
        on_closed(on_closed_arg);
}

void etcd_close(struct etcd *etcd, void (*on_closed)(void *arg), void *arg) {
    if (!etcd)
        return;
    while (!list_is_empty(&etcd->calls))
        etcd_call_cancel(LIST_ENTRY(etcd->calls.next, struct etcd_call, link));
    while (!list_is_empty(&etcd->watches))
        etcd_watch_stop(LIST_ENTRY(etcd->watches.next, struct etcd_watch, link));
    etcd_login_fini(&etcd->login);
    etcd->on_closed = on_closed;
    etcd->on_closed_arg = arg;
    http_client_close(etcd->http, on_http_closed, etcd);
}
