/* Runs FakeQuantWithMinMax*, which moves reals to the nearest of 2^n evenly spaced ones while a
 * model is trained, and its gradients.
 *
 * The range is nudged so that 0 is one of the values [Jacob et al. 2018, section 3]. Gradients pass
 * to the input inside the nudged range, and to the range's ends outside of it. */
#include <stdlib.h>

#include "kernels/cpu/quant/quant_internal.h"
#include "kernels/kernel.h"

struct fake_state {
    float lowest, highest; /* the least and the greatest code */
    bool has_range;
    float min, max; /* FakeQuantWithMinMaxArgs only */
};

struct status *quant_fake_init(struct kernel_init *init) {
    struct fake_state *state = xcalloc(1, sizeof(*state));
    int64_t n_bits;
    bool is_narrow;
    init->state = state;
    TRY(node_get_i(init->node, "num_bits", &n_bits));
    TRY(node_get_b(init->node, "narrow_range", &is_narrow));
    state->has_range = node_attr(init->node, "min") != NULL;
    if (state->has_range) {
        TRY(node_get_f(init->node, "min", &state->min));
        TRY(node_get_f(init->node, "max", &state->max));
        if (!(state->min < state->max))
            return status_invalid("min has to be smaller than max, was: %g >= %g",
                                  (double)state->min, (double)state->max);
    }
    if (n_bits < 2 || n_bits > 16)
        return status_invalid("num_bits must be between 2 and 16, inclusive, was: %lld",
                              (long long)n_bits);
    state->lowest = is_narrow ? 1 : 0;
    state->highest = (float)((1 << n_bits) - 1);
    return NULL;
}

/* A range whose ends are codes, and in which 0 is a code. */
struct nudged {
    /* steps: codes for each unit of the reals, as exactly as a float can hold it */
    float min, max, scale, steps, zero;
};

static struct nudged nudge(const struct fake_state *state, float min, float max) {
    struct nudged ret;
    ret.scale = (max - min) / (state->highest - state->lowest);
    float place = state->lowest - min / ret.scale;
    float zero = place < state->lowest    ? state->lowest
                 : place > state->highest ? state->highest
                                          : roundf(place);
    ret.min = (state->lowest - zero) * ret.scale;
    ret.max = (state->highest - zero) * ret.scale;
    ret.steps = (state->highest - state->lowest) / (max - min);
    ret.zero = floorf(-ret.min / ret.scale + 0.5f);
    return ret;
}

/* TensorFlow divides by the scale where the range is an input, and multiplies by its inverse where
 * the range is attrs, so ties may be rounded differently. */
static inline float fake_by_scale(const struct nudged *range, float x) {
    float shifted = quant_clamp(x, range->min, range->max) - range->min;
    return floorf(shifted / range->scale - range->zero + 0.5f) * range->scale;
}

static inline float fake_by_steps(const struct nudged *range, float x) {
    float shifted = quant_clamp(x, range->min, range->max) - range->min;
    return floorf(shifted * range->steps - range->zero + 0.5f) * range->scale;
}

static inline bool is_between(const struct nudged *range, float x) {
    return (x >= range->min) & (x <= range->max);
}

/* ---- one range for all elements ---- */

struct fake_job {
    struct nudged range;
    bool is_nothing; /* the range is [0, 0] */
    bool has_range;  /* the range is attrs */
    const float *x, *dy;
    float *y;
    int64_t n;
    double (*sums)[2]; /* for each share: the gradients of min and max */
};

/* Reads the range of a node: attrs, or the scalars in inputs first and first + 1. */
static struct status *range_of(const struct kernel_ctx *ctx, int first, struct fake_job *job) {
    const struct fake_state *state = ctx->instance->state;
    float min = state->min, max = state->max;
    if (!state->has_range) {
        TRY(quant_scalar(ctx, first, "`min`", &min));
        TRY(quant_scalar(ctx, first + 1, "`max`", &max));
        job->is_nothing = min == 0 && max == 0;
    }
    job->has_range = state->has_range;
    job->range = nudge(state, min, max);
    return NULL;
}

static void fake_range(void *arg, int64_t begin, int64_t end) {
    const struct fake_job *job = arg;
    for (int64_t i = begin; i < end; i++) {
        if (job->is_nothing)
            job->y[i] = 0;
        else
            job->y[i] = job->has_range ? fake_by_steps(&job->range, job->x[i])
                                       : fake_by_scale(&job->range, job->x[i]);
    }
}

