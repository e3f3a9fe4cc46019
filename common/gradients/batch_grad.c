/* Derivatives of batching across steps: TensorFlow has none either. */
#include "common/gradients/gradient.h"

extern const struct gradient_list batch_gradients;

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("Batch"),
    NO_GRADIENT("BatchFunction"),
    NO_GRADIENT("Unbatch"),
    NO_GRADIENT("UnbatchGrad"),
};
// clang-format on

const struct gradient_list batch_gradients = {rows, ARRAY_LEN(rows)};
