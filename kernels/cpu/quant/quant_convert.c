/* Runs QuantizeV2 and Dequantize, which turn reals into codes of a range and back, and holds the
 * arithmetic of codes that the family shares. */
#include <float.h>
#include <stdlib.h>

#include "kernels/kernel.h"
#include "kernels/support/half_blocks.h"
#include "kernels/cpu/quant/quant_internal.h"

/* ---- codes ---- */

struct quant_type quant_type_of(enum dtype dtype) {
    switch (dtype) {
    case DT_QINT8:
        return (struct quant_type){8, INT8_MIN, INT8_MAX};
    case DT_QUINT8:
        return (struct quant_type){8, 0, UINT8_MAX};
    case DT_QINT16:
        return (struct quant_type){16, INT16_MIN, INT16_MAX};
    case DT_QUINT16:
        return (struct quant_type){16, 0, UINT16_MAX};
    default:
        return (struct quant_type){32, INT32_MIN, INT32_MAX};
    }
}

#define LOAD(type)                               \
    for (int64_t i = 0; i < n; i++)              \
        to[i] = ((const type *)from)[first + i]; \
    break
void quant_codes_load(enum dtype dtype, int32_t *to, const void *from, int64_t first, int64_t n) {
    switch (dtype) {
    case DT_QINT8:
        LOAD(int8_t);
    case DT_QUINT8:
        LOAD(uint8_t);
    case DT_QINT16:
        LOAD(int16_t);
    case DT_QUINT16:
        LOAD(uint16_t);
    default:
        LOAD(int32_t);
    }
}

#define STORE(type)                              \
    for (int64_t i = 0; i < n; i++)              \
        ((type *)to)[first + i] = (type)from[i]; \
    break
void quant_codes_store(enum dtype dtype, void *to, int64_t first, const int32_t *from, int64_t n) {
    switch (dtype) {
    case DT_QINT8:
        STORE(int8_t);
    case DT_QUINT8:
        STORE(uint8_t);
    case DT_QINT16:
        STORE(int16_t);
    case DT_QUINT16:
        STORE(uint16_t);
    default:
        STORE(int32_t);
    }
}

struct quant_to_float quant_to_float_of(enum dtype dtype, float min, float max) {
    struct quant_type type = quant_type_of(dtype);
    float step = (float)((double)(max - min) / (double)(type.highest - type.lowest));
    float rounded = max == min ? min : roundf(min / step) * step;
    return (struct quant_to_float){rounded - (float)type.lowest * step, step};
}

struct quant_to_code quant_to_code_of(enum dtype dtype, float min, float max) {
    struct quant_type type = quant_type_of(dtype);
    float steps =
        max == min ? 0 : (float)((double)(type.highest - type.lowest) / (double)(max - min));
    return (struct quant_to_code){steps, roundf(min * steps) - (float)type.lowest,
                                  (float)type.lowest, fminf((float)type.highest, 2147483520.0f)};
}

float quant_float_exact(enum dtype dtype, int32_t code, float min, float max) {
    struct quant_type type = quant_type_of(dtype);
    double n_steps = (double)(type.highest - type.lowest) + 1;
    if (min == max)
        return min;
    double range = (double)(max - min) * (n_steps / (n_steps - 1)), step = range / n_steps;
    double base = round((double)(min / (float)step)) * (double)(float)step;
    return (float)(base + ((double)code - (double)type.lowest) * step);
}

int64_t quant_code_unclamped(enum dtype dtype, float v, float min, float max) {
    struct quant_type type = quant_type_of(dtype);
    double n_steps = (double)(type.highest - type.lowest) + 1;
    if (min == max)
        return type.lowest;
    double steps = n_steps / ((double)(max - min) * (n_steps / (n_steps - 1)));
    double code = round((double)v * steps) - round((double)min * steps);
    return code > -9e18 && code < 9e18 ? (int64_t)code + type.lowest : INT64_MIN;
}

int32_t quant_code_exact(enum dtype dtype, float v, float min, float max) {
    struct quant_type type = quant_type_of(dtype);
    int64_t code = quant_code_unclamped(dtype, v, min, max);
    return (int32_t)MIN(MAX(code, type.lowest), type.highest);
}

struct status *quant_scalar(const struct kernel_ctx *ctx, int input, const char *what, float *ret) {
    const struct tensor *t = kernel_input(ctx, input);
    if (t->rank != 0)
        return status_invalid("%s must be a scalar, must be rank 0 but is rank %d", what, t->rank);
    *ret = *(const float *)tensor_cdata(t);
    return NULL;
}

