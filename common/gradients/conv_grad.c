/* Derivatives of the conv family. */
#include "common/gradients/gradient.h"

// clang-format off
static const struct gradient_row rows[] = {
    LATER_GRADIENT("Conv2D"),
    LATER_GRADIENT("Conv2DBackpropInput"),
    LATER_GRADIENT("Conv2DBackpropFilter"),
    LATER_GRADIENT("Conv3D"),
    NO_GRADIENT("Conv3DBackpropInput"),    /* TensorFlow has none either: its later forms do */
    LATER_GRADIENT("Conv3DBackpropInputV2"),
    NO_GRADIENT("Conv3DBackpropFilter"),
    LATER_GRADIENT("Conv3DBackpropFilterV2"),
    NO_GRADIENT("Conv"),                   /* TensorFlow has none either */
    LATER_GRADIENT("DepthwiseConv2dNative"),
    LATER_GRADIENT("DepthwiseConv2dNativeBackpropInput"),
    LATER_GRADIENT("DepthwiseConv2dNativeBackpropFilter"),
    LATER_GRADIENT("Dilation2D"),
    NO_GRADIENT("Dilation2DBackpropInput"),
    NO_GRADIENT("Dilation2DBackpropFilter"),
    LATER_GRADIENT("ExtractImagePatches"),
    LATER_GRADIENT("ExtractVolumePatches"),
    NO_GRADIENT("DataFormatDimMap"),       /* integers */
    NO_GRADIENT("DataFormatVecPermute"),
};
// clang-format on

const struct gradient_list conv_gradients = {rows, ARRAY_LEN(rows)};
