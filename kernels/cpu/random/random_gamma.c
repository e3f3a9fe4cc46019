/* Draws from Gamma and Poisson distributions by rejection sampling in double, whatever the types.
 *
 * Each parameter gets `samples` outputs, which the output stores as output[sample, parameter]. The
 * stream of a sample begins at block 256 · (parameter · samples + sample), so the numbers do not
 * depend on which thread computes them. */
#include <math.h>
#include <stdlib.h>

#include "common/tensor/float16.h"
#include "kernels/cpu/random/random_internal.h"
#include "common/tensor/element.h"

static void next_block(struct philox *generator, double out[2]) {
    uint32_t words[PHILOX_BLOCK];
    philox_next(generator, words);
    out[0] = philox_f64(words[0], words[1]);
    out[1] = philox_f64(words[2], words[3]);
}

#define DRAW static
#define GENERATOR struct philox
#define NEXT_BLOCK next_block
#include "kernels/cpu/random/random_gamma.inc"

struct poisson_constants {
    double rate, exp_neg_rate, log_rate, a, b, inv_alpha, v_r;
};

static struct poisson_constants poisson_prepare(double rate) {
    double b = 0.931 + 2.53 * sqrt(rate);
    return (struct poisson_constants){.rate = rate,
                                      .exp_neg_rate = exp(-rate),
                                      .log_rate = log(rate),
                                      .a = -0.059 + 0.02483 * b,
                                      .b = b,
                                      .inv_alpha = 1.1239 + 1.1328 / (b - 3.4),
                                      .v_r = 0.9277 - 3.6224 / (b - 2)};
}

/* For small rates uniforms are multiplied until the product is below e^-rate (Knuth). Other rates
 * use Hörmann's PTRS, "The transformed rejection method for generating Poisson random variables"
 * (1993). `max` is the largest number that the output's type can hold. */
static double draw_poisson(struct draws *draws, const struct poisson_constants *p, double max) {
    if (!(p->rate >= 0) || isinf(p->rate))
        return NAN;
    if (p->rate < 10) {
        double product = draw_uniform(draws), n = 0;
        for (; product > p->exp_neg_rate; n++)
            product *= draw_uniform(draws);
        return n;
    }
    for (int i = 0; i < MAX_DRAWS; i++) {
        double u = draw_uniform(draws) - 0.5, v = draw_uniform(draws), shifted = 0.5 - fabs(u);
        double k = floor((2 * p->a / shifted + p->b) * u + p->rate + 0.43);
        if (k > max)
            continue;
        if (shifted >= 0.07 && v <= p->v_r)
            return k;
        if (k < 0 || (shifted < 0.013 && v > shifted))
            continue;
        int sign;
        double s = log(v * p->inv_alpha / (p->a / (shifted * shifted) + p->b));
        double t = -p->rate + k * p->log_rate - lgamma_r(k + 1, &sign);
        if (s <= t)
            return k;
    }
    return max;
}

/* ---- elements ---- */

void random_put(enum dtype dtype, void *data, int64_t i, double v) {
    switch (dtype) {
    case DT_HALF:
        ((uint16_t *)data)[i] = half_from_float((float)v);
        break;
    case DT_BFLOAT16:
        ((uint16_t *)data)[i] = bfloat16_from_float((float)v);
        break;
    case DT_FLOAT:
        ((float *)data)[i] = (float)v;
        break;
    case DT_DOUBLE:
        ((double *)data)[i] = v;
        break;
    case DT_INT32:
        ((int32_t *)data)[i] = v >= -2147483648.0 && v < 2147483648.0 ? (int32_t)v : INT32_MIN;
        break;
    default:
        ((int64_t *)data)[i] =
            v >= -9223372036854775808.0 && v < 9223372036854775808.0 ? (int64_t)v : INT64_MIN;
    }
}

static double max_of(enum dtype dtype) {
    switch (dtype) {
    case DT_HALF:
        return 65504;
    case DT_FLOAT:
        return 0x1.fffffep127;
    case DT_DOUBLE:
        return 0x1.fffffffffffffp1023;
    case DT_INT32:
        return INT32_MAX;
    default:
        return 0x1.fffffffffffffp62; /* the largest double below 2^63 */
    }
}

struct sample_job {
    bool is_poisson;
    struct philox generator;
    struct device_generator generator_at; /* on a device */
    enum dtype out;
    const struct tensor *parameters;
    int64_t n_parameters, samples;
    void *to;
};

static void sample_range(void *arg, int64_t begin, int64_t end) {
    const struct sample_job *job = arg;
    double max = max_of(job->out);
    struct poisson_constants poisson = {0};
    double parameter = 0;
    for (int64_t i = begin; i < end; i++) {
        int64_t p = i / job->samples, sample = i % job->samples;
        if (i == begin || sample == 0) {
            parameter = tensor_real_at(job->parameters, p);
            if (job->is_poisson)
                poisson = poisson_prepare(parameter);
        }
        struct draws draws = {
            .generator = philox_skip(job->generator, (uint64_t)i * RANDOM_BLOCKS_PER_OUTPUT)};
        double v =
            job->is_poisson ? draw_poisson(&draws, &poisson, max) : draw_gamma(&draws, parameter);
        random_put(job->out, job->to, sample * job->n_parameters + p, v);
    }
}

