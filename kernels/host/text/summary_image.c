/* Computes ImageSummary, which writes pictures as PNG files. Numbers that are no bytes are scaled
 * to bytes, picture by picture. */
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/media/codec.h"
#include "kernels/support/half_blocks.h"
#include "kernels/host/text/string_internal.h"
#include "kernels/host/text/summary_internal.h"

enum { IMAGE_HEIGHT = 1, IMAGE_WIDTH, IMAGE_COLORSPACE, IMAGE_ENCODED };

struct image_state {
    int64_t max_images;
    struct tensor bad_color;
};

void summary_image_fini(void *arg) {
    struct image_state *state = arg;
    if (state)
        tensor_clear(&state->bad_color);
    free(state);
}

struct status *summary_image_init(struct kernel_init *init) {
    struct image_state *state = xcalloc(1, sizeof(*state));
    const struct tensor *color;
    init->state = state;
    TRY(node_get_i(init->node, "max_images", &state->max_images));
    TRY(node_get_tensor(init->node, "bad_color", &color));
    tensor_copy(&state->bad_color, color);
    if (color->dtype != DT_UINT8)
        return status_invalid("bad_color must be uint8, got %s",
                              dtype_name((enum dtype)color->dtype));
    if (color->rank != 1)
        return status_invalid("bad_color must be a vector, got rank %d", color->rank);
    return NULL;
}

/* How numbers become bytes. As in TensorFlow, each step is rounded to the type of the tensor. */
struct scaling {
    enum dtype dtype;
    double scale, offset;
};

static double round_to(enum dtype dtype, double v) {
    if (dtype == DT_DOUBLE)
        return v;
    return dtype == DT_FLOAT ? (double)(float)v
                             : (double)half_value_load(dtype, half_value_store(dtype, (float)v));
}

static bool is_finite_pixel(const struct tensor *t, int64_t first, int64_t depth) {
    for (int64_t c = 0; c < depth; c++)
        if (!isfinite(summary_number_at(t, first + c)))
            return false;
    return true;
}

/* Scales the largest magnitude to the end of the bytes' range. Where there are negative numbers, 0
 * becomes 128, otherwise 0. */
static struct scaling scaling_of(const struct tensor *t, int64_t first, int64_t n_pixels,
                                 int64_t depth) {
    static const float nothing = 1e-6f;
    struct scaling ret = {.dtype = (enum dtype)t->dtype};
    double min = INFINITY, max = -INFINITY;
    for (int64_t i = 0; i < n_pixels; i++) {
        int64_t at = first + i * depth;
        for (int64_t c = 0; c < depth && is_finite_pixel(t, at, depth); c++) {
            double v = summary_number_at(t, at + c);
            min = fmin(min, v);
            max = fmax(max, v);
        }
    }
    float size = (float)(min < 0 ? fmax(fabs(min), fabs(max)) : max), full = min < 0 ? 127 : 255;
    /* as in TensorFlow, a float whatever the tensor's type */
    ret.scale = size < nothing ? 0 : round_to(ret.dtype, (double)(full / size));
    ret.offset = min < 0 ? 128 : 0;
    return ret;
}

static void scale_image(const struct tensor *t, int64_t first, int64_t n_pixels, int64_t depth,
                        const uint8_t *bad_color, uint8_t *out) {
    struct scaling scaling = scaling_of(t, first, n_pixels, depth);
    for (int64_t i = 0; i < n_pixels; i++) {
        int64_t at = i * depth;
        bool is_finite = is_finite_pixel(t, first + at, depth);
        for (int64_t c = 0; c < depth; c++) {
            double v = is_finite ? round_to(scaling.dtype,
                                            summary_number_at(t, first + at + c) * scaling.scale)
                                 : 0;
            v = round_to(scaling.dtype, v + scaling.offset);
            out[at + c] = is_finite ? (uint8_t)(int)v : bad_color[c];
        }
    }
}

