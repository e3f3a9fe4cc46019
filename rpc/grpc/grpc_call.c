/* Moves a server's call through its life: headers, message, delivery, answer, end of the stream. */
#include "rpc/grpc/grpc_call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/str.h"

enum {
    /* what HTTP/2 adds to each field when it computes the size of a header list */
    HEADER_OVERHEAD_BYTES = 32,
    /* how much is inflated before the loop serves others: about a millisecond */
    INFLATE_SLICE_BYTES = 512 * 1024,
    MAX_NAME_BYTES = 64, /* how much of an unknown encoding's name the answer quotes */
};

static struct grpc_call *call_of(struct grpc_stream *stream) {
    return CONTAINER_OF(stream, struct grpc_call, stream);
}

static void on_deadline(struct loop_timer *timer);

static void start_deadline(struct grpc_call *call) {
    if (call->timeout_ms < 0)
        return;
    loop_timer_init(call->server->loop, &call->deadline, on_deadline);
    loop_timer_start(&call->deadline, call->timeout_ms, 0);
    grpc_stream_ref(&call->stream);
}

/* ---- life ---- */

static struct grpc_stream *new_call(struct grpc_connection *connection) {
    struct grpc_server *server = connection->owner;
    if (server->n_calls >= server->options.limits.max_calls) {
        grpc_refusal_count(REFUSED_CALL);
        return NULL;
    }
    struct grpc_call *call = xcalloc(1, sizeof(*call));
    list_init(&call->inflating_link);
    grpc_stream_init(&call->stream, &grpc_server_role, &server->quota, NULL);
    grpc_stream_attach_take(&call->stream, connection);
    call->server = server;
    call->connection_id = connection->id;
    call->timeout_ms = -1;
    server->n_calls++;
    return &call->stream;
}

struct grpc_call *grpc_call_new_inproc(struct grpc_server *server, const struct grpc_method *method,
                                       struct grpc_inproc *inproc, struct grpc_message message_take,
                                       int64_t timeout_ms) {
    struct grpc_call *call = xcalloc(1, sizeof(*call));
    list_init(&call->inflating_link);
    grpc_stream_init(&call->stream, &grpc_server_role, &server->quota, NULL);
    call->server = server;
    call->method = method;
    call->inproc = inproc;
    call->message = message_take;
    call->timeout_ms = timeout_ms;
    call->has_headers = call->is_ended = true;
    server->n_calls++;
    start_deadline(call);
    return call;
}

static void stop_inflating(struct grpc_call *call) {
    list_remove(&call->inflating_link);
    grpc_inflater_free(call->inflater);
    call->inflater = NULL;
}

static void free_call(struct grpc_stream *stream) {
    struct grpc_call *call = call_of(stream);
    struct grpc_server *server = call->server;
    if (call->inproc)
        grpc_inproc_forget(call->inproc);
    stop_inflating(call);
    buffer_unref(call->message.buffer);
    status_unref(call->final);
    free(call->unknown_path);
    free(call->unknown_encoding);
    free(call);
    server->n_calls--;
    grpc_server_check_idle(server);
}

static void on_deadline_closed(struct loop_timer *timer) {
    struct grpc_call *call = CONTAINER_OF(timer, struct grpc_call, deadline);
    grpc_stream_unref(&call->stream);
}

static void stop_deadline(struct grpc_call *call) {
    loop_timer_close(&call->deadline, on_deadline_closed);
}

/* ---- answers ---- */

