/* Runs DrawBoundingBoxes (V2) and SampleDistortedBoundingBox (V2). */
#include <math.h>
#include <stdlib.h>

#include "kernels/cpu/media/image.h"
#include "kernels/cpu/random/random_state.h"
#include "kernels/support/philox_words.h"
#include "common/tensor/element.h"

extern const struct kernel_list image_boxes_kernels;

/* ---- DrawBoundingBoxes ---- */

static const float default_colors[10][4] = {
    {1, 1, 0, 1},       {0, 0, 1, 1},    {1, 0, 0, 1},    {0, 1, 0, 1}, {0.5f, 0, 0.5f, 1},
    {0.5f, 0.5f, 0, 1}, {0.5f, 0, 0, 1}, {0, 0, 0.5f, 1}, {0, 1, 1, 1}, {1, 0, 1, 1},
};

struct canvas {
    struct tensor *out;
    struct image_size size;
};

static void paint(const struct canvas *canvas, int64_t image, int64_t y, int64_t x,
                  const float *color) {
    const struct image_size *s = &canvas->size;
    image_store(canvas->out, ((image * s->height + y) * s->width + x) * s->channels, s->channels,
                color);
}

/* A coordinate far outside of the image stays far outside. */
static int64_t pixel_of(float part, int64_t n) {
    float at = part * (float)(n - 1);
    return !(at > -1e15f) ? INT64_MIN / 4 : at > 1e15f ? INT64_MAX / 4 : (int64_t)at;
}

static void draw_box(const struct canvas *canvas, int64_t image, const float *box,
                     const float *color) {
    int64_t height = canvas->size.height, width = canvas->size.width;
    int64_t top = pixel_of(box[0], height), left = pixel_of(box[1], width),
            bottom = pixel_of(box[2], height), right = pixel_of(box[3], width);
    if (top > bottom || left > right || top >= height || bottom < 0 || left >= width || right < 0)
        return;
    int64_t first_y = MAX(top, (int64_t)0), last_y = MIN(bottom, height - 1),
            first_x = MAX(left, (int64_t)0), last_x = MIN(right, width - 1);
    for (int64_t x = first_x; x <= last_x; x++) {
        if (top >= 0)
            paint(canvas, image, top, x, color);
        if (bottom < height)
            paint(canvas, image, bottom, x, color);
    }
    for (int64_t y = first_y; y <= last_y; y++) {
        if (left >= 0)
            paint(canvas, image, y, left, color);
        if (right < width)
            paint(canvas, image, y, right, color);
    }
}

static struct status *draw_check(const struct kernel_ctx *ctx) {
    const struct tensor *images = kernel_input(ctx, 0), *boxes = kernel_input(ctx, 1);
    if (images->rank != 4)
        return status_invalid("The rank of the images should be 4");
    if (boxes->rank != 3)
        return status_invalid("The rank of the boxes tensor should be 3");
    if (tensor_dim(images, 0) != tensor_dim(boxes, 0))
        return status_invalid("The batch sizes should be the same");
    int64_t depth = tensor_dim(images, 3);
    if (depth != 4 && depth != 1 && depth != 3)
        return status_invalid("Channel depth should be either 1 (GRY), 3 (RGB), or 4 (RGBA)");
    if (tensor_dim(boxes, 2) != 4)
        return status_invalid(
            "The size of the third dimension of the box must be 4. Received: %lld",
            (long long)tensor_dim(boxes, 2));
    if (images->n_elements > 0 &&
        (tensor_dim(images, 1) > INT32_MAX || tensor_dim(images, 2) > INT32_MAX))
        return status_invalid("The images are too large");
    if (ctx->instance->n_inputs < 3)
        return NULL;
    const struct tensor *colors = kernel_input(ctx, 2);
    if (colors->rank != 2)
        return status_invalid("colors must be a 2-D matrix, but has shape %s",
                              TENSOR_SHAPE_TEXT(colors));
    if (colors->n_elements > 0 && tensor_dim(colors, 1) < depth)
        return status_invalid(
            "colors must have equal or more channels than the image provided: %lld vs %lld",
            (long long)tensor_dim(colors, 1), (long long)depth);
    return NULL;
}

/* DrawBoundingBoxes, DrawBoundingBoxesV2: draws the outlines of boxes, in colours that take turns.
 *   images  T [batch, height, width, 1, 3 or 4]
 *   boxes   float [batch, n, 4]: y1, x1, y2, x2 as parts of the image
 *   colors  float [n colours, >= channels] (V2; when it is empty: the default ones)
 *   output  T, as images */
