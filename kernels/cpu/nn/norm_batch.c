/* Runs FusedBatchNorm, V2, V3 and their gradients [Ioffe and Szegedy 2015].
 *
 *   x                T [batch, spatial, channels], or channels before spatial; V3 takes volumes too
 *   scale, offset    float [channels]
 *   mean, variance   float [channels]: the moving ones; not read in training with an
 *                    exponential_avg_factor of 1
 *   y                T: (x - mean) · scale / √(variance + epsilon) + offset
 *   batch_mean, batch_variance    training: the moving ones after this batch (the variance
 *                                 unbiased), else the inputs mean and variance
 *   reserve_space_1, _2           training: mean and variance of this batch, for the gradient
 *   reserve_space_3               V3: a zero
 *
 * The gradient reads the reserve spaces, and returns x_backprop, scale_backprop, offset_backprop
 * and two empty outputs.
 * Errors   INVALID_ARGUMENT   ranks and sizes that do not fit; the gradient outside of training
 *                             with channels first */
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/nn/norm_internal.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/scratch.h"
#include "kernels/cpu/nn/widen.h"

struct batch_norm_state {
    float epsilon, average_factor;
    bool is_training, is_channels_first;
    enum dtype dtype;
};

struct status *batch_norm_init(struct kernel_init *init) {
    struct batch_norm_state *state = xcalloc(1, sizeof(*state));
    struct span format;
    init->state = state;
    state->dtype = (enum dtype)init->node->in_types[0];
    state->average_factor = 1;
    TRY(node_get_f(init->node, "epsilon", &state->epsilon));
    TRY(node_get_b(init->node, "is_training", &state->is_training));
    TRY(node_get_s(init->node, "data_format", &format));
    state->is_channels_first = format.len > 1 && format.data[1] == 'C';
    if (node_attr(init->node, "exponential_avg_factor"))
        TRY(node_get_f(init->node, "exponential_avg_factor", &state->average_factor));
    return NULL;
}

static struct status *extent_of(const struct batch_norm_state *state, const struct tensor *x,
                                const char *what, struct norm_extent *ret) {
    if (x->rank != 4 && x->rank != 5)
        return status_invalid("%s must be 4 or 5-dimensional%s", what, TENSOR_SHAPE_TEXT(x));
    int channel = state->is_channels_first ? 1 : x->rank - 1;
    *ret = (struct norm_extent){1, tensor_dim(x, channel), 1};
    if (x->n_elements == 0) {
        ret->outer = 0;
        return NULL;
    }
    for (int i = 0; i < x->rank; i++)
        *(i < channel ? &ret->outer : &ret->inner) *= i == channel ? 1 : tensor_dim(x, i);
    return NULL;
}

static struct status *require_channels(const struct tensor *t, const char *what, int64_t channels) {
    if (t->rank != 1)
        return status_invalid("%s must be 1-dimensional, but has rank %d", what, t->rank);
    if (t->n_elements != channels)
        return status_invalid(
            "%s must have the same number of elements as the channels of x, got %lld and %lld",
            what, (long long)t->n_elements, (long long)channels);
    return NULL;
}

/* ---- forward ---- */

/* Computes mean and variance of this batch, and updates the moving ones with them. */
static struct status *training_moments(struct kernel_ctx *ctx, const struct batch_norm_state *state,
                                       const float *x, struct norm_extent e) {
    float *out[4], f = state->average_factor;
    for (int i = 0; i < 4; i++)
        out[i] = tensor_data(&ctx->outputs[1 + i]);
    TRY(norm_moments(ctx, x, e, out[2], out[3]));
    double n = (double)e.outer * (double)e.inner, unbiased = n / MAX(n - 1, 1);
    const float *mean = tensor_cdata(&ctx->inputs[3]), *variance = tensor_cdata(&ctx->inputs[4]);
    for (int64_t c = 0; c < e.channels; c++) {
        float fresh = (float)((double)out[3][c] * unbiased);
        out[0][c] = f == 1 ? out[2][c] : (1 - f) * mean[c] + f * out[2][c];
        out[1][c] = f == 1 ? fresh : (1 - f) * variance[c] + f * fresh;
    }
    return NULL;
}

