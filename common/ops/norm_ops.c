/* Lists the normalisation family: the forms of batch normalisation, and local response
 * normalisation. */
#include "common/ops/op_def.h"

/* The index of the channels; -1 while the rank is unknown. Ops for volumes and images share it. */
static struct status *channel_of(struct shape_inference *ctx, int input, int *ret) {
    struct span format;
    struct shape x = ctx->in[input];
    TRY(node_get_s(ctx->node, "data_format", &format));
    if (x.rank >= 0 && x.rank != (int)format.len)
        return status_invalid("Shape must be rank %d but is rank %d", (int)format.len, x.rank);
    *ret = format.data[1] == 'C' ? 1 : (int)format.len - 1;
    return NULL;
}

/* x with its channels merged with those of the vectors among inputs [first, last]. */
static struct status *merge_channels(struct shape_inference *ctx, int x, int first, int last,
                                     int64_t *ret_channels) {
    int channel;
    struct shape vector;
    TRY(channel_of(ctx, x, &channel));
    *ret_channels = ctx->in[x].rank < 0 ? -1 : ctx->in[x].dims[channel];
    for (int i = first; i <= last; i++) {
        TRY(shape_require_rank(ctx, i, 1, &vector));
        TRY(shape_merge_dims(*ret_channels, vector.dims[0], ret_channels));
    }
    ctx->out[0] = ctx->in[x];
    if (ctx->in[x].rank < 0) {
        struct span format;
        TRY(node_get_s(ctx->node, "data_format", &format));
        ctx->out[0] = shape_unknown_of_rank(ctx, (int)format.len);
    }
    int64_t *dims =
        arena_memdup(ctx->arena, ctx->out[0].dims, (size_t)ctx->out[0].rank * sizeof(*dims));
    dims[channel] = *ret_channels;
    ctx->out[0].dims = dims;
    return NULL;
}

static struct status *shape_batch_norm(struct shape_inference *ctx) {
    bool is_training;
    int64_t channels;
    float factor = 1;
    TRY(node_get_b(ctx->node, "is_training", &is_training));
    if (node_attr(ctx->node, "exponential_avg_factor"))
        TRY(node_get_f(ctx->node, "exponential_avg_factor", &factor));
    TRY(merge_channels(ctx, 0, 1, is_training && factor == 1 ? 2 : 4, &channels));
    for (int i = 1; i < 5; i++)
        ctx->out[i] = shape_make(ctx, 1, &channels);
    return NULL; /* the kernel alone decides the shape of the third reserve */
}

static struct status *shape_batch_norm_grad(struct shape_inference *ctx) {
    const int64_t none = 0;
    int64_t channels;
    int channel;
    TRY(channel_of(ctx, 0, &channel));
    TRY(channel_of(ctx, 1, &channel));
    TRY(merge_channels(ctx, 1, 2, 4, &channels));
    if (ctx->in[0].rank >= 0)
        TRY(shape_merge_dims(channels, ctx->in[0].dims[channel], &channels));
    TRY(shape_merge(ctx, ctx->out[0], ctx->in[0], &ctx->out[0]));
    ctx->out[1] = ctx->out[2] = shape_make(ctx, 1, &channels);
    ctx->out[3] = ctx->out[4] = shape_make(ctx, 1, &none);
    return NULL;
}

static struct status *merge_depth(struct shape_inference *ctx, int last, struct shape *ret_image,
                                  struct shape *ret_vector) {
    struct shape image, vector;
    TRY(shape_require_rank(ctx, 0, 4, &image));
    int64_t depth = image.dims[3];
    for (int i = 1; i <= last; i++) {
        TRY(shape_require_rank(ctx, i, 1, &vector));
        TRY(shape_merge_dims(depth, vector.dims[0], &depth));
    }
    int64_t dims[4] = {image.dims[0], image.dims[1], image.dims[2], depth};
    *ret_image = shape_make(ctx, 4, dims);
    *ret_vector = shape_make(ctx, 1, &depth);
    return NULL;
}

static struct status *shape_global_norm(struct shape_inference *ctx) {
    struct shape vector;
    return merge_depth(ctx, 4, &ctx->out[0], &vector);
}

static struct status *shape_global_norm_grad(struct shape_inference *ctx) {
    struct shape image, vector, backprop;
    TRY(merge_depth(ctx, 3, &image, &vector));
    TRY(shape_require_rank(ctx, 4, 4, &backprop));
    TRY(shape_merge(ctx, image, backprop, &ctx->out[0]));
    for (int i = 1; i < 5; i++)
        ctx->out[i] = vector;
    return NULL;
}

static struct status *shape_lrn(struct shape_inference *ctx) {
    return shape_require_rank(ctx, 0, 4, &ctx->out[0]);
}

static struct status *shape_lrn_grad(struct shape_inference *ctx) {
    struct shape shapes[3];
    for (int i = 0; i < 3; i++)
        TRY(shape_require_rank(ctx, i, 4, &shapes[i]));
    TRY(shape_merge(ctx, shapes[0], shapes[1], &ctx->out[0]));
    return shape_merge(ctx, ctx->out[0], shapes[2], &ctx->out[0]);
}

// clang-format off
static const struct op_def rows[] = {
    {"FusedBatchNorm",
     "batch normalisation: mean 0 and variance 1 per channel, then scale and offset",
     shape_batch_norm},
    {"FusedBatchNormV2", "batch normalisation whose statistics have a type of their own",
     shape_batch_norm},
    {"FusedBatchNormV3", "batch normalisation of images or volumes", shape_batch_norm},
    {"FusedBatchNormGrad", "gradient of FusedBatchNorm", shape_batch_norm_grad},
    {"FusedBatchNormGradV2", "gradient of FusedBatchNormV2", shape_batch_norm_grad},
    {"FusedBatchNormGradV3", "gradient of FusedBatchNormV3", shape_batch_norm_grad},
    {"BatchNormWithGlobalNormalization", "batch normalisation with given statistics; deprecated",
     shape_global_norm},
    {"BatchNormWithGlobalNormalizationGrad", "gradient of BatchNormWithGlobalNormalization",
     shape_global_norm_grad},
    {"LRN", "local response normalisation across channels", shape_lrn},
    {"LRNGrad", "gradient of LRN", shape_lrn_grad},
};
// clang-format on

const struct op_def_list norm_ops = {rows, ARRAY_LEN(rows)};
