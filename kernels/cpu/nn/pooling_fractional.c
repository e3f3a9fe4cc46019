/* Runs FractionalMaxPool, FractionalAvgPool and their gradients [Graham 2014, arXiv 1412.6071].
 *
 *   value   T [batch, rows, columns, channels]
 *   output  T [batch, ⌊rows / ratio⌋, ⌊columns / ratio⌋, channels]
 *   row_pooling_sequence, col_pooling_sequence   int64: where the regions begin, and the end;
 *                                                regions overlap by one if the attr says so
 *
 * Regions have two neighbouring sizes, in a random order: shuffled, or, with pseudo_random, from
 * one number u as ⌈α (i + u)⌉. The numbers are those of TensorFlow for the same seeds. A seed needs
 * `deterministic`, with which every execution of the node uses the same regions.
 * Errors   INVALID_ARGUMENT   ranks, ratios below 1 or above the input, sequences that do not fit
 *          UNIMPLEMENTED      ratios of batch or channels */
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/nn/pooling.h"
#include "kernels/cpu/random/random_state.h"
#include "kernels/support/philox_words.h"
#include "kernels/support/scratch.h"

struct fractional_state {
    struct random_state random; /* the first field, because random_state_reserve reads it there */
    float ratio[4];
    bool is_deterministic, is_pseudo_random, overlaps, is_average;
    enum dtype dtype;
};

struct status *fractional_init(struct kernel_init *init) {
    struct fractional_state *state = xcalloc(1, sizeof(*state));
    const struct node *node = init->node;
    init->state = state;
    state->dtype = (enum dtype)node->out_types[0];
    state->is_average = strstr(node->op_name, "Avg") != NULL;
    TRY(node_get_b(node, "overlapping", &state->overlaps));
    if (!node_attr(node, "pooling_ratio")) /* only gradients have no pooling_ratio */
        return NULL;
    TRY(random_state_init(init));
    state->random.start = ((struct random_state *)init->state)->start;
    free(init->state);
    init->state = state;
    int64_t seed, seed2;
    const struct attr_value *ratios;
    int n;
    TRY(node_get_b(node, "pseudo_random", &state->is_pseudo_random));
    TRY(node_get_b(node, "deterministic", &state->is_deterministic));
    TRY(node_get_i(node, "seed", &seed));
    TRY(node_get_i(node, "seed2", &seed2));
    TRY(node_get_list(node, "pooling_ratio", &ratios, &n));
    if (n != 4)
        return status_invalid("pooling_ratio field must specify 4 dimensions");
    for (int i = 0; i < 4; i++) {
        state->ratio[i] = ratios[i].f;
        if (!(ratios[i].f >= 1))
            return status_invalid("pooling_ratio cannot be smaller than 1, got: %g",
                                  (double)ratios[i].f);
    }
    if (state->ratio[0] != 1 || state->ratio[3] != 1)
        return status_unimplemented(
            "Fractional pooling is not yet supported on the batch nor channel dimension.");
    if (!state->is_deterministic && (seed != 0 || seed2 != 0))
        return status_invalid("Both seed and seed2 should be 0 if deterministic is false.");
    return NULL;
}

/* ---- sequences ---- */

static int64_t blocks_of(const struct fractional_state *state, int64_t out) {
    return state->is_pseudo_random ? 1 : (out + PHILOX_BLOCK - 1) / PHILOX_BLOCK;
}

/* The start of an execution's numbers. With `deterministic` each execution of the node begins at
 * the same number, so it uses the same regions. */
static struct philox generator_of(struct kernel_ctx *ctx, const struct fractional_state *state,
                                  int64_t n_rows, int64_t n_columns) {
    if (state->is_deterministic)
        return state->random.start;
    return random_state_reserve(ctx,
                                (uint64_t)(blocks_of(state, n_rows) + blocks_of(state, n_columns)));
}

static void pseudo_random_sequence(struct philox generator, int64_t in, int64_t out,
                                   int64_t *sequence) {
    uint32_t words[PHILOX_BLOCK];
    philox_block(generator.key, generator.lo, generator.hi, words);
    double alpha = (double)in / (double)out, k = (double)(in / out);
    double greatest = MIN((k + 2) / alpha - 1, ((double)in + 1 - k) / alpha - ((double)out - 1));
    double u = philox_f64(words[0], words[1]) * greatest;
    sequence[0] = 0;
    for (int64_t i = 1; i < out; i++)
        sequence[i] = (int64_t)ceil(alpha * ((double)i + u)) - 1;
    sequence[out] = in;
}

