/* Runs ImageProjectiveTransformV2 and V3, and ExtractGlimpse (V2). */
#include <math.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/pool_cancel.h"
#include "kernels/cpu/media/image.h"
#include "kernels/cpu/random/random_fill.h"
#include "common/tensor/element.h"

extern const struct kernel_list image_transform_kernels;

/* ---- ImageProjectiveTransform ---- */

enum fill_mode { FILL_CONSTANT, FILL_REFLECT, FILL_WRAP, FILL_NEAREST };

struct transform_state {
    enum fill_mode fill;
    bool is_bilinear;
};

static struct status *transform_init(struct kernel_init *init) {
    static const char *const modes[] = {"CONSTANT", "REFLECT", "WRAP", "NEAREST"};
    struct transform_state *state = xcalloc(1, sizeof(*state));
    struct span text = {0};
    size_t mode = 0;
    init->state = state;
    TRY(node_get_s(init->node, "interpolation", &text));
    state->is_bilinear = span_is(text, "BILINEAR");
    if (!state->is_bilinear && !span_is(text, "NEAREST"))
        return status_invalid("Invalid interpolation %.*s. Supported types: NEAREST, BILINEAR",
                              (int)MIN(text.len, (size_t)256), text.data);
    TRY(node_get_s(init->node, "fill_mode", &text));
    while (mode < ARRAY_LEN(modes) && !span_is(text, modes[mode]))
        mode++;
    if (mode == ARRAY_LEN(modes))
        return status_invalid(
            "Invalid mode %.*s. Supported types: REFLECT, WRAP, CONSTANT, NEAREST",
            (int)MIN(text.len, (size_t)256), text.data);
    state->fill = (enum fill_mode)mode;
    return NULL;
}

static float clamp_to(float v, float high) { return v > 0 ? MIN(v, high) : 0; }

/* Maps a coordinate outside of [0, n) into it, as the mode says. */
static float fold_coordinate(enum fill_mode mode, float at, int64_t n_pixels) {
    float n = (float)n_pixels, last = n - 1;
    if (mode == FILL_CONSTANT || (at >= 0 && at <= last))
        return at;
    if (mode == FILL_NEAREST || n_pixels <= 1 || !isfinite(at))
        return clamp_to(at, last);
    if (mode == FILL_REFLECT) {
        float period = 2 * n;
        if (at < 0) {
            at = at < period ? period * truncf(-at / period) + at : at;
            return clamp_to(at < -n ? at + period : -at - 1, last);
        }
        at -= period * truncf(at / period);
        return clamp_to(at >= n ? period - at - 1 : at, last);
    }
    if (at < 0)
        return clamp_to(at + n * (truncf(-at / last) + 1), last);
    return clamp_to(at - n * truncf(at / last), last);
}

struct transform_job {
    const struct transform_state *state;
    const struct tensor *in;
    struct tensor *out;
    const float *transforms;
    int64_t n_transforms;
    struct image_size from, to;
    float fill;
};

/* The element offset of a pixel; -1 outside of the image. */
static int64_t pixel_at(const struct transform_job *job, int64_t image, float y, float x) {
    if (!(y >= 0 && y < (float)job->from.height && x >= 0 && x < (float)job->from.width))
        return -1;
    return ((image * job->from.height + (int64_t)y) * job->from.width + (int64_t)x) *
           job->from.channels;
}

/* Rounds towards zero. A value that does not fit becomes the nearest one that does. */
static int64_t integer_of(float v, int64_t low, int64_t high) {
    return !(v > (float)low) ? low : v >= (float)high ? high : (int64_t)v;
}

static void put_value(struct tensor *t, int64_t i, double v) {
    switch (t->dtype) {
    case DT_DOUBLE:
        ((double *)tensor_data(t))[i] = v;
        break;
    case DT_UINT8:
        ((uint8_t *)tensor_data(t))[i] = (uint8_t)integer_of((float)v, INT32_MIN, INT32_MAX);
        break;
    case DT_INT32:
        ((int32_t *)tensor_data(t))[i] = (int32_t)integer_of((float)v, INT32_MIN, INT32_MAX);
        break;
    case DT_INT64:
        ((int64_t *)tensor_data(t))[i] = integer_of((float)v, INT64_MIN, INT64_MAX);
        break;
    default:
        image_store(t, i, 1, (const float[]){(float)v});
        break;
    }
}

