/* CPU kernels of colours: RGBToHSV, HSVToRGB, AdjustContrastv2, AdjustHue, AdjustSaturation. */
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/media/image.h"

extern const struct kernel_list image_color_kernels;

/* ---- one pixel [Smith 1978]: hue, saturation and value in [0, 1] ---- */

#define NAME(x) x##_f32
#define T float
#define FABS fabsf
#include "kernels/cpu/media/image_color.inc"
#define NAME(x) x##_f64
#define T double
#define FABS fabs
#include "kernels/cpu/media/image_color.inc"

/* ---- RGBToHSV, HSVToRGB ---- */

struct convert_job {
    const struct tensor *from;
    struct tensor *to;
    bool is_to_hsv;
};

static void convert_range(void *arg, int64_t begin, int64_t end) {
    const struct convert_job *job = arg;
    for (int64_t i = begin; i < end; i++) {
        if (job->from->dtype == DT_DOUBLE) {
            (job->is_to_hsv ? rgb_to_hsv_f64
                            : hsv_to_rgb_f64)((const double *)tensor_cdata(job->from) + 3 * i,
                                              (double *)tensor_data(job->to) + 3 * i);
            continue;
        }
        float in[3], out[3];
        image_load(job->from, 3 * i, 3, in);
        (job->is_to_hsv ? rgb_to_hsv_f32 : hsv_to_rgb_f32)(in, out);
        image_store(job->to, 3 * i, 3, out);
    }
}

/* RGBToHSV, HSVToRGB: images T [..., 3] to output of the same shape.
 * Errors  INVALID_ARGUMENT  a scalar, or a last size other than 3 */
static enum kernel_result convert(struct kernel_ctx *ctx) {
    const struct tensor *images = kernel_input(ctx, 0);
    if (images->rank < 1)
        return kernel_fail(
            ctx, status_invalid("input must be at least 1D%s", TENSOR_SHAPE_TEXT(images)));
    if (tensor_dim(images, images->rank - 1) != 3)
        return kernel_fail(ctx, status_failed_precondition(
                                    "input must have 3 channels but input only has %lld channels.",
                                    (long long)tensor_dim(images, images->rank - 1)));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, (enum dtype)images->dtype, tensor_shape(images)));
    struct convert_job job = {images, &ctx->outputs[0], ctx->instance->def->arg != NULL};
    pool_parallel_for(ctx->pool, images->n_elements / 3, 10, convert_range, &job);
    return KERNEL_DONE;
}

/* ---- checks that the three adjustments share ---- */

static struct status *adjust_check(const struct kernel_ctx *ctx, const char *what, bool is_rgb) {
    const struct tensor *images = kernel_input(ctx, 0), *amount = kernel_input(ctx, 1);
    if (images->rank < 3)
        return status_invalid("input must be at least 3-D, got shape%s", TENSOR_SHAPE_TEXT(images));
    if (amount->rank != 0)
        return status_invalid("%s must be scalar: %s", what, TENSOR_SHAPE_TEXT(amount));
    if (is_rgb && tensor_dim(images, images->rank - 1) != 3)
        return status_invalid("input must have 3 channels but instead has %lld channels.",
                              (long long)tensor_dim(images, images->rank - 1));
    return NULL;
}

/* ---- AdjustContrastv2 ---- */

struct contrast_job {
    const float *from;
    float *to;
    int64_t n_pixels, channels;
    float factor;
};

static void contrast_range(void *arg, int64_t begin, int64_t end) {
    const struct contrast_job *job = arg;
    int64_t channels = job->channels, n = job->n_pixels * channels;
    double *means = xmalloc((size_t)channels * sizeof(*means));
    for (int64_t image = begin; image < end; image++) {
        const float *from = job->from + image * n;
        float *to = job->to + image * n;
        memset(means, 0, (size_t)channels * sizeof(*means));
        for (int64_t i = 0; i < n; i += channels)
            for (int64_t c = 0; c < channels; c++)
                means[c] += from[i + c];
        for (int64_t c = 0; c < channels; c++)
            means[c] /= (double)job->n_pixels;
        for (int64_t i = 0; i < n; i += channels)
            for (int64_t c = 0; c < channels; c++)
                to[i + c] = (from[i + c] - (float)means[c]) * job->factor + (float)means[c];
    }
    free(means);
}

