/* Connects nghttp2's callbacks with streams, and sends what they submit. */
#include "rpc/grpc/grpc_session.h"

enum {
    /* the windows of a stream and of the connection: large messages never wait for one */
    WINDOW_BYTES = 64 << 20,
    MAX_FRAME_BYTES = 16777215, /* the largest that HTTP/2 allows */
    SEND_FRAME_BYTES = 1 << 20, /* our frames are not longer, so that streams take turns */
    /* how much is queued for the socket at most, so that control frames need not wait long */
    PUMP_BYTES = 4 << 20,
    /* how many frames a peer may leave unread, and in addition a few for each open stream */
    MIN_QUEUED_FRAMES = 1000,
    QUEUED_FRAMES_PER_STREAM = 4,
};

/* its reply shows that the peer has read everything before it */
static const uint8_t drain_ping[8] = "draining";

static struct grpc_stream *find_stream(nghttp2_session *session, int32_t id) {
    return nghttp2_session_get_stream_user_data(session, id);
}

static int64_t now_ms(const struct grpc_connection *connection) {
    return (int64_t)uv_now(loop_uv(connection->loop));
}

/* ---- receiving ---- */

/* Ends the reading at once. The connection is closed when nghttp2 has returned. */
static int check(struct grpc_connection *connection, enum grpc_refusal refusal) {
    if (refusal == REFUSED_NOTHING)
        return 0;
    connection->refusal = refusal;
    return NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *user_data) {
    struct grpc_connection *connection = user_data;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST ||
        !connection->role->new_stream)
        return 0;
    grpc_guard_call_begins(&connection->guard);
    struct grpc_stream *stream = connection->role->new_stream(connection);
    if (!stream) { /* there are too many calls already */
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                  NGHTTP2_ENHANCE_YOUR_CALM);
        return 0;
    }
    stream->id = frame->hd.stream_id;
    nghttp2_session_set_stream_user_data(session, stream->id, stream);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user_data) {
    struct grpc_connection *connection = user_data;
    struct grpc_stream *stream = find_stream(session, frame->hd.stream_id);
    int rc = check(connection, grpc_guard_field(&connection->guard, name_len + value_len));
    if (stream && rc == 0)
        stream->role->on_header(stream, (struct span){(const char *)name, name_len},
                                (struct span){(const char *)value, value_len});
    return rc;
}

static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *user_data) {
    struct grpc_connection *connection = user_data;
    bool is_plain_data = hd->type == NGHTTP2_DATA && !(hd->flags & NGHTTP2_FLAG_PADDED);
    connection->data_stream_id = hd->stream_id;
    connection->data_left = is_plain_data ? hd->length : 0;
    return check(connection, grpc_guard_frame(&connection->guard, hd, now_ms(connection)));
}

static int on_data_chunk(nghttp2_session *session, uint8_t flags, int32_t stream_id,
                         const uint8_t *data, size_t len, void *user_data) {
    struct grpc_connection *connection = user_data;
    connection->data_left -= MIN(len, connection->data_left);
    grpc_guard_moved(&connection->guard, len);
    struct grpc_stream *stream = find_stream(session, stream_id);
    if (!stream)
        return 0;
    stream->n_moved += len;
    struct status *why = grpc_receiver_feed(&stream->in, data, len);
    if (why)
        stream->role->on_refused(stream, why);
    return 0;
}

/* Keeps the reason that the peer gives for the end of the connection, for the status of its
 * calls. */
static void note_goaway(struct grpc_connection *connection, const nghttp2_goaway *goaway) {
    enum { MAX_TEXT_BYTES = 300 };
    if (goaway->error_code == NGHTTP2_NO_ERROR || goaway->opaque_data_len == 0 || connection->why)
        return;
    connection->why = status_unavailable("the peer ended the connection: %.*s",
                                         (int)MIN(goaway->opaque_data_len, (size_t)MAX_TEXT_BYTES),
                                         (const char *)goaway->opaque_data);
}

