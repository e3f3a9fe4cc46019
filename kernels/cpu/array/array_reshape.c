/* Gives elements a new shape (Reshape, ExpandDims, Squeeze), or repeats them (BroadcastTo,
 * Tile). */
#include <stdlib.h>

#include "common/tensor/element.h"
#include "kernels/cpu/array/array_internal.h"
#include "kernels/support/dims.h"

/* ---- Reshape ---- */

/* Computes the one size that is -1. Where the request has a size of 0, zeros are left out on both
 * sides, so [0, 3] reshaped to [0, -1] is [0, 3]. */
static struct status *reshape_infer(const struct tensor *in, struct dims *dims, int unknown,
                                    int64_t product, bool asks_zero) {
    int64_t n_in = 1;
    bool has_zero = false;
    for (int i = 0; i < in->rank; i++) {
        if (asks_zero && tensor_dim(in, i) == 0)
            has_zero = true;
        else
            n_in *= tensor_dim(in, i);
    }
    int64_t missing = dims->at[unknown] = n_in / product;
    if (!has_zero && missing * product != n_in)
        return status_invalid("Input to reshape is a tensor with %lld values, but the requested "
                              "shape requires a multiple of %lld",
                              (long long)n_in, (long long)product);
    return NULL;
}

/* Computes the sizes that the second input asks for, including the one that is -1. */
static struct status *reshape_sizes(const struct tensor *in, const struct tensor *sizes,
                                    struct dims *ret) {
    if (sizes->rank > 1)
        return status_invalid("sizes input must be 1-D, not %s", TENSOR_SHAPE_TEXT(sizes));
    if (sizes->n_elements > SHAPE_MAX_RANK)
        return status_invalid("too many dimensions: %lld, the limit is %d",
                              (long long)sizes->n_elements, SHAPE_MAX_RANK);
    int unknown = -1;
    int64_t product = 1; /* of the sizes that are not 0 */
    bool asks_zero = false;
    ret->rank = (int)sizes->n_elements;
    for (int i = 0; i < ret->rank; i++) {
        int64_t size = ret->at[i] = tensor_index_at(sizes, i);
        if (size == -1) {
            if (unknown >= 0)
                return status_invalid("Only one input size may be -1, not both %d and %d", unknown,
                                      i);
            unknown = i;
            continue;
        }
        if (size < 0)
            return status_invalid("Size %d must be non-negative, not %lld", i, (long long)size);
        asks_zero |= size == 0;
        if (size != 0 && mul_overflows_i64(product, size, &product))
            return status_invalid("Shape product would overflow int64: %s",
                                  SHAPE_TEXT(dims_shape(ret)));
    }
    if (unknown >= 0)
        TRY(reshape_infer(in, ret, unknown, product, asks_zero));
    int64_t n;
    TRY(shape_n_elements(dims_shape(ret), &n));
    if (n != in->n_elements)
        return status_invalid(
            "Input to reshape is a tensor with %lld values, but the requested shape has %lld",
            (long long)in->n_elements, (long long)n);
    return NULL;
}

enum kernel_result array_reshape(struct kernel_ctx *ctx) {
    struct dims dims;
    KERNEL_TRY(ctx, reshape_sizes(kernel_input(ctx, 0), kernel_input(ctx, 1), &dims));
    array_pass_as(ctx, 0, 0, dims_shape(&dims));
    return KERNEL_DONE;
}

/* ---- ExpandDims, Squeeze ---- */

static enum kernel_result expand_dims(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0), *axis = kernel_input(ctx, 1);
    if (axis->n_elements != 1)
        return kernel_fail(ctx, status_invalid("'dim' must be a tensor with a single value"));
    int64_t at = tensor_index_at(axis, 0);
    if (at < -1 - (int64_t)in->rank || at > in->rank)
        return kernel_fail(
            ctx, status_invalid("Tried to expand dim index %lld for tensor with %d dimensions.",
                                (long long)at, in->rank));
    if (at < 0)
        at += in->rank + 1;
    if (in->rank >= SHAPE_MAX_RANK)
        return kernel_fail(
            ctx, status_invalid("ExpandDims of a tensor of rank %d would pass the limit of %d",
                                in->rank, SHAPE_MAX_RANK));
    struct dims dims;
    dims.rank = in->rank + 1;
    for (int i = 0; i < dims.rank; i++)
        dims.at[i] = i < at ? tensor_dim(in, i) : i == at ? 1 : tensor_dim(in, i - 1);
    array_pass_as(ctx, 0, 0, dims_shape(&dims));
    return KERNEL_DONE;
}

struct squeeze {
    int n;
    int64_t axes[];
};

static struct status *squeeze_init(struct kernel_init *init) {
    const struct attr_value *values;
    int n;
    TRY(node_get_list(init->node, "squeeze_dims", &values, &n));
    struct squeeze *state = xmalloc(sizeof(*state) + (size_t)n * sizeof(state->axes[0]));
    state->n = n;
    for (int i = 0; i < n; i++)
        state->axes[i] = values[i].i;
    init->state = state;
    return NULL;
}

