/* Passes bytes between a socket without TLS and one with TLS, both ways. */
#include "rpc/tls/tls_relay.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { READ_BYTES = 64 * 1024, READS_PER_EVENT = 16, HANDSHAKE_MS = 20000, SPEAK_MS = 1000 };

struct relay_poll {
    uv_poll_t uv;
    struct tls_relay *relay;
    int events;
};

struct tls_relay {
    struct loop *loop;
    struct tls_stream *stream;
    tls_relay_over_fn *on_over; /* NULL: polling is not wanted */
    void *arg;
    int plain_fd, tls_fd;
    struct relay_poll plain_poll, tls_poll;
    struct str to_plain, to_tls;         /* bytes that the other side did not take */
    bool plain_has_ended, tls_has_ended; /* its peer will send no more */
    bool plain_is_shut, tls_is_shut;     /* it has been told that no more bytes follow */
    bool is_open, has_moved, is_over, ends_with_plain, may_read_plain;
    /* the timer of the handshake, then of the first bytes, then of the stall */
    struct loop_timer timer;
    int64_t stall_ms;
    /* the TLS side has not taken everything; it has taken some since the timer started */
    bool is_stuck, has_taken;
    struct loop_task again;
    bool again_is_due;
    int n_handles;
};

/* ---- the end ---- */

static void release(struct tls_relay *relay) {
    if (--relay->n_handles > 0)
        return;
    tls_stream_free(relay->stream);
    str_fini(&relay->to_plain);
    str_fini(&relay->to_tls);
    free(relay);
}

static void on_poll_closed(uv_handle_t *handle) {
    release(CONTAINER_OF((uv_poll_t *)handle, struct relay_poll, uv)->relay);
}
static void on_timer_closed(struct loop_timer *timer) {
    release(CONTAINER_OF(timer, struct tls_relay, timer));
}

static void finish(struct tls_relay *relay, struct status *why_take) {
    if (relay->is_over) {
        status_unref(why_take);
        return;
    }
    relay->is_over = true;
    uv_close((uv_handle_t *)&relay->plain_poll.uv, on_poll_closed);
    uv_close((uv_handle_t *)&relay->tls_poll.uv, on_poll_closed);
    loop_timer_close(&relay->timer, on_timer_closed);
    tls_socket_end(relay->stream, relay->tls_fd);
    close(relay->tls_fd);
    if (relay->on_over)
        relay->on_over(relay->arg, why_take, relay->has_moved, relay->plain_fd);
    else
        close(relay->plain_fd);
    status_unref(why_take);
}

/* errno, or what the stream says. */
static struct status *why_of(struct tls_relay *relay, const char *what) {
    int error = errno;
    struct status *why = error == EPROTO ? tls_stream_why(relay->stream) : NULL;
    return why ? why : status_unavailable("%s: %s", what, strerror(error));
}

