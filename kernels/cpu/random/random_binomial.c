/* Draws binomial numbers: how many of `counts` attempts succeed, each with probability `probs`.
 * Everything is computed in double, whatever the types.
 *
 * For few expected successes, geometric gaps between them are summed [Devroye 1986, "Non-uniform
 * random variate generation", X.4]. For many, transformed rejection is used, BTRS [Hörmann 1993,
 * "The generation of binomial random variates"], with its ratio in logarithms. */
#include <math.h>
#include <stdlib.h>

#include "common/tensor/float16.h"
#include "kernels/kernel.h"
#include "kernels/support/broadcast.h"
#include "kernels/cpu/random/random_internal.h"
#include "common/tensor/element.h"

enum {
    GAP_BLOCKS = 42, /* the blocks of the stream that a sample by gaps has for itself */
    MANY = 10,       /* expected successes */
    ALG_PHILOX = 1,
};

/* ---- one sample ---- */

/* The numbers of a stream, the second of each block first. */
struct uniforms {
    struct philox generator;
    double left[2];
    int n_left;
};

static double next_uniform(struct uniforms *u) {
    if (u->n_left == 0) {
        random_next_f64(RANDOM_UNIFORM, &u->generator, u->left);
        u->n_left = 2;
    }
    return u->left[--u->n_left];
}

/* A gap is at least 1, or NaN for a probability that is not in [0, 1], so the loop ends. */
static double by_gaps(double count, double p, struct uniforms *u) {
    double at = 0, n = 0;
    for (;;) {
        at += ceil(log(next_uniform(u)) / log1p(-p));
        if (!(at <= count))
            return n;
        n++;
    }
}

/* The error of Stirling's formula for log k!. */
static double stirling_tail(double k) {
    static const double small[] = {0.0810614667953272,  0.0413406959554092, 0.0276779256849983,
                                   0.02079067210376509, 0.0166446911898211, 0.0138761288230707,
                                   0.0118967099458917,  0.0104112652619720, 0.00925546218271273,
                                   0.00833056343336287};
    if (k <= 9)
        return small[(int)k];
    double square = (k + 1) * (k + 1);
    return (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1);
}

static double by_rejection(double count, double p, struct uniforms *uniforms) {
    double deviation = sqrt(count * p * (1 - p)), b = 1.15 + 2.53 * deviation,
           a = -0.0873 + 0.0248 * b + 0.01 * p;
    double c = count * p + 0.5, box = 0.92 - 4.2 / b, odds = p / (1 - p),
           alpha = (2.83 + 5.1 / b) * deviation;
    double mode = floor((count + 1) * p);
    for (;;) {
        double u = next_uniform(uniforms) - 0.5, v = next_uniform(uniforms),
               from_edge = 0.5 - fabs(u);
        double k = floor((2 * a / from_edge + b) * u + c);
        if (from_edge >= 0.07 && v <= box)
            return k;
        if (!(k >= 0 && k <= count))
            continue;
        double limit = (mode + 0.5) * log((mode + 1) / (odds * (count - mode + 1))) +
                       (count + 1) * log((count - mode + 1) / (count - k + 1)) +
                       (k + 0.5) * log(odds * (count - k + 1) / (k + 1)) + stirling_tail(mode) +
                       stirling_tail(count - mode) - stirling_tail(k) - stirling_tail(count - k);
        if (log(v * alpha / (a / (from_edge * from_edge) + b)) <= limit)
            return k;
    }
}

/* Draws sample number i of a stream. */
static double draw(double count, double p, const struct philox *generator, uint64_t i) {
    if (count <= 0 || p <= 0)
        return 0;
    if (p >= 1)
        return count;
    if (!isfinite(count) || isnan(p))
        return NAN;
    double rarer = p <= 0.5 ? p : 1 - p;
    bool is_many = rarer * count >= MANY;
    struct uniforms u = {.generator = philox_skip(
                             *generator, i * (is_many ? RANDOM_BLOCKS_PER_OUTPUT : GAP_BLOCKS))};
    double n = is_many ? by_rejection(count, rarer, &u) : by_gaps(count, rarer, &u);
    return p <= 0.5 ? n : count - n;
}

/* ---- all samples ---- */

struct binomial_job {
    const struct broadcast *plan; /* the broadcast of counts and probs */
    const struct tensor *counts, *probs;
    struct philox generator;
    enum dtype dtype;
    int64_t n_samples; /* for each pair of a count and a probability */
    void *out;
};

