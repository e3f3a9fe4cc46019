/* Derivatives of the normalisation family. */
#include "common/gradients/gradient.h"

// clang-format off
static const struct gradient_row rows[] = {
    LATER_GRADIENT("FusedBatchNorm"),
    LATER_GRADIENT("FusedBatchNormV2"),
    LATER_GRADIENT("FusedBatchNormV3"),
    LATER_GRADIENT("FusedBatchNormGrad"),
    LATER_GRADIENT("FusedBatchNormGradV2"),
    LATER_GRADIENT("FusedBatchNormGradV3"),
    LATER_GRADIENT("BatchNormWithGlobalNormalization"),
    NO_GRADIENT("BatchNormWithGlobalNormalizationGrad"), /* TensorFlow has none either */
    LATER_GRADIENT("LRN"),
    NO_GRADIENT("LRNGrad"),                              /* TensorFlow has none either */
};
// clang-format on

const struct gradient_list norm_gradients = {rows, ARRAY_LEN(rows)};
