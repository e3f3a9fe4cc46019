/* Converts codes of one range to codes of another: Requantize, RequantizationRange (the range that
 * codes really use), and QuantizeDownAndShrinkRange (both in one). */
#include "kernels/cpu/quant/quant_internal.h"
#include "common/base/pool_cancel.h"
#include "kernels/kernel.h"

/* Reads the first number, whatever the shape, because TensorFlow's op always took vectors too. */
static struct status *first_number(const struct kernel_ctx *ctx, int input, const char *name,
                                   float *ret) {
    const struct tensor *t = kernel_input(ctx, input);
    if (t->n_elements < 1)
        return status_invalid("%s must not be empty, got shape %s", name, TENSOR_SHAPE_TEXT(t));
    *ret = *(const float *)tensor_cdata(t);
    return NULL;
}

/* From qint32 to quint8, TensorFlow computes in fixed point and rounds once, so 0 need not be a
 * code. Overflows wrap, as in TensorFlow. */
enum { FIXED_BITS = 16 };

struct fixed_map {
    int64_t steps;  /* how many codes of the other range one code is, in units of 2^-FIXED_BITS */
    int64_t offset; /* where code 0 is, plus a half for rounding */
};

static int64_t fixed_of(double v) { return v >= -0x1p63 && v < 0x1p63 ? (int64_t)v : INT64_MIN; }

static struct fixed_map fixed_map_of(float min, float max, float to_min, float to_max) {
    float range = max - min, to_range = to_max - to_min;
    if (to_range == 0)
        return (struct fixed_map){0, 0};
    double one = 1 << FIXED_BITS;
    int64_t middle = fixed_of((double)((min + max) / 2.0f * (255.0f / to_range) * (float)one));
    int64_t start = fixed_of(round(one * ((double)to_min * 255.0) / (double)to_range));
    return (struct fixed_map){
        fixed_of(255.0 * one * (double)range / (double)to_range),
        (int64_t)((uint64_t)middle - (uint64_t)start + (UINT64_C(1) << (FIXED_BITS - 1)))};
}

static int32_t fixed_code(const struct fixed_map *map, int32_t code) {
    int64_t scaled = (int64_t)((uint64_t)(int64_t)code * (uint64_t)map->steps) >> 32;
    int64_t v = (int64_t)((uint64_t)scaled + (uint64_t)map->offset) >> FIXED_BITS;
    return (int32_t)MIN(MAX(v, (int64_t)0), (int64_t)255);
}

struct requantize_job {
    enum dtype from, to;
    const void *x;
    void *y;
    struct quant_to_float to_float;
    struct quant_to_code to_code;
    bool is_fixed;
    struct fixed_map fixed;
};

static void requantize_range(void *arg, int64_t begin, int64_t end) {
    const struct requantize_job *job = arg;
    int32_t codes[QUANT_BLOCK];
    for (int64_t i = begin; i < end; i += QUANT_BLOCK) {
        int64_t n = MIN(end - i, (int64_t)QUANT_BLOCK);
        quant_codes_load(job->from, codes, job->x, i, n);
        for (int64_t j = 0; j < n; j++)
            codes[j] = job->is_fixed
                           ? fixed_code(&job->fixed, codes[j])
                           : quant_code(&job->to_code, quant_float(&job->to_float, codes[j]));
        quant_codes_store(job->to, job->y, i, codes, n);
    }
}

/* Makes output 0 from input 0. */
static struct status *requantize(struct kernel_ctx *ctx, float min, float max, float to_min,
                                 float to_max) {
    const struct tensor *x = kernel_input(ctx, 0);
    struct requantize_job job = {(enum dtype)x->dtype,
                                 (enum dtype)ctx->instance->out_types[0],
                                 tensor_cdata(x),
                                 NULL,
                                 {0},
                                 {0},
                                 false,
                                 {0, 0}};
    TRY(kernel_alloc(ctx, 0, job.to, tensor_shape(x)));
    job.y = tensor_data(&ctx->outputs[0]);
    job.to_float = quant_to_float_of(job.from, min, max);
    job.to_code = quant_to_code_of(job.to, to_min, to_max);
    job.is_fixed = job.from == DT_QINT32 && job.to == DT_QUINT8;
    job.fixed = fixed_map_of(min, max, to_min, to_max);
    pool_parallel_for(ctx->pool, x->n_elements, 3.0, requantize_range, &job);
    return NULL;
}

