/* Launches the kernels of pooling.cu, and chooses between them and those of images in packs. */
#include "kernels/cpu/nn/pooling.h"
#include "kernels/cuda/ops/engine_internal.h"
#include "kernels/cuda/ops/pooling_args.h"

static struct gpu_stem max_stem = {"pool_max"}, mean_stem = {"pool_mean"};
static struct gpu_stem argmax_stem = {"pool_argmax"}, first_stem = {"pool_first"};
static struct gpu_stem max_grad_stem = {"pool_max_grad"}, equal_grad_stem = {"pool_equal_grad"};
static struct gpu_stem grad_grad_stem = {"pool_grad_grad"}, mean_grad_stem = {"pool_mean_grad"};

struct window_grid engine_window_grid(const int64_t dims[3], int64_t batch, int64_t channels,
                                      bool is_channels_first) {
    struct window_grid grid = {.image = dims[0] * dims[1] * dims[2] * channels};
    int64_t pixel = is_channels_first ? 1 : channels;
    int64_t innermost_first[4] = {dims[2], dims[1], dims[0], channels};
    grid.channel_stride = is_channels_first ? dims[0] * dims[1] * dims[2] : 1;
    for (int i = 0; i < 3; i++)
        grid.dims[i] = dims[i];
    grid.strides[2] = pixel;
    grid.strides[1] = dims[2] * pixel;
    grid.strides[0] = dims[1] * dims[2] * pixel;
    for (int i = 0; i < 4; i++)
        grid.sizes[i] =
            gpu_divisor_of(MAX(innermost_first[is_channels_first ? i : (i + 3) % 4], (int64_t)1),
                           grid.image * batch);
    return grid;
}

static struct gpu_stem *stem_of(const struct pooling_job *job) {
    switch (job->kind) {
    case POOLING_MAX:
        return &max_stem;
    case POOLING_AVG:
        return &mean_stem;
    case POOLING_ARGMAX:
        return &argmax_stem;
    case POOLING_MAX_GRAD:
        return job->n_spatial == 3 ? &equal_grad_stem : &max_grad_stem;
    case POOLING_MAX_GRAD_GRAD:
        return &grad_grad_stem;
    default:
        return &mean_grad_stem;
    }
}

/* The first greatest tap of each window, once for all elements of the gradient. */
static struct status *find_first(struct kernel_ctx *ctx, const char *suffix,
                                 struct pooling_args *args, int64_t n_out, struct buffer **ret) {
    int64_t n = args->n;
    if (n_out == 0)
        return NULL;
    TRY(gpu_scratch(ctx, (size_t)n_out * sizeof *args->first, ret));
    args->first = (int32_t *)(void *)(*ret)->data;
    args->n = n_out;
    struct status *st = engine_launch_for(ctx, &first_stem, suffix, n_out, args);
    args->n = n;
    return st;
}

/* A thread counts beyond the last element by as many as there are threads, and a window reaches
 * beyond an image. */
static bool counts_fit(const struct conv_shape *s, int64_t n_in, int64_t n_out) {
    enum { MOST = 1 << 30 };
    bool fits = n_in < MOST && n_out < MOST;
    for (int i = 0; i < 3; i++)
        fits &= s->in[i] + s->pad_before[i] + s->window[i] + s->stride[i] < MOST &&
                s->out[i] * s->stride[i] < MOST;
    return fits;
}

struct status *engine_pool(struct kernel_ctx *ctx, const struct pooling_job *job) {
    const struct conv_shape *s = job->shape;
    bool is_backward = job->kind == POOLING_MAX_GRAD || job->kind == POOLING_AVG_GRAD;
    const char *suffix = job->dtype == DT_QINT8 ? "i8" : gpu_dtype_suffix(job->dtype);
    struct pooling_args args = {
        .in = job->in,
        .out = job->out,
        .gradient = job->gradient,
        .result = job->result,
        .argmax = job->argmax,
        .from = engine_window_grid(s->in, s->batch, s->in_channels, job->is_channels_first),
        .to = engine_window_grid(s->out, s->batch, s->in_channels, job->is_channels_first),
        .is_channels_first = job->is_channels_first,
        .is_argmax_wide = job->is_argmax_wide,
        .counts_batch = job->counts_batch,
        .reaches_end = job->kind == POOLING_AVG_GRAD && job->n_spatial == 2,
    };
    int64_t n_in = args.from.image * s->batch, n_out = args.to.image * s->batch;
    struct buffer *first = NULL;
    struct status *st = NULL;
    args.n = is_backward ? n_in : n_out;
    args.is_small = counts_fit(s, n_in, n_out);
    if (args.is_small && engine_pools_images(job))
        return engine_pool_images(ctx, job);
    for (int i = 0; i < 3; i++) {
        args.window[i] = s->window[i];
        args.stride[i] = s->stride[i];
        args.pad[i] = s->pad_before[i];
        args.by_stride[i] = gpu_divisor_of(s->stride[i], s->in[i] + s->pad_before[i] + 1);
    }
    if (job->kind == POOLING_MAX_GRAD && job->n_spatial < 3) {
        if (conv_n_positions(s->in) > INT32_MAX)
            return status_unimplemented("MaxPoolGrad on a GPU takes images of up to 2^31 pixels");
        st = find_first(ctx, suffix, &args, n_out, &first);
    }
    if (!st)
        st = engine_launch_for(ctx, stem_of(job), suffix, args.n, &args);
    buffer_unref(first);
    return st;
}
