/* Reads and delivers messages. A read fills the loop's buffer. Whole messages are delivered from
 * there, and the rest waits in the connection's stash. A large payload is read straight into its
 * own buffer, and what follows it into the loop's, in one system call. */
#include "rpc/wire/wire_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/io/crc32c.h"

/* Stands for "read and drop the bytes". */
static struct buffer discard_marker;
struct buffer *const wire_discard = &discard_marker;

void wire_input_init(struct wire_input *input) { *input = (struct wire_input){.fd = -1}; }

void wire_input_fini(struct wire_input *input) {
    free(input->stash);
    str_fini(&input->large_meta);
    buffer_unref(input->payload);
    if (input->fd >= 0)
        close(input->fd);
    wire_input_init(input);
}

uint64_t wire_conn_received_bytes(const struct wire_conn *conn) {
    const struct wire_input *input = &conn->input;
    return conn->ended_received_bytes + input->frame_begin +
           (input->is_large || input->awaits_checksum ? input->n_got : input->stash_len);
}

static void stash_reserve(struct wire_input *input, size_t size_bytes) {
    if (input->stash_capacity >= size_bytes)
        return;
    input->stash = xrealloc(input->stash, size_bytes);
    input->stash_capacity = size_bytes;
}

/* There are many connections, and few are in the middle of a message. So only a small piece of
 * memory is kept for it. */
static void stash_set(struct wire_input *input, const char *data, size_t len) {
    enum { KEPT_BYTES = 512 };
    if (len == 0 && input->stash_capacity > KEPT_BYTES) {
        free(input->stash);
        input->stash = NULL;
        input->stash_capacity = 0;
    } else if (len > 0) {
        stash_reserve(input, MAX(len, (size_t)KEPT_BYTES));
        memmove(input->stash, data, len);
    }
    input->stash_len = len;
}

/* ---- delivering ---- */

struct wire_message wire_message_of(const struct wire_header *header, const char *meta) {
    return (struct wire_message){.type = (enum wire_type)header->type,
                                 .flags = header->flags,
                                 .id = header->id,
                                 .meta = {meta, header->meta_len},
                                 .payload_len = header->payload_len};
}

struct status *wire_payload_alloc(struct wire_conn *conn, const struct wire_message *message,
                                  struct buffer **ret) {
    size_t size = message->payload_len;
    struct buffer *buffer = conn->handlers->alloc
                                ? conn->handlers->alloc(conn->owner, conn, message, size)
                                : buffer_alloc(allocator_host(), size);
    if (!buffer)
        return status_exhausted("no memory for %zu bytes of payload of a message of type %u", size,
                                message->type);
    CHECK(buffer == wire_discard || buffer->size_bytes >= size);
    *ret = buffer == wire_discard ? NULL : buffer;
    return NULL;
}

void wire_deliver(struct wire_conn *conn, struct wire_message *message,
                  struct buffer *payload_take) {
    message->payload = payload_take;
    if (wire_conn_is_live(conn))
        conn->handlers->on_message(conn->owner, conn, message);
    buffer_unref(message->payload);
}

/* ---- checksums ---- */

static uint64_t message_bytes(const struct wire_header *header) {
    return WIRE_HEADER_BYTES + header->meta_len + wire_checksum_size(header, header->meta_len) +
           header->payload_len + wire_checksum_size(header, header->payload_len);
}

/* Returns where the payload begins, in memory that begins with the message. */
static const char *payload_at(const struct wire_header *header, const char *front) {
    return front + WIRE_HEADER_BYTES + header->meta_len +
           wire_checksum_size(header, header->meta_len);
}

static struct status *check_meta(const struct wire_header *header, const char *front) {
    const char *meta = front + WIRE_HEADER_BYTES;
    if (wire_checksum_size(header, header->meta_len) == 0)
        return NULL;
    return wire_checksum_check("meta", (enum wire_type)header->type, crc32c(meta, header->meta_len),
                               meta + header->meta_len);
}

/* Bytes of a large payload have arrived. */
static void add_to_checksum(struct wire_input *input, const char *bytes, size_t n) {
    if (unlikely(input->large.flags & WIRE_CHECKSUMMED))
        input->checksum = crc32c_extend(input->checksum, bytes, n);
}

