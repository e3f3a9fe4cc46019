/* Lists the script family: ops that call functions of the client's own process. */
#include "common/ops/op_def.h"

extern const struct op_def_list script_ops;

// clang-format off
static const struct op_def rows[] = {
    {"EagerPyFunc", "calls a Python function of the client with eager tensors", shape_unknown},
    {"PyFunc", "calls a Python function of the client with arrays", shape_unknown},
    {"PyFuncStateless", "calls a Python function of the client that has no state", shape_unknown},
};
// clang-format on

const struct op_def_list script_ops = {rows, ARRAY_LEN(rows)};