static enum kernel_result squeeze(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0);
    const struct squeeze *state = ctx->instance->state;
    bool is_chosen[SHAPE_MAX_RANK] = {false};
    for (int i = 0; i < state->n; i++) {
        int64_t axis = state->axes[i];
        if (axis < -(int64_t)in->rank || axis >= in->rank)
            return kernel_fail(
                ctx,
                status_invalid("Tried to squeeze dim index %lld for tensor with %d dimensions.",
                               (long long)axis, in->rank));
        is_chosen[axis < 0 ? axis + in->rank : axis] = true;
    }
    struct dims dims;
    dims.rank = 0;
    for (int i = 0; i < in->rank; i++) {
        int64_t size = tensor_dim(in, i);
        bool goes = state->n > 0 ? is_chosen[i] : size == 1;
        if (goes && size != 1)
            return kernel_fail(
                ctx, status_invalid("Can not squeeze dim[%d], expected a dimension of 1, got %lld",
                                    i, (long long)size));
        if (!goes)
            dims.at[dims.rank++] = size;
    }
    array_pass_as(ctx, 0, 0, dims_shape(&dims));
    return KERNEL_DONE;
}

/* ---- broadcasting ---- */

static struct status *write_indices(struct kernel_ctx *ctx, int output, const struct dims *values) {
    int64_t n = values->rank;
    enum dtype dtype = kernel_out_dtype(ctx, output);
    TRY(kernel_alloc(ctx, output, dtype, (struct shape){1, &n}));
    void *to = tensor_data(&ctx->outputs[output]);
    for (int64_t i = 0; i < n; i++) {
        if (dtype == DT_INT64)
            ((int64_t *)to)[i] = values->at[i];
        else
            ((int32_t *)to)[i] = (int32_t)values->at[i];
    }
    return NULL;
}

static struct status *read_two_shapes(struct kernel_ctx *ctx, struct dims ret[2]) {
    for (int i = 0; i < 2; i++) {
        const struct tensor *in = kernel_input(ctx, i);
        if (in->rank != 1)
            return status_invalid("In[%d] must be a vector.%s", i, TENSOR_SHAPE_TEXT(in));
        if (in->n_elements > SHAPE_MAX_RANK)
            return status_invalid("In[%d] has %lld sizes, the limit is %d", i,
                                  (long long)in->n_elements, SHAPE_MAX_RANK);
        ret[i].rank = (int)in->n_elements;
        for (int d = 0; d < ret[i].rank; d++)
            ret[i].at[d] = tensor_index_at(in, d);
    }
    return NULL;
}

/* Size `i` after the shape is padded with ones in front to the broadcast's rank. */
static int64_t padded(const struct dims *dims, int rank, int i) {
    int at = i - (rank - dims->rank);
    return at < 0 ? 1 : dims->at[at];
}

static COLD struct status *incompatible(const struct dims *a, const struct dims *b) {
    return status_invalid("Incompatible shapes: %s vs. %s", SHAPE_TEXT(dims_shape(a)),
                          SHAPE_TEXT(dims_shape(b)));
}

static enum kernel_result broadcast_args(struct kernel_ctx *ctx) {
    struct dims in[2], out;
    KERNEL_TRY(ctx, read_two_shapes(ctx, in));
    out.rank = MAX(in[0].rank, in[1].rank);
    for (int i = 0; i < out.rank; i++) {
        int64_t a = padded(&in[0], out.rank, i), b = padded(&in[1], out.rank, i);
        if (a != b && a != 1 && b != 1)
            return kernel_fail(ctx, incompatible(&in[0], &in[1]));
        out.at[i] = a == 1 ? b : a;
    }
    KERNEL_TRY(ctx, write_indices(ctx, 0, &out));
    return KERNEL_DONE;
}

/* Computes the axes that each side's gradient is summed over: those in which the other side is
 * wider, and those in which both sizes are 1. */
static enum kernel_result broadcast_gradient_args(struct kernel_ctx *ctx) {
    struct dims in[2], axes[2];
    axes[0].rank = axes[1].rank = 0;
    KERNEL_TRY(ctx, read_two_shapes(ctx, in));
    int rank = MAX(in[0].rank, in[1].rank);
    bool is_same = shape_equal(dims_shape(&in[0]), dims_shape(&in[1]));
    for (int i = 0; i < rank && !is_same; i++) {
        int64_t a = padded(&in[0], rank, i), b = padded(&in[1], rank, i);
        if (a != b && a != 1 && b != 1)
            return kernel_fail(ctx, incompatible(&in[0], &in[1]));
        if (a == 1)
            axes[0].at[axes[0].rank++] = i;
        if (b == 1)
            axes[1].at[axes[1].rank++] = i;
    }
    KERNEL_TRY(ctx, write_indices(ctx, 0, &axes[0]));
    KERNEL_TRY(ctx, write_indices(ctx, 1, &axes[1]));
    return KERNEL_DONE;
}