/* Trailers only: one header block is the whole answer. */
static void send_error(struct grpc_call *call, const char *http_status,
                       struct status *status_take) {
    if (call->inproc) {
        grpc_inproc_answer(call->inproc, status_take, NULL);
        return;
    }
    char code[12];
    int code_len = snprintf(code, sizeof(code), "%d", (int)status_code(status_take));
    struct str message = STR_INIT;
    grpc_percent_encode(status_message(status_take), &message);
    nghttp2_nv headers[6] = {
        GRPC_NV(":status", http_status, 3),
        GRPC_NV_STATIC("content-type", "application/grpc"),
        GRPC_NV("grpc-status", code, (size_t)code_len),
        GRPC_NV_ONCE("grpc-message", str_text(&message), message.len),
    };
    size_t n = 4;
    if (!call->is_post)
        headers[n++] = (nghttp2_nv)GRPC_NV_STATIC("allow", "POST");
    if (call->unknown_encoding)
        headers[n++] = (nghttp2_nv)GRPC_NV_STATIC("grpc-accept-encoding", GRPC_ACCEPT_ENCODING);
    grpc_stream_send(&call->stream, headers, n, NULL);
    str_fini(&message);
    status_unref(status_take);
}

/* The service never gets this call. */
static void refuse(struct grpc_call *call, const char *http_status, struct status *why_take) {
    call->is_refused = true;
    stop_inflating(call);
    grpc_receiver_refuse(&call->stream.in);
    stop_deadline(call);
    send_error(call, http_status, why_take);
}

/* What was sent before leaves first, then the trailers. */
static void end_streaming(struct grpc_call *call, struct status *why_take) {
    call->final = why_take;
    call->stream.is_streaming = false;
    grpc_stream_resume(&call->stream);
}

static void cancel(struct grpc_call *call) {
    call->is_cancelled = true;
    call->server->n_orphans++;
    if (call->on_cancel)
        call->on_cancel(call, call->user);
}

static void on_deadline(struct loop_timer *timer) {
    struct grpc_call *call = CONTAINER_OF(timer, struct grpc_call, deadline);
    grpc_stream_ref(&call->stream);
    struct status *why =
        status_new(STATUS_DEADLINE_EXCEEDED, "%s: the client's deadline of %" PRId64 " ms passed",
                   grpc_call_path(call), call->timeout_ms);
    if (call->stream.is_streaming) {
        call->is_refused = true;
        stop_deadline(call);
        end_streaming(call, why);
    } else {
        refuse(call, "200", why);
    }
    if (call->is_delivered)
        cancel(call);
    grpc_stream_unref(&call->stream);
}

static bool can_answer(const struct grpc_call *call) {
    return (call->stream.connection || call->inproc) && !call->is_refused && !call->is_cancelled;
}

/* The answer is on its way or dropped, so the user's part of the call has ended. */
static void finish(struct grpc_call *call) {
    CHECK(call->is_delivered && !call->is_answered);
    call->is_answered = true;
    call->server->n_orphans -= call->is_cancelled;
    stop_deadline(call);
    /* released early, because the next request may reuse the memory while this reply is still being
     * sent */
    buffer_unref(call->message.buffer);
    call->message.buffer = NULL;
    grpc_receiver_fini(&call->stream.in);
    grpc_stream_unref(&call->stream);
}

static void send_message(struct grpc_call *call, struct grpc_body *body) {
    static const nghttp2_nv headers[] = {GRPC_NV_STATIC(":status", "200"),
                                         GRPC_NV_STATIC("content-type", "application/grpc")};
    if (call->inproc)
        grpc_inproc_answer(call->inproc, NULL, body);
    else
        grpc_stream_send(&call->stream, headers, ARRAY_LEN(headers), body);
}

void grpc_call_reply(struct grpc_call *call, struct grpc_body *body) {
    if (body->size_bytes > INT32_MAX) {
        struct status *why = status_exhausted(
            "%s: the reply of %zu bytes exceeds the 2 GiB that one gRPC message carries",
            grpc_call_path(call), body->size_bytes);
        grpc_body_fini(body);
        grpc_call_fail(call, why);
        return;
    }
    if (can_answer(call))
        send_message(call, body);
    grpc_body_fini(body);
    finish(call);
}

void grpc_call_send(struct grpc_call *call, struct grpc_body *body) {
    CHECK(call->is_delivered && !call->is_answered && body->size_bytes <= INT32_MAX);
    if (can_answer(call) && call->stream.out) {
        grpc_stream_send_next(&call->stream, body);
    } else if (can_answer(call)) {
        call->stream.is_streaming = true;
        send_message(call, body);
    }
    grpc_body_fini(body);
}

