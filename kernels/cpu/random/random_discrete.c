/* Runs RandomShuffle and Multinomial.
 *
 * A shuffle is Fisher's and Yates': position i takes one of the n - i remaining values, by one word
 * modulo their number. */
#include <math.h>
#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "common/tensor/float16.h"
#include "kernels/support/philox_words.h"
#include "kernels/cpu/random/random_internal.h"
#include "kernels/support/vmath.h"

/* ---- RandomShuffle ---- */

/* Makes a permutation of 0 … n - 1. */
static int64_t *permutation(struct philox generator, int64_t n) {
    int64_t *places = malloc((size_t)n * sizeof(*places));
    if (!places)
        return NULL;
    POOL_PIECES (begin, end, 0, n)
        for (int64_t i = begin; i < end; i++)
            places[i] = i;
    struct philox_words words = {.next = generator};
    POOL_PIECES (begin, end, 0, n - 1) {
        for (int64_t i = begin; i < end; i++) {
            int64_t other = i + (int64_t)(philox_words_u32(&words) % (uint64_t)(n - i)),
                    kept = places[i];
            places[i] = places[other];
            places[other] = kept;
        }
    }
    return places;
}

static enum kernel_result shuffle(struct kernel_ctx *ctx, struct philox generator) {
    const struct tensor *value = kernel_input(ctx, 0);
    int64_t n = tensor_dim(value, 0), row = value->n_elements / n;
    enum dtype dtype = (enum dtype)value->dtype;
    int64_t *places = permutation(generator, n);
    if (!places)
        return kernel_fail(ctx, status_exhausted("no memory to shuffle %lld rows", (long long)n));
    struct status *st = kernel_alloc(ctx, 0, dtype, tensor_shape(value));
    if (st) {
        free(places);
        return kernel_fail(ctx, st);
    }
    size_t row_bytes = (size_t)row * dtype_size(dtype);
    const char *from = tensor_cdata(value);
    char *to = tensor_data(&ctx->outputs[0]);
    int64_t n_copied = pool_is_unwanted() ? 0 : n; /* else all places are set */
    POOL_ROW_PIECES (begin, end, n_copied, row) {
        for (int64_t i = begin; i < end; i++) {
            if (dtype_is_object(dtype))
                elements_copy(dtype, to + (size_t)i * row_bytes,
                              from + (size_t)places[i] * row_bytes, row);
            else
                memcpy(to + (size_t)i * row_bytes, from + (size_t)places[i] * row_bytes, row_bytes);
        }
    }
    free(places);
    return KERNEL_DONE;
}

static bool is_shuffled(const struct tensor *value) {
    return value->rank > 0 && value->n_elements > 0 && tensor_dim(value, 0) > 1;
}

/* RandomShuffle: value with its rows (slices of dimension 0) in another order. A scalar is returned
 * as it is. */
enum kernel_result random_shuffle(struct kernel_ctx *ctx) {
    const struct tensor *value = kernel_input(ctx, 0);
    if (!is_shuffled(value)) {
        kernel_pass(ctx, 0, 0);
        return KERNEL_DONE;
    }
    uint64_t n_words = (uint64_t)tensor_dim(value, 0) - 1;
    return shuffle(ctx, random_state_reserve(ctx, (n_words + PHILOX_BLOCK - 1) / PHILOX_BLOCK));
}

/* StatelessShuffle: as RandomShuffle, from key, counter and algorithm. */
enum kernel_result random_stateless_shuffle(struct kernel_ctx *ctx) {
    struct philox generator;
    KERNEL_TRY(ctx, random_from_key(kernel_input(ctx, 1), kernel_input(ctx, 2),
                                    kernel_input(ctx, 3), &generator));
    if (!is_shuffled(kernel_input(ctx, 0))) {
        kernel_pass(ctx, 0, 0);
        return KERNEL_DONE;
    }
    return shuffle(ctx, generator);
}

/* ---- Multinomial ---- */

struct multinomial_job {
    enum dtype dtype;
    struct philox generator;
    const void *logits;
    int64_t classes, samples;
    bool is_i32;
    void *out;
    _Atomic bool is_out_of_memory;
};