static struct status *add_image(const uint8_t *pixels, struct codec_size size, struct span tag,
                                int index, struct str *out) {
    struct str png = STR_INIT, name = STR_INIT;
    TRY(codec_png_encode(pixels, size, 8, -1, &png));
    str_add_bytes(&name, tag.data, tag.len);
    str_add(&name, "/image");
    if (index >= 0)
        str_addf(&name, "/%d", index);
    size_t value = proto_begin(out, SUMMARY_VALUE, png.len + name.len + 64);
    proto_add_bytes(out, VALUE_TAG, name.data, name.len);
    size_t image = proto_begin(out, VALUE_IMAGE, png.len + 32);
    proto_add_int(out, IMAGE_HEIGHT, (uint64_t)size.height);
    proto_add_int(out, IMAGE_WIDTH, (uint64_t)size.width);
    proto_add_int(out, IMAGE_COLORSPACE, (uint64_t)size.channels);
    proto_add_bytes(out, IMAGE_ENCODED, png.data, png.len);
    proto_end(out, image, png.len + 32);
    proto_end(out, value, png.len + name.len + 64);
    str_fini(&png);
    str_fini(&name);
    return NULL;
}

static struct status *check_images(const struct tensor *t, const struct tensor *bad_color) {
    if (t->rank != 4 || (tensor_dim(t, 3) != 1 && tensor_dim(t, 3) != 3 && tensor_dim(t, 3) != 4)) {
        struct status *st = status_invalid("Tensor must be 4-D with last dim 1, 3, or 4, not %s",
                                           TENSOR_SHAPE_TEXT(t));
        return st;
    }
    if (bad_color->rank != 1 || bad_color->n_elements < tensor_dim(t, 3))
        return status_invalid(
            "expected depth <= bad_color.size, got depth = %lld, bad_color.size = %lld",
            (long long)tensor_dim(t, 3), (long long)bad_color->n_elements);
    return NULL;
}

struct status *summary_add_images(const struct tensor *t, struct span tag,
                                  const struct tensor *bad_color, int64_t max_images,
                                  struct str *out) {
    TRY(check_images(t, bad_color));
    struct codec_size size = {1, tensor_dim(t, 1), tensor_dim(t, 2), tensor_dim(t, 3)};
    int64_t n = MIN(max_images, tensor_dim(t, 0));
    if (n > 0)
        TRY(codec_size_check(size));
    int64_t n_pixels = size.height * size.width, n_samples = n_pixels * size.channels;
    uint8_t *scaled = t->dtype == DT_UINT8 || n <= 0 ? NULL : malloc((size_t)n_samples);
    if (t->dtype != DT_UINT8 && n > 0 && !scaled)
        return status_exhausted("OOM for a picture of %lld bytes", (long long)n_samples);
    struct status *st = NULL;
    for (int64_t i = 0; i < n && !st; i++) {
        if (scaled)
            scale_image(t, i * n_samples, n_pixels, size.channels, tensor_cdata(bad_color), scaled);
        const uint8_t *pixels = scaled ? scaled : (const uint8_t *)tensor_cdata(t) + i * n_samples;
        st = add_image(pixels, size, tag, max_images > 1 ? (int)i : -1, out);
    }
    free(scaled);
    return st;
}

/* ImageSummary
 *   tag       string, scalar
 *   tensor    T [batch, height, width, 1, 3 or 4]
 *   summary   string, scalar: a Summary with the first max_images as PNG files
 * Errors   INVALID_ARGUMENT   another shape; a bad_color that is too short */
enum kernel_result summary_image(struct kernel_ctx *ctx) {
    const struct image_state *state = ctx->instance->state;
    struct span tag;
    struct str out = STR_INIT;
    KERNEL_TRY(ctx, summary_scalar_text(ctx, 0, "Tags", &tag));
    struct status *st =
        summary_add_images(kernel_input(ctx, 1), tag, &state->bad_color, state->max_images, &out);
    if (!st)
        return summary_end(ctx, &out);
    str_fini(&out);
    return kernel_fail(ctx, st);
}
