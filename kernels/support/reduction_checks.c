/* Checks reductions, scans and softmaxes; see reduction_checks.h. */
#include "kernels/support/reduction_checks.h"

struct status *reduction_read_axes(const struct tensor *axes, int rank, bool *is_reduced) {
    if (axes->dtype != DT_INT32 && axes->dtype != DT_INT64)
        return status_invalid("Reduction axes must be int32 or int64");
    for (int64_t i = 0; i < axes->n_elements; i++) {
        int64_t axis = tensor_index_at(axes, i), own = axis < 0 ? axis + rank : axis;
        if (own < 0 || own >= rank)
            return status_invalid(
                "Invalid reduction dimension (%lld for input with %d dimension(s)", (long long)axis,
                rank);
        if (is_reduced[own])
            return status_invalid(
                "Invalid reduction arguments: Axes contains duplicate dimension: %lld",
                (long long)own);
        is_reduced[own] = true;
    }
    return NULL;
}

struct shape reduction_output_shape(struct shape in, const bool *is_reduced, bool keep_dims,
                                    int64_t *dims) {
    int rank = 0;
    for (int i = 0; i < in.rank; i++) {
        if (!is_reduced[i])
            dims[rank++] = in.dims[i];
        else if (keep_dims)
            dims[rank++] = 1;
    }
    return (struct shape){rank, dims};
}

/* ---- along one axis ---- */

/* Reads a scalar axis in [-rank, rank). Messages begin with `what`. */
static struct status *read_axis(const struct tensor *t, int rank, const char *not_scalar,
                                const char *range, int *ret) {
    if (t->rank != 0) {
        return status_invalid("%s%s", not_scalar, SHAPE_TEXT(tensor_shape(t)));
    }
    int64_t axis = t->dtype == DT_INT16 ? *(const int16_t *)tensor_cdata(t) : tensor_index_at(t, 0),
            own = axis < 0 ? axis + rank : axis;
    if (own < 0 || own >= rank)
        return status_invalid("%s in the range [%d, %d), but got %lld", range, -rank, rank,
                              (long long)axis);
    *ret = (int)own;
    return NULL;
}

struct status *arg_read_axis(const struct kernel_ctx *ctx, int *ret) {
    struct shape shape = tensor_shape(&ctx->inputs[0]);
    TRY(read_axis(&ctx->inputs[1], shape.rank,
                  "dim must be a scalar, but received tensor of shape: ", "Expected dimension",
                  ret));
    if (shape.dims[*ret] > 0)
        return NULL;
    return status_invalid("Reduction axis %d is empty in shape %s", *ret, SHAPE_TEXT(shape));
}

struct status *scan_read_axis(const struct kernel_ctx *ctx, int *ret) {
    return read_axis(&ctx->inputs[1], ctx->inputs[0].rank, "ScanOp: axis must be a scalar, not ",
                     "ScanOp: Expected scan axis", ret);
}

struct along along_axis(struct shape shape, int axis) {
    struct along along = {1, shape.dims[axis], 1};
    for (int i = 0; i < axis; i++)
        along.outer *= shape.dims[i];
    for (int i = axis + 1; i < shape.rank; i++)
        along.inner *= shape.dims[i];
    return along;
}

/* ---- softmaxes ---- */

struct status *softmax_check(const struct kernel_ctx *ctx) {
    if (likely(ctx->inputs[0].rank > 0))
        return NULL;
    return status_invalid("logits must have >= 1 dimension, got []");
}

/* Reads the sizes of an operand of SoftmaxCrossEntropyWithLogits as a matrix: a vector is one row,
 * a scalar one element. False above rank 2. */
static bool as_matrix(const struct tensor *t, int64_t ret[2]) {
    ret[0] = t->rank == 2 ? tensor_dim(t, 0) : 1;
    ret[1] = t->rank >= 1 ? tensor_dim(t, t->rank - 1) : 1;
    return t->rank <= 2;
}

static struct status *cross_entropy_mismatch(const struct kernel_ctx *ctx, bool is_broadcastable) {
    if (is_broadcastable)
        return status_invalid(
            "logits and labels must be either 2-dimensional, or broadcasted to be 2-dimensional");
    struct status *st =
        status_invalid("logits and labels must be broadcastable: logits_size=%s labels_size=%s",
                       TENSOR_SHAPE_TEXT(&ctx->inputs[0]), TENSOR_SHAPE_TEXT(&ctx->inputs[1]));
    return st;
}

/* Could the two shapes be broadcast together at all? The answer selects the error message. */
static bool is_broadcastable(const struct tensor *a, const struct tensor *b) {
    for (int i = 1; i <= MIN(a->rank, b->rank); i++) {
        int64_t x = tensor_dim(a, a->rank - i), y = tensor_dim(b, b->rank - i);
        if (x != y && x != 1 && y != 1)
            return false;
    }
    return true;
}

static bool broadcast_size(int64_t a, int64_t b, int64_t *ret) {
    *ret = a == 1 ? b : a;
    return a == b || a == 1 || b == 1;
}

static struct cross_entropy_operand operand_of(const int64_t own[2], const int64_t dims[2]) {
    return (struct cross_entropy_operand){own[0] == dims[0] ? own[1] : 0, own[1] != dims[1]};
}

struct status *cross_entropy_plan(const struct kernel_ctx *ctx, struct cross_entropy_plan *ret) {
    const struct tensor *features = &ctx->inputs[0], *labels = &ctx->inputs[1];
    int64_t x[2], l[2];
    bool are_matrices = as_matrix(features, x) && as_matrix(labels, l);
    if (unlikely(!are_matrices || (features->rank < 2 && labels->rank < 2) ||
                 !broadcast_size(x[0], l[0], &ret->dims[0]) ||
                 !broadcast_size(x[1], l[1], &ret->dims[1])))
        return cross_entropy_mismatch(ctx, is_broadcastable(features, labels));
    ret->features = operand_of(x, ret->dims);
    ret->labels = operand_of(l, ret->dims);
    ret->has_all_features = x[0] == ret->dims[0] && x[1] == ret->dims[1];
    return NULL;
}

struct status *sparse_cross_entropy_check(const struct kernel_ctx *ctx) {
    const struct tensor *features = &ctx->inputs[0], *labels = &ctx->inputs[1];
    struct status *st = NULL;
    if (features->rank != 2)
        st = status_invalid("logits must be 2-D, but got shape %s", TENSOR_SHAPE_TEXT(features));
    else if (labels->rank != 1)
        st = status_invalid("labels must be 1-D, but got shape %s", TENSOR_SHAPE_TEXT(labels));
    else if (tensor_dim(features, 0) != tensor_dim(labels, 0))
        st = status_invalid("logits and labels must have the same first dimension, got logits "
                            "shape %s and labels shape %s",
                            TENSOR_SHAPE_TEXT(features), TENSOR_SHAPE_TEXT(labels));
    else if (tensor_dim(features, 1) == 0)
        st = status_invalid("Must have at least one class, but got logits shape %s",
                            TENSOR_SHAPE_TEXT(features));
    return st;
}
