/* Runs one connection: polling, writing from any thread, and its end. */
#include "rpc/wire/wire_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* After this much the thread stops writing and the loop continues, so that a large tensor occupies
 * no thread. */
enum { WRITE_BYTES_PER_FLUSH = 1 << 20 };

static void on_poll(uv_poll_t *uv, int error, int events);
static void on_arm_posted(struct loop_task *task);
static void on_close_posted(struct loop_task *task);

/* ---- memory ---- */

struct wire_conn *wire_conn_new(struct loop *loop, const char *peer, bool is_unix) {
    struct wire_conn *conn = xcalloc(1, sizeof(*conn));
    atomic_init(&conn->n_refs, 1);
    atomic_init(&conn->state, WIRE_CONNECTING);
    conn->loop = loop;
    conn->peer = xstrdup(peer);
    conn->is_unix = is_unix;
    conn->fd = conn->fd_to_pass = -1;
    conn->arm_task.run = on_arm_posted;
    conn->close_task.run = on_close_posted;
    list_init(&conn->inbox);
    wire_input_init(&conn->input);
    CHECK(pthread_mutex_init(&conn->lock, NULL) == 0);
    return conn;
}

struct wire_conn *wire_conn_ref(struct wire_conn *conn) {
    atomic_fetch_add_explicit(&conn->n_refs, 1, memory_order_relaxed);
    return conn;
}

void wire_conn_unref(struct wire_conn *conn) {
    if (!conn || atomic_fetch_sub_explicit(&conn->n_refs, 1, memory_order_acq_rel) != 1)
        return;
    wire_output_fini(&conn->output);
    wire_input_fini(&conn->input);
    tls_stream_free(conn->tls);
    status_unref(conn->why);
    pthread_mutex_destroy(&conn->lock);
    free(conn->peer);
    free(conn);
}

const char *wire_conn_peer(const struct wire_conn *conn) { return conn->peer; }
struct loop *wire_conn_loop(const struct wire_conn *conn) {
    return conn->loop;
}
bool wire_conn_is_unix(const struct wire_conn *conn) { return conn->is_unix; }
bool wire_conn_is_open(const struct wire_conn *conn) {
    return atomic_load_explicit(&conn->state, memory_order_acquire) == WIRE_OPEN;
}