static enum kernel_result draw(struct kernel_ctx *ctx) {
    const struct tensor *images = kernel_input(ctx, 0), *boxes = kernel_input(ctx, 1);
    KERNEL_TRY(ctx, draw_check(ctx));
    const struct tensor *colors =
        ctx->instance->n_inputs > 2 && kernel_input(ctx, 2)->n_elements > 0 ? kernel_input(ctx, 2)
                                                                            : NULL;
    static const float white[4] = {1, 1, 1, 1};
    KERNEL_TRY(ctx, tensor_clone(ctx->instance->allocator, images, &ctx->outputs[0]));
    struct canvas canvas = {&ctx->outputs[0], image_size_of(images)};
    if (images->n_elements == 0)
        return KERNEL_DONE;
    const float *box = tensor_cdata(boxes);
    int64_t n = tensor_dim(boxes, 1), n_colors = colors ? tensor_dim(colors, 0) : 10,
            stride = colors ? tensor_dim(colors, 1) : 4;
    const float *table = colors ? tensor_cdata(colors) : default_colors[0];
    bool is_grey = canvas.size.channels == 1;
    for (int64_t image = 0; image < canvas.size.batch; image++)
        for (int64_t i = 0; i < n; i++, box += 4)
            draw_box(&canvas, image, box,
                     is_grey && !colors ? white : table + i % n_colors * stride);
    return KERNEL_DONE;
}

/* ---- SampleDistortedBoundingBox ---- */

struct sample_state {
    struct random_state random; /* the first field, because random_state_reserve reads it there */
    float min_covered, ratio[2], area[2];
    int64_t max_attempts;
    bool uses_image;
};

static struct status *read_range(const struct node *node, const char *name, float ret[2]) {
    const struct attr_value *values = NULL;
    int n = 0;
    TRY(node_get_list(node, name, &values, &n));
    if (n != 2)
        return status_invalid("%s must contain 2 elements", name);
    ret[0] = values[0].f;
    ret[1] = values[1].f;
    if (!(ret[0] > 0) || !(ret[1] > 0))
        return status_invalid("%s must be positive: [%g, %g]", name, (double)ret[0],
                              (double)ret[1]);
    return NULL;
}

static struct status *sample_init(struct kernel_init *init) {
    struct sample_state *state = init->state = xcalloc(1, sizeof(*state));
    if (node_attr(init->node, "seed2"))
        TRY(random_state_seed(&state->random, init->node));
    if (node_attr(init->node, "min_object_covered")) {
        TRY(node_get_f(init->node, "min_object_covered", &state->min_covered));
        if (!(state->min_covered >= 0 && state->min_covered <= 1))
            return status_invalid("Min object covered must be in [0, 1]: %g",
                                  (double)state->min_covered);
    }
    TRY(node_get_b(init->node, "use_image_if_no_bounding_boxes", &state->uses_image));
    TRY(read_range(init->node, "aspect_ratio_range", state->ratio));
    TRY(read_range(init->node, "area_range", state->area));
    if (state->area[0] > 1 || state->area[1] > 1)
        return status_invalid("area_range must be less then or equal to 1.0: [%g, %g]",
                              (double)state->area[0], (double)state->area[1]);
    TRY(node_get_i(init->node, "max_attempts", &state->max_attempts));
    if (state->max_attempts <= 0)
        return status_invalid("max_attempts must be positive: %lld",
                              (long long)state->max_attempts);
    return NULL;
}

static int64_t next_below(struct philox_words *words, int64_t n) {
    return philox_words_below_u32(words, (uint32_t)n);
}

struct rect {
    int32_t x0, y0, x1, y1;
};

static float rect_area(struct rect r) {
    return r.x1 > r.x0 && r.y1 > r.y0 ? (float)((int64_t)(r.x1 - r.x0) * (r.y1 - r.y0)) : 0;
}