static void copy_moments(struct kernel_ctx *ctx, size_t bytes) {
    for (int i = 0; i < 4; i++)
        memcpy(tensor_data(&ctx->outputs[1 + i]), tensor_cdata(&ctx->inputs[3 + i % 2]), bytes);
}

/* The mean of an empty batch is NaN. */
static void fill_nan(struct kernel_ctx *ctx, int64_t channels) {
    for (int i = 1; i <= 4; i++)
        for (int64_t c = 0; c < channels; c++)
            ((float *)tensor_data(&ctx->outputs[i]))[c] = NAN;
}

static struct status *normalise(struct kernel_ctx *ctx, const struct batch_norm_state *state,
                                const float *x, struct norm_extent e, float *y) {
    struct tensor scratch = TENSOR_INIT;
    float *factor;
    TRY(scratch_new(ctx, DT_FLOAT, e.channels, 1, &scratch, &factor));
    const float *scale = tensor_cdata(&ctx->inputs[1]), *variance = tensor_cdata(&ctx->outputs[4]);
    for (int64_t c = 0; c < e.channels; c++)
        factor[c] = scale[c] / sqrtf(variance[c] + state->epsilon);
    struct norm_line line = {tensor_cdata(&ctx->outputs[3]), factor, tensor_cdata(&ctx->inputs[2]),
                             NULL};
    norm_apply(ctx, x, NULL, &line, e, y);
    tensor_clear(&scratch);
    return NULL;
}

static struct status *forward(struct kernel_ctx *ctx, const struct batch_norm_state *state,
                              struct norm_extent e) {
    struct tensor scratch[2] = {TENSOR_INIT, TENSOR_INIT};
    const void *x = tensor_cdata(&ctx->inputs[0]);
    int64_t n = ctx->inputs[0].n_elements;
    void *result = tensor_data(&ctx->outputs[0]);
    float *y;
    struct status *st = NULL;
    TRY_OUT(widen_operand(ctx, state->dtype, n, &x, &scratch[0]));
    TRY_OUT(widen_result(ctx, state->dtype, n, result, &y, &scratch[1]));
    if (state->is_training)
        TRY_OUT(training_moments(ctx, state, x, e));
    else
        copy_moments(ctx, (size_t)e.channels * sizeof(float));
    TRY_OUT(normalise(ctx, state, x, e, y));
    narrow_result(ctx, state->dtype, n, result, y);
out:
    tensor_clear(&scratch[0]);
    tensor_clear(&scratch[1]);
    return st;
}

static struct status *check_forward(const struct kernel_ctx *ctx,
                                    const struct batch_norm_state *state, struct norm_extent *e) {
    static const char *const names[] = {"x", "scale", "offset", "mean", "variance"};
    const struct tensor *t = ctx->inputs;
    for (int i = 1; i < 5; i++) {
        if (t[i].rank != 1)
            return status_invalid("%s must be 1-dimensional, but has rank %d", names[i], t[i].rank);
    }
    TRY(extent_of(state, &t[0], "input", e));
    TRY(require_channels(&t[1], "scale", e->channels));
    TRY(require_channels(&t[2], "offset", e->channels));
    bool needs_moving = !state->is_training || state->average_factor != 1;
    for (int i = 3; i < 5 && needs_moving; i++)
        TRY(require_channels(&t[i], names[i], e->channels));
    return NULL;
}

static struct device_batch_norm device_job(const struct kernel_ctx *ctx,
                                           const struct batch_norm_state *state,
                                           struct norm_extent e) {
    struct device_batch_norm job = {.dtype = state->dtype,
                                    .outer = e.outer,
                                    .channels = e.channels,
                                    .inner = e.inner,
                                    .epsilon = state->epsilon,
                                    .average_factor = state->average_factor,
                                    .is_training = state->is_training,
                                    .mean = tensor_cdata(&ctx->inputs[3]),
                                    .variance = tensor_cdata(&ctx->inputs[4]),
                                    .result = tensor_data(&ctx->outputs[0])};
    return job;
}

