/* Runs BatchNormWithGlobalNormalization and its gradient, which FusedBatchNorm replaced. They are
 * deprecated and kept for old graphs.
 *
 *   t               T [batch, height, width, depth]
 *   m, v, beta, gamma   T [depth]
 *   result          (t - m) / √(v + variance_epsilon) [· gamma] + beta; gamma if
 *                   scale_after_normalization
 *
 * Everything is computed in double, element by element.
 * Errors   INVALID_ARGUMENT   ranks and sizes that do not fit */
#include <math.h>
#include <stdlib.h>

#include "common/tensor/float16.h"
#include "common/base/pool_cancel.h"
#include "kernels/cpu/nn/norm_internal.h"
#include "kernels/support/scratch.h"

struct global_norm_state {
    float epsilon;
    bool scales;
    enum dtype dtype;
};

struct status *global_norm_init(struct kernel_init *init) {
    struct global_norm_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    state->dtype = (enum dtype)init->node->out_types[0];
    TRY(node_get_f(init->node, "variance_epsilon", &state->epsilon));
    return node_get_b(init->node, "scale_after_normalization", &state->scales);
}

static double load(enum dtype dtype, const struct tensor *t, int64_t i) {
    const void *data = tensor_cdata(t);
    return dtype == DT_DOUBLE  ? ((const double *)data)[i]
           : dtype == DT_FLOAT ? (double)((const float *)data)[i]
                               : (double)half_to_float(((const uint16_t *)data)[i]);
}

static void store(enum dtype dtype, struct tensor *t, int64_t i, double v) {
    void *data = tensor_data(t);
    if (dtype == DT_DOUBLE)
        ((double *)data)[i] = v;
    else if (dtype == DT_FLOAT)
        ((float *)data)[i] = (float)v;
    else
        ((uint16_t *)data)[i] = half_from_float((float)v);
}

static struct status *check_inputs(const struct kernel_ctx *ctx, const char *const *names) {
    const struct tensor *t = ctx->inputs;
    if (t[0].rank != 4)
        return status_invalid("input must be 4-dimensional, but has rank %d", t[0].rank);
    for (int i = 1; i < 5; i++) {
        if (!names[i])
            continue;
        if (t[i].rank != 1)
            return status_invalid("%s must be 1-dimensional, but has rank %d", names[i], t[i].rank);
        if (t[i].n_elements != tensor_dim(&t[0], 3))
            return status_invalid(
                "Shape of %s is not compatible with the last dimension of the input: %lld and %lld",
                names[i], (long long)t[i].n_elements, (long long)tensor_dim(&t[0], 3));
    }
    return NULL;
}

enum kernel_result global_norm_compute(struct kernel_ctx *ctx) {
    const struct global_norm_state *state = ctx->instance->state;
    const struct tensor *t = ctx->inputs;
    enum dtype dtype = state->dtype;
    KERNEL_TRY(ctx, check_inputs(ctx, (const char *const[]){"t", "mean", "var", "beta", "gamma"}));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, dtype, tensor_shape(&t[0])));
    int64_t depth = tensor_dim(&t[0], 3);
    for (int64_t i = 0; i < t[0].n_elements && pool_goes_on(i + 1); i++) {
        int64_t c = i % depth;
        double factor = 1 / sqrt(load(dtype, &t[2], c) + (double)state->epsilon);
        if (state->scales)
            factor *= load(dtype, &t[4], c);
        store(dtype, &ctx->outputs[0], i,
              (load(dtype, &t[0], i) - load(dtype, &t[1], c)) * factor + load(dtype, &t[3], c));
    }
    return KERNEL_DONE;
}

/* With s = 1 / √(v + epsilon), k = gamma (1 if it is not used), and sums over all dimensions but
 * the depth:
 *   dx = g · k · s           dm = -Σ g · k · s     dv = -½ · s³ · Σ g · k · (t - m)
 *   db = Σ g                 dg = s · Σ g · (t - m), or 0 */
static void gradient(struct kernel_ctx *ctx, const struct global_norm_state *state, double *sums,
                     double *products) {
    const struct tensor *t = ctx->inputs;
    struct tensor *out = ctx->outputs;
    enum dtype dtype = state->dtype;
    int64_t depth = tensor_dim(&t[0], 3);
    for (int64_t i = 0; i < t[0].n_elements && pool_goes_on(i + 1); i++) {
        int64_t c = i % depth;
        double g = load(dtype, &t[4], i),
               s = 1 / sqrt(load(dtype, &t[2], c) + (double)state->epsilon);
        double k = state->scales ? load(dtype, &t[3], c) : 1;
        sums[c] += g;
        products[c] += g * (load(dtype, &t[0], i) - load(dtype, &t[1], c));
        store(dtype, &out[0], i, g * k * s);
    }
    for (int64_t c = 0; c < depth; c++) {
        double s = 1 / sqrt(load(dtype, &t[2], c) + (double)state->epsilon),
               k = state->scales ? load(dtype, &t[3], c) : 1;
        store(dtype, &out[1], c, -sums[c] * k * s);
        store(dtype, &out[2], c, -0.5 * s * s * s * products[c] * k);
        store(dtype, &out[3], c, sums[c]);
        store(dtype, &out[4], c, state->scales ? products[c] * s : 0);
    }
}

enum kernel_result global_norm_grad_compute(struct kernel_ctx *ctx) {
    const struct global_norm_state *state = ctx->instance->state;
    const struct tensor *t = ctx->inputs;
    KERNEL_TRY(ctx, check_inputs(ctx, (const char *const[]){"t", "mean", "var", "gamma", NULL}));
    if (!shape_equal(tensor_shape(&t[0]), tensor_shape(&t[4])))
        return kernel_fail(ctx, status_invalid("input and backprop must have the same shape"));
    int64_t depth = tensor_dim(&t[0], 3);
    for (int i = 0; i < 5; i++)
        KERNEL_TRY(ctx, kernel_alloc(ctx, i, state->dtype,
                                     i == 0 ? tensor_shape(&t[0]) : (struct shape){1, &depth}));
    struct tensor scratch = TENSOR_INIT;
    double *sums;
    KERNEL_TRY(ctx, scratch_new(ctx, DT_DOUBLE, depth, 2, &scratch, &sums));
    memset(sums, 0, (size_t)depth * 2 * sizeof(*sums));
    gradient(ctx, state, sums, sums + depth);
    tensor_clear(&scratch);
    return KERNEL_DONE;
}
