/* Runs ParameterizedTruncatedNormal: normals with a mean, a deviation and bounds for each batch.
 *
 * On a CPU all batches use one stream in order, which gives the numbers of TensorFlow on one
 * thread. On a device each sample has a stream of its own, so the numbers are others than on a
 * CPU. */
#include <math.h>

#include "common/tensor/element.h"
#include "common/tensor/float16.h"
#include "kernels/cpu/random/random_internal.h"
#include "kernels/kernel.h"
#include "kernels/support/cancel.h"
#include "kernels/support/scratch.h"

enum { EQUAL_BATCH = 100 };

struct parameterized {
    struct philox generator;
    /* mean, deviation, lower and upper bound, each one for all batches or one for each batch */
    const struct tensor *parameters[4];
    int64_t samples, n; /* samples: of one batch; n: of all */
    void *out;          /* in the type of the computation */
};

static double parameter_at(const struct tensor *t, int64_t b) {
    return tensor_real_at(t, t->n_elements == 1 ? 0 : b);
}

static float round_half(float v) { return half_to_float(half_from_float(v)); }

/* Is there a batch b, and does somebody want it? */
static bool has_batch(const struct parameterized *job, int64_t b) {
    return b * job->samples < job->n && pool_goes_on_rows(b + 1, job->samples);
}

