/* Lists the ops on barriers. */
#include "common/ops/op_def.h"

static struct status *shape_insert(struct shape_inference *ctx) {
    struct shape keys, values = ctx->in[2], unused;
    TRY(shape_require_rank(ctx, 1, 1, &keys));
    TRY(shape_require_rank_at_least(ctx, 2, 1));
    return values.rank < 1 ? NULL : shape_merge(ctx, keys, shape_sub(ctx, values, 0, 1), &unused);
}

// clang-format off
static const struct op_def rows[] = {
    {"Barrier", "collects tuples whose components arrive one by one", shape_v1_handle},
    {"BarrierInsertMany", "adds one component for each key", shape_insert},
    {"BarrierTakeMany", "takes a batch of complete tuples; waits for them", shape_unknown},
    {"BarrierClose", "closes the barrier for new keys", shape_none},
    {"BarrierReadySize", "the number of complete tuples", shape_scalar},
    {"BarrierIncompleteSize", "the number of keys without all components", shape_scalar},
};
// clang-format on

const struct op_def_list barrier_ops = {rows, ARRAY_LEN(rows)};
