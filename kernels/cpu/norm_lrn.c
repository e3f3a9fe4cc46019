/* LRN: local response normalisation across channels [Krizhevsky et al. 2012, 3.3], and its gradient.
 *
 *   input   T [batch, height, width, depth]
 *   output  T: input / (bias + alpha · Σ input²)^beta, the sum over depth_radius channels on each side
 *
 * Computed in float.
 * Errors   INVALID_ARGUMENT   ranks other than 4, shapes that differ */
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/norm_internal.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/widen.h"

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
        return status_invalid("depth_radius = %lld larger than int max or negative", (long long)state->radius);
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

static float inverse_power(float v, float beta) {
    if (beta == 0.5f)
        return 1 / sqrtf(v);
    if (beta == 0.75f)
        return 1 / (sqrtf(v) * sqrtf(sqrtf(v)));
    return beta == 1 ? 1 / v : powf(v, -beta);
}

/* norms[c] = bias + alpha · Σ input² around c, by running sums. */
static void find_norms(const struct lrn_job *job, const float *in, double *running, float *norms) {
    int64_t depth = job->depth, radius = MIN(job->state->radius, depth);
    running[0] = 0;
    for (int64_t c = 0; c < depth; c++)
        running[c + 1] = running[c] + (double)in[c] * (double)in[c];
    for (int64_t c = 0; c < depth; c++) {
        double sum = running[MIN(c + radius + 1, depth)] - running[MAX(c - radius, 0)];
        norms[c] = job->state->bias + job->state->alpha * (float)sum;
    }
}

static void forward_pixel(const struct lrn_job *job, int64_t pixel, const float *norms) {
    const float *in = job->in + pixel * job->depth;
    float *out = job->result + pixel * job->depth;
    for (int64_t c = 0; c < job->depth; c++)
        out[c] = in[c] * inverse_power(norms[c], job->state->beta);
}

/* d output[j] / d input[k] = -2 · alpha · beta · input[k] · output[j] / norm[j], and norm^-beta more where j is k. */
static void backward_pixel(const struct lrn_job *job, int64_t pixel, const float *norms, double *running) {
    int64_t depth = job->depth, radius = MIN(job->state->radius, depth), at = pixel * depth;
    float twice = -2 * job->state->alpha * job->state->beta;
    running[0] = 0;
    for (int64_t c = 0; c < depth; c++)
        running[c + 1] = running[c] + (double)job->gradient[at + c] * (double)job->out[at + c] / (double)norms[c];
    for (int64_t c = 0; c < depth; c++) {
        double around = running[MIN(c + radius + 1, depth)] - running[MAX(c - radius, 0)];
        job->result[at + c] = job->gradient[at + c] * inverse_power(norms[c], job->state->beta) + twice * job->in[at + c] * (float)around;
    }
}

static void pixels_range(void *arg, int64_t begin, int64_t end) {
    struct lrn_job *job = arg;
    struct tensor scratch = TENSOR_INIT;
    double *running;
    struct status *st = scratch_new(job->ctx, DT_DOUBLE, job->depth + 1, 2, &scratch, &running), *none = NULL;
    if (st) {
        if (!__atomic_compare_exchange_n(&job->failure, &none, st, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            status_unref(st);
        return;
    }
    float *norms = (float *)(void *)(running + job->depth + 1);
    for (; begin < end; begin++) {
        find_norms(job, job->in + begin * job->depth, running, norms);
        if (job->gradient)
            backward_pixel(job, begin, norms, running);
        else
            forward_pixel(job, begin, norms);
    }
    tensor_clear(&scratch);
}

static struct status *run(struct kernel_ctx *ctx, const void *in, const void *out, const void *gradient) {
    const struct lrn_state *state = ctx->instance->state;
    struct tensor scratch[4] = {TENSOR_INIT, TENSOR_INIT, TENSOR_INIT, TENSOR_INIT};
    int64_t n = ctx->inputs[0].n_elements, depth = tensor_dim(&ctx->inputs[0], 3);
    void *result = tensor_data(&ctx->outputs[0]);
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
    if (!shape_equal(tensor_shape(&t[0]), tensor_shape(&t[1])) || !shape_equal(tensor_shape(&t[0]), tensor_shape(&t[2])))
        return kernel_fail(ctx, status_invalid("input_grads, input_image, and out_image should have the same shape"));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, state->dtype, tensor_shape(&t[0])));
    if (t[0].n_elements != 0)
        KERNEL_TRY(ctx, run(ctx, tensor_cdata(&t[1]), tensor_cdata(&t[2]), tensor_cdata(&t[0])));
    return KERNEL_DONE;
}
