/* Joins and splits tensors: Concat, Pack, Split, Unpack. */
#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "common/tensor/element.h"
#include "kernels/cpu/array/array_internal.h"
#include "kernels/support/dims.h"

/* ---- Concat ---- */

static struct status *concat_sizes(const struct tensor *values, int n, const struct tensor *axis,
                                   struct dims *ret, int *ret_axis) {
    /* Old clients send the axis as a vector of one element. */
    if (axis->rank != 0 && !(axis->rank == 1 && axis->n_elements == 1))
        return status_invalid("Concat axis tensor should be a scalar integer, but got shape %s",
                              TENSOR_SHAPE_TEXT(axis));
    int rank = values[0].rank;
    int64_t at = tensor_index_at(axis, 0);
    if (at < -(int64_t)rank || at >= rank)
        return status_invalid(
            "ConcatOp : Expected concatenating dimensions in the range [%d, %d), but got %lld",
            -rank, rank, (long long)at);
    at += at < 0 ? rank : 0;
    dims_set(ret, tensor_shape(&values[0]));
    for (int i = 1; i < n; i++) {
        if (values[i].rank != rank)
            return status_invalid("ConcatOp : Ranks of all input tensors should match: shape[0] = "
                                  "%s vs. shape[%d] = %s",
                                  TENSOR_SHAPE_TEXT(&values[0]), i, TENSOR_SHAPE_TEXT(&values[i]));
        for (int d = 0; d < rank; d++) {
            int64_t size = tensor_dim(&values[i], d);
            if (d != at && size != ret->at[d])
                return status_invalid("ConcatOp : Dimension %d in both shapes must be equal: "
                                      "shape[0] = %s vs. shape[%d] = %s",
                                      d, TENSOR_SHAPE_TEXT(&values[0]), i,
                                      TENSOR_SHAPE_TEXT(&values[i]));
            if (d == at && add_overflows_i64(ret->at[d], size, &ret->at[d]))
                return status_invalid("ConcatOp : the size of dimension %d does not fit", d);
        }
    }
    *ret_axis = (int)at;
    return NULL;
}

static enum kernel_result concat_values(struct kernel_ctx *ctx, int first, int n, int axis_input) {
    const struct tensor *values = ctx->inputs + first;
    struct dims dims;
    int axis = 0;
    KERNEL_TRY(ctx, concat_sizes(values, n, kernel_input(ctx, axis_input), &dims, &axis));
    int64_t n_out = 0;
    int with_elements = 0, n_with_elements = 0;
    for (int i = 0; i < n; i++) {
        n_out += values[i].n_elements;
        if (values[i].n_elements > 0) {
            with_elements = i;
            n_with_elements++;
        }
    }
    if (n_with_elements == 1 && values[with_elements].n_elements == n_out) {
        array_pass_as(ctx, first + with_elements, 0, dims_shape(&dims));
        return KERNEL_DONE;
    }
    enum dtype dtype = tensor_dtype(&values[0]);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, dtype, dims_shape(&dims)));
    struct tensor *out = &ctx->outputs[0];
    if (out->n_elements == 0)
        return KERNEL_DONE;
    int64_t outer = dims_product(dims.at, 0, axis), row = dims_product(dims.at, axis, dims.rank),
            at = 0;
    struct moves moves;
    moves_begin(&moves, ctx, dtype);
    for (int i = 0; i < n; i++) {
        int64_t part = values[i].n_elements / outer;
        if (part == 0)
            continue;
        struct strided s;
        strided_init(&s);
        strided_add(&s, outer, part, row);
        strided_add(&s, part, 1, 1);
        moves_add(&moves, &s, tensor_at(out, at), tensor_cdata(&values[i]));
        at += part;
    }
    KERNEL_TRY(ctx, moves_end(&moves));
    return KERNEL_DONE;
}

static enum kernel_result concat_v1(struct kernel_ctx *ctx) {
    return concat_values(ctx, 1, ctx->instance->n_inputs - 1, 0);
}
static enum kernel_result concat_v2(struct kernel_ctx *ctx) {
    return concat_values(ctx, 0, ctx->instance->n_inputs - 1, ctx->instance->n_inputs - 1);
}