#define DRAW static
#define GENERATOR struct philox
/* Draws the samples of all batches. */
#define BATCHES(name, REAL)                                                                     \
    static struct status *batches_##name(struct parameterized *job) {                           \
        REAL *out = job->out, p[4];                                                             \
        for (int64_t b = 0; has_batch(job, b); b++) {                                           \
            int64_t begin = b * job->samples, end = MIN(begin + job->samples, job->n);          \
            struct sampling_##name s = {                                                        \
                .generator = &job->generator, .out = out + begin, .n = end - begin};            \
            for (int i = 0; i < 4; i++)                                                         \
                p[i] = (REAL)parameter_at(job->parameters[i], b);                               \
            TRY(check(bounds_init_##name(p[0], p[1], p[2], p[3], &s.b), "Invalid parameters")); \
            TRY(check(sample_##name(&s), NOTHING_ACCEPTED));                                    \
        }                                                                                       \
        return NULL;                                                                            \
    }
#define NOTHING_ACCEPTED "TruncatedNormal randn rejection sampler failed to accept a sample."

static struct status *check(bool is_right, const char *what) {
    return is_right ? NULL : status_invalid("%s", what);
}

#define NAME(x) x##_half
#define REAL float
#define ROUND(x) round_half(x)
#define GROUP 4
#define NEXT_UNIFORMS(generator, out) random_next_f32(RANDOM_UNIFORM, DT_HALF, generator, out)
#define NEXT_NORMALS(generator, out) random_next_f32(RANDOM_NORMAL, DT_HALF, generator, out)
#define EXP expf
#define LOG logf
#define SQRT sqrtf
#include "kernels/cpu/random/random_parameterized.inc"
#undef NAME
#undef ROUND
#undef NEXT_UNIFORMS
#undef NEXT_NORMALS
#define NAME(x) x##_float
#define ROUND(x) (x)
#define NEXT_UNIFORMS(generator, out) random_next_f32(RANDOM_UNIFORM, DT_FLOAT, generator, out)
#define NEXT_NORMALS(generator, out) random_next_f32(RANDOM_NORMAL, DT_FLOAT, generator, out)
#include "kernels/cpu/random/random_parameterized.inc"
#undef NAME
#undef REAL
#undef GROUP
#undef NEXT_UNIFORMS
#undef NEXT_NORMALS
#undef EXP
#undef LOG
#undef SQRT
#define NAME(x) x##_double
#define REAL double
#define GROUP 2
#define NEXT_UNIFORMS(generator, out) random_next_f64(RANDOM_UNIFORM, generator, out)
#define NEXT_NORMALS(generator, out) random_next_f64(RANDOM_NORMAL, generator, out)
#define EXP exp
#define LOG log
#define SQRT sqrt
#include "kernels/cpu/random/random_parameterized.inc"

BATCHES(half, float)
BATCHES(float, float)
BATCHES(double, double)

static struct status *run_half(struct kernel_ctx *ctx, struct parameterized *job) {
    struct tensor memory = TENSOR_INIT;
    float *floats;
    uint16_t *out = job->out;
    TRY(scratch_new(ctx, DT_FLOAT, job->n, 1, &memory, &floats));
    job->out = floats;
    struct status *st = batches_half(job);
    for (int64_t i = 0; !st && i < job->n && pool_goes_on(i + 1); i++)
        out[i] = half_from_float(floats[i]);
    tensor_clear(&memory);
    return st;
}

/* Splits the output into batches. With equal parameters for all outputs the size of a batch is
 * free. Errors: INVALID_ARGUMENT for parameters that do not fit the batches. */
static struct status *divide(struct parameterized *job, int64_t n_batches, int64_t *ret_n_batches) {
    static const char *const names[4] = {"means", "stddevs", "minvals", "maxvals"};
    bool is_same = true;
    for (int i = 0; i < 4; i++) {
        const struct tensor *t = job->parameters[i];
        if (t->rank > 1)
            return status_invalid("Input %s should be a scalar or vector, got shape: %s", names[i],
                                  TENSOR_SHAPE_TEXT(t));
        is_same = is_same && (t->rank == 0 || tensor_dim(t, 0) == 1);
    }
    if (is_same) {
        job->samples = EQUAL_BATCH;
        *ret_n_batches = (job->n + EQUAL_BATCH - 1) / EQUAL_BATCH;
        return NULL;
    }
    for (int i = 0; i < 4; i++) {
        const struct tensor *t = job->parameters[i];
        if (t->rank == 1 && t->n_elements != 1 && t->n_elements != n_batches)
            return status_invalid("Input %s should have length 1 or shape[0], got shape: %s",
                                  names[i], TENSOR_SHAPE_TEXT(t));
    }
    job->samples = n_batches > 0 ? job->n / n_batches : 0;
    *ret_n_batches = n_batches;
    return NULL;
}

/* The host cannot read the parameters: a sample whose parameters are wrong, or for which nothing
 * was accepted, is NaN. */
static struct status *run_on_device(struct kernel_ctx *ctx, const struct parameterized *job) {
    struct device_parameterized on_device = {.dtype = (enum dtype)ctx->instance->out_types[0],
                                             .out = job->out,
                                             .n = job->n,
                                             .samples = job->samples};
    for (int i = 0; i < 4; i++) {
        on_device.parameters[i] = tensor_cdata(job->parameters[i]);
        on_device.is_shared[i] = job->parameters[i]->n_elements == 1;
    }
    uint64_t blocks = (uint64_t)job->n * DEVICE_PARAMETERIZED_BLOCKS;
    on_device.generator = random_state_reserve(ctx, blocks);
    return ctx->instance->engine->parameterized(ctx, &on_device);
}

/* ParameterizedTruncatedNormal.
 *   shape   int32, int64 [rank], whose first size counts batches
 *   means, stdevs, minvals, maxvals  dtype, scalars or [batches]
 *   output  dtype [shape...]
 * Errors   INVALID_ARGUMENT   shapes; a deviation that is not positive, bounds that are empty or
 *                             both infinite */
enum kernel_result random_parameterized(struct kernel_ctx *ctx) {
    int64_t dims[SHAPE_MAX_RANK], n_batches;
    struct shape shape;
    struct parameterized job = {.n = 0};
    enum dtype dtype = (enum dtype)ctx->instance->out_types[0];
    KERNEL_TRY(ctx, random_shape(kernel_input(ctx, 0), dims, &shape));
    if (shape.rank == 0)
        return kernel_fail(ctx, status_invalid("Shape tensor must not be empty, got []"));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, dtype, shape));
    for (int i = 0; i < 4; i++)
        job.parameters[i] = kernel_input(ctx, 1 + i);
    job.n = ctx->outputs[0].n_elements;
    job.out = tensor_data(&ctx->outputs[0]);
    KERNEL_TRY(ctx, divide(&job, dims[0], &n_batches));
    if (job.n == 0)
        return KERNEL_DONE;
    if (kernel_is_for_device(ctx)) {
        KERNEL_TRY(ctx, run_on_device(ctx, &job));
        return KERNEL_DONE;
    }
    uint64_t blocks = (uint64_t)n_batches * 2 * MAX_TRIES * (uint64_t)(job.samples + 3) / 4;
    job.generator = random_state_reserve(ctx, blocks);
    KERNEL_TRY(ctx, dtype == DT_HALF    ? run_half(ctx, &job)
                    : dtype == DT_FLOAT ? batches_float(&job)
                                        : batches_double(&job));
    return KERNEL_DONE;
}
