/* Normalises codes: QuantizedBatchNormWithGlobalNormalization, QuantizedInstanceNorm. */
#include <float.h>
#include <stdlib.h>

#include "kernels/cpu/quant/quant_internal.h"
#include "kernels/kernel.h"
#include "kernels/support/scratch.h"

/* ---- QuantizedBatchNormWithGlobalNormalization ---- */

/* The result's range is fixed: 2048 codes for each unit. */
#define BATCH_RANGE 1048576.0f

struct batch_state {
    float epsilon;
    bool scales;
};

struct status *quant_batch_norm_init(struct kernel_init *init) {
    struct batch_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_f(init->node, "variance_epsilon", &state->epsilon));
    return node_get_b(init->node, "scale_after_normalization", &state->scales);
}

enum batch_input { BATCH_INPUT, BATCH_MEAN, BATCH_VARIANCE, BATCH_BETA, BATCH_GAMMA, BATCH_N };

struct batch_job {
    const struct tensor *x;
    float min, max;
    int64_t depth;
    int32_t one;
    const int32_t *scales, *offsets; /* codes of the result's range */
    int32_t *y;
};

static void batch_range(void *arg, int64_t begin, int64_t end) {
    const struct batch_job *job = arg;
    int32_t codes[QUANT_BLOCK];
    for (int64_t i = begin; i < end; i += QUANT_BLOCK) {
        int64_t n = MIN(end - i, (int64_t)QUANT_BLOCK);
        quant_codes_load((enum dtype)job->x->dtype, codes, tensor_cdata(job->x), i, n);
        for (int64_t j = 0; j < n; j++) {
            float v = quant_float_exact((enum dtype)job->x->dtype, codes[j], job->min, job->max);
            uint32_t code = (uint32_t)quant_code_exact(DT_QINT32, v, -BATCH_RANGE, BATCH_RANGE);
            int64_t channel = (i + j) % job->depth;
            int32_t product = (int32_t)(code * (uint32_t)job->scales[channel]);
            job->y[i + j] =
                (int32_t)((uint32_t)(product / job->one) + (uint32_t)job->offsets[channel]);
        }
    }
}

/* Computes the factor and the offset of each channel. */
static void batch_factors(const struct kernel_ctx *ctx, const float *mins, const float *maxes,
                          int64_t depth, int32_t *scales, int32_t *offsets) {
    const struct batch_state *state = ctx->instance->state;
    for (int64_t c = 0; c < depth; c++) {
        float values[BATCH_N];
        for (int i = BATCH_MEAN; i < BATCH_N; i++) {
            const struct tensor *t = kernel_input(ctx, 3 * i);
            int32_t code;
            quant_codes_load((enum dtype)t->dtype, &code, tensor_cdata(t), c, 1);
            values[i] = quant_float_exact((enum dtype)t->dtype, code, mins[i], maxes[i]);
        }
        float deviation = sqrtf(values[BATCH_VARIANCE] + state->epsilon),
              scale = (state->scales ? values[BATCH_GAMMA] : 1.0f) / deviation;
        scales[c] = quant_code_exact(DT_QINT32, scale, -BATCH_RANGE, BATCH_RANGE);
        offsets[c] = quant_code_exact(DT_QINT32, -values[BATCH_MEAN] * scale + values[BATCH_BETA],
                                      -BATCH_RANGE, BATCH_RANGE);
    }
}

static struct status *batch_check(const struct kernel_ctx *ctx, float *mins, float *maxes) {
    static const char *const names[BATCH_N] = {"input", "mean", "var", "beta", "gamma"};
    const struct tensor *x = kernel_input(ctx, 0), *mean = kernel_input(ctx, 3);
    for (int i = 0; i < BATCH_N; i++) {
        for (int end = 0; end < 2; end++) {
            const struct tensor *t = kernel_input(ctx, 3 * i + 1 + end);
            if (t->n_elements != 1)
                return status_invalid("%s_%s must have 1 element", names[i], end ? "max" : "min");
            (end ? maxes : mins)[i] = *(const float *)tensor_cdata(t);
        }
    }
    if (x->rank != 4)
        return status_invalid("input must be 4-dimensional%s", TENSOR_SHAPE_TEXT(x));
    for (int i = BATCH_MEAN; i < BATCH_N; i++) {
        const struct tensor *t = kernel_input(ctx, 3 * i);
        if (t->rank != 1)
            return status_invalid("%s must be 1-dimensional%s", names[i], TENSOR_SHAPE_TEXT(t));
        if (t->n_elements != mean->n_elements)
            return status_invalid("Mean and %s tensors must have the same shape: %s vs. %s",
                                  names[i], TENSOR_SHAPE_TEXT(mean), TENSOR_SHAPE_TEXT(t));
    }
    if (mean->n_elements != tensor_dim(x, 3))
        return status_invalid(
            "Must provide as many means as the last dimension of the input tensor: %s vs. %s",
            TENSOR_SHAPE_TEXT(mean), TENSOR_SHAPE_TEXT(x));
    if (mean->n_elements < 2) /* TensorFlow has this limit */
        return status_invalid("Must have at least a mean value, more than one: %s",
                              TENSOR_SHAPE_TEXT(mean));
    return NULL;
}

