/* Convolutions whose filters are as clients have them: [window, in, out].
 *
 * cuDNN reads a filter as [out, window, in] where channels are last, and as [out, in, window] where
 * they are first, whatever strides describe it: a filter described by other strides is computed
 * with, without an error, as if it were stored so. So it is transposed into scratch memory before,
 * or a gradient out of it after, the convolution. */
#include "kernels/cpu/nn/conv.h"
#include "kernels/cuda/dnn.h"
#include "kernels/cuda/ops/engine_internal.h"

/* The loops of both copies: from the client's filter to cuDNN's. */
static struct device_move packing(const struct conv_job *job) {
    const struct conv_shape *s = job->shape;
    int64_t n_window = conv_n_positions(s->window), n_in = s->in_channels / s->groups,
            n_out = s->out_channels;
    struct device_move move = {.n_loops = 3,
                               .dims = {n_out, n_window, n_in},
                               .from_strides = {1, n_in * n_out, n_out},
                               .to_strides = {n_window * n_in, n_in, 1}};
    if (dnn_filter_is_channels_first(job)) {
        move.to_strides[1] = 1;
        move.to_strides[2] = n_window;
    }
    return move;
}

static struct status *pack(struct kernel_ctx *ctx, const struct conv_job *job, const void *from,
                           void *to) {
    struct device_move move = packing(job);
    move.from = from;
    move.to = to;
    return engine_move(ctx, dtype_size(job->dtype), &move, 1);
}

static struct status *unpack(struct kernel_ctx *ctx, const struct conv_job *job, const void *from,
                             void *to) {
    struct device_move move = packing(job);
    for (int i = 0; i < move.n_loops; i++) {
        int64_t stride = move.from_strides[i];
        move.from_strides[i] = move.to_strides[i];
        move.to_strides[i] = stride;
    }
    move.from = from;
    move.to = to;
    return engine_move(ctx, dtype_size(job->dtype), &move, 1);
}

struct status *engine_convolve(struct kernel_ctx *ctx, const struct conv_job *job) {
    const struct conv_shape *s = job->shape;
    struct conv_operands operands = *job->operands;
    struct conv_job packed = *job;
    struct buffer *filter = NULL;
    int64_t n_window_in = conv_n_positions(s->window) * s->in_channels / s->groups;
    packed.operands = &operands;
    if (s->out_channels == 1 && !dnn_filter_is_channels_first(job))
        return gpu_convolve(ctx, job); /* both are stored alike */
    if (n_window_in == 1)
        return gpu_convolve(ctx, job);
    TRY(gpu_scratch(ctx, (size_t)(n_window_in * s->out_channels) * dtype_size(job->dtype),
                    &filter));
    struct status *st = NULL;
    if (job->direction == CONV_BACKPROP_FILTER) {
        operands.result = filter->data;
        st = gpu_convolve(ctx, &packed);
        if (!st)
            st = unpack(ctx, job, filter->data, job->operands->result);
    } else {
        operands.filter = filter->data;
        st = pack(ctx, job, job->operands->filter, filter->data);
        if (!st)
            st = gpu_convolve(ctx, &packed);
    }
    buffer_unref(filter);
    return st;
}