static int on_frame_recv(nghttp2_session *session, const nghttp2_frame *frame, void *user_data) {
    struct grpc_connection *connection = user_data;
    switch (frame->hd.type) {
    case NGHTTP2_SETTINGS:
        if (!connection->has_settings && connection->state == CONNECTION_OPEN &&
            !connection->calls_get)
            loop_timer_stop(&connection->timer);
        connection->has_settings = true;
        return 0;
    case NGHTTP2_PING:
        if (connection->is_draining && frame->hd.flags & NGHTTP2_FLAG_ACK &&
            memcmp(frame->ping.opaque_data, drain_ping, sizeof(drain_ping)) == 0)
            grpc_connection_finish_drain(connection);
        return 0;
    case NGHTTP2_GOAWAY:
        note_goaway(connection, &frame->goaway);
        if (connection->role->on_goaway)
            connection->role->on_goaway(connection);
        return 0;
    case NGHTTP2_HEADERS:
    case NGHTTP2_DATA:
        break;
    default:
        return 0;
    }
    struct grpc_stream *stream = find_stream(session, frame->hd.stream_id);
    if (stream && frame->hd.type == NGHTTP2_HEADERS)
        stream->role->on_headers_end(stream);
    if (stream && frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        stream->role->on_end(stream);
    return 0;
}

/* nghttp2 has sent an error by itself; counts it if it was because of a limit of ours. A stream too
 * many is reset. Once the peer has acknowledged the limit, nghttp2 ends the connection for it. */
static int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int error,
                            void *user_data) {
    const struct grpc_connection *connection = user_data;
    bool is_full = connection->limits && connection->n_open >= connection->limits->max_streams;
    if (error == NGHTTP2_ERR_REFUSED_STREAM ||
        (error == NGHTTP2_ERR_PROTO && frame->hd.type == NGHTTP2_HEADERS && is_full))
        grpc_refusal_count(REFUSED_STREAM);
    return 0;
}

/* Unknown frames are ignored. This callback only makes nghttp2 report their beginning, so that the
 * guard counts them. */
static int ignore_extension(nghttp2_session *session, void **payload, const nghttp2_frame_hd *hd,
                            void *user_data) {
    return NGHTTP2_ERR_CANCEL;
}

void grpc_session_detach(struct grpc_stream *stream, struct status *why_take) {
    list_remove(&stream->link);
    stream->connection->n_open--;
    grpc_receiver_unclaim(&stream->in);
    stream->role->on_gone(stream, why_take);
    stream->connection = NULL;
    grpc_stream_unref(stream);
}

static struct status *reason_of(uint32_t error_code) {
    switch (error_code) {
    case NGHTTP2_NO_ERROR:
        return NULL;
    case NGHTTP2_CANCEL:
        return status_new(STATUS_CANCELLED, "the peer cancelled the call");
    case NGHTTP2_REFUSED_STREAM:
        return status_unavailable("the peer refused the call");
    case NGHTTP2_ENHANCE_YOUR_CALM:
        return status_exhausted("the peer reset the call: %s", nghttp2_http2_strerror(error_code));
    default:
        return status_internal("the call's stream was reset: %s",
                               nghttp2_http2_strerror(error_code));
    }
}

static int on_stream_close(nghttp2_session *session, int32_t stream_id, uint32_t error_code,
                           void *user_data) {
    struct grpc_stream *stream = find_stream(session, stream_id);
    if (!stream)
        return 0;
    struct grpc_connection *connection = user_data;
    bool is_told = error_code == NGHTTP2_REFUSED_STREAM && connection->why;
    nghttp2_session_set_stream_user_data(session, stream_id, NULL);
    grpc_session_detach(stream, is_told ? status_ref(connection->why) : reason_of(error_code));
    return 0;
}

/* ---- sending ---- */

