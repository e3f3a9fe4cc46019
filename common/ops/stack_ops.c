/* Lists the stack family. TensorFlow infers the shape [2] for the handle of a StackV2, which is not
 * its shape at run time. */
#include "common/ops/op_def.h"

static struct status *shape_push(struct shape_inference *ctx) {
    ctx->out[0] = ctx->in[1];
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"StackV2", "a stack of tensors that lives for one step", shape_unknown},
    {"StackPushV2", "pushes a tensor, and returns it", shape_push},
    {"StackPopV2", "pops the last tensor", shape_unknown},
    {"StackCloseV2", "releases all tensors of the stack", shape_none},
    {"Stack", "a stack of tensors, in the first form", shape_v1_handle},
    {"StackPush", "pushes a tensor, and returns it", shape_push},
    {"StackPop", "pops the last tensor", shape_unknown},
    {"StackClose", "releases all tensors of the stack", shape_none},
};
// clang-format on

const struct op_def_list stack_ops = {rows, ARRAY_LEN(rows)};
