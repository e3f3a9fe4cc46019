#include "rpc/grpc_call.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/str.h"

enum { HEADER_OVERHEAD_BYTES = 32 }; /* what HTTP/2 adds to each field when it counts a header list */

static struct grpc_call *call_of(struct grpc_stream *stream) { return CONTAINER_OF(stream, struct grpc_call, stream); }

/* ---- life ---- */

static struct grpc_stream *new_call(struct grpc_connection *connection) {
    struct grpc_server *server = connection->owner;
    struct grpc_call *call = xcalloc(1, sizeof(*call));
    grpc_stream_init(&call->stream, &grpc_server_role, &server->quota, NULL);
    grpc_stream_attach_take(&call->stream, connection);
    call->server = server;
    call->connection_id = connection->id;
    call->timeout_ms = -1;
    server->n_calls++;
    return &call->stream;
}

static void free_call(struct grpc_stream *stream) {
    struct grpc_call *call = call_of(stream);
    struct grpc_server *server = call->server;
    buffer_unref(call->message.buffer);
    free(call->unknown_path);
    free(call);
    server->n_calls--;
    grpc_server_check_idle(server);
}

static void on_deadline_closed(struct loop_timer *timer) {
    struct grpc_call *call = CONTAINER_OF(timer, struct grpc_call, deadline);
    grpc_stream_unref(&call->stream);
}

static void stop_deadline(struct grpc_call *call) { loop_timer_close(&call->deadline, on_deadline_closed); }

/* ---- answers ---- */

/* Trailers only: one header block says it all. */
static void send_error(struct grpc_call *call, const char *http_status, struct status *status_take) {
    char code[12];
    int code_len = snprintf(code, sizeof(code), "%d", (int)status_code(status_take));
    struct str message = STR_INIT;
    grpc_percent_encode(status_message(status_take), &message);
    nghttp2_nv headers[5] = {
        GRPC_NV(":status", http_status, 3),
        GRPC_NV_STATIC("content-type", "application/grpc"),
        GRPC_NV("grpc-status", code, (size_t)code_len),
        GRPC_NV_ONCE("grpc-message", str_text(&message), message.len),
        GRPC_NV_STATIC("allow", "POST"),
    };
    grpc_stream_send(&call->stream, headers, strcmp(http_status, "405") == 0 ? 5 : 4, NULL);
    str_fini(&message);
    status_unref(status_take);
}

/* The service never hears of this call. */
static void refuse(struct grpc_call *call, const char *http_status, struct status *why_take) {
    call->is_refused = true;
    grpc_receiver_refuse(&call->stream.in);
    stop_deadline(call);
    send_error(call, http_status, why_take);
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
        status_new(STATUS_DEADLINE_EXCEEDED, "%s: the client's deadline of %" PRId64 " ms passed", grpc_call_path(call), call->timeout_ms);
    refuse(call, "200", why);
    if (call->is_delivered)
        cancel(call);
    grpc_stream_unref(&call->stream);
}

static bool can_answer(const struct grpc_call *call) { return call->stream.connection && !call->is_refused && !call->is_cancelled; }

/* The answer is on its way or dropped: the user's part ends. */
static void finish(struct grpc_call *call) {
    CHECK(call->is_delivered && !call->is_answered);
    call->is_answered = true;
    call->server->n_orphans -= call->is_cancelled;
    stop_deadline(call);
    buffer_unref(call->message.buffer); /* early: the next request may reuse it while this reply is still being sent */
    call->message.buffer = NULL;
    grpc_receiver_fini(&call->stream.in);
    grpc_stream_unref(&call->stream);
}

void grpc_call_reply(struct grpc_call *call, struct grpc_body *body) {
    static const nghttp2_nv headers[] = {GRPC_NV_STATIC(":status", "200"), GRPC_NV_STATIC("content-type", "application/grpc")};
    if (body->size_bytes > INT32_MAX) {
        struct status *why = status_exhausted("%s: the reply of %zu bytes exceeds the 2 GiB that one gRPC message carries",
                                              grpc_call_path(call), body->size_bytes);
        grpc_body_fini(body);
        grpc_call_fail(call, why);
        return;
    }
    if (can_answer(call))
        grpc_stream_send(&call->stream, headers, ARRAY_LEN(headers), body);
    grpc_body_fini(body);
    finish(call);
}