/* Loads the logits of classes begin … end of a row. */
static void load_logits(const struct multinomial_job *job, int64_t row, int64_t begin, int64_t end,
                        double *to) {
    int64_t n = end - begin, first = row * job->classes + begin;
    switch (job->dtype) {
    case DT_HALF:
        for (int64_t i = 0; i < n; i++)
            to[i] = half_to_float(((const uint16_t *)job->logits)[first + i]);
        break;
    case DT_BFLOAT16:
        for (int64_t i = 0; i < n; i++)
            to[i] = bfloat16_to_float(((const uint16_t *)job->logits)[first + i]);
        break;
    case DT_FLOAT:
        for (int64_t i = 0; i < n; i++)
            to[i] = ((const float *)job->logits)[first + i];
        break;
    default:
        memcpy(to, (const double *)job->logits + first, (size_t)n * sizeof(*to));
    }
}

/* The largest of the logits that are below infinity. */
VECTOR_CLONES static double largest_logit(const double *logits, int64_t n) {
    enum { LANES = 8 };
    double lanes[LANES], max = -INFINITY;
    for (int k = 0; k < LANES; k++)
        lanes[k] = -INFINITY;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lanes[k] = ((logits[i + k] > lanes[k]) & (logits[i + k] < INFINITY)) ? logits[i + k]
                                                                                 : lanes[k];
    for (; i < n; i++)
        lanes[0] = logits[i] > lanes[0] && logits[i] < INFINITY ? logits[i] : lanes[0];
    for (int k = 0; k < LANES; k++)
        max = lanes[k] > max ? lanes[k] : max;
    return max;
}

/* e^(logit - max) in place. A logit that is not finite has the weight 0. */
VECTOR_CLONES static void weigh_classes(double *logits, int64_t n, double max) {
    for (int64_t i = 0; i < n; i++)
        logits[i] = fabs(logits[i]) < INFINITY ? vexp_f64(logits[i] - max) : 0;
}

/* Writes the sums of e^(logit - max) up to each class. */
static void cumulate(const struct multinomial_job *job, int64_t row, double *sums) {
    double max = -INFINITY, total = 0;
    POOL_PIECES (begin, end, 0, job->classes) {
        load_logits(job, row, begin, end, sums + begin);
        double largest = largest_logit(sums + begin, end - begin);
        max = largest > max ? largest : max;
    }
    POOL_PIECES (begin, end, 0, job->classes) {
        weigh_classes(sums + begin, end - begin, max);
        for (int64_t i = begin; i < end; i++)
            sums[i] = total += sums[i];
    }
}

/* The first class whose sum is above `wanted`. When there is none, because no logit was finite, the
 * result is the number of classes, as in TensorFlow. There is no branch, because half of them would
 * be mispredicted. */
static int64_t class_above(const double *sums, int64_t n, double wanted) {
    int64_t first = 0;
    for (; n > 1; n -= n / 2)
        first += n / 2 & -(int64_t)(sums[first + n / 2 - 1] <= wanted);
    return first + (sums[first] <= wanted);
}

/* Sample s of row r uses pair r · samples + s of the stream's words. */
static void multinomial_rows(void *arg, int64_t begin, int64_t end) {
    struct multinomial_job *job = arg;
    double *sums = malloc((size_t)job->classes * sizeof(*sums));
    if (!sums) {
        atomic_store(&job->is_out_of_memory, true);
        return;
    }
    uint32_t words[PHILOX_BLOCK];
    uint64_t block_of_words = UINT64_MAX;
    for (int64_t row = begin; row < end; row++) {
        cumulate(job, row, sums);
        for (int64_t s = 0; s < job->samples && pool_goes_on(s); s++) {
            uint64_t pair = (uint64_t)(row * job->samples + s), block = pair / 2;
            if (block != block_of_words) {
                struct philox at = philox_skip(job->generator, block);
                philox_block(at.key, at.lo, at.hi, words);
                block_of_words = block;
            }
            double u = philox_f64(words[pair % 2 * 2], words[pair % 2 * 2 + 1]);
            int64_t chosen = class_above(sums, job->classes, u * sums[job->classes - 1]);
            if (job->is_i32)
                ((int32_t *)job->out)[pair] = (int32_t)chosen;
            else
                ((int64_t *)job->out)[pair] = chosen;
        }
    }
    free(sums);
}