static struct status *forward_on_device(struct kernel_ctx *ctx,
                                        const struct batch_norm_state *state,
                                        struct norm_extent e) {
    struct device_batch_norm job = device_job(ctx, state, e);
    job.x = tensor_cdata(&ctx->inputs[0]);
    job.scale = tensor_cdata(&ctx->inputs[1]);
    job.offset = tensor_cdata(&ctx->inputs[2]);
    for (int i = 0; i < 4; i++)
        job.out[i] = tensor_data(&ctx->outputs[1 + i]);
    if (ctx->instance->n_outputs == 6)
        TRY(kernel_alloc_zeroed(ctx, 5, DT_FLOAT, SHAPE_SCALAR));
    return e.channels > 0 ? ctx->instance->engine->batch_norm(ctx, &job) : NULL;
}

enum kernel_result batch_norm_compute(struct kernel_ctx *ctx) {
    const struct batch_norm_state *state = ctx->instance->state;
    struct norm_extent e;
    KERNEL_TRY(ctx, check_forward(ctx, state, &e));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, state->dtype, tensor_shape(&ctx->inputs[0])));
    for (int i = 1; i < 5; i++)
        KERNEL_TRY(ctx, kernel_alloc(ctx, i, DT_FLOAT, (struct shape){1, &e.channels}));
    if (kernel_is_for_device(ctx)) {
        KERNEL_TRY(ctx, forward_on_device(ctx, state, e));
        return KERNEL_DONE;
    }
    if (ctx->instance->n_outputs == 6)
        tensor_init_scalar_f32(&ctx->outputs[5], 0);
    if (ctx->inputs[0].n_elements != 0)
        KERNEL_TRY(ctx, forward(ctx, state, e));
    else
        fill_nan(ctx, e.channels);
    return KERNEL_DONE;
}

/* ---- gradient ---- */

/* With s = 1 / √(variance + epsilon), n elements per channel and sums over them:
 *   offset_backprop = Σ g,   scale_backprop = s · Σ g (x - mean)
 *   training:   x_backprop = scale · s · (g - Σ g / n - (x - mean) · s² · Σ g (x - mean) / n)
 *   otherwise:  x_backprop = scale · s · g */
static struct status *backward(struct kernel_ctx *ctx, const struct batch_norm_state *state,
                               const float *g, const float *x, struct norm_extent e,
                               float *result) {
    struct tensor scratch = TENSOR_INIT, lines = TENSOR_INIT;
    double *sums, n = (double)e.outer * (double)e.inner;
    float *line, *scale_out = tensor_data(&ctx->outputs[1]),
                 *offset_out = tensor_data(&ctx->outputs[2]);
    const float *scale = tensor_cdata(&ctx->inputs[2]), *mean = tensor_cdata(&ctx->inputs[3]),
                *variance = tensor_cdata(&ctx->inputs[4]);
    struct status *st = NULL;
    TRY_OUT(scratch_new(ctx, DT_DOUBLE, e.channels, 2, &scratch, &sums));
    TRY_OUT(scratch_new(ctx, DT_FLOAT, e.channels, 3, &lines, &line));
    double *products = sums + e.channels;
    float *factor = line, *offset = line + e.channels, *weight = line + 2 * e.channels;
    TRY_OUT(norm_gradient_sums(ctx, g, x, mean, e, sums, products));
    for (int64_t c = 0; c < e.channels; c++) {
        double s = 1 / sqrt((double)variance[c] + (double)state->epsilon), k = (double)scale[c] * s;
        offset_out[c] = (float)sums[c];
        scale_out[c] = (float)(products[c] * s);
        weight[c] = (float)k;
        factor[c] = state->is_training ? (float)(-k * s * s * products[c] / n) : 0;
        offset[c] = state->is_training ? (float)(-k * sums[c] / n) : 0;
    }
    if (state->is_training)
        norm_apply(ctx, x, g, &(struct norm_line){mean, factor, offset, weight}, e, result);
    else
        norm_apply(ctx, g, NULL, &(struct norm_line){offset, weight, offset, NULL}, e, result);
out:
    tensor_clear(&scratch);
    tensor_clear(&lines);
    return st;
}

