/* Lists the pooling family: maxima and means under a sliding window, and their gradients. */
#include "common/ops/window_shapes.h"

static int spatial_of(const struct node *node) { return strstr(node->op_name, "3D") ? 3 : 2; }

/* The channels of the output, which are fewer where groups of channels are pooled. */
static int64_t pooled_channels(const struct window_attrs *attrs, int64_t channels) {
    int64_t size = attrs->size.channel, stride = attrs->strides.channel;
    if (channels < 0 || (size == 1 && stride == 1))
        return channels;
    if (attrs->padding == WINDOW_SAME)
        return channels / stride + (channels % stride != 0);
    return channels < size ? 0 : (channels - size) / stride + 1;
}

static struct status *shape_positions(struct shape_inference *ctx, const struct window_attrs *attrs,
                                      int output) {
    int rank = attrs->n_spatial + 2;
    int64_t in[WINDOW_MAX_RANK];
    TRY(shape_require_rank(ctx, 0, rank, NULL));
    shape_dims_or_unknown(ctx->in[0], rank, in);
    return shape_of_positions(ctx, attrs, attrs->size.spatial,
                              pooled_channels(attrs, in[window_channel_dim(attrs)]), output);
}

struct status *shape_pool(struct shape_inference *ctx) {
    struct window_attrs attrs;
    struct status *st = window_attrs_read(ctx->node, spatial_of(ctx->node), &attrs);
    if (st && node_is_op(ctx->node, "AvgPool")) { /* the kernel reports it */
        status_unref(st);
        return NULL;
    }
    TRY(st);
    if (attrs.is_vect_c)
        return NULL;
    TRY(shape_positions(ctx, &attrs, 0));
    if (node_is_op(ctx->node, "AvgPool") && (attrs.size.channel != 1 || attrs.strides.channel != 1))
        ctx->out[0] = shape_unknown_of_rank(ctx, 4); /* the kernel reports it */
    for (int i = 1; i < ctx->node->n_outputs; i++)
        ctx->out[i] = ctx->out[0];
    return NULL;
}

static bool has_sizes_below_one(const struct tensor *sizes) {
    for (int64_t i = 0; i < sizes->n_elements; i++)
        if (tensor_index_at(sizes, i) < 1)
            return true;
    return false;
}

/* ksize and strides are inputs, known where they are constants. The kernel refuses windows of size
 * 0. */
static struct status *shape_pool_v2(struct shape_inference *ctx) {
    struct window_attrs attrs;
    TRY(window_attrs_read(ctx->node, 2, &attrs));
    TRY(shape_require_rank(ctx, 0, attrs.is_vect_c ? 5 : 4, NULL));
    if (!ctx->in_values[1] || !ctx->in_values[2] || attrs.is_vect_c ||
        has_sizes_below_one(ctx->in_values[1])) {
        ctx->out[0] = attrs.is_vect_c ? SHAPE_UNKNOWN : shape_unknown_of_rank(ctx, 4);
        return NULL;
    }
    for (int i = 0; i < 2; i++) {
        const struct tensor *t = ctx->in_values[1 + i];
        int64_t values[WINDOW_MAX_RANK];
        for (int k = 0; k < (int)MIN(t->n_elements, WINDOW_MAX_RANK); k++)
            values[k] = tensor_index_at(t, k);
        TRY(window_list_set(&attrs, i == 0 ? "ksize" : "strides", values,
                            (int)MIN(t->n_elements, 99), i == 0 ? &attrs.size : &attrs.strides));
    }
    return shape_positions(ctx, &attrs, 0);
}

static struct status *shape_max_pool_grad(struct shape_inference *ctx) {
    int rank = spatial_of(ctx->node) + 2;
    return shape_require_rank(ctx, 0, rank, &ctx->out[0]);
}

