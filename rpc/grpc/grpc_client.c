/* Keeps a client's one connection, reconnects it, and runs calls over it with their deadlines. */
#include "rpc/grpc/grpc_client.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/str.h"
#include "rpc/grpc/grpc_connect.h"
#include "rpc/grpc/grpc_connection.h"
#include "rpc/grpc/grpc_session.h"

/* One connection at a time takes new calls. One that the server is about to close (GOAWAY) only
 * finishes its calls.
 *
 *   no connection ── a call, or grpc_client_new ──► connecting ──► connected
 *        ▲                                            │ refused        │ broken, GOAWAY
 *        └────────────────────────────────────────────┴────────────────┘
 *
 * When a connection is refused, waiting calls fail; with wait_for_ready they wait for the next
 * attempt. */
enum { RETRY_MIN_MS = 20, RETRY_MAX_MS = 1000 };

struct grpc_client {
    struct loop *loop;
    char *target;
    struct net_address address;
    struct tls *tls; /* NULL: without TLS */
    char *tls_name;
    struct status *bad_target; /* the target is not an address: the error of every call */
    bool wait_for_ready, is_closing;
    /* the connection that takes new calls; NULL: there is none */
    struct grpc_connection *connection;
    struct list connections;          /* all connections that exist */
    struct grpc_connector *connector; /* NULL unless connecting */
    struct loop_timer retry;
    bool retry_is_set;
    int64_t retry_ms;
    struct grpc_quota quota;
    struct list live;     /* calls that are not finished */
    struct list finished; /* calls whose on_done is due */
    struct loop_task deliver;
    bool deliver_is_due;
    /* calls, connections, connector, timer: the client is freed after all of them */
    int64_t n_parts;
    void (*on_closed)(void *arg);
    void *closed_arg;
};

struct grpc_client_call {
    struct grpc_stream stream;
    struct grpc_client *client;
    struct list call_link; /* client->live, then ->finished */
    char *path;
    struct grpc_body body; /* held until it is submitted */
    int64_t timeout_ms, deadline_ns;
    struct loop_timer deadline;
    grpc_done_fn *on_done;
    void *arg;
    int http_status, grpc_status; /* -1: the header has not arrived */
    struct str message_text;
    bool is_submitted, is_finished;
    struct status *result;
    struct grpc_message reply;
};

static const struct grpc_role client_role;
static void connect_now(struct grpc_client *client);

static struct grpc_client_call *call_of(struct grpc_stream *stream) {
    return CONTAINER_OF(stream, struct grpc_client_call, stream);
}

/* ---- ends ---- */

static void schedule_delivery(struct grpc_client *client) {
    if (client->deliver_is_due)
        return;
    client->deliver_is_due = true;
    loop_defer(client->loop, &client->deliver);
}

static void part_is_gone(struct grpc_client *client) {
    client->n_parts--;
    if (client->is_closing)
        schedule_delivery(client);
}

static void free_client(struct grpc_client *client) {
    void (*on_closed)(void *arg) = client->on_closed;
    void *arg = client->closed_arg;
    status_unref(client->bad_target);
    tls_unref(client->tls);
    free(client->tls_name);
    free(client->target);
    free(client);
    if (on_closed)
        on_closed(arg);
}

static void deliver(struct loop_task *task) {
    struct grpc_client *client = CONTAINER_OF(task, struct grpc_client, deliver);
    struct list batch, *link;
    list_init(&batch);
    list_splice_back(&batch, &client->finished);
    client->deliver_is_due = false;
    while ((link = list_pop_front(&batch))) {
        struct grpc_client_call *call = LIST_ENTRY(link, struct grpc_client_call, call_link);
        call->on_done(call->arg, call->result, call->reply);
        grpc_stream_unref(&call->stream);
    }
    if (client->is_closing && client->n_parts == 0 && !client->deliver_is_due)
        free_client(client);
}

static void on_deadline_closed(struct loop_timer *timer) {
    grpc_stream_unref(&CONTAINER_OF(timer, struct grpc_client_call, deadline)->stream);
}

/* on_done will report the end. The stream may live until the server has taken notice. */
static void finish(struct grpc_client_call *call, struct status *status_take) {
    if (call->is_finished) {
        status_unref(status_take);
        return;
    }
    call->is_finished = true;
    call->result = status_take;
    loop_timer_close(&call->deadline, on_deadline_closed);
    list_remove(&call->call_link);
    list_push_back(&call->client->finished, &call->call_link);
    schedule_delivery(call->client);
}

