/* Checks the operands of elementwise ops; see elementwise_checks.h. */
#include "kernels/support/elementwise_checks.h"

struct status *elementwise_incompatible(struct shape a, struct shape b) {
    return status_invalid("Incompatible shapes: %s vs. %s", SHAPE_TEXT(a), SHAPE_TEXT(b));
}

struct status *elementwise_check_equal_sizes(const struct kernel_ctx *ctx) {
    int64_t a = ctx->inputs[0].n_elements, b = ctx->inputs[1].n_elements;
    if (likely(a == b))
        return NULL;
    return status_invalid(
        "The two arguments to a cwise op must have same number of elements, got %lld and %lld",
        (long long)a, (long long)b);
}

struct status *elementwise_check_same_shapes(const struct kernel_ctx *ctx) {
    struct shape shape = tensor_shape(&ctx->inputs[0]);
    const struct node *node = ctx->instance->node;
    for (int k = 1; k < ctx->instance->n_inputs; k++) {
        if (likely(shape_equal(shape, tensor_shape(&ctx->inputs[k]))))
            continue;
        return status_invalid("Inputs to operation %s of type %s must have the same size and "
                              "shape.  Input 0: %s != input %d: %s",
                              node->name, node->op_name, SHAPE_TEXT(shape), k,
                              TENSOR_SHAPE_TEXT(&ctx->inputs[k]));
    }
    return NULL;
}

/* ---- selections ---- */

struct status *elementwise_plan_select_v2(const struct kernel_ctx *ctx, struct broadcast *ret) {
    struct shape shapes[3] = {tensor_shape(&ctx->inputs[0]), tensor_shape(&ctx->inputs[1]),
                              tensor_shape(&ctx->inputs[2])};
    if (likely(broadcast_init(ret, shapes, 3)))
        return NULL;
    return status_invalid("condition %s, then %s, and else %s must be broadcastable",
                          SHAPE_TEXT(shapes[0]), SHAPE_TEXT(shapes[1]), SHAPE_TEXT(shapes[2]));
}

/* The condition is a vector that chooses rows of `shape`, or it does not fit. */
static struct status *check_row_condition(struct shape condition, struct shape shape) {
    if (condition.rank != 1)
        return status_invalid(
            "Inputs to operation Select of type Select must have the same size and shape.  "
            "Input 0: %s != input 1: %s",
            SHAPE_TEXT(condition), SHAPE_TEXT(shape));
    if (shape.rank < 1)
        return status_invalid("'then' must be at least a vector, but saw shape: %s",
                              SHAPE_TEXT(shape));
    if (shape.dims[0] != condition.dims[0])
        return status_invalid(
            "Number of batches of 'then' must match size of 'cond', but saw: %lld vs. %lld",
            (long long)shape.dims[0], (long long)condition.dims[0]);
    return NULL;
}

struct status *elementwise_plan_select(const struct kernel_ctx *ctx, struct broadcast *ret) {
    struct shape condition = tensor_shape(&ctx->inputs[0]), shape = tensor_shape(&ctx->inputs[1]),
                 otherwise = tensor_shape(&ctx->inputs[2]);
    if (!shape_equal(shape, otherwise))
        return status_invalid("'then' and 'else' must have the same size.  but received: %s vs. %s",
                              SHAPE_TEXT(shape), SHAPE_TEXT(otherwise));
    int64_t column[SHAPE_MAX_RANK];
    struct shape shapes[3] = {condition, shape, shape};
    if (condition.rank > 0 && !shape_equal(condition, shape)) {
        TRY(check_row_condition(condition, shape));
        for (int i = 0; i < shape.rank; i++)
            column[i] = i == 0 ? shape.dims[0] : 1;
        shapes[0] = (struct shape){shape.rank, column};
    }
    CHECK(broadcast_init(ret, shapes, 3));
    return NULL;
}

