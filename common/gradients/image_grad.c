/* Differentiates resizing, cropping and projections, where ops of their own compute the gradients,
 * and conversions of colours. */
#include "common/gradients/build.h"

static void resize_bilinear_grad(struct gradient_ctx *g) {
    SET(0, LIKE("ResizeBilinearGrad", DY(0), IN(0)));
}
/* TensorFlow has a gradient for these types only. */
static void resize_bicubic_grad(struct gradient_ctx *g) {
    enum dtype dtype = gradient_dtype(IN(0));
    if (dtype == DT_FLOAT || dtype == DT_DOUBLE)
        SET(0, LIKE("ResizeBicubicGrad", DY(0), IN(0)));
}

static struct node_input image_size(struct gradient_ctx *g) {
    return gradient_slice(g, SHAPE(IN(0)), I32(1), I32(3));
}

static void resize_nearest_neighbor_grad(struct gradient_ctx *g) {
    SET(0, LIKE("ResizeNearestNeighborGrad", DY(0), image_size(g)));
}

static void scale_and_translate_grad(struct gradient_ctx *g) {
    SET(0, LIKE("ScaleAndTranslateGrad", DY(0), IN(0), IN(2), IN(3)));
}

/* The boxes have a gradient for the bilinear method only; TensorFlow returns it for both
 * methods. */
static void crop_and_resize_grad(struct gradient_ctx *g) {
    enum dtype dtype = gradient_dtype(IN(0));
    if (dtype_in(dtype, DTYPES_FLOAT))
        SET(0, LIKE_WITH("CropAndResizeGradImage", ATTRS(ATTR_T("T", dtype)), DY(0), IN(1), IN(2),
                         SHAPE(IN(0))));
    SET(1, OP("CropAndResizeGradBoxes", DY(0), IN(0), IN(1), IN(2)));
}

/* ---- colours ---- */

/* The channel after each one, in a circle: of red, green and blue. */
static struct node_input next_channel(struct gradient_ctx *g, struct node_input pixels) {
    return OP("GatherV2", pixels, I32S(1, 2, 0), I32(-1));
}

static struct node_input channel(struct gradient_ctx *g, struct node_input pixels, int32_t i) {
    return OP("GatherV2", pixels, I32S(i), I32(-1));
}

/* 1 for the chosen channel of each pixel, and 0 for the others. */
static struct node_input one_hot(struct gradient_ctx *g, struct node_input index) {
    return OP("OneHot", index, I32(3), NUM(1), NUM(0));
}

/* x / y², or 0 where y is 0. A small half has the square 0, so y² is never computed. */
static struct node_input divided_twice(struct gradient_ctx *g, struct node_input x,
                                       struct node_input y) {
    return OP("DivNoNan", OP("DivNoNan", x, y), y);
}

/* With the greatest channel m, the smallest one, d = m - smallest, and the channels n after m and p
 * after n: value = m, saturation = d / m, and 6 hue = (n - p) / d + a constant. Of equal channels
 * the first is the greatest and the last is the smallest.
 *   by hue          where m > 0: by m and the smallest (p - n) / d², with n and p as seen from that
 *                   channel; by the other one 1 / d where it is n and -1 / d where it is p
 *   by saturation   where the channel > 0: by m smallest / m², by the smallest -1 / m */
static void rgb_to_hsv_grad(struct gradient_ctx *g) {
    struct node_input x = IN(0), dy = DY(0), zero = NUM(0), last = I32(-1);
    struct node_input after = next_channel(g, x), before = next_channel(g, after);
    struct node_input great = one_hot(g, OP("ArgMax", x, last));
    struct node_input from_last = OP("ArgMin", OP("ReverseV2", x, I32S(-1)), last);
    struct node_input small = one_hot(g, SUB(gradient_cast(g, I32(2), DT_INT64), from_last));
    struct node_input m = SUM_KEPT(MUL(great, x), last), least = SUM_KEPT(MUL(small, x), last);
    struct node_input d = SUB(m, least), great_after = next_channel(g, great);
    struct node_input is_end = OP("Greater", ADD(great, small), zero);
    struct node_input of_ends = divided_twice(g, SUB(before, after), d);
    struct node_input of_middle = OP("DivNoNan", SUB(next_channel(g, great_after), great_after), d);
    struct node_input hue =
        MUL(CAST(OP("Greater", m, zero), x), MUL(NUM(1.0 / 6), WHERE(is_end, of_ends, of_middle)));
    struct node_input saturation =
        SUB(divided_twice(g, MUL(great, least), m), OP("DivNoNan", small, m));
    saturation = MUL(CAST(OP("Greater", x, zero), x), saturation);
    SET(0, ADD(ADD(MUL(channel(g, dy, 0), hue), MUL(channel(g, dy, 1), saturation)),
               MUL(channel(g, dy, 2), great)));
}

