/* Runs DepthwiseConv2dNative and its gradients: every input channel is convolved with filters of
 * its own.
 *
 *   input   T [batch, height, width, channels]
 *   filter  T [rows, columns, channels, multiplier]
 *   output  T [batch, out height, out width, channels · multiplier]
 *
 * For a multiplier above 1 the input's channels are repeated first, so that all loops have the same
 * number of channels on each side. As in TensorFlow's CPU kernels both strides are equal, channels
 * are the last dimension, and dilations are refused (the gradients ignore them). On a device
 * (device_engine.h) channels may be first: [batch, channels, height, width].
 * Errors   INVALID_ARGUMENT   ranks, channels and sizes that do not fit together
 *          UNIMPLEMENTED      channels first on a CPU, dilations
 * Cost     2 · elements of the output · elements of a filter, flops */
#include <stdlib.h>

#include "kernels/cpu/nn/conv_internal.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/dims.h"
#include "kernels/support/lanes.h"
#include "kernels/support/scratch.h"
#include "kernels/cpu/nn/widen.h"

enum { MANY_CHANNELS = 32, MAX_FILTER_SHARES = 16, MAX_TAP_ROWS = 64 };

/* One row of output pixels and the rows of taps that reach it. */
struct depthwise_row {
    const void *in[MAX_TAP_ROWS], *filter[MAX_TAP_ROWS];
    void *out;
    int64_t n_rows, channels, in_width, out_width, window, stride, pad;
};

struct depthwise_loops {
    void (*forward_row)(const struct depthwise_row *r);
    void (*backprop_row)(const struct depthwise_row *r);
    void (*filter_row)(const struct depthwise_row *r);
    void (*repeat)(const void *from, void *to, int64_t n, int64_t multiplier);
    void (*fold)(const void *from, void *to, int64_t n, int64_t multiplier);
    void (*add)(void *to, const void *from, int64_t n);
};

#define T float
#define NAME(x) x##_f32
#include "kernels/cpu/nn/depthwise_loops.inc"
#define T double
#define NAME(x) x##_f64
#include "kernels/cpu/nn/depthwise_loops.inc"

struct depthwise_state {
    enum conv_direction direction;
    struct window_attrs attrs;
    enum dtype dtype;
};

struct status *depthwise_init(struct kernel_init *init) {
    struct depthwise_state *state = xcalloc(1, sizeof(*state));
    struct window_attrs *attrs = &state->attrs;
    init->state = state;
    state->direction = *(const enum conv_direction *)init->arg;
    state->dtype = (enum dtype)init->node->out_types[0];
    TRY(window_attrs_read(init->node, 2, attrs));
    TRY(conv_check_image_strides(attrs));
    const struct window_list *rates = &attrs->rates;
    if (state->direction == CONV_FORWARD && (rates->batch != 1 || rates->channel != 1 ||
                                             rates->spatial[0] != 1 || rates->spatial[1] != 1))
        return status_unimplemented("Current kernel implementation does not support dilations, "
                                    "received [%lld %lld %lld %lld]",
                                    (long long)rates->batch, (long long)rates->spatial[0],
                                    (long long)rates->spatial[1], (long long)rates->channel);
    attrs->rates = (struct window_list){1, 1, {1, 1, 1}};
    return NULL;
}

/* ---- one execution ---- */

struct depthwise_job {
    const struct kernel_ctx *ctx;
    const struct depthwise_loops *loops;
    const struct conv_shape *shape; /* out_channels = channels · multiplier */
    int64_t multiplier, size;
    const char *in, *filter, *out;
    char *result;
    char *partials; /* the filter gradients of the shares */
    int64_t images_per_share;
    struct status *failure;
};

/* The number of elements in a row of input or of output pixels, with all channels repeated. */
static int64_t wide_row(const struct depthwise_job *job, const int64_t spatial[3]) {
    return spatial[2] * job->shape->out_channels;
}

static struct depthwise_row new_row(const struct depthwise_job *job) {
    const struct conv_shape *s = job->shape;
    return (struct depthwise_row){.channels = s->out_channels,
                                  .in_width = s->in[2],
                                  .out_width = s->out[2],
                                  .window = s->window[2],
                                  .stride = s->stride[2],
                                  .pad = s->pad_before[2]};
}

