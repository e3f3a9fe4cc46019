/* Resizes whole images: bilinear, bicubic, area, ScaleAndTranslate and their gradients. */
#include <math.h>
#include <stdlib.h>
#include <strings.h>

#include "kernels/cpu/media/image.h"

extern const struct kernel_list image_resize_kernels;

typedef struct status *axis_fn(struct image_grid grid, struct image_axis *ret);

/* The arg of a row. */
struct resize_way {
    axis_fn *axis;
};
static const struct resize_way bilinear = {image_axis_bilinear}, bicubic = {image_axis_bicubic},
                               area = {image_axis_area};

struct status *resize_init(struct kernel_init *init) {
    struct resize_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_b(init->node, "align_corners", &state->grid.align_corners));
    if (node_attr(init->node, "half_pixel_centers"))
        TRY(node_get_b(init->node, "half_pixel_centers", &state->grid.half_pixel_centers));
    if (state->grid.align_corners && state->grid.half_pixel_centers)
        return status_invalid("If half_pixel_centers is True, align_corners must be False.");
    return NULL;
}

/* ---- checks ---- */

static struct status *check_images(const struct tensor *images) {
    if (images->rank != 4)
        return status_invalid("input must be 4-dimensional%s", TENSOR_SHAPE_TEXT(images));
    for (int i = 0; i < 3; i++)
        if (tensor_dim(images, i) > INT32_MAX)
            return status_invalid("input sizes must be between 0 and max int32");
    if (tensor_dim(images, 3) < 1)
        return status_invalid("image must have at least one channel");
    return NULL;
}

struct status *resize_output(struct kernel_ctx *ctx, enum dtype dtype) {
    const struct tensor *images = kernel_input(ctx, 0), *size = kernel_input(ctx, 1);
    TRY(check_images(images));
    if (size->rank != 1)
        return status_invalid("shape_t must be 1-dimensional%s", TENSOR_SHAPE_TEXT(size));
    if (size->n_elements != 2)
        return status_invalid("shape_t must have two elements%s", TENSOR_SHAPE_TEXT(size));
    int64_t height = tensor_index_at(size, 0), width = tensor_index_at(size, 1);
    if (height <= 0 || width <= 0)
        return status_invalid("output dimensions must be positive");
    if (tensor_dim(images, 1) < 1 || tensor_dim(images, 2) < 1)
        return status_invalid("input image must be of non-zero size");
    int64_t dims[4] = {tensor_dim(images, 0), height, width, tensor_dim(images, 3)};
    return kernel_alloc(ctx, 0, dtype, (struct shape){4, dims});
}

static struct status *make_axes(const struct kernel_ctx *ctx, const struct tensor *in,
                                const struct tensor *out, struct image_axis *rows,
                                struct image_axis *columns) {
    const struct resize_state *state = ctx->instance->state;
    const struct resize_way *way = ctx->instance->def->arg;
    struct image_grid grid = state->grid;
    grid.n_in = tensor_dim(in, 1);
    grid.n_out = tensor_dim(out, 1);
    TRY(way->axis(grid, rows));
    grid.n_in = tensor_dim(in, 2);
    grid.n_out = tensor_dim(out, 2);
    return way->axis(grid, columns);
}

/* ResizeBilinear, ResizeBicubic, ResizeArea.
 *   images          T [batch, height, width, channels]
 *   size            int32 [2]: new height, new width
 *   resized_images  float [batch, new height, new width, channels]
 * Errors  INVALID_ARGUMENT  ranks, empty images, sizes below 1 */
static enum kernel_result resize(struct kernel_ctx *ctx) {
    struct image_axis rows = {0}, columns = {0};
    KERNEL_TRY(ctx, resize_output(ctx, DT_FLOAT));
    struct status *st = make_axes(ctx, kernel_input(ctx, 0), &ctx->outputs[0], &rows, &columns);
    if (!st)
        image_resample(ctx->pool, kernel_input(ctx, 0), &rows, &columns, &ctx->outputs[0]);
    image_axis_fini(&rows);
    image_axis_fini(&columns);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

static struct status *check_grads(const struct tensor *grads, const struct tensor *original) {
    if (grads->rank != 4)
        return status_invalid("input_grad must be 4-dimensional%s", TENSOR_SHAPE_TEXT(grads));
    if (original->rank != 4)
        return status_invalid("original_image must be 4-dimensional%s",
                              TENSOR_SHAPE_TEXT(original));
    for (int i = 1; i < 3; i++)
        if (tensor_dim(original, i) < 1 || tensor_dim(original, i) > INT32_MAX ||
            tensor_dim(grads, i) > INT32_MAX)
            return status_invalid("original sizes must be between 0 and max int32");
    if (tensor_dim(grads, 1) < 1 || tensor_dim(grads, 2) < 1)
        return status_invalid("resized sizes must be between 0 and max int32");
    if (tensor_dim(grads, 0) != tensor_dim(original, 0) ||
        tensor_dim(grads, 3) != tensor_dim(original, 3))
        return status_invalid(
            "grads and original_image differ in their batch or channels: %s and %s",
            TENSOR_SHAPE_TEXT(grads), TENSOR_SHAPE_TEXT(original));
    return NULL;
}

static enum kernel_result resize_grad(struct kernel_ctx *ctx) {
    const struct tensor *grads = kernel_input(ctx, 0), *original = kernel_input(ctx, 1);
    struct image_axis rows = {0}, columns = {0};
    KERNEL_TRY(ctx, check_grads(grads, original));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, (enum dtype)original->dtype, tensor_shape(original)));
    struct status *st = make_axes(ctx, original, grads, &rows, &columns);
    if (!st)
        image_resample_grad(ctx->pool, grads, &rows, &columns, &ctx->outputs[0]);
    image_axis_fini(&rows);
    image_axis_fini(&columns);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- ScaleAndTranslate ---- */

