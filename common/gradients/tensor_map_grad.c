/* Differentiates tensor maps: the gradient of a map is a map of gradients with the same keys. */
#include "common/gradients/gradient.h"

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("EmptyTensorMap"),
    LATER_GRADIENT("TensorMapInsert"), /* depends on whether the gradient's map has the key */
    LATER_GRADIENT("TensorMapErase"),
    LATER_GRADIENT("TensorMapLookup"),
    NO_GRADIENT("TensorMapHasKey"),
    NO_GRADIENT("TensorMapSize"),
    NO_GRADIENT("TensorMapStackKeys"),
};
// clang-format on

const struct gradient_list tensor_map_gradients = {rows, ARRAY_LEN(rows)};
