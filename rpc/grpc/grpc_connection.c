/* Reads, writes and ends one HTTP/2 connection; nghttp2 is entered from its read and its flush
 * only. */
#include "rpc/grpc/grpc_connection.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "rpc/grpc/grpc_session.h"

enum {
    HANDSHAKE_MS = 20000, /* a peer that sends no SETTINGS until then does not speak HTTP/2 */
    /* Closing a socket with unread input would reset the connection, and the peer would lose our
     * last bytes. */
    LINGER_MS = 1000,
    /* how much of such input is read; a peer that floods loses our last bytes */
    LINGER_BYTES = 1 << 20,
    DRAIN_MS = 1000,                /* how long the peer has to learn of a drain */
    READ_BYTES_PER_EVENT = 4 << 20, /* then other sockets are served */
    WRITE_BYTES_PER_FLUSH = 16 << 20,
    /* how much of a frame must be missing to read it directly into its message */
    DIRECT_MIN_BYTES = 32 * 1024,
    FRAME_HEADER_BYTES = 9,
};

static void run_flush(struct loop_task *task);
static void on_socket(uv_poll_t *poll, int status, int events);
static void on_timer(struct loop_timer *timer);

/* ---- life ---- */

struct grpc_connection *grpc_connection_new(struct loop *loop, int fd_take,
                                            const struct grpc_role *role, void *owner,
                                            const struct grpc_server_limits *limits) {
    static _Atomic uint64_t last_id; /* one for the process, whatever the loop */
    struct grpc_connection *connection = xcalloc(1, sizeof(*connection));
    connection->owner = owner;
    connection->id = atomic_fetch_add_explicit(&last_id, 1, memory_order_relaxed) + 1;
    connection->loop = loop;
    connection->role = role;
    connection->fd = fd_take;
    connection->limits = limits;
    connection->flush.run = run_flush;
    connection->preface = role->is_server ? xcalloc(1, sizeof(*connection->preface)) : NULL;
    list_init(&connection->link);
    list_init(&connection->streams);
    list_init(&connection->ready);
    grpc_output_init(&connection->out);
    grpc_guard_init(&connection->guard, limits, (int64_t)uv_now(loop_uv(loop)));
    if (!role->is_server)
        grpc_session_open(connection);

    CHECK(uv_poll_init(loop_uv(loop), &connection->poll, fd_take) == 0);
    connection->poll_events = UV_READABLE;
    uv_poll_start(&connection->poll, UV_READABLE, on_socket);
    loop_timer_init(loop, &connection->timer, on_timer);
    loop_timer_start(&connection->timer, limits ? limits->handshake_timeout_ms : HANDSHAKE_MS, 0);
    connection->n_handles = 2;
    grpc_connection_schedule(connection);
    return connection;
}

void grpc_connection_secure(struct grpc_connection *connection, struct tls_stream *stream_take) {
    connection->tls = stream_take;
}

void grpc_connection_refuse_calls(struct grpc_connection *connection, struct status *why_take) {
    status_unref(connection->calls_get);
    connection->calls_get = why_take;
}

/* Frees the memory when no handle and no flush can call back any more. */
static void free_if_unused(struct grpc_connection *connection) {
    if (connection->state != CONNECTION_BURIED || connection->n_handles > 0 ||
        connection->flush_is_due)
        return;
    list_remove(&connection->link);
    connection->role->on_closed(connection);
    grpc_output_fini(&connection->out);
    tls_stream_free(connection->tls);
    status_unref(connection->calls_get);
    free(connection->preface);
    free(connection->relay_task);
    status_unref(connection->why);
    free(connection);
}

static void on_poll_closed(uv_handle_t *handle) {
    struct grpc_connection *connection =
        CONTAINER_OF((uv_poll_t *)handle, struct grpc_connection, poll);
    connection->n_handles--;
    free_if_unused(connection);
}

static void on_timer_closed(struct loop_timer *timer) {
    struct grpc_connection *connection = CONTAINER_OF(timer, struct grpc_connection, timer);
    connection->n_handles--;
    free_if_unused(connection);
}

void grpc_connection_schedule(struct grpc_connection *connection) {
    if (connection->flush_is_due || connection->state == CONNECTION_BURIED)
        return;
    connection->flush_is_due = true;
    loop_defer(connection->loop, &connection->flush);
}

