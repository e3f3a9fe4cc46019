/* Lists tensor maps: variants that map keys to tensors. */
#include "common/ops/op_def.h"

// clang-format off
static const struct op_def rows[] = {
    {"EmptyTensorMap", "a map without entries", shape_scalar},
    {"TensorMapInsert", "a map with one more entry, or another value for a key", shape_scalar},
    {"TensorMapErase", "a map without an entry", shape_scalar},
    {"TensorMapLookup", "a key's value", shape_unknown},
    {"TensorMapHasKey", "whether a map has a key", shape_scalar},
    {"TensorMapSize", "the number of entries of a map", shape_scalar},
    {"TensorMapStackKeys", "all keys, one row each, in any order", shape_unknown},
};
// clang-format on

const struct op_def_list tensor_map_ops = {rows, ARRAY_LEN(rows)};