struct place_state {
    enum image_filter filter;
    bool antialias;
};

static struct status *place_init(struct kernel_init *init) {
    static const char *const names[] = {"lanczos1", "lanczos3", "lanczos5",  "gaussian",
                                        "box",      "triangle", "keyscubic", "mitchellcubic"};
    struct place_state *state = xcalloc(1, sizeof(*state));
    struct span name = {0};
    init->state = state;
    TRY(node_get_b(init->node, "antialias", &state->antialias));
    TRY(node_get_s(init->node, "kernel_type", &name));
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (name.len == strlen(names[i]) && strncasecmp(name.data, names[i], name.len) == 0) {
            state->filter = (enum image_filter)i;
            return NULL;
        }
    }
    return status_invalid("Unrecognized kernel type: %.*s", (int)MIN(name.len, (size_t)256),
                          name.data);
}

static struct status *pair_of(const struct tensor *t, const char *what, bool is_positive,
                              float ret[2]) {
    if (t->rank != 1 || t->n_elements != 2)
        return status_invalid("%s must be 1-dimensional with two elements, but has shape %s", what,
                              TENSOR_SHAPE_TEXT(t));
    memcpy(ret, tensor_cdata(t), 2 * sizeof(float));
    if (is_positive && !(ret[0] > 0 && ret[1] > 0))
        return status_invalid("%s must be greater than zero", what);
    return NULL;
}

static struct status *placed_axes(const struct kernel_ctx *ctx, const struct tensor *in,
                                  const struct tensor *out, struct image_axis *axes) {
    const struct place_state *state = ctx->instance->state;
    float scale[2], translation[2];
    TRY(pair_of(kernel_input(ctx, 2), "scale", true, scale));
    TRY(pair_of(kernel_input(ctx, 3), "translation", false, translation));
    for (int i = 0; i < 2; i++) {
        struct image_placement placement = {.n_in = tensor_dim(in, i + 1),
                                            .n_out = tensor_dim(out, i + 1),
                                            .scale = scale[i],
                                            .translation = translation[i],
                                            .filter = state->filter,
                                            .antialias = state->antialias};
        TRY(image_axis_placed(&placement, &axes[i]));
    }
    return NULL;
}

/* ScaleAndTranslate: output position (y, x) shows input position ((y - translation) / scale, …).
 *   images               T [batch, height, width, channels]
 *   size                 int32 [2]
 *   scale, translation   float [2]
 *   resized_images       float [batch, size…, channels] */
static enum kernel_result place(struct kernel_ctx *ctx) {
    struct image_axis axes[2] = {{0}, {0}};
    KERNEL_TRY(ctx, resize_output(ctx, DT_FLOAT));
    struct status *st = placed_axes(ctx, kernel_input(ctx, 0), &ctx->outputs[0], axes);
    if (!st)
        image_resample(ctx->pool, kernel_input(ctx, 0), &axes[0], &axes[1], &ctx->outputs[0]);
    image_axis_fini(&axes[0]);
    image_axis_fini(&axes[1]);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

static enum kernel_result place_grad(struct kernel_ctx *ctx) {
    const struct tensor *grads = kernel_input(ctx, 0), *original = kernel_input(ctx, 1);
    struct image_axis axes[2] = {{0}, {0}};
    KERNEL_TRY(ctx, check_grads(grads, original));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_FLOAT, tensor_shape(original)));
    struct status *st = placed_axes(ctx, original, grads, axes);
    if (!st)
        image_resample_grad(ctx->pool, grads, &axes[0], &axes[1], &ctx->outputs[0]);
    image_axis_fini(&axes[0]);
    image_axis_fini(&axes[1]);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

#define RESIZED (DTYPES_REAL & ~(DTYPE_BIT(DT_UINT32) | DTYPE_BIT(DT_UINT64)))

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "ResizeBilinear", {{"T", RESIZED}}, .compute = resize, .init = resize_init,
        .arg = &bilinear},
    {.op = "ResizeBicubic", {{"T", RESIZED}}, .compute = resize, .init = resize_init,
        .arg = &bicubic},
    {.op = "ResizeArea", {{"T", RESIZED}}, .compute = resize, .init = resize_init, .arg = &area},
    {.op = "ResizeBilinearGrad", {{"T", DTYPES_REAL_FLOAT}}, .compute = resize_grad,
        .init = resize_init, .arg = &bilinear},
    {.op = "ResizeBicubicGrad", {{"T", DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE)}},
        .compute = resize_grad, .init = resize_init, .arg = &bicubic},
    {.op = "ScaleAndTranslate", {{"T", RESIZED}}, .compute = place, .init = place_init},
    {.op = "ScaleAndTranslateGrad", {{"T", DTYPE_BIT(DT_FLOAT)}}, .compute = place_grad,
        .init = place_init},
};
// clang-format on

const struct kernel_list image_resize_kernels = {rows, ARRAY_LEN(rows)};