/* Shuffles regions of the sizes k and k + 1. */
static void random_sequence(struct philox generator, int64_t in, int64_t out, int64_t *sequence) {
    struct philox_words words = {.next = generator};
    int64_t *sizes = sequence + 1;
    for (int64_t i = 0; i < out; i++)
        sizes[i] = in / out + (i < in % out);
    for (int64_t i = 0; i + 1 < out; i++) {
        int64_t other = i + (int64_t)(philox_words_u32(&words) % (uint32_t)(out - i)),
                kept = sizes[i];
        sizes[i] = sizes[other];
        sizes[other] = kept;
    }
    sequence[0] = 0;
    for (int64_t i = 1; i <= out; i++)
        sequence[i] += sequence[i - 1];
}

/* Makes output `output`, and advances the generator. */
static struct status *make_sequence(struct kernel_ctx *ctx, struct philox *generator, int64_t in,
                                    int64_t out, int output) {
    const struct fractional_state *state = ctx->instance->state;
    int64_t n = out + 1;
    TRY(kernel_alloc(ctx, output, DT_INT64, (struct shape){1, &n}));
    int64_t *sequence = tensor_data(&ctx->outputs[output]);
    (state->is_pseudo_random ? pseudo_random_sequence : random_sequence)(*generator, in, out,
                                                                         sequence);
    *generator = philox_skip(*generator, (uint64_t)blocks_of(state, out));
    return NULL;
}

/* ---- regions ---- */

struct fractional_job {
    const struct fractional_state *state;
    const int64_t *rows, *columns; /* the sequences */
    /* dims: sizes of the input; n_rows, n_columns: regions of the output */
    int64_t dims[4], n_rows, n_columns;
    int64_t size;
    const void **taps;
    int32_t *at;
    void *best;
};

/* Writes the addresses, relative to `base`, of the pixels of region (y, x) of image n. Returns how
 * many there are. */
static int64_t region_taps(const struct fractional_job *job, const void *base, int64_t n, int64_t y,
                           int64_t x) {
    int64_t last_row = MIN(job->rows[y + 1] - !job->state->overlaps, job->dims[1] - 1), n_taps = 0;
    int64_t last_column = MIN(job->columns[x + 1] - !job->state->overlaps, job->dims[2] - 1);
    for (int64_t r = job->rows[y]; r <= last_row; r++) {
        for (int64_t c = job->columns[x]; c <= last_column; c++)
            job->taps[n_taps++] = (const char *)base + ((n * job->dims[1] + r) * job->dims[2] + c) *
                                                           job->dims[3] * job->size;
    }
    return n_taps;
}

static double element(enum dtype dtype, const void *data, int64_t i) {
    return dtype == DT_FLOAT    ? (double)((const float *)data)[i]
           : dtype == DT_DOUBLE ? ((const double *)data)[i]
           : dtype == DT_INT32  ? (double)((const int32_t *)data)[i]
                                : (double)((const int64_t *)data)[i];
}

/* The mean of integers is truncated. */
static void mean(enum dtype dtype, const void *const *taps, int64_t n_taps, int64_t n, void *out) {
    if (dtype == DT_FLOAT || dtype == DT_DOUBLE) {
        pooling_mean(dtype, taps, n_taps, 1, 0, n, out);
        return;
    }
    for (int64_t c = 0; c < n; c++) {
        uint64_t sum = 0;
        for (int64_t i = 0; i < n_taps; i++)
            sum += (uint64_t)(dtype == DT_INT32 ? ((const int32_t *)taps[i])[c]
                                                : ((const int64_t *)taps[i])[c]);
        if (dtype == DT_INT32)
            ((int32_t *)out)[c] = (int32_t)(uint32_t)sum / (int32_t)n_taps;
        else
            ((int64_t *)out)[c] = (int64_t)sum / n_taps;
    }
}

