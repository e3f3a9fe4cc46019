/* Inflates a compressed message with zlib, a slice at a time, within its limits. */
#include "rpc/grpc/grpc_inflate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <zlib.h>

enum {
    PIECE_BYTES = 64 * 1024, /* how much one call of inflate reads or writes */
    GZIP_WINDOW_BITS = 15 + 16,
    ZLIB_WINDOW_BITS = 15,
    GZIP_TRAILER_BYTES = 8,
    STATE_BYTES = 48 * 1024, /* about what zlib keeps for one message: the window and its tables */
};

enum inflate_phase { INFLATE_BEGIN, INFLATE_COUNT, INFLATE_HEAD, INFLATE_BODY, INFLATE_DONE };

static const char *const encoding_names[GRPC_N_ENCODINGS] = {"identity", "deflate", "gzip"};

struct grpc_inflater {
    enum inflate_phase phase;
    enum grpc_encoding encoding;
    struct grpc_message in;
    grpc_align_fn *align;
    struct grpc_quota *quota;
    const struct grpc_server_limits *limits;
    z_stream z;
    bool has_z, is_at_end;
    size_t n_read, n_written; /* of the present pass */
    size_t size_bytes;        /* of the plain message, once known */
    char *head;               /* the first bytes of the plain message, for `align` */
    struct buffer *buffer;
    char *body;
    size_t charged_bytes;
};

enum grpc_encoding grpc_encoding_find(struct span name) {
    enum grpc_encoding encoding = 0;
    while (encoding < GRPC_N_ENCODINGS && !span_is(name, encoding_names[encoding]))
        encoding++;
    return encoding;
}

/* ---- life ---- */

struct grpc_inflater *grpc_inflater_new(struct grpc_message compressed_take,
                                        enum grpc_encoding encoding, grpc_align_fn *align,
                                        struct grpc_quota *quota,
                                        const struct grpc_server_limits *limits) {
    struct grpc_inflater *inflater = xcalloc(1, sizeof(*inflater));
    inflater->encoding = encoding;
    inflater->in = compressed_take;
    inflater->align = align;
    inflater->quota = quota;
    inflater->limits = limits;
    return inflater;
}

static void end_pass(struct grpc_inflater *inflater) {
    if (inflater->has_z)
        inflateEnd(&inflater->z);
    inflater->has_z = false;
}

void grpc_inflater_free(struct grpc_inflater *inflater) {
    if (!inflater)
        return;
    end_pass(inflater);
    inflater->quota->in_use_bytes -= (int64_t)inflater->charged_bytes;
    buffer_unref(inflater->in.buffer);
    buffer_unref(inflater->buffer);
    free(inflater->head);
    free(inflater);
}

/* ---- limits ---- */

static struct status *check_size(struct grpc_inflater *inflater, size_t size,
                                 enum grpc_refusal *ret_refusal) {
    const struct grpc_server_limits *limits = inflater->limits;
    const char *name = encoding_names[inflater->encoding];
    *ret_refusal = REFUSED_INFLATE;
    if ((int64_t)size > limits->max_inflate_bytes)
        return status_exhausted("a %s message of %zu bytes inflates beyond the limit of %" PRId64
                                " bytes",
                                name, inflater->in.body.len, limits->max_inflate_bytes);
    if ((int64_t)size > limits->max_inflate_ratio * (int64_t)inflater->in.body.len)
        return status_exhausted("a %s message of %zu bytes inflates beyond %" PRId64
                                " times its size, the limit",
                                name, inflater->in.body.len, limits->max_inflate_ratio);
    *ret_refusal = REFUSED_NOTHING;
    return NULL;
}

static struct status *charge(struct grpc_inflater *inflater, size_t len,
                             enum grpc_refusal *ret_refusal) {
    struct grpc_quota *quota = inflater->quota;
    if ((int64_t)len > quota->limit_bytes - quota->in_use_bytes) {
        *ret_refusal = REFUSED_INFLIGHT;
        return status_exhausted("no room to inflate a message to %zu bytes: %" PRId64 " of %" PRId64
                                " bytes are in flight",
                                inflater->size_bytes, quota->in_use_bytes, quota->limit_bytes);
    }
    quota->in_use_bytes += (int64_t)len;
    inflater->charged_bytes += len;
    return NULL;
}