/* Ends a call before its time, and tells the server. */
static void abandon(struct grpc_client_call *call, struct status *why_take) {
    if (call->is_finished) {
        status_unref(why_take);
        return;
    }
    finish(call, why_take);
    if (call->stream.connection) {
        grpc_receiver_refuse(&call->stream.in);
        grpc_stream_reset(&call->stream, NGHTTP2_CANCEL);
    }
}

static void free_call(struct grpc_stream *stream) {
    struct grpc_client_call *call = call_of(stream);
    struct grpc_client *client = call->client;
    grpc_body_fini(&call->body);
    str_fini(&call->message_text);
    free(call->path);
    free(call);
    part_is_gone(client);
}

/* ---- the reply, inside nghttp2 ---- */

static int parse_small_number(struct span text) {
    int number = 0;
    if (text.len == 0 || text.len > 4)
        return -1;
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return -1;
        number = number * 10 + (text.data[i] - '0');
    }
    return number;
}

static void on_header(struct grpc_stream *stream, struct span name, struct span value) {
    struct grpc_client_call *call = call_of(stream);
    if (span_is(name, ":status")) {
        call->http_status = parse_small_number(value);
    } else if (span_is(name, "grpc-status")) {
        int number = parse_small_number(value);
        call->grpc_status = number >= 0 ? number : STATUS_UNKNOWN;
    } else if (span_is(name, "grpc-message")) {
        str_clear(&call->message_text);
        grpc_percent_decode(value, &call->message_text);
    }
}

static void on_headers_end(struct grpc_stream *stream) {}

static void on_refused(struct grpc_stream *stream, struct status *why_take) {
    struct grpc_client_call *call = call_of(stream);
    abandon(call,
            status_prefix_take(why_take, "%s: reply to %s: ", call->client->target, call->path));
}

/* The meaning of an HTTP answer without a gRPC status (grpc/doc/http-grpc-status-mapping.md). */
static enum status_code code_of_http(int http_status) {
    switch (http_status) {
    case 400:
        return STATUS_INTERNAL;
    case 401:
        return STATUS_UNAUTHENTICATED;
    case 403:
        return STATUS_PERMISSION_DENIED;
    case 404:
        return STATUS_UNIMPLEMENTED;
    case 429:
    case 502:
    case 503:
    case 504:
        return STATUS_UNAVAILABLE;
    default:
        return STATUS_UNKNOWN;
    }
}

static void on_end(struct grpc_stream *stream) {
    struct grpc_client_call *call = call_of(stream);
    struct status *why = NULL;
    if (call->is_finished)
        return;
    if (call->grpc_status < 0)
        why = status_new(code_of_http(call->http_status),
                         "%s: %s ended without a gRPC status (HTTP status %d)",
                         call->client->target, call->path, call->http_status);
    else if (call->grpc_status > 0)
        why = status_from_wire(call->grpc_status, (struct span){str_text(&call->message_text),
                                                                call->message_text.len});
    else
        why = grpc_receiver_end(&stream->in);
    if (!why)
        call->reply = grpc_receiver_take(&stream->in);
    finish(call, why);
    if (nghttp2_session_get_stream_local_close(stream->connection->session, stream->id) == 0)
        /* the server answered before the request was complete */
        grpc_stream_reset(stream, NGHTTP2_CANCEL);
}

static void on_gone(struct grpc_stream *stream, struct status *why_take) {
    struct grpc_client_call *call = call_of(stream);
    if (!why_take)
        why_take = status_internal("the stream was closed before the reply was whole");
    finish(call, status_prefix_take(why_take, "%s: %s: ", call->client->target, call->path));
}

static void on_goaway(struct grpc_connection *connection) {
    struct grpc_client *client = connection->owner;
    if (client->connection == connection)
        client->connection = NULL;
}

static void on_connection_closed(struct grpc_connection *connection) {
    struct grpc_client *client = connection->owner;
    on_goaway(connection);
    part_is_gone(client);
}

static const struct grpc_role client_role = {
    .on_header = on_header,
    .on_headers_end = on_headers_end,
    .on_refused = on_refused,
    .on_end = on_end,
    .on_gone = on_gone,
    .on_goaway = on_goaway,
    .on_closed = on_connection_closed,
    .free_stream = free_call,
};

/* ---- requests ---- */