/* Only gamma distributions have rows for devices. */
static struct status *run_on_device(struct kernel_ctx *ctx, const struct sample_job *job) {
    struct device_gamma gamma = {.dtype = job->out,
                                 .alpha = tensor_cdata(job->parameters),
                                 .out = job->to,
                                 .n_parameters = job->n_parameters,
                                 .samples = job->samples,
                                 .generator = job->generator,
                                 .generator_at = job->generator_at};
    return ctx->instance->engine->gamma(ctx, &gamma);
}

static enum kernel_result run(struct kernel_ctx *ctx, struct sample_job *job,
                              const struct tensor *parameters) {
    job->out = (enum dtype)ctx->instance->out_types[0];
    job->parameters = parameters;
    job->n_parameters = parameters->n_elements;
    job->to = tensor_data(&ctx->outputs[0]);
    job->samples = ctx->outputs[0].n_elements / job->n_parameters;
    if (kernel_is_for_device(ctx))
        KERNEL_TRY(ctx, run_on_device(ctx, job));
    else
        pool_parallel_for(ctx->pool, ctx->outputs[0].n_elements, 100, sample_range, job);
    return KERNEL_DONE;
}

/* The stateful ops, whose output has the shape `shape` ++ the parameters' shape. */
static enum kernel_result stateful(struct kernel_ctx *ctx, bool is_poisson) {
    const struct tensor *parameters = kernel_input(ctx, 1);
    int64_t dims[SHAPE_MAX_RANK];
    struct shape shape;
    KERNEL_TRY(ctx, random_shape(kernel_input(ctx, 0), dims, &shape));
    if (shape.rank + parameters->rank > SHAPE_MAX_RANK)
        return kernel_fail(ctx, status_invalid("Too many dimensions"));
    for (int i = 0; i < parameters->rank; i++)
        dims[shape.rank++] = tensor_dim(parameters, i);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, (enum dtype)ctx->instance->out_types[0], shape));
    int64_t n = ctx->outputs[0].n_elements;
    if (n == 0)
        return KERNEL_DONE;
    struct sample_job job = {.is_poisson = is_poisson,
                             .generator =
                                 random_state_reserve(ctx, (uint64_t)n * RANDOM_BLOCKS_PER_OUTPUT)};
    return run(ctx, &job, parameters);
}

/* RandomGamma: shape, alpha → output [shape ++ alpha's].
 * RandomPoisson, RandomPoissonV2: shape, rate → output [shape ++ rate's].
 * Errors   INVALID_ARGUMENT   shape not a vector, or too large */
enum kernel_result random_gamma(struct kernel_ctx *ctx) { return stateful(ctx, false); }
enum kernel_result random_poisson(struct kernel_ctx *ctx) { return stateful(ctx, true); }

/* The stateless ops, whose output's shape is an input that ends with the parameters' shape. */
static enum kernel_result stateless(struct kernel_ctx *ctx, struct sample_job *job,
                                    int parameter_input) {
    const struct tensor *parameters = kernel_input(ctx, parameter_input);
    int64_t dims[SHAPE_MAX_RANK];
    struct shape shape;
    KERNEL_TRY(ctx, random_shape(kernel_input(ctx, 0), dims, &shape));
    bool ends_alike = shape.rank >= parameters->rank;
    for (int i = 1; ends_alike && i <= parameters->rank; i++)
        ends_alike = dims[shape.rank - i] == tensor_dim(parameters, parameters->rank - i);
    if (unlikely(!ends_alike))
        return kernel_fail(ctx, status_invalid("Shape passed in must end with broadcasted shape."));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, (enum dtype)ctx->instance->out_types[0], shape));
    if (ctx->outputs[0].n_elements == 0)
        return KERNEL_DONE;
    return run(ctx, job, parameters);
}

/* StatelessRandomGammaV2 (seed), V3 (key, counter, algorithm). The last input is alpha. */
enum kernel_result random_stateless_gamma(struct kernel_ctx *ctx) {
    struct sample_job job = {0};
    bool is_v3 = ctx->instance->n_inputs == 5;
    KERNEL_TRY(ctx, device_input(ctx, ctx->instance->n_inputs - 1));
    if (is_v3) {
        KERNEL_TRY(ctx, random_from_key(kernel_input(ctx, 1), kernel_input(ctx, 2),
                                        kernel_input(ctx, 3), &job.generator));
        random_generator_at(ctx, &job.generator, &job.generator_at);
    } else
        KERNEL_TRY(ctx, random_from_seed(kernel_input(ctx, 1), &job.generator));
    return stateless(ctx, &job, ctx->instance->n_inputs - 1);
}

/* StatelessRandomPoisson: shape, seed, lam. */
enum kernel_result random_stateless_poisson(struct kernel_ctx *ctx) {
    struct sample_job job = {.is_poisson = true};
    KERNEL_TRY(ctx, random_from_seed(kernel_input(ctx, 1), &job.generator));
    return stateless(ctx, &job, 2);
}