/* Computes at which offset each input of a Concat begins in its output. */
static enum kernel_result concat_offset(struct kernel_ctx *ctx) {
    const struct tensor *axis = kernel_input(ctx, 0), *first = kernel_input(ctx, 1);
    if (axis->rank != 0)
        return kernel_fail(
            ctx, status_invalid("Concat dim tensor should be a scalar integer, but got shape %s",
                                TENSOR_SHAPE_TEXT(axis)));
    int n = ctx->instance->n_inputs - 1;
    for (int i = 0; i < n; i++) {
        const struct tensor *shape = kernel_input(ctx, 1 + i);
        if (shape->rank != 1)
            return kernel_fail(ctx, status_invalid("input %d should be a vector, but got shape %s",
                                                   i, TENSOR_SHAPE_TEXT(shape)));
        if (shape->n_elements != first->n_elements)
            return kernel_fail(
                ctx, status_invalid("input %d should contain %lld elements, but got %lld", i,
                                    (long long)first->n_elements, (long long)shape->n_elements));
    }
    int64_t rank = first->n_elements, at = tensor_index_at(axis, 0), offset = 0;
    if (at < -rank || at >= rank)
        return kernel_fail(ctx, status_invalid("Concat dim is out of range: %lld vs. %lld",
                                               (long long)at, (long long)rank));
    at += at < 0 ? rank : 0;
    for (int i = 0; i < n; i++) {
        const struct tensor *shape = kernel_input(ctx, 1 + i);
        KERNEL_TRY(ctx, tensor_new_zeroed(ctx->instance->allocator, tensor_dtype(shape),
                                          tensor_shape(shape), &ctx->outputs[i]));
        for (int64_t d = 0; d < rank && pool_goes_on(d + 1); d++) {
            if (d != at && tensor_index_at(shape, d) != tensor_index_at(first, d))
                return kernel_fail(
                    ctx, status_invalid("All dimensions except %lld must match. Input %d has shape "
                                        "with %lld in dimension %lld and doesn't "
                                        "match input 0 with %lld.",
                                        (long long)at, i, (long long)tensor_index_at(shape, d),
                                        (long long)d, (long long)tensor_index_at(first, d)));
        }
        if (shape->dtype == DT_INT32)
            ((int32_t *)tensor_data(&ctx->outputs[i]))[at] = (int32_t)offset;
        else
            ((int64_t *)tensor_data(&ctx->outputs[i]))[at] = offset;
        if (add_overflows_i64(offset, tensor_index_at(shape, at), &offset) ||
            (shape->dtype == DT_INT32 && (offset > INT32_MAX || offset < INT32_MIN)))
            return kernel_fail(ctx, status_invalid("The offset of input %d does not fit", i + 1));
    }
    return KERNEL_DONE;
}

/* ---- Pack, Unpack: the state is the axis ---- */

static struct status *axis_init(struct kernel_init *init) {
    return kernel_init_int_attr(init, "axis");
}

static struct status *resolve_axis(int64_t axis, int rank, int *ret) {
    if (axis < -(int64_t)rank || axis >= rank)
        return status_invalid("axis = %lld not in [%d, %d)", (long long)axis, -rank, rank);
    *ret = (int)(axis < 0 ? axis + rank : axis);
    return NULL;
}

static enum kernel_result pack(struct kernel_ctx *ctx) {
    int n = ctx->instance->n_inputs, axis = 0;
    const struct tensor *values = ctx->inputs;
    for (int i = 1; i < n; i++) {
        if (!shape_equal(tensor_shape(&values[i]), tensor_shape(&values[0])))
            return kernel_fail(ctx, status_invalid("Shapes of all inputs must match: "
                                                   "values[0].shape = %s != values[%d].shape = %s",
                                                   TENSOR_SHAPE_TEXT(&values[0]), i,
                                                   TENSOR_SHAPE_TEXT(&values[i])));
    }
    KERNEL_TRY(ctx,
               resolve_axis(*(const int64_t *)ctx->instance->state, values[0].rank + 1, &axis));
    struct dims dims;
    dims.rank = values[0].rank + 1;
    if (dims.rank > SHAPE_MAX_RANK)
        return kernel_fail(ctx,
                           status_invalid("Pack of tensors of rank %d would pass the limit of %d",
                                          values[0].rank, SHAPE_MAX_RANK));
    for (int i = 0; i < dims.rank; i++)
        dims.at[i] = i < axis    ? tensor_dim(&values[0], i)
                     : i == axis ? n
                                 : tensor_dim(&values[0], i - 1);
    if (n == 1) {
        array_pass_as(ctx, 0, 0, dims_shape(&dims));
        return KERNEL_DONE;
    }
    enum dtype dtype = tensor_dtype(&values[0]);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, dtype, dims_shape(&dims)));
    if (ctx->outputs[0].n_elements == 0)
        return KERNEL_DONE;
    int64_t outer = dims_product(dims.at, 0, axis),
            inner = dims_product(dims.at, axis + 1, dims.rank);
    struct moves moves;
    moves_begin(&moves, ctx, dtype);
    for (int i = 0; i < n; i++) {
        struct strided s;
        strided_init(&s);
        strided_add(&s, outer, inner, inner * n);
        strided_add(&s, inner, 1, 1);
        moves_add(&moves, &s, tensor_at(&ctx->outputs[0], i * inner), tensor_cdata(&values[i]));
    }
    KERNEL_TRY(ctx, moves_end(&moves));
    return KERNEL_DONE;
}

