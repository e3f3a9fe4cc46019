/* Lists the ops on mutexes. */
#include "common/ops/op_def.h"

// clang-format off
static const struct op_def rows[] = {
    {"MutexV2", "a mutex", shape_scalar},
    {"MutexLock", "waits for a mutex; holds it as long as the value lives", shape_scalar},
    {"ConsumeMutexLock", "lets go of a lock", shape_none},
};
// clang-format on

const struct op_def_list mutex_ops = {rows, ARRAY_LEN(rows)};