/* FakeQuantWithMinMaxArgs, FakeQuantWithMinMaxVars.
 *   inputs, outputs  float, of one shape
 *   min, max         float scalars (Args: attrs)
 * Errors   INVALID_ARGUMENT   min or max that is no scalar */
enum kernel_result quant_fake(struct kernel_ctx *ctx) {
    const struct tensor *x = kernel_input(ctx, 0);
    struct fake_job job = {.x = tensor_cdata(x)};
    int64_t n = x->n_elements;
    KERNEL_TRY(ctx, range_of(ctx, 1, &job));
    KERNEL_TRY(ctx, kernel_forward_or_alloc(ctx, 0, 0, DT_FLOAT, tensor_shape(x)));
    job.y = tensor_data(&ctx->outputs[0]);
    pool_parallel_for(ctx->pool, n, 1.0, fake_range, &job);
    return KERNEL_DONE;
}

/* the shares depend on n alone, so that sums do not depend on the number of threads */
enum { GRAD_SHARES = 32 };

static void fake_grad_range(void *arg, int64_t begin, int64_t end) {
    const struct fake_job *job = arg;
    for (int64_t share = begin; share < end; share++) {
        double below = 0, above = 0;
        int64_t stop = job->n * (share + 1) / GRAD_SHARES;
        for (int64_t i = job->n * share / GRAD_SHARES; i < stop; i++) {
            float dy = job->dy[i], x = job->x[i];
            below += x < job->range.min ? (double)dy : 0;
            above += x > job->range.max ? (double)dy : 0;
            job->y[i] = job->is_nothing ? dy : dy * (float)is_between(&job->range, x);
        }
        job->sums[share][0] = below;
        job->sums[share][1] = above;
    }
}

static struct status *shapes_differ(const char *what, const struct tensor *a,
                                    const struct tensor *b) {
    return status_invalid("%s: %s vs. %s", what, TENSOR_SHAPE_TEXT(a), TENSOR_SHAPE_TEXT(b));
}

/* FakeQuantWithMinMaxArgsGradient, FakeQuantWithMinMaxVarsGradient.
 *   gradients, inputs                   float, of one shape
 *   min, max                            float scalars (Args: attrs)
 *   backprops_wrt_input                 of the same shape
 *   backprop_wrt_min, backprop_wrt_max  Vars only: scalars, the sums of the gradients below and
 *                                       above the range
 * Errors   INVALID_ARGUMENT   as above, or the shapes differ */
enum kernel_result quant_fake_grad(struct kernel_ctx *ctx) {
    const struct tensor *dy = kernel_input(ctx, 0), *x = kernel_input(ctx, 1);
    double sums[GRAD_SHARES][2];
    struct fake_job job = {
        .dy = tensor_cdata(dy), .x = tensor_cdata(x), .n = x->n_elements, .sums = sums};
    if (!shape_equal(tensor_shape(dy), tensor_shape(x)))
        return kernel_fail(ctx, shapes_differ("gradient and input must be the same size", dy, x));
    KERNEL_TRY(ctx, range_of(ctx, 2, &job));
    KERNEL_TRY(ctx, kernel_forward_or_alloc(ctx, 0, 0, DT_FLOAT, tensor_shape(dy)));
    job.y = tensor_data(&ctx->outputs[0]);
    pool_parallel_for(ctx->pool, GRAD_SHARES, 1.5 * (double)job.n / GRAD_SHARES, fake_grad_range,
                      &job);
    if (ctx->instance->n_outputs == 1)
        return KERNEL_DONE;
    double below = 0, above = 0;
    for (int i = 0; i < GRAD_SHARES && !job.is_nothing; i++) {
        below += sums[i][0];
        above += sums[i][1];
    }
    quant_set_range(ctx, 1, (float)below, (float)above);
    return KERNEL_DONE;
}

/* ---- a range for each position of the last dimension ---- */

struct channels_job {
    const struct fake_state *state;
    const float *x, *dy, *min, *max;
    float *y, *d_min, *d_max;
    int64_t n_rows, depth;
};

static struct status *check_channels(const struct kernel_ctx *ctx, int input, int first) {
    const struct tensor *x = kernel_input(ctx, input);
    static const char *const names[] = {"min", "max"};
    if (x->rank < 1)
        return status_invalid("input must be at least 1-D, got shape %s", TENSOR_SHAPE_TEXT(x));
    for (int i = 0; i < 2; i++) {
        const struct tensor *t = kernel_input(ctx, first + i);
        if (t->rank != 1)
            return status_invalid("`%s` must be rank 1, got shape %s", names[i],
                                  TENSOR_SHAPE_TEXT(t));
        if (t->n_elements != tensor_dim(x, x->rank - 1))
            return status_invalid("%s has incorrect size, expected %lld was %lld", names[i],
                                  (long long)tensor_dim(x, x->rank - 1), (long long)t->n_elements);
    }
    return NULL;
}