static COLD struct status *bad_shape(const char *what, const struct tensor *t) {
    struct status *st = status_invalid("%s, got shape %s", what, TENSOR_SHAPE_TEXT(t));
    return st;
}

/* Checks the inputs and makes the output. */
static struct status *multinomial_prepare(struct kernel_ctx *ctx, struct multinomial_job *job,
                                          int64_t dims[2]) {
    const struct tensor *logits = kernel_input(ctx, 0), *num_samples = kernel_input(ctx, 1);
    if (unlikely(logits->rank != 2))
        return bad_shape("logits should be a matrix", logits);
    if (unlikely(num_samples->rank != 0))
        return bad_shape("num_samples should be a scalar", num_samples);
    int64_t samples = tensor_index_at(num_samples, 0);
    if (unlikely(samples < 0))
        return status_invalid("num_samples should be non-negative, got %lld", (long long)samples);
    dims[0] = tensor_dim(logits, 0);
    dims[1] = samples;
    job->classes = tensor_dim(logits, 1);
    if (unlikely(job->classes <= 0))
        return status_invalid("num_classes should be positive, got %lld", (long long)job->classes);
    job->dtype = (enum dtype)logits->dtype;
    job->logits = tensor_cdata(logits);
    job->samples = samples;
    enum dtype out = (enum dtype)ctx->instance->out_types[0];
    job->is_i32 = out == DT_INT32;
    TRY(kernel_alloc(ctx, 0, out, (struct shape){2, dims}));
    job->out = tensor_data(&ctx->outputs[0]);
    return NULL;
}

static struct status *multinomial_on_device(struct kernel_ctx *ctx,
                                            const struct multinomial_job *job, int64_t rows) {
    struct device_multinomial drawn = {.dtype = job->dtype,
                                       .logits = job->logits,
                                       .out = job->out,
                                       .out_is_int32 = job->is_i32,
                                       .n_rows = rows,
                                       .n_classes = job->classes,
                                       .n_samples = job->samples,
                                       .generator = job->generator};
    return ctx->instance->engine->multinomial(ctx, &drawn);
}

static enum kernel_result multinomial_run(struct kernel_ctx *ctx, struct multinomial_job *job,
                                          int64_t rows) {
    if (ctx->outputs[0].n_elements == 0)
        return KERNEL_DONE;
    if (kernel_is_for_device(ctx)) {
        KERNEL_TRY(ctx, multinomial_on_device(ctx, job, rows));
        return KERNEL_DONE;
    }
    pool_parallel_for(ctx->pool, rows, (double)job->classes * 8 + (double)job->samples * 20,
                      multinomial_rows, job);
    if (unlikely(job->is_out_of_memory))
        return kernel_fail(ctx, status_exhausted("no memory for the sums of %lld classes",
                                                 (long long)job->classes));
    return KERNEL_DONE;
}

/* Multinomial: for each row of logits, num_samples classes drawn with probability ∝ e^logit.
 *   logits        T [batch, classes]
 *   num_samples   int32, scalar
 *   output        output_dtype [batch, num_samples]
 * Errors    INVALID_ARGUMENT   ranks, num_samples negative, no class
 * TensorFlow's numbers for large batches depend on its number of threads. Ours are always those of
 * one thread. */
enum kernel_result random_multinomial(struct kernel_ctx *ctx) {
    struct multinomial_job job = {0};
    int64_t dims[2];
    KERNEL_TRY(ctx, multinomial_prepare(ctx, &job, dims));
    if (ctx->outputs[0].n_elements > 0) {
        /* rounded up to two whole blocks, of two samples each */
        uint64_t samples = ((uint64_t)dims[1] + 3) / 4 * 4;
        job.generator =
            random_state_reserve(ctx, (uint64_t)dims[0] * samples * 2 * RANDOM_BLOCKS_PER_OUTPUT);
    }
    return multinomial_run(ctx, &job, dims[0]);
}

/* StatelessMultinomial: as Multinomial, from a seed. */
enum kernel_result random_stateless_multinomial(struct kernel_ctx *ctx) {
    struct multinomial_job job = {0};
    int64_t dims[2];
    KERNEL_TRY(ctx, random_from_seed(kernel_input(ctx, 2), &job.generator));
    KERNEL_TRY(ctx, multinomial_prepare(ctx, &job, dims));
    return multinomial_run(ctx, &job, dims[0]);
}