static struct status *job_begin(const struct kernel_ctx *ctx, struct fractional_job *job,
                                struct tensor *scratch) {
    int64_t tallest = 1, widest = 1, *words;
    for (int64_t i = 0; i < job->n_rows; i++)
        tallest = MAX(tallest, job->rows[i + 1] - job->rows[i] + 1);
    for (int64_t i = 0; i < job->n_columns; i++)
        widest = MAX(widest, job->columns[i + 1] - job->columns[i] + 1);
    job->size = (int64_t)dtype_size(job->state->dtype);
    TRY(scratch_new(ctx, DT_INT64, tallest * widest + 2 * job->dims[3], 1, scratch, &words));
    job->taps = (const void **)words;
    job->best = words + tallest * widest;
    job->at = (int32_t *)(void *)(words + tallest * widest + job->dims[3]);
    return NULL;
}

enum kernel_result fractional_compute(struct kernel_ctx *ctx) {
    const struct fractional_state *state = ctx->instance->state;
    const struct tensor *value = kernel_input(ctx, 0);
    if (value->rank != 4)
        return kernel_fail(ctx, status_invalid("tensor_in must be 4-dimensional"));
    struct fractional_job job = {.state = state};
    int64_t out[4];
    memcpy(job.dims, tensor_dims(value), sizeof(job.dims));
    for (int i = 0; i < 4; i++) {
        if ((float)job.dims[i] < state->ratio[i])
            return kernel_fail(ctx,
                               status_invalid("Pooling ratio is higher than input dimension size "
                                              "for dimension %d. Input dim size: %lld "
                                              "pooling ratio: %g",
                                              i, (long long)job.dims[i], (double)state->ratio[i]));
        out[i] = (int64_t)floor((double)((float)job.dims[i] / state->ratio[i]));
    }
    struct philox generator = generator_of(ctx, state, out[1], out[2]);
    KERNEL_TRY(ctx, make_sequence(ctx, &generator, job.dims[1], out[1], 1));
    KERNEL_TRY(ctx, make_sequence(ctx, &generator, job.dims[2], out[2], 2));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, state->dtype, (struct shape){4, out}));
    job.rows = tensor_cdata(&ctx->outputs[1]), job.columns = tensor_cdata(&ctx->outputs[2]);
    job.n_rows = out[1], job.n_columns = out[2];
    struct tensor scratch = TENSOR_INIT;
    KERNEL_TRY(ctx, job_begin(ctx, &job, &scratch));
    char *to = tensor_data(&ctx->outputs[0]);
    for (int64_t position = 0; position < out[0] * out[1] * out[2] && pooling_goes_on(position);
         position++, to += job.dims[3] * job.size) {
        int64_t n = region_taps(&job, tensor_cdata(value), position / (out[1] * out[2]),
                                position / out[2] % out[1], position % out[2]);
        if (state->is_average)
            mean(state->dtype, job.taps, n, job.dims[3], to);
        else
            pooling_loops_of[state->dtype]->max(job.taps, n, 1, 0, job.dims[3], to);
    }
    tensor_clear(&scratch);
    return KERNEL_DONE;
}

/* ---- gradients ---- */

static struct status *check_sequence(const struct tensor *t, const char *what, int64_t n_regions,
                                     int64_t in, const int64_t **ret) {
    if (t->rank != 1 || t->n_elements != n_regions + 1)
        return status_invalid(
            "%s must be a vector of %lld entries, one more than out_backprop has regions", what,
            (long long)n_regions + 1);
    const int64_t *sequence = *ret = tensor_cdata(t);
    for (int64_t i = 0; i <= n_regions; i++) {
        if (sequence[i] < 0 || sequence[i] > in || (i > 0 && sequence[i] <= sequence[i - 1]))
            return status_invalid(
                "%s must rise from 0 to the input's size %lld, but has %lld at %lld", what,
                (long long)in, (long long)sequence[i], (long long)i);
    }
    return NULL;
}

/* Adds each region's gradient to its first greatest element, or in equal parts to all its elements
 * (computed in double, then truncated to the type). */