void grpc_connection_break(struct grpc_connection *connection, struct status *why_take) {
    if (connection->state >= CONNECTION_BROKEN) {
        status_unref(why_take);
        return;
    }
    connection->state = CONNECTION_BROKEN;
    status_unref(connection->why);
    connection->why = why_take;
    uv_close((uv_handle_t *)&connection->poll, on_poll_closed);
    if (connection->tls)
        tls_socket_end(connection->tls, connection->fd);
    close(connection->fd);
    connection->fd = -1;
    loop_timer_close(&connection->timer, on_timer_closed);
    grpc_connection_schedule(connection);
}

static void break_errno(struct grpc_connection *connection, int error) {
    struct status *why =
        connection->tls && error == EPROTO ? tls_stream_why(connection->tls) : NULL;
    grpc_connection_break(
        connection, why ? why : status_unavailable("the connection broke: %s", strerror(error)));
}

static void dispatch(struct grpc_connection *connection) {
    struct list *link;
    while ((link = list_pop_front(&connection->ready))) {
        struct grpc_stream *stream = LIST_ENTRY(link, struct grpc_stream, ready_link);
        stream->role->on_ready(stream);
        grpc_stream_unref(stream);
    }
}

/* Ends all streams, and frees the session. */
static void end_session(struct grpc_connection *connection) {
    if (!connection->session)
        return;
    LIST_FOR_EACH_SAFE (link, next, &connection->streams) {
        struct grpc_stream *stream = LIST_ENTRY(link, struct grpc_stream, link);
        struct status *why = connection->why
                                 ? status_ref(connection->why)
                                 : status_unavailable("the connection was closed by the peer");
        grpc_session_detach(stream, why);
    }
    nghttp2_session_del(connection->session);
    connection->session = NULL;
    dispatch(connection);
}

static void bury(struct grpc_connection *connection) {
    end_session(connection);
    connection->state = CONNECTION_BURIED;
    free_if_unused(connection);
}

static void set_poll_events(struct grpc_connection *connection, int events) {
    if (connection->poll_events == events)
        return;
    connection->poll_events = events;
    uv_poll_start(&connection->poll, events, on_socket);
}

/* The session is over and everything is written. Shuts our side; then the peer's end is awaited. */
static void linger(struct grpc_connection *connection) {
    connection->state = CONNECTION_LINGERING;
    end_session(connection);
    if (connection->state != CONNECTION_LINGERING)
        return; /* a callback has closed the connection */
    set_poll_events(connection, UV_READABLE);
    if (connection->tls)
        tls_socket_end(connection->tls, connection->fd);
    shutdown(connection->fd, SHUT_WR);
    loop_timer_start(&connection->timer, LINGER_MS, 0);
}

/* The frame is made by hand, because a session that was stopped in a callback must not be used any
 * more. */
static void add_goaway(struct grpc_connection *connection, const char *text) {
    int32_t last =
        connection->session ? nghttp2_session_get_last_proc_stream_id(connection->session) : 0;
    size_t len = strlen(text);
    uint8_t frame[FRAME_HEADER_BYTES + 8] = {0, 0, (uint8_t)(8 + len), NGHTTP2_GOAWAY};
    for (int i = 0; i < 4; i++)
        frame[FRAME_HEADER_BYTES + i] = (uint8_t)(last >> (24 - 8 * i));
    frame[sizeof(frame) - 1] = NGHTTP2_ENHANCE_YOUR_CALM;
    grpc_output_add_copy(&connection->out, frame, sizeof(frame));
    grpc_output_add_copy(&connection->out, text, len);
}

void grpc_connection_expel(struct grpc_connection *connection, enum grpc_refusal refusal) {
    size_t n;
    if (connection->state != CONNECTION_OPEN)
        return;
    const char *text = grpc_refusal_text(refusal);
    grpc_refusal_count(refusal);
    grpc_refusal_log(refusal);
    add_goaway(connection, text);
    grpc_output_write(&connection->out, connection->fd, connection->tls, &n);
    status_unref(connection->why);
    connection->why = status_exhausted("the connection was closed: %s", text);
    linger(connection);
}

void grpc_connection_drain(struct grpc_connection *connection) {
    if (connection->state != CONNECTION_OPEN || connection->is_draining)
        return;
    connection->is_draining = true;
    if (connection->has_settings) {
        grpc_session_announce_drain(connection);
        loop_timer_start(&connection->timer, DRAIN_MS, 0);
        grpc_connection_schedule(connection);
    } else {
        grpc_connection_finish_drain(connection);
    }
}

