/* Moves codes: QuantizedConcat and QuantizedReshape. */
#include <stdlib.h>

#include "kernels/cpu/array/reshape.h"
#include "kernels/cpu/quant/quant_internal.h"
#include "kernels/kernel.h"
#include "kernels/support/dims.h"

/* ---- QuantizedReshape ---- */

/* Reads a number that is a scalar or a vector of one element. */
static struct status *read_one(const struct tensor *t, const char *name, float *ret) {
    if (t->rank > 1 || t->n_elements != 1)
        return status_invalid("%s must be a scalar or a vector of 1 element", name);
    *ret = *(const float *)tensor_cdata(t);
    return NULL;
}

/* QuantizedReshape: as Reshape; the range is passed on.
 *   tensor, shape           T, Tshape [rank]
 *   input_min, input_max    float, one element
 *   output                  T
 *   output_min, output_max  scalars
 * Errors   INVALID_ARGUMENT   as Reshape; ranges that have not one element */
enum kernel_result quant_reshape(struct kernel_ctx *ctx) {
    float min, max;
    KERNEL_TRY(ctx, read_one(kernel_input(ctx, 2), "input_min", &min));
    KERNEL_TRY(ctx, read_one(kernel_input(ctx, 3), "input_max", &max));
    array_reshape(ctx);
    if (!ctx->status)
        quant_set_range(ctx, 1, min, max);
    return KERNEL_DONE;
}

/* ---- QuantizedConcat ---- */

/* Makes a range that holds 0 and all inputs' ranges. For signed types it is around 0. */
static void common_range(enum dtype dtype, const float *mins, const float *maxes, int n,
                         float *ret_min, float *ret_max) {
    float least = 0, most = maxes[0];
    for (int i = 0; i < n; i++) {
        least = fminf(least, mins[i]);
        most = fmaxf(most, maxes[i]);
    }
    bool is_signed = quant_type_of(dtype).lowest < 0;
    float largest = fmaxf(fabsf(least), fabsf(most));
    *ret_min = is_signed ? -largest : least;
    *ret_max = is_signed ? largest : most;
}

struct concat_part {
    /* `rows` runs of `width` codes, out_width apart in the output */
    int64_t rows, width, out_width;
    bool is_same; /* the input has the output's range, so its codes are copied */
    struct quant_to_float of;
    struct quant_to_code to;
};

static void move_run(const struct concat_part *part, enum dtype dtype, const void *from, int64_t at,
                     void *to, int64_t out_at) {
    size_t size = dtype_size(dtype);
    if (part->is_same) {
        memcpy((char *)to + (size_t)out_at * size, (const char *)from + (size_t)at * size,
               (size_t)part->width * size);
        return;
    }
    int32_t codes[QUANT_BLOCK];
    for (int64_t i = 0; i < part->width; i += QUANT_BLOCK) {
        int64_t n = MIN(part->width - i, (int64_t)QUANT_BLOCK);
        quant_codes_load(dtype, codes, from, at + i, n);
        for (int64_t j = 0; j < n; j++)
            codes[j] = quant_code(&part->to, quant_float(&part->of, codes[j]));
        quant_codes_store(dtype, to, out_at + i, codes, n);
    }
}

