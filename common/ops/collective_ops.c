/* Lists collectives: ops in which the devices of a group exchange values. */
#include "common/ops/op_def.h"

/* The values of all devices, one after the other: the first size depends on the group. */
static struct status *shape_gathered(struct shape_inference *ctx) {
    if (ctx->in[0].rank < 1)
        return NULL;
    int64_t dims[SHAPE_MAX_RANK];
    memcpy(dims, ctx->in[0].dims, (size_t)ctx->in[0].rank * sizeof(dims[0]));
    dims[0] = -1;
    ctx->out[0] = shape_make(ctx, ctx->in[0].rank, dims);
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"CollectiveReduce", "the sum over a group of devices; groups of one", shape_same_as_input},
    {"CollectiveGather", "the values of a group of devices; groups of one", shape_from_attr},
    {"CollectiveBcastSend", "sends a value to a group of devices; groups of one", shape_from_attr},
    {"CollectiveReduceV2", "the sum over a group of devices; groups of one", shape_same_as_input},
    {"CollectiveGatherV2", "the values of a group of devices; groups of one", shape_gathered},
    {"CollectiveReduceScatterV2", "a part of the sum over a group of devices; groups of one",
     shape_gathered},
    {"CollectiveAllToAllV2", "parts of the values of a group of devices; groups of one",
     shape_same_as_input},
    {"CollectiveBcastSendV2", "sends a value to a group of devices; groups of one",
     shape_same_as_input},
    {"CollectiveAssignGroupV2", "the group that a device is in", shape_scalar},
};
// clang-format on

const struct op_def_list collective_ops = {rows, ARRAY_LEN(rows)};