void grpc_connection_finish_drain(struct grpc_connection *connection) {
    if (connection->has_said_goaway)
        return;
    connection->has_said_goaway = true;
    if (!connection->session)
        grpc_session_open(connection);
    nghttp2_submit_goaway(connection->session, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(connection->session),
                          NGHTTP2_NO_ERROR, NULL, 0);
    if (connection->has_settings)
        loop_timer_stop(&connection->timer);
    grpc_connection_schedule(connection);
}

static void on_timer(struct loop_timer *timer) {
    struct grpc_connection *connection = CONTAINER_OF(timer, struct grpc_connection, timer);
    if (connection->state == CONNECTION_LINGERING) {
        grpc_connection_break(connection, NULL);
    } else if (connection->has_settings) {
        grpc_connection_finish_drain(connection);
    } else {
        if (connection->limits)
            grpc_refusal_count(REFUSED_HANDSHAKE);
        grpc_connection_break(connection,
                              status_unavailable("no HTTP/2 settings from the peer in time"));
    }
}

/* ---- writing ---- */

/* During its handshake TLS waits for the peer, not for the socket. */
static bool waits_to_write(struct grpc_connection *connection, int error) {
    if (connection->tls && tls_stream_has_output(connection->tls))
        return true;
    return error == EAGAIN && (!connection->tls || tls_stream_is_open(connection->tls));
}

static bool is_written(const struct grpc_connection *connection) {
    return connection->out.size_bytes == 0 &&
           !(connection->tls && tls_stream_has_output(connection->tls));
}

/* Returns false when the connection broke. */
static bool flush(struct grpc_connection *connection) {
    int error = 0;
    size_t n_written = 0, n;
    bool has_more;
    do {
        if (connection->session && !grpc_session_pump(connection)) {
            grpc_connection_break(connection, status_internal("HTTP/2: cannot make frames"));
            return false;
        }
        if (connection->refusal != REFUSED_NOTHING) {
            grpc_connection_expel(connection, connection->refusal);
            return false;
        }
        error = grpc_output_write(&connection->out, connection->fd, connection->tls, &n);
        n_written += n;
        has_more = error == 0 && n > 0 && connection->session &&
                   nghttp2_session_want_write(connection->session);
    } while (has_more && n_written < WRITE_BYTES_PER_FLUSH);
    connection->n_written += n_written;
    if (connection->role->bytes_sent && n_written > 0)
        metric_add(connection->role->bytes_sent, (int64_t)n_written);
    if (error != 0 && error != EAGAIN) {
        break_errno(connection, error);
        return false;
    }
    set_poll_events(connection,
                    waits_to_write(connection, error) ? UV_READABLE | UV_WRITABLE : UV_READABLE);
    if (has_more)
        grpc_connection_schedule(connection); /* the connection's share of this flush is used up */
    return true;
}

static void read_socket(struct grpc_connection *connection);

static void run_flush(struct loop_task *task) {
    struct grpc_connection *connection = CONTAINER_OF(task, struct grpc_connection, flush);
    connection->flush_is_due = false;
    if (connection->state == CONNECTION_OPEN && connection->read_is_due)
        read_socket(connection);
    /* HTTP/2 does not have to write, but TLS does */
    bool speaks = connection->session || connection->tls;
    if (connection->state == CONNECTION_OPEN && speaks && flush(connection) &&
        connection->session) {
        dispatch(connection);
        if (connection->state == CONNECTION_OPEN && is_written(connection) &&
            !nghttp2_session_want_write(connection->session) &&
            !nghttp2_session_want_read(connection->session))
            linger(connection);
    }
    if (connection->flush_is_due)
        return; /* the connection has just broken */
    if (connection->state == CONNECTION_BROKEN)
        bury(connection);
    else
        free_if_unused(connection);
}

/* ---- reading ---- */

/* Returns false when no bytes are left for HTTP/2. */
static bool take_preface(struct grpc_connection *connection, const char **bytes, size_t *len) {
    switch (grpc_preface_feed(connection->preface, bytes, len)) {
    case PREFACE_MORE:
        return false;
    case PREFACE_BAD:
        grpc_connection_break(connection,
                              status_unavailable("the peer sent a malformed PROXY header"));
        return false;
    case PREFACE_OVER:
        break;
    }
    if (connection->preface->task[0])
        connection->relay_task = xstrdup(connection->preface->task);
    free(connection->preface);
    connection->preface = NULL;
    return *len > 0;
}