/* ---- messages ---- */

/* Delivers a small message that is in memory completely. */
static struct status *deliver_small(struct wire_conn *conn, const struct wire_header *header,
                                    const char *front) {
    struct wire_message message = wire_message_of(header, front + WIRE_HEADER_BYTES);
    const char *bytes = payload_at(header, front);
    struct buffer *payload = NULL;
    if (wire_checksum_size(header, header->payload_len) > 0)
        TRY(wire_checksum_check("payload", message.type, crc32c(bytes, header->payload_len),
                                bytes + header->payload_len));
    if (header->payload_len > 0) {
        TRY(wire_payload_alloc(conn, &message, &payload));
        if (!payload)
            return NULL;
        memcpy(payload->data, bytes, header->payload_len);
    }
    wire_deliver(conn, &message, payload);
    return NULL;
}

/* Header and meta of a large message have arrived, and `n_there` bytes of its payload. */
static struct status *begin_large(struct wire_conn *conn, const struct wire_header *header,
                                  const char *front, size_t n_there) {
    struct wire_input *input = &conn->input;
    struct wire_message message = wire_message_of(header, front + WIRE_HEADER_BYTES);
    TRY(wire_payload_alloc(conn, &message, &input->payload));
    input->is_large = true;
    input->large = *header;
    input->n_got = n_there;
    input->checksum = 0;
    add_to_checksum(input, payload_at(header, front), n_there);
    str_clear(&input->large_meta);
    str_add_bytes(&input->large_meta, message.meta.data, message.meta.len);
    if (input->payload)
        memcpy(input->payload->data, payload_at(header, front), n_there);
    return NULL;
}

static void deliver_large(struct wire_conn *conn) {
    struct wire_input *input = &conn->input;
    struct wire_message message = wire_message_of(&input->large, input->large_meta.data);
    struct str meta = input->large_meta;
    struct buffer *payload = input->payload;
    input->frame_begin += message_bytes(&input->large);
    input->payload = NULL;
    input->large_meta = STR_INIT;
    if (payload)
        wire_deliver(conn, &message, payload);
    str_fini(&meta);
}

/* All of the payload has arrived. */
static void end_large(struct wire_conn *conn) {
    struct wire_input *input = &conn->input;
    input->is_large = false;
    input->awaits_checksum = (input->large.flags & WIRE_CHECKSUMMED) != 0;
    if (!input->awaits_checksum)
        deliver_large(conn);
}

static struct status *end_awaiting_checksum(struct wire_conn *conn, const char *sent) {
    struct wire_input *input = &conn->input;
    TRY(wire_checksum_check("payload", (enum wire_type)input->large.type, input->checksum, sent));
    input->awaits_checksum = false;
    deliver_large(conn);
    return NULL;
}

/* How many bytes of a message have to be contiguous: all of a small message, header and meta of a
 * large one. */
static size_t front_bytes(const struct wire_header *header) {
    size_t n = WIRE_HEADER_BYTES + header->meta_len + wire_checksum_size(header, header->meta_len);
    return header->payload_len > WIRE_LARGE_MIN_BYTES
               ? n
               : n + header->payload_len + wire_checksum_size(header, header->payload_len);
}

/* The other end's first message with checksums makes this end send them, too. */
static struct status *read_header(struct wire_conn *conn, const char *data,
                                  struct wire_header *ret) {
    struct wire_input *input = &conn->input;
    TRY(wire_header_read(data, conn->handlers->max_payload_bytes, input->has_checksums, ret));
    if (unlikely((ret->flags & WIRE_CHECKSUMMED) && !input->has_checksums)) {
        input->has_checksums = true;
        wire_conn_use_checksums(conn);
    }
    return NULL;
}

