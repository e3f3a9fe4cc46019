/* Computes StringLower, StringUpper, StringStrip, StringLength and Substr. */
#include <stdlib.h>

#include "kernels/support/broadcast.h"
#include "kernels/host/text/string_internal.h"
#include "kernels/host/text/utf8.h"

/* ---- case ---- */

struct case_state {
    bool is_utf8;
};

struct status *string_case_init(struct kernel_init *init) {
    struct span encoding;
    TRY(node_get_s(init->node, "encoding", &encoding));
    if (encoding.len > 0 && !span_is(encoding, "utf-8"))
        return status_invalid("only utf-8 or '' (no encoding) is supported, received %.*s",
                              (int)MIN(encoding.len, 100), encoding.data);
    struct case_state *state = xmalloc(sizeof(*state));
    state->is_utf8 = encoding.len > 0;
    init->state = state;
    return NULL;
}

struct map_job {
    const struct tensor *input;
    struct bytes **out;
    struct bytes *(*map)(struct span text);
};

static void map_range(void *arg, int64_t begin, int64_t end) {
    const struct map_job *job = arg;
    for (int64_t i = begin; i < end; i++)
        job->out[i] = job->map(tensor_string(job->input, i));
}

static enum kernel_result map_strings(struct kernel_ctx *ctx,
                                      struct bytes *(*map)(struct span text)) {
    const struct tensor *input = kernel_input(ctx, 0);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_STRING, tensor_shape(input)));
    struct map_job job = {input, string_elements(&ctx->outputs[0]), map};
    pool_parallel_for(ctx->pool, input->n_elements, 60, map_range, &job);
    return KERNEL_DONE;
}

/* Changes only ASCII letters, because other bytes may be of any encoding. */
static struct bytes *ascii_lower(struct span text) {
    struct bytes *out = bytes_new_uninit(text.len);
    for (size_t i = 0, end; i < text.len && (end = text_part_end(i, text.len)) > 0;)
        for (; i < end; i++)
            out->data[i] = text.data[i] >= 'A' && text.data[i] <= 'Z' ? (char)(text.data[i] + 32)
                                                                      : text.data[i];
    return out;
}
static struct bytes *ascii_upper(struct span text) {
    struct bytes *out = bytes_new_uninit(text.len);
    for (size_t i = 0, end; i < text.len && (end = text_part_end(i, text.len)) > 0;)
        for (; i < end; i++)
            out->data[i] = text.data[i] >= 'a' && text.data[i] <= 'z' ? (char)(text.data[i] - 32)
                                                                      : text.data[i];
    return out;
}
static struct bytes *unicode_lower(struct span text) {
    struct str out = STR_INIT;
    utf8_to_lower(text, &out);
    struct bytes *bytes = text_new(out.data, out.len);
    str_fini(&out);
    return bytes;
}
static struct bytes *unicode_upper(struct span text) {
    struct str out = STR_INIT;
    utf8_to_upper(text, &out);
    struct bytes *bytes = text_new(out.data, out.len);
    str_fini(&out);
    return bytes;
}

/* StringLower, StringUpper: attr encoding "" (ASCII only) or "utf-8". */
enum kernel_result string_lower(struct kernel_ctx *ctx) {
    const struct case_state *state = ctx->instance->state;
    return map_strings(ctx, state->is_utf8 ? unicode_lower : ascii_lower);
}
enum kernel_result string_upper(struct kernel_ctx *ctx) {
    const struct case_state *state = ctx->instance->state;
    return map_strings(ctx, state->is_utf8 ? unicode_upper : ascii_upper);
}

/* ---- StringStrip ---- */

struct span skip_spaces(struct span text) {
    while (text.len > 0 && is_space(text.data[0]))
        text = (struct span){text.data + 1, text.len - 1};
    return text;
}

struct span strip_spaces(struct span text) {
    text = skip_spaces(text);
    while (text.len > 0 && is_space(text.data[text.len - 1]))
        text.len--;
    return text;
}

static struct bytes *strip(struct span text) {
    text = strip_spaces(text);
    return text_new(text.data, text.len);
}

/* StringStrip: removes the spaces at both ends. */
enum kernel_result string_strip(struct kernel_ctx *ctx) { return map_strings(ctx, strip); }

/* ---- units ---- */

struct unit_state {
    bool is_utf8;
};

struct status *string_unit_init(struct kernel_init *init) {
    struct span unit;
    TRY(node_get_s(init->node, "unit", &unit));
    struct unit_state *state = xmalloc(sizeof(*state));
    state->is_utf8 = span_is(unit, "UTF8_CHAR");
    init->state = state;
    return NULL;
}

static bool counts_characters(const struct kernel_ctx *ctx) {
    return ((const struct unit_state *)ctx->instance->state)->is_utf8;
}

/* StringLength: counts bytes, or bytes that start a character. output int32, the input's shape. */
enum kernel_result string_length(struct kernel_ctx *ctx) {
    const struct tensor *input = kernel_input(ctx, 0);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_INT32, tensor_shape(input)));
    int32_t *out = tensor_data(&ctx->outputs[0]);
    bool is_utf8 = counts_characters(ctx);
    for (int64_t i = 0; i < input->n_elements && text_goes_on(i); i++) {
        struct span text = tensor_string(input, i);
        size_t n = text.len;
        for (size_t at = 0, end;
             is_utf8 && at < text.len && (end = text_part_end(at, text.len)) > 0;)
            for (; at < end; at++)
                n -= utf8_is_continuation(text.data[at]);
        out[i] = (int32_t)MIN(n, (size_t)INT32_MAX);
    }
    return KERNEL_DONE;
}