/* Handles bytes that were read from the socket, or that TLS has decrypted. */
static void take_bytes(struct grpc_connection *connection, const char *bytes, size_t len) {
    if (connection->state != CONNECTION_OPEN)
        return;
    if (connection->preface && !take_preface(connection, &bytes, &len))
        return;
    if (!connection->session)
        grpc_session_open(connection);
    ssize_t n = nghttp2_session_mem_recv(connection->session, (const uint8_t *)bytes, len);
    enum grpc_refusal refusal = connection->refusal;
    if (n < 0 && refusal == REFUSED_NOTHING)
        refusal = grpc_session_refusal_of((int)n);
    else if (n >= 0 && connection->limits && !grpc_session_is_read(connection))
        refusal = REFUSED_CONTROL;
    if (refusal != REFUSED_NOTHING) {
        grpc_connection_expel(connection, refusal);
        return;
    }
    if (n < 0) {
        grpc_connection_break(connection, status_unavailable("the peer does not speak HTTP/2: %s",
                                                             nghttp2_strerror((int)n)));
        return;
    }
    dispatch(connection);
    if (connection->state == CONNECTION_OPEN)
        grpc_connection_schedule(connection);
}

/* What precedes TLS is not encrypted. Bytes after it that were read with it are passed to TLS. */
static ssize_t read_before_tls(struct grpc_connection *connection, bool *ret_full) {
    const char *bytes = loop_read_buffer(connection->loop);
    ssize_t n = read(connection->fd, (char *)(uintptr_t)bytes, LOOP_READ_BUFFER_BYTES);
    size_t len = n > 0 ? (size_t)n : 0;
    if (n <= 0)
        return n;
    if (take_preface(connection, &bytes, &len))
        tls_stream_feed(connection->tls, bytes, len);
    *ret_full = connection->state == CONNECTION_OPEN;
    return n;
}

static ssize_t read_pieces(struct grpc_connection *connection, const struct iovec *iovecs,
                           int n_iovecs) {
    return connection->tls ? tls_socket_read(connection->tls, connection->fd, iovecs, n_iovecs)
                           : readv(connection->fd, iovecs, n_iovecs);
}

/* Reads what has arrived. Inside a large DATA frame, the rest of the frame is read directly into
 * its message, and only the next frame's header into the shared buffer. So most of a large message
 * is never copied in user space. Returns the number of bytes, 0 at the peer's end, or -1 with
 * errno; *ret_full says that there may be more. */
static ssize_t read_some(struct grpc_connection *connection, bool *ret_full) {
    char *shared = loop_read_buffer(connection->loop), *place = NULL;
    size_t room = 0, direct = 0;
    struct grpc_stream *stream = NULL;
    if (connection->tls && connection->preface)
        return read_before_tls(connection, ret_full);
    if (connection->data_left >= DIRECT_MIN_BYTES)
        stream =
            nghttp2_session_get_stream_user_data(connection->session, connection->data_stream_id);
    if (stream && grpc_receiver_destination(&stream->in, &place, &room) &&
        room >= connection->data_left)
        direct = connection->data_left;
    /* these bytes belong to the message, and are read directly, too */
    bool more_frames = room > direct;
    struct iovec iovecs[2] = {
        {place, direct},
        {shared, direct && more_frames ? FRAME_HEADER_BYTES : LOOP_READ_BUFFER_BYTES}};
    int skip = direct == 0;
    ssize_t n = read_pieces(connection, iovecs + skip, 2 - skip);
    if (n <= 0)
        return n;
    *ret_full = (size_t)n == direct + iovecs[1].iov_len;
    if (direct == 0) {
        take_bytes(connection, shared, (size_t)n);
        return n;
    }
    /* nghttp2 reads from this memory, whatever the callbacks do */
    struct buffer *held = buffer_ref(stream->in.buffer);
    size_t n_direct = MIN((size_t)n, direct);
    take_bytes(connection, place, n_direct);
    if ((size_t)n > n_direct)
        take_bytes(connection, shared, (size_t)n - n_direct);
    buffer_unref(held);
    return n;
}

/* A client without TLS at a port with TLS gets an answer that it understands. If it were only
 * disconnected, it would try again for ever. */
static void refuse_plain_client(struct grpc_connection *connection) {
    struct tls_stream *tls = connection->tls;
    struct span bytes = tls_stream_input(tls);
    connection->tls = NULL;
    grpc_connection_refuse_calls(
        connection, status_new(STATUS_UNAUTHENTICATED,
                               "this port speaks TLS: connect with TLS (grpcs://), or by "
                               "tfctl tunnel"));
    take_bytes(connection, bytes.data, bytes.len);
    tls_stream_free(tls);
}

