/* Lists the conv family: convolution, depthwise convolution, dilation, patches, and conversions of
 * data formats. */
#include "common/ops/window_shapes.h"

/* ---- convolution ---- */

static int spatial_of(const struct node *node) {
    return strstr(node->op_name, "3D") || strstr(node->op_name, "Volume") ? 3 : 2;
}

static struct status *check_groups(int64_t in, int64_t filter_in, int64_t filter_out) {
    if (in < 0 || filter_in < 0)
        return NULL;
    if (filter_in == 0)
        return in == 0 ? NULL : status_invalid("Depth of filter must not be 0");
    if (in % filter_in != 0)
        return status_invalid(
            "Depth of input (%lld) is not a multiple of input depth of filter (%lld)",
            (long long)in, (long long)filter_in);
    if (in > 0 && filter_out >= 0 && filter_out % (in / filter_in) != 0)
        return status_invalid(
            "Depth of output (%lld) is not a multiple of the number of groups (%lld)",
            (long long)filter_out, (long long)(in / filter_in));
    return NULL;
}

static struct status *shape_conv_of(struct shape_inference *ctx, int n_spatial) {
    struct window_attrs attrs;
    int64_t in[WINDOW_MAX_RANK], filter[WINDOW_MAX_RANK];
    int rank = n_spatial + 2;
    TRY(window_attrs_read(ctx->node, n_spatial, &attrs));
    TRY(shape_require_rank(ctx, 0, rank, NULL));
    TRY(shape_require_rank(ctx, 1, rank, NULL));
    shape_dims_or_unknown(ctx->in[0], rank, in);
    shape_dims_or_unknown(ctx->in[1], rank, filter);
    TRY(check_groups(in[window_channel_dim(&attrs)], filter[n_spatial], filter[n_spatial + 1]));
    return shape_of_positions(ctx, &attrs, filter, filter[n_spatial + 1], 0);
}

struct status *shape_conv(struct shape_inference *ctx) {
    return shape_conv_of(ctx, spatial_of(ctx->node));
}

/* Conv: any number of batch dimensions, which are kept. */
static struct status *shape_general_conv(struct shape_inference *ctx) {
    int64_t batch_dims;
    const struct attr_value *strides;
    int n_strides;
    TRY(node_get_i(ctx->node, "batch_dims", &batch_dims));
    TRY(node_get_list(ctx->node, "strides", &strides, &n_strides));
    int n_spatial = n_strides - 2;
    if (n_spatial != 2 && n_spatial != 3)
        return status_invalid("The input must have 2 or 3 spatial dimensions but got %d",
                              n_spatial);
    if (batch_dims == 1)
        return shape_conv_of(ctx, n_spatial);
    struct shape in = ctx->in[0];
    if (in.rank < 0)
        return NULL;
    if (batch_dims < 0 || in.rank - n_spatial - 1 != batch_dims)
        return status_invalid("Input tensor must have %lld batch dimensions, %d spatial dimensions "
                              "and channels, but is rank %d",
                              (long long)batch_dims, n_spatial, in.rank);
    struct shape folded[2], out = SHAPE_UNKNOWN;
    int64_t dims[WINDOW_MAX_RANK] = {-1};
    memcpy(dims + 1, in.dims + batch_dims, (size_t)(n_spatial + 1) * sizeof(*dims));
    folded[0] = (struct shape){n_spatial + 2, dims};
    folded[1] = ctx->in[1];
    struct shape_inference inner = *ctx;
    inner.in = folded;
    inner.out = &out;
    TRY(shape_conv_of(&inner, n_spatial));
    return shape_concat(ctx, shape_sub(ctx, in, 0, (int)batch_dims), shape_sub(ctx, out, 1, -1),
                        &ctx->out[0]);
}

/* The shapes of gradients are those that their size inputs state. filter and out_backprop are
 * checked by the kernels only, except for the input gradient of 2-D convolution. */
static struct status *shape_conv_backprop_filter(struct shape_inference *ctx) {
    return shape_of_sizes(ctx, 1, spatial_of(ctx->node) + 2);
}

static struct status *shape_conv_backprop_input(struct shape_inference *ctx) {
    return shape_of_sizes(ctx, 0, spatial_of(ctx->node) + 2);
}

/* When input_sizes has height and width only, batch and depth are those of the gradient and the
 * filter. */
static struct status *shape_conv2d_backprop_input(struct shape_inference *ctx) {
    struct window_attrs attrs;
    struct shape sizes = ctx->in[0], size;
    int64_t filter[4], gradient[4];
    TRY(window_attrs_read(ctx->node, 2, &attrs));
    TRY(shape_require_rank(ctx, 1, 4, NULL));
    TRY(shape_require_rank(ctx, 2, 4, NULL));
    if (sizes.rank == 1 && sizes.dims[0] < 0) { /* may have two or four values */
        ctx->out[0] = shape_unknown_of_rank(ctx, 4);
        return NULL;
    }
    if (sizes.rank != 1 || sizes.dims[0] != 2)
        return shape_of_sizes(ctx, 0, 4);
    TRY(shape_from_input(ctx, 0, &size));
    shape_dims_or_unknown(ctx->in[1], 4, filter);
    shape_dims_or_unknown(ctx->in[2], 4, gradient);
    ctx->out[0] = shape_make(ctx, 4,
                             (int64_t[]){gradient[0], size.rank == 2 ? size.dims[0] : -1,
                                         size.rank == 2 ? size.dims[1] : -1, filter[2]});
    return NULL;
}