static bool submit_trailers(struct grpc_stream *stream) {
    struct grpc_call *call = call_of(stream);
    static const nghttp2_nv good[] = {GRPC_NV_STATIC("grpc-status", "0")};
    nghttp2_session *session = stream->connection->session;
    if (!call->final)
        return nghttp2_submit_trailer(session, stream->id, good, ARRAY_LEN(good)) == 0;
    char code[12];
    int code_len = snprintf(code, sizeof(code), "%d", (int)status_code(call->final));
    struct str message = STR_INIT;
    grpc_percent_encode(status_message(call->final), &message);
    nghttp2_nv trailers[] = {GRPC_NV("grpc-status", code, (size_t)code_len),
                             GRPC_NV_ONCE("grpc-message", str_text(&message), message.len)};
    int rc = nghttp2_submit_trailer(session, stream->id, trailers, ARRAY_LEN(trailers));
    str_fini(&message);
    return rc == 0;
}

void grpc_call_fail(struct grpc_call *call, struct status *status_take) {
    CHECK(status_take);
    if (can_answer(call) && call->stream.is_streaming)
        end_streaming(call, status_take);
    else if (can_answer(call))
        send_error(call, "200", status_take);
    else
        status_unref(status_take);
    finish(call);
}

/* ---- the request, inside nghttp2 ---- */

static bool is_grpc_type(struct span value) {
    static const char type[] = "application/grpc";
    size_t len = sizeof(type) - 1;
    return value.len >= len && memcmp(value.data, type, len) == 0 &&
           (value.len == len || value.data[len] == '+' || value.data[len] == ';');
}

static void on_header(struct grpc_stream *stream, struct span name, struct span value) {
    struct grpc_call *call = call_of(stream);
    if (call->has_headers)
        return; /* the trailers of a client mean nothing here */
    call->n_header_bytes += name.len + value.len + HEADER_OVERHEAD_BYTES;
    if ((int64_t)call->n_header_bytes > call->server->options.limits.max_header_bytes)
        return;
    if (span_is(name, ":path")) {
        call->method = strmap_get_span(&call->server->methods, value);
        if (!call->method && !call->unknown_path)
            call->unknown_path = xstrndup(value.data, value.len);
    } else if (span_is(name, ":method")) {
        call->is_post = span_is(value, "POST");
    } else if (span_is(name, "content-type")) {
        call->is_grpc = is_grpc_type(value);
    } else if (span_is(name, "grpc-encoding")) {
        call->encoding = grpc_encoding_find(value);
        call->stream.in.takes_compressed = call->encoding != GRPC_IDENTITY;
        if (call->encoding == GRPC_N_ENCODINGS && !call->unknown_encoding)
            call->unknown_encoding = xstrndup(value.data, MIN(value.len, (size_t)MAX_NAME_BYTES));
    } else if (span_is(name, "grpc-timeout")) {
        call->has_bad_timeout = !grpc_timeout_parse(value, &call->timeout_ms);
        if (call->timeout_ms == INT64_MAX)
            call->timeout_ms = -1;
    }
}