/* QuantizedBatchNormWithGlobalNormalization.
 *   t                       Tinput [batch, height, width, d]
 *   m, v, beta, gamma       Tinput [d]
 *   a min and a max follow each of them, of one element each
 *   result                  out_type, (t - m) / sqrt(v + epsilon) [· gamma] + beta
 *   result_min, result_max  -2^20 and 2^20
 * Errors   INVALID_ARGUMENT   ranks, sizes that differ, ranges that have not one element */
enum kernel_result quant_batch_norm(struct kernel_ctx *ctx) {
    const struct tensor *x = kernel_input(ctx, 0);
    struct tensor scratch = TENSOR_INIT;
    float mins[BATCH_N], maxes[BATCH_N];
    int32_t *factors;
    KERNEL_TRY(ctx, batch_check(ctx, mins, maxes));
    struct batch_job job = {.x = x, .min = mins[0], .max = maxes[0], .depth = tensor_dim(x, 3)};
    KERNEL_TRY(ctx, scratch_new(ctx, DT_INT32, job.depth, 2, &scratch, &factors));
    batch_factors(ctx, mins, maxes, job.depth, factors, factors + job.depth);
    job.scales = factors;
    job.offsets = factors + job.depth;
    job.one = quant_code_exact(DT_QINT32, 1, -BATCH_RANGE, BATCH_RANGE);
    struct status *st = kernel_alloc(ctx, 0, DT_QINT32, tensor_shape(x));
    if (!st) {
        job.y = tensor_data(&ctx->outputs[0]);
        pool_parallel_for(ctx->pool, x->n_elements, 10.0, batch_range, &job);
        quant_set_range(ctx, 1, -BATCH_RANGE, BATCH_RANGE);
    }
    tensor_clear(&scratch);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- QuantizedInstanceNorm ---- */

struct instance_state {
    bool is_given;
    float min, max, epsilon, separation;
};

struct status *quant_instance_norm_init(struct kernel_init *init) {
    struct instance_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_b(init->node, "output_range_given", &state->is_given));
    TRY(node_get_f(init->node, "given_y_min", &state->min));
    TRY(node_get_f(init->node, "given_y_max", &state->max));
    TRY(node_get_f(init->node, "variance_epsilon", &state->epsilon));
    TRY(node_get_f(init->node, "min_separation", &state->separation));
    if (state->is_given && !(state->min < state->max))
        return status_invalid("given_y_min must be less than given_y_max : %g >= %g",
                              (double)state->min, (double)state->max);
    return NULL;
}

struct instance_job {
    int64_t n_pixels, n_channels;
    float epsilon;
    const float *x;
    float *y;
};

static void normalise(const struct instance_job *job, int64_t first) {
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < job->n_pixels; i++)
        sum += (double)job->x[first + i * job->n_channels];
    float mean = (float)(sum / (double)job->n_pixels);
    for (int64_t i = 0; i < job->n_pixels; i++) {
        float away = job->x[first + i * job->n_channels] - mean;
        squares += (double)(away * away);
    }
    float scale = 1.0f / sqrtf((float)(squares / (double)job->n_pixels) + job->epsilon);
    for (int64_t i = 0; i < job->n_pixels; i++)
        job->y[first + i * job->n_channels] = (job->x[first + i * job->n_channels] - mean) * scale;
}

/* Normalises units [begin, end). A unit is a channel of an image. */
static void normalise_range(void *arg, int64_t begin, int64_t end) {
    const struct instance_job *job = arg;
    for (; begin < end; begin++)
        normalise(job, begin / job->n_channels * job->n_pixels * job->n_channels +
                           begin % job->n_channels);
}

