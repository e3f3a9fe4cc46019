/* Lists the stack family. TensorFlow infers the shape [2] for the handle of a StackV2, which is not
 * its shape at run time. */
#include "common/ops/op_def.h"

static struct status *shape_stack_v1(struct shape_inference *ctx) {
    ctx->out[0] = shape_make(ctx, 1, (const int64_t[]){2});
    return NULL;
}

static struct status *shape_push(struct shape_inference *ctx) {
    ctx->out[0] = ctx->in[1];
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"StackV2", "a pile of tensors that lives for one step", shape_unknown},
    {"StackPushV2", "puts a tensor on top, and hands it on", shape_push},
    {"StackPopV2", "takes the top", shape_unknown},
    {"StackCloseV2", "lets go of all that is on the stack", shape_none},
    {"Stack", "a pile of tensors, in the first form", shape_stack_v1},
    {"StackPush", "puts a tensor on top, and hands it on", shape_push},
    {"StackPop", "takes the top", shape_unknown},
    {"StackClose", "lets go of all that is on the stack", shape_none},
};
// clang-format on

const struct op_def_list stack_ops = {rows, ARRAY_LEN(rows)};
