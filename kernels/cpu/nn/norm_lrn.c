/* Runs LRN, local response normalisation across channels [Krizhevsky et al. 2012, 3.3], and its
 * gradient.
 *
 *   input   T [batch, height, width, depth]
 *   output  T: input / (bias + alpha · Σ input²)^beta, with the sum over depth_radius channels on
 *           each side
 *
 * Everything is computed in float.
 * Errors   INVALID_ARGUMENT   ranks other than 4, shapes that differ */
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/nn/norm_internal.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/scratch.h"
#include "kernels/cpu/nn/widen.h"

enum { NARROW_RADIUS = 8 };

struct lrn_state {
    int64_t radius;
    float bias, alpha, beta;
    enum dtype dtype;
};

struct status *lrn_init(struct kernel_init *init) {
    struct lrn_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    state->dtype = (enum dtype)init->node->out_types[0];
    TRY(node_get_i(init->node, "depth_radius", &state->radius));
    TRY(node_get_f(init->node, "bias", &state->bias));
    TRY(node_get_f(init->node, "alpha", &state->alpha));
    TRY(node_get_f(init->node, "beta", &state->beta));
    if (state->radius < 0 || state->radius > INT32_MAX)
        return status_invalid("depth_radius = %lld larger than int max or negative",
                              (long long)state->radius);
    return NULL;
}

struct lrn_job {
    const struct lrn_state *state;
    const struct kernel_ctx *ctx;
    const float *in, *out, *gradient;
    float *result;
    int64_t depth;
    struct status *failure;
};

/* powers[c] = norms[c]^-beta */
VECTOR_CLONES
static void inverse_powers(const float *norms, float beta, int64_t n, float *powers) {
    if (beta == 0.5f) {
        for (int64_t c = 0; c < n; c++)
            powers[c] = 1 / sqrtf(norms[c]);
    } else if (beta == 0.75f) {
        for (int64_t c = 0; c < n; c++)
            powers[c] = 1 / (sqrtf(norms[c]) * sqrtf(sqrtf(norms[c])));
    } else if (beta == 1) {
        for (int64_t c = 0; c < n; c++)
            powers[c] = 1 / norms[c];
    } else {
        for (int64_t c = 0; c < n; c++)
            powers[c] = powf(norms[c], -beta);
    }
}

/* The sums of wide windows, in double precision. A window consists of the end of a block of its
 * width and the begin of the next one. So nothing is subtracted: differences of running sums would
 * lose the digits of windows beside large values. `suffix` has room for n numbers, which are the
 * sums from each place to the end of its block. */
static void wide_sums(const float *restrict v, int64_t n, int64_t radius, double *restrict suffix,
                      float *restrict sums) {
    int64_t width = 2 * radius + 1, block = 0, end = 0; /* of `prefix`: [block, end) */
    double prefix = 0;
    /* only windows that begin behind 0 need it */
    for (int64_t begin = 0; begin < n && radius < n - 1; begin += width) {
        double sum = 0;
        for (int64_t c = MIN(begin + width, n) - 1; c >= begin; c--)
            suffix[c] = sum += (double)v[c];
    }
    for (int64_t c = 0; c < n; c++) {
        for (; end < MIN(c + radius + 1, n); end++) {
            if (end == block + width) {
                block = end;
                prefix = 0;
            }
            prefix += (double)v[end];
        }
        int64_t first = MAX(c - radius, 0);
        if (first < block)
            sums[c] = (float)(suffix[first] + prefix);
        else
            sums[c] = (float)(first == block ? prefix : suffix[first]);
    }
}

/* sums[c] = Σ v around c, within [0, n). */
VECTOR_CLONES
static void window_sums(const float *restrict v, int64_t n, int64_t radius, double *restrict suffix,
                        float *restrict sums) {
    if (radius > NARROW_RADIUS) {
        wide_sums(v, n, radius, suffix, sums);
        return;
    }
    memcpy(sums, v, (size_t)n * sizeof(*sums));
    for (int64_t shift = 1; shift <= MIN(radius, n - 1); shift++) {
        for (int64_t c = 0; c < n - shift; c++)
            sums[c] += v[c + shift];
        for (int64_t c = shift; c < n; c++)
            sums[c] += v[c - shift];
    }
}

/* The buffers of one share. */
struct lrn_buffers {
    double *suffix;
    float *norms, *powers, *terms;
};

VECTOR_CLONES
static void find_norms(const struct lrn_job *job, const float *in, const struct lrn_buffers *b) {
    int64_t depth = job->depth;
    const float bias = job->state->bias, alpha = job->state->alpha;
    float *terms = b->terms, *norms = b->norms;
    for (int64_t c = 0; c < depth; c++)
        terms[c] = in[c] * in[c];
    window_sums(terms, depth, MIN(job->state->radius, depth), b->suffix, norms);
    for (int64_t c = 0; c < depth; c++)
        norms[c] = bias + alpha * norms[c];
    inverse_powers(norms, job->state->beta, depth, b->powers);
}

VECTOR_CLONES
static void forward_pixel(const struct lrn_job *job, int64_t pixel, const struct lrn_buffers *b) {
    const float *in = job->in + pixel * job->depth, *powers = b->powers;
    float *out = job->result + pixel * job->depth;
    _Pragma("GCC ivdep") for (int64_t c = 0; c < job->depth; c++) out[c] = in[c] * powers[c];
}