/* The loops take MAX_TAP_ROWS rows of taps at a time. The sums of a taller window are added in a
 * second row buffer. */
static void run_rows(const struct depthwise_job *job, void (*loop)(const struct depthwise_row *),
                     struct depthwise_row *row, int64_t width, char *extra, bool *is_first) {
    char *out = row->out;
    if (!*is_first)
        row->out = extra;
    loop(row);
    if (!*is_first)
        job->loops->add(out, extra, width);
    row->out = out;
    row->n_rows = 0;
    *is_first = false;
}

static void forward_image(const struct depthwise_job *job, const char *image, char *out,
                          char *extra) {
    const struct conv_shape *s = job->shape;
    int64_t in_row = wide_row(job, s->in) * job->size, out_row = wide_row(job, s->out) * job->size;
    int64_t tap_row = s->window[2] * s->out_channels * job->size;
    for (int64_t y = 0; y < s->out[1]; y++) {
        struct depthwise_row row = new_row(job);
        bool is_first = true;
        row.out = out + y * out_row;
        for (int64_t i = 0; i < s->window[1]; i++) {
            int64_t at = y * s->stride[1] - s->pad_before[1] + i;
            if (at < 0 || at >= s->in[1])
                continue;
            row.in[row.n_rows] = image + at * in_row;
            row.filter[row.n_rows++] = job->filter + i * tap_row;
            if (row.n_rows == MAX_TAP_ROWS)
                run_rows(job, job->loops->forward_row, &row, wide_row(job, s->out), extra,
                         &is_first);
        }
        if (row.n_rows || is_first)
            run_rows(job, job->loops->forward_row, &row, wide_row(job, s->out), extra, &is_first);
    }
}

static void backprop_image(const struct depthwise_job *job, const char *gradient, char *in,
                           char *extra) {
    const struct conv_shape *s = job->shape;
    int64_t in_row = wide_row(job, s->in) * job->size, out_row = wide_row(job, s->out) * job->size;
    int64_t tap_row = s->window[2] * s->out_channels * job->size;
    for (int64_t y = 0; y < s->in[1]; y++) {
        struct depthwise_row row = new_row(job);
        bool is_first = true;
        row.out = in + y * in_row;
        for (int64_t i = (y + s->pad_before[1]) % s->stride[1]; i < s->window[1];
             i += s->stride[1]) {
            int64_t position = (y + s->pad_before[1] - i) / s->stride[1];
            if (y + s->pad_before[1] < i || position >= s->out[1])
                continue;
            row.in[row.n_rows] = gradient + position * out_row;
            row.filter[row.n_rows++] = job->filter + i * tap_row;
            if (row.n_rows == MAX_TAP_ROWS)
                run_rows(job, job->loops->backprop_row, &row, wide_row(job, s->in), extra,
                         &is_first);
        }
        if (row.n_rows || is_first)
            run_rows(job, job->loops->backprop_row, &row, wide_row(job, s->in), extra, &is_first);
    }
}

static void filter_image(const struct depthwise_job *job, const char *image, const char *gradient,
                         char *filter) {
    const struct conv_shape *s = job->shape;
    int64_t in_row = wide_row(job, s->in) * job->size, out_row = wide_row(job, s->out) * job->size;
    int64_t tap_row = s->window[2] * s->out_channels * job->size;
    for (int64_t y = 0; y < s->out[1]; y++) {
        for (int64_t i = 0; i < s->window[1]; i++) {
            int64_t at = y * s->stride[1] - s->pad_before[1] + i;
            if (at < 0 || at >= s->in[1])
                continue;
            struct depthwise_row row = new_row(job);
            row.in[0] = image + at * in_row;
            row.filter[0] = gradient + y * out_row;
            row.out = filter + i * tap_row;
            job->loops->filter_row(&row);
        }
    }
}