/* Reads one message whose beginning is in `data`. *ret_used is how many bytes of it are used up. */
static struct status *parse_message(struct wire_conn *conn, const struct wire_header *header,
                                    const char *data, size_t len, size_t *ret_used) {
    size_t front = front_bytes(header);
    *ret_used = front;
    TRY(check_meta(header, data));
    if (header->payload_len <= WIRE_LARGE_MIN_BYTES) {
        TRY(deliver_small(conn, header, data));
        conn->input.frame_begin += message_bytes(header);
        return NULL;
    }
    size_t n_there = MIN(len - front, header->payload_len);
    TRY(begin_large(conn, header, data, n_there));
    *ret_used += n_there;
    if (n_there == header->payload_len)
        end_large(conn);
    return NULL;
}

/* Delivers the complete messages in `data`. The last *ret_rest bytes are the beginning of a message
 * that has not arrived completely; *ret_need is how many bytes it needs. */
static struct status *parse(struct wire_conn *conn, const char *data, size_t len, size_t *ret_rest,
                            size_t *ret_need) {
    struct wire_input *input = &conn->input;
    while (*ret_need = input->awaits_checksum ? WIRE_CHECKSUM_BYTES : WIRE_HEADER_BYTES,
           len >= *ret_need && wire_conn_is_live(conn)) {
        struct wire_header header;
        size_t used = WIRE_CHECKSUM_BYTES;
        if (input->awaits_checksum) {
            TRY(end_awaiting_checksum(conn, data));
        } else {
            TRY(read_header(conn, data, &header));
            *ret_need = front_bytes(&header);
            if (len < *ret_need)
                break;
            TRY(parse_message(conn, &header, data, len, &used));
        }
        data += used;
        len -= used;
    }
    *ret_rest = len;
    return NULL;
}

/* ---- reading ---- */

static struct status *parse_and_stash(struct wire_conn *conn, const char *data, size_t len) {
    struct wire_input *input = &conn->input;
    size_t rest, need;
    TRY(parse(conn, data, len, &rest, &need));
    if (!wire_conn_is_live(conn))
        return NULL;
    if (rest > 0 && need > LOOP_READ_BUFFER_BYTES - WIRE_READ_BYTES)
        stash_reserve(input, need); /* a large meta is read directly into its place */
    stash_set(input, data + len - rest, rest);
    return NULL;
}

/* Keeps a descriptor that was passed. There is space for one, and the kernel closes others. */
static ssize_t read_with_fd(struct wire_conn *conn, struct iovec *iov, int n_iov) {
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    struct msghdr message = {.msg_iov = iov,
                             .msg_iovlen = (size_t)n_iov,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    ssize_t n = recvmsg(conn->fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    struct cmsghdr *header = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int))) {
        int old = wire_conn_take_fd(conn);
        if (old >= 0)
            close(old);
        memcpy(&conn->input.fd, CMSG_DATA(header), sizeof(int));
    }
    return n;
}

static ssize_t read_pieces(struct wire_conn *conn, struct iovec *iov, int n_iov) {
    if (unlikely(conn->tls != NULL))
        return tls_socket_read(conn->tls, conn->fd, iov, n_iov);
    return unlikely(conn->expects_fd) ? read_with_fd(conn, iov, n_iov)
                                      : readv(conn->fd, iov, n_iov);
}

static ssize_t read_piece(struct wire_conn *conn, void *to, size_t size_bytes) {
    if (unlikely(conn->tls || conn->expects_fd))
        return read_pieces(conn, &(struct iovec){to, size_bytes}, 1);
    return read(conn->fd, to, size_bytes);
}

static ssize_t read_large(struct wire_conn *conn, char *scratch, size_t *ret_asked,
                          struct status **ret_why) {
    struct wire_input *input = &conn->input;
    size_t missing = input->large.payload_len - input->n_got;
    size_t n_direct = input->payload
                          ? MIN(missing, (size_t)WIRE_BYTES_PER_EVENT)
                          : MIN(missing, (size_t)LOOP_READ_BUFFER_BYTES - WIRE_READ_BYTES);
    struct iovec iov[2] = {
        {.iov_base =
             input->payload ? input->payload->data + input->n_got : scratch + WIRE_READ_BYTES,
         .iov_len = n_direct},
        {.iov_base = scratch, .iov_len = WIRE_READ_BYTES},
    };
    int n_iov = n_direct == missing ? 2 : 1;
    ssize_t n = read_pieces(conn, iov, n_iov);
    *ret_asked = n_direct + (n_iov == 2 ? (size_t)WIRE_READ_BYTES : 0);
    if (n <= 0)
        return n;
    size_t n_payload = MIN((size_t)n, n_direct);
    add_to_checksum(input, iov[0].iov_base, n_payload);
    input->n_got += n_payload;
    if (n_payload == missing) {
        end_large(conn);
        if ((size_t)n > n_payload)
            *ret_why = parse_and_stash(conn, scratch, (size_t)n - n_payload);
    }
    return n;
}