static enum kernel_result broadcast_to(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0), *sizes = kernel_input(ctx, 1);
    if (sizes->rank > 1 || sizes->n_elements > SHAPE_MAX_RANK)
        return kernel_fail(
            ctx, status_invalid("shape must be a vector of at most %d sizes, got shape %s",
                                SHAPE_MAX_RANK, TENSOR_SHAPE_TEXT(sizes)));
    struct dims out;
    out.rank = (int)sizes->n_elements;
    for (int i = 0; i < out.rank; i++) {
        out.at[i] = tensor_index_at(sizes, i);
        if (out.at[i] < 0)
            return kernel_fail(ctx,
                               status_invalid("Dimension %lld must be >= 0", (long long)out.at[i]));
    }
    if (in->rank > out.rank)
        return kernel_fail(
            ctx,
            status_invalid("Rank of input (%d) must be no greater than rank of output shape (%d).",
                           in->rank, out.rank));
    int64_t strides[SHAPE_MAX_RANK];
    strides_of(tensor_dims(in), in->rank, strides);
    for (int i = 0; i < in->rank; i++) {
        int64_t size = tensor_dim(in, i);
        if (size != out.at[out.rank - in->rank + i] && size != 1)
            return kernel_fail(ctx,
                               status_invalid("Incompatible shapes: %s vs. %s",
                                              TENSOR_SHAPE_TEXT(in), SHAPE_TEXT(dims_shape(&out))));
    }
    if (shape_equal(tensor_shape(in), dims_shape(&out))) {
        kernel_pass(ctx, 0, 0);
        return KERNEL_DONE;
    }
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(in), dims_shape(&out)));
    int64_t to[SHAPE_MAX_RANK];
    strides_of(out.at, out.rank, to);
    struct strided s;
    strided_init(&s);
    for (int i = 0; i < out.rank; i++) {
        int at = i - (out.rank - in->rank);
        strided_add(&s, out.at[i], at < 0 || tensor_dim(in, at) == 1 ? 0 : strides[at], to[i]);
    }
    KERNEL_TRY(
        ctx, move_run(ctx, &s, tensor_dtype(in), tensor_data(&ctx->outputs[0]), tensor_cdata(in)));
    return KERNEL_DONE;
}

static enum kernel_result tile(struct kernel_ctx *ctx) {
    const struct tensor *in = kernel_input(ctx, 0), *multiples = kernel_input(ctx, 1);
    if (multiples->rank != 1)
        return kernel_fail(ctx, status_invalid("Expected multiples to be 1-D, but got shape %s",
                                               TENSOR_SHAPE_TEXT(multiples)));
    if (multiples->n_elements != in->rank)
        return kernel_fail(
            ctx, status_invalid(
                     "Expected multiples argument to be a vector of length %d but got length %lld",
                     in->rank, (long long)multiples->n_elements));
    struct dims out;
    out.rank = in->rank;
    bool is_same = true;
    for (int i = 0; i < out.rank; i++) {
        int64_t times = tensor_index_at(multiples, i);
        if (times < 0)
            return kernel_fail(ctx, status_invalid("Expected multiples[%d] >= 0, but got %lld", i,
                                                   (long long)times));
        if (mul_overflows_i64(times, tensor_dim(in, i), &out.at[i]))
            return kernel_fail(
                ctx, status_invalid("The tiled size of dimension %d does not fit: %lld times %lld",
                                    i, (long long)times, (long long)tensor_dim(in, i)));
        is_same &= times == 1;
    }
    if (is_same) {
        kernel_pass(ctx, 0, 0);
        return KERNEL_DONE;
    }
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(in), dims_shape(&out)));
    int64_t from[SHAPE_MAX_RANK], to[SHAPE_MAX_RANK];
    strides_of(tensor_dims(in), in->rank, from);
    strides_of(out.at, out.rank, to);
    struct strided s;
    strided_init(&s);
    for (int i = 0; i < out.rank; i++) {
        int64_t size = tensor_dim(in, i);
        strided_add(&s, size ? out.at[i] / size : 0, 0, to[i] * size);
        strided_add(&s, size, from[i], to[i]);
    }
    KERNEL_TRY(
        ctx, move_run(ctx, &s, tensor_dtype(in), tensor_data(&ctx->outputs[0]), tensor_cdata(in)));
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "Reshape", .compute = array_reshape},
    {.op = "ExpandDims", .compute = expand_dims},
    {.op = "Squeeze", .compute = squeeze, .init = squeeze_init},
    {.op = "BroadcastArgs", .compute = broadcast_args},
    {.op = "BroadcastGradientArgs", .compute = broadcast_gradient_args},
    {.op = "BroadcastTo", .compute = broadcast_to},
    {.op = "Tile", .compute = tile},
};
// clang-format on

const struct kernel_list array_reshape_kernels = {rows, ARRAY_LEN(rows)};