void quant_set_range(struct kernel_ctx *ctx, int first, float min, float max) {
    tensor_init_scalar_f32(&ctx->outputs[first], min);
    tensor_init_scalar_f32(&ctx->outputs[first + 1], max);
}

/* ---- both ops ---- */

enum quant_mode { MODE_MIN_COMBINED, MODE_MIN_FIRST, MODE_SCALED };

struct convert_state {
    enum quant_mode mode;
    enum dtype codes;
    int64_t axis;
    bool is_narrow, rounds_even;
    float least_range; /* how narrow the range may be, relative to its larger end */
};

struct status *quant_convert_init(struct kernel_init *init) {
    const struct node *node = init->node;
    struct convert_state *state = xcalloc(1, sizeof(*state));
    struct span mode, rounding;
    init->state = state;
    TRY(node_get_s(node, "mode", &mode));
    TRY(node_get_i32(node, "axis", &state->axis));
    TRY(node_get_b(node, "narrow_range", &state->is_narrow));
    TRY(node_get_type(node, "T", &state->codes));
    state->mode = span_is(mode, "MIN_COMBINED") ? MODE_MIN_COMBINED
                  : span_is(mode, "MIN_FIRST")  ? MODE_MIN_FIRST
                                                : MODE_SCALED;
    if (state->axis < -1)
        return status_invalid("axis must be at least -1. Found %lld", (long long)state->axis);
    if (!node_attr(node, "round_mode")) { /* only Dequantize has no round_mode */
        if (node->out_types[0] == DT_BFLOAT16 && state->mode != MODE_MIN_COMBINED)
            return status_invalid(
                "When output type is bfloat16, Mode string must be 'MIN_COMBINED', is '%.*s'",
                (int)mode.len, mode.data);
        return NULL;
    }
    TRY(node_get_s(node, "round_mode", &rounding));
    TRY(node_get_f(node, "ensure_minimum_range", &state->least_range));
    state->rounds_even = span_is(rounding, "HALF_TO_EVEN");
    if (state->rounds_even && state->mode != MODE_SCALED)
        return status_invalid(
            "Round mode 'HALF_TO_EVEN' only supported for mode 'SCALED', but mode is '%.*s'.",
            (int)mode.len, mode.data);
    return NULL;
}

struct convert_job {
    const struct convert_state *state;
    enum dtype reals;
    int64_t outer, n_slices, inner; /* the value is [outer, n_slices, inner] */
    const float *min, *max;         /* one for each slice */
    const void *x;
    void *y;
    float *min_out, *max_out;
};

static struct status *convert_job_init(const struct kernel_ctx *ctx, struct convert_job *job) {
    static const char *const names[] = {"input_min_range", "input_max_range"};
    const struct convert_state *state = ctx->instance->state;
    const struct tensor *x = kernel_input(ctx, 0);
    *job = (struct convert_job){
        .state = state, .outer = 1, .n_slices = 1, .inner = x->n_elements, .x = tensor_cdata(x)};
    if (state->axis >= 0) {
        if (state->axis >= x->rank)
            return status_invalid("Axis must be less than input dimension(%d), got %lld", x->rank,
                                  (long long)state->axis);
        job->n_slices = tensor_dim(x, (int)state->axis);
        job->inner = 1;
    }
    for (int i = 0; i < x->rank && state->axis >= 0 && x->n_elements > 0; i++) {
        if (i < state->axis)
            job->outer *= tensor_dim(x, i);
        else if (i > state->axis)
            job->inner *= tensor_dim(x, i);
    }
    for (int i = 0; i < 2; i++) {
        const struct tensor *t = kernel_input(ctx, 1 + i);
        if (t->n_elements != job->n_slices || (state->axis >= 0 && t->rank != 1))
            return status_invalid("%s must have as many elements as input has along axis %lld "
                                  "(%lld), but has shape %s, must be a scalar without",
                                  names[i], (long long)state->axis, (long long)job->n_slices,
                                  TENSOR_SHAPE_TEXT(t));
    }
    job->min = tensor_cdata(kernel_input(ctx, 1));
    job->max = tensor_cdata(kernel_input(ctx, 2));
    return NULL;
}

/* ---- QuantizeV2 ---- */

/* Mode SCALED: how many codes there are for each unit of the reals. The end of the range that
 * allows fewer decides. The range becomes the one that the codes cover. */
