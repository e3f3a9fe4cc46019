/* Lists queues. The output of a dequeue is inferred from a V2 handle where the queue has one
 * component. */
#include "common/ops/op_def.h"

/* The handle of a queue with one component knows its type and shape. */
static struct status *shape_queue(struct shape_inference *ctx) {
    const struct attr_value *types = NULL, *shapes = NULL;
    int n_types = 0, n_shapes = 0;
    ctx->out[0] = SHAPE_SCALAR;
    if (!ctx->out_handle_dtypes)
        return NULL;
    TRY(node_get_list(ctx->node, "component_types", &types, &n_types));
    TRY(node_get_list(ctx->node, "shapes", &shapes, &n_shapes));
    if (n_types != 1 || n_shapes != 1 || node_is_op(ctx->node, "PriorityQueueV2"))
        return NULL;
    ctx->out_handle_dtypes[0] = types[0].dtype;
    ctx->out_handle_shapes[0] = shapes[0].shape;
    return NULL;
}

static bool knows_component(const struct shape_inference *ctx) {
    return ctx->node->n_outputs == 1 && ctx->in_handle_dtypes &&
           ctx->in_handle_dtypes[0] == (enum dtype)ctx->node->out_types[0];
}

static struct status *shape_dequeue(struct shape_inference *ctx) {
    if (knows_component(ctx))
        ctx->out[0] = ctx->in_handle_shapes[0];
    return NULL;
}

static struct status *shape_batch(struct shape_inference *ctx, int64_t n) {
    if (!knows_component(ctx))
        return NULL;
    return shape_concat(ctx, shape_make(ctx, 1, &n), ctx->in_handle_shapes[0], &ctx->out[0]);
}

static struct status *shape_dequeue_many(struct shape_inference *ctx) {
    const struct tensor *n = ctx->in_values[1];
    if (!knows_component(ctx))
        return NULL;
    if (n && n->n_elements == 1 && tensor_index_at(n, 0) < 0)
        return status_invalid("DequeueMany requested %lld < 0 elements",
                              (long long)tensor_index_at(n, 0));
    return shape_batch(ctx, n && n->n_elements == 1 ? tensor_index_at(n, 0) : -1);
}

static struct status *shape_dequeue_up_to(struct shape_inference *ctx) {
    return shape_batch(ctx, -1);
}

// clang-format off
static const struct op_def rows[] = {
    {"FIFOQueue", "a queue: first in, first out", shape_v1_handle},
    {"PaddingFIFOQueue", "a queue whose batches are padded", shape_v1_handle},
    {"RandomShuffleQueue", "a queue that gives out any of its elements", shape_v1_handle},
    {"PriorityQueue", "a queue that gives out the smallest first", shape_v1_handle},
    {"FakeQueue", "a reference to a queue that has a handle", shape_v1_handle},
    {"FIFOQueueV2", "a queue: first in, first out", shape_queue},
    {"PaddingFIFOQueueV2", "a queue whose batches are padded", shape_queue},
    {"RandomShuffleQueueV2", "a queue that gives out any of its elements", shape_queue},
    {"PriorityQueueV2", "a queue that gives out the smallest first", shape_queue},
    {"QueueEnqueue", "puts a tuple in; waits while the queue is full", shape_none},
    {"QueueEnqueueV2", "puts a tuple in; waits while the queue is full", shape_none},
    {"QueueEnqueueMany", "puts in a tuple for each row; waits while the queue is full", shape_none},
    {"QueueEnqueueManyV2", "puts in a tuple for each row; waits while the queue is full",
     shape_none},
    {"QueueDequeue", "takes a tuple out; waits while there is none", shape_dequeue},
    {"QueueDequeueV2", "takes a tuple out; waits while there is none", shape_dequeue},
    {"QueueDequeueMany", "takes out a batch of n; waits until it is full", shape_dequeue_many},
    {"QueueDequeueManyV2", "takes out a batch of n; waits until it is full", shape_dequeue_many},
    {"QueueDequeueUpTo", "takes out a batch of n, or what a closed queue still has",
     shape_dequeue_up_to},
    {"QueueDequeueUpToV2", "takes out a batch of n, or what a closed queue still has",
     shape_dequeue_up_to},
    {"QueueClose", "takes no more in; what is there may be taken out", shape_none},
    {"QueueCloseV2", "takes no more in; what is there may be taken out", shape_none},
    {"QueueSize", "the number of tuples", shape_scalar},
    {"QueueSizeV2", "the number of tuples", shape_scalar},
    {"QueueIsClosed", "whether the queue was closed", shape_scalar},
    {"QueueIsClosedV2", "whether the queue was closed", shape_scalar},
};
// clang-format on

const struct op_def_list queue_ops = {rows, ARRAY_LEN(rows)};
