/* Computes activations and their gradients: one loop for each formula and element type, and one
 * kernel for all of them.
 *
 * v is the feature (for Elu's and Selu's gradient the activation itself), g is the incoming
 * gradient. As in TensorFlow, a gradient is multiplied by 0 instead of replaced by 0, so a NaN
 * gradient stays visible. Comparisons treat NaN as TensorFlow's do. */
/* Nobody reads the floating-point exception flags. Without this option, gcc keeps a branch around
 * operations that may raise one, and does not vectorise. */
#ifndef __clang__
#pragma GCC optimize("no-trapping-math")
#endif

#include <stdlib.h>

#include "common/tensor/float16.h"
#include "kernels/cpu/nn/nn_blocks.h"
#include "kernels/cpu/nn/nn_internal.h"
#include "kernels/support/elementwise_checks.h"
#include "kernels/support/half_blocks.h"
#include "kernels/support/vmath.h"

/* `g` is NULL for activations. `y` may be `g` or `v` itself. */
typedef void activation_loop(const void *g, const void *v, void *y, int64_t n, double alpha);

struct activation {
    const char *op;
    activation_loop *loops[DT_N_TYPES]; /* half and bfloat16 use the float loop */
    float cost_ns;                      /* of one element */
};

struct activation_state {
    activation_loop *loop;
    double alpha;
    double cost_ns;
    enum dtype dtype;
    bool is_gradient;
};

#define FORWARD(name, suffix, type, expression)                                            \
    VECTOR_CLONES static void name##_##suffix(const void *gradients, const void *features, \
                                              void *out, int64_t n, double alpha_attr) {   \
        const type *x = features;                                                          \
        type *y = out;                                                                     \
        const type alpha = (type)alpha_attr;                                               \
        (void)alpha;                                                                       \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {                             \
            const type v = x[i];                                                           \
            y[i] = (type)(expression);                                                     \
        }                                                                                  \
    }
#define BACKWARD(name, suffix, type, expression)                                           \
    VECTOR_CLONES static void name##_##suffix(const void *gradients, const void *features, \
                                              void *out, int64_t n, double alpha_attr) {   \
        const type *x = features, *dy = gradients;                                         \
        type *y = out;                                                                     \
        const type alpha = (type)alpha_attr;                                               \
        (void)alpha;                                                                       \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {                             \
            const type v = x[i], g = dy[i];                                                \
            y[i] = (type)(expression);                                                     \
        }                                                                                  \
    }

/* ---- formulas ---- */

#define RELU(s, T) FORWARD(relu, s, T, v <= 0 ? (T)0 : v)
#define RELU_GRAD(s, T) BACKWARD(relu_grad, s, T, g *(T)(v > 0))
#define RELU6(s, T) FORWARD(relu6, s, T, v <= 0 ? (T)0 : v > 6 ? (T)6 : v)
#define RELU6_GRAD(s, T) BACKWARD(relu6_grad, s, T, g *(T)((v > 0) & (v < 6)))

// clang-format off
#define FOR_REAL(X)                                                                            \
    X(f32, float) X(f64, double) X(i8, int8_t) X(i16, int16_t) X(i32, int32_t) X(i64, int64_t) \
    X(u8, uint8_t) X(u16, uint16_t) X(u32, uint32_t) X(u64, uint64_t)
// clang-format on
FOR_REAL(RELU)
FOR_REAL(RELU_GRAD)
FOR_REAL(RELU6)
FOR_REAL(RELU6_GRAD)

#define FOR_FLOAT(X) X(f32, float) X(f64, double)
#define LEAKY_RELU(s, T) FORWARD(leaky_relu, s, T, v > 0 ? v : v * alpha)
#define LEAKY_RELU_GRAD(s, T) BACKWARD(leaky_relu_grad, s, T, v > 0 ? g : g * alpha)
FOR_FLOAT(LEAKY_RELU)
FOR_FLOAT(LEAKY_RELU_GRAD)