/* Reading lets TLS continue: its own messages, and what waited for the end of the handshake, have
 * to be sent. */
static void after_tls_read(struct grpc_connection *connection, bool is_full) {
    if (connection->state != CONNECTION_OPEN)
        return;
    connection->read_is_due = is_full && tls_stream_has_input(connection->tls);
    if (!connection->session && !connection->preface && tls_stream_is_open(connection->tls))
        /* our SETTINGS tell a waiting peer that the connection is accepted */
        grpc_session_open(connection);
    bool wants_write = connection->session && nghttp2_session_want_write(connection->session);
    bool has_more = wants_write || connection->out.size_bytes > 0;
    if (connection->read_is_due || tls_stream_has_output(connection->tls) ||
        (has_more && tls_stream_is_open(connection->tls)))
        grpc_connection_schedule(connection);
}

static void read_socket(struct grpc_connection *connection) {
    size_t n_read = 0;
    bool is_full = true;
    while (is_full && n_read < READ_BYTES_PER_EVENT && connection->state == CONNECTION_OPEN) {
        ssize_t n = read_some(connection, &is_full);
        if (n > 0) {
            n_read += (size_t)n;
        } else if (n == 0) {
            grpc_connection_break(connection,
                                  status_unavailable("the connection was closed by the peer"));
        } else if (errno == EPROTO && connection->tls && connection->limits &&
                   tls_stream_is_plain(connection->tls)) {
            refuse_plain_client(connection);
        } else if (errno != EINTR) {
            if (errno != EAGAIN && errno != EWOULDBLOCK)
                break_errno(connection, errno);
            break;
        }
    }
    if (connection->tls)
        after_tls_read(connection, is_full);
    if (connection->role->bytes_received && n_read > 0)
        metric_add(connection->role->bytes_received, (int64_t)n_read);
}

/* Waits for the peer's end, and drops what still arrives. */
static void read_lingering(struct grpc_connection *connection) {
    ssize_t n = read(connection->fd, loop_read_buffer(connection->loop), LOOP_READ_BUFFER_BYTES);
    connection->n_lingered_bytes += n > 0 ? (size_t)n : 0;
    if (n == 0 || connection->n_lingered_bytes > LINGER_BYTES ||
        (n < 0 && errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK))
        grpc_connection_break(connection, NULL);
}

static void on_socket(uv_poll_t *poll, int status, int events) {
    struct grpc_connection *connection = CONTAINER_OF(poll, struct grpc_connection, poll);
    int error = 0;
    socklen_t len = sizeof(error);
    loop_awake(connection->loop);
    if (status < 0) { /* libuv has stopped polling: take what has arrived, then end */
        getsockopt(connection->fd, SOL_SOCKET, SO_ERROR, &error, &len);
        if (connection->state == CONNECTION_OPEN)
            read_socket(connection);
        break_errno(connection, error ? error : ECONNRESET);
        return;
    }
    if (connection->state == CONNECTION_LINGERING) {
        read_lingering(connection);
        return;
    }
    if (events & UV_READABLE)
        read_socket(connection);
    if (events & UV_WRITABLE && connection->state == CONNECTION_OPEN)
        grpc_connection_schedule(connection);
}

/* ---- streams ---- */

void grpc_stream_init(struct grpc_stream *stream, const struct grpc_role *role,
                      struct grpc_quota *quota, grpc_align_fn *align) {
    stream->n_refs = 1;
    stream->id = 0;
    stream->role = role;
    stream->connection = NULL;
    stream->out = stream->next = NULL;
    list_init(&stream->link);
    list_init(&stream->ready_link);
    grpc_receiver_init(&stream->in, quota, align);
}

void grpc_stream_attach_take(struct grpc_stream *stream_take, struct grpc_connection *connection) {
    stream_take->connection = connection;
    stream_take->in.claims = &connection->claimed_bytes;
    connection->n_open++;
    list_push_back(&connection->streams, &stream_take->link);
}

void grpc_stream_unref(struct grpc_stream *stream) {
    if (--stream->n_refs > 0)
        return;
    grpc_receiver_fini(&stream->in);
    grpc_sender_unref(stream->out);
    grpc_sender_unref(stream->next);
    stream->role->free_stream(stream);
}

void grpc_stream_wake(struct grpc_connection *connection, struct grpc_stream *stream) {
    if (!list_is_empty(&stream->ready_link))
        return;
    grpc_stream_ref(stream);
    list_push_back(&connection->ready, &stream->ready_link);
}