/* Converts codes to reals, or reals to codes: [begin, end) of all. */
struct instance_codes {
    enum dtype dtype;
    struct quant_to_float of;
    struct quant_to_code to;
    const void *from;
    float *reals;
    void *codes;
};

static void to_reals(void *arg, int64_t begin, int64_t end) {
    const struct instance_codes *job = arg;
    int32_t codes[QUANT_BLOCK];
    for (int64_t i = begin; i < end; i += QUANT_BLOCK) {
        int64_t n = MIN(end - i, (int64_t)QUANT_BLOCK);
        quant_codes_load(job->dtype, codes, job->from, i, n);
        for (int64_t j = 0; j < n; j++)
            job->reals[i + j] = quant_float(&job->of, codes[j]);
    }
}

static void to_codes(void *arg, int64_t begin, int64_t end) {
    const struct instance_codes *job = arg;
    int32_t codes[QUANT_BLOCK];
    for (int64_t i = begin; i < end; i += QUANT_BLOCK) {
        int64_t n = MIN(end - i, (int64_t)QUANT_BLOCK);
        for (int64_t j = 0; j < n; j++)
            codes[j] = quant_code(&job->to, job->reals[i + j]);
        quant_codes_store(job->dtype, job->codes, i, codes, n);
    }
}

/* The range of the reals in y, extended down to 0 and to the least width that the attrs ask for. */
static void instance_range(const struct instance_state *state, const float *y, int64_t n,
                           float *ret_min, float *ret_max) {
    float least = 0, most = -FLT_MAX;
    for (int64_t i = 0; i < n; i++) {
        least = y[i] < least ? y[i] : least;
        most = y[i] > most ? y[i] : most;
    }
    *ret_min = state->is_given ? state->min : least;
    *ret_max = state->is_given ? state->max : fmaxf(most, least + state->separation);
}

static struct status *instance_norm(struct kernel_ctx *ctx, float min, float max, float *reals) {
    const struct instance_state *state = ctx->instance->state;
    const struct tensor *x = kernel_input(ctx, 0);
    struct instance_job job = {.n_pixels = tensor_dim(x, 1) * tensor_dim(x, 2),
                               .n_channels = tensor_dim(x, 3),
                               .epsilon = state->epsilon,
                               .x = reals,
                               .y = reals};
    struct instance_codes codes = {
        .dtype = (enum dtype)x->dtype, .from = tensor_cdata(x), .reals = reals};
    codes.of = quant_to_float_of(codes.dtype, min, max);
    pool_parallel_for(ctx->pool, x->n_elements, 1.0, to_reals, &codes);
    if (x->n_elements > 0)
        pool_parallel_for(ctx->pool, tensor_dim(x, 0) * job.n_channels, 4.0 * (double)job.n_pixels,
                          normalise_range, &job);
    instance_range(state, reals, x->n_elements, &min, &max);
    TRY(kernel_alloc(ctx, 0, codes.dtype, tensor_shape(x)));
    codes.codes = tensor_data(&ctx->outputs[0]);
    codes.to = quant_to_code_of(codes.dtype, min, max);
    pool_parallel_for(ctx->pool, x->n_elements, 2.0, to_codes, &codes);
    quant_set_range(ctx, 1, min, max);
    return NULL;
}

/* QuantizedInstanceNorm: gives each channel of each image a mean of 0 and a variance of 1.
 *   x             T [batch, height, width, channels]
 *   x_min, x_max  float scalars
 *   y             T, the same shape
 *   y_min, y_max  the range that attrs give, or that the result uses
 * Errors   INVALID_ARGUMENT   ranges that are no scalars, or with min above max; the rank */
enum kernel_result quant_instance_norm(struct kernel_ctx *ctx) {
    const struct tensor *x = kernel_input(ctx, 0);
    struct tensor scratch = TENSOR_INIT;
    float min, max, *reals;
    KERNEL_TRY(ctx, quant_scalar(ctx, 1, "`x_min`", &min));
    KERNEL_TRY(ctx, quant_scalar(ctx, 2, "`x_max`", &max));
    if (!(min < max))
        return kernel_fail(ctx, status_invalid("input_min must be less than input_max : %g >= %g",
                                               (double)min, (double)max));
    if (x->rank != 4)
        return kernel_fail(ctx, status_invalid("Shape must be rank 4 but is rank %d", x->rank));
    KERNEL_TRY(ctx, scratch_new(ctx, DT_FLOAT, x->n_elements, 1, &scratch, &reals));
    struct status *st = instance_norm(ctx, min, max, reals);
    tensor_clear(&scratch);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}
