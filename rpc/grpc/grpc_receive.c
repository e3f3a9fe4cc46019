/* Collects one message from the DATA of a stream into one aligned buffer. */
#include "rpc/grpc/grpc_receive.h"

#include <inttypes.h>
#include <stdlib.h>

void grpc_receiver_init(struct grpc_receiver *in, struct grpc_quota *quota, grpc_align_fn *align) {
    *in = (struct grpc_receiver){.state = RECEIVE_PREFIX, .quota = quota, .align = align};
}

void grpc_receiver_unclaim(struct grpc_receiver *in) {
    if (in->claims)
        *in->claims -= (int64_t)in->claimed_bytes;
    in->claims = NULL;
    in->claimed_bytes = 0;
}

static void release(struct grpc_receiver *in) {
    grpc_receiver_unclaim(in);
    buffer_unref(in->buffer);
    in->buffer = NULL;
    free(in->head);
    in->head = NULL;
    if (in->quota)
        in->quota->in_use_bytes -= (int64_t)in->charged_bytes;
    in->charged_bytes = 0;
}

void grpc_receiver_fini(struct grpc_receiver *in) { release(in); }

void grpc_receiver_refuse(struct grpc_receiver *in) {
    release(in);
    in->state = RECEIVE_REFUSED;
}

static struct status *refuse(struct grpc_receiver *in, struct status *why) {
    grpc_receiver_refuse(in);
    return why;
}

static struct status *refuse_limit(struct grpc_receiver *in, enum grpc_refusal refusal,
                                   struct status *why) {
    in->refusal = refusal;
    return refuse(in, why);
}

static struct status *no_room(struct grpc_receiver *in) {
    return refuse_limit(in, REFUSED_INFLIGHT,
                        status_exhausted("no room for a message of %zu bytes: %" PRId64
                                         " of %" PRId64 " bytes are in flight",
                                         in->body_len, in->quota->in_use_bytes,
                                         in->quota->limit_bytes));
}

/* Notes that claimed bytes have arrived. */
static struct status *charge(struct grpc_receiver *in, size_t len) {
    struct grpc_quota *quota = in->quota;
    if ((int64_t)len > quota->limit_bytes - quota->in_use_bytes)
        return no_room(in);
    in->charged_bytes += len;
    quota->in_use_bytes += (int64_t)len;
    if (in->claims) {
        *in->claims -= (int64_t)len;
        in->claimed_bytes -= len;
    }
    return NULL;
}

static struct status *claim(struct grpc_receiver *in) {
    struct grpc_quota *quota = in->quota;
    if ((int64_t)in->body_len > quota->max_message_bytes)
        return refuse_limit(in, REFUSED_MESSAGE,
                            status_exhausted("a message of %zu bytes exceeds the limit of %" PRId64
                                             " bytes",
                                             in->body_len, quota->max_message_bytes));
    if ((int64_t)in->body_len > quota->limit_bytes - quota->in_use_bytes)
        return no_room(in);
    if (!in->claims)
        return NULL;
    if ((int64_t)in->body_len > quota->limit_bytes - *in->claims)
        return refuse_limit(
            in, REFUSED_INFLIGHT,
            status_exhausted("no room for a message of %zu bytes: this connection has %" PRId64
                             " bytes still to send",
                             in->body_len, *in->claims));
    in->claimed_bytes = in->body_len;
    *in->claims += (int64_t)in->body_len;
    return NULL;
}

/* The prefix is complete: refuses what can be refused now, before memory is taken. */
static struct status *read_prefix(struct grpc_receiver *in) {
    const uint8_t *p = in->prefix;
    in->body_len = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | (size_t)p[4];
    if (p[0] > 1)
        return refuse(
            in, status_internal("the message's compressed flag is %d; only 0 and 1 exist", p[0]));
    in->is_compressed = p[0] == 1;
    if (in->is_compressed && !in->takes_compressed)
        return refuse(in, status_internal("the message's compressed flag is set, but no "
                                          "grpc-encoding says how it is compressed"));
    TRY(claim(in));
    in->state = in->body_len == 0                 ? RECEIVE_DONE
                : in->align && !in->is_compressed ? RECEIVE_HEAD
                                                  : RECEIVE_BODY;
    return NULL;
}

