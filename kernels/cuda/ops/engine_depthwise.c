/* Launches the kernels of depthwise.cu. */
#include "kernels/cpu/nn/conv.h"
#include "kernels/cuda/ops/depthwise_args.h"
#include "kernels/cuda/ops/engine_internal.h"

static struct gpu_stem forward_stem = {"depthwise_forward"}, merge_stem = {"depthwise_merge"};
static struct gpu_stem backprop_input_stem = {"depthwise_backprop_input"};
static struct gpu_stem sums_stem = {"depthwise_sums"};

/* Pixels that a thread adds up, at least, and blocks that keep a device busy. */
enum { PIXELS_OF_THREAD = 8, MOST_BLOCKS = 1024 };

static int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

static struct status *backprop_filter(struct kernel_ctx *ctx, const struct conv_job *job,
                                      struct depthwise_args *args) {
    const struct conv_shape *s = job->shape;
    const char *suffix = gpu_dtype_suffix(job->dtype);
    int64_t image = s->out[1] * s->out[2], n_taps = s->window[1] * s->window[2];
    args->n = n_taps * s->out_channels;
    args->n_pixels = s->batch * image;
    args->row = gpu_divisor_of(image, args->n_pixels + 1);
    args->column = gpu_divisor_of(s->out[2], args->n_pixels + 1);
    args->width = 1;
    while (!job->is_channels_first && args->width < DEPTHWISE_MAX_WIDTH &&
           args->width < s->out_channels)
        args->width *= 2;
    int64_t n_groups = divided_up(s->out_channels, args->width) * n_taps;
    int64_t wanted = divided_up(args->n_pixels, DEPTHWISE_THREADS / args->width * PIXELS_OF_THREAD);
    args->n_chunks = MIN(wanted, MAX(MOST_BLOCKS / n_groups, (int64_t)1));
    args->chunk = divided_up(args->n_pixels, args->n_chunks);
    args->n_chunks = divided_up(args->n_pixels, args->chunk);
    struct buffer *sums;
    size_t size = job->dtype == DT_DOUBLE ? sizeof(double) : sizeof(float);
    TRY(gpu_scratch(ctx, (size_t)(args->n_chunks * args->n) * size, &sums));
    args->sums = sums->data;
    struct gpu_grid grid = {.n_blocks = (unsigned)(args->n_chunks * n_groups),
                            .n_threads = DEPTHWISE_THREADS};
    struct status *st = engine_launch(ctx, &sums_stem, suffix, grid, args);
    if (!st)
        st = engine_launch_for(ctx, &merge_stem, suffix, args->n, args);
    buffer_unref(sums);
    return st;
}

struct status *engine_depthwise(struct kernel_ctx *ctx, const struct conv_job *job) {
    const struct conv_shape *s = job->shape;
    const char *suffix = gpu_dtype_suffix(job->dtype);
    bool is_first = job->is_channels_first;
    struct depthwise_args args = {
        .in = job->operands->in,
        .filter = job->operands->filter,
        .out = job->operands->out,
        .result = job->operands->result,
        .from = engine_window_grid(s->in, s->batch, s->in_channels, is_first),
        .to = engine_window_grid(s->out, s->batch, s->out_channels, is_first),
        .multiplier = gpu_divisor_of(s->out_channels / s->in_channels, s->out_channels + 1),
        .out_channels = s->out_channels,
        .is_channels_first = is_first};
    for (int i = 0; i < 3; i++) {
        args.window[i] = s->window[i];
        args.stride[i] = s->stride[i];
        args.pad[i] = s->pad_before[i];
        args.by_stride[i] = gpu_divisor_of(s->stride[i], s->in[i] + s->pad_before[i] + 1);
    }
    if (job->direction == CONV_BACKPROP_FILTER)
        return backprop_filter(ctx, job, &args);
    bool is_forward = job->direction == CONV_FORWARD;
    args.n = s->batch * (is_forward ? args.to.image : args.from.image);
    return engine_launch_for(ctx, is_forward ? &forward_stem : &backprop_input_stem, suffix, args.n,
                             &args);
}
