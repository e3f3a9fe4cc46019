/* Lists the image family: batches of [batch, height, width, channels], and boxes in them. */
#include "common/ops/op_def.h"

/* ---- helpers ---- */

static int64_t dim_of(struct shape shape, int i) { return shape.rank > i ? shape.dims[i] : -1; }

/* [batch, two sizes, channels]: the sizes are in an int32 vector input where it is known; -1 is
 * unknown, too. */
static struct status *resized(struct shape_inference *ctx, int64_t batch, int size_input,
                              int64_t channels) {
    struct shape unused;
    const struct tensor *size = ctx->in_values[size_input];
    TRY(shape_require_rank(ctx, size_input, 1, &unused));
    int64_t n = dim_of(ctx->in[size_input], 0);
    TRY(shape_merge_dims(n, 2, &n));
    int64_t dims[4] = {batch, -1, -1, channels};
    for (int i = 0; i < 2 && size && size->n_elements == 2; i++) {
        dims[i + 1] = tensor_index_at(size, i);
        if (dims[i + 1] < -1)
            return status_invalid(
                "Dimension size, given by scalar input %d must be non-negative but is %lld",
                size_input, (long long)dims[i + 1]);
    }
    ctx->out[0] = shape_make(ctx, 4, dims);
    return NULL;
}

struct status *shape_resize_images(struct shape_inference *ctx) {
    struct shape images;
    TRY(shape_require_rank(ctx, 0, 4, &images));
    return resized(ctx, dim_of(images, 0), 1, dim_of(images, 3));
}

static struct status *shape_resize_grad(struct shape_inference *ctx) {
    ctx->out[0] = ctx->in[1];
    return NULL;
}

static struct status *shape_crop(struct shape_inference *ctx) {
    struct shape image, boxes, index;
    int64_t n = -1, four = -1;
    TRY(shape_require_rank(ctx, 0, 4, &image));
    TRY(shape_require_rank(ctx, 1, 2, &boxes));
    TRY(shape_require_rank(ctx, 2, 1, &index));
    TRY(shape_merge_dims(dim_of(boxes, 0), dim_of(index, 0), &n));
    TRY(shape_merge_dims(dim_of(boxes, 1), 4, &four));
    return resized(ctx, n, 3, dim_of(image, 3));
}

static struct status *shape_crop_grad_image(struct shape_inference *ctx) {
    struct shape shape = SHAPE_UNKNOWN, four = shape_unknown_of_rank(ctx, 4);
    TRY(shape_from_input(ctx, 3, &shape));
    return shape_merge(ctx, shape, four, &ctx->out[0]);
}

static struct status *shape_crop_grad_boxes(struct shape_inference *ctx) {
    ctx->out[0] = ctx->in[2];
    return NULL;
}

static struct status *shape_glimpse(struct shape_inference *ctx) {
    struct shape input, offsets;
    int64_t batch = -1, two = -1;
    TRY(shape_require_rank(ctx, 0, 4, &input));
    TRY(shape_require_rank(ctx, 2, 2, &offsets));
    TRY(shape_merge_dims(dim_of(input, 0), dim_of(offsets, 0), &batch));
    TRY(shape_merge_dims(dim_of(offsets, 1), 2, &two));
    return resized(ctx, batch, 1, dim_of(input, 3));
}

static struct status *shape_color(struct shape_inference *ctx) {
    TRY(shape_require_rank_at_least(ctx, 0, 1));
    struct shape images = ctx->in[0];
    if (images.rank > 0) {
        int64_t three = images.dims[images.rank - 1];
        TRY(shape_merge_dims(three, 3, &three));
        int64_t dims[SHAPE_MAX_RANK];
        memcpy(dims, images.dims, (size_t)images.rank * sizeof(*dims));
        dims[images.rank - 1] = 3;
        images = shape_make(ctx, images.rank, dims);
    }
    ctx->out[0] = images;
    return NULL;
}

static struct status *shape_as_it_is(struct shape_inference *ctx) {
    TRY(shape_require_rank_at_least(ctx, 0, 3));
    ctx->out[0] = ctx->in[0];
    return NULL;
}

