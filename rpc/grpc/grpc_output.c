/* Queues copied bytes and parts of messages, and gathers them for one writev. */
#include "rpc/grpc/grpc_output.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "rpc/tls/tls_stream.h"

enum {
    COPY_BELOW_BYTES = 256, /* a copy is cheaper than one more iovec and reference */
    N_IOVECS = 128,         /* of one sendmsg */
    /* copied bytes that have been written are dropped in steps of at least this size */
    COMPACT_BYTES = 64 * 1024,
    /* an idle connection keeps at most this much memory for copied bytes */
    KEEP_BYTES = 256 * 1024,
};

/* ---- messages ---- */

struct grpc_sender *grpc_sender_new(struct grpc_body *body) {
    struct grpc_sender *sender = xmalloc(sizeof(*sender));
    uint32_t len = (uint32_t)body->size_bytes;
    *sender = (struct grpc_sender){.n_refs = 1, .body = *body};
    sender->prefix[1] = (uint8_t)(len >> 24);
    sender->prefix[2] = (uint8_t)(len >> 16);
    sender->prefix[3] = (uint8_t)(len >> 8);
    sender->prefix[4] = (uint8_t)len;
    grpc_body_init(body);
    return sender;
}

void grpc_sender_unref(struct grpc_sender *sender) {
    if (!sender || --sender->n_refs > 0)
        return;
    grpc_body_fini(&sender->body);
    free(sender);
}

/* ---- the queue ---- */

void grpc_output_init(struct grpc_output *out) { *out = (struct grpc_output){0}; }

void grpc_output_fini(struct grpc_output *out) {
    for (size_t i = out->first; i < out->end; i++)
        grpc_sender_unref(out->pieces[i].sender);
    free(out->pieces);
    free(out->copied);
    grpc_output_init(out);
}

static struct grpc_output_piece *add_piece(struct grpc_output *out) {
    if (out->end == out->capacity && out->first > out->capacity / 2) {
        memmove(out->pieces, out->pieces + out->first,
                (out->end - out->first) * sizeof(*out->pieces));
        out->end -= out->first;
        out->first = 0;
    }
    if (out->end == out->capacity) {
        out->capacity = out->capacity ? out->capacity * 2 : 16;
        out->pieces = xreallocarray(out->pieces, out->capacity, sizeof(*out->pieces));
    }
    return &out->pieces[out->end++];
}

void grpc_output_add_copy(struct grpc_output *out, const void *bytes, size_t len) {
    if (out->copied_capacity - out->copied_len < len) {
        out->copied_capacity =
            MAX(out->copied_capacity * 2, MAX(out->copied_len + len, (size_t)1024));
        out->copied = xrealloc(out->copied, out->copied_capacity);
    }
    memcpy(out->copied + out->copied_len, bytes, len);
    uint64_t at = out->copied_base + out->copied_len;
    out->copied_len += len;
    out->size_bytes += len;
    struct grpc_output_piece *last = out->end > out->first ? &out->pieces[out->end - 1] : NULL;
    if (last && !last->sender) /* neighbours in the queue are also neighbours in the copied bytes */
        last->len += len;
    else
        *add_piece(out) = (struct grpc_output_piece){.copied_at = at, .len = len};
}

static void add_shared(struct grpc_output *out, struct grpc_sender *sender, const char *data,
                       size_t len) {
    if (len <= COPY_BELOW_BYTES) {
        grpc_output_add_copy(out, data, len);
        return;
    }
    sender->n_refs++;
    *add_piece(out) = (struct grpc_output_piece){.sender = sender, .data = data, .len = len};
    out->size_bytes += len;
}

void grpc_output_add_message(struct grpc_output *out, struct grpc_sender *sender, size_t len) {
    CHECK(len <= grpc_sender_left(sender));
    if (sender->offset < GRPC_PREFIX_BYTES && len > 0) {
        size_t n = MIN(len, GRPC_PREFIX_BYTES - sender->offset);
        grpc_output_add_copy(out, sender->prefix + sender->offset, n);
        sender->offset += n;
        len -= n;
    }
    sender->offset += len;
    while (len > 0) {
        struct span bytes = sender->body.slices[sender->slice].bytes;
        size_t n = MIN(len, bytes.len - sender->slice_offset);
        add_shared(out, sender, bytes.data + sender->slice_offset, n);
        sender->slice_offset += n;
        len -= n;
        if (sender->slice_offset == bytes.len) {
            sender->slice++;
            sender->slice_offset = 0;
        }
    }
}

/* ---- writing ---- */

static void drop_written(struct grpc_output *out, size_t len) {
    out->size_bytes -= len;
    while (len > 0) {
        struct grpc_output_piece *piece = &out->pieces[out->first];
        size_t n = MIN(len, piece->len);
        piece->len -= n;
        if (piece->sender)
            piece->data += n;
        else
            piece->copied_at += n;
        len -= n;
        if (piece->len > 0)
            break;
        grpc_sender_unref(piece->sender);
        out->first++;
    }
}

/* Frees the memory of copied bytes that have been written. */
static void compact_copied(struct grpc_output *out) {
    if (out->first == out->end) {
        out->first = out->end = 0;
        out->copied_base += out->copied_len;
        out->copied_len = 0;
        if (out->copied_capacity > KEEP_BYTES) {
            free(out->copied);
            out->copied = NULL;
            out->copied_capacity = 0;
        }
        return;
    }
    if (out->copied_len < COMPACT_BYTES)
        return;
    uint64_t oldest = out->copied_base + out->copied_len;
    for (size_t i = out->first; i < out->end; i++) {
        if (!out->pieces[i].sender) {
            oldest = out->pieces[i].copied_at;
            break;
        }
    }
    size_t written = (size_t)(oldest - out->copied_base);
    if (written < out->copied_len / 2)
        return;
    memmove(out->copied, out->copied + written, out->copied_len - written);
    out->copied_len -= written;
    out->copied_base = oldest;
}

static ssize_t write_pieces(int fd, struct tls_stream *tls, struct iovec *iovecs, size_t n_iovecs) {
    struct msghdr message = {.msg_iov = iovecs, .msg_iovlen = n_iovecs};
    return tls ? tls_socket_write(tls, fd, iovecs, (int)n_iovecs)
               : sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

int grpc_output_write(struct grpc_output *out, int fd, struct tls_stream *tls,
                      size_t *ret_written) {
    int error = 0;
    *ret_written = 0;
    if (tls && out->first == out->end && write_pieces(fd, tls, NULL, 0) < 0)
        error = errno;
    while (error == 0 && out->first < out->end) {
        struct iovec iovecs[N_IOVECS];
        size_t n_iovecs = MIN(out->end - out->first, (size_t)N_IOVECS), offered = 0;
        for (size_t i = 0; i < n_iovecs; i++) {
            struct grpc_output_piece *piece = &out->pieces[out->first + i];
            const char *data =
                piece->sender ? piece->data : out->copied + (piece->copied_at - out->copied_base);
            iovecs[i] = (struct iovec){(void *)data, piece->len};
            offered += piece->len;
        }
        ssize_t n = write_pieces(fd, tls, iovecs, n_iovecs);
        if (n < 0) {
            error = errno == EINTR ? 0 : errno == EWOULDBLOCK ? EAGAIN : errno;
            continue;
        }
        *ret_written += (size_t)n;
        drop_written(out, (size_t)n);
        if ((size_t)n < offered)
            error = EAGAIN; /* the socket is full, so another call would only return EAGAIN */
    }
    compact_copied(out);
    return error;
}
