/* Lists the quantising family: ops on real numbers that are coded in few bits. */
#include "common/ops/window_shapes.h"

/* ---- reals that are rounded to codes ---- */

static struct status *require_scalars(struct shape_inference *ctx, int first, int n) {
    for (int i = first; i < first + n; i++)
        TRY(shape_require_rank(ctx, i, 0, NULL));
    return NULL;
}

static struct status *shape_fake(struct shape_inference *ctx) {
    TRY(require_scalars(ctx, 1, 2));
    return shape_same_as_input(ctx);
}

static struct status *shape_fake_grad(struct shape_inference *ctx) {
    TRY(require_scalars(ctx, 2, 2));
    ctx->out[1] = ctx->out[2] = (struct shape){0, NULL};
    return shape_merge_two_inputs(ctx);
}

/* Checks ranges in inputs first and first + 1: vectors as long as the last dimension of `shape`,
 * which is narrowed by them. */
static struct status *merge_channels(struct shape_inference *ctx, struct shape shape, int first,
                                     struct shape *ret, struct shape *ret_range) {
    struct shape range;
    TRY(shape_require_rank(ctx, first, 1, NULL));
    TRY(shape_require_rank(ctx, first + 1, 1, NULL));
    TRY(shape_merge(ctx, ctx->in[first], ctx->in[first + 1], &range));
    int64_t depth = range.rank == 1 ? range.dims[0] : -1;
    if (shape.rank == 0)
        return status_invalid("Shape must be at least rank 1 but is rank 0");
    if (shape.rank > 0)
        TRY(shape_merge_dims(shape.dims[shape.rank - 1], depth, &depth));
    *ret_range = shape_make(ctx, 1, &depth);
    *ret = SHAPE_UNKNOWN;
    if (shape.rank > 0) {
        int64_t *dims = arena_array(ctx->arena, int64_t, shape.rank);
        memcpy(dims, shape.dims, (size_t)shape.rank * sizeof(*dims));
        dims[shape.rank - 1] = depth;
        *ret = (struct shape){shape.rank, dims};
    }
    return NULL;
}

static struct status *shape_fake_channels(struct shape_inference *ctx) {
    struct shape range;
    return merge_channels(ctx, ctx->in[0], 1, &ctx->out[0], &range);
}

static struct status *shape_fake_channels_grad(struct shape_inference *ctx) {
    struct shape merged;
    TRY(shape_merge(ctx, ctx->in[0], ctx->in[1], &merged));
    TRY(merge_channels(ctx, merged, 2, &ctx->out[0], &ctx->out[1]));
    ctx->out[2] = ctx->out[1];
    return NULL;
}

/* Ranges of ops with an axis: scalars where there is none, else vectors as long as that
 * dimension. */
static struct status *check_axis_ranges(struct shape_inference *ctx, int first, struct shape *ret) {
    int64_t axis = -1;
    struct shape range = {0, NULL};
    if (node_attr(ctx->node, "axis"))
        TRY(node_get_i(ctx->node, "axis", &axis));
    if (axis < -1)
        return status_invalid("axis should be at least -1, got %lld", (long long)axis);
    if (axis > INT32_MAX)
        return status_invalid("Attr axis has value %lld out of range for an int32",
                              (long long)axis);
    if (axis == INT32_MAX)
        return status_invalid("Axis cannot be >= kint32max value, got %lld", (long long)axis);
    if (axis == -1) {
        TRY(require_scalars(ctx, first, 2));
    } else {
        TRY(shape_require_rank(ctx, first, 1, NULL));
        TRY(shape_require_rank(ctx, first + 1, 1, NULL));
        TRY(shape_merge(ctx, ctx->in[first], ctx->in[first + 1], &range));
        struct shape x = ctx->in[0];
        int64_t size = range.rank == 1 ? range.dims[0] : -1;
        if (x.rank >= 0 && axis >= x.rank)
            return status_invalid("Shape must be at least rank %lld but is rank %d",
                                  (long long)axis + 1, x.rank);
        if (x.rank >= 0)
            TRY(shape_merge_dims(x.dims[axis], size, &size));
        range = shape_make(ctx, 1, &size);
    }
    *ret = range;
    return NULL;
}

