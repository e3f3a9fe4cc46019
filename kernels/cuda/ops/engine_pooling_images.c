/* Launches the kernels of pooling_images.cu: pooling of images with channels last whose elements
 * come in whole, aligned packs. */
#include "kernels/cpu/nn/pooling.h"
#include "kernels/cuda/ops/engine_internal.h"

/* By the side of a square window that a kernel is compiled for, or by how many windows may cover a
 * pixel along a dimension; the first of each is for any. */
static struct gpu_stem max_stems[] = {{"image_max"}, {NULL}, {"image_max2"}, {"image_max3"}};
static struct gpu_stem mean_stem = {"image_mean"}, argmax_stem = {"image_argmax"};
static struct gpu_stem separate_stems[] = {
    {"image_max_grad_apart"}, {NULL}, {"image_max_grad_apart2"}, {NULL}};
static struct gpu_stem first_stems[] = {{"image_first"}, {NULL}, {NULL}, {"image_first3"}};
static struct gpu_stem max_grad_stems[] = {
    {"image_max_grad"}, {NULL}, {"image_max_grad2"}, {"image_max_grad3"}};
static struct gpu_stem mean_grad_stem = {"image_mean_grad"};

static struct gpu_stem *stem_for(struct gpu_stem stems[4], int64_t size) {
    return size < 4 && stems[size].name ? &stems[size] : &stems[0];
}

bool engine_pools_images(const struct pooling_job *job) {
    const struct conv_shape *s = job->shape;
    int64_t pixel_bytes = s->in_channels * (int64_t)dtype_size(job->dtype);
    uintptr_t addresses = (uintptr_t)job->in | (uintptr_t)job->gradient | (uintptr_t)job->result;
    bool is_wide = s->window[1] > s->in[1] || s->window[2] > s->in[2];
    bool has_kernel =
        job->kind == POOLING_MAX || job->kind == POOLING_AVG || job->kind == POOLING_ARGMAX ||
        (job->kind == POOLING_AVG_GRAD && !is_wide) ||
        (job->kind == POOLING_MAX_GRAD && conv_n_positions(s->window) <= IMAGE_MAX_TAPS);
    return has_kernel && conv_n_positions(s->window) <= INT32_MAX && job->n_spatial == 2 &&
           !job->is_channels_first && job->dtype != DT_QINT8 &&
           pixel_bytes % IMAGE_PACK_BYTES == 0 && addresses % IMAGE_PACK_BYTES == 0 &&
           conv_n_positions(s->in) > 0 && conv_n_positions(s->out) > 0;
}

static struct image_pool_args args_of(const struct pooling_job *job) {
    const struct conv_shape *s = job->shape;
    int64_t n_packs = s->in_channels * (int64_t)dtype_size(job->dtype) / IMAGE_PACK_BYTES;
    struct image_pool_args args = {
        .in = job->in,
        .gradient = job->gradient,
        .result = job->result,
        .argmax = job->argmax,
        .n_packs = (int32_t)n_packs,
        .by_packs = gpu_divisor_of(n_packs, INT32_MAX),
        .from_image = (int32_t)(conv_n_positions(s->in) * n_packs),
        .to_image = (int32_t)(conv_n_positions(s->out) * n_packs),
        .is_argmax_wide = job->is_argmax_wide,
        .counts_batch = job->counts_batch,
    };
    for (int i = 0; i < 2; i++) {
        args.from[i] = (int32_t)s->in[i + 1];
        args.to[i] = (int32_t)s->out[i + 1];
        args.window[i] = (int32_t)s->window[i + 1];
        args.stride[i] = (int32_t)s->stride[i + 1];
        args.pad[i] = (int32_t)s->pad_before[i + 1];
        args.by_stride[i] = gpu_divisor_of(s->stride[i + 1], INT32_MAX);
    }
    return args;
}

/* Launches a kernel with a thread for each pack of the op's input or output. */
static struct status *launch(struct kernel_ctx *ctx, struct gpu_stem *stem,
                             const struct pooling_job *job, const int32_t dims[2],
                             struct image_pool_args *args) {
    args->by_rows = gpu_divisor_of(dims[0], INT32_MAX);
    args->by_columns = gpu_divisor_of(dims[1], INT32_MAX);
    args->n = (int32_t)job->shape->batch * dims[0] * dims[1] * args->n_packs;
    return engine_launch_for(ctx, stem, gpu_dtype_suffix(job->dtype), args->n, args);
}

/* The side of a square window, otherwise 0. */
static int64_t side_of(const struct conv_shape *s) {
    return s->window[1] == s->window[2] ? s->window[1] : 0;
}

/* How many windows may cover a pixel along a dimension. */
static int64_t most_windows(const struct conv_shape *s) {
    int64_t most = 1;
    for (int i = 1; i < 3; i++)
        most = MAX(most, (s->window[i] + s->stride[i] - 1) / s->stride[i]);
    return most;
}

static struct status *max_grad(struct kernel_ctx *ctx, const struct pooling_job *job,
                               struct image_pool_args *args) {
    const struct conv_shape *s = job->shape;
    int64_t span = most_windows(s), side = side_of(s);
    if (span == 1)
        return launch(ctx, stem_for(separate_stems, side), job, args->to, args);
    struct buffer *taps = NULL;
    TRY(gpu_scratch(ctx, (size_t)(conv_n_positions(s->out) * s->batch * s->in_channels), &taps));
    args->taps = taps->data;
    struct status *st = launch(ctx, stem_for(first_stems, side), job, args->to, args);
    if (!st)
        st = launch(ctx, stem_for(max_grad_stems, span), job, args->from, args);
    buffer_unref(taps);
    return st;
}

struct status *engine_pool_images(struct kernel_ctx *ctx, const struct pooling_job *job) {
    struct image_pool_args args = args_of(job);
    switch (job->kind) {
    case POOLING_MAX:
        return launch(ctx, stem_for(max_stems, side_of(job->shape)), job, args.to, &args);
    case POOLING_AVG:
        return launch(ctx, &mean_stem, job, args.to, &args);
    case POOLING_ARGMAX:
        return launch(ctx, &argmax_stem, job, args.to, &args);
    case POOLING_MAX_GRAD:
        return max_grad(ctx, job, &args);
    default:
        return launch(ctx, &mean_grad_stem, job, args.from, &args);
    }
}