/* At most eight digits and a unit. */
static int format_timeout(char *text, size_t size, int64_t ms) {
    if (ms < 100000000)
        return snprintf(text, size, "%" PRId64 "m", MAX(ms, 0));
    return snprintf(text, size, "%" PRId64 "S", MIN(ms / 1000 + 1, (int64_t)99999999));
}

static void submit(struct grpc_client_call *call) {
    struct grpc_client *client = call->client;
    const char *authority = client->address.is_unix ? "localhost" : client->target;
    nghttp2_nv headers[9] = {
        GRPC_NV_STATIC(":method", "POST"),
        client->tls ? GRPC_NV_STATIC(":scheme", "https") : GRPC_NV_STATIC(":scheme", "http"),
        GRPC_NV(":path", call->path, strlen(call->path)),
        GRPC_NV(":authority", authority, strlen(authority)),
        GRPC_NV_STATIC("te", "trailers"),
        GRPC_NV_STATIC("content-type", "application/grpc"),
        GRPC_NV_STATIC("grpc-accept-encoding", "identity"),
        GRPC_NV_STATIC("user-agent", "millrace/" MILLRACE_VERSION),
    };
    size_t n_headers = 8;
    char timeout[24];
    if (call->timeout_ms >= 0) {
        int64_t left_ms = (call->deadline_ns - clock_now_ns() + 999999) / 1000000;
        headers[n_headers++] = GRPC_NV_ONCE(
            "grpc-timeout", timeout, (size_t)format_timeout(timeout, sizeof(timeout), left_ms));
    }
    call->is_submitted = true;
    grpc_stream_attach_take(grpc_stream_ref(&call->stream), client->connection);
    if (!grpc_stream_send(&call->stream, headers, n_headers, &call->body)) {
        /* its stream ids are used up, so the next call gets a new connection */
        client->connection = NULL;
        grpc_session_detach(&call->stream,
                            status_unavailable("the connection takes no more calls"));
    }
}

static bool is_connected(const struct grpc_client *client) {
    return client->connection && client->connection->state == CONNECTION_OPEN;
}

static void submit_waiting(struct grpc_client *client) {
    LIST_FOR_EACH_SAFE (link, next, &client->live) {
        struct grpc_client_call *call = LIST_ENTRY(link, struct grpc_client_call, call_link);
        if (!call->is_submitted && is_connected(client))
            submit(call);
    }
}

static bool has_waiting(struct grpc_client *client) {
    LIST_FOR_EACH (link, &client->live)
        if (!LIST_ENTRY(link, struct grpc_client_call, call_link)->is_submitted)
            return true;
    return false;
}

static void fail_waiting(struct grpc_client *client, struct status *why) {
    LIST_FOR_EACH_SAFE (link, next, &client->live) {
        struct grpc_client_call *call = LIST_ENTRY(link, struct grpc_client_call, call_link);
        if (!call->is_submitted)
            finish(call, status_ref(why));
    }
}

/* ---- connecting ---- */

static void on_retry(struct loop_timer *timer) {
    struct grpc_client *client = CONTAINER_OF(timer, struct grpc_client, retry);
    client->retry_is_set = false;
    if (has_waiting(client))
        connect_now(client);
}

static void on_connect(void *arg, int fd_take, struct status *status_take) {
    struct grpc_client *client = arg;
    client->connector = NULL;
    client->n_parts--;
    if (status_take) {
        if (client->wait_for_ready) {
            client->retry_is_set = true;
            loop_timer_start(&client->retry, client->retry_ms, 0);
            client->retry_ms = MIN(client->retry_ms * 2, (int64_t)RETRY_MAX_MS);
        } else {
            fail_waiting(client, status_take);
        }
        status_unref(status_take);
        return;
    }
    client->retry_ms = RETRY_MIN_MS;
    client->connection = grpc_connection_new(client->loop, fd_take, &client_role, client, NULL);
    client->n_parts++;
    list_push_back(&client->connections, &client->connection->link);
    if (client->tls) {
        struct tls_stream *stream = tls_stream_new(client->tls, false, client->target);
        tls_stream_expect(stream, client->tls_name);
        grpc_connection_secure(client->connection, stream);
    }
    submit_waiting(client);
}

static void connect_now(struct grpc_client *client) {
    if (client->connector || client->retry_is_set || client->bad_target || client->is_closing)
        return;
    client->n_parts++;
    client->connector = grpc_connector_new(client->loop, &client->address, on_connect, client);
}

/* ---- the client ---- */