static struct status *shape_simulate(struct shape_inference *ctx) {
    struct shape range;
    TRY(check_axis_ranges(ctx, 1, &range));
    return shape_same_as_input(ctx);
}

static struct status *shape_simulate_grad(struct shape_inference *ctx) {
    struct shape range;
    TRY(check_axis_ranges(ctx, 2, &range));
    ctx->out[1] = ctx->out[2] = range;
    return shape_merge_two_inputs(ctx);
}

/* ---- codes ---- */

static struct status *shape_quantize(struct shape_inference *ctx) {
    struct shape range;
    TRY(check_axis_ranges(ctx, 1, &range));
    ctx->out[0] = ctx->in[0];
    ctx->out[1] = ctx->out[2] = range;
    return NULL;
}

static struct status *shape_dequantize(struct shape_inference *ctx) {
    struct shape range;
    TRY(check_axis_ranges(ctx, 1, &range));
    ctx->out[0] = ctx->in[0];
    return NULL;
}

/* Output 0 has the shape of input 0, the others are scalars; the inputs after input 0 must be
 * scalars. */
static struct status *shape_with_range(struct shape_inference *ctx) {
    TRY(require_scalars(ctx, 1, ctx->node->n_data - 1));
    ctx->out[0] = ctx->in[0];
    ctx->out[1] = ctx->out[2] = (struct shape){0, NULL};
    return NULL;
}

static struct status *shape_used_range(struct shape_inference *ctx) {
    TRY(require_scalars(ctx, 1, 2));
    return shape_scalar(ctx);
}

static struct status *shape_bias_add(struct shape_inference *ctx) {
    TRY(require_scalars(ctx, 2, 4));
    TRY(shape_require_rank_at_least(ctx, 0, 2));
    TRY(shape_require_rank(ctx, 1, 1, NULL));
    ctx->out[0] = ctx->in[0];
    ctx->out[1] = ctx->out[2] = (struct shape){0, NULL};
    return NULL;
}

static void set_scalars(struct shape_inference *ctx, int first) {
    for (int i = first; i < ctx->node->n_outputs; i++)
        ctx->out[i] = (struct shape){0, NULL};
}

/* Output 0 has the shape that `shape` sets, the others are scalars; inputs [first, first + n) must
 * be scalars. */
static struct status *shape_and_range(struct shape_inference *ctx, op_shape_fn *shape, int first,
                                      int n) {
    TRY(require_scalars(ctx, first, n));
    TRY(shape(ctx));
    set_scalars(ctx, 1);
    return NULL;
}

static struct status *shape_quantized_matmul(struct shape_inference *ctx) {
    return shape_and_range(ctx, shape_matmul, 2, 4);
}
static struct status *shape_quantized_conv(struct shape_inference *ctx) {
    return shape_and_range(ctx, shape_conv, 2, 4);
}
static struct status *shape_quantized_pool(struct shape_inference *ctx) {
    return shape_and_range(ctx, shape_pool, 1, 2);
}
static struct status *shape_quantized_binary(struct shape_inference *ctx) {
    return shape_and_range(ctx, shape_broadcast, 2, 4);
}
static struct status *shape_quantized_reshape(struct shape_inference *ctx) {
    return shape_and_range(ctx, shape_of_reshape, 0, 0);
}
static struct status *shape_quantized_resize(struct shape_inference *ctx) {
    return shape_and_range(ctx, shape_resize_images, 2, 2);
}

static struct status *shape_quantized_concat(struct shape_inference *ctx) {
    TRY(shape_of_joined(ctx, 1, (ctx->node->n_data - 1) / 3, 0));
    set_scalars(ctx, 1);
    return NULL;
}

static struct status *shape_of_images(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 0, 4, &ctx->out[0]));
    set_scalars(ctx, 1);
    return NULL;
}