static void channels_job_init(const struct kernel_ctx *ctx, int input, int first,
                              struct channels_job *job) {
    const struct tensor *x = kernel_input(ctx, input);
    job->state = ctx->instance->state;
    job->x = tensor_cdata(x);
    job->depth = tensor_dim(x, x->rank - 1);
    job->n_rows = job->depth > 0 ? x->n_elements / job->depth : 0;
    job->min = tensor_cdata(kernel_input(ctx, first));
    job->max = tensor_cdata(kernel_input(ctx, first + 1));
}

/* A share is some of the columns, so each column's sums are written by one thread. */
static void channels_range(void *arg, int64_t begin, int64_t end) {
    const struct channels_job *job = arg;
    for (int64_t c = begin; c < end; c++) {
        struct nudged range = nudge(job->state, job->min[c], job->max[c]);
        bool is_nothing = job->min[c] == 0 && job->max[c] == 0;
        for (int64_t at = c, row = 0; row < job->n_rows; row++, at += job->depth)
            job->y[at] = is_nothing ? 0 : fake_by_steps(&range, job->x[at]);
    }
}

static void channels_grad_range(void *arg, int64_t begin, int64_t end) {
    const struct channels_job *job = arg;
    for (int64_t c = begin; c < end; c++) {
        struct nudged range = nudge(job->state, job->min[c], job->max[c]);
        bool is_nothing = job->min[c] == 0 && job->max[c] == 0;
        double below = 0, above = 0;
        for (int64_t at = c, row = 0; row < job->n_rows; row++, at += job->depth) {
            float dy = job->dy[at], x = job->x[at];
            below += x < range.min ? (double)dy : 0;
            above += x > range.max ? (double)dy : 0;
            job->y[at] = is_nothing ? dy : dy * (float)is_between(&range, x);
        }
        job->d_min[c] = is_nothing ? 0 : (float)below;
        job->d_max[c] = is_nothing ? 0 : (float)above;
    }
}

/* FakeQuantWithMinMaxVarsPerChannel.
 *   inputs, outputs  float [..., d]
 *   min, max         float [d]
 * Errors   INVALID_ARGUMENT   min or max of another shape */
enum kernel_result quant_fake_channels(struct kernel_ctx *ctx) {
    const struct tensor *x = kernel_input(ctx, 0);
    struct channels_job job;
    KERNEL_TRY(ctx, check_channels(ctx, 0, 1));
    channels_job_init(ctx, 0, 1, &job);
    KERNEL_TRY(ctx, kernel_forward_or_alloc(ctx, 0, 0, DT_FLOAT, tensor_shape(x)));
    job.y = tensor_data(&ctx->outputs[0]);
    pool_parallel_for(ctx->pool, job.depth, 2.0 * (double)job.n_rows, channels_range, &job);
    return KERNEL_DONE;
}

/* FakeQuantWithMinMaxVarsPerChannelGradient: as FakeQuantWithMinMaxVarsGradient, with sums [d]. */
enum kernel_result quant_fake_channels_grad(struct kernel_ctx *ctx) {
    const struct tensor *dy = kernel_input(ctx, 0), *x = kernel_input(ctx, 1);
    struct channels_job job;
    if (!shape_equal(tensor_shape(dy), tensor_shape(x)))
        return kernel_fail(ctx, shapes_differ("gradient and input must be the same size", dy, x));
    KERNEL_TRY(ctx, check_channels(ctx, 1, 2));
    channels_job_init(ctx, 1, 2, &job);
    job.dy = tensor_cdata(dy);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_FLOAT, tensor_shape(x)));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 1, DT_FLOAT, (struct shape){1, &job.depth}));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 2, DT_FLOAT, (struct shape){1, &job.depth}));
    job.y = tensor_data(&ctx->outputs[0]);
    job.d_min = tensor_data(&ctx->outputs[1]);
    job.d_max = tensor_data(&ctx->outputs[2]);
    pool_parallel_for(ctx->pool, job.depth, 3.0 * (double)job.n_rows, channels_grad_range, &job);
    return KERNEL_DONE;
}