/* ---- Substr ---- */

/* The byte offset after n characters from `at`, at most the end. *ret_n counts the characters
 * found. */
static size_t skip_characters(struct span text, size_t at, uint64_t n, uint64_t *ret_n) {
    uint64_t found = 0;
    for (; found < n && at < text.len && pool_goes_on((int64_t)found); found++) {
        at++;
        while (at < text.len && utf8_is_continuation(text.data[at]))
            at++;
    }
    *ret_n = found;
    return at;
}

/* False when pos is outside of the text. A position is counted from the front, a negative one from
 * the back. */
static bool substr_utf8(struct span text, int64_t pos, int64_t len, struct span *ret) {
    uint64_t found;
    size_t begin;
    if (pos >= 0) {
        begin = skip_characters(text, 0, (uint64_t)pos, &found);
        if (found < (uint64_t)pos)
            return false;
    } else {
        begin = text.len;
        for (uint64_t left = -(uint64_t)pos; left > 0; left--) {
            if (begin == 0 || !pool_goes_on((int64_t)left))
                return false;
            begin--;
            while (begin > 0 && utf8_is_continuation(text.data[begin]))
                begin--;
        }
    }
    size_t end = len > 0 ? skip_characters(text, begin, (uint64_t)len, &found) : begin;
    *ret = (struct span){text.data + begin, end - begin};
    return true;
}

/* A negative len reaches to the end. */
static bool substr_bytes(struct span text, int64_t pos, int64_t len, struct span *ret) {
    uint64_t magnitude = pos < 0 ? -(uint64_t)pos : (uint64_t)pos;
    if (magnitude > text.len)
        return false;
    size_t begin = pos < 0 ? text.len - (size_t)magnitude : (size_t)magnitude;
    size_t left = text.len - begin;
    *ret = (struct span){text.data + begin, len < 0 || (uint64_t)len > left ? left : (size_t)len};
    return true;
}

static COLD struct status *pos_out_of_range(int64_t pos, struct span text, int64_t i,
                                            bool is_utf8) {
    if (is_utf8)
        return status_invalid("pos %lld out of range for string at index %lld", (long long)pos,
                              (long long)i);
    return status_invalid("pos %lld out of range for string b'%.*s' at index %lld", (long long)pos,
                          (int)MIN(text.len, 200), text.data, (long long)i);
}

/* Substr: characters [pos, pos + len) of each string. input is broadcast with pos and len.
 *   input      string
 *   pos, len   T, of one shape
 *   output     string
 * Errors   INVALID_ARGUMENT   pos and len of different shapes, no broadcast, pos outside of a
 *                             string */
enum kernel_result string_substr(struct kernel_ctx *ctx) {
    const struct tensor *input = kernel_input(ctx, 0), *pos = kernel_input(ctx, 1),
                        *len = kernel_input(ctx, 2);
    bool is_utf8 = counts_characters(ctx);
    struct shape shapes[2] = {tensor_shape(input), tensor_shape(pos)};
    struct broadcast plan;
    struct status *st = NULL;
    if (unlikely(!shape_equal(tensor_shape(pos), tensor_shape(len)))) {
        st = status_invalid("pos and len should have the same shape, got: %s vs. %s",
                            TENSOR_SHAPE_TEXT(pos), TENSOR_SHAPE_TEXT(len));
        return kernel_fail(ctx, st);
    }
    if (unlikely(!broadcast_init(&plan, shapes, 2))) {
        st = status_invalid("Incompatible shapes: %s vs. %s", TENSOR_SHAPE_TEXT(input),
                            TENSOR_SHAPE_TEXT(pos));
        return kernel_fail(ctx, st);
    }
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_STRING, broadcast_shape(&plan)));
    struct bytes **out = string_elements(&ctx->outputs[0]);
    struct broadcast_cursor cursor;
    int64_t inner = plan.dims[plan.rank - 1];
    if (plan.n_elements > 0)
        broadcast_seek(&plan, 0, &cursor);
    for (int64_t row = 0; row < plan.n_elements; row += inner) {
        for (cursor.inner = 0; cursor.inner < inner && text_goes_on(row + cursor.inner);
             cursor.inner++) {
            struct span text = tensor_string(input, broadcast_offset(&plan, &cursor, 0)), part;
            int64_t at = broadcast_offset(&plan, &cursor, 1), p = tensor_index_at(pos, at),
                    n = tensor_index_at(len, at);
            if (unlikely(!(is_utf8 ? substr_utf8 : substr_bytes)(text, p, n, &part)))
                return kernel_fail(ctx, pos_out_of_range(p, text, row + cursor.inner, is_utf8));
            out[row + cursor.inner] = text_new(part.data, part.len);
        }
        cursor.inner = 0;
        if (row + inner < plan.n_elements)
            broadcast_next_row(&plan, &cursor);
    }
    return KERNEL_DONE;
}