static void put_pixel_copy(const struct transform_job *job, int64_t at, int64_t out) {
    size_t size = dtype_size((enum dtype)job->in->dtype);
    if (at >= 0) {
        memcpy((char *)tensor_data(job->out) + (size_t)out * size,
               (const char *)tensor_cdata(job->in) + (size_t)at * size,
               (size_t)job->from.channels * size);
        return;
    }
    for (int64_t c = 0; c < job->from.channels; c++)
        put_value(job->out, out + c, job->fill);
}

static void put_bilinear(const struct transform_job *job, int64_t image, float y, float x,
                         int64_t out) {
    float y0 = floorf(y), x0 = floorf(x), y1 = y0 + 1, x1 = x0 + 1;
    int64_t at[4] = {pixel_at(job, image, y0, x0), pixel_at(job, image, y0, x1),
                     pixel_at(job, image, y1, x0), pixel_at(job, image, y1, x1)};
    for (int64_t c = 0; c < job->from.channels; c++) {
        float v[4];
        for (int k = 0; k < 4; k++)
            v[k] = at[k] >= 0 ? (float)tensor_real_at(job->in, at[k] + c) : job->fill;
        float top = (x1 - x) * v[0] + (x - x0) * v[1], bottom = (x1 - x) * v[2] + (x - x0) * v[3];
        put_value(job->out, out + c, (double)((y1 - y) * top + (y - y0) * bottom));
    }
}

static void transform_range(void *arg, int64_t begin, int64_t end) {
    const struct transform_job *job = arg;
    for (int64_t i = begin; i < end; i++) {
        int64_t image = i / job->to.height, out = i * job->to.width * job->to.channels;
        const float *t = job->transforms + (job->n_transforms == 1 ? 0 : 8 * image);
        float row = (float)(i % job->to.height);
        for (int64_t j = 0; j < job->to.width; j++, out += job->to.channels) {
            float column = (float)j, scale = t[6] * column + t[7] * row + 1.0f;
            if (scale == 0) { /* the point is at infinity */
                put_pixel_copy(job, -1, out);
                continue;
            }
            float x = fold_coordinate(job->state->fill, (t[0] * column + t[1] * row + t[2]) / scale,
                                      job->from.width);
            float y = fold_coordinate(job->state->fill, (t[3] * column + t[4] * row + t[5]) / scale,
                                      job->from.height);
            if (job->state->is_bilinear)
                put_bilinear(job, image, y, x, out);
            else
                put_pixel_copy(job, pixel_at(job, image, roundf(y), roundf(x)), out);
        }
    }
}

/* ImageProjectiveTransformV2, V3: output pixel (x, y) shows input pixel ((a0 x + a1 y + a2) / k,
 * (b0 x + b1 y + b2) / k), where k = c0 x + c1 y + 1.
 *   images        dtype [batch, height, width, channels]
 *   transforms    float [batch or 1, 8]: a0, a1, a2, b0, b1, b2, c0, c1
 *   output_shape  int32 [2]
 *   fill_value    float [] (V3) */
static enum kernel_result transform(struct kernel_ctx *ctx) {
    const struct tensor *images = kernel_input(ctx, 0), *transforms = kernel_input(ctx, 1),
                        *size = kernel_input(ctx, 2);
    struct transform_job job = {
        .state = ctx->instance->state, .in = images, .transforms = tensor_cdata(transforms)};
    if (images->rank != 4)
        return kernel_fail(ctx, status_invalid("Input images must have rank 4"));
    if (transforms->rank != 2 ||
        (tensor_dim(transforms, 0) != tensor_dim(images, 0) && tensor_dim(transforms, 0) != 1) ||
        tensor_dim(transforms, 1) != 8)
        return kernel_fail(ctx,
                           status_invalid("Input transform should be num_images x 8 or 1 x 8"));
    if (size->rank != 1)
        return kernel_fail(
            ctx, status_invalid("output shape must be 1-dimensional%s", TENSOR_SHAPE_TEXT(size)));
    if (size->n_elements != 2)
        return kernel_fail(
            ctx, status_invalid("output shape must have two elements%s", TENSOR_SHAPE_TEXT(size)));
    job.n_transforms = tensor_dim(transforms, 0);
    job.from = job.to = image_size_of(images);
    job.to.height = tensor_index_at(size, 0);
    job.to.width = tensor_index_at(size, 1);
    if (job.to.height <= 0 || job.to.width <= 0)
        return kernel_fail(ctx, status_invalid("output dimensions must be positive"));
    if (ctx->instance->n_inputs > 3) {
        const struct tensor *fill = kernel_input(ctx, 3);
        if (fill->rank != 0)
            return kernel_fail(
                ctx, status_invalid("fill_value must be a scalar%s", TENSOR_SHAPE_TEXT(fill)));
        job.fill = *(const float *)tensor_cdata(fill);
    }
    int64_t dims[4] = {job.to.batch, job.to.height, job.to.width, job.to.channels};
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, (enum dtype)images->dtype, (struct shape){4, dims}));
    job.out = &ctx->outputs[0];
    if (job.out->n_elements > 0)
        pool_parallel_for(ctx->pool, job.to.batch * job.to.height,
                          10.0 * (double)(job.to.width * job.to.channels), transform_range, &job);
    return KERNEL_DONE;
}