/* Makes output `output` from `n` of the axis' entries, from `begin` on, with the given shape. Rows
 * of the first dimension become a view. So does any part when only one output is used. */
static struct status *take_part(struct moves *moves, int input, int output, int axis, int64_t begin,
                                int64_t n, struct shape shape) {
    struct kernel_ctx *ctx = moves->ctx;
    const struct tensor *in = kernel_input(ctx, input);
    int64_t outer = dims_product(tensor_dims(in), 0, axis),
            inner = dims_product(tensor_dims(in), axis + 1, in->rank);
    int64_t n_elements = outer * n * inner;
    enum dtype dtype = tensor_dtype(in);
    if (outer == 1 && in->storage == TENSOR_BUFFER && n_elements > 0 &&
        (kernel_is_for_device(ctx) ||
         n_elements * (int64_t)dtype_size(dtype) > TENSOR_INLINE_BYTES))
        return tensor_view(in->buffer, in->data + begin * inner * (int64_t)dtype_size(dtype), dtype,
                           shape, &ctx->outputs[output]);
    TRY(kernel_alloc(ctx, output, dtype, shape));
    if (n_elements == 0)
        return NULL;
    struct strided s;
    strided_init(&s);
    strided_add(&s, outer, inner * tensor_dim(in, axis), inner * n);
    strided_add(&s, inner * n, 1, 1);
    moves_add(moves, &s, tensor_data(&ctx->outputs[output]), tensor_cat(in, begin * inner));
    return NULL;
}

/* Ends a kernel that has taken parts, and failed with st if that is not NULL. */
static enum kernel_result parts_end(struct moves *moves, struct status *st) {
    if (st)
        return kernel_fail(moves->ctx, st);
    KERNEL_TRY(moves->ctx, moves_end(moves));
    return KERNEL_DONE;
}

static enum kernel_result unpack(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    int axis = 0, n = ctx->instance->n_outputs;
    KERNEL_TRY(ctx, resolve_axis(*(const int64_t *)ctx->instance->state, in->rank, &axis));
    if (tensor_dim(in, axis) != n)
        return kernel_fail(ctx, status_invalid("Input shape axis %d must equal %d, got shape %s",
                                               axis, n, TENSOR_SHAPE_TEXT(in)));
    struct dims dims;
    dims.rank = 0;
    for (int i = 0; i < in->rank; i++) {
        if (i != axis)
            dims.at[dims.rank++] = tensor_dim(in, i);
    }
    if (n == 1) {
        array_pass_as(ctx, 0, 0, dims_shape(&dims));
        return KERNEL_DONE;
    }
    struct moves moves;
    moves_begin(&moves, ctx, tensor_dtype(in));
    struct status *st = NULL;
    for (int i = 0; i < n && !st; i++)
        st = take_part(&moves, 0, i, axis, i, 1, dims_shape(&dims));
    return parts_end(&moves, st);
}

/* ---- Split ---- */

static struct status *split_axis(const struct tensor *axis, const struct tensor *in, int *ret) {
    if (axis->n_elements != 1 || axis->rank > 1)
        return status_invalid("split_dim must be a scalar but has rank %d", axis->rank);
    int64_t at = tensor_index_at(axis, 0);
    if (at < -(int64_t)in->rank || at >= in->rank)
        return status_invalid("-input rank(-%d) <= split_dim < input rank (%d), but got %lld",
                              in->rank, in->rank, (long long)at);
    *ret = (int)(at < 0 ? at + in->rank : at);
    return NULL;
}

static enum kernel_result split(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 1);
    int axis = 0, n = ctx->instance->n_outputs;
    if (kernel_input(ctx, 0)->rank != 0)
        return kernel_fail(ctx, status_invalid("split_dim must be a scalar but has rank %d",
                                               kernel_input(ctx, 0)->rank));
    KERNEL_TRY(ctx, split_axis(kernel_input(ctx, 0), in, &axis));
    int64_t size = tensor_dim(in, axis);
    if (size % n != 0)
        return kernel_fail(ctx,
                           status_invalid("Number of ways to split should evenly divide the split "
                                          "dimension, but got split_dim %d (size = %lld) "
                                          "and num_split %d",
                                          axis, (long long)size, n));
    if (n == 1) {
        kernel_pass(ctx, 1, 0);
        return KERNEL_DONE;
    }
    struct dims dims;
    dims_set(&dims, tensor_shape(in));
    dims.at[axis] = size / n;
    struct moves moves;
    moves_begin(&moves, ctx, tensor_dtype(in));
    struct status *st = NULL;
    for (int i = 0; i < n && !st; i++)
        st = take_part(&moves, 1, i, axis, i * (size / n), size / n, dims_shape(&dims));
    return parts_end(&moves, st);
}

