/* Runs QuantizedResizeBilinear, which blends codes. */
#include <stdlib.h>

#include "kernels/cpu/media/image.h"
#include "kernels/cpu/quant/quant_internal.h"

/* Codes are blended in whole numbers: bytes with weights of 7 bits, wider codes with weights of 30
 * bits that are rounded to a float's precision. */
enum { BYTE_BITS = 7, CODE_BITS = 30 };

struct status *quant_resize_init(struct kernel_init *init) {
    struct resize_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_b(init->node, "align_corners", &state->grid.align_corners));
    return node_get_b(init->node, "half_pixel_centers", &state->grid.half_pixel_centers);
}

/* An output position, between two input positions. */
struct between {
    int64_t low, high;
    float part;
};

static struct between between_of(const struct image_axis *axis, int64_t i) {
    bool is_one = axis->n_taps[i] < 2;
    return (struct between){axis->first[i], axis->first[i] + (is_one ? 0 : 1),
                            is_one ? 0 : axis->weights[i * axis->stride + 1]};
}

struct resize_job {
    const struct tensor *images;
    struct tensor *out;
    const struct image_axis *rows, *columns;
};

/* Divisions round towards 0, as TensorFlow's op always did. */
static inline int64_t blend(const int64_t corner[4], float x, float y, int bits) {
    int64_t one = (int64_t)1 << bits, across = (int64_t)(x * (float)one),
            down = (int64_t)(y * (float)one);
    int64_t top = corner[0] * one + (corner[1] - corner[0]) * across,
            bottom = corner[2] * one + (corner[3] - corner[2]) * across;
    return (top + (bottom - top) / one * down + one / 2) / one;
}

static void blend_pixel(const struct resize_job *job, int64_t image, struct between y,
                        struct between x, int64_t out_at) {
    struct image_size in = image_size_of(job->images);
    int64_t top = (image * in.height + y.low) * in.width,
            bottom = (image * in.height + y.high) * in.width;
    const int64_t at[4] = {(top + x.low) * in.channels, (top + x.high) * in.channels,
                           (bottom + x.low) * in.channels, (bottom + x.high) * in.channels};
    for (int64_t c = 0; c < in.channels; c++) {
        int64_t corner[4];
        for (int i = 0; i < 4; i++)
            corner[i] =
                job->images->dtype == DT_QUINT8
                    ? ((const uint8_t *)tensor_cdata(job->images))[at[i] + c]
                    : (int64_t)(float)((const int32_t *)tensor_cdata(job->images))[at[i] + c];
        if (job->images->dtype == DT_QUINT8)
            ((uint8_t *)tensor_data(job->out))[out_at + c] =
                (uint8_t)blend(corner, x.part, y.part, BYTE_BITS);
        else
            ((int32_t *)tensor_data(job->out))[out_at + c] =
                (int32_t)(uint32_t)blend(corner, x.part, y.part, CODE_BITS);
    }
}

/* Blends rows [begin, end) of all images. */
static void blend_rows(void *arg, int64_t begin, int64_t end) {
    const struct resize_job *job = arg;
    struct image_size out = image_size_of(job->out);
    for (; begin < end; begin++) {
        struct between y = between_of(job->rows, begin % out.height);
        for (int64_t x = 0; x < out.width; x++)
            blend_pixel(job, begin / out.height, y, between_of(job->columns, x),
                        (begin * out.width + x) * out.channels);
    }
}

static struct status *resize(struct kernel_ctx *ctx) {
    const struct resize_state *state = ctx->instance->state;
    const struct tensor *images = kernel_input(ctx, 0);
    struct image_axis rows = {0}, columns = {0};
    struct image_grid grid = state->grid;
    struct status *st = NULL;
    TRY(resize_output(ctx, (enum dtype)images->dtype));
    if (shape_equal(tensor_shape(images), tensor_shape(&ctx->outputs[0]))) {
        memcpy(tensor_data(&ctx->outputs[0]), tensor_cdata(images), tensor_size_bytes(images));
        return NULL;
    }
    grid.n_in = tensor_dim(images, 1);
    grid.n_out = tensor_dim(&ctx->outputs[0], 1);
    TRY(image_axis_bilinear(grid, &rows));
    grid.n_in = tensor_dim(images, 2);
    grid.n_out = tensor_dim(&ctx->outputs[0], 2);
    TRY_OUT(image_axis_bilinear(grid, &columns));
    struct resize_job job = {images, &ctx->outputs[0], &rows, &columns};
    if (images->dtype == DT_FLOAT)
        image_resample(ctx->pool, images, &rows, &columns, &ctx->outputs[0]);
    else
        pool_parallel_for(ctx->pool, tensor_dim(images, 0) * tensor_dim(&ctx->outputs[0], 1),
                          8.0 * (double)(tensor_dim(&ctx->outputs[0], 2) * tensor_dim(images, 3)),
                          blend_rows, &job);
out:
    image_axis_fini(&rows);
    image_axis_fini(&columns);
    return st;
}

/* QuantizedResizeBilinear.
 *   images            T [batch, height, width, channels]
 *   size              int32 [2]: new height, new width
 *   min, max          float scalars
 *   resized_images    T [batch, new height, new width, channels]
 *   out_min, out_max  the same range
 * Errors   INVALID_ARGUMENT   ranks, empty images, sizes below 1, ranges that are no scalars */
enum kernel_result quant_resize(struct kernel_ctx *ctx) {
    float min, max;
    KERNEL_TRY(ctx, quant_scalar(ctx, 2, "min", &min));
    KERNEL_TRY(ctx, quant_scalar(ctx, 3, "max", &max));
    KERNEL_TRY(ctx, resize(ctx));
    quant_set_range(ctx, 1, min, max);
    return KERNEL_DONE;
}