/* AdjustContrastv2: multiplies the distance from the mean of each image and channel.
 *   images            float [..., height, width, channels]
 *   contrast_factor   float [] */
static enum kernel_result contrast(struct kernel_ctx *ctx) {
    const struct tensor *images = kernel_input(ctx, 0);
    KERNEL_TRY(ctx, adjust_check(ctx, "contrast_factor", false));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_FLOAT, tensor_shape(images)));
    if (images->n_elements == 0)
        return KERNEL_DONE;
    const int64_t *dims = tensor_dims(images) + images->rank - 3;
    struct contrast_job job = {.from = tensor_cdata(images),
                               .to = tensor_data(&ctx->outputs[0]),
                               .n_pixels = dims[0] * dims[1],
                               .channels = dims[2],
                               .factor = *(const float *)tensor_cdata(kernel_input(ctx, 1))};
    int64_t n_image = job.n_pixels * job.channels;
    pool_parallel_for(ctx->pool, images->n_elements / n_image, 2.0 * (double)n_image,
                      contrast_range, &job);
    return KERNEL_DONE;
}

/* ---- AdjustHue, AdjustSaturation ---- */

struct adjust_job {
    const float *from;
    float *to;
    float amount;
};

static void hue_range(void *arg, int64_t begin, int64_t end) {
    const struct adjust_job *job = arg;
    for (int64_t i = 3 * begin; i < 3 * end; i += 3) {
        /* The result is the new hue at full saturation, scaled to the pixel's least and largest
         * channel. The pixel's saturation is not used, because a black pixel has none. */
        float r = job->from[i], g = job->from[i + 1], b = job->from[i + 2], hsv[3],
              full[3] = {0, 1, 1}, rgb[3];
        float most = MAX(MAX(r, g), b), least = MIN(MIN(r, g), b);
        rgb_to_hsv_f32(job->from + i, hsv);
        full[0] = hsv[0] + job->amount;
        full[0] -= floorf(full[0]);
        hsv_to_rgb_f32(full, rgb);
        for (int c = 0; c < 3; c++)
            job->to[i + c] = least + rgb[c] * (most - least);
    }
}

static void saturation_range(void *arg, int64_t begin, int64_t end) {
    const struct adjust_job *job = arg;
    for (int64_t i = 3 * begin; i < 3 * end; i += 3) {
        float hsv[3];
        rgb_to_hsv_f32(job->from + i, hsv);
        hsv[1] = MIN(1.0f, MAX(0.0f, hsv[1] * job->amount));
        hsv_to_rgb_f32(hsv, job->to + i);
    }
}

static enum kernel_result adjust(struct kernel_ctx *ctx, const char *what,
                                 void (*range)(void *, int64_t, int64_t)) {
    const struct tensor *images = kernel_input(ctx, 0);
    KERNEL_TRY(ctx, adjust_check(ctx, what, true));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_FLOAT, tensor_shape(images)));
    struct adjust_job job = {tensor_cdata(images), tensor_data(&ctx->outputs[0]),
                             *(const float *)tensor_cdata(kernel_input(ctx, 1))};
    pool_parallel_for(ctx->pool, images->n_elements / 3, 15, range, &job);
    return KERNEL_DONE;
}

/* AdjustHue: images float [..., height, width, 3] with `delta` added to the hue. AdjustSaturation:
 * images with the saturation multiplied by `scale`. */
static enum kernel_result adjust_hue(struct kernel_ctx *ctx) {
    return adjust(ctx, "delta", hue_range);
}
static enum kernel_result adjust_saturation(struct kernel_ctx *ctx) {
    return adjust(ctx, "scale", saturation_range);
}

static const bool to_hsv = true;

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "RGBToHSV", {{"T", DTYPES_REAL_FLOAT}}, .compute = convert, .arg = &to_hsv},
    {.op = "HSVToRGB", {{"T", DTYPES_REAL_FLOAT}}, .compute = convert},
    {.op = "AdjustContrastv2", {{"T", DTYPE_BIT(DT_FLOAT)}}, .compute = contrast},
    {.op = "AdjustHue", {{"T", DTYPE_BIT(DT_FLOAT)}}, .compute = adjust_hue},
    {.op = "AdjustSaturation", {{"T", DTYPE_BIT(DT_FLOAT)}}, .compute = adjust_saturation},
};
// clang-format on

const struct kernel_list image_color_kernels = {rows, ARRAY_LEN(rows)};