static bool random_crop(const struct sample_state *state, int32_t image_width, int32_t image_height,
                        float ratio, struct philox_words *words, struct rect *ret) {
    if (state->area[0] > state->area[1] || ratio <= 0 || image_width == 0 || image_height == 0)
        return false;
    float min_area = state->area[0] * (float)image_width * (float)image_height,
          max_area = state->area[1] * (float)image_width * (float)image_height;
    int64_t height = lrintf(sqrtf(min_area / ratio)), max_height = lrintf(sqrtf(max_area / ratio));
    if (lrintf((float)max_height * ratio) > image_width) {
        max_height = (int64_t)((image_width + 0.5 - 0.0000001) / ratio);
        if (lrintf((float)max_height * ratio) > image_width)
            max_height--;
    }
    max_height = MIN(max_height, (int64_t)image_height);
    height = MIN(height, max_height);
    if (height < max_height)
        height += next_below(words, max_height - height + 1);
    int64_t width = lrintf((float)height * ratio);
    float area = (float)(width * height);
    if (area < min_area) { /* rounding may have made the area smaller */
        height++;
        width = lrintf((float)height * ratio);
        area = (float)(width * height);
    }
    if (area > max_area) {
        height--;
        width = lrintf((float)height * ratio);
        area = (float)(width * height);
    }
    if (area < min_area || area > max_area || width > image_width || height > image_height ||
        width <= 0 || height <= 0)
        return false;
    int64_t y = height < image_height ? next_below(words, image_height - height) : 0;
    int64_t x = width < image_width ? next_below(words, image_width - width) : 0;
    *ret = (struct rect){(int32_t)x, (int32_t)y, (int32_t)(x + width), (int32_t)(y + height)};
    return true;
}

/* Does the crop cover enough of any box? Boxes without a pixel do not count. */
static bool covers_any(struct rect crop, const struct rect *boxes, int64_t n, float min_covered) {
    if (rect_area(crop) < 1)
        return false;
    for (int64_t i = 0; i < n; i++) {
        float area = rect_area(boxes[i]);
        struct rect both = {MAX(crop.x0, boxes[i].x0), MAX(crop.y0, boxes[i].y0),
                            MIN(crop.x1, boxes[i].x1), MIN(crop.y1, boxes[i].y1)};
        if (area >= 1 && rect_area(both) / area >= min_covered)
            return true;
    }
    return false;
}

/* In little-endian memory the low bytes of a wider integer are the narrow one. */
static struct status *put_integers(struct kernel_ctx *ctx, int output, enum dtype dtype,
                                   const int64_t values[3]) {
    int64_t n = 3;
    TRY(kernel_alloc(ctx, output, dtype, (struct shape){1, &n}));
    char *to = tensor_data(&ctx->outputs[output]);
    for (int i = 0; i < 3; i++)
        memcpy(to + (size_t)i * dtype_size(dtype), &values[i], dtype_size(dtype));
    return NULL;
}

/* Reads the boxes in pixels, malloc'd. When there are none, and the attr says so, the image is the
 * one box. */
static struct status *read_boxes(const struct kernel_ctx *ctx, int32_t width, int32_t height,
                                 struct rect **ret, int64_t *ret_n) {
    const struct sample_state *state = ctx->instance->state;
    const struct tensor *boxes = kernel_input(ctx, 1);
    const float *v = tensor_cdata(boxes);
    *ret_n = boxes->n_elements / 4;
    if (boxes->n_elements == 0 && !state->uses_image)
        return status_invalid("No bounding boxes provided as input. One must enable "
                              "use_image_if_no_bounding_boxes if you wish to not provide "
                              "any bounding boxes.");
    if (boxes->n_elements > 0 && (boxes->rank != 3 || tensor_dim(boxes, 2) != 4))
        return status_invalid("input_boxes must be 3-dimensional [batch, num_boxes, coords]: %s",
                              TENSOR_SHAPE_TEXT(boxes));
    for (int64_t i = 0; i < boxes->n_elements; i++)
        if (!(v[i] >= 0 && v[i] <= 1))
            return status_invalid("All bounding box coordinates must be in [0.0, 1.0]: %g",
                                  (double)v[i]);
    *ret = xmalloc((size_t)(*ret_n + 1) * sizeof(**ret));
    for (int64_t i = 0; i < *ret_n; i++, v += 4)
        (*ret)[i] = (struct rect){
            (int32_t)MIN(v[1] * (float)width, 2e9f), (int32_t)MIN(v[0] * (float)height, 2e9f),
            (int32_t)MIN(v[3] * (float)width, 2e9f), (int32_t)MIN(v[2] * (float)height, 2e9f)};
    if (*ret_n == 0)
        (*ret)[(*ret_n)++] = (struct rect){0, 0, width, height};
    return NULL;
}

