/* Lists the ops that debuggers insert between a tensor and its consumers. */
#include "common/ops/op_def.h"

// clang-format off
static const struct op_def rows[] = {
    {"DebugNumericSummaryV2", "numbers that say whether a tensor is healthy", shape_unknown},
    {"DebugIdentityV2", "the input", shape_same_as_input},
    {"DebugIdentity", "the input; writes it to a debugger's URLs", shape_same_as_input},
    {"DebugNanCount", "how many elements are NaN; writes it to a debugger's URLs", shape_unknown},
    {"DebugNumericSummary", "numbers that say whether a tensor is healthy; writes them to a "
                            "debugger's URLs", shape_unknown},
    {"_MrDebugGraph", "writes a device's graph to a debugger's URL", shape_none},
    {"_MrDebugOpen", "opens streams to debug servers; the gates that they have opened",
     shape_scalar},
    {"_MrDebugGates", "lets the debug ops of a task begin", shape_none},
    {"Copy", "the input", shape_same_as_input},
    {"CopyHost", "the input", shape_same_as_input},
};
// clang-format on

const struct op_def_list debug_ops = {rows, ARRAY_LEN(rows)};