/* ---- one call of inflate ---- */

static struct status *begin_pass(struct grpc_inflater *inflater) {
    inflater->z = (z_stream){0};
    inflater->n_read = inflater->n_written = 0;
    inflater->is_at_end = false;
    if (inflateInit2(&inflater->z,
                     inflater->encoding == GRPC_GZIP ? GZIP_WINDOW_BITS : ZLIB_WINDOW_BITS) != Z_OK)
        return status_exhausted("no memory to inflate a message");
    inflater->has_z = true;
    return NULL;
}

static struct status *corrupt(const struct grpc_inflater *inflater, const char *what) {
    return status_internal("the message's %s data are corrupt: %s",
                           encoding_names[inflater->encoding], what);
}

/* Writes up to `room` bytes to `out`. */
static struct status *inflate_piece(struct grpc_inflater *inflater, char *out, size_t room,
                                    int64_t *budget) {
    z_stream *z = &inflater->z;
    size_t n_in = MIN(inflater->in.body.len - inflater->n_read, (size_t)PIECE_BYTES);
    size_t n_out = MIN(room, (size_t)PIECE_BYTES);
    z->next_in = (Bytef *)inflater->in.body.data + inflater->n_read;
    z->avail_in = (uInt)n_in;
    z->next_out = (Bytef *)out;
    z->avail_out = (uInt)n_out;
    int rc = inflate(z, Z_NO_FLUSH);
    size_t n_read = n_in - z->avail_in, n_written = n_out - z->avail_out;
    inflater->n_read += n_read;
    inflater->n_written += n_written;
    *budget -= (int64_t)(n_read + n_written);
    if (rc == Z_MEM_ERROR)
        return status_exhausted("no memory to inflate a message");
    if (rc == Z_STREAM_END) {
        inflater->is_at_end = true;
        return inflater->n_read < inflater->in.body.len
                   ? corrupt(inflater, "bytes follow their end")
                   : NULL;
    }
    if (rc != Z_OK && rc != Z_BUF_ERROR)
        return corrupt(inflater, z->msg              ? z->msg
                                 : rc == Z_NEED_DICT ? "they need a dictionary"
                                                     : "unknown");
    if (n_read == 0 && n_written == 0 && inflater->n_read == inflater->in.body.len && n_out > 0)
        return corrupt(inflater, "they are cut short");
    return NULL;
}

/* Continues to write `size` bytes to `base`, up to the end of the data, which must be exactly
 * there. */
static struct status *inflate_into(struct grpc_inflater *inflater, char *base, size_t size,
                                   bool is_whole, int64_t *budget) {
    char beyond;
    while (*budget > 0 && !inflater->is_at_end && (inflater->n_written < size || is_whole)) {
        bool is_full = inflater->n_written >= size;
        char *place = is_full ? &beyond : base + inflater->n_written;
        TRY(inflate_piece(inflater, place, is_full ? 1 : size - inflater->n_written, budget));
        if (inflater->n_written > size)
            return corrupt(inflater, "they are longer than they state");
    }
    return NULL;
}

/* ---- the phases ---- */

static struct status *begin(struct grpc_inflater *inflater, enum grpc_refusal *ret_refusal) {
    struct span in = inflater->in.body;
    TRY(charge(inflater, STATE_BYTES, ret_refusal));
    TRY(begin_pass(inflater));
    inflater->phase = INFLATE_COUNT;
    if (inflater->encoding != GRPC_GZIP)
        return NULL;
    if (in.len < GZIP_TRAILER_BYTES)
        return corrupt(inflater, "they are cut short");
    const uint8_t *size = (const uint8_t *)in.data + in.len - 4;
    inflater->size_bytes =
        (size_t)size[0] | (size_t)size[1] << 8 | (size_t)size[2] << 16 | (size_t)size[3] << 24;
    struct status *too_large = check_size(inflater, inflater->size_bytes, ret_refusal);
    if (!too_large)
        inflater->phase = INFLATE_HEAD;
    status_unref(too_large); /* Otherwise they cannot be a size, and counting finds the real one. */
    *ret_refusal = REFUSED_NOTHING;
    return NULL;
}