/* The kernels check ranges by channel. */
static struct status *shape_any_with_range(struct shape_inference *ctx) {
    ctx->out[0] = ctx->in[0];
    set_scalars(ctx, 1);
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"FakeQuantWithMinMaxArgs",
     "reals moved to the nearest of 2^num_bits between attrs min and max", shape_same_as_input},
    {"FakeQuantWithMinMaxArgsGradient",
     "the gradient of FakeQuantWithMinMaxArgs: what lies inside passes", shape_merge_two_inputs},
    {"FakeQuantWithMinMaxVars", "reals moved to the nearest of 2^num_bits between min and max",
     shape_fake},
    {"FakeQuantWithMinMaxVarsGradient",
     "the gradients of FakeQuantWithMinMaxVars, of the range too", shape_fake_grad},
    {"FakeQuantWithMinMaxVarsPerChannel",
     "FakeQuantWithMinMaxVars with a range for each of the last dimension's places",
     shape_fake_channels},
    {"FakeQuantWithMinMaxVarsPerChannelGradient",
     "the gradients of FakeQuantWithMinMaxVarsPerChannel", shape_fake_channels_grad},
    {"QuantizeAndDequantize", "reals rounded as if they had gone through codes of num_bits",
     shape_same_as_input},
    {"QuantizeAndDequantizeV2", "reals rounded as if they had gone through codes of num_bits",
     shape_simulate},
    {"QuantizeAndDequantizeV3",
     "reals rounded as if they had gone through codes, num_bits an input", shape_simulate},
    {"QuantizeAndDequantizeV4", "reals rounded as if they had gone through codes of num_bits",
     shape_simulate},
    {"QuantizeAndDequantizeV4Grad",
     "the gradient of QuantizeAndDequantizeV4: what lies inside the range passes",
     shape_simulate_grad},
    {"QuantizeV2", "reals as codes of a range", shape_quantize},
    {"Dequantize", "the reals of codes", shape_dequantize},
    {"Requantize", "codes of one range as codes of another", shape_with_range},
    {"RequantizationRange", "the range that codes really use", shape_used_range},
    {"QuantizeDownAndShrinkRange", "32-bit codes as 8-bit ones of the range that they use",
     shape_with_range},
    {"QuantizedRelu", "codes, none below that of 0", shape_with_range},
    {"QuantizedRelu6", "codes, none below that of 0 or above that of 6", shape_with_range},
    {"QuantizedBiasAdd", "codes plus a bias for each of the last dimension's places",
     shape_bias_add},
    {"QuantizedAdd", "sums of codes", shape_quantized_binary},
    {"QuantizedMul", "products of codes", shape_quantized_binary},
    {"QuantizedMatMul", "the matrix product of codes, each side transposed if asked",
     shape_quantized_matmul},
    {"QuantizedConv2D", "convolution of images of codes with filters of codes",
     shape_quantized_conv},
    {"QuantizedMaxPool", "greatest code under a sliding window", shape_quantized_pool},
    {"QuantizedAvgPool", "mean of codes under a sliding window", shape_quantized_pool},
    {"QuantizedConcat", "codes of several ranges joined, as codes of one", shape_quantized_concat},
    {"QuantizedReshape", "the same codes under another shape", shape_quantized_reshape},
    {"QuantizedBatchNormWithGlobalNormalization", "codes normalised with given means and variances",
     shape_of_images},
    {"QuantizedInstanceNorm", "codes normalised, each channel of each image by itself",
     shape_of_images},
    {"QuantizedResizeBilinear", "images of codes at another size, by linear interpolation",
     shape_quantized_resize},
    {"RequantizationRangePerChannel",
     "the range that codes really use, whose channels have ranges of their own", shape_scalar},
    {"RequantizePerChannel",
     "codes whose channels have ranges of their own as codes of another range",
     shape_any_with_range},
};
// clang-format on

const struct op_def_list quant_ops = {rows, ARRAY_LEN(rows)};