static float scaled_steps(const struct convert_state *state, float *min, float *max) {
    struct quant_type type = quant_type_of(state->codes);
    float lowest = (float)(type.lowest + (state->is_narrow ? 1 : 0)), highest = (float)type.highest;
    float from_min = lowest * *min > 0 ? lowest / *min : FLT_MAX,
          from_max = highest * *max > 0 ? highest / *max : FLT_MAX;
    float steps = from_max < from_min ? from_max : from_min;
    /* TensorFlow's threads flush numbers that small to 0 */
    *min = steps == FLT_MAX ? 0 : lowest / steps;
    *max = highest / steps;
    return steps;
}

/* How to convert a block of reals. */
struct quantizer {
    float min, max, steps, half;
    struct quant_to_code map;
};

static void quantize_block(const struct convert_state *state, const struct quantizer *q,
                           const float *x, int32_t *codes, int64_t n) {
    bool is_signed = quant_type_of(state->codes).lowest < 0;
    for (int64_t i = 0; i < n; i++) {
        float v = quant_clamp(x[i], q->min, q->max);
        switch (state->mode) {
        case MODE_MIN_COMBINED:
            v = (v - q->min) * q->steps;
            codes[i] = quant_code_of_float(is_signed ? roundf(v - q->half) : v + 0.5f);
            break;
        case MODE_MIN_FIRST:
            codes[i] = quant_code(&q->map, x[i]);
            break;
        default:
            v *= q->steps;
            codes[i] = quant_code_of_float(state->rounds_even ? rintf(v) : roundf(v));
        }
    }
}

/* Converts elements [begin, end) of each of the slice's runs. */
static void quantize_slice(const struct convert_job *job, const struct quantizer *q, int64_t slice,
                           int64_t begin, int64_t end) {
    const struct convert_state *state = job->state;
    int32_t codes[QUANT_BLOCK];
    for (int64_t o = 0; o < job->outer; o++) {
        int64_t first = (o * job->n_slices + slice) * job->inner;
        for (int64_t i = begin; i < end; i += QUANT_BLOCK) {
            int64_t n = MIN(end - i, (int64_t)QUANT_BLOCK);
            quantize_block(state, q, (const float *)job->x + first + i, codes, n);
            quant_codes_store(state->codes, job->y, first + i, codes, n);
        }
    }
}

static struct quantizer quantizer_of(const struct convert_job *job, int64_t slice) {
    const struct convert_state *state = job->state;
    struct quant_type type = quant_type_of(state->codes);
    struct quantizer q = {.min = fminf(0, job->min[slice])};
    float size = fmaxf(1, fmaxf(fabsf(job->min[slice]), fabsf(job->max[slice])));
    q.max = fmaxf(0, fmaxf(job->max[slice], q.min + size * state->least_range));
    q.half = type.lowest < 0 ? (float)(((double)(type.highest - type.lowest) + 1) / 2) : 0;
    if (state->mode == MODE_MIN_COMBINED)
        q.steps = (float)((double)(type.highest - type.lowest) / (double)(q.max - q.min));
    else if (state->mode == MODE_MIN_FIRST)
        q.map = quant_to_code_of(state->codes, q.min, q.max);
    else
        q.steps = scaled_steps(state, &q.min, &q.max);
    return q;
}

static void quantize_range(void *arg, int64_t begin, int64_t end) {
    const struct convert_job *job = arg;
    for (int64_t slice = begin; slice < end; slice++) {
        struct quantizer q = quantizer_of(job, slice);
        job->min_out[slice] = q.min;
        job->max_out[slice] = q.max;
        quantize_slice(job, &q, slice, 0, job->inner);
    }
}

static void quantize_part(void *arg, int64_t begin, int64_t end) {
    const struct convert_job *job = arg;
    struct quantizer q = quantizer_of(job, 0);
    quantize_slice(job, &q, 0, begin, end);
}

/* QuantizeV2.
 *   input                   float
 *   min_range, max_range    float scalars, or [d], where d is the size of the axis
 *   output                  T, the input's shape
 *   output_min, output_max  the range that the codes cover: around 0, and as wide as requested
 * Errors   INVALID_ARGUMENT   ranges of other shapes, or with min above max */