/* ---- ExtractGlimpse ---- */

enum noise { NOISE_UNIFORM, NOISE_GAUSSIAN, NOISE_ZERO };

struct glimpse_state {
    bool is_centered, is_normalized, is_v2;
    enum noise noise;
};

static struct status *glimpse_init(struct kernel_init *init) {
    struct glimpse_state *state = xcalloc(1, sizeof(*state));
    bool is_uniform = false;
    struct span noise = {0};
    init->state = state;
    state->is_v2 = node_is_op(init->node, "ExtractGlimpseV2");
    TRY(node_get_b(init->node, "normalized", &state->is_normalized));
    TRY(node_get_b(init->node, "centered", &state->is_centered));
    TRY(node_get_b(init->node, "uniform_noise", &is_uniform));
    TRY(node_get_s(init->node, "noise", &noise));
    if (is_uniform && noise.len > 0 && !span_is(noise, "uniform"))
        return status_invalid(
            "The uniform_noise and noise should not be specified at the same time");
    state->noise = noise.len == 0 && !is_uniform ? NOISE_GAUSSIAN : NOISE_UNIFORM;
    if (span_is(noise, "gaussian"))
        state->noise = NOISE_GAUSSIAN;
    else if (span_is(noise, "zero"))
        state->noise = NOISE_ZERO;
    else if (noise.len > 0 && !span_is(noise, "uniform"))
        return status_invalid("Unknown noise type: %.*s", (int)MIN(noise.len, (size_t)256),
                              noise.data);
    return NULL;
}

/* The position along an axis at which the glimpse begins. */
static int64_t glimpse_begin(const struct glimpse_state *state, float offset, int64_t n,
                             int64_t n_glimpse) {
    float at = state->is_normalized ? offset * (float)n : offset;
    /* in the first version offsets refer to the window's centre, whether centred or not */
    if (!state->is_v2)
        at = (state->is_centered ? at / 2.0f + (float)n / 2.0f : at) - (float)n_glimpse / 2.0f;
    else if (state->is_centered)
        at = state->is_normalized ? at / 2.0f + (float)n / 2.0f - (float)n_glimpse / 2.0f
                                  : at + (float)n / 2.0f;
    return at > -1e15f && at < 1e15f ? (int64_t)at : INT64_MAX / 4; /* outside of the image */
}

static struct status *fill_noise(struct kernel_ctx *ctx, const struct tensor *input) {
    const struct glimpse_state *state = ctx->instance->state;
    float *out = tensor_data(&ctx->outputs[0]);
    const float *in = tensor_cdata(input);
    int64_t n = ctx->outputs[0].n_elements;
    if (state->noise == NOISE_ZERO) {
        memset(out, 0, (size_t)n * sizeof(*out));
        return NULL;
    }
    struct random_fill fill = {
        .kind = state->noise == NOISE_UNIFORM ? RANDOM_UNIFORM : RANDOM_NORMAL, .dtype = DT_FLOAT};
    fill.generator = (struct philox){random_u64(), 0, random_u64()};
    random_fill_run(&fill, ctx->pool, out, n);
    double sum = 0, squares = 0, low = INFINITY, high = -INFINITY;
    for (int64_t i = 0; i < input->n_elements && pool_goes_on(i + 1); i++) {
        sum += in[i];
        squares += (double)in[i] * in[i];
        low = MIN(low, (double)in[i]);
        high = MAX(high, (double)in[i]);
    }
    double count = (double)MAX(input->n_elements, (int64_t)1), mean = sum / count,
           deviation = sqrt(MAX(squares / count - mean * mean, 0.0));
    /* noise whose magnitude is that of the images */
    for (int64_t i = 0; i < n && input->n_elements > 0 && pool_goes_on(i + 1); i++)
        out[i] = (float)(state->noise == NOISE_UNIFORM ? low + out[i] * (high - low)
                                                       : mean + out[i] * deviation);
    return NULL;
}