/* The second gradient has the shape of the pooled output. */
static struct status *shape_max_pool_grad_grad(struct shape_inference *ctx) {
    int rank = spatial_of(ctx->node) + 2;
    TRY(shape_require_rank(ctx, 0, rank, NULL));
    struct shape positions;
    TRY(shape_require_rank(ctx, 1, rank, &positions));
    ctx->out[0] = positions;
    return NULL;
}

static struct status *shape_avg_pool_grad(struct shape_inference *ctx) {
    int rank = spatial_of(ctx->node) + 2;
    TRY(shape_require_rank(ctx, 1, rank, NULL));
    return shape_of_sizes(ctx, 0, rank);
}

/* ---- fractional pooling ---- */

static struct status *shape_fractional(struct shape_inference *ctx) {
    const struct attr_value *ratios;
    struct shape in;
    int n;
    int64_t dims[4];
    TRY(shape_require_rank(ctx, 0, 4, &in));
    TRY(node_get_list(ctx->node, "pooling_ratio", &ratios, &n));
    if (n != 4)
        return status_invalid("pooling_ratio field must specify 4 dimensions");
    for (int i = 0; i < 4; i++) {
        if (!(ratios[i].f >= 1))
            return status_invalid("pooling_ratio cannot be smaller than 1, got: %g",
                                  (double)ratios[i].f);
        dims[i] = in.dims[i] < 0 ? -1 : (int64_t)((float)in.dims[i] / ratios[i].f);
    }
    ctx->out[0] = shape_make(ctx, 4, dims);
    /* the ends of regions are one more than these sizes, but TensorFlow infers these sizes, which
     * the kernel does not produce */
    for (int i = 1; i < 3; i++)
        ctx->out[i] = shape_unknown_of_rank(ctx, 1);
    return NULL;
}

/* Only the kernel checks the number of sizes. */
static struct status *shape_fractional_avg_grad(struct shape_inference *ctx) {
    if (ctx->in_values[0])
        return shape_from_input(ctx, 0, &ctx->out[0]);
    ctx->out[0] = shape_unknown_of_rank(ctx, 4);
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"MaxPool", "greatest element under a sliding window", shape_pool},
    {"MaxPoolV2", "greatest element under a sliding window whose sizes are inputs", shape_pool_v2},
    {"MaxPoolGrad", "gradient of MaxPool", shape_max_pool_grad},
    {"MaxPoolGradV2", "gradient of MaxPoolV2", shape_max_pool_grad},
    {"MaxPoolGradGrad", "second gradient of MaxPool", shape_max_pool_grad_grad},
    {"MaxPoolGradGradV2", "second gradient of MaxPoolV2", shape_max_pool_grad_grad},
    {"MaxPoolWithArgmax", "greatest element under a sliding window, and where it is", shape_pool},
    {"MaxPoolGradWithArgmax", "gradient of MaxPoolWithArgmax", shape_max_pool_grad},
    {"AvgPool", "mean under a sliding window", shape_pool},
    {"AvgPoolGrad", "gradient of AvgPool", shape_avg_pool_grad},
    {"FractionalMaxPool", "greatest element of regions of random sizes", shape_fractional},
    {"FractionalAvgPool", "mean of regions of random sizes", shape_fractional},
    {"FractionalMaxPoolGrad", "gradient of FractionalMaxPool", shape_max_pool_grad},
    {"FractionalAvgPoolGrad", "gradient of FractionalAvgPool", shape_fractional_avg_grad},
    {"MaxPool3D", "greatest element under a sliding window over volumes", shape_pool},
    {"MaxPool3DGrad", "gradient of MaxPool3D", shape_max_pool_grad},
    {"MaxPool3DGradGrad", "second gradient of MaxPool3D", shape_max_pool_grad_grad},
    {"AvgPool3D", "mean under a sliding window over volumes", shape_pool},
    {"AvgPool3DGrad", "gradient of AvgPool3D", shape_avg_pool_grad},
};
// clang-format on

const struct op_def_list pooling_ops = {rows, ARRAY_LEN(rows)};