/* d output[j] / d input[k] = -2 · alpha · beta · input[k] · output[j] / norm[j], plus norm^-beta
 * where j is k. */
VECTOR_CLONES
static void backward_pixel(const struct lrn_job *job, int64_t pixel, const struct lrn_buffers *b) {
    int64_t depth = job->depth, at = pixel * depth;
    const float *in = job->in + at, *out = job->out + at, *gradient = job->gradient + at,
                *powers = b->powers;
    float *result = job->result + at, *terms = b->terms, *around = b->norms,
          twice = -2 * job->state->alpha * job->state->beta;
    _Pragma("GCC ivdep") for (int64_t c = 0; c < depth; c++) terms[c] =
        gradient[c] * out[c] / b->norms[c];
    window_sums(terms, depth, MIN(job->state->radius, depth), b->suffix, around);
    _Pragma("GCC ivdep") for (int64_t c = 0; c < depth; c++) result[c] =
        gradient[c] * powers[c] + twice * in[c] * around[c];
}

static void pixels_range(void *arg, int64_t begin, int64_t end) {
    struct lrn_job *job = arg;
    struct tensor scratch = TENSOR_INIT;
    struct lrn_buffers b;
    struct status *st = scratch_new(job->ctx, DT_DOUBLE, job->depth, 3, &scratch, &b.suffix),
                  *none = NULL;
    if (st) {
        if (!__atomic_compare_exchange_n(&job->failure, &none, st, false, __ATOMIC_ACQ_REL,
                                         __ATOMIC_ACQUIRE))
            status_unref(st);
        return;
    }
    b.norms = (float *)(void *)(b.suffix + job->depth);
    b.powers = b.norms + job->depth;
    b.terms = b.powers + job->depth;
    for (; begin < end; begin++) {
        find_norms(job, job->in + begin * job->depth, &b);
        if (job->gradient)
            backward_pixel(job, begin, &b);
        else
            forward_pixel(job, begin, &b);
    }
    tensor_clear(&scratch);
}

static struct status *run(struct kernel_ctx *ctx, const void *in, const void *out,
                          const void *gradient) {
    const struct lrn_state *state = ctx->instance->state;
    struct tensor scratch[4] = {TENSOR_INIT, TENSOR_INIT, TENSOR_INIT, TENSOR_INIT};
    int64_t n = ctx->inputs[0].n_elements, depth = tensor_dim(&ctx->inputs[0], 3);
    void *result = tensor_data(&ctx->outputs[0]);
    if (kernel_is_for_device(ctx)) {
        struct device_lrn on_device = {.n = n,
                                       .depth = depth,
                                       .radius = state->radius,
                                       .bias = state->bias,
                                       .alpha = state->alpha,
                                       .beta = state->beta,
                                       .in = in,
                                       .out = out,
                                       .gradient = gradient,
                                       .result = result};
        return ctx->instance->engine->lrn(ctx, &on_device);
    }
    struct lrn_job job = {.state = state, .ctx = ctx, .depth = depth};
    struct status *st = NULL;
    TRY_OUT(widen_operand(ctx, state->dtype, n, &in, &scratch[0]));
    TRY_OUT(widen_operand(ctx, state->dtype, n, &out, &scratch[1]));
    TRY_OUT(widen_operand(ctx, state->dtype, n, &gradient, &scratch[2]));
    TRY_OUT(widen_result(ctx, state->dtype, n, result, &job.result, &scratch[3]));
    job.in = in, job.out = out, job.gradient = gradient;
    pool_parallel_for(ctx->pool, n / depth, (double)depth * 5 + 100, pixels_range, &job);
    TRY_OUT(job.failure);
    narrow_result(ctx, state->dtype, n, result, job.result);
out:
    for (size_t i = 0; i < ARRAY_LEN(scratch); i++)
        tensor_clear(&scratch[i]);
    return st;
}

enum kernel_result lrn_compute(struct kernel_ctx *ctx) {
    const struct lrn_state *state = ctx->instance->state;
    const struct tensor *in = kernel_input(ctx, 0);
    if (in->rank != 4)
        return kernel_fail(ctx, status_invalid("in must be 4-dimensional"));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, state->dtype, tensor_shape(in)));
    if (in->n_elements != 0)
        KERNEL_TRY(ctx, run(ctx, tensor_cdata(in), NULL, NULL));
    return KERNEL_DONE;
}

enum kernel_result lrn_grad_compute(struct kernel_ctx *ctx) {
    const struct lrn_state *state = ctx->instance->state;
    const struct tensor *t = ctx->inputs;
    if (t[0].rank != 4 || t[1].rank != 4)
        return kernel_fail(ctx, status_invalid("inputs must be 4-dimensional"));
    if (!shape_equal(tensor_shape(&t[0]), tensor_shape(&t[1])) ||
        !shape_equal(tensor_shape(&t[0]), tensor_shape(&t[2])))
        return kernel_fail(
            ctx,
            status_invalid("input_grads, input_image, and out_image should have the same shape"));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, state->dtype, tensor_shape(&t[0])));
    if (t[0].n_elements != 0)
        KERNEL_TRY(ctx, run(ctx, tensor_cdata(&t[1]), tensor_cdata(&t[2]), tensor_cdata(&t[0])));
    return KERNEL_DONE;
}