static struct status *shape_draw(struct shape_inference *ctx) {
    struct shape unused;
    TRY(shape_require_rank(ctx, 1, 3, &unused));
    return shape_require_rank(ctx, 0, 4, &ctx->out[0]);
}

/* boxes and scores, then scalars */
static struct status *check_suppression(struct shape_inference *ctx, bool is_matrix) {
    struct shape boxes, scores, unused;
    int64_t n = -1;
    TRY(shape_require_rank(ctx, 0, 2, &boxes));
    TRY(shape_require_rank(ctx, 1, 1, &scores));
    for (int i = 2; i < ctx->node->n_data; i++)
        TRY(shape_require_rank(ctx, i, 0, &unused));
    TRY(shape_merge_dims(dim_of(boxes, 0), dim_of(scores, 0), &n));
    return is_matrix ? NULL : shape_merge_dims(dim_of(boxes, 1), 4, &n);
}

static struct status *shape_suppress(struct shape_inference *ctx) {
    TRY(check_suppression(ctx, node_is_op(ctx->node, "NonMaxSuppressionWithOverlaps")));
    ctx->out[0] = shape_unknown_of_rank(ctx, 1);
    return NULL;
}

/* V4 and V5: the length of the padded result. */
static struct status *shape_suppress_padded(struct shape_inference *ctx) {
    bool pads = false;
    int64_t n = -1;
    TRY(check_suppression(ctx, false));
    TRY(node_get_b(ctx->node, "pad_to_max_output_size", &pads));
    if (pads && ctx->in_values[2])
        n = tensor_index_at(ctx->in_values[2], 0);
    if (n < -1)
        return status_invalid("max_output_size must be non-negative, but is %lld", (long long)n);
    for (int i = 0; i < ctx->node->n_outputs - 1; i++)
        ctx->out[i] = shape_make(ctx, 1, &n);
    ctx->out[ctx->node->n_outputs - 1] = SHAPE_SCALAR;
    return NULL;
}

static struct status *shape_combined(struct shape_inference *ctx) {
    struct shape boxes, scores, unused;
    int64_t ignored = -1;
    bool pads = false;
    TRY(shape_require_rank(ctx, 0, 4, &boxes));
    TRY(shape_require_rank(ctx, 1, 3, &scores));
    for (int i = 2; i < 6; i++)
        TRY(shape_require_rank(ctx, i, 0, &unused));
    TRY(shape_merge_dims(dim_of(boxes, 0), dim_of(scores, 0), &ignored));
    TRY(shape_merge_dims(dim_of(boxes, 1), dim_of(scores, 1), &ignored));
    TRY(shape_merge_dims(dim_of(boxes, 3), 4, &ignored));
    TRY(node_get_b(ctx->node, "pad_per_class", &pads));
    const struct tensor *total = ctx->in_values[3], *per_class = ctx->in_values[2];
    int64_t n = total && total->n_elements == 1 ? tensor_index_at(total, 0) : -1, all = -1,
            n_classes = dim_of(scores, 2);
    if (n == 0 || n < -1)
        return status_invalid("max_total_size should be > 0 ");
    if (pads) {
        bool is_known = n > 0 && per_class && per_class->n_elements == 1 && n_classes >= 0;
        if (is_known && mul_overflows_i64(tensor_index_at(per_class, 0), n_classes, &all))
            all = n;
        n = is_known && all >= 0 ? MIN(n, all) : -1;
    }
    int64_t dims[3] = {dim_of(boxes, 0), n, 4};
    ctx->out[0] = shape_make(ctx, 3, dims);
    ctx->out[1] = ctx->out[2] = shape_make(ctx, 2, dims);
    ctx->out[3] = shape_make(ctx, 1, dims);
    return NULL;
}