/* The first forms for three dimensions take the tensor itself where later forms take its sizes. */
static struct status *shape_conv3d_backprop_v1(struct shape_inference *ctx) {
    int operand = strstr(ctx->node->op_name, "Input") ? 0 : 1;
    return shape_require_rank(ctx, operand, 5, &ctx->out[0]);
}

static struct status *shape_depthwise(struct shape_inference *ctx) {
    struct window_attrs attrs;
    int64_t in[4], filter[4], channels = -1;
    TRY(window_attrs_read(ctx->node, 2, &attrs));
    TRY(shape_require_rank(ctx, 0, 4, NULL));
    TRY(shape_require_rank(ctx, 1, 4, NULL));
    shape_dims_or_unknown(ctx->in[0], 4, in);
    shape_dims_or_unknown(ctx->in[1], 4, filter);
    TRY(shape_merge_dims(in[window_channel_dim(&attrs)], filter[2], &channels));
    if (channels >= 0 && filter[3] >= 0 && mul_overflows_i64(channels, filter[3], &channels))
        return status_invalid("depth_multiplier * in_depth overflows");
    return shape_of_positions(ctx, &attrs, filter, filter[3] < 0 ? -1 : channels, 0);
}

/* ---- morphological dilation, patches ---- */

static struct status *shape_dilation(struct shape_inference *ctx) {
    struct window_attrs attrs;
    int64_t in[4], filter[3], channels;
    TRY(window_attrs_read(ctx->node, 2, &attrs));
    TRY(shape_require_rank(ctx, 0, 4, NULL));
    TRY(shape_require_rank(ctx, 1, 3, NULL));
    shape_dims_or_unknown(ctx->in[0], 4, in);
    shape_dims_or_unknown(ctx->in[1], 3, filter);
    TRY(shape_merge_dims(in[3], filter[2], &channels));
    return shape_of_positions(ctx, &attrs, filter, channels, 0);
}

static struct status *shape_as_filter(struct shape_inference *ctx) {
    ctx->out[0] = ctx->in[1];
    return NULL;
}

static struct status *shape_patches(struct shape_inference *ctx) {
    struct window_attrs attrs;
    int n_spatial = spatial_of(ctx->node);
    int64_t in[WINDOW_MAX_RANK], channels;
    TRY(window_attrs_read(ctx->node, n_spatial, &attrs));
    TRY(shape_require_rank(ctx, 0, n_spatial + 2, NULL));
    shape_dims_or_unknown(ctx->in[0], n_spatial + 2, in);
    channels = in[n_spatial + 1];
    for (int i = 0; i < n_spatial && channels >= 0; i++) {
        if (mul_overflows_i64(channels, attrs.size.spatial[i], &channels))
            return status_invalid("Depth of the patches is beyond 2**63 - 1");
    }
    int64_t dims[WINDOW_MAX_RANK] = {in[0]};
    for (int i = 0; i < n_spatial; i++) { /* a window that does not fit is no error here */
        struct window_fit fit = {.out = -1};
        if (in[1 + i] >= 0)
            TRY(window_fit(&attrs, i, in[1 + i], attrs.size.spatial[i], &fit));
        dims[1 + i] = fit.out;
    }
    dims[n_spatial + 1] = channels;
    ctx->out[0] = shape_make(ctx, n_spatial + 2, dims);
    return NULL;
}

/* ---- rows ---- */

// clang-format off
static const struct op_def rows[] = {
    {"Conv2D", "convolution of images with filters", shape_conv},
    {"Conv2DBackpropInput", "gradient of Conv2D with respect to its input",
     shape_conv2d_backprop_input},
    {"Conv2DBackpropFilter", "gradient of Conv2D with respect to its filter",
     shape_conv_backprop_filter},
    {"Conv3D", "convolution of volumes with filters", shape_conv},
    {"Conv3DBackpropInput", "gradient of Conv3D with respect to its input, which gives the shape",
     shape_conv3d_backprop_v1},
    {"Conv3DBackpropInputV2", "gradient of Conv3D with respect to its input",
     shape_conv_backprop_input},
    {"Conv3DBackpropFilter", "gradient of Conv3D with respect to its filter, which gives the shape",
     shape_conv3d_backprop_v1},
    {"Conv3DBackpropFilterV2", "gradient of Conv3D with respect to its filter",
     shape_conv_backprop_filter},
    {"Conv", "convolution over two or three dimensions, with any number of batch dimensions",
     shape_general_conv},
    {"DepthwiseConv2dNative", "convolution of each channel with filters of its own",
     shape_depthwise},
    {"DepthwiseConv2dNativeBackpropInput",
     "gradient of DepthwiseConv2dNative with respect to its input", shape_conv_backprop_input},
    {"DepthwiseConv2dNativeBackpropFilter",
     "gradient of DepthwiseConv2dNative with respect to its filter", shape_conv_backprop_filter},
    {"Dilation2D", "greatest sum of input and filter under a sliding window", shape_dilation},
    {"Dilation2DBackpropInput", "gradient of Dilation2D with respect to its input",
     shape_same_as_input},
    {"Dilation2DBackpropFilter", "gradient of Dilation2D with respect to its filter",
     shape_as_filter},
    {"ExtractImagePatches", "patches of images under a sliding window, as channels", shape_patches},
    {"ExtractVolumePatches", "patches of volumes under a sliding window, as channels",
     shape_patches},
    {"DataFormatDimMap", "the index of a dimension in another data format", shape_same_as_input},
    {"DataFormatVecPermute",
     "a vector with one entry per dimension, in the order of another data format",
     shape_same_as_input},
};
// clang-format on

const struct op_def_list conv_ops = {rows, ARRAY_LEN(rows)};