static void copy_glimpse(const struct tensor *input, struct tensor *output, int64_t image,
                         int64_t top, int64_t left) {
    struct image_size in = image_size_of(input), out = image_size_of(output);
    int64_t y0 = MAX(-top, (int64_t)0), y1 = MIN(out.height, in.height - top),
            x0 = MAX(-left, (int64_t)0), x1 = MIN(out.width, in.width - left);
    for (int64_t y = y0; y < y1 && x0 < x1; y++)
        memcpy((float *)tensor_data(output) +
                   ((image * out.height + y) * out.width + x0) * out.channels,
               (const float *)tensor_cdata(input) +
                   ((image * in.height + top + y) * in.width + left + x0) * in.channels,
               (size_t)((x1 - x0) * in.channels) * sizeof(float));
}

/* ExtractGlimpse, ExtractGlimpseV2: copies a window of each image, with noise where the window is
 * outside of the image.
 *   input   float [batch, height, width, channels]      size     int32 [2]
 *   glimpse float [batch, size..., channels]            offsets  float [batch, 2]: y, x */
static enum kernel_result glimpse(struct kernel_ctx *ctx) {
    const struct tensor *input = kernel_input(ctx, 0), *size = kernel_input(ctx, 1),
                        *offsets = kernel_input(ctx, 2);
    if (input->rank != 4)
        return kernel_fail(
            ctx, status_invalid("input must be 4-dimensional (batch_size, height, width, depth)%s",
                                TENSOR_SHAPE_TEXT(input)));
    if (size->rank != 1 || size->n_elements != 2)
        return kernel_fail(ctx, status_invalid("input must be a vector of size 2 (height, width)%s",
                                               TENSOR_SHAPE_TEXT(size)));
    int64_t dims[4] = {tensor_dim(input, 0), tensor_index_at(size, 0), tensor_index_at(size, 1),
                       tensor_dim(input, 3)};
    if (dims[1] < 0 || dims[2] < 0)
        return kernel_fail(ctx, status_invalid("output shape must be non-negative"));
    if (offsets->rank != 2)
        return kernel_fail(ctx,
                           status_invalid("input must be a matrix%s", TENSOR_SHAPE_TEXT(offsets)));
    if (tensor_dim(offsets, 0) != dims[0])
        return kernel_fail(
            ctx, status_invalid("first dimension should be batch%s", TENSOR_SHAPE_TEXT(offsets)));
    if (tensor_dim(offsets, 1) != 2)
        return kernel_fail(ctx, status_invalid("second dimension should be of size 2 (y,x)%s",
                                               TENSOR_SHAPE_TEXT(offsets)));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_FLOAT, (struct shape){4, dims}));
    if (ctx->outputs[0].n_elements == 0)
        return KERNEL_DONE;
    KERNEL_TRY(ctx, fill_noise(ctx, input));
    const float *offset = tensor_cdata(offsets);
    for (int64_t i = 0; i < dims[0]; i++, offset += 2)
        copy_glimpse(input, &ctx->outputs[0], i,
                     glimpse_begin(ctx->instance->state, offset[0], tensor_dim(input, 1), dims[1]),
                     glimpse_begin(ctx->instance->state, offset[1], tensor_dim(input, 2), dims[2]));
    return KERNEL_DONE;
}

#define TRANSFORMED \
    (DTYPES_REAL_FLOAT | DTYPE_BIT(DT_UINT8) | DTYPE_BIT(DT_INT32) | DTYPE_BIT(DT_INT64))

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "ImageProjectiveTransformV2", {{"dtype", TRANSFORMED}}, .compute = transform,
        .init = transform_init},
    {.op = "ImageProjectiveTransformV3", {{"dtype", TRANSFORMED}}, .compute = transform,
        .init = transform_init},
    {.op = "ExtractGlimpse", .compute = glimpse, .init = glimpse_init, .flags = KERNEL_STATEFUL},
    {.op = "ExtractGlimpseV2", .compute = glimpse, .init = glimpse_init, .flags = KERNEL_STATEFUL},
};
// clang-format on

const struct kernel_list image_transform_kernels = {rows, ARRAY_LEN(rows)};