enum kernel_result quant_quantize(struct kernel_ctx *ctx) {
    const struct tensor *x = kernel_input(ctx, 0);
    struct convert_job job;
    KERNEL_TRY(ctx, convert_job_init(ctx, &job));
    for (int64_t i = 0; i < job.n_slices; i++) {
        if (job.max[i] < job.min[i])
            return kernel_fail(
                ctx, status_invalid("input_max_range must be larger than input_min_range."));
    }
    struct shape ranges = {job.state->axis >= 0 ? 1 : 0, &job.n_slices};
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, job.state->codes, tensor_shape(x)));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 1, DT_FLOAT, ranges));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 2, DT_FLOAT, ranges));
    job.y = tensor_data(&ctx->outputs[0]);
    job.min_out = tensor_data(&ctx->outputs[1]);
    job.max_out = tensor_data(&ctx->outputs[2]);
    if (job.state->axis >= 0) {
        pool_parallel_for(ctx->pool, job.n_slices, 3.0 * (double)(job.outer * job.inner),
                          quantize_range, &job);
        return KERNEL_DONE;
    }
    struct quantizer q = quantizer_of(&job, 0);
    job.min_out[0] = q.min;
    job.max_out[0] = q.max;
    pool_parallel_for(ctx->pool, job.inner, 3.0, quantize_part, &job);
    return KERNEL_DONE;
}

/* ---- Dequantize ---- */

static void dequantize_block(const struct convert_state *state, float min, float max,
                             const int32_t *codes, float *y, int64_t n) {
    struct quant_type type = quant_type_of(state->codes);
    bool is_signed = type.lowest < 0;
    if (state->mode == MODE_MIN_COMBINED) {
        float step = (max - min) / ((float)type.highest - (float)type.lowest);
        float half = is_signed ? (float)(((double)(type.highest - type.lowest) + 1) / 2) : 0;
        for (int64_t i = 0; i < n; i++)
            y[i] = ((float)codes[i] + half) * step + min;
    } else if (state->mode == MODE_MIN_FIRST) {
        struct quant_to_float map = quant_to_float_of(state->codes, min, max);
        for (int64_t i = 0; i < n; i++)
            y[i] = quant_float(&map, codes[i]);
    } else {
        float from_max = max / (float)type.highest,
              from_min = min / (float)(type.lowest + (state->is_narrow ? 1 : 0));
        float step = !is_signed || !(from_min > from_max) ? from_max : from_min;
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)codes[i] * step;
    }
}

static void dequantize_slice(const struct convert_job *job, int64_t slice, int64_t begin,
                             int64_t end) {
    const struct convert_state *state = job->state;
    int32_t codes[QUANT_BLOCK];
    float reals[QUANT_BLOCK];
    for (int64_t o = 0; o < job->outer; o++) {
        int64_t first = (o * job->n_slices + slice) * job->inner;
        for (int64_t i = begin; i < end; i += QUANT_BLOCK) {
            int64_t n = MIN(end - i, (int64_t)QUANT_BLOCK);
            float *y = job->reals == DT_FLOAT ? (float *)job->y + first + i : reals;
            quant_codes_load(state->codes, codes, job->x, first + i, n);
            dequantize_block(state, job->min[slice], job->max[slice], codes, y, n);
            if (job->reals != DT_FLOAT)
                half_block_store(job->reals, (uint16_t *)job->y + first + i, reals, n);
        }
    }
}

static void dequantize_range(void *arg, int64_t begin, int64_t end) {
    for (int64_t slice = begin; slice < end; slice++)
        dequantize_slice(arg, slice, 0, ((struct convert_job *)arg)->inner);
}

static void dequantize_part(void *arg, int64_t begin, int64_t end) {
    dequantize_slice(arg, 0, begin, end);
}

/* Dequantize.
 *   input                 T
 *   min_range, max_range  float scalars, or [d], where d is the size of the axis
 *   output                dtype, the input's shape
 * Errors   INVALID_ARGUMENT   ranges of other shapes */
enum kernel_result quant_dequantize(struct kernel_ctx *ctx) {
    struct convert_job job;
    KERNEL_TRY(ctx, convert_job_init(ctx, &job));
    job.reals = (enum dtype)ctx->instance->out_types[0];
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, job.reals, tensor_shape(kernel_input(ctx, 0))));
    job.y = tensor_data(&ctx->outputs[0]);
    if (job.state->axis < 0)
        pool_parallel_for(ctx->pool, job.inner, 2.0, dequantize_part, &job);
    else
        pool_parallel_for(ctx->pool, job.n_slices, 2.0 * (double)(job.outer * job.inner),
                          dequantize_range, &job);
    return KERNEL_DONE;
}