/* Samples are numbered pair by pair, and stored so that the pairs are contiguous. */
static void binomial_range(void *arg, int64_t begin, int64_t end) {
    const struct binomial_job *job = arg;
    struct broadcast_cursor cursor;
    for (int64_t i = begin; i < end; i++) {
        int64_t pair = i / job->n_samples, sample = i % job->n_samples;
        broadcast_seek(job->plan, pair, &cursor);
        double count = tensor_real_at(job->counts, broadcast_offset(job->plan, &cursor, 0));
        double p = tensor_real_at(job->probs, broadcast_offset(job->plan, &cursor, 1));
        random_put(job->dtype, job->out, sample * job->plan->n_elements + pair,
                   draw(count, p, &job->generator, (uint64_t)i));
    }
}

/* Makes output 0, and prepares the broadcast. */
static struct status *prepare(struct kernel_ctx *ctx, int shape_input, int counts_input,
                              struct broadcast *plan, struct binomial_job *job) {
    int64_t dims[SHAPE_MAX_RANK];
    struct shape shape;
    job->plan = plan;
    job->counts = kernel_input(ctx, counts_input);
    job->probs = kernel_input(ctx, counts_input + 1);
    job->dtype = (enum dtype)ctx->instance->out_types[0];
    TRY(random_shape(kernel_input(ctx, shape_input), dims, &shape));
    if (!broadcast_init(plan, (struct shape[]){tensor_shape(job->counts), tensor_shape(job->probs)},
                        2))
        return status_invalid("counts and probs must have compatible batch dimensions: %s vs. %s",
                              TENSOR_SHAPE_TEXT(job->counts), TENSOR_SHAPE_TEXT(job->probs));
    bool ends_alike = shape.rank >= plan->out_rank;
    for (int i = 1; ends_alike && i <= plan->out_rank; i++)
        ends_alike = dims[shape.rank - i] == plan->out_dims[plan->out_rank - i];
    if (!ends_alike)
        return status_invalid("Shape passed in must end with broadcasted shape.");
    TRY(kernel_alloc(ctx, 0, job->dtype, shape));
    job->out = tensor_data(&ctx->outputs[0]);
    job->n_samples = plan->n_elements ? ctx->outputs[0].n_elements / plan->n_elements : 0;
    return NULL;
}

static enum kernel_result run(struct kernel_ctx *ctx, struct binomial_job *job) {
    pool_parallel_for(ctx->pool, ctx->outputs[0].n_elements, 150, binomial_range, job);
    return KERNEL_DONE;
}

/* StatelessRandomBinomial.
 *   shape          int [rank], which ends with the shape of counts and probs together
 *   seed           int [2]
 *   counts, probs  T
 *   output         dtype [shape]; NaN where there is no such distribution
 * Errors   INVALID_ARGUMENT   shapes, seed */
enum kernel_result random_stateless_binomial(struct kernel_ctx *ctx) {
    struct binomial_job job = {.n_samples = 0};
    struct broadcast plan;
    KERNEL_TRY(ctx, random_from_seed(kernel_input(ctx, 1), &job.generator));
    KERNEL_TRY(ctx, prepare(ctx, 0, 2, &plan, &job));
    return run(ctx, &job);
}

/* By how much TensorFlow advances the generator, in samples of 256 blocks. */
static uint64_t n_taken(const struct binomial_job *job) {
    return (uint64_t)job->plan->n_elements * 50 * ((uint64_t)job->n_samples + 3);
}

/* StatefulRandomBinomial: as above, from the generator in a variable.
 *   resource                      the generator
 *   algorithm                     int64 scalar
 *   shape, counts, probs, output  as above
 * Errors   INVALID_ARGUMENT   shapes, an algorithm other than Philox, a variable that is no
 *                             generator
 *          NOT_FOUND          the variable */
enum kernel_result random_resource_binomial(struct kernel_ctx *ctx) {
    struct binomial_job job = {.n_samples = 0};
    struct broadcast plan;
    const struct tensor *algorithm = kernel_input(ctx, 1);
    if (algorithm->rank != 0)
        return kernel_fail(ctx, status_invalid("algorithm must be of shape [], not %s",
                                               TENSOR_SHAPE_TEXT(algorithm)));
    if (tensor_index_at(algorithm, 0) != ALG_PHILOX)
        return kernel_fail(ctx, status_invalid("Unsupported algorithm id: %lld",
                                               (long long)tensor_index_at(algorithm, 0)));
    KERNEL_TRY(ctx, prepare(ctx, 2, 3, &plan, &job));
    KERNEL_TRY(ctx, random_take(ctx, n_taken(&job), &job.generator));
    return run(ctx, &job);
}