bool wire_conn_is_hung_up(struct wire_conn *conn) {
    struct pollfd poll_fd = {.fd = conn->fd, .events = POLLRDHUP};
    if (conn->is_local)
        return wire_local_is_hung_up(conn);
    return conn->fd >= 0 && poll(&poll_fd, 1, 0) == 1 &&
           (poll_fd.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

bool wire_conn_is_same_user(struct wire_conn *conn) {
    struct ucred who;
    socklen_t len = sizeof(who);
    return conn->is_local ||
           (conn->is_unix && getsockopt(conn->fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 &&
            who.uid == geteuid());
}

void wire_conn_pass_fd(struct wire_conn *conn, int fd) {
    pthread_mutex_lock(&conn->lock);
    conn->fd_to_pass = fd;
    pthread_mutex_unlock(&conn->lock);
}

void wire_conn_expect_fd(struct wire_conn *conn) { conn->expects_fd = true; }

int wire_conn_take_fd(struct wire_conn *conn) {
    int fd = conn->input.fd;
    conn->input.fd = -1;
    return fd;
}

void wire_conn_use_checksums(struct wire_conn *conn) {
    if (conn->uses_checksums || conn->is_local) /* nothing is between the two ends */
        return;
    wire_checksums_register();
    conn->uses_checksums = true;
    pthread_mutex_lock(&conn->lock);
    conn->output.has_checksums = true;
    pthread_mutex_unlock(&conn->lock);
}

const char *wire_conn_checksums(const struct wire_conn *conn) {
    return !conn->uses_checksums ? "no" : conn->input.has_checksums ? "both" : "sent";
}

size_t wire_conn_queued_bytes(struct wire_conn *conn) {
    if (conn->is_local)
        return wire_local_queued_bytes(conn);
    pthread_mutex_lock(&conn->lock);
    size_t n_bytes = conn->output.n_bytes;
    pthread_mutex_unlock(&conn->lock);
    return n_bytes;
}

uint64_t wire_conn_sent_bytes(struct wire_conn *conn) {
    pthread_mutex_lock(&conn->lock);
    uint64_t n_bytes = conn->sent_bytes;
    pthread_mutex_unlock(&conn->lock);
    return n_bytes;
}

/* ---- the end ---- */

static void on_poll_freed(uv_handle_t *handle) {
    free(CONTAINER_OF((uv_poll_t *)handle, struct wire_poll, uv));
}

static void stop_polling(struct wire_conn *conn) {
    if (!conn->poll)
        return;
    conn->poll->conn = NULL;
    uv_close((uv_handle_t *)&conn->poll->uv, on_poll_freed);
    conn->poll = NULL;
    conn->is_polling_writable = false;
}

/* Closes the descriptor, or leaves that to the thread that is in sendmsg with it. */
void wire_conn_close_socket(struct wire_conn *conn) {
    stop_polling(conn);
    pthread_mutex_lock(&conn->lock);
    int fd = conn->fd;
    if (conn->is_writing) {
        conn->is_fd_closing = true;
        if (fd >= 0)
            shutdown(fd, SHUT_RDWR);
        fd = -1;
    } else {
        conn->fd = -1;
    }
    pthread_mutex_unlock(&conn->lock);
    if (fd >= 0 && conn->tls)
        tls_socket_end(conn->tls, fd);
    if (fd >= 0)
        close(fd);
}

/* Loop thread, state CLOSING. */
static void conn_finish(struct wire_conn *conn) {
    if (conn->is_local)
        wire_local_end(conn);
    wire_conn_close_socket(conn);
    grpc_refuser_unref(conn->refuser);
    conn->refuser = NULL;
    struct wire_output dropped = {0};
    pthread_mutex_lock(&conn->lock);
    atomic_store_explicit(&conn->state, WIRE_CLOSED, memory_order_release);
    struct status *why = conn->why;
    conn->why = NULL;
    if (!conn->is_writing) {
        dropped = conn->output;
        memset(&conn->output, 0, sizeof(conn->output));
    }
    pthread_mutex_unlock(&conn->lock);
    wire_output_fini(&dropped);
    conn->ended_received_bytes = wire_conn_received_bytes(conn); /* on_closed may ask for it */
    wire_input_fini(&conn->input);
    if (conn->is_resolving)
        uv_cancel((uv_req_t *)&conn->resolve);
    uv_freeaddrinfo(conn->addresses);
    conn->addresses = conn->next_address = NULL;
    if (conn->handlers && conn->handlers->on_closed)
        conn->handlers->on_closed(conn->owner, conn, why);
    status_unref(why);
    wire_conn_unref(conn); /* the loop's reference */
}

/* Returns false when the connection was ending already. */
static bool begin_closing(struct wire_conn *conn, struct status *why_take) {
    pthread_mutex_lock(&conn->lock);
    bool was_live = wire_conn_is_live(conn);
    if (was_live) {
        atomic_store_explicit(&conn->state, WIRE_CLOSING, memory_order_release);
        conn->why = why_take;
        why_take = NULL;
    }
    pthread_mutex_unlock(&conn->lock);
    status_unref(why_take);
    return was_live;
}

static void on_close_posted(struct loop_task *task) {
    conn_finish(CONTAINER_OF(task, struct wire_conn, close_task));
}

void wire_conn_close(struct wire_conn *conn, struct status *why_take) {
    if (begin_closing(conn, why_take))
        loop_post(conn->loop, &conn->close_task);
}

/* For a callback of the loop that finds the end: on_closed may be called at once. */
void wire_conn_end(struct wire_conn *conn, struct status *why_take) {
    if (begin_closing(conn, why_take))
        conn_finish(conn);
}

/* ---- writing ---- */

void wire_conn_poll_for(struct wire_conn *conn, bool is_writable_wanted) {
    if (!conn->poll)
        return;
    conn->is_polling_writable = is_writable_wanted;
    int error = uv_poll_start(&conn->poll->uv, UV_READABLE | (is_writable_wanted ? UV_WRITABLE : 0),
                              on_poll);
    if (error)
        wire_conn_close(conn,
                        status_unavailable("connection to %s: %s", conn->peer, uv_strerror(error)));
}

static void on_arm_posted(struct loop_task *task) {
    struct wire_conn *conn = CONTAINER_OF(task, struct wire_conn, arm_task);
    pthread_mutex_lock(&conn->lock);
    conn->is_arm_posted = false;
    bool wanted = conn->is_blocked && atomic_load(&conn->state) == WIRE_OPEN;
    pthread_mutex_unlock(&conn->lock);
    if (wanted && !conn->is_polling_writable)
        wire_conn_poll_for(conn, true);
    wire_conn_unref(conn);
}

static ssize_t send_pieces(int fd, struct iovec *iov, int n_iov, int fd_to_pass) {
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)n_iov};
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    if (unlikely(fd_to_pass >= 0)) {
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *header = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(header), &fd_to_pass, sizeof(int));
    }
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static ssize_t write_pieces(struct wire_conn *conn, int fd, struct iovec *iov, int n_iov,
                            int fd_to_pass) {
    return conn->tls ? tls_socket_write(conn->tls, fd, iov, n_iov)
                     : send_pieces(fd, iov, n_iov, fd_to_pass);
}

/* Called with the lock while no thread writes. During TLS' handshake only the loop sends its
 * output. */
static bool has_output(struct wire_conn *conn) {
    bool is_open = atomic_load_explicit(&conn->state, memory_order_relaxed) == WIRE_OPEN;
    return conn->output.n_segments > 0 ||
           (conn->tls && is_open && tls_stream_has_output(conn->tls));
}

struct status *wire_why_broken(struct wire_conn *conn, int error) {
    struct status *why = conn->tls && error == EPROTO ? tls_stream_why(conn->tls) : NULL;
    return why ? why : status_unavailable("connection to %s: %s", conn->peer, strerror(error));
}

/* Writes what is queued. Called with the lock, and releases it during system calls. Other threads
 * queue meanwhile and leave the writing to this one. Returns what ends the connection, or NULL. */
static struct status *write_locked(struct wire_conn *conn) {
    struct status *why = NULL;
    size_t written = 0;
    conn->is_writing = true;
    while (has_output(conn) && !conn->is_fd_closing &&
           atomic_load_explicit(&conn->state, memory_order_relaxed) == WIRE_OPEN) {
        struct iovec iov[WIRE_MAX_IOV];
        struct buffer *done[WIRE_MAX_IOV];
        size_t n_bytes;
        int n_iov = wire_output_peek(&conn->output, iov, &n_bytes);
        int fd = conn->fd, fd_to_pass = conn->fd_to_pass;
        pthread_mutex_unlock(&conn->lock);
        ssize_t n = write_pieces(conn, fd, iov, n_iov, fd_to_pass);
        int error = n < 0 ? errno : 0;
        pthread_mutex_lock(&conn->lock);
        if (unlikely(fd_to_pass >= 0) && n > 0)
            conn->fd_to_pass = -1;
        if (error == EINTR)
            continue;
        if (error == EAGAIN || error == EWOULDBLOCK) {
            conn->is_blocked = true;
            break;
        }
        if (error) {
            why = wire_why_broken(conn, error);
            break;
        }
        if (unlikely(conn->output.n_before_checksummed < (size_t)n)) {
            pthread_mutex_unlock(&conn->lock);
            wire_output_add_to_checksum(&conn->output, iov, (size_t)n);
            pthread_mutex_lock(&conn->lock);
        }
        int n_done = wire_output_consume(&conn->output, (size_t)n, done);
        written += (size_t)n;
        conn->sent_bytes += (uint64_t)n;
        if (n_done > 0) {
            pthread_mutex_unlock(&conn->lock);
            for (int i = 0; i < n_done; i++)
                buffer_unref(done[i]);
            pthread_mutex_lock(&conn->lock);
        }
        if ((size_t)n < n_bytes ||
            (written >= WRITE_BYTES_PER_FLUSH && conn->output.n_segments > 0)) {
            conn->is_blocked = true;
            break;
        }
    }
    conn->is_writing = false;
    if (conn->is_fd_closing) {
        close(conn->fd);
        conn->fd = -1;
        conn->is_fd_closing = false;
    }
    return why;
}

/* To be called after a write, without the lock. Makes the loop continue when the socket took no
 * more. */
static void after_write(struct wire_conn *conn, struct status *why, bool must_arm) {
    if (why) {
        wire_conn_close(conn, why);
    } else if (must_arm) {
        if (loop_is_current(conn->loop)) {
            if (!conn->is_polling_writable)
                wire_conn_poll_for(conn, true);
        } else {
            loop_post(conn->loop, &conn->arm_task);
        }
    }
}

/* Called with the lock. Returns true when the caller has to make the loop poll for writability. If
 * the loop thread has to do it, takes a reference for it. */
static bool take_arming(struct wire_conn *conn) {
    if (!conn->is_blocked || conn->is_arm_posted || !wire_conn_is_live(conn))
        return false;
    if (!loop_is_current(conn->loop)) {
        conn->is_arm_posted = true;
        wire_conn_ref(conn);
    }
    return true;
}

static void send_and_flush(struct wire_conn *conn, const struct wire_out *out, bool flush) {
    struct status *why = out ? wire_check_meta(out->type, out->meta.len) : NULL;
    bool must_arm = false;
    if (unlikely(why != NULL)) {
        wire_conn_close(conn, why);
        return;
    }
    if (conn->is_local) {
        wire_local_send(conn, out, flush);
        return;
    }
    pthread_mutex_lock(&conn->lock);
    if (out && wire_conn_is_live(conn))
        wire_output_add_message(&conn->output, out);
    if (flush && !conn->is_writing && !conn->is_blocked && has_output(conn)) {
        why = write_locked(conn);
        must_arm = !why && take_arming(conn);
    }
    if (unlikely(conn->output.n_copied_bytes > WIRE_MAX_UNREAD_BYTES) && !why)
        why = status_exhausted("%s does not read: %zu bytes wait for it", conn->peer,
                               conn->output.n_bytes);
    pthread_mutex_unlock(&conn->lock);
    after_write(conn, why, must_arm);
}

void wire_queue(struct wire_conn *conn, const struct wire_out *out) {
    send_and_flush(conn, out, false);
}
void wire_flush(struct wire_conn *conn) { send_and_flush(conn, NULL, true); }
void wire_send(struct wire_conn *conn, const struct wire_out *out) {
    send_and_flush(conn, out, true);
}

void wire_conn_on_writable(struct wire_conn *conn) {
    struct status *why = NULL;
    pthread_mutex_lock(&conn->lock);
    conn->is_blocked = false;
    if (!conn->is_writing && has_output(conn))
        why = write_locked(conn);
    bool is_blocked = conn->is_blocked;
    pthread_mutex_unlock(&conn->lock);
    if (why)
        wire_conn_end(conn, why);
    /* After TLS' handshake the socket may be polled for writability without need. */
    else if (is_blocked != conn->is_polling_writable)
        wire_conn_poll_for(conn, is_blocked);
}

/* ---- polling ---- */

/* TLS must not write its farewell to a socket that is another server's now. */
static void drop_tls(struct wire_conn *conn) {
    pthread_mutex_lock(&conn->lock);
    struct tls_stream *tls = conn->tls;
    conn->tls = NULL;
    pthread_mutex_unlock(&conn->lock);
    tls_stream_free(tls);
}

/* The first bytes have arrived. Returns true when they are a gRPC client's. Then another server
 * answers the client, and this connection ends. */
static bool refuse_grpc_client(struct wire_conn *conn) {
    struct grpc_refuser *refuser = conn->refuser;
    conn->refuser = NULL;
    bool is_grpc = grpc_refuser_is_for(conn->fd);
    int fd = is_grpc ? fcntl(conn->fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (fd >= 0)
        grpc_refuser_adopt(refuser, fd);
    grpc_refuser_unref(refuser);
    if (!is_grpc)
        return false;
    drop_tls(conn);
    wire_conn_end(conn,
                  status_invalid("%s speaks gRPC, which this port does not serve", conn->peer));
    return true;
}

void wire_conn_read(struct wire_conn *conn) {
    if (atomic_load_explicit(&conn->state, memory_order_relaxed) != WIRE_OPEN)
        return;
    if (unlikely(conn->refuser != NULL) && refuse_grpc_client(conn))
        return;
    struct status *why = wire_input_read(conn);
    if (why)
        wire_conn_end(conn, why);
    else if (unlikely(conn->tls != NULL))
        wire_flush(conn); /* TLS itself may have to send something */
}

/* libuv reports an error state of the socket as EBADF. What arrived before it is delivered
 * first. */
static void on_poll(uv_poll_t *uv, int error, int events) {
    struct wire_conn *conn = CONTAINER_OF(uv, struct wire_poll, uv)->conn;
    if (!conn)
        return;
    int state = atomic_load_explicit(&conn->state, memory_order_relaxed);
    wire_conn_ref(conn);
    if (state == WIRE_CONNECTING)
        wire_conn_on_connect_result(conn);
    else if (state == WIRE_SECURING && !(conn->refuser && refuse_grpc_client(conn)))
        wire_conn_shake(conn);
    if (state < WIRE_OPEN) {
        wire_conn_unref(conn);
        return;
    }
    if (error < 0 || (events & UV_READABLE)) {
        wire_conn_read(conn);
        if (error < 0)
            wire_conn_end(
                conn, status_unavailable("connection to %s: %s", conn->peer, uv_strerror(error)));
    }
    if ((events & UV_WRITABLE) &&
        atomic_load_explicit(&conn->state, memory_order_relaxed) == WIRE_OPEN)
        wire_conn_on_writable(conn);
    wire_conn_unref(conn);
}

struct status *wire_conn_begin_polling(struct wire_conn *conn, int events) {
    struct wire_poll *poll = xcalloc(1, sizeof(*poll));
    poll->conn = conn;
    int error = uv_poll_init(loop_uv(conn->loop), &poll->uv, conn->fd);
    if (error) {
        free(poll);
        return status_unavailable("connection to %s: %s", conn->peer, uv_strerror(error));
    }
    conn->poll = poll;
    conn->is_polling_writable = (events & UV_WRITABLE) != 0;
    error = uv_poll_start(&poll->uv, events, on_poll);
    return error ? status_unavailable("connection to %s: %s", conn->peer, uv_strerror(error))
                 : NULL;
}

void wire_conn_set_owner(struct wire_conn *conn, void *owner,
                         const struct wire_handlers *handlers) {
    conn->owner = owner;
    conn->handlers = handlers;
    if (conn->is_local) {
        wire_local_accepted(conn);
        return;
    }
    int state = atomic_load(&conn->state);
    if (!conn->poll && (state == WIRE_OPEN || state == WIRE_SECURING)) {
        struct status *why = wire_conn_begin_polling(conn, UV_READABLE);
        if (why)
            wire_conn_close(conn, why);
    }
}

struct wire_conn *wire_conn_adopt(struct loop *loop, int fd_take, const char *peer, bool is_unix) {
    struct wire_conn *conn = wire_conn_new(loop, peer, is_unix);
    conn->fd = fd_take;
    atomic_store(&conn->state, WIRE_OPEN);
    wire_socket_tune(fd_take, is_unix);
    wire_conn_ref(conn); /* the loop's reference */
    return conn;
}