struct grpc_client *grpc_client_new(struct loop *loop, const char *target, bool wait_for_ready) {
    struct grpc_client *client = xcalloc(1, sizeof(*client));
    client->loop = loop;
    client->target = xstrdup(target);
    client->bad_target = net_address_parse(target, &client->address);
    if (!client->bad_target && client->address.is_local)
        client->bad_target =
            status_invalid("%s: no gRPC server listens at an address within a process", target);
    client->wait_for_ready = wait_for_ready;
    client->retry_ms = RETRY_MIN_MS;
    client->quota = (struct grpc_quota){.limit_bytes = INT64_MAX, .max_message_bytes = INT32_MAX};
    client->deliver.run = deliver;
    list_init(&client->connections);
    list_init(&client->live);
    list_init(&client->finished);
    loop_timer_init(loop, &client->retry, on_retry);
    client->n_parts = 1;
    connect_now(client);
    return client;
}

void grpc_client_secure(struct grpc_client *client, struct tls *tls, const char *name) {
    if (client->bad_target || client->address.is_unix)
        return;
    client->tls = tls_ref(tls);
    client->tls_name = xstrdup(name ? name : client->address.host);
}

static void on_retry_closed(struct loop_timer *timer) {
    part_is_gone(CONTAINER_OF(timer, struct grpc_client, retry));
}
static void on_connector_gone(void *arg) { part_is_gone(arg); }

void grpc_client_close(struct grpc_client *client, void (*on_closed)(void *arg), void *arg) {
    CHECK(!client->is_closing);
    client->is_closing = true;
    client->on_closed = on_closed;
    client->closed_arg = arg;
    LIST_FOR_EACH_SAFE (link, next, &client->live) {
        struct grpc_client_call *call = LIST_ENTRY(link, struct grpc_client_call, call_link);
        finish(call, status_new(STATUS_CANCELLED, "%s: %s: the client was closed", client->target,
                                call->path));
    }
    if (client->connector)
        grpc_connector_cancel(client->connector, on_connector_gone);
    client->connector = NULL;
    client->connection = NULL;
    LIST_FOR_EACH (link, &client->connections)
        grpc_connection_break(LIST_ENTRY(link, struct grpc_connection, link), NULL);
    loop_timer_close(&client->retry, on_retry_closed);
}

static void on_deadline(struct loop_timer *timer) {
    struct grpc_client_call *call = CONTAINER_OF(timer, struct grpc_client_call, deadline);
    abandon(call, status_new(STATUS_DEADLINE_EXCEEDED, "%s: no reply to %s within %" PRId64 " ms%s",
                             call->client->target, call->path, call->timeout_ms,
                             call->is_submitted ? "" : " (not connected)"));
}

struct grpc_client_call *grpc_client_start(struct grpc_client *client, const char *path,
                                           struct grpc_body *body, int64_t timeout_ms,
                                           grpc_align_fn *align, grpc_done_fn *on_done, void *arg) {
    CHECK(!client->is_closing);
    struct grpc_client_call *call = xcalloc(1, sizeof(*call));
    grpc_stream_init(&call->stream, &client_role, &client->quota, align);
    call->client = client;
    call->path = xstrdup(path);
    call->body = *body;
    grpc_body_init(body);
    call->timeout_ms = timeout_ms > INT64_MAX / 2000000 ? -1 : timeout_ms;
    call->on_done = on_done;
    call->arg = arg;
    call->http_status = call->grpc_status = -1;
    list_push_back(&client->live, &call->call_link);
    client->n_parts++;
    if (call->timeout_ms >= 0) {
        call->deadline_ns = clock_now_ns() + call->timeout_ms * 1000000;
        loop_timer_init(client->loop, &call->deadline, on_deadline);
        loop_timer_start(&call->deadline, call->timeout_ms, 0);
        grpc_stream_ref(&call->stream);
    }
    if (client->bad_target)
        finish(call, status_ref(client->bad_target));
    else if (call->body.size_bytes > INT32_MAX)
        finish(call,
               status_exhausted(
                   "%s: a request of %zu bytes exceeds the 2 GiB that one gRPC message carries",
                   path, call->body.size_bytes));
    else if (is_connected(client))
        submit(call);
    else
        connect_now(client);
    return call;
}

void grpc_client_cancel(struct grpc_client_call *call) {
    abandon(call,
            status_new(STATUS_CANCELLED, "%s: %s was cancelled", call->client->target, call->path));
}
