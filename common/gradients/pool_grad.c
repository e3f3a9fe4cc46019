/* Derivatives of the pooling family. */
#include "common/gradients/gradient.h"

// clang-format off
static const struct gradient_row rows[] = {
    LATER_GRADIENT("MaxPool"),
    LATER_GRADIENT("MaxPoolV2"),
    LATER_GRADIENT("MaxPoolGrad"),
    LATER_GRADIENT("MaxPoolGradV2"),
    LATER_GRADIENT("MaxPoolGradGrad"),
    NO_GRADIENT("MaxPoolGradGradV2"),      /* TensorFlow has none either */
    LATER_GRADIENT("MaxPoolWithArgmax"),
    NO_GRADIENT("MaxPoolGradWithArgmax"),  /* TensorFlow has none either */
    LATER_GRADIENT("AvgPool"),
    LATER_GRADIENT("AvgPoolGrad"),
    LATER_GRADIENT("FractionalMaxPool"),
    LATER_GRADIENT("FractionalAvgPool"),
    NO_GRADIENT("FractionalMaxPoolGrad"),  /* TensorFlow has none either */
    NO_GRADIENT("FractionalAvgPoolGrad"),
    LATER_GRADIENT("MaxPool3D"),
    LATER_GRADIENT("MaxPool3DGrad"),
    LATER_GRADIENT("MaxPool3DGradGrad"),
    LATER_GRADIENT("AvgPool3D"),
    LATER_GRADIENT("AvgPool3DGrad"),
};
// clang-format on

const struct gradient_list pool_gradients = {rows, ARRAY_LEN(rows)};