/* Computes the one size that is -1. The sizes must sum to the axis' size. `ret` has n entries. */
static struct status *split_v_sizes(const struct tensor *sizes, int n, int64_t total,
                                    int64_t *ret) {
    if (sizes->rank != 1 || sizes->n_elements != n)
        return status_invalid("shape of tensor containing sizes must be 1-D with as many elements "
                              "as outputs: %s and %d outputs",
                              TENSOR_SHAPE_TEXT(sizes), n);
    int unknown = -1;
    int64_t sum = 0;
    for (int i = 0; i < n; i++) {
        ret[i] = tensor_int_at(sizes, i);
        if (ret[i] == -1) {
            if (unknown >= 0)
                return status_invalid("There can only be one -1 in the input.");
            unknown = i;
            continue;
        }
        if (ret[i] < 0)
            return status_invalid("Split size at index %d must be >= 0. Got: %lld", i,
                                  (long long)ret[i]);
        if (add_overflows_i64(sum, ret[i], &sum))
            return status_invalid("The sum of the split sizes does not fit");
    }
    if (sum > total || (unknown < 0 && sum != total))
        return status_invalid(
            "Determined shape must either match input shape along split_dim exactly if fully "
            "specified, or be less than the size of "
            "the input along split_dim if not fully specified.  Got: %lld for a size of %lld",
            (long long)sum, (long long)total);
    if (unknown >= 0)
        ret[unknown] = total - sum;
    return NULL;
}

static enum kernel_result split_v(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    int axis = 0, n = ctx->instance->n_outputs;
    if (in->rank == 0)
        return kernel_fail(ctx, status_invalid("Can't split a 0 dimensional input"));
    KERNEL_TRY(ctx, split_axis(kernel_input(ctx, 2), in, &axis));
    int64_t *sizes = xmalloc((size_t)n * sizeof(*sizes)), begin = 0;
    struct status *st = split_v_sizes(kernel_input(ctx, 1), n, tensor_dim(in, axis), sizes);
    struct dims dims;
    dims_set(&dims, tensor_shape(in));
    struct moves moves;
    moves_begin(&moves, ctx, tensor_dtype(in));
    for (int i = 0; i < n && !st; i++) {
        dims.at[axis] = sizes[i];
        st = take_part(&moves, 0, i, axis, begin, sizes[i], dims_shape(&dims));
        begin += sizes[i];
    }
    free(sizes);
    return parts_end(&moves, st);
}

/* ParallelConcat: each input is a row of the output. */
static enum kernel_result parallel_concat(struct kernel_ctx *ctx) {
    const struct tensor *values = ctx->inputs;
    int n = ctx->instance->n_inputs;
    struct dims dims;
    for (int i = 0; i < n; i++) {
        if (values[i].rank < 1 || tensor_dim(&values[i], 0) != 1)
            return kernel_fail(ctx,
                               status_invalid("Size of first dimension must be 1 in input %d: %s",
                                              i, TENSOR_SHAPE_TEXT(&values[i])));
        if (!shape_equal(tensor_shape(&values[i]), tensor_shape(&values[0])))
            return kernel_fail(ctx, status_invalid("Shapes of all inputs must match: %s and %s",
                                                   TENSOR_SHAPE_TEXT(&values[0]),
                                                   TENSOR_SHAPE_TEXT(&values[i])));
    }
    dims_set(&dims, tensor_shape(&values[0]));
    dims.at[0] = n;
    enum dtype dtype = tensor_dtype(&values[0]);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, dtype, dims_shape(&dims)));
    struct moves moves;
    moves_begin(&moves, ctx, dtype);
    for (int i = 0; i < n; i++) {
        struct strided s;
        strided_init(&s);
        strided_add(&s, values[i].n_elements, 1, 1);
        moves_add(&moves, &s, tensor_at(&ctx->outputs[0], i * values[0].n_elements),
                  tensor_cdata(&values[i]));
    }
    KERNEL_TRY(ctx, moves_end(&moves));
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "Concat", .compute = concat_v1},
    {.op = "ConcatV2", .compute = concat_v2},
    {.op = "ConcatOffset", .compute = concat_offset},
    {.op = "Pack", .compute = pack, .init = axis_init},
    {.op = "Unpack", .compute = unpack, .init = axis_init},
    {.op = "Split", .compute = split},
    {.op = "SplitV", .compute = split_v},
    {.op = "ParallelConcat", .compute = parallel_concat},
};
// clang-format on

const struct kernel_list array_join_kernels = {rows, ARRAY_LEN(rows)};