static bool is_temporary(int error) {
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

/* ---- from the plain side to the other ---- */

/* Sends everything, or keeps the rest. Returns false when the connection broke. */
static bool write_tls(struct tls_relay *relay, const char *data, size_t len, size_t *ret_n) {
    struct iovec piece = {(void *)(uintptr_t)data, len};
    ssize_t n = tls_socket_write(relay->stream, relay->tls_fd, &piece, len > 0 ? 1 : 0);
    *ret_n = n > 0 ? (size_t)n : 0;
    relay->has_taken |= n > 0;
    return n >= 0 || is_temporary(errno);
}

static void drop_front(struct str *text, size_t n) {
    text->len -= n;
    if (n > 0 && text->len > 0)
        memmove(text->data, text->data + n, text->len);
    if (text->len == 0)
        str_fini(text);
}

static bool flush_tls(struct tls_relay *relay) {
    size_t n;
    if (!write_tls(relay, relay->to_tls.data, relay->to_tls.len, &n))
        return false;
    drop_front(&relay->to_tls, n);
    return true;
}

static bool tls_is_free(struct tls_relay *relay) {
    return relay->to_tls.len == 0 && !tls_stream_has_output(relay->stream);
}

static bool move_to_tls(struct tls_relay *relay) {
    char *buffer = loop_read_buffer(relay->loop);
    if (!flush_tls(relay))
        return false;
    for (int i = 0; i < READS_PER_EVENT && relay->may_read_plain && !relay->plain_has_ended &&
                    tls_is_free(relay);
         i++) {
        size_t n_written;
        ssize_t n = read(relay->plain_fd, buffer, READ_BYTES);
        if (n < 0)
            return is_temporary(errno);
        relay->plain_has_ended = n == 0;
        relay->has_moved |= n > 0;
        if (n > 0 && !write_tls(relay, buffer, (size_t)n, &n_written))
            return false;
        if (n > 0)
            str_add_bytes(&relay->to_tls, buffer + n_written, (size_t)n - n_written);
    }
    if (relay->plain_has_ended && relay->to_tls.len == 0 && !relay->tls_is_shut) {
        tls_stream_end(relay->stream);
        relay->tls_is_shut = true;
        return flush_tls(relay);
    }
    return true;
}

void tls_relay_close(struct tls_relay *relay) {
    relay->on_over = NULL;
    if (relay->is_open && !relay->is_over)
        (void)move_to_tls(relay);
    finish(relay, NULL);
}

/* ---- and back ---- */

static bool write_plain(struct tls_relay *relay, const char *data, size_t len, size_t *ret_n) {
    ssize_t n = len > 0 ? send(relay->plain_fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
    *ret_n = n > 0 ? (size_t)n : 0;
    return n >= 0 || is_temporary(errno);
}

static bool move_to_plain(struct tls_relay *relay) {
    char *buffer = loop_read_buffer(relay->loop);
    size_t n_written;
    if (!write_plain(relay, relay->to_plain.data, relay->to_plain.len, &n_written))
        return false;
    drop_front(&relay->to_plain, n_written);
    for (int i = 0; i < READS_PER_EVENT && !relay->tls_has_ended && relay->to_plain.len == 0; i++) {
        struct iovec piece = {buffer, READ_BYTES};
        ssize_t n = tls_socket_read(relay->stream, relay->tls_fd, &piece, 1);
        if (n < 0)
            return is_temporary(errno);
        relay->tls_has_ended = n == 0;
        relay->may_read_plain = true;
        if (n > 0 && !write_plain(relay, buffer, (size_t)n, &n_written))
            return false;
        if (n > 0)
            str_add_bytes(&relay->to_plain, buffer + n_written, (size_t)n - n_written);
    }
    if (relay->tls_has_ended && relay->to_plain.len == 0 && !relay->plain_is_shut) {
        shutdown(relay->plain_fd, SHUT_WR);
        relay->plain_is_shut = true;
    }
    return true;
}

/* ---- passing bytes on ---- */

static void on_ready(uv_poll_t *uv, int status, int events);

static void set_events(struct relay_poll *poll, int events) {
    if (events == poll->events)
        return;
    poll->events = events;
    if (events)
        uv_poll_start(&poll->uv, events, on_ready);
    else
        uv_poll_stop(&poll->uv);
}

static void watch_stall(struct tls_relay *relay) {
    bool is_stuck = !tls_is_free(relay);
    if (relay->stall_ms == 0 || !relay->is_open || !relay->may_read_plain)
        return;
    if (is_stuck && (!relay->is_stuck || relay->has_taken))
        loop_timer_start(&relay->timer, relay->stall_ms, 0);
    else if (!is_stuck && relay->is_stuck)
        loop_timer_stop(&relay->timer);
    relay->is_stuck = is_stuck;
    relay->has_taken = false;
}

static void watch(struct tls_relay *relay) {
    bool has_output = tls_stream_has_output(relay->stream);
    int plain = relay->to_plain.len > 0 ? UV_WRITABLE : 0, tls = has_output ? UV_WRITABLE : 0;
    if (relay->is_open && relay->may_read_plain && !relay->plain_has_ended && tls_is_free(relay))
        plain |= UV_READABLE;
    if (!relay->tls_has_ended && relay->to_plain.len == 0)
        tls |= UV_READABLE;
    set_events(&relay->plain_poll, plain);
    set_events(&relay->tls_poll, tls);
    watch_stall(relay);
    /* Bytes that TLS has read already do not make the socket readable. */
    bool may_read =
        !relay->tls_has_ended && relay->to_plain.len == 0 && tls_stream_has_input(relay->stream);
    if (relay->is_open && may_read && !relay->again_is_due) {
        relay->again_is_due = true;
        relay->n_handles++;
        loop_defer(relay->loop, &relay->again);
    }
}

static bool shake(struct tls_relay *relay) {
    int rc = tls_socket_shake(relay->stream, relay->tls_fd);
    if (rc == 1) {
        relay->is_open = true;
        if (relay->may_read_plain)
            loop_timer_stop(&relay->timer);
        else
            loop_timer_start(&relay->timer, SPEAK_MS, 0);
    }
    return rc >= 0;
}

static void pump(struct tls_relay *relay) {
    if (relay->is_over)
        return;
    if (!relay->is_open && !shake(relay)) {
        finish(relay, why_of(relay, "the TLS handshake"));
        return;
    }
    if (relay->is_open && (!move_to_plain(relay) || !move_to_tls(relay))) {
        finish(relay, why_of(relay, "the connection broke"));
        return;
    }
    bool is_told = relay->tls_is_shut && !tls_stream_has_output(relay->stream);
    if (is_told && (relay->plain_is_shut || relay->ends_with_plain))
        finish(relay, NULL);
    else
        watch(relay);
}

static void run_again(struct loop_task *task) {
    struct tls_relay *relay = CONTAINER_OF(task, struct tls_relay, again);
    relay->again_is_due = false;
    pump(relay);
    release(relay);
}

/* Reading or writing reports an error state of the socket. */
static void on_ready(uv_poll_t *uv, int status, int events) {
    struct relay_poll *poll = CONTAINER_OF(uv, struct relay_poll, uv);
    struct tls_relay *relay = poll->relay;
    if (status < 0)
        finish(relay, status_unavailable("the connection broke: %s", uv_strerror(status)));
    else
        pump(relay);
}

static void on_timer(struct loop_timer *timer) {
    struct tls_relay *relay = CONTAINER_OF(timer, struct tls_relay, timer);
    if (!relay->is_open) {
        finish(relay, status_unavailable("the TLS handshake did not end in time"));
        return;
    }
    if (relay->is_stuck) {
        finish(relay, status_unavailable("it does not read"));
        return;
    }
    relay->may_read_plain = true;
    pump(relay);
}

static void open_poll(struct tls_relay *relay, struct relay_poll *poll, int fd) {
    poll->relay = relay;
    CHECK(uv_poll_init(loop_uv(relay->loop), &poll->uv, fd) == 0);
    relay->n_handles++;
}

struct tls_relay *tls_relay_new(struct loop *loop, const struct tls_relay_options *options) {
    struct tls_relay *relay = xcalloc(1, sizeof(*relay));
    *relay = (struct tls_relay){.loop = loop,
                                .stream = options->stream_take,
                                .on_over = options->on_over,
                                .arg = options->arg};
    relay->plain_fd = options->plain_fd_take;
    relay->tls_fd = options->tls_fd_take;
    relay->ends_with_plain = options->ends_with_plain;
    relay->stall_ms = options->stall_ms;
    relay->may_read_plain = !options->waits_for_tls;
    relay->again.run = run_again;
    open_poll(relay, &relay->plain_poll, relay->plain_fd);
    open_poll(relay, &relay->tls_poll, relay->tls_fd);
    loop_timer_init(loop, &relay->timer, on_timer);
    relay->n_handles++;
    loop_timer_start(&relay->timer, options->handshake_ms ? options->handshake_ms : HANDSHAKE_MS,
                     0);
    /* The loop makes the first move, because no callback may run inside this call. */
    relay->again_is_due = true;
    relay->n_handles++;
    loop_defer(loop, &relay->again);
    return relay;
}
