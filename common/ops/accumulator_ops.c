/* Lists conditional accumulators. */
#include "common/ops/op_def.h"

static struct status *shape_set_step(struct shape_inference *ctx) {
    return shape_require_rank(ctx, 1, 0, NULL);
}

static struct status *shape_take_sparse(struct shape_inference *ctx) {
    ctx->out[0] = shape_unknown_of_rank(ctx, 1);
    ctx->out[2] = shape_unknown_of_rank(ctx, 1);
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"ConditionalAccumulator", "sums gradients until there are enough", shape_v1_handle},
    {"ResourceConditionalAccumulator", "sums gradients until there are enough", shape_unknown},
    {"SparseConditionalAccumulator", "sums gradients of rows until there are enough",
     shape_v1_handle},
    {"AccumulatorApplyGradient", "adds a gradient; drops a stale one", shape_none},
    {"ResourceAccumulatorApplyGradient", "adds a gradient; drops a stale one", shape_none},
    {"AccumulatorTakeGradient", "takes the mean or sum; waits until there are enough gradients",
     shape_unknown},
    {"ResourceAccumulatorTakeGradient",
     "takes the mean or sum; waits until there are enough gradients", shape_unknown},
    {"AccumulatorNumAccumulated", "the number of gradients since the last one was taken",
     shape_scalar},
    {"ResourceAccumulatorNumAccumulated", "the number of gradients since the last one was taken",
     shape_scalar},
    {"AccumulatorSetGlobalStep", "sets the step before which gradients are stale", shape_set_step},
    {"ResourceAccumulatorSetGlobalStep", "sets the step before which gradients are stale",
     shape_set_step},
    {"SparseAccumulatorApplyGradient", "adds a gradient of rows; drops a stale one", shape_none},
    {"SparseAccumulatorTakeGradient",
     "takes the mean or sum of rows; waits until there are enough gradients", shape_take_sparse},
};
// clang-format on

const struct op_def_list accumulator_ops = {rows, ARRAY_LEN(rows)};
