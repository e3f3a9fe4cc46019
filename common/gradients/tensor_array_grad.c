/* Derivatives of the TensorArray family: a read's is a write to the array of gradients, and the other way round. */
#include "common/gradients/gradient.h"

extern const struct gradient_list tensor_array_gradients;

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("TensorArrayV3"),
    NO_GRADIENT("TensorArrayGradV3"),
    NO_GRADIENT("TensorArrayGradWithShape"),
    LATER_GRADIENT("TensorArrayWriteV3"),
    LATER_GRADIENT("TensorArrayReadV3"),
    LATER_GRADIENT("TensorArrayGatherV3"),
    LATER_GRADIENT("TensorArrayScatterV3"),
    LATER_GRADIENT("TensorArrayConcatV3"),
    LATER_GRADIENT("TensorArraySplitV3"),
    NO_GRADIENT("TensorArraySizeV3"),
    NO_GRADIENT("TensorArrayCloseV3"),
};
// clang-format on

const struct gradient_list tensor_array_gradients = {rows, ARRAY_LEN(rows)};