/* Allocates the memory so that the byte at the offset that `align` returns is aligned. */
static struct status *allocate(struct grpc_receiver *in, size_t align_offset) {
    size_t pad = (size_t)-align_offset % BUFFER_ALIGN;
    in->buffer = buffer_alloc(allocator_host(), in->body_len + pad);
    if (!in->buffer)
        return refuse(in, status_exhausted("no memory for a message of %zu bytes", in->body_len));
    in->body = in->buffer->data + pad;
    in->state = RECEIVE_BODY;
    return NULL;
}

/* Collects the first bytes until `align` can decide. The first chunk usually contains enough, and
 * then nothing is copied twice. Returns how many bytes were used. */
static struct status *feed_head(struct grpc_receiver *in, const char *bytes, size_t len,
                                size_t *ret_used) {
    size_t wanted = MIN(in->body_len, (size_t)GRPC_HEAD_BYTES);
    *ret_used = 0;
    if (in->n_head == 0 && len >= wanted)
        return allocate(in, in->align((struct span){bytes, MIN(len, in->body_len)}, in->body_len));
    if (!in->head)
        in->head = xmalloc(wanted);
    size_t n = MIN(len, wanted - in->n_head);
    TRY(charge(in, n));
    memcpy(in->head + in->n_head, bytes, n);
    in->n_head += n;
    *ret_used = n;
    if (in->n_head < wanted)
        return NULL;
    TRY(allocate(in, in->align((struct span){in->head, wanted}, in->body_len)));
    memcpy(in->body, in->head, wanted);
    in->n_body = wanted;
    free(in->head);
    in->head = NULL;
    return NULL;
}

static struct status *feed_body(struct grpc_receiver *in, const char *bytes, size_t len) {
    char *place = in->body + in->n_body;
    TRY(charge(in, len));
    if (bytes != place)
        memcpy(place, bytes, len);
    in->n_body += len;
    if (in->n_body == in->body_len)
        in->state = RECEIVE_DONE;
    return NULL;
}

struct status *grpc_receiver_feed(struct grpc_receiver *in, const void *data, size_t len) {
    const char *bytes = data;
    if (in->state == RECEIVE_REFUSED)
        return NULL;
    if (in->state == RECEIVE_PREFIX) {
        size_t n = MIN(len, GRPC_PREFIX_BYTES - in->n_prefix);
        memcpy(in->prefix + in->n_prefix, bytes, n);
        in->n_prefix += n;
        bytes += n;
        len -= n;
        if (in->n_prefix < GRPC_PREFIX_BYTES)
            return NULL;
        TRY(read_prefix(in));
    }
    if (in->state == RECEIVE_HEAD && len > 0) {
        size_t n;
        TRY(feed_head(in, bytes, len, &n));
        bytes += n;
        len -= n;
        if (in->state == RECEIVE_BODY && in->n_body == in->body_len)
            in->state = RECEIVE_DONE;
    }
    if (in->state == RECEIVE_BODY && len > 0) {
        if (!in->buffer)
            TRY(allocate(in, 0));
        size_t n = MIN(len, in->body_len - in->n_body);
        TRY(feed_body(in, bytes, n));
        len -= n;
    }
    if (in->state == RECEIVE_DONE && len > 0)
        return refuse(
            in, status_internal(
                    "%zu bytes follow the message of %zu bytes; a call takes exactly one message",
                    len, in->body_len));
    return NULL;
}

struct status *grpc_receiver_end(struct grpc_receiver *in) {
    if (in->state == RECEIVE_DONE || in->state == RECEIVE_REFUSED)
        return NULL;
    if (in->state == RECEIVE_PREFIX)
        return refuse(in,
                      in->n_prefix == 0
                          ? status_internal("the call carries no message")
                          : status_internal("the stream ended inside the message's 5-byte prefix"));
    size_t n = in->state == RECEIVE_HEAD ? in->n_head : in->n_body;
    return refuse(in, status_internal("the stream ended after %zu of the message's %zu bytes", n,
                                      in->body_len));
}

bool grpc_receiver_destination(struct grpc_receiver *in, char **ret_to, size_t *ret_len) {
    if (in->state != RECEIVE_BODY || !in->buffer)
        return false;
    *ret_to = in->body + in->n_body;
    *ret_len = in->body_len - in->n_body;
    return true;
}

struct grpc_message grpc_receiver_take(struct grpc_receiver *in) {
    CHECK(in->state == RECEIVE_DONE);
    struct grpc_message message = {.buffer = in->buffer,
                                   .body = {in->buffer ? in->body : "", in->body_len}};
    in->buffer = NULL;
    return message;
}