#define ELU(s, T) FORWARD(elu, s, T, v < 0 ? vexpm1_low_##s(v) : v)
#define ELU_GRAD(s, T) BACKWARD(elu_grad, s, T, v < 0 ? (v + 1) * g : g)
FOR_FLOAT(ELU)
FOR_FLOAT(ELU_GRAD)

/* The fixed point of mean 0 and variance 1 [Klambauer et al. 2017, equation 14]. */
#define SELU_SCALE 1.0507009873554804934193349852946
#define SELU_SCALE_ALPHA 1.7580993408473768599402175208123
#define SELU(s, T) \
    FORWARD(selu, s, T, v < 0 ? (T)SELU_SCALE_ALPHA * vexpm1_low_##s(v) : (T)SELU_SCALE * v)
#define SELU_GRAD(s, T) \
    BACKWARD(selu_grad, s, T, v < 0 ? g * (v + (T)SELU_SCALE_ALPHA) : g * (T)SELU_SCALE)
FOR_FLOAT(SELU)
FOR_FLOAT(SELU_GRAD)

/* Above these, log(1 + e^v) is v to the last bit. */
#define SOFTPLUS_LINEAR_f32 20.0f
#define SOFTPLUS_LINEAR_f64 40.0
/* Computes both branches for every element, because a loop with a branch would not vectorise. */
static inline float softplus_of_f32(float v) {
    float curved = vlog1p_positive_f32(vexp_f32(v));
    return v > SOFTPLUS_LINEAR_f32 ? v : curved;
}
static inline double softplus_of_f64(double v) {
    double curved = vlog1p_positive_f64(vexp_f64(v));
    return v > SOFTPLUS_LINEAR_f64 ? v : curved;
}
#define SOFTPLUS(s, T) FORWARD(softplus, s, T, softplus_of_##s(v))
#define SOFTPLUS_GRAD(s, T) BACKWARD(softplus_grad, s, T, g / (vexp_##s(-v) + 1))
FOR_FLOAT(SOFTPLUS)
FOR_FLOAT(SOFTPLUS_GRAD)

#define SOFTSIGN(s, T) FORWARD(softsign, s, T, v / (1 + (v < 0 ? -v : v)))
#define SOFTSIGN_GRAD(s, T) \
    BACKWARD(softsign_grad, s, T, g / ((1 + (v < 0 ? -v : v)) * (1 + (v < 0 ? -v : v))))
FOR_FLOAT(SOFTSIGN)
FOR_FLOAT(SOFTSIGN_GRAD)

// clang-format off
#define FLOAT_LOOPS(f) [DT_FLOAT] = f##_f32, [DT_DOUBLE] = f##_f64
#define REAL_LOOPS(f) FLOAT_LOOPS(f), [DT_INT8] = f##_i8, [DT_INT16] = f##_i16, [DT_INT32] = \
    f##_i32, [DT_INT64] = f##_i64,                                                           \
        [DT_UINT8] = f##_u8, [DT_UINT16] = f##_u16, [DT_UINT32] = f##_u32, [DT_UINT64] = f##_u64

static const struct activation activations[] = {
    {"Relu",          {REAL_LOOPS(relu)},             0.2f},
    {"ReluGrad",      {REAL_LOOPS(relu_grad)},        0.3f},
    {"Relu6",         {REAL_LOOPS(relu6)},            0.2f},
    {"Relu6Grad",     {REAL_LOOPS(relu6_grad)},       0.3f},
    {"LeakyRelu",     {FLOAT_LOOPS(leaky_relu)},      0.2f},
    {"LeakyReluGrad", {FLOAT_LOOPS(leaky_relu_grad)}, 0.3f},
    {"Elu",           {FLOAT_LOOPS(elu)},             0.6f},
    {"EluGrad",       {FLOAT_LOOPS(elu_grad)},        0.3f},
    {"Selu",          {FLOAT_LOOPS(selu)},            0.6f},
    {"SeluGrad",      {FLOAT_LOOPS(selu_grad)},       0.3f},
    {"Softplus",      {FLOAT_LOOPS(softplus)},        1.5f},
    {"SoftplusGrad",  {FLOAT_LOOPS(softplus_grad)},   0.8f},
    {"Softsign",      {FLOAT_LOOPS(softsign)},        0.3f},
    {"SoftsignGrad",  {FLOAT_LOOPS(softsign_grad)},   0.4f},
};
// clang-format on

/* ---- running ---- */

struct status *nn_activation_init(struct kernel_init *init) {
    const struct activation *activation = activations;
    while (strcmp(activation->op, init->node->op_name) != 0)
        activation++;
    enum dtype dtype = (enum dtype)init->node->in_types[0];
    float alpha = 0;
    if (node_attr(init->node, "alpha"))
        TRY(node_get_f(init->node, "alpha", &alpha));
    bool is_narrow = dtype_is_narrow_float(dtype);
    if (is_narrow)
        alpha = half_value_load(dtype, half_value_store(dtype, alpha));
    struct activation_state *state = xmalloc(sizeof(*state));
    *state = (struct activation_state){.loop = activation->loops[is_narrow ? DT_FLOAT : dtype],
                                       .alpha = alpha,
                                       .cost_ns = (double)activation->cost_ns *
                                                  (is_narrow ? 3 : dtype_size(dtype) / 4.0),
                                       .dtype = dtype,
                                       .is_gradient = init->node->n_data == 2};
    init->state = state;
    return NULL;
}

struct activation_job {
    const struct activation_state *state;
    const char *g, *v;
    char *y;
};

static void run_narrow(const struct activation_job *job, int64_t begin, int64_t end) {
    const struct activation_state *state = job->state;
    float g[HALF_BLOCK], v[HALF_BLOCK];
    for (int64_t i = begin; i < end; i += HALF_BLOCK) {
        int64_t n = MIN(end - i, (int64_t)HALF_BLOCK);
        half_block_load(state->dtype, v, (const uint16_t *)(const void *)job->v + i, n);
        if (state->is_gradient)
            half_block_load(state->dtype, g, (const uint16_t *)(const void *)job->g + i, n);
        state->loop(g, v, v, n, state->alpha);
        half_block_store(state->dtype, (uint16_t *)(void *)job->y + i, v, n);
    }
}

static void activation_range(void *arg, int64_t begin, int64_t end) {
    const struct activation_job *job = arg;
    enum dtype dtype = job->state->dtype;
    if (dtype_is_narrow_float(dtype)) {
        run_narrow(job, begin, end);
        return;
    }
    size_t at = (size_t)begin * dtype_size(dtype);
    job->state->loop(job->g ? job->g + at : NULL, job->v + at, job->y + at, end - begin,
                     job->state->alpha);
}

/* Relu and similar ops: y = f(features). Their gradients: y = f'(gradients, features), both inputs
 * of one shape.
 * Errors   INVALID_ARGUMENT   a gradient's inputs differ in shape */
enum kernel_result nn_activation(struct kernel_ctx *ctx) {
    const struct activation_state *state = ctx->instance->state;
    const struct tensor *first = kernel_input(ctx, 0),
                        *features = state->is_gradient ? kernel_input(ctx, 1) : first;
    if (state->is_gradient)
        KERNEL_TRY(ctx, elementwise_check_same_shapes(ctx));
    struct activation_job job = {state, state->is_gradient ? tensor_cdata(first) : NULL,
                                 tensor_cdata(features), NULL};
    int64_t n = tensor_n_elements(first);
    KERNEL_TRY(ctx, kernel_forward_or_alloc(ctx, 0, 0, state->dtype, tensor_shape(first)));
    job.y = tensor_data(&ctx->outputs[0]);
    pool_parallel_for(ctx->pool, n, state->cost_ns, activation_range, &job);
    return KERNEL_DONE;
}

static unsigned activation_block(const struct kernel_instance *instance,
                                 const void *const *operands, unsigned ones, void *out, int64_t n) {
    const struct activation_state *state = instance->state;
    struct activation_job job = {state, state->is_gradient ? operands[0] : NULL,
                                 operands[state->is_gradient], out};
    (void)ones;
    activation_range(&job, 0, n);
    return 0;
}

const struct block_engine nn_activation_engine = {nn_activation, activation_block, BLOCK_EQUAL,
                                                  NULL, NULL};
