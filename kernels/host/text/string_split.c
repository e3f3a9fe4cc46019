/* Computes StringSplit and StringSplitV2, which split strings into the rows of a sparse matrix. */
#include <stdlib.h>

#include "kernels/host/text/string_internal.h"

struct split_state {
    bool skips_empty;
    int64_t max_splits; /* V2's attr; negative: no limit */
};

struct status *string_split_init(struct kernel_init *init) {
    struct split_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    if (node_attr(init->node, "skip_empty"))
        return node_get_b(init->node, "skip_empty", &state->skips_empty);
    return node_get_i32(init->node, "maxsplit", &state->max_splits);
}

/* The parts of all strings, one after the other. */
struct parts {
    struct span *parts;
    int64_t n, capacity;
    struct text_work work;
    struct status *status; /* set when the step was cancelled */
};

/* Counts work. False when the caller must stop. */
static bool parts_work(struct parts *parts, int64_t n) {
    if (!parts->status)
        parts->status = text_work_add(&parts->work, n);
    return !parts->status;
}

/* Adds a part. False when the caller must stop. */
static bool parts_add(struct parts *parts, const char *data, size_t len) {
    if (parts->n == parts->capacity) {
        parts->capacity = MAX(16, parts->capacity * 2);
        parts->parts = xreallocarray(parts->parts, (size_t)parts->capacity, sizeof(*parts->parts));
    }
    parts->parts[parts->n++] = (struct span){data, len};
    return parts_work(parts, 1);
}

enum {
    SCAN_BYTES = 1 << 12
}; /* scanning this many bytes takes about as long as SCAN_BYTES / 8 units of other work */
static bool is_time_to_stop(struct parts *parts, size_t i) {
    return i % SCAN_BYTES == SCAN_BYTES - 1 && !parts_work(parts, SCAN_BYTES / 8);
}

/* V1: every byte of `separators` separates. Without separators, every byte is a part. */
static void split_at_bytes(struct parts *parts, struct span text, struct span separators,
                           bool skips_empty) {
    size_t begin = 0;
    for (size_t i = 0; separators.len == 0 && i < text.len; i++)
        if (!parts_add(parts, text.data + i, 1))
            return;
    if (separators.len == 0 || text.len == 0)
        return;
    for (size_t i = 0; i <= text.len; i++) {
        if (is_time_to_stop(parts, i))
            return;
        if (i < text.len && !memchr(separators.data, text.data[i], separators.len))
            continue;
        if (i > begin || !skips_empty)
            parts_add(parts, text.data + begin, i - begin);
        begin = i + 1;
    }
}

/* Splits at runs of spaces. As in TensorFlow, the text after max_splits parts is one part, even
 * when it is empty. */
static void split_at_spaces(struct parts *parts, struct span text, int64_t max_splits) {
    int64_t n = 0;
    for (text = skip_spaces(text); text.len > 0; text = skip_spaces(text)) {
        size_t len = 0;
        while (len < text.len && !is_space(text.data[len]))
            len++;
        if (!parts_add(parts, text.data, len))
            return;
        text = (struct span){text.data + len, text.len - len};
        if (++n == max_splits) {
            text = skip_spaces(text);
            parts_add(parts, text.data, text.len);
            return;
        }
    }
}

/* Parts are mostly short, so looking at each byte is faster than calling a search for each part. */
static void split_at_byte(struct parts *parts, struct span text, char separator,
                          int64_t max_splits) {
    size_t begin = 0;
    int64_t n = 0;
    for (size_t i = 0; i < text.len && n != max_splits; i++) {
        if (is_time_to_stop(parts, i))
            return;
        if (text.data[i] != separator)
            continue;
        parts_add(parts, text.data + begin, i - begin);
        begin = i + 1;
        n++;
    }
    parts_add(parts, text.data + begin, text.len - begin);
}

static void split_at_text(struct parts *parts, struct span text, struct span separator,
                          int64_t max_splits) {
    const char *at;
    for (int64_t n = 0; n != max_splits &&
                        (at = memmem(text.data, text.len, separator.data, separator.len)) != NULL;
         n++) {
        size_t len = (size_t)(at - text.data);
        if (!parts_add(parts, text.data, len))
            return;
        text = (struct span){at + separator.len, text.len - len - separator.len};
    }
    parts_add(parts, text.data, text.len);
}