static void run_share(struct depthwise_job *job, enum conv_direction direction, int64_t share) {
    const struct conv_shape *s = job->shape;
    int64_t in_pixels = s->in[1] * s->in[2], wide = in_pixels * s->out_channels,
            row = MAX(wide_row(job, s->in), wide_row(job, s->out));
    int64_t in_bytes = in_pixels * s->in_channels * job->size,
            out_bytes = s->out[1] * wide_row(job, s->out) * job->size;
    struct tensor scratch = TENSOR_INIT;
    char *extra, *repeated;
    bool repeats = job->multiplier > 1;
    struct status *st = scratch_new(job->ctx, DT_UINT8, (repeats ? wide : 0) + row, job->size,
                                    &scratch, &extra),
                  *none = NULL;
    if (st) {
        if (!__atomic_compare_exchange_n(&job->failure, &none, st, false, __ATOMIC_ACQ_REL,
                                         __ATOMIC_ACQUIRE))
            status_unref(st);
        return;
    }
    repeated = extra + row * job->size;
    for (int64_t n = share * job->images_per_share; n < (share + 1) * job->images_per_share; n++) {
        const char *image = job->in ? job->in + n * in_bytes : NULL;
        if (repeats && image) {
            job->loops->repeat(image, repeated, in_pixels * s->in_channels, job->multiplier);
            image = repeated;
        }
        if (direction == CONV_FORWARD) {
            forward_image(job, image, job->result + n * out_bytes, extra);
        } else if (direction == CONV_BACKPROP_INPUT) {
            char *in = job->result + n * in_bytes;
            backprop_image(job, job->out + n * out_bytes, repeats ? repeated : in, extra);
            if (repeats)
                job->loops->fold(repeated, in, in_pixels * s->in_channels, job->multiplier);
        } else {
            int64_t filter_bytes = s->window[1] * s->window[2] * s->out_channels * job->size;
            filter_image(job, image, job->out + n * out_bytes,
                         job->partials + share * filter_bytes);
        }
    }
    tensor_clear(&scratch);
}

#define RANGE(name, direction)                                        \
    static void name(void *arg, int64_t begin, int64_t end) {         \
        for (; begin < end; begin++)                                  \
            run_share((struct depthwise_job *)arg, direction, begin); \
    }
RANGE(forward_range, CONV_FORWARD)
RANGE(backprop_input_range, CONV_BACKPROP_INPUT)
RANGE(backprop_filter_range, CONV_BACKPROP_FILTER)
static void (*const ranges[])(void *, int64_t, int64_t) = {forward_range, backprop_input_range,
                                                           backprop_filter_range};

/* oneDNN is faster in the forward direction, our loops in the backward one. With strides of one,
 * however, the input's gradient is a forward convolution of the incoming gradient with the mirrored
 * filter. */
static struct status *run_by_onednn(const struct kernel_ctx *ctx, enum conv_direction direction,
                                    const struct conv_shape *s, const struct conv_operands *o,
                                    bool *ret_done) {
    int64_t n_taps = s->window[1] * s->window[2], channels = s->in_channels;
    if (direction == CONV_FORWARD)
        return conv_by_onednn(ctx, direction, s, o, ret_done);
    if (direction == CONV_BACKPROP_FILTER || s->stride[1] != 1 || s->stride[2] != 1)
        return NULL;
    struct conv_shape mirrored = *s;
    for (int i = 1; i < 3; i++) {
        mirrored.in[i] = s->out[i];
        mirrored.out[i] = s->in[i];
        mirrored.pad_before[i] = s->window[i] - 1 - s->pad_before[i];
        if (mirrored.pad_before[i] < 0)
            return NULL;
    }
    struct tensor scratch = TENSOR_INIT;
    float *filter;
    TRY(scratch_new(ctx, DT_FLOAT, n_taps, channels, &scratch, &filter));
    for (int64_t i = 0; i < n_taps; i++)
        memcpy(filter + i * channels, (const float *)o->filter + (n_taps - 1 - i) * channels,
               (size_t)channels * sizeof(float));
    struct conv_operands operands = {.in = o->out, .filter = filter, .result = o->result};
    struct status *st = conv_by_onednn(ctx, CONV_FORWARD, &mirrored, &operands, ret_done);
    tensor_clear(&scratch);
    return st;
}