/* Returns the message that has to be sent now. False while a streaming reply has none. */
static bool has_message(struct grpc_stream *stream) {
    if (grpc_sender_left(stream->out) == 0 && stream->next) {
        grpc_sender_unref(stream->out);
        stream->out = stream->next;
        stream->next = NULL;
    }
    return grpc_sender_left(stream->out) > 0 || !stream->is_streaming;
}

static ssize_t read_message(nghttp2_session *session, int32_t stream_id, uint8_t *buf, size_t len,
                            uint32_t *data_flags, nghttp2_data_source *source, void *user_data) {
    struct grpc_stream *stream = source->ptr;
    stream->is_deferred = !has_message(stream);
    if (stream->is_deferred)
        return NGHTTP2_ERR_DEFERRED;
    size_t left = grpc_sender_left(stream->out);
    *data_flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (left > len)
        return (ssize_t)len;
    if (stream->is_streaming || stream->next)
        return (ssize_t)left;
    *data_flags |= NGHTTP2_DATA_FLAG_EOF;
    if (stream->role->submit_trailers) {
        *data_flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (!stream->role->submit_trailers(stream))
            return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    return (ssize_t)left;
}

static int send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *header,
                     size_t len, nghttp2_data_source *source, void *user_data) {
    struct grpc_connection *connection = user_data;
    struct grpc_stream *stream = source->ptr;
    if (connection->out.size_bytes >= PUMP_BYTES)
        return NGHTTP2_ERR_WOULDBLOCK;
    grpc_output_add_copy(&connection->out, header, 9);
    grpc_output_add_message(&connection->out, stream->out, len);
    grpc_guard_moved(&connection->guard, len);
    stream->n_moved += len;
    return 0;
}

static ssize_t read_length(nghttp2_session *session, uint8_t frame_type, int32_t stream_id,
                           int32_t session_window, int32_t stream_window, uint32_t max_frame_size,
                           void *user_data) {
    int64_t window = MIN(session_window, stream_window);
    return (ssize_t)MAX(MIN(window, MIN((int64_t)max_frame_size, (int64_t)SEND_FRAME_BYTES)), 1);
}

/* A server that has answered before the request was complete tells the client to stop sending. */
static int on_frame_send(nghttp2_session *session, const nghttp2_frame *frame, void *user_data) {
    struct grpc_connection *connection = user_data;
    if (frame->hd.type == NGHTTP2_RST_STREAM && frame->rst_stream.error_code != NGHTTP2_NO_ERROR &&
        connection->refusal == REFUSED_NOTHING)
        connection->refusal = grpc_guard_reset_sent(&connection->guard, now_ms(connection));
    if (connection->role->is_server && frame->hd.type == NGHTTP2_HEADERS &&
        frame->hd.flags & NGHTTP2_FLAG_END_STREAM &&
        nghttp2_session_get_stream_remote_close(session, frame->hd.stream_id) == 0)
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, frame->hd.stream_id,
                                  NGHTTP2_NO_ERROR);
    return 0;
}

bool grpc_session_pump(struct grpc_connection *connection) {
    while (connection->out.size_bytes < PUMP_BYTES) {
        const uint8_t *bytes;
        ssize_t n = nghttp2_session_mem_send(connection->session, &bytes);
        if (n < 0)
            return false;
        if (n == 0)
            return true;
        grpc_output_add_copy(&connection->out, bytes, (size_t)n);
    }
    return true;
}

bool grpc_session_is_read(const struct grpc_connection *connection) {
    return (int64_t)nghttp2_session_get_outbound_queue_size(connection->session) <=
           MIN_QUEUED_FRAMES + connection->n_open * QUEUED_FRAMES_PER_STREAM;
}

enum grpc_refusal grpc_session_refusal_of(int error) {
    return error == NGHTTP2_ERR_FLOODED                  ? REFUSED_CONTROL
           : error == NGHTTP2_ERR_TOO_MANY_CONTINUATIONS ? REFUSED_HEADERS
                                                         : REFUSED_NOTHING;
}

void grpc_session_announce_drain(struct grpc_connection *connection) {
    nghttp2_submit_shutdown_notice(connection->session);
    nghttp2_submit_ping(connection->session, NGHTTP2_FLAG_NONE, drain_ping);
}