static struct status *backward_any(struct kernel_ctx *ctx, const struct batch_norm_state *state,
                                   struct norm_extent e) {
    struct tensor scratch[3] = {TENSOR_INIT, TENSOR_INIT, TENSOR_INIT};
    const void *g = tensor_cdata(&ctx->inputs[0]), *x = tensor_cdata(&ctx->inputs[1]);
    int64_t n = ctx->inputs[0].n_elements;
    void *result = tensor_data(&ctx->outputs[0]);
    float *wide;
    struct status *st = NULL;
    TRY_OUT(widen_operand(ctx, state->dtype, n, &g, &scratch[0]));
    TRY_OUT(widen_operand(ctx, state->dtype, n, &x, &scratch[1]));
    TRY_OUT(widen_result(ctx, state->dtype, n, result, &wide, &scratch[2]));
    TRY_OUT(backward(ctx, state, g, x, e, wide));
    narrow_result(ctx, state->dtype, n, result, wide);
out:
    for (size_t i = 0; i < ARRAY_LEN(scratch); i++)
        tensor_clear(&scratch[i]);
    return st;
}

static struct status *check_backward(const struct kernel_ctx *ctx,
                                     const struct batch_norm_state *state, struct norm_extent *e) {
    static const char *const names[] = {"y_backprop", "x", "scale", "reserve_space_1",
                                        "reserve_space_2"};
    const struct tensor *t = ctx->inputs;
    TRY(extent_of(state, &t[0], "y_backprop", e));
    TRY(extent_of(state, &t[1], "x", e));
    if (!shape_equal(tensor_shape(&t[0]), tensor_shape(&t[1])))
        return status_invalid(
            "x and y_backprop must have same shape, but x has %lld and y_backprop %lld elements",
            (long long)t[1].n_elements, (long long)t[0].n_elements);
    for (int i = 2; i < 5; i++)
        TRY(require_channels(&t[i], names[i], e->channels));
    if (!state->is_training && state->is_channels_first)
        return status_invalid("The implementation of FusedBatchNormGrad with is_training=False "
                              "only support NHWC tensor format for now.");
    return NULL;
}

/* The gradients of scale and offset are zeros where there is no element. */
static struct status *backward_on_device(struct kernel_ctx *ctx,
                                         const struct batch_norm_state *state,
                                         struct norm_extent e) {
    struct shape channels = {1, &e.channels};
    bool is_empty = ctx->inputs[0].n_elements == 0;
    for (int i = 1; i < 3; i++)
        TRY(is_empty ? kernel_alloc_zeroed(ctx, i, DT_FLOAT, channels)
                     : kernel_alloc(ctx, i, DT_FLOAT, channels));
    if (is_empty)
        return NULL;
    struct device_batch_norm job = device_job(ctx, state, e);
    job.g = tensor_cdata(&ctx->inputs[0]);
    job.x = tensor_cdata(&ctx->inputs[1]);
    job.scale = tensor_cdata(&ctx->inputs[2]);
    job.out[0] = tensor_data(&ctx->outputs[1]);
    job.out[1] = tensor_data(&ctx->outputs[2]);
    return ctx->instance->engine->batch_norm_grad(ctx, &job);
}

enum kernel_result batch_norm_grad_compute(struct kernel_ctx *ctx) {
    const struct batch_norm_state *state = ctx->instance->state;
    struct norm_extent e;
    const int64_t none = 0;
    KERNEL_TRY(ctx, check_backward(ctx, state, &e));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, state->dtype, tensor_shape(&ctx->inputs[1])));
    for (int i = 3; i < 5; i++)
        KERNEL_TRY(ctx, kernel_alloc(ctx, i, DT_FLOAT, (struct shape){1, &none}));
    if (kernel_is_for_device(ctx)) {
        KERNEL_TRY(ctx, backward_on_device(ctx, state, e));
        return KERNEL_DONE;
    }
    for (int i = 1; i < 3; i++) {
        KERNEL_TRY(ctx, kernel_alloc(ctx, i, DT_FLOAT, (struct shape){1, &e.channels}));
        memset(tensor_data(&ctx->outputs[i]), 0, tensor_size_bytes(&ctx->outputs[i]));
    }
    if (ctx->inputs[0].n_elements != 0)
        KERNEL_TRY(ctx, backward_any(ctx, state, e));
    return KERNEL_DONE;
}
