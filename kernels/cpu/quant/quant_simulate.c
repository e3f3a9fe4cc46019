/* Runs QuantizeAndDequantize, which gives what is left of reals after a conversion to codes of n
 * bits and back, with one range or a range for each slice along an axis. */
#include <float.h>
#include <stdlib.h>

#include "kernels/cpu/quant/quant_internal.h"
#include "kernels/kernel.h"

struct simulate_state {
    int64_t axis; /* -1: one range for all */
    int64_t n_bits;
    /* is_first: the op is the first version, whose range is attrs */
    bool is_signed, is_range_given, is_narrow, rounds_up, is_first;
    float min, max;
    enum dtype dtype;
};

struct simulate_job {
    const struct simulate_state *state;
    int n_bits;
    int64_t outer, n_slices, inner; /* x is [outer, n_slices, inner] */
    const void *x, *dy, *min, *max; /* min, max: one for each slice */
    void *y;
};

static inline float floor_of_f32(float v) { return floorf(v); }
static inline double floor_of_f64(double v) { return floor(v); }
static inline float even_of_f32(float v) { return rintf(v); }
static inline double even_of_f64(double v) { return rint(v); }

#define T float
#define T_MAX FLT_MAX
#define NAME(x) x##_f32
#include "kernels/cpu/quant/quant_simulate.inc"
#define T double
#define T_MAX DBL_MAX
#define NAME(x) x##_f64
#include "kernels/cpu/quant/quant_simulate.inc"

static struct status *check_bits(int64_t n_bits, bool is_signed) {
    if (n_bits <= 0 || n_bits >= (is_signed ? 62 : 63))
        return status_invalid("num_bits is out of range: %lld with signed_input_ %d",
                              (long long)n_bits, is_signed);
    return NULL;
}

/* Serves the rows of all versions, of which each has some of the attrs. */
struct status *quant_simulate_init(struct kernel_init *init) {
    const struct node *node = init->node;
    struct simulate_state *state = xcalloc(1, sizeof(*state));
    struct span rounding;
    init->state = state;
    state->axis = -1;
    state->dtype = (enum dtype)node->in_types[0];
    if (node_attr(node, "axis"))
        TRY(node_get_i(node, "axis", &state->axis));
    if (state->axis < -1)
        return status_invalid("Axis must be at least -1. Found %lld", (long long)state->axis);
    if (!node_attr(node, "signed_input")) /* only the gradient has no signed_input */
        return NULL;
    TRY(node_get_b(node, "signed_input", &state->is_signed));
    TRY(node_get_b(node, "range_given", &state->is_range_given));
    if (node_attr(node, "narrow_range"))
        TRY(node_get_b(node, "narrow_range", &state->is_narrow));
    if (node_attr(node, "round_mode")) {
        TRY(node_get_s(node, "round_mode", &rounding));
        state->rounds_up = span_is(rounding, "HALF_UP");
    }
    state->is_first = node_attr(node, "input_min") != NULL;
    if (state->is_first) {
        TRY(node_get_f(node, "input_min", &state->min));
        TRY(node_get_f(node, "input_max", &state->max));
        if (state->is_range_given && state->min > state->max)
            return status_invalid("Invalid range: input_min %g > input_max %g", (double)state->min,
                                  (double)state->max);
    }
    if (!node_attr(node, "num_bits")) /* num_bits is an input */
        return NULL;
    TRY(node_get_i(node, "num_bits", &state->n_bits));
    return check_bits(state->n_bits, state->is_signed);
}

static struct status *split_axis(const struct tensor *x, const struct simulate_state *state,
                                 struct simulate_job *job) {
    *job = (struct simulate_job){
        .state = state, .outer = 1, .n_slices = 1, .inner = x->n_elements, .x = tensor_cdata(x)};
    if (state->axis < 0)
        return NULL;
    if (state->axis >= x->rank)
        return status_invalid(
            "Axis requested is larger than input dimensions. Axis: %lld Input Dimensions: %d",
            (long long)state->axis, x->rank);
    job->n_slices = tensor_dim(x, (int)state->axis);
    job->inner = 1;
    for (int i = 0; i < x->rank && x->n_elements > 0; i++) {
        if (i < state->axis)
            job->outer *= tensor_dim(x, i);
        else if (i > state->axis)
            job->inner *= tensor_dim(x, i);
    }
    return NULL;
}

/* Reads the ranges that inputs give: scalars, or one for each slice. */
static struct status *set_ranges(const struct kernel_ctx *ctx, int first,
                                 struct simulate_job *job) {
    static const char *const names[] = {"input_min", "input_max"};
    const struct simulate_state *state = job->state;
    /* V3 accepts vectors of one element as scalars */
    bool takes_vectors = first == 1 && ctx->instance->n_inputs > 3;
    for (int i = 0; i < 2; i++) {
        const struct tensor *t = kernel_input(ctx, first + i);
        if (state->axis < 0 && (takes_vectors ? t->n_elements != 1 : t->rank != 0))
            return status_invalid("%s must be a scalar if axis is not given, but has shape %s",
                                  names[i], TENSOR_SHAPE_TEXT(t));
        if (state->axis >= 0 && (t->rank != 1 || t->n_elements != job->n_slices))
            return status_invalid(
                "%s has incorrect size, was %s expected %lld to match dim %lld of the input %s",
                names[i], TENSOR_SHAPE_TEXT(t), (long long)job->n_slices, (long long)state->axis,
                TENSOR_SHAPE_TEXT(kernel_input(ctx, first - 1)));
    }
    job->min = tensor_cdata(kernel_input(ctx, first));
    job->max = tensor_cdata(kernel_input(ctx, first + 1));
    return NULL;
}

