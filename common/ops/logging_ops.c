/* Lists the logging family. */
#include "common/ops/op_def.h"

static struct status *shape_pass_input(struct shape_inference *ctx) {
    ctx->out[0] = ctx->in[0];
    return NULL;
}

static struct status *shape_print_v2(struct shape_inference *ctx) {
    return shape_require_rank(ctx, 0, 0, NULL);
}

// clang-format off
static const struct op_def rows[] = {
    {"Abort", "fails with its message; the task continues", shape_none},
    {"Assert", "fails with the data in the message unless the condition holds", shape_none},
    {"Print", "hands its input on and writes the data to standard error", shape_pass_input},
    {"PrintV2", "writes a text to a stream", shape_print_v2},
    {"Timestamp", "seconds since 1970", shape_scalar},
};
// clang-format on

const struct op_def_list logging_ops = {rows, ARRAY_LEN(rows)};