static void on_headers_end(struct grpc_stream *stream) {
    struct grpc_call *call = call_of(stream);
    const struct grpc_server_limits *limits = &call->server->options.limits;
    if (call->has_headers)
        return;
    call->has_headers = true;
    if (stream->connection->calls_get) {
        refuse(call, "200", status_ref(stream->connection->calls_get));
        grpc_connection_drain(stream->connection);
    } else if ((int64_t)call->n_header_bytes > limits->max_header_bytes) {
        grpc_refusal_count(REFUSED_HEADERS);
        refuse(call, "200",
               status_exhausted(
                   "the request's headers have %zu bytes, more than the limit of %" PRId64,
                   call->n_header_bytes, limits->max_header_bytes));
    } else if (!call->is_post) {
        refuse(call, "405", status_unimplemented("gRPC calls are POST requests"));
    } else if (!call->is_grpc) {
        refuse(call, "415", status_invalid("the content-type is not application/grpc"));
    } else if (!call->method) {
        refuse(call, "200", status_unimplemented("unknown method %s", grpc_call_path(call)));
    } else if (call->unknown_encoding) {
        refuse(call, "200",
               status_unimplemented("%s: grpc-encoding '%s' is not one of " GRPC_ACCEPT_ENCODING,
                                    grpc_call_path(call), call->unknown_encoding));
    } else if (call->has_bad_timeout) {
        refuse(call, "200", status_invalid("%s: malformed grpc-timeout", grpc_call_path(call)));
    } else if (call->server->n_orphans >= limits->max_streams) {
        grpc_refusal_count(REFUSED_STREAM);
        refuse(call, "200",
               status_exhausted("%s: %" PRId64 " cancelled calls have not been answered yet",
                                grpc_call_path(call), call->server->n_orphans));
    } else {
        stream->in.align = call->method->align;
        start_deadline(call);
    }
}

static void on_refused(struct grpc_stream *stream, struct status *why_take) {
    struct grpc_call *call = call_of(stream);
    if (call->is_refused) {
        status_unref(why_take);
        return;
    }
    if (stream->in.refusal != REFUSED_NOTHING)
        grpc_refusal_count(stream->in.refusal);
    refuse(call, "200", status_prefix_take(why_take, "%s: ", grpc_call_path(call)));
}

static void start_inflating(struct grpc_call *call) {
    struct grpc_server *server = call->server;
    call->inflater =
        grpc_inflater_new(grpc_receiver_take(&call->stream.in), call->encoding, call->method->align,
                          &server->quota, &server->options.limits);
    list_push_back(&server->inflating, &call->inflating_link);
    if (!server->inflate_is_due)
        loop_defer(server->loop, &server->inflate);
    server->inflate_is_due = true;
}

static void on_end(struct grpc_stream *stream) {
    struct grpc_call *call = call_of(stream);
    call->is_ended = true;
    if (call->is_refused)
        return;
    struct status *why = grpc_receiver_end(&stream->in);
    if (why) {
        on_refused(stream, why);
        return;
    }
    if (stream->in.is_compressed) {
        start_inflating(call);
        return;
    }
    call->message = grpc_receiver_take(&stream->in);
    grpc_stream_wake(stream->connection, stream);
}

static void on_gone(struct grpc_stream *stream, struct status *why_take) {
    struct grpc_call *call = call_of(stream);
    status_unref(why_take);
    stop_deadline(call);
    stop_inflating(call);
    if (call->is_delivered && !call->is_answered && !call->is_cancelled)
        grpc_stream_wake(stream->connection, stream);
}

/* ---- inflating, outside nghttp2 ---- */

static void inflate_call(struct grpc_call *call, int64_t *budget) {
    struct grpc_stream *stream = &call->stream;
    bool is_done;
    enum grpc_refusal refusal;
    struct status *why = grpc_inflater_step(call->inflater, budget, &is_done, &refusal);
    if (why) {
        if (refusal != REFUSED_NOTHING)
            grpc_refusal_count(refusal);
        refuse(call, "200", status_prefix_take(why, "%s: ", grpc_call_path(call)));
    } else if (!is_done) {
        list_push_back(&call->server->inflating, &call->inflating_link);
    } else {
        grpc_receiver_fini(&stream->in); /* how much of the quota the compressed message held */
        call->message = grpc_inflater_take(call->inflater, &stream->in.charged_bytes);
        stop_inflating(call);
        grpc_stream_wake(stream->connection, stream);
        grpc_connection_schedule(stream->connection);
    }
}

void grpc_server_run_inflate(struct loop_task *task) {
    struct grpc_server *server = CONTAINER_OF(task, struct grpc_server, inflate);
    int64_t budget = INFLATE_SLICE_BYTES;
    struct list *link;
    while (budget > 0 && (link = list_pop_front(&server->inflating)))
        inflate_call(LIST_ENTRY(link, struct grpc_call, inflating_link), &budget);
    server->inflate_is_due = !list_is_empty(&server->inflating);
    if (server->inflate_is_due)
        loop_defer(server->loop, &server->inflate);
    grpc_server_check_idle(server);
}