/* ---- projections ---- */

/* The inverse of each transform, whose last number is 1: TensorFlow projects the gradient back. */
static struct node_input inverse_transforms(struct gradient_ctx *g, struct node_input transforms) {
    struct node_input rows = RESHAPE(transforms, I32S(-1, 8)), all = I32S(0, 0);
    struct node_input ones = OP("OnesLike", OP("Slice", rows, all, I32S(-1, 1)));
    struct node_input matrices = RESHAPE(OP("ConcatV2", rows, ones, I32(1)), I32S(-1, 3, 3));
    struct node_input flat = RESHAPE(OP("MatrixInverse", matrices), I32S(-1, 9));
    struct node_input by_last = DIV(flat, OP("Slice", flat, I32S(0, 8), I32S(-1, 1)));
    return OP("Slice", by_last, all, I32S(-1, 8));
}

static void projective_transform_v2_grad(struct gradient_ctx *g) {
    SET(0, LIKE("ImageProjectiveTransformV2", DY(0), inverse_transforms(g, IN(1)), image_size(g)));
}

static void projective_transform_v3_grad(struct gradient_ctx *g) {
    SET(0, LIKE("ImageProjectiveTransformV3", DY(0), inverse_transforms(g, IN(1)), image_size(g),
                gradient_number(g, IN(1), 0)));
}

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("ResizeBilinear", resize_bilinear_grad),
    GRADIENT("ResizeBicubic", resize_bicubic_grad),
    GRADIENT("ResizeNearestNeighbor", resize_nearest_neighbor_grad),
    GRADIENT("ScaleAndTranslate", scale_and_translate_grad),
    GRADIENT("CropAndResize", crop_and_resize_grad),
    GRADIENT("RGBToHSV", rgb_to_hsv_grad),
    GRADIENT("ImageProjectiveTransformV2", projective_transform_v2_grad),
    GRADIENT("ImageProjectiveTransformV3", projective_transform_v3_grad),
    NO_GRADIENT("ResizeBilinearGrad"),
    UNDEFINED_GRADIENT("ResizeNearestNeighborGrad"),
    UNDEFINED_GRADIENT("ResizeBicubicGrad"),
    UNDEFINED_GRADIENT("ResizeArea"),
    UNDEFINED_GRADIENT("ScaleAndTranslateGrad"),
    UNDEFINED_GRADIENT("CropAndResizeGradImage"),
    UNDEFINED_GRADIENT("CropAndResizeGradBoxes"),
    NO_GRADIENT("ExtractGlimpse"),
    UNDEFINED_GRADIENT("ExtractGlimpseV2"),
    NO_GRADIENT("HSVToRGB"),
    UNDEFINED_GRADIENT("AdjustContrastv2"),
    UNDEFINED_GRADIENT("AdjustHue"),
    UNDEFINED_GRADIENT("AdjustSaturation"),
    NO_GRADIENT("DrawBoundingBoxes"),
    UNDEFINED_GRADIENT("DrawBoundingBoxesV2"),
    NO_GRADIENT("NonMaxSuppression"),
    NO_GRADIENT("NonMaxSuppressionV2"),
    NO_GRADIENT("NonMaxSuppressionV3"),
    NO_GRADIENT("NonMaxSuppressionV4"),
    NO_GRADIENT("NonMaxSuppressionV5"),
    NO_GRADIENT("NonMaxSuppressionWithOverlaps"),
    NO_GRADIENT("CombinedNonMaxSuppression"),
    NO_GRADIENT("SampleDistortedBoundingBox"),
    NO_GRADIENT("SampleDistortedBoundingBoxV2"),
    NO_GRADIENT("StatelessSampleDistortedBoundingBox"),
};
// clang-format on

const struct gradient_list image_gradients = {rows, ARRAY_LEN(rows)};
