/* Computes DecodeRaw and DecodePaddedRaw, which read the bytes of strings as numbers. */
#include <stdlib.h>

#include "kernels/host/text/parsing_internal.h"
#include "kernels/host/text/string_internal.h"

struct raw_state {
    bool swaps;
};

struct status *parsing_raw_init(struct kernel_init *init) {
    struct raw_state *state = xcalloc(1, sizeof(*state));
    bool is_little_endian;
    init->state = state;
    TRY(node_get_b(init->node, "little_endian", &is_little_endian));
    state->swaps = is_little_endian != (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);
    return NULL;
}

/* How many bytes are reversed together when the byte order is the other one. Complex numbers are
 * reversed part by part. */
static size_t unit_of(enum dtype dtype) {
    return dtype_size(dtype) / (dtype_in(dtype, DTYPES_COMPLEX) ? 2 : 1);
}

static void copy_swapped(char *to, const char *from, size_t n_bytes, size_t unit) {
    for (size_t at = 0; at + unit <= n_bytes && pool_goes_on((int64_t)at); at += unit)
        for (size_t i = 0; i < unit; i++)
            to[at + i] = from[at + unit - 1 - i];
}

static void put(const struct raw_state *state, enum dtype dtype, char *to, struct span bytes) {
    if (state->swaps)
        copy_swapped(to, bytes.data, bytes.len, unit_of(dtype));
    else
        pool_copy(to, bytes.data, bytes.len);
    if (dtype == DT_BOOL)
        POOL_PIECES (begin, end, 0, (int64_t)bytes.len)
            for (int64_t i = begin; i < end; i++)
                to[i] = to[i] != 0;
}

/* Makes the output: the input's shape, and n numbers for each string. */
static struct status *alloc_output(struct kernel_ctx *ctx, const struct tensor *input, int64_t n) {
    int64_t dims[SHAPE_MAX_RANK + 1];
    memcpy(dims, tensor_dims(input), (size_t)input->rank * sizeof(*dims));
    dims[input->rank] = n;
    return kernel_alloc(ctx, 0, (enum dtype)ctx->instance->out_types[0],
                        (struct shape){input->rank + 1, dims});
}

/* DecodeRaw: all strings have one length, a multiple of out_type's size.
 *   bytes    string, any shape
 *   output   out_type, one dimension more
 * Errors   INVALID_ARGUMENT   lengths that differ, or are no multiple */
enum kernel_result parsing_decode_raw(struct kernel_ctx *ctx) {
    const struct tensor *input = kernel_input(ctx, 0);
    enum dtype dtype = (enum dtype)ctx->instance->out_types[0];
    size_t size = dtype_size(dtype), len = input->n_elements > 0 ? tensor_string(input, 0).len : 0;
    for (int64_t i = 1; i < input->n_elements && pool_goes_on(i); i++) {
        size_t own = tensor_string(input, i).len;
        if (own != len)
            return kernel_fail(ctx,
                               status_invalid("DecodeRaw requires input strings to all be the same "
                                              "size, but element %lld has size %zu != %zu",
                                              (long long)i, own, len));
    }
    if (len % size != 0)
        return kernel_fail(
            ctx,
            status_invalid(
                "Input to DecodeRaw has length %zu that is not a multiple of %zu, the size of %s",
                len, size, dtype_name(dtype)));
    KERNEL_TRY(ctx, alloc_output(ctx, input, (int64_t)(len / size)));
    char *out = tensor_data(&ctx->outputs[0]);
    KERNEL_TRY(ctx, kernel_loop_check(0)); /* else all strings have that length */
    for (int64_t i = 0; i < input->n_elements && pool_goes_on_rows(i, (int64_t)len); i++)
        put(ctx->instance->state, dtype, out + (size_t)i * len, tensor_string(input, i));
    return KERNEL_DONE;
}

/* DecodePaddedRaw: strings are cut, or padded with zeros, to fixed_length bytes.
 *   input_bytes    string, any shape
 *   fixed_length   int32, scalar
 *   output         out_type, one dimension more
 * Errors   INVALID_ARGUMENT   fixed_length no positive multiple of out_type's size */
enum kernel_result parsing_decode_padded_raw(struct kernel_ctx *ctx) {
    const struct tensor *input = kernel_input(ctx, 0), *fixed = kernel_input(ctx, 1);
    enum dtype dtype = (enum dtype)ctx->instance->out_types[0];
    if (fixed->rank != 0)
        return kernel_fail(ctx, status_invalid("k (fixed_length) must be scalar, got shape %s",
                                               TENSOR_SHAPE_TEXT(fixed)));
    int64_t len = tensor_index_at(fixed, 0), size = (int64_t)dtype_size(dtype);
    if (len % size != 0)
        return kernel_fail(
            ctx,
            status_invalid("fixed_length (%lld) must be a multiple of the size of out_type (%lld)",
                           (long long)len, (long long)size));
    if (len <= 0)
        return kernel_fail(
            ctx, status_invalid("fixed_length (%lld) must be greater than zero.", (long long)len));
    KERNEL_TRY(ctx, alloc_output(ctx, input, len / size));
    char *out = tensor_data(&ctx->outputs[0]);
    pool_clear(out, tensor_size_bytes(&ctx->outputs[0]));
    char *padded = xcalloc(1, (size_t)len);
    for (int64_t i = 0; i < input->n_elements && pool_goes_on_rows(i, len); i++) {
        struct span text = tensor_string(input, i);
        size_t n = MIN(text.len, (size_t)len);
        pool_clear(padded, (size_t)len);
        pool_copy(padded, text.data, n);
        put(ctx->instance->state, dtype, out + i * len, (struct span){padded, (size_t)len});
    }
    free(padded);
    return KERNEL_DONE;
}