/* Requantize.
 *   input                   Tinput
 *   input_min, input_max, requested_output_min, requested_output_max  float scalars
 *   output                  out_type
 *   output_min, output_max  the requested range
 * Errors   INVALID_ARGUMENT   ranges that are no scalars; a requested range that starts above 0, or
 *                             with min above max */
enum kernel_result quant_requantize(struct kernel_ctx *ctx) {
    float min, max, to_min, to_max;
    KERNEL_TRY(ctx, quant_scalar(ctx, 1, "`input_min`", &min));
    KERNEL_TRY(ctx, quant_scalar(ctx, 2, "`input_max`", &max));
    KERNEL_TRY(ctx, quant_scalar(ctx, 3, "`requested_output_min`", &to_min));
    KERNEL_TRY(ctx, quant_scalar(ctx, 4, "`requested_output_max`", &to_max));
    if (!(to_min <= 0))
        return kernel_fail(
            ctx, status_invalid("requested_output_min must be <= 0, but got %g", (double)to_min));
    if (!(to_max >= to_min))
        return kernel_fail(
            ctx, status_invalid(
                     "requested_output_max must be >= requested_output_min, but got %g and %g",
                     (double)to_max, (double)to_min));
    KERNEL_TRY(ctx, requantize(ctx, min, max, to_min, to_max));
    quant_set_range(ctx, 1, to_min, to_max);
    return KERNEL_DONE;
}

/* The range of the reals in input 0, extended to start at 0 or below. */
static void used_range(const struct kernel_ctx *ctx, float min, float max, float *ret_min,
                       float *ret_max) {
    const struct tensor *x = kernel_input(ctx, 0);
    const int32_t *codes = tensor_cdata(x);
    int32_t least = INT32_MAX, most = INT32_MIN;
    POOL_PIECES (begin, end, 0, x->n_elements) {
        for (int64_t i = begin; i < end; i++) {
            least = MIN(least, codes[i]);
            most = MAX(most, codes[i]);
        }
    }
    *ret_min = fminf(0, quant_float_exact(DT_QINT32, least, min, max));
    *ret_max = quant_float_exact(DT_QINT32, most, min, max);
}

/* RequantizationRange.
 *   input                   qint32
 *   input_min, input_max    float, of which the first elements are used
 *   output_min, output_max  scalars: the range of the input's reals
 * Errors   INVALID_ARGUMENT   empty ranges */
enum kernel_result quant_used_range(struct kernel_ctx *ctx) {
    float min, max, used_min, used_max;
    KERNEL_TRY(ctx, first_number(ctx, 1, "input_min", &min));
    KERNEL_TRY(ctx, first_number(ctx, 2, "input_max", &max));
    used_range(ctx, min, max, &used_min, &used_max);
    quant_set_range(ctx, 0, used_min, used_max);
    return KERNEL_DONE;
}

/* QuantizeDownAndShrinkRange: as Requantize with the range that the input's reals use. Errors
 * INVALID_ARGUMENT ranges that are no scalars */
enum kernel_result quant_shrink_range(struct kernel_ctx *ctx) {
    float min, max, used_min, used_max;
    KERNEL_TRY(ctx, quant_scalar(ctx, 1, "`input_min`", &min));
    KERNEL_TRY(ctx, quant_scalar(ctx, 2, "`input_max`", &max));
    used_range(ctx, min, max, &used_min, &used_max);
    KERNEL_TRY(ctx, requantize(ctx, min, max, used_min, used_max));
    quant_set_range(ctx, 1, used_min, used_max);
    return KERNEL_DONE;
}
