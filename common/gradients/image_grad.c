/* Derivatives of the image family. */
#include "common/gradients/gradient.h"

extern const struct gradient_list image_gradients;

// clang-format off
static const struct gradient_row rows[] = {
    LATER_GRADIENT("ResizeBilinear"),
    LATER_GRADIENT("ResizeNearestNeighbor"),
    LATER_GRADIENT("ResizeBicubic"),
    LATER_GRADIENT("ScaleAndTranslate"),
    LATER_GRADIENT("CropAndResize"),
    LATER_GRADIENT("RGBToHSV"),
    LATER_GRADIENT("ImageProjectiveTransformV2"),
    LATER_GRADIENT("ImageProjectiveTransformV3"),
    /* TensorFlow has none either. */
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
};
// clang-format on

const struct gradient_list image_gradients = {rows, ARRAY_LEN(rows)};
