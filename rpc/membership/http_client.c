/* Runs libcurl on the loop.
 *
 *   socket or timer ready ──► multi_socket_action ──► write_body: keeps bytes, marks the call
 *                                   │ returned
 *                                   ▼
 *                             deliver: on_data of marked calls, then on_done of those that ended
 *
 * User code runs only in deliver, where calls may be started and cancelled: libcurl forbids that
 * inside its callbacks. */
#include "rpc/membership/http_client.h"

#include <stdlib.h>

#include "rpc/membership/curl_library.h"

enum { DEFAULT_BODY_BYTES = 1 << 20, KEEPALIVE_S = 15 };

struct http_client {
    struct loop *loop;
    const struct curl_library *curl;
    CURLM *multi;
    struct loop_timer timer;
    struct loop_task close_task;
    struct list calls;
    int n_handles;
    bool is_closing;
    void (*on_closed)(void *arg);
    void *on_closed_arg;
};

/* A socket of libcurl's that the loop polls. */
struct http_socket {
    uv_poll_t poll;
    struct http_client *client;
    curl_socket_t fd;
};

/* ---- the end of a call ---- */

static void detach(struct http_call *call) {
    struct http_client *client = call->client;
    client->curl->multi_remove_handle(client->multi, call->easy);
    client->curl->easy_cleanup(call->easy);
    client->curl->slist_free_all(call->header_list);
    list_remove(&call->link);
    call->client = NULL;
    call->easy = call->header_list = NULL;
}

void http_call_cancel(struct http_call *call) {
    if (!call->client)
        return;
    detach(call);
    str_fini(&call->body);
}

static struct status *why_failed(const struct http_call *call, CURLcode code) {
    const struct curl_library *curl = call->client->curl;
    const char *url = NULL;
    curl->easy_getinfo(call->easy, CURLINFO_EFFECTIVE_URL, &url);
    if (call->is_too_large)
        return status_exhausted("%s: more than %zu bytes in the answer", url ? url : "",
                                call->max_body_bytes);
    return status_unavailable("%s: %s", url ? url : "", curl->easy_strerror(code));
}

static int connect_error(const struct http_call *call) {
    long error = 0;
    call->client->curl->easy_getinfo(call->easy, CURLINFO_OS_ERRNO, &error);
    return (int)error;
}

static void finish(struct http_call *call, CURLcode code) {
    long http_code = 0;
    struct str body = call->body;
    struct status *st = NULL;
    if (code == CURLE_COULDNT_CONNECT)
        call->connect_error = connect_error(call);
    if (code != CURLE_OK)
        st = why_failed(call, code);
    else
        call->client->curl->easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &http_code);
    detach(call);
    call->body = STR_INIT;
    call->on_done(call, st, (int)http_code, (struct span){str_text(&body), body.len});
    str_fini(&body);
}

static bool deliver_data(struct http_client *client) {
    LIST_FOR_EACH (link, &client->calls) {
        struct http_call *call = LIST_ENTRY(link, struct http_call, link);
        if (!call->is_dirty)
            continue;
        struct str bytes = call->body;
        call->is_dirty = false;
        call->body = STR_INIT;
        call->on_data(call, (struct span){bytes.data, bytes.len});
        str_fini(&bytes);
        return true; /* the callback may have changed the list */
    }
    return false;
}

static void deliver(struct http_client *client) {
    CURLMsg *message;
    int n_left;
    while (deliver_data(client))
        ;
    while ((message = client->curl->multi_info_read(client->multi, &n_left))) {
        struct http_call *call = NULL;
        CURLcode code = message->data.result;
        client->curl->easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &call);
        if (call)
            finish(call, code);
    }
}

/* ---- libcurl's callbacks ---- */

static size_t write_body(char *bytes, size_t size, size_t n, void *arg) {
    struct http_call *call = arg;
    size_t len = size * n;
    if (len > call->max_body_bytes - MIN(call->body.len, call->max_body_bytes)) {
        call->is_too_large = true;
        return 0;
    }
    str_add_bytes(&call->body, bytes, len);
    call->is_dirty = call->on_data != NULL && call->body.len > 0;
    return len;
}

static void drive(struct http_client *client, curl_socket_t fd, int events) {
    int n_running;
    if (client->is_closing)
        return;
    client->curl->multi_socket_action(client->multi, fd, events, &n_running);
    deliver(client);
}

static void on_poll(uv_poll_t *poll, int status, int events) {
    struct http_socket *socket = CONTAINER_OF(poll, struct http_socket, poll);
    int what = status < 0 ? CURL_CSELECT_ERR : 0;
    what |= events & UV_READABLE ? CURL_CSELECT_IN : 0;
    what |= events & UV_WRITABLE ? CURL_CSELECT_OUT : 0;
    drive(socket->client, socket->fd, what);
}

static void on_timer(struct loop_timer *timer) {
    drive(CONTAINER_OF(timer, struct http_client, timer), CURL_SOCKET_TIMEOUT, 0);
}

static int set_timer(CURLM *multi, long timeout_ms, void *arg) {
    struct http_client *client = arg;
    if (client->is_closing)
        return 0;
    if (timeout_ms < 0)
        loop_timer_stop(&client->timer);
    else
        loop_timer_start(&client->timer, timeout_ms, 0);
    return 0;
}

static void release_handle(struct http_client *client) {
    if (--client->n_handles > 0 || !client->is_closing)
        return;
    void (*on_closed)(void *arg) = client->on_closed;
    void *arg = client->on_closed_arg;
    free(client);
    if (on_closed)
        on_closed(arg);
}