static struct status *run_gradient(struct kernel_ctx *ctx, struct fractional_job *job,
                                   const struct tensor *in, const struct tensor *gradient) {
    struct tensor scratch = TENSOR_INIT, sums_scratch = TENSOR_INIT;
    enum dtype dtype = job->state->dtype;
    char *result = tensor_data(&ctx->outputs[0]);
    double *sums = NULL;
    int64_t n_in = ctx->outputs[0].n_elements, channels = job->dims[3];
    struct status *st = job_begin(ctx, job, &scratch);
    if (!st && job->state->is_average)
        st = scratch_new(ctx, DT_DOUBLE, n_in, 1, &sums_scratch, &sums);
    pool_clear(result, (size_t)(n_in * job->size));
    if (sums)
        pool_clear(sums, (size_t)n_in * sizeof(*sums));
    int64_t n_positions = job->dims[0] * job->n_rows * job->n_columns;
    for (int64_t position = 0; !st && position < n_positions && pooling_goes_on(position);
         position++) {
        int64_t n = position / (job->n_rows * job->n_columns),
                y = position / job->n_columns % job->n_rows, x = position % job->n_columns;
        const char *g = (const char *)tensor_cdata(gradient) + position * channels * job->size;
        const char *base = in ? tensor_cdata(in) : result;
        int64_t n_taps = region_taps(job, base, n, y, x);
        if (n_taps == 0)
            continue;
        if (!job->state->is_average)
            pooling_loops_of[dtype]->search(job->taps, n_taps, channels, job->best, job->at);
        for (int64_t i = 0; i < n_taps; i++) {
            int64_t offset = (const char *)job->taps[i] - base;
            job->taps[i] = result + offset;
            for (int64_t c = 0; sums && c < channels; c++)
                sums[offset / job->size + c] += element(dtype, g, c) / (double)n_taps;
        }
        if (!job->state->is_average)
            pooling_loops_of[dtype]->scatter((void *const *)(uintptr_t)job->taps, job->at, channels,
                                             g);
    }
    for (int64_t i = 0; sums && i < n_in && pool_goes_on(i); i++) {
        if (dtype == DT_FLOAT)
            ((float *)(void *)result)[i] = (float)sums[i];
        else if (dtype == DT_DOUBLE)
            ((double *)(void *)result)[i] = sums[i];
        else if (dtype == DT_INT32)
            ((int32_t *)(void *)result)[i] = (int32_t)(int64_t)sums[i];
        else
            ((int64_t *)(void *)result)[i] = (int64_t)sums[i];
    }
    tensor_clear(&scratch);
    tensor_clear(&sums_scratch);
    return st;
}

static struct status *input_dims(const struct fractional_state *state, const struct tensor *t,
                                 int64_t dims[4]) {
    if (!state->is_average) {
        if (t->rank != 4)
            return status_invalid("orig_input must be 4-dimensional");
        memcpy(dims, tensor_dims(t), 4 * sizeof(*dims));
        return NULL;
    }
    if (t->rank != 1 || t->n_elements != 4)
        return status_invalid("original input tensor shape must be 1-dimensional and 4 elements");
    for (int i = 0; i < 4; i++) {
        dims[i] = tensor_index_at(t, i);
        if (dims[i] < 0)
            return status_invalid("orig_input_tensor_shape must not be negative, but has %lld",
                                  (long long)dims[i]);
    }
    return NULL;
}

enum kernel_result fractional_grad_compute(struct kernel_ctx *ctx) {
    const struct fractional_state *state = ctx->instance->state;
    const struct tensor *t = ctx->inputs, *gradient = &t[state->is_average ? 1 : 2],
                        *rows = gradient + 1, *columns = gradient + 2;
    struct fractional_job job = {.state = state};
    KERNEL_TRY(ctx, input_dims(state, &t[0], job.dims));
    if (gradient->rank != 4)
        return kernel_fail(ctx, status_invalid("out_backprop must be 4-dimensional"));
    if (!state->is_average && !shape_equal(tensor_shape(&t[1]), tensor_shape(gradient)))
        return kernel_fail(ctx,
                           status_invalid("orig_output and out_backprop must have the same shape"));
    if (tensor_dim(gradient, 0) != job.dims[0] || tensor_dim(gradient, 3) != job.dims[3])
        return kernel_fail(
            ctx, status_invalid("out_backprop must have the batch and the channels of the input"));
    job.n_rows = tensor_dim(gradient, 1), job.n_columns = tensor_dim(gradient, 2);
    KERNEL_TRY(ctx,
               check_sequence(rows, "row_pooling_sequence", job.n_rows, job.dims[1], &job.rows));
    KERNEL_TRY(ctx, check_sequence(columns, "col_pooling_sequence", job.n_columns, job.dims[2],
                                   &job.columns));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, state->dtype, (struct shape){4, job.dims}));
    if (ctx->outputs[0].n_elements != 0)
        KERNEL_TRY(ctx, run_gradient(ctx, &job, state->is_average ? NULL : &t[0], gradient));
    return KERNEL_DONE;
}