static struct status *run_plain(const struct kernel_ctx *ctx, enum conv_direction direction,
                                const struct conv_shape *s, enum dtype dtype,
                                const struct conv_operands *o) {
    bool is_done = false;
    if (dtype == DT_FLOAT && s->out_channels == s->in_channels && s->in_channels >= MANY_CHANNELS)
        TRY(run_by_onednn(ctx, direction, s, o, &is_done));
    if (is_done)
        return NULL;
    struct depthwise_job job = {
        .ctx = ctx, .shape = s, .loops = dtype == DT_FLOAT ? &loops_f32 : &loops_f64};
    job.size = (int64_t)dtype_size(dtype);
    job.multiplier = s->out_channels / s->in_channels;
    job.in = o->in, job.filter = o->filter, job.out = o->out, job.result = o->result;
    job.images_per_share = 1;
    if (direction == CONV_BACKPROP_FILTER) {
        job.images_per_share = conv_images_per_share(s, 1e5);
        while (s->batch / job.images_per_share > MAX_FILTER_SHARES ||
               s->batch % job.images_per_share != 0)
            job.images_per_share++;
    }
    int64_t n_shares = s->batch / job.images_per_share,
            n_filter = s->window[1] * s->window[2] * s->out_channels;
    struct tensor partials = TENSOR_INIT;
    struct status *st = NULL;
    if (direction == CONV_BACKPROP_FILTER) {
        TRY(scratch_new(ctx, DT_UINT8, n_shares * job.size, n_filter, &partials, &job.partials));
        memset(job.partials, 0, (size_t)(n_shares * n_filter * job.size));
    }
    double cost_ns = conv_n_multiplications(s) / (double)n_shares * 0.06 + 100;
    pool_parallel_for(ctx->pool, n_shares, cost_ns, ranges[direction], &job);
    st = job.failure;
    if (!st && direction == CONV_BACKPROP_FILTER) {
        memcpy(job.result, job.partials, (size_t)(n_filter * job.size));
        for (int64_t i = 1; i < n_shares; i++)
            job.loops->add(job.result, job.partials + i * n_filter * job.size, n_filter);
    }
    tensor_clear(&partials);
    return st;
}

/* ---- shapes ---- */

static struct status *dims_of(const struct tensor *t, const char *what, int64_t ret[4]) {
    if (t->rank == 4) {
        memcpy(ret, tensor_dims(t), 4 * sizeof(*ret));
        return NULL;
    }
    return status_invalid("%s must be 4-dimensional: %s", what, TENSOR_SHAPE_TEXT(t));
}

static struct status *check_gradient(const struct window_attrs *attrs, const int64_t out[4],
                                     const struct conv_shape *s) {
    int64_t height = out[window_spatial_dim(attrs, 0)], width = out[window_spatial_dim(attrs, 1)],
            channels = out[window_channel_dim(attrs)];
    if (out[0] != s->batch)
        return status_invalid("input and out_backprop must have the same batch size. Input batch: "
                              "%lld, outbackprop batch: %lld",
                              (long long)s->batch, (long long)out[0]);
    if (height != s->out[1] || width != s->out[2])
        return status_invalid(
            "Size of out_backprop doesn't match computed: actual = %lldx%lld, computed = %lldx%lld",
            (long long)height, (long long)width, (long long)s->out[1], (long long)s->out[2]);
    if (channels != s->out_channels)
        return status_invalid("depth_multiplier * in_depth not equal to out_depth: %lld vs %lld",
                              (long long)s->out_channels, (long long)channels);
    return NULL;
}