struct status *elementwise_check_clip(const struct kernel_ctx *ctx) {
    const struct tensor *t = &ctx->inputs[0], *low = &ctx->inputs[1], *high = &ctx->inputs[2];
    struct shape shape = tensor_shape(t);
    if ((low->rank == 0 || shape_equal(shape, tensor_shape(low))) &&
        (high->rank == 0 || shape_equal(shape, tensor_shape(high))))
        return NULL;
    return status_invalid(
        "clip_value_min and clip_value_max must be either of the same shape as input, or a "
        "scalar. input shape: %s clip_value_min shape: %s clip_value_max shape: %s",
        TENSOR_SHAPE_TEXT(t), TENSOR_SHAPE_TEXT(low), TENSOR_SHAPE_TEXT(high));
}

struct status *elementwise_check_approximate(const struct kernel_ctx *ctx) {
    const struct tensor *x = &ctx->inputs[0], *y = &ctx->inputs[1];
    if (shape_equal(tensor_shape(x), tensor_shape(y)))
        return NULL;
    return status_invalid("x and y must be of the same shape. x shape: %s. y shape: %s",
                          TENSOR_SHAPE_TEXT(x), TENSOR_SHAPE_TEXT(y));
}

struct status *elementwise_check_betainc(const struct kernel_ctx *ctx, struct shape *ret) {
    static const char *const pairs[3][2] = {{"a", "b"}, {"a", "x"}, {"b", "x"}};
    struct shape shape = SHAPE_SCALAR;
    for (int i = 0, p = 0; i < 3; i++) {
        for (int j = i + 1; j < 3; j++, p++) {
            struct shape left = tensor_shape(&ctx->inputs[i]),
                         right = tensor_shape(&ctx->inputs[j]);
            if (left.rank > 0 && right.rank > 0 && !shape_equal(left, right))
                return status_invalid("Shapes of %s and %s are inconsistent: %s vs. %s",
                                      pairs[p][0], pairs[p][1], SHAPE_TEXT(left),
                                      SHAPE_TEXT(right));
        }
        if (shape.rank == 0)
            shape = tensor_shape(&ctx->inputs[i]);
    }
    *ret = shape;
    return NULL;
}

/* ---- biases ---- */

struct status *bias_read_format(const struct node *node, bool *ret_is_nchw) {
    *ret_is_nchw = false;
    if (!node_attr(node, "data_format"))
        return NULL;
    struct span format;
    TRY(node_get_s(node, "data_format", &format));
    *ret_is_nchw = span_is(format, "NCHW");
    return NULL;
}

struct status *bias_extent_of(const struct kernel_ctx *ctx, bool is_nchw, struct bias_extent *ret) {
    const struct tensor *value = &ctx->inputs[0];
    if (unlikely(value->rank < 2))
        return status_invalid("Input tensor must be at least 2D: %s", TENSOR_SHAPE_TEXT(value));
    int channel_dim = is_nchw ? 1 : value->rank - 1;
    *ret = (struct bias_extent){1, tensor_dim(value, channel_dim), 1};
    /* These products are used only when the tensor has elements, and then they fit. */
    for (int i = 0; i < channel_dim; i++)
        ret->outer *= value->n_elements ? tensor_dim(value, i) : 0;
    for (int i = channel_dim + 1; i < value->rank; i++)
        ret->inner *= value->n_elements ? tensor_dim(value, i) : 0;
    return NULL;
}

struct status *bias_check(const struct kernel_ctx *ctx, bool is_nchw,
                          const struct bias_extent *extent) {
    const struct tensor *value = &ctx->inputs[0], *bias = &ctx->inputs[1];
    if (likely(bias->rank == 1 && bias->n_elements == extent->channels))
        return NULL;
    if (bias->rank != 1)
        return status_invalid("Biases must be 1D: %s", TENSOR_SHAPE_TEXT(bias));
    return status_invalid(
        "Must provide as many biases as the %s dimension of the input tensor: %s vs. %s",
        is_nchw ? "channel" : "last", TENSOR_SHAPE_TEXT(bias), TENSOR_SHAPE_TEXT(value));
}

int elementwise_fraction_bits(enum dtype dtype) {
    switch (dtype) {
    case DT_DOUBLE:
    case DT_COMPLEX128:
        return 52;
    case DT_FLOAT:
    case DT_COMPLEX64:
        return 23;
    case DT_HALF:
        return 10;
    case DT_BFLOAT16:
        return 7;
    case DT_FLOAT8_E4M3FN:
        return 3;
    case DT_FLOAT8_E5M2:
        return 2;
    default:
        return 64;
    }
}
