/* Differentiates resizing and cropping: ops of their own compute the gradients. */
#include "common/gradients/build.h"

static void resize_bilinear_grad(struct gradient_ctx *g) {
    SET(0, LIKE("ResizeBilinearGrad", DY(0), IN(0)));
}
static void resize_bicubic_grad(struct gradient_ctx *g) {
    SET(0, LIKE("ResizeBicubicGrad", DY(0), IN(0)));
}

static void resize_nearest_neighbor_grad(struct gradient_ctx *g) {
    SET(0,
        LIKE("ResizeNearestNeighborGrad", DY(0), gradient_slice(g, SHAPE(IN(0)), I32(1), I32(3))));
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

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("ResizeBilinear", resize_bilinear_grad),
    GRADIENT("ResizeBicubic", resize_bicubic_grad),
    GRADIENT("ResizeNearestNeighbor", resize_nearest_neighbor_grad),
    GRADIENT("ScaleAndTranslate", scale_and_translate_grad),
    GRADIENT("CropAndResize", crop_and_resize_grad),
    LATER_GRADIENT("RGBToHSV"),
    LATER_GRADIENT("ImageProjectiveTransformV2"),
    LATER_GRADIENT("ImageProjectiveTransformV3"),
    NO_GRADIENT("ResizeBilinearGrad"),
    NO_GRADIENT("ResizeNearestNeighborGrad"),
    NO_GRADIENT("ResizeBicubicGrad"),
    NO_GRADIENT("ResizeArea"),
    NO_GRADIENT("ScaleAndTranslateGrad"),
    NO_GRADIENT("CropAndResizeGradImage"),
    NO_GRADIENT("CropAndResizeGradBoxes"),
    NO_GRADIENT("ExtractGlimpse"),
    NO_GRADIENT("ExtractGlimpseV2"),
    NO_GRADIENT("HSVToRGB"),
    NO_GRADIENT("AdjustContrastv2"),
    NO_GRADIENT("AdjustHue"),
    NO_GRADIENT("AdjustSaturation"),
    NO_GRADIENT("DrawBoundingBoxes"),
    NO_GRADIENT("DrawBoundingBoxesV2"),
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
