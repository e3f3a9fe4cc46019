/* Lists the ops for values that stay on their device until their session ends. */
#include "common/ops/op_def.h"

// clang-format off
static const struct op_def rows[] = {
    {"GetSessionHandle", "keeps a tensor for its session, and returns its handle", shape_scalar},
    {"GetSessionTensor", "the tensor that a handle names", shape_unknown},
    {"DeleteSessionTensor", "releases the tensor of a handle", shape_none},
};
// clang-format on

const struct op_def_list session_value_ops = {rows, ARRAY_LEN(rows)};