/* `result` gets the dimensions of the output or of the gradient that the op computes. */
static struct status *geometry_of(const struct depthwise_state *state, const struct tensor *t,
                                  bool is_for_device, struct conv_shape *s, int64_t result[4]) {
    const struct window_attrs *attrs = &state->attrs;
    int64_t in[4], filter[4], out[4];
    bool is_forward = state->direction == CONV_FORWARD;
    if (state->direction == CONV_BACKPROP_INPUT)
        TRY(conv_read_sizes(&t[0], "input_sizes", 4, in));
    else
        TRY(dims_of(&t[0], "input", in));
    if (state->direction == CONV_BACKPROP_FILTER)
        TRY(conv_read_sizes(&t[1], "filter_sizes", 4, filter));
    else
        TRY(dims_of(&t[1], "filter", filter));
    if (!is_forward)
        TRY(dims_of(&t[2], "out_backprop", out));
    int channel = window_channel_dim(attrs);
    *s = (struct conv_shape){.in = {1, 1, 1},
                             .out = {1, 1, 1},
                             .window = {1, 1, 1},
                             .stride = {1, 1, 1},
                             .rate = {1, 1, 1}};
    s->batch = in[0];
    s->in_channels = s->groups = in[channel];
    if (in[channel] != filter[2])
        return status_invalid("input and filter must have the same depth: %lld vs %lld",
                              (long long)in[channel], (long long)filter[2]);
    if (mul_overflows_i64(filter[2], filter[3], &s->out_channels))
        return status_invalid("depth_multiplier * in_depth overflows: %lld * %lld",
                              (long long)filter[3], (long long)filter[2]);
    for (int i = 0; i < 2; i++) {
        int64_t positions;
        TRY(conv_fit_dim(attrs, i, in[window_spatial_dim(attrs, i)], filter[i], s, &positions));
    }
    if (!is_forward && attrs->is_channels_first && !is_for_device)
        return status_unimplemented(
            "Depthwise convolution on CPU is only supported for NHWC format");
    if (!is_forward)
        TRY(check_gradient(attrs, out, s));
    memcpy(result, state->direction == CONV_BACKPROP_INPUT ? in : filter, 4 * sizeof(*result));
    if (!is_forward)
        return NULL;
    result[0] = s->batch;
    result[channel] = s->out_channels;
    for (int i = 0; i < 2; i++)
        result[window_spatial_dim(attrs, i)] = s->out[1 + i];
    return NULL;
}

static struct status *run_on_device(struct kernel_ctx *ctx, const struct depthwise_state *state,
                                    const struct conv_shape *shape,
                                    const struct conv_operands *operands, bool is_empty) {
    struct conv_job job = {.direction = state->direction,
                           .dtype = state->dtype,
                           .is_channels_first = state->attrs.is_channels_first,
                           .shape = shape,
                           .operands = operands};
    const struct device_engine *engine = ctx->instance->engine;
    if (is_empty)
        return engine->zero(ctx, operands->result, tensor_size_bytes(&ctx->outputs[0]));
    return engine->depthwise(ctx, &job);
}

enum kernel_result depthwise_compute(struct kernel_ctx *ctx) {
    const struct depthwise_state *state = ctx->instance->state;
    const struct tensor *t = ctx->inputs;
    struct conv_shape shape;
    int64_t dims[4];
    bool is_for_device = kernel_is_for_device(ctx);
    KERNEL_TRY(ctx, geometry_of(state, t, is_for_device, &shape, dims));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, state->dtype, (struct shape){4, dims}));
    struct tensor *result = &ctx->outputs[0];
    if (result->n_elements == 0)
        return KERNEL_DONE;
    if (state->attrs.is_channels_first && !is_for_device)
        return kernel_fail(
            ctx,
            status_unimplemented("Depthwise convolution on CPU is only supported for NHWC format"));
    struct conv_operands operands = {.result = tensor_data(result)};
    bool is_empty = false;
    for (int i = 0; i < ctx->instance->n_inputs; i++) {
        if (state->direction != CONV_FORWARD && (int)state->direction == i + 1)
            continue;
        *(i == 0 ? &operands.in : i == 1 ? &operands.filter : &operands.out) = tensor_cdata(&t[i]);
        is_empty |= t[i].n_elements == 0;
    }
    if (is_for_device)
        KERNEL_TRY(ctx, run_on_device(ctx, state, &shape, &operands, is_empty));
    else if (is_empty)
        memset(operands.result, 0, tensor_size_bytes(result));
    else
        KERNEL_TRY(
            ctx, conv_run_wide(ctx, state->direction, &shape, state->dtype, &operands, run_plain));
    return KERNEL_DONE;
}
