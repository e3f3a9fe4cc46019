/* Queues what is to be written: headers, metas and small pieces are copied into chunks, large
 * pieces are shared by reference. */
#include "rpc/wire/wire_internal.h"

#include <stdlib.h>

#include "common/io/crc32c.h"

enum { CHUNK_BYTES = 8 * 1024, SEGMENTS_INITIAL = 16 };

static struct wire_segment *segment_at(const struct wire_output *output, size_t i) {
    return &output->segments[(output->first + i) & (output->capacity - 1)];
}

static struct wire_segment *segment_push(struct wire_output *output) {
    if (output->n_segments == output->capacity) {
        size_t capacity = output->capacity ? output->capacity * 2 : SEGMENTS_INITIAL;
        struct wire_segment *segments = xmalloc(capacity * sizeof(*segments));
        for (size_t i = 0; i < output->n_segments; i++)
            segments[i] = *segment_at(output, i);
        free(output->segments);
        output->segments = segments;
        output->capacity = capacity;
        output->first = 0;
    }
    return segment_at(output, output->n_segments++);
}

static void chunk_drop_segment(struct wire_output *output, struct wire_chunk *chunk) {
    if (--chunk->n_segments > 0)
        return;
    if (chunk != output->tail)
        free(chunk);
    else if (chunk->capacity <= CHUNK_BYTES)
        chunk->used = 0; /* kept, because the next message finds it in the cache */
    else {
        free(chunk);
        output->tail = NULL;
    }
}

/* May more bytes of the kind be added to that segment? They would be at `space`. */
static bool can_grow(const struct wire_segment *last, const struct wire_chunk *chunk,
                     const char *space, enum wire_segment_kind kind) {
    return last->chunk == chunk && last->data + last->len == space && last->kind == kind &&
           kind != WIRE_PAYLOAD_CHECKSUM;
}

/* Returns n contiguous bytes of space. The caller fills them before it releases the lock. */
static char *add_space(struct wire_output *output, size_t n, enum wire_segment_kind kind) {
    struct wire_chunk *tail = output->tail;
    if (!tail || tail->capacity - tail->used < n) {
        size_t capacity = MAX(n, (size_t)CHUNK_BYTES);
        struct wire_chunk *chunk = xmalloc(sizeof(*chunk) + capacity);
        chunk->used = 0;
        chunk->capacity = capacity;
        chunk->n_segments = 0;
        if (tail && tail->n_segments == 0)
            free(tail);
        output->tail = tail = chunk;
    }
    char *space = tail->data + tail->used;
    struct wire_segment *last =
        output->n_segments > 0 ? segment_at(output, output->n_segments - 1) : NULL;
    if (last && can_grow(last, tail, space, kind)) {
        last->len += n;
    } else {
        *segment_push(output) =
            (struct wire_segment){.data = space, .len = n, .kind = kind, .chunk = tail};
        tail->n_segments++;
    }
    tail->used += n;
    output->n_bytes += n;
    output->n_copied_bytes += n;
    return space;
}

/* A payload that is being added. */
struct payload {
    size_t offset;
    enum wire_segment_kind kind;
    bool is_checksummed_here; /* the payload is small, so its checksum is computed now */
    uint32_t checksum;
};

static void add_bytes(struct wire_output *output, struct payload *payload, const void *data,
                      size_t n) {
    if (n == 0)
        return;
    memcpy(add_space(output, n, payload->kind), data, n);
    if (payload->is_checksummed_here)
        payload->checksum = crc32c_extend(payload->checksum, data, n);
}

static void add_shared(struct wire_output *output, struct payload *payload, struct buffer *buffer,
                       const void *data, size_t n) {
    *segment_push(output) = (struct wire_segment){
        .data = data, .len = n, .kind = payload->kind, .owner = buffer_ref(buffer)};
    output->n_bytes += n;
    if (payload->is_checksummed_here)
        payload->checksum = crc32c_extend(payload->checksum, data, n);
}

/* One piece of the payload at the next multiple of WIRE_ALIGN. */
static void add_piece(struct wire_output *output, struct payload *payload, struct buffer *buffer,
                      const void *data, size_t n) {
    static const char zeros[WIRE_ALIGN];
    if (n == 0)
        return;
    size_t padding = -payload->offset & (WIRE_ALIGN - 1);
    add_bytes(output, payload, zeros, padding);
    if (buffer && n >= WIRE_SHARE_MIN_BYTES)
        add_shared(output, payload, buffer, data, n);
    else
        add_bytes(output, payload, data, n);
    payload->offset += padding + n;
}

/* Adds the checksum after the payload. That of a large payload is not known yet. */
static void add_payload_checksum(struct wire_output *output, const struct payload *payload) {
    char *place = add_space(output, WIRE_CHECKSUM_BYTES,
                            payload->is_checksummed_here ? WIRE_PLAIN : WIRE_PAYLOAD_CHECKSUM);
    wire_checksum_write(payload->checksum, place);
}

