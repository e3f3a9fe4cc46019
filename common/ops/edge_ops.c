/* Lists the ends of cut edges (common/graph/internal_ops.h), which the executor runs itself. The
 * shapes of their values are known in the whole graph, but not in its partitions. */
#include "common/ops/op_def.h"

/* A feed has the shape of its placeholder. */
static struct status *shape_feed(struct shape_inference *ctx) {
    const struct attr_value *shape = node_attr(ctx->node, "_shape");
    ctx->out[0] = shape && shape->type == ATTR_SHAPE ? shape->shape : SHAPE_UNKNOWN;
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"_MrFeed", "a value that the step brings", shape_feed},
    {"_MrFetch", "a value that the step takes away", shape_none},
    {"_MrSend", "the near end of an edge between devices", shape_none},
    {"_MrRecv", "the far end of an edge between devices", shape_unknown},
};
// clang-format on

const struct op_def_list edge_ops = {rows, ARRAY_LEN(rows)};
