/* Lists optionals: variants that contain some tensors, or nothing. */
#include "common/ops/op_def.h"

static struct status *shape_get_value(struct shape_inference *ctx) {
    const struct attr_value *shapes;
    int n = 0;
    TRY(shape_require_rank(ctx, 0, 0, NULL));
    TRY(node_get_list(ctx->node, "output_shapes", &shapes, &n));
    if (n != ctx->node->n_outputs)
        return status_invalid(
            "output_types and output_shapes must be the same length, got: %d vs. %d",
            ctx->node->n_outputs, n);
    for (int i = 0; i < n; i++)
        ctx->out[i] = shapes[i].shape;
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"OptionalNone", "an optional that holds nothing", shape_scalar},
    {"OptionalFromValue", "an optional that holds tensors", shape_scalar},
    {"OptionalHasValue", "whether an optional holds tensors", shape_scalar},
    {"OptionalGetValue", "the tensors that an optional holds", shape_get_value},
};
// clang-format on

const struct op_def_list optional_ops = {rows, ARRAY_LEN(rows)};