static struct status *count(struct grpc_inflater *inflater, int64_t *budget,
                            enum grpc_refusal *ret_refusal) {
    char dropped[PIECE_BYTES];
    while (*budget > 0 && !inflater->is_at_end) {
        TRY(inflate_piece(inflater, dropped, sizeof(dropped), budget));
        TRY(check_size(inflater, inflater->n_written, ret_refusal));
    }
    if (!inflater->is_at_end)
        return NULL;
    inflater->size_bytes = inflater->n_written;
    end_pass(inflater);
    inflater->phase = INFLATE_HEAD;
    return begin_pass(inflater);
}

static struct status *read_head(struct grpc_inflater *inflater, int64_t *budget,
                                enum grpc_refusal *ret_refusal) {
    size_t wanted = inflater->align ? MIN(inflater->size_bytes, (size_t)GRPC_HEAD_BYTES) : 0;
    if (wanted > 0 && !inflater->head)
        inflater->head = xmalloc(wanted);
    TRY(inflate_into(inflater, inflater->head, wanted, false, budget));
    if (inflater->n_written < wanted)
        return inflater->is_at_end ? corrupt(inflater, "they are shorter than they state") : NULL;
    size_t offset =
        wanted > 0 ? inflater->align((struct span){inflater->head, wanted}, inflater->size_bytes)
                   : 0;
    size_t pad = (size_t)-offset % BUFFER_ALIGN;
    TRY(charge(inflater, wanted, ret_refusal));
    inflater->phase = INFLATE_BODY;
    if (inflater->size_bytes == 0)
        return NULL;
    inflater->buffer = buffer_alloc(allocator_host(), inflater->size_bytes + pad);
    if (!inflater->buffer)
        return status_exhausted("no memory for a message of %zu bytes", inflater->size_bytes);
    inflater->body = inflater->buffer->data + pad;
    if (wanted > 0)
        memcpy(inflater->body, inflater->head, wanted);
    free(inflater->head);
    inflater->head = NULL;
    return NULL;
}

static struct status *read_body(struct grpc_inflater *inflater, int64_t *budget,
                                enum grpc_refusal *ret_refusal) {
    size_t before = inflater->n_written;
    TRY(inflate_into(inflater, inflater->body, inflater->size_bytes, true, budget));
    TRY(charge(inflater, inflater->n_written - before, ret_refusal));
    if (!inflater->is_at_end)
        return NULL;
    if (inflater->n_written < inflater->size_bytes)
        return corrupt(inflater, "they are shorter than they state");
    end_pass(inflater);
    inflater->phase = INFLATE_DONE;
    return NULL;
}

struct status *grpc_inflater_step(struct grpc_inflater *inflater, int64_t *budget_bytes,
                                  bool *ret_done, enum grpc_refusal *ret_refusal) {
    *ret_refusal = REFUSED_NOTHING;
    *ret_done = false;
    if (inflater->phase == INFLATE_BEGIN)
        TRY(begin(inflater, ret_refusal));
    if (inflater->phase == INFLATE_COUNT && *budget_bytes > 0)
        TRY(count(inflater, budget_bytes, ret_refusal));
    if (inflater->phase == INFLATE_HEAD && *budget_bytes > 0)
        TRY(read_head(inflater, budget_bytes, ret_refusal));
    if (inflater->phase == INFLATE_BODY && *budget_bytes > 0)
        TRY(read_body(inflater, budget_bytes, ret_refusal));
    *ret_done = inflater->phase == INFLATE_DONE;
    return NULL;
}

struct grpc_message grpc_inflater_take(struct grpc_inflater *inflater, size_t *ret_charged_bytes) {
    CHECK(inflater->phase == INFLATE_DONE);
    struct grpc_message message = {
        .buffer = inflater->buffer,
        .body = {inflater->buffer ? inflater->body : "", inflater->size_bytes}};
    *ret_charged_bytes = inflater->charged_bytes - STATE_BYTES;
    inflater->buffer = NULL;
    inflater->charged_bytes = STATE_BYTES;
    return message;
}
