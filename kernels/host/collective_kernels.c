/* Computes collectives of a group of one device: nothing is exchanged, and the result follows from
 * the input alone.
 *
 * In graph mode a client's strategies make such groups where there is one worker. Larger groups are
 * refused by name. */
#include "kernels/kernel.h"

extern const struct kernel_list collective_kernels;

static struct status *check_group(int64_t size, const struct node *node) {
    if (size <= 0)
        return status_invalid("group_size must be positive integer but got %lld", (long long)size);
    if (size == 1)
        return NULL;
    return status_unimplemented("%s of a group of %lld devices: groups of one are supported",
                                node->op_name, (long long)size);
}

/* The first versions have the size as an attr. */
static struct status *attr_init(struct kernel_init *init) {
    int64_t size = 0;
    TRY(node_get_i(init->node, "group_size", &size));
    return check_group(size, init->node);
}

/* CollectiveReduce, CollectiveGather, CollectiveBcastSend.
 *   input   T of any shape; the sum, or the values, of all devices
 *   data    the same: dividing by the size of the group (final_op Div) changes nothing either */
static enum kernel_result alone(struct kernel_ctx *ctx) {
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

static struct status *scalar_i32(struct kernel_ctx *ctx, int input, const char *name,
                                 int64_t *ret) {
    const struct tensor *t = kernel_input(ctx, input);
    if (t->rank != 0)
        return status_invalid("Unexpected dimensions on input %s", name);
    *ret = tensor_index_at(t, 0);
    return NULL;
}

/* CollectiveReduceV2, CollectiveGatherV2, CollectiveBcastSendV2, CollectiveReduceScatterV2,
 * CollectiveAllToAllV2.
 *   input   as above     group_size, group_key, instance_key   int32 []
 * Errors   INVALID_ARGUMENT   a size that is no scalar, or not positive
 *          UNIMPLEMENTED      a larger group */
static enum kernel_result alone_of_inputs(struct kernel_ctx *ctx) {
    int64_t size = 0, unused = 0;
    KERNEL_TRY(ctx, scalar_i32(ctx, 1, "group_size", &size));
    KERNEL_TRY(ctx, scalar_i32(ctx, 2, "group_key", &unused));
    KERNEL_TRY(ctx, scalar_i32(ctx, 3, "instance_key", &unused));
    KERNEL_TRY(ctx, check_group(size, ctx->instance->node));
    return alone(ctx);
}

/* CollectiveAssignGroupV2: the group that a device is in.
 *   group_assignment  int32 [groups, size]    device_index, base_key  int32 []
 *   group_size        int32 []    group_key  base_key + number of the group
 * Errors   INVALID_ARGUMENT   shapes; a device that is in no group */
static enum kernel_result assign_group(struct kernel_ctx *ctx) {
    const struct tensor *groups = kernel_input(ctx, 0), *device = kernel_input(ctx, 1),
                        *base = kernel_input(ctx, 2);
    if (groups->rank != 2)
        return kernel_fail(ctx, status_invalid("group_assignment must be a 2-d Tensor, but "
                                               "received tensor of shape: %s",
                                               TENSOR_SHAPE_TEXT(groups)));
    if (device->rank != 0 || base->rank != 0)
        return kernel_fail(ctx, status_invalid("device_index and base_key must be scalars, but "
                                               "received tensors of shapes: %s and %s",
                                               TENSOR_SHAPE_TEXT(device), TENSOR_SHAPE_TEXT(base)));
    int32_t wanted = *(const int32_t *)tensor_cdata(device);
    int64_t size = tensor_dim(groups, 1);
    for (int64_t i = 0; i < groups->n_elements; i++)
        if (((const int32_t *)tensor_cdata(groups))[i] == wanted) {
            int32_t key = *(const int32_t *)tensor_cdata(base);
            tensor_init_scalar_i32(&ctx->outputs[0], (int32_t)size);
            tensor_init_scalar_i32(&ctx->outputs[1],
                                   (int32_t)((uint32_t)key + (uint32_t)(i / size)));
            return KERNEL_DONE;
        }
    return kernel_fail(ctx,
                       status_invalid("device_index %d is not found in group_assignment", wanted));
}

// clang-format off
#define BY_ATTR(name, types) \
    {.op = (name), {{"T", (types)}}, .compute = alone, .init = attr_init, \
     .flags = KERNEL_STATEFUL}
#define BY_INPUT(name, types) \
    {.op = (name), {{"T", (types)}}, .compute = alone_of_inputs, \
     .flags = KERNEL_STATEFUL}
#define MOVED \
    (DTYPE_BIT(DT_HALF) | DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE) | DTYPE_BIT(DT_INT32) | \
     DTYPE_BIT(DT_INT64))
#define REDUCED (MOVED | DTYPE_BIT(DT_BFLOAT16))
#define SENT (MOVED | DTYPE_BIT(DT_BOOL))
static const struct kernel_def rows[] = {
    BY_ATTR("CollectiveReduce", REDUCED), BY_ATTR("CollectiveGather", MOVED),
    BY_ATTR("CollectiveBcastSend", SENT),
    BY_INPUT("CollectiveReduceV2", REDUCED), BY_INPUT("CollectiveGatherV2", MOVED),
    BY_INPUT("CollectiveReduceScatterV2", REDUCED), BY_INPUT("CollectiveAllToAllV2", REDUCED),
    BY_INPUT("CollectiveBcastSendV2", SENT),
    {.op = "CollectiveAssignGroupV2", .compute = assign_group},
};
// clang-format on

const struct kernel_list collective_kernels = {rows, ARRAY_LEN(rows)};