/* ---- stalling ---- */

/* A reply without a flow-control window waits for the peer. A reply with one waits for the socket,
 * as do all replies of its connection. */
static bool lacks_window(const struct grpc_stream *stream) {
    nghttp2_session *session = stream->connection->session;
    return nghttp2_session_get_remote_window_size(session) <= 0 ||
           nghttp2_session_get_stream_remote_window_size(session, stream->id) <= 0;
}

bool grpc_call_waits_for_peer(const struct grpc_call *call) {
    const struct grpc_stream *stream = &call->stream;
    bool is_replying = stream->out && (grpc_sender_left(stream->out) > 0 || stream->next);
    return is_replying ? lacks_window(stream) : !call->is_ended && !call->is_refused;
}

void grpc_call_stalled(struct grpc_call *call) {
    int seconds = (int)(call->server->options.limits.stall_timeout_ms / 1000);
    if (!call->has_headers) { /* nothing else can arrive before their end */
        grpc_connection_expel(call->stream.connection, REFUSED_STALL);
        return;
    }
    grpc_refusal_count(REFUSED_STALL);
    if (!call->is_ended && !call->is_refused)
        refuse(call, "200",
               status_new(
                   STATUS_DEADLINE_EXCEEDED,
                   "%s: the request stalls: %zu bytes came, and less than a KiB a second for %d s",
                   grpc_call_path(call), call->stream.n_moved, seconds));
    else
        grpc_stream_reset(&call->stream, NGHTTP2_CANCEL);
}

/* ---- the service's side, outside nghttp2 ---- */

void grpc_call_deliver(struct grpc_call *call) {
    call->is_delivered = true;
    grpc_server_count_call();
    call->method->on_call(grpc_health_owns(call->method) ? (void *)call->server->health
                                                         : call->server->options.service,
                          call);
}

void grpc_call_abandon(struct grpc_call *call) {
    if (!call->is_answered && !call->is_cancelled)
        cancel(call);
}

static void on_ready(struct grpc_stream *stream) {
    struct grpc_call *call = call_of(stream);
    if (!call->is_delivered) {
        if (!stream->connection || call->is_refused)
            return; /* it was reset before the service got it */
        grpc_stream_ref(stream);
        grpc_call_deliver(call);
    } else if (!stream->connection && !call->is_answered && !call->is_cancelled) {
        cancel(call);
    }
}

const struct grpc_role grpc_server_role = {
    .is_server = true,
    .bytes_received = &grpc_server_bytes_received,
    .bytes_sent = &grpc_server_bytes_sent,
    .new_stream = new_call,
    .on_header = on_header,
    .on_headers_end = on_headers_end,
    .on_refused = on_refused,
    .on_end = on_end,
    .on_gone = on_gone,
    .submit_trailers = submit_trailers,
    .on_ready = on_ready,
    .on_closed = grpc_server_on_connection_closed,
    .free_stream = free_call,
};

const char *grpc_call_path(const struct grpc_call *call) {
    return call->method ? call->method->path : call->unknown_path ? call->unknown_path : "";
}
struct grpc_message *grpc_call_message(struct grpc_call *call) {
    return &call->message;
}
uint64_t grpc_call_connection_id(const struct grpc_call *call) { return call->connection_id; }
const char *grpc_call_relay_task(const struct grpc_call *call) {
    return call->stream.connection ? call->stream.connection->relay_task : NULL;
}
int64_t grpc_call_timeout_ms(const struct grpc_call *call) { return call->timeout_ms; }
bool grpc_call_is_cancelled(const struct grpc_call *call) {
    return call->is_cancelled || !(call->stream.connection || call->inproc);
}

void grpc_call_set_user(struct grpc_call *call, void *user,
                        void (*on_cancel)(struct grpc_call *call, void *user)) {
    call->user = user;
    call->on_cancel = on_cancel;
}
