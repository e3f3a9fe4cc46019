/* Convolutions whose filters are as clients have them: [window, in, out].
 *
 * cuDNN reads a filter as [out, window, in] where channels are last, and as [out, in, window] where
 * they are first, whatever strides describe it: a filter described by other strides is computed
 * with, without an error, as if it were stored so. So it is transposed into scratch memory before,
 * or a gradient out of it after, the convolution.
 *
 * Some of its engines for a filter's gradient know one padding for both sides. Where the image that
 * they then imagine has another number of places for the window, they read beyond it, so the image
 * is padded here. */
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

static struct status *convolve(struct kernel_ctx *ctx, const struct conv_job *job) {
    const struct conv_shape *s = job->shape;
    struct conv_operands operands = *job->operands;
    struct conv_job packed = *job;
    struct buffer *filter = NULL;
    int64_t n_window_in = conv_n_positions(s->window) * s->in_channels / s->groups;
    packed.operands = &operands;
    if ((s->out_channels == 1 && !dnn_filter_is_channels_first(job)) || n_window_in == 1)
        return gpu_convolve(ctx, job); /* both are stored alike */
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

/* ---- padding ---- */

static bool needs_padding(const struct conv_job *job) {
    const struct conv_shape *s = job->shape;
    for (int i = 0; i < 3; i++) {
        int64_t space = s->in[i] + 2 * s->pad_before[i] - (s->window[i] - 1) * s->rate[i] - 1;
        if (space < 0 || space / s->stride[i] + 1 != s->out[i])
            return job->direction == CONV_BACKPROP_FILTER;
    }
    return false;
}

/* The shape whose image has the padding, and the size of this image. */
static struct status *pad_shape(const struct conv_job *job, struct conv_shape *ret,
                                size_t *ret_size_bytes) {
    const struct conv_shape *s = job->shape;
    int64_t n = s->batch * s->in_channels, size_bytes;
    bool is_too_large = false;
    *ret = *s;
    for (int i = 0; i < 3; i++) {
        int64_t end = (s->out[i] - 1) * s->stride[i] + (s->window[i] - 1) * s->rate[i] + 1;
        ret->in[i] = MAX(s->in[i] + s->pad_before[i], end);
        ret->pad_before[i] = 0;
        is_too_large |= mul_overflows_i64(n, ret->in[i], &n);
    }
    if (mul_overflows_i64(n, (int64_t)dtype_size(job->dtype), &size_bytes) || is_too_large)
        return status_exhausted("the padded image of this convolution has too many elements");
    *ret_size_bytes = (size_t)size_bytes;
    return NULL;
}

/* Copies an image into the middle of a larger one. */
static struct status *place(struct kernel_ctx *ctx, const struct conv_job *job,
                            const struct conv_shape *padded, char *to) {
    const struct conv_shape *s = job->shape;
    bool is_first = job->is_channels_first;
    struct device_move move = {.n_loops = 5, .from = job->operands->in};
    int64_t from = is_first ? 1 : s->in_channels, at = from, before = 0;
    for (int i = 2; i >= 0; i--) {
        move.dims[2 + i] = s->in[i];
        move.from_strides[2 + i] = from;
        move.to_strides[2 + i] = at;
        before += s->pad_before[i] * at;
        from *= s->in[i];
        at *= padded->in[i];
    }
    move.dims[1] = s->in_channels;
    move.from_strides[1] = is_first ? from : 1;
    move.to_strides[1] = is_first ? at : 1;
    move.dims[0] = s->batch;
    move.from_strides[0] = conv_n_positions(s->in) * s->in_channels;
    move.to_strides[0] = conv_n_positions(padded->in) * s->in_channels;
    move.to = to + (size_t)before * dtype_size(job->dtype);
    return engine_move(ctx, dtype_size(job->dtype), &move, 1);
}

struct status *engine_convolve(struct kernel_ctx *ctx, const struct conv_job *job) {
    struct conv_shape shape;
    struct conv_operands operands = *job->operands;
    struct conv_job padded = *job;
    struct buffer *image;
    size_t size_bytes;
    if (job->dtype == DT_INT32) /* cuDNN has none */
        return engine_convolve_directly(ctx, job);
    if (!needs_padding(job))
        return convolve(ctx, job);
    TRY(pad_shape(job, &shape, &size_bytes));
    TRY(gpu_scratch(ctx, size_bytes, &image));
    struct status *st = gpu_zero(ctx, image->data, size_bytes);
    if (!st)
        st = place(ctx, job, &shape, image->data);
    operands.in = image->data;
    padded.operands = &operands;
    padded.shape = &shape;
    if (!st)
        st = convolve(ctx, &padded);
    buffer_unref(image);
    return st;
}