/* ---- the session ---- */

static nghttp2_session_callbacks *new_callbacks(void) {
    nghttp2_session_callbacks *callbacks;
    CHECK(nghttp2_session_callbacks_new(&callbacks) == 0);
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data_chunk);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame_recv);
    nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame);
    nghttp2_session_callbacks_set_unpack_extension_callback(callbacks, ignore_extension);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_send);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, send_data);
    nghttp2_session_callbacks_set_data_source_read_length_callback(callbacks, read_length);
    return callbacks;
}

void grpc_session_open(struct grpc_connection *connection) {
    const struct grpc_server_limits *limits = connection->limits;
    nghttp2_session_callbacks *callbacks = new_callbacks();
    nghttp2_option *option;
    CHECK(nghttp2_option_new(&option) == 0);
    /* otherwise each closed stream is kept for the priority tree */
    nghttp2_option_set_no_closed_streams(option, 1);
    for (int type = NGHTTP2_CONTINUATION + 1; limits && type <= UINT8_MAX; type++)
        nghttp2_option_set_user_recv_extension_type(option, (uint8_t)type);
    if (limits) /* the guard's limit is the more precise reason */
        nghttp2_option_set_stream_reset_rate_limit(option, (uint64_t)INT32_MAX,
                                                   (uint64_t)INT32_MAX);
    int rc = connection->role->is_server
                 ? nghttp2_session_server_new2(&connection->session, callbacks, connection, option)
                 : nghttp2_session_client_new2(&connection->session, callbacks, connection, option);
    CHECK(rc == 0);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);

    nghttp2_settings_entry settings[6] = {{NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, WINDOW_BYTES},
                                          {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, MAX_FRAME_BYTES}};
    size_t n = 2;
    if (limits) {
        settings[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS,
                                                 (uint32_t)limits->max_streams};
        settings[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE,
                                                 (uint32_t)limits->max_header_bytes};
        settings[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES, 1};
    } else {
        settings[n++] = (nghttp2_settings_entry){NGHTTP2_SETTINGS_ENABLE_PUSH, 0};
    }
    CHECK(nghttp2_submit_settings(connection->session, NGHTTP2_FLAG_NONE, settings, n) == 0);
    CHECK(nghttp2_session_set_local_window_size(connection->session, NGHTTP2_FLAG_NONE, 0,
                                                WINDOW_BYTES) == 0);
}

bool grpc_stream_send(struct grpc_stream *stream, const nghttp2_nv *headers, size_t n_headers,
                      struct grpc_body *body) {
    struct grpc_connection *connection = stream->connection;
    nghttp2_data_provider provider = {.source = {.ptr = stream}, .read_callback = read_message};
    if (body)
        stream->out = grpc_sender_new(body);
    nghttp2_data_provider *message = body ? &provider : NULL;
    grpc_connection_schedule(connection);
    if (stream->role->is_server)
        return nghttp2_submit_response(connection->session, stream->id, headers, n_headers,
                                       message) == 0;
    stream->id =
        nghttp2_submit_request(connection->session, NULL, headers, n_headers, message, stream);
    return stream->id > 0;
}

void grpc_stream_resume(struct grpc_stream *stream) {
    if (stream->is_deferred)
        nghttp2_session_resume_data(stream->connection->session, stream->id);
    stream->is_deferred = false;
    grpc_connection_schedule(stream->connection);
}

void grpc_stream_send_next(struct grpc_stream *stream, struct grpc_body *body) {
    grpc_sender_unref(stream->next);
    stream->next = grpc_sender_new(body);
    grpc_stream_resume(stream);
}

void grpc_stream_reset(struct grpc_stream *stream, uint32_t error_code) {
    nghttp2_submit_rst_stream(stream->connection->session, NGHTTP2_FLAG_NONE, stream->id,
                              error_code);
    grpc_connection_schedule(stream->connection);
}