static struct status *sample_check(const struct kernel_ctx *ctx, float *min_covered) {
    const struct tensor *size = kernel_input(ctx, 0);
    if (size->rank != 1)
        return status_invalid("image_size must be 1-dimensional: %s", TENSOR_SHAPE_TEXT(size));
    if (size->n_elements != 3)
        return status_invalid("image_size must contain 3 elements: %s", TENSOR_SHAPE_TEXT(size));
    int64_t height = tensor_int_at(size, 0), width = tensor_int_at(size, 1);
    if (height < 0 || height > INT32_MAX)
        return status_invalid("Image height cannot be negative or too large: %lld",
                              (long long)height);
    if (width < 0 || width > INT32_MAX)
        return status_invalid("Image width cannot be negative or too large: %lld",
                              (long long)width);
    if (ctx->instance->n_inputs < 3)
        return NULL;
    const struct tensor *covered = kernel_input(ctx, 2);
    if (covered->rank != 0)
        return status_invalid("min_object_covered must be 0-D, got shape %s",
                              TENSOR_SHAPE_TEXT(covered));
    *min_covered = *(const float *)tensor_cdata(covered);
    return NULL;
}

/* SampleDistortedBoundingBox (V2), StatelessSampleDistortedBoundingBox: chooses a random part of an
 * image that covers enough of a box, with TensorFlow's numbers for the same seeds.
 *   image_size           T [3]
 *   bounding_boxes       float [1, n, 4]
 *   min_object_covered   float [] (V2)
 *   seed                 [2] (stateless)
 *   begin, size          T [3], for Slice
 *   bboxes               float [1, 1, 4] */
static enum kernel_result sample(struct kernel_ctx *ctx) {
    const struct sample_state *state = ctx->instance->state;
    const struct tensor *size = kernel_input(ctx, 0);
    float min_covered = state->min_covered;
    struct rect *boxes = NULL;
    int64_t n = 0;
    KERNEL_TRY(ctx, sample_check(ctx, &min_covered));
    int32_t height = (int32_t)tensor_int_at(size, 0), width = (int32_t)tensor_int_at(size, 1);
    struct philox_words words = {.next = {0}};
    if (ctx->instance->n_inputs > 3)
        KERNEL_TRY(ctx, random_from_seed(kernel_input(ctx, 3), &words.next));
    KERNEL_TRY(ctx, read_boxes(ctx, width, height, &boxes, &n));
    if (ctx->instance->n_inputs <= 3)
        words.next = random_state_reserve(ctx, (uint64_t)state->max_attempts);
    struct rect crop, whole = {0, 0, width, height};
    bool is_found = false;
    for (int64_t i = 0; i < state->max_attempts && !is_found; i++) {
        float ratio =
            philox_words_f32(&words) * (state->ratio[1] - state->ratio[0]) + state->ratio[0];
        is_found = random_crop(state, width, height, ratio, &words, &crop) &&
                   covers_any(crop, boxes, n, min_covered);
    }
    free(boxes);
    crop = is_found ? crop : whole;
    enum dtype dtype = (enum dtype)size->dtype;
    KERNEL_TRY(ctx, put_integers(ctx, 0, dtype, (const int64_t[]){crop.y0, crop.x0, 0}));
    KERNEL_TRY(ctx, put_integers(ctx, 1, dtype,
                                 (const int64_t[]){crop.y1 - crop.y0, crop.x1 - crop.x0, -1}));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 2, DT_FLOAT, (struct shape){3, (const int64_t[]){1, 1, 4}}));
    float box[4] = {(float)crop.y0 / (float)height, (float)crop.x0 / (float)width,
                    (float)crop.y1 / (float)height, (float)crop.x1 / (float)width};
    memcpy(tensor_data(&ctx->outputs[2]), box, sizeof(box));
    return KERNEL_DONE;
}

#define SIZES (DTYPES_SIGNED_INT | DTYPE_BIT(DT_UINT8))
#define PIXELS (DTYPE_BIT(DT_HALF) | DTYPE_BIT(DT_FLOAT))

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "DrawBoundingBoxes", {{"T", PIXELS}}, .compute = draw},
    {.op = "DrawBoundingBoxesV2", {{"T", PIXELS}}, .compute = draw},
    {.op = "SampleDistortedBoundingBox", {{"T", SIZES}}, .compute = sample, .init = sample_init,
        .flags = KERNEL_STATEFUL | KERNEL_SESSION_STATE},
    {.op = "SampleDistortedBoundingBoxV2", {{"T", SIZES}}, .compute = sample, .init = sample_init,
        .flags = KERNEL_STATEFUL | KERNEL_SESSION_STATE},
    {.op = "StatelessSampleDistortedBoundingBox", {{"T", SIZES}}, .compute = sample,
        .init = sample_init},
};
// clang-format on

const struct kernel_list image_boxes_kernels = {rows, ARRAY_LEN(rows)};