static struct status *check(const struct tensor *input, const struct tensor *separator,
                            const char *separator_name) {
    if (likely(input->rank == 1 && separator->rank == 0))
        return NULL;
    struct status *st =
        input->rank == 1 ? status_invalid("%s must be a scalar, got shape: %s", separator_name,
                                          TENSOR_SHAPE_TEXT(input->rank == 1 ? separator : input))
                         : status_invalid("input must be a vector, got shape: %s",
                                          TENSOR_SHAPE_TEXT(input->rank == 1 ? separator : input));
    return st;
}

/* Makes the outputs: indices int64 [n, 2], values string [n], shape int64 [2]. ends[i] is the
 * number of parts of strings 0 … i. */
static struct status *make_sparse(struct kernel_ctx *ctx, struct parts *parts, const int64_t *ends,
                                  int64_t n_strings) {
    int64_t dims[2] = {parts->n, 2};
    TRY(kernel_alloc(ctx, 0, DT_INT64, (struct shape){2, dims}));
    TRY(kernel_alloc(ctx, 1, DT_STRING, (struct shape){1, dims}));
    TRY(kernel_alloc(ctx, 2, DT_INT64, (struct shape){1, dims + 1}));
    int64_t *indices = tensor_data(&ctx->outputs[0]), *shape = tensor_data(&ctx->outputs[2]);
    struct bytes **values = string_elements(&ctx->outputs[1]);
    shape[0] = n_strings;
    shape[1] = 0;
    for (int64_t i = 0, part = 0; i < n_strings; i++) {
        int64_t first = part;
        for (; part < ends[i]; part++) {
            indices[2 * part] = i;
            indices[2 * part + 1] = part - first;
            values[part] = bytes_new(parts->parts[part].data, parts->parts[part].len);
            if (!parts_work(parts, 2))
                return parts->status;
        }
        shape[1] = MAX(shape[1], part - first);
    }
    return NULL;
}

static enum kernel_result split(struct kernel_ctx *ctx, bool is_v2) {
    const struct split_state *state = ctx->instance->state;
    const struct tensor *input = kernel_input(ctx, 0);
    KERNEL_TRY(ctx, check(input, kernel_input(ctx, 1), is_v2 ? "sep" : "delimiter"));
    struct span separator = tensor_string(kernel_input(ctx, 1), 0);
    struct parts parts = {.work = {.ctx = ctx}};
    int64_t n = input->n_elements, *ends = xcalloc((size_t)n + 1, sizeof(*ends));
    for (int64_t i = 0; i < n && !parts.status; i++) {
        struct span text = tensor_string(input, i);
        if (!is_v2)
            split_at_bytes(&parts, text, separator, state->skips_empty);
        else if (state->max_splits == 0)
            parts_add(&parts, text.data, text.len);
        else if (separator.len == 0)
            split_at_spaces(&parts, text, state->max_splits);
        else if (separator.len == 1)
            split_at_byte(&parts, text, separator.data[0], state->max_splits);
        else
            split_at_text(&parts, text, separator, state->max_splits);
        ends[i] = parts.n;
    }
    struct status *st = parts.status ? parts.status : make_sparse(ctx, &parts, ends, n);
    free(ends);
    free(parts.parts);
    return st ? kernel_fail(ctx, st) : KERNEL_DONE;
}

/* StringSplit: splits at any byte of delimiter. The attr skip_empty drops empty parts.
 *   input                    string [n]
 *   delimiter                string, scalar
 *   indices, values, shape   a sparse matrix [n, most parts]
 * Errors   INVALID_ARGUMENT   input not a vector, delimiter not a scalar */
enum kernel_result string_split(struct kernel_ctx *ctx) { return split(ctx, false); }
/* StringSplitV2: splits at each sep, or at runs of spaces when sep is empty, as Python's split. The
 * attr maxsplit limits the number of splits. */
enum kernel_result string_split_v2(struct kernel_ctx *ctx) { return split(ctx, true); }