static void on_socket_closed(uv_handle_t *handle) {
    struct http_socket *socket = CONTAINER_OF((uv_poll_t *)handle, struct http_socket, poll);
    struct http_client *client = socket->client;
    free(socket);
    release_handle(client);
}

static int watch_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *assigned) {
    struct http_client *client = arg;
    struct http_socket *socket = assigned;
    if (what == CURL_POLL_REMOVE) {
        if (socket)
            uv_close((uv_handle_t *)&socket->poll, on_socket_closed);
        client->curl->multi_assign(client->multi, fd, NULL);
        return 0;
    }
    if (!socket) {
        socket = xcalloc(1, sizeof(*socket));
        socket->client = client;
        socket->fd = fd;
        if (uv_poll_init(loop_uv(client->loop), &socket->poll, fd) != 0) {
            free(socket);
            return -1;
        }
        client->n_handles++;
        client->curl->multi_assign(client->multi, fd, socket);
    }
    uv_poll_start(&socket->poll,
                  (what & CURL_POLL_IN ? UV_READABLE : 0) |
                      (what & CURL_POLL_OUT ? UV_WRITABLE : 0),
                  on_poll);
    return 0;
}

/* ---- starting ---- */

static void set_tls(const struct curl_library *curl, CURL *easy,
                    const struct http_request *request) {
    if (request->accepts_any_certificate) {
        curl->easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
        curl->easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
    }
    if (request->ca_file)
        curl->easy_setopt(easy, CURLOPT_CAINFO, request->ca_file);
    if (request->cert_file)
        curl->easy_setopt(easy, CURLOPT_SSLCERT, request->cert_file);
    if (request->key_file)
        curl->easy_setopt(easy, CURLOPT_SSLKEY, request->key_file);
}

/* The request goes to the configured address: no proxy from the environment is used, and no
 * redirection is followed. */
static void set_transfer(const struct curl_library *curl, CURL *easy,
                         const struct http_request *request) {
    curl->easy_setopt(easy, CURLOPT_URL, request->url);
    if (request->unix_path)
        curl->easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, request->unix_path);
    curl->easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl->easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl->easy_setopt(easy, CURLOPT_PROXY, "");
    curl->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl->easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl->easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, (long)KEEPALIVE_S);
    curl->easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, (long)KEEPALIVE_S);
    if (request->timeout_ms > 0)
        curl->easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)request->timeout_ms);
    if (request->connect_timeout_ms > 0)
        curl->easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)request->connect_timeout_ms);
    if (request->body.data) {
        curl->easy_setopt(easy, CURLOPT_POST, 1L);
        curl->easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->body.len);
        curl->easy_setopt(easy, CURLOPT_COPYPOSTFIELDS, request->body.data);
    }
}

void http_call_start(struct http_client *client, struct http_call *call,
                     const struct http_request *request) {
    const struct curl_library *curl = client->curl;
    CURL *easy = curl->easy_init();
    CHECK(easy && !call->client);
    call->client = client;
    call->easy = easy;
    call->body = STR_INIT;
    call->max_body_bytes = request->max_body_bytes ? request->max_body_bytes : DEFAULT_BODY_BYTES;
    call->is_too_large = call->is_dirty = false;
    /* do not wait for "100 Continue" before the body */
    call->header_list = curl->slist_append(NULL, "Expect:");
    for (const char *const *header = request->headers; header && *header; header++)
        call->header_list = curl->slist_append(call->header_list, *header);
    curl->easy_setopt(easy, CURLOPT_HTTPHEADER, call->header_list);
    set_transfer(curl, easy, request);
    set_tls(curl, easy, request);
    curl->easy_setopt(easy, CURLOPT_WRITEFUNCTION, write_body);
    curl->easy_setopt(easy, CURLOPT_WRITEDATA, call);
    curl->easy_setopt(easy, CURLOPT_PRIVATE, call);
    list_push_back(&client->calls, &call->link);
    CHECK(curl->multi_add_handle(client->multi, easy) == CURLM_OK);
}

struct status *http_client_new(struct loop *loop, struct http_client **ret_client) {
    const struct curl_library *curl;
    TRY(curl_library_get(&curl));
    struct http_client *client = xcalloc(1, sizeof(*client));
    client->loop = loop;
    client->curl = curl;
    client->n_handles = 1;
    list_init(&client->calls);
    client->multi = curl->multi_init();
    CHECK(client->multi);
    loop_timer_init(loop, &client->timer, on_timer);
    curl->multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, watch_socket);
    curl->multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client);
    curl->multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, set_timer);
    curl->multi_setopt(client->multi, CURLMOPT_TIMERDATA, client);
    *ret_client = client;
    return NULL;
}

static void on_timer_closed(struct loop_timer *timer) {
    release_handle(CONTAINER_OF(timer, struct http_client, timer));
}

static void run_close(struct loop_task *task) {
    struct http_client *client = CONTAINER_OF(task, struct http_client, close_task);
    client->curl->multi_cleanup(client->multi);
    loop_timer_close(&client->timer, on_timer_closed);
}

/* The rest is deferred, because a callback of a call may have called this while deliver is
 * running. */
void http_client_close(struct http_client *client, void (*on_closed)(void *arg), void *arg) {
    if (!client || client->is_closing)
        return;
    client->is_closing = true;
    while (!list_is_empty(&client->calls))
        http_call_cancel(LIST_ENTRY(client->calls.next, struct http_call, link));
    client->on_closed = on_closed;
    client->on_closed_arg = arg;
    client->close_task.run = run_close;
    loop_defer(client->loop, &client->close_task);
}
