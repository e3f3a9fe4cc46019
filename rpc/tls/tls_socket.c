/* Runs a stream over a non-blocking socket: the second half of tls_stream.h. */
#include <errno.h>
#include <sys/socket.h>

#include "rpc/tls/tls_stream.h"

enum {
    /* of one read: what stays in the processor's near caches until it is decrypted */
    READ_BYTES = 64 * 1024,
    WRITE_BYTES_PER_CALL = 1 << 20, /* then other connections have their turn */
};

/* ---- reading ---- */

/* Returns 1 when bytes or the end arrived, 0 when there is nothing, -1 with errno. */
static int fill(struct tls_stream *stream, int fd) {
    char *room = tls_stream_room(stream, READ_BYTES);
    ssize_t n;
    do
        n = recv(fd, room, READ_BYTES, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
    if (n == 0)
        tls_stream_feed_end(stream);
    else
        tls_stream_room_used(stream, (size_t)n);
    return 1;
}

/* Fills one piece as far as possible. When it returns less, *ret_end says why: 1 at the end, 0 when
 * the socket has no more, -1 when the connection broke. */
static size_t read_piece(struct tls_stream *stream, int fd, char *to, size_t len, int *ret_end) {
    size_t n = 0;
    while (n < len) {
        ssize_t got = tls_stream_decrypt(stream, to + n, len - n);
        if (got > 0) {
            n += (size_t)got;
            continue;
        }
        if (got < 0) {
            errno = EPROTO;
            *ret_end = -1;
            return n;
        }
        *ret_end = tls_stream_has_ended(stream);
        int rc = *ret_end ? 0 : fill(stream, fd);
        if (rc <= 0) {
            *ret_end = *ret_end ? 1 : rc;
            return n;
        }
    }
    return n;
}

ssize_t tls_socket_read(struct tls_stream *stream, int fd, const struct iovec *iov, int n_iov) {
    size_t total = 0;
    int end = 0, error = EAGAIN;
    for (int i = 0; i < n_iov; i++) {
        size_t n = read_piece(stream, fd, iov[i].iov_base, iov[i].iov_len, &end);
        total += n;
        if (n < iov[i].iov_len) {
            error = end < 0 ? errno : EAGAIN;
            break;
        }
    }
    tls_stream_rest_reading(stream);
    if (total > 0 || end == 1)
        return (ssize_t)total;
    errno = error;
    return -1;
}

/* ---- writing ---- */

/* Returns 1 when everything encrypted has been sent, 0 when the socket is full, -1 with errno. */
static int flush(struct tls_stream *stream, int fd) {
    struct span out;
    while ((out = tls_stream_output(stream)).len > 0) {
        ssize_t n = send(fd, out.data, out.len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EINTR)
            return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
        tls_stream_sent(stream, n > 0 ? (size_t)n : 0);
    }
    return 1;
}

/* Takes `n` bytes off the pieces from *i on. */
static void skip(struct iovec *iov, int n_iov, int *i, size_t n) {
    while (*i < n_iov && n >= iov[*i].iov_len)
        n -= iov[(*i)++].iov_len;
    if (*i < n_iov) {
        iov[*i].iov_base = (char *)iov[*i].iov_base + n;
        iov[*i].iov_len -= n;
    }
}

ssize_t tls_socket_write(struct tls_stream *stream, int fd, const struct iovec *iov, int n_iov) {
    enum { MAX_IOV = 128 };
    struct iovec left[MAX_IOV];
    size_t total = 0;
    int i = 0, n_left = MIN(n_iov, (int)MAX_IOV), rc;
    for (int k = 0; k < n_left; k++)
        left[k] = iov[k];
    while ((rc = flush(stream, fd)) > 0 && i < n_left && total < WRITE_BYTES_PER_CALL) {
        ssize_t n = tls_stream_encrypt(stream, left + i, n_left - i);
        if (n <= 0) {
            (void)flush(stream, fd); /* output of the handshake, or an alert */
            errno = n < 0 ? EPROTO : EAGAIN;
            rc = -1;
            break;
        }
        total += (size_t)n;
        skip(left, n_left, &i, (size_t)n);
    }
    int error = rc == 0 ? EAGAIN : errno;
    tls_stream_rest_writing(stream);
    if (total > 0 || rc > 0)
        return (ssize_t)total;
    errno = error;
    return -1;
}

int tls_socket_shake(struct tls_stream *stream, int fd) {
    for (;;) {
        bool is_open = tls_stream_shake(stream);
        struct status *why = tls_stream_why(stream);
        bool is_broken = why != NULL;
        status_unref(why);
        int sent = flush(stream, fd); /* tell the other end why the connection broke */
        if (is_broken)
            errno = EPROTO;
        if (is_broken || sent < 0)
            return -1;
        if (is_open)
            return 1;
        int rc = fill(stream, fd);
        if (rc <= 0)
            return rc;
    }
}

void tls_socket_end(struct tls_stream *stream, int fd) {
    tls_stream_end(stream);
    (void)flush(stream, fd);
}