static struct status *check_order(const struct simulate_job *job) {
    int64_t at = 0;
    bool is_wide = job->state->dtype == DT_DOUBLE;
    if (is_wide ? is_ordered_f64(job->min, job->max, job->n_slices, &at)
                : is_ordered_f32(job->min, job->max, job->n_slices, &at))
        return NULL;
    double min = is_wide ? ((const double *)job->min)[at] : (double)((const float *)job->min)[at];
    double max = is_wide ? ((const double *)job->max)[at] : (double)((const float *)job->max)[at];
    return status_invalid("Invalid range: input_min %g > input_max %g", min, max);
}

static void simulate_range(void *arg, int64_t begin, int64_t end) {
    const struct simulate_job *job = arg;
    for (int64_t slice = begin; slice < end; slice++) {
        if (job->state->dtype == DT_DOUBLE)
            simulate_f64(job, slice);
        else
            simulate_f32(job, slice);
    }
}

/* QuantizeAndDequantize, …V2, V3, V4.
 *   input, output         T, of one shape
 *   input_min, input_max  T, scalars, or [d], where d is the size of the axis
 *   num_bits              int32 scalar (V3; an attr in the others)
 * Errors   INVALID_ARGUMENT   ranges of other shapes, or with min above max; an axis that the input
 *                             does not have; num_bits out of range */
enum kernel_result quant_simulate(struct kernel_ctx *ctx) {
    const struct simulate_state *state = ctx->instance->state;
    const struct tensor *x = kernel_input(ctx, 0);
    struct simulate_job job;
    double attr_range[2] = {(double)state->min, (double)state->max};
    int64_t n_bits = state->n_bits;
    KERNEL_TRY(ctx, split_axis(x, state, &job));
    if (ctx->instance->n_inputs > 3) {
        const struct tensor *bits = kernel_input(ctx, 3);
        if (bits->rank != 0)
            return kernel_fail(ctx, status_invalid("Shape of `num_bits` must be a scalar, got %s",
                                                   TENSOR_SHAPE_TEXT(bits)));
        n_bits = *(const int32_t *)tensor_cdata(bits);
        KERNEL_TRY(ctx, check_bits(n_bits, state->is_signed));
    }
    job.n_bits = (int)n_bits;
    if (state->is_first) {
        job.min = state->dtype == DT_DOUBLE ? (const void *)&attr_range[0] : &state->min;
        job.max = state->dtype == DT_DOUBLE ? (const void *)&attr_range[1] : &state->max;
    } else if (state->is_range_given) {
        KERNEL_TRY(ctx, set_ranges(ctx, 1, &job));
        KERNEL_TRY(ctx, check_order(&job));
    }
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, state->dtype, tensor_shape(x)));
    job.y = tensor_data(&ctx->outputs[0]);
    if (x->n_elements > 0)
        pool_parallel_for(ctx->pool, job.n_slices, 2.0 * (double)(job.outer * job.inner),
                          simulate_range, &job);
    return KERNEL_DONE;
}

static void simulate_grad_range(void *arg, int64_t begin, int64_t end) {
    const struct simulate_job *job = arg;
    for (int64_t slice = begin; slice < end; slice++) {
        if (job->state->dtype == DT_DOUBLE)
            simulate_grad_f64(job, slice);
        else
            simulate_grad_f32(job, slice);
    }
}

/* QuantizeAndDequantizeV4Grad: passes gradients where the input is in its range.
 *   gradients, input                          T, of one shape
 *   input_min, input_max                      T, scalars or [d]
 *   input_backprop                            of the same shape
 *   input_min_backprop, input_max_backprop    zeros
 * Errors   INVALID_ARGUMENT   shapes */
enum kernel_result quant_simulate_grad(struct kernel_ctx *ctx) {
    const struct simulate_state *state = ctx->instance->state;
    const struct tensor *dy = kernel_input(ctx, 0), *x = kernel_input(ctx, 1);
    struct simulate_job job;
    KERNEL_TRY(ctx, split_axis(x, state, &job));
    if (!shape_equal(tensor_shape(dy), tensor_shape(x)))
        return kernel_fail(ctx,
                           status_invalid("gradient and input must be the same size: %s vs. %s",
                                          TENSOR_SHAPE_TEXT(dy), TENSOR_SHAPE_TEXT(x)));
    KERNEL_TRY(ctx, set_ranges(ctx, 2, &job));
    job.dy = tensor_cdata(dy);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, state->dtype, tensor_shape(x)));
    job.y = tensor_data(&ctx->outputs[0]);
    for (int i = 1; i < 3; i++)
        KERNEL_TRY(ctx,
                   tensor_new_zeroed(ctx->instance->allocator, state->dtype,
                                     tensor_shape(kernel_input(ctx, 1 + i)), &ctx->outputs[i]));
    if (x->n_elements > 0)
        pool_parallel_for(ctx->pool, job.n_slices, 1.0 * (double)(job.outer * job.inner),
                          simulate_grad_range, &job);
    return KERNEL_DONE;
}
