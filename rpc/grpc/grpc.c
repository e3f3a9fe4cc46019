/* Builds message bodies of slices, and encodes and decodes what gRPC puts into headers. */
#include "rpc/grpc/grpc.h"

#include <stdlib.h>

#include "common/base/str.h"

/* ---- bodies ---- */

/* Blocks never move once they hold bytes, because slices point into them. */
struct grpc_scratch {
    struct grpc_scratch *next;
    size_t len, capacity;
    char data[];
};

enum { SCRATCH_MIN_BYTES = 512, SCRATCH_MAX_BYTES = 64 * 1024 };

void grpc_body_init(struct grpc_body *body) { *body = (struct grpc_body){0}; }

void grpc_body_fini(struct grpc_body *body) {
    for (size_t i = 0; i < body->n_slices; i++)
        buffer_unref(body->slices[i].buffer);
    free(body->slices);
    while (body->scratch) {
        struct grpc_scratch *next = body->scratch->next;
        free(body->scratch);
        body->scratch = next;
    }
    grpc_body_init(body);
}

static struct grpc_slice *add_slice(struct grpc_body *body) {
    if (body->n_slices == body->capacity) {
        body->capacity = body->capacity ? body->capacity * 2 : 4;
        body->slices = xreallocarray(body->slices, body->capacity, sizeof(*body->slices));
    }
    return &body->slices[body->n_slices++];
}

/* Returns space for `len` more copied bytes, in the newest block or in a new one. */
static char *scratch_take(struct grpc_body *body, size_t len) {
    struct grpc_scratch *block = body->scratch;
    if (!block || block->capacity - block->len < len) {
        size_t grown =
            block ? MIN(block->capacity * 2, (size_t)SCRATCH_MAX_BYTES) : (size_t)SCRATCH_MIN_BYTES;
        size_t capacity = MAX(grown, len);
        block = xmalloc(sizeof(*block) + capacity);
        *block = (struct grpc_scratch){.next = body->scratch, .capacity = capacity};
        body->scratch = block;
    }
    char *place = block->data + block->len;
    block->len += len;
    return place;
}

void grpc_body_add_copy(struct grpc_body *body, const void *bytes, size_t len) {
    if (len == 0)
        return;
    char *place = scratch_take(body, len);
    memcpy(place, bytes, len);
    body->size_bytes += len;
    struct grpc_slice *last = body->n_slices ? &body->slices[body->n_slices - 1] : NULL;
    if (last && !last->buffer && last->bytes.data + last->bytes.len == place) {
        last->bytes.len += len;
        return;
    }
    *add_slice(body) = (struct grpc_slice){.bytes = {place, len}};
}

void grpc_body_add_shared(struct grpc_body *body, const void *bytes, size_t len,
                          struct buffer *buffer_take) {
    if (len == 0) {
        buffer_unref(buffer_take);
        return;
    }
    *add_slice(body) = (struct grpc_slice){.bytes = {bytes, len}, .buffer = buffer_take};
    body->size_bytes += len;
}

/* Copies the first n bytes. */
static void copy_head(const struct grpc_body *body, char *to, size_t n) {
    for (size_t i = 0; i < body->n_slices && n > 0; i++) {
        size_t n_here = MIN(n, body->slices[i].bytes.len);
        memcpy(to, body->slices[i].bytes.data, n_here);
        to += n_here;
        n -= n_here;
    }
}

struct status *grpc_body_gather(const struct grpc_body *body, grpc_align_fn *align,
                                struct grpc_message *ret) {
    char head[GRPC_HEAD_BYTES];
    size_t n_head = MIN(body->size_bytes, sizeof(head)), align_offset = 0;
    *ret = (struct grpc_message){0};
    if (body->size_bytes == 0)
        return NULL;
    if (align) {
        copy_head(body, head, n_head);
        align_offset = align((struct span){head, n_head}, body->size_bytes);
    }
    size_t pad = (size_t)-align_offset % BUFFER_ALIGN;
    struct buffer *buffer = buffer_alloc(allocator_host(), body->size_bytes + pad);
    if (!buffer)
        return status_exhausted("no memory for a message of %zu bytes", body->size_bytes);
    copy_head(body, buffer->data + pad, body->size_bytes);
    *ret = (struct grpc_message){buffer, {buffer->data + pad, body->size_bytes}};
    return NULL;
}

/* ---- grpc-message ---- */

/* A client drops a header list that exceeds 8 to 16 KiB, and with it the message. */
enum { MAX_ENCODED_BYTES = 6000 };

/* How many bytes the UTF-8 sequence has that starts here (1 for a stray byte). So a cut never
 * leaves half a character. */
static size_t utf8_sequence_len(const unsigned char *p) {
    size_t len = *p >= 0xf0 ? 4 : *p >= 0xe0 ? 3 : *p >= 0xc0 ? 2 : 1;
    for (size_t i = 1; i < len; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 1;
    return len;
}

void grpc_percent_encode(const char *text, struct str *out) {
    static const char hex[] = "0123456789ABCDEF";
    size_t n_encoded = 0;
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        size_t len = utf8_sequence_len(p);
        bool is_plain = *p >= 0x20 && *p <= 0x7e && *p != '%';
        n_encoded += is_plain ? 1 : 3 * len;
        if (n_encoded > MAX_ENCODED_BYTES)
            return;
        for (; len > 0; len--, p++) {
            if (is_plain) {
                str_add_char(out, (char)*p);
            } else {
                char escaped[3] = {'%', hex[*p >> 4], hex[*p & 15]};
                str_add_bytes(out, escaped, sizeof(escaped));
            }
        }
    }
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void grpc_percent_decode(struct span text, struct str *out) {
    for (size_t i = 0; i < text.len; i++) {
        int high = -1, low = -1;
        if (text.data[i] == '%' && text.len - i > 2) {
            high = hex_digit(text.data[i + 1]);
            low = hex_digit(text.data[i + 2]);
        }
        if (high >= 0 && low >= 0) {
            str_add_char(out, (char)(high << 4 | low));
            i += 2;
        } else {
            str_add_char(out, text.data[i]); /* not an escape: copied unchanged */
        }
    }
}

/* ---- grpc-timeout ---- */

bool grpc_timeout_parse(struct span text, int64_t *ret_ms) {
    /* A unit is either `ms` milliseconds, or `per_ms` of it are one millisecond. */
    static const struct {
        char unit;
        int64_t ms, per_ms;
    } units[] = {{'H', 3600000, 1}, {'M', 60000, 1}, {'S', 1000, 1},
                 {'m', 1, 1},       {'u', 1, 1000},  {'n', 1, 1000000}};

    if (text.len < 2)
        return false;
    int64_t value = 0;
    bool is_huge = false;
    for (size_t i = 0; i + 1 < text.len; i++) {
        if (text.data[i] < '0' || text.data[i] > '9')
            return false;
        is_huge |= mul_overflows_i64(value, 10, &value) ||
                   add_overflows_i64(value, text.data[i] - '0', &value);
        if (is_huge)
            value = 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (units[i].unit != text.data[text.len - 1])
            continue;
        if (is_huge || mul_overflows_i64(value, units[i].ms, &value))
            value = INT64_MAX;
        else
            value = value / units[i].per_ms + (value % units[i].per_ms != 0);
        *ret_ms = value;
        return true;
    }
    return false;
}