static struct status *concat_dims(const struct kernel_ctx *ctx, int n, int *ret_axis,
                                  int64_t *dims) {
    const struct tensor *axis = kernel_input(ctx, 0), *first = kernel_input(ctx, 1);
    if (axis->rank != 0)
        return status_invalid("Concat dim tensor should be a scalar integer, but got shape %s",
                              TENSOR_SHAPE_TEXT(axis));
    int64_t at = tensor_index_at(axis, 0);
    if (at < 0 || at >= first->rank)
        return status_invalid(
            "ConcatOp : Expected concatenating dimensions in the range [0, %d), but got %lld",
            first->rank, (long long)at);
    memcpy(dims, tensor_dims(first), (size_t)first->rank * sizeof(*dims));
    for (int i = 1; i < n; i++) {
        const struct tensor *t = kernel_input(ctx, 1 + i);
        if (t->rank != first->rank)
            return status_invalid("ConcatOp : Ranks of all input tensors should match: shape[0] = "
                                  "%s vs. shape[%d] = %s",
                                  TENSOR_SHAPE_TEXT(first), i, TENSOR_SHAPE_TEXT(t));
        for (int d = 0; d < t->rank; d++)
            if (d != at && tensor_dim(t, d) != dims[d])
                return status_invalid("ConcatOp : Dimensions of inputs should match: shape[0] = %s "
                                      "vs. shape[%d] = %s",
                                      TENSOR_SHAPE_TEXT(first), i, TENSOR_SHAPE_TEXT(t));
        if (add_overflows_i64(dims[at], tensor_dim(t, (int)at), &dims[at]))
            return status_invalid("ConcatOp : the joined size does not fit");
    }
    *ret_axis = (int)at;
    return NULL;
}

static struct status *read_ranges(const struct kernel_ctx *ctx, int n, float *mins, float *maxes) {
    for (int i = 0; i < 2 * n; i++) {
        const struct tensor *t = kernel_input(ctx, 1 + n + i);
        if (t->n_elements != 1)
            return status_invalid(
                "%s each tensor's num elements must be 1, given num elements %lld in index %d",
                i < n ? "input_mins" : "input_maxes", (long long)t->n_elements, i % n);
        (i < n ? mins : maxes)[i % n] = *(const float *)tensor_cdata(t);
    }
    return NULL;
}

static struct status *concat(struct kernel_ctx *ctx, int n, float *mins, float *maxes) {
    const struct tensor *first = kernel_input(ctx, 1);
    enum dtype dtype = (enum dtype)first->dtype;
    int64_t dims[SHAPE_MAX_RANK], out_at = 0;
    float min, max;
    int axis;
    TRY(read_ranges(ctx, n, mins, maxes));
    TRY(concat_dims(ctx, n, &axis, dims));
    TRY(kernel_alloc(ctx, 0, dtype, (struct shape){first->rank, dims}));
    common_range(dtype, mins, maxes, n, &min, &max);
    struct tensor *out = &ctx->outputs[0];
    int64_t inner = out->n_elements ? dims_product(dims, axis + 1, first->rank) : 0;
    struct concat_part part = {.rows = out->n_elements ? dims_product(dims, 0, axis) : 0,
                               .out_width = dims[axis] * inner};
    part.to = quant_to_code_of(dtype, min, max);
    for (int i = 0; i < n; i++, out_at += part.width) {
        const struct tensor *t = kernel_input(ctx, 1 + i);
        part.width = tensor_dim(t, axis) * inner;
        part.is_same = mins[i] == min && maxes[i] == max;
        part.of = quant_to_float_of(dtype, mins[i], maxes[i]);
        for (int64_t row = 0; row < part.rows; row++)
            move_run(&part, dtype, tensor_cdata(t), row * part.width, tensor_data(out),
                     row * part.out_width + out_at);
    }
    quant_set_range(ctx, 1, min, max);
    return NULL;
}

/* QuantizedConcat: joins codes of several ranges as codes of one range.
 *   concat_dim              int32 scalar
 *   values                  N of T
 *   input_mins, input_maxes  N of float, one element each
 *   output                  T
 *   output_min, output_max  a range that holds 0 and all inputs' ranges
 * Errors   INVALID_ARGUMENT   shapes, the dimension, ranges that have not one element */
enum kernel_result quant_concat(struct kernel_ctx *ctx) {
    int n = (ctx->instance->n_inputs - 1) / 3;
    float *ends = xcalloc((size_t)n * 2 + 1, sizeof(*ends));
    struct status *st = concat(ctx, n, ends, ends + n);
    free(ends);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}
