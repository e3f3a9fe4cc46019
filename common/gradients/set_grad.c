/* Sets and searches have no derivatives. */
#include "common/gradients/gradient.h"

extern const struct gradient_list set_gradients;

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("DenseToDenseSetOperation"),
    NO_GRADIENT("DenseToSparseSetOperation"),
    NO_GRADIENT("SparseToSparseSetOperation"),
    NO_GRADIENT("SetSize"),
    NO_GRADIENT("LowerBound"),
    NO_GRADIENT("UpperBound"),
    NO_GRADIENT("Bucketize"),
};
// clang-format on

const struct gradient_list set_gradients = {rows, ARRAY_LEN(rows)};