static struct status *shape_sample(struct shape_inference *ctx) {
    struct shape size, boxes;
    int64_t three = -1, four = -1;
    TRY(shape_require_rank(ctx, 0, 1, &size));
    TRY(shape_require_rank(ctx, 1, 3, &boxes));
    TRY(shape_merge_dims(dim_of(size, 0), 3, &three));
    TRY(shape_merge_dims(dim_of(boxes, 2), 4, &four));
    ctx->out[0] = ctx->out[1] = shape_make(ctx, 1, (const int64_t[]){3});
    ctx->out[2] = shape_make(ctx, 3, (const int64_t[]){1, 1, 4});
    return NULL;
}

static struct status *shape_transform(struct shape_inference *ctx) {
    struct shape images;
    TRY(shape_require_rank(ctx, 0, 4, &images));
    return resized(ctx, dim_of(images, 0), 2, dim_of(images, 3));
}

// clang-format off
static const struct op_def rows[] = {
    {"ResizeBilinear", "images at another size, by linear interpolation", shape_resize_images},
    {"ResizeBilinearGrad", "the derivative of ResizeBilinear", shape_resize_grad},
    {"ResizeNearestNeighbor", "images at another size, the nearest pixel each",
     shape_resize_images},
    {"ResizeNearestNeighborGrad", "the derivative of ResizeNearestNeighbor", shape_resize_images},
    {"ResizeBicubic", "images at another size, by cubic interpolation", shape_resize_images},
    {"ResizeBicubicGrad", "the derivative of ResizeBicubic", shape_resize_grad},
    {"ResizeArea", "images at another size, means over what each pixel covers",
     shape_resize_images},
    {"ScaleAndTranslate", "images scaled and moved, by one of eight filters", shape_resize_images},
    {"ScaleAndTranslateGrad", "the derivative of ScaleAndTranslate", shape_resize_grad},
    {"CropAndResize", "regions of images, each at the same size", shape_crop},
    {"CropAndResizeGradImage", "the derivative of CropAndResize by its images",
     shape_crop_grad_image},
    {"CropAndResizeGradBoxes", "the derivative of CropAndResize by its boxes",
     shape_crop_grad_boxes},
    {"ExtractGlimpse", "a window of each image, offsets from its centre or corner", shape_glimpse},
    {"ExtractGlimpseV2", "a window of each image, offsets from its centre or corner",
     shape_glimpse},
    {"RGBToHSV", "hue, saturation and value of red, green and blue", shape_color},
    {"HSVToRGB", "red, green and blue of hue, saturation and value", shape_color},
    {"AdjustContrastv2", "each channel's distance from its mean, scaled", shape_as_it_is},
    {"AdjustHue", "colours turned", shape_as_it_is},
    {"AdjustSaturation", "colours paler or stronger", shape_as_it_is},
    {"DrawBoundingBoxes", "images with the outlines of boxes", shape_draw},
    {"DrawBoundingBoxesV2", "images with the outlines of boxes, in given colours", shape_as_it_is},
    {"NonMaxSuppression", "the best of overlapping boxes", shape_suppress},
    {"NonMaxSuppressionV2", "the best of overlapping boxes", shape_suppress},
    {"NonMaxSuppressionV3", "the best of overlapping boxes, from a score on", shape_suppress},
    {"NonMaxSuppressionV4", "the best of overlapping boxes, padded", shape_suppress_padded},
    {"NonMaxSuppressionV5", "the best of overlapping boxes, whose scores may fade",
     shape_suppress_padded},
    {"NonMaxSuppressionWithOverlaps", "the best of things whose overlaps are given",
     shape_suppress},
    {"CombinedNonMaxSuppression", "the best of overlapping boxes, of each class, for each image",
     shape_combined},
    {"SampleDistortedBoundingBox", "a random part of an image that holds enough of a box",
     shape_sample},
    {"SampleDistortedBoundingBoxV2", "a random part of an image that holds enough of a box",
     shape_sample},
    {"StatelessSampleDistortedBoundingBox",
     "a random part of an image that holds enough of a box, by a seed", shape_sample},
    {"ImageProjectiveTransformV2", "images seen through a projective map", shape_transform},
    {"ImageProjectiveTransformV3",
     "images seen through a projective map, with a value for what lies outside", shape_transform},
};
// clang-format on

const struct op_def_list image_ops = {rows, ARRAY_LEN(rows)};