static ssize_t read_front(struct wire_conn *conn, char *scratch, size_t *ret_asked,
                          struct status **ret_why) {
    struct wire_input *input = &conn->input;
    if (input->stash_capacity > LOOP_READ_BUFFER_BYTES - WIRE_READ_BYTES) {
        *ret_asked = input->stash_capacity - input->stash_len;
        ssize_t n = read_piece(conn, input->stash + input->stash_len, *ret_asked);
        if (n <= 0)
            return n;
        input->stash_len += (size_t)n;
        if (input->stash_len == input->stash_capacity) {
            char *whole = input->stash;
            size_t len = input->stash_len;
            input->stash = NULL;
            input->stash_len = input->stash_capacity = 0;
            *ret_why = parse_and_stash(conn, whole, len);
            free(whole);
        }
        return n;
    }
    size_t kept = input->stash_len;
    *ret_asked = WIRE_READ_BYTES;
    ssize_t n = read_piece(conn, scratch + kept, *ret_asked);
    if (n <= 0)
        return n;
    if (kept > 0)
        memcpy(scratch, input->stash, kept);
    *ret_why = parse_and_stash(conn, scratch, kept + (size_t)n);
    return n;
}

/* A port with TLS answers an end without TLS with an alert, and with nothing else. */
static struct status *why_ended(const struct wire_conn *conn) {
    const struct wire_input *input = &conn->input;
    bool is_alert = input->stash_len >= 3 && input->stash_len < WIRE_HEADER_BYTES &&
                    memcmp(input->stash, "\x15\x03", 2) == 0;
    if (is_alert && !conn->tls)
        return status_unavailable("%s wants TLS: give --tls-cert, --tls-key and --tls-ca here, too",
                                  conn->peer);
    return status_unavailable("%s closed the connection%s", conn->peer,
                              input->is_large || input->awaits_checksum || input->stash_len > 0
                                  ? " in the middle of a message"
                                  : "");
}

static void on_read_due(struct loop_task *task) {
    struct wire_conn *conn = CONTAINER_OF(task, struct wire_conn, read_task);
    conn->is_read_due = false;
    wire_conn_read(conn);
    wire_conn_unref(conn);
}

/* The connection's share of this event is used up, and the socket may not report that there is
 * more. */
static void read_on_later(struct wire_conn *conn) {
    if (!conn->tls || !tls_stream_has_input(conn->tls) || conn->is_read_due ||
        !wire_conn_is_live(conn))
        return;
    conn->is_read_due = true;
    conn->read_task.run = on_read_due;
    loop_defer(conn->loop, &wire_conn_ref(conn)->read_task);
}

struct status *wire_input_read(struct wire_conn *conn) {
    struct wire_input *input = &conn->input;
    char *scratch = loop_read_buffer(conn->loop);
    struct status *why = NULL;
    size_t total = 0;
    while (wire_conn_is_live(conn) && total < WIRE_BYTES_PER_EVENT) {
        size_t asked;
        ssize_t n = input->is_large ? read_large(conn, scratch, &asked, &why)
                                    : read_front(conn, scratch, &asked, &why);
        if (why)
            return status_prefix_take(why, "from %s, in the message at byte %llu: ", conn->peer,
                                      (unsigned long long)input->frame_begin);
        if (n == 0)
            return why_ended(conn);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN ? NULL : wire_why_broken(conn, errno);
        if ((size_t)n < asked && !conn->expects_fd)
            return NULL; /* a short read: the socket has no more, except after a descriptor */
        total += (size_t)n;
    }
    read_on_later(conn);
    return NULL;
}