size_t wire_payload_size(const struct wire_out *message) {
    size_t size = 0;
    for (size_t i = 0; i < message->n_tensors; i++) {
        size_t n = tensor_size_bytes(message->tensors[i]);
        size = n > 0 ? ((size + WIRE_ALIGN - 1) & ~(size_t)(WIRE_ALIGN - 1)) + n : size;
    }
    if (message->extra.len > 0)
        size = ((size + WIRE_ALIGN - 1) & ~(size_t)(WIRE_ALIGN - 1)) + message->extra.len;
    return size;
}

void wire_output_add_message(struct wire_output *output, const struct wire_out *message) {
    CHECK(message->meta.len <= WIRE_MAX_META_BYTES); /* send_and_flush has refused longer ones */
    struct wire_header header = {.type = (uint16_t)message->type,
                                 .flags = output->has_checksums ? WIRE_CHECKSUMMED : 0,
                                 .meta_len = (uint32_t)message->meta.len,
                                 .payload_len = wire_payload_size(message),
                                 .id = message->id};
    size_t meta_checksum_size = wire_checksum_size(&header, header.meta_len);
    char *front =
        add_space(output, WIRE_HEADER_BYTES + message->meta.len + meta_checksum_size, WIRE_PLAIN);
    wire_header_write(&header, front);
    if (message->meta.len > 0)
        memcpy(front + WIRE_HEADER_BYTES, message->meta.data, message->meta.len);
    if (meta_checksum_size > 0)
        wire_checksum_write(crc32c(message->meta.data, message->meta.len),
                            front + WIRE_HEADER_BYTES + message->meta.len);
    bool has_checksum = wire_checksum_size(&header, header.payload_len) > 0,
         is_small = header.payload_len <= WIRE_LARGE_MIN_BYTES;
    struct payload payload = {.kind = has_checksum && !is_small ? WIRE_PAYLOAD : WIRE_PLAIN,
                              .is_checksummed_here = has_checksum && is_small};
    for (size_t i = 0; i < message->n_tensors; i++) {
        const struct tensor *t = message->tensors[i];
        add_piece(output, &payload, t->storage == TENSOR_BUFFER ? t->buffer : NULL, tensor_cdata(t),
                  tensor_size_bytes(t));
    }
    add_piece(output, &payload, message->extra_buffer, message->extra.data, message->extra.len);
    if (has_checksum)
        add_payload_checksum(output, &payload);
}

/* Everything before the segment has been written, so the checksum is known. */
static void fill_in_checksum(struct wire_output *output, struct wire_segment *segment) {
    wire_checksum_write(output->checksum, (char *)(uintptr_t)segment->data);
    output->checksum = 0;
    segment->kind = WIRE_PLAIN;
}

int wire_output_peek(struct wire_output *output, struct iovec *iov, size_t *ret_bytes) {
    int max = (int)MIN(output->n_segments, (size_t)WIRE_MAX_IOV), n = 0;
    size_t bytes = 0, summed = 0;
    for (; n < max && summed < WIRE_CHECKSUM_WRITE_BYTES; n++) {
        struct wire_segment *segment = segment_at(output, (size_t)n);
        size_t len = segment->len;
        if (segment->kind == WIRE_PAYLOAD_CHECKSUM && n > 0)
            break;
        if (segment->kind == WIRE_PAYLOAD_CHECKSUM)
            fill_in_checksum(output, segment);
        if (segment->kind == WIRE_PAYLOAD)
            summed += len = MIN(len, WIRE_CHECKSUM_WRITE_BYTES - summed);
        iov[n] = (struct iovec){.iov_base = (void *)(uintptr_t)segment->data, .iov_len = len};
        bytes += len;
    }
    /* After a payload with a checksum, a peek contains only that checksum. */
    output->n_before_checksummed = bytes - summed;
    *ret_bytes = bytes;
    return n;
}

void wire_output_add_to_checksum(struct wire_output *output, const struct iovec *iov, size_t n) {
    size_t before = output->n_before_checksummed;
    for (size_t at = 0; at < n; iov++) {
        size_t skipped = at < before ? MIN(before - at, iov->iov_len) : 0,
               len = MIN(iov->iov_len, n - at);
        if (len > skipped)
            output->checksum = crc32c_extend(output->checksum,
                                             (const char *)iov->iov_base + skipped, len - skipped);
        at += iov->iov_len;
    }
}

int wire_output_consume(struct wire_output *output, size_t n, struct buffer **ret_done) {
    int n_done = 0;
    output->n_bytes -= n;
    while (n > 0) {
        struct wire_segment *segment = segment_at(output, 0);
        size_t n_here = MIN(n, segment->len);
        n -= n_here;
        segment->data += n_here;
        segment->len -= n_here;
        output->n_copied_bytes -= segment->owner ? 0 : n_here;
        if (segment->len > 0)
            break;
        if (segment->owner)
            ret_done[n_done++] = segment->owner;
        else
            chunk_drop_segment(output, segment->chunk);
        output->first = (output->first + 1) & (output->capacity - 1);
        output->n_segments--;
    }
    return n_done;
}

void wire_output_fini(struct wire_output *output) {
    for (size_t i = 0; i < output->n_segments; i++) {
        struct wire_segment *segment = segment_at(output, i);
        if (segment->owner)
            buffer_unref(segment->owner);
        else
            chunk_drop_segment(output, segment->chunk);
    }
    free(output->tail);
    free(output->segments);
    memset(output, 0, sizeof(*output));
}