void grpc_call_fail(struct grpc_call *call, struct status *status_take) {
    CHECK(status_take);
    if (can_answer(call))
        send_error(call, "200", status_take);
    else
        status_unref(status_take);
    finish(call);
}

/* ---- the request, inside nghttp2 ---- */

static bool is_grpc_type(struct span value) {
    static const char type[] = "application/grpc";
    size_t len = sizeof(type) - 1;
    return value.len >= len && memcmp(value.data, type, len) == 0 && (value.len == len || value.data[len] == '+' || value.data[len] == ';');
}

static void on_header(struct grpc_stream *stream, struct span name, struct span value) {
    struct grpc_call *call = call_of(stream);
    if (call->has_headers)
        return; /* a client's trailers mean nothing here */
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
    if ((int64_t)call->n_header_bytes > limits->max_header_bytes) {
        grpc_server_count_refusal(REFUSED_HEADERS);
        refuse(call, "200",
               status_exhausted("the request's headers have %zu bytes, more than the limit of %" PRId64, call->n_header_bytes,
                                limits->max_header_bytes));
    } else if (!call->is_post) {
        refuse(call, "405", status_unimplemented("gRPC calls are POST requests"));
    } else if (!call->is_grpc) {
        refuse(call, "415", status_invalid("the content-type is not application/grpc"));
    } else if (!call->method) {
        refuse(call, "200", status_unimplemented("unknown method %s", grpc_call_path(call)));
    } else if (call->has_bad_timeout) {
        refuse(call, "200", status_invalid("%s: malformed grpc-timeout", grpc_call_path(call)));
    } else if (call->server->n_orphans >= limits->max_streams) {
        grpc_server_count_refusal(REFUSED_STREAM);
        refuse(call, "200",
               status_exhausted("%s: %" PRId64 " cancelled calls are not wound up yet", grpc_call_path(call), call->server->n_orphans));
    } else {
        stream->in.align = call->method->align;
        if (call->timeout_ms < 0)
            return;
        loop_timer_init(call->server->loop, &call->deadline, on_deadline);
        loop_timer_start(&call->deadline, call->timeout_ms, 0);
        grpc_stream_ref(stream);
    }
}

static void on_refused(struct grpc_stream *stream, struct status *why_take) {
    struct grpc_call *call = call_of(stream);
    if (call->is_refused) {
        status_unref(why_take);
        return;
    }
    if (status_code(why_take) == STATUS_RESOURCE_EXHAUSTED)
        grpc_server_count_refusal(REFUSED_MESSAGE);
    refuse(call, "200", status_prefix_take(why_take, "%s: ", grpc_call_path(call)));
}

static void on_end(struct grpc_stream *stream) {
    struct grpc_call *call = call_of(stream);
    if (call->is_refused)
        return;
    struct status *why = grpc_receiver_end(&stream->in);
    if (why) {
        on_refused(stream, why);
        return;
    }
    call->message = grpc_receiver_take(&stream->in);
    grpc_stream_wake(stream->connection, stream);
}

static void on_gone(struct grpc_stream *stream, struct status *why_take) {
    struct grpc_call *call = call_of(stream);
    status_unref(why_take);
    stop_deadline(call);
    if (call->is_delivered && !call->is_answered && !call->is_cancelled)
        grpc_stream_wake(stream->connection, stream);
}

/* ---- the service's side, outside nghttp2 ---- */

static void on_ready(struct grpc_stream *stream) {
    struct grpc_call *call = call_of(stream);
    if (!call->is_delivered) {
        if (!stream->connection || call->is_refused)
            return; /* reset before anybody heard of it */
        call->is_delivered = true;
        grpc_stream_ref(stream);
        grpc_server_count_call();
        call->method->on_call(call->server->options.service, call);
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
int64_t grpc_call_timeout_ms(const struct grpc_call *call) { return call->timeout_ms; }
bool grpc_call_is_cancelled(const struct grpc_call *call) { return call->is_cancelled || !call->stream.connection; }

void grpc_call_set_user(struct grpc_call *call, void *user, void (*on_cancel)(struct grpc_call *call, void *user)) {
    call->user = user;
    call->on_cancel = on_cancel;
}
