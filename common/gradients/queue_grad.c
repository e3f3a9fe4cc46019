/* Derivatives of the queue family: none. Queues carry tensors between steps. */
#include "common/gradients/gradient.h"

extern const struct gradient_list queue_gradients;

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("FIFOQueue"),
    NO_GRADIENT("PaddingFIFOQueue"),
    NO_GRADIENT("RandomShuffleQueue"),
    NO_GRADIENT("PriorityQueue"),
    NO_GRADIENT("FakeQueue"),
    NO_GRADIENT("FIFOQueueV2"),
    NO_GRADIENT("PaddingFIFOQueueV2"),
    NO_GRADIENT("RandomShuffleQueueV2"),
    NO_GRADIENT("PriorityQueueV2"),
    NO_GRADIENT("QueueEnqueue"),
    NO_GRADIENT("QueueEnqueueV2"),
    NO_GRADIENT("QueueEnqueueMany"),
    NO_GRADIENT("QueueEnqueueManyV2"),
    NO_GRADIENT("QueueDequeue"),
    NO_GRADIENT("QueueDequeueV2"),
    NO_GRADIENT("QueueDequeueMany"),
    NO_GRADIENT("QueueDequeueManyV2"),
    NO_GRADIENT("QueueDequeueUpTo"),
    NO_GRADIENT("QueueDequeueUpToV2"),
    NO_GRADIENT("QueueClose"),
    NO_GRADIENT("QueueCloseV2"),
    NO_GRADIENT("QueueSize"),
    NO_GRADIENT("QueueSizeV2"),
    NO_GRADIENT("QueueIsClosed"),
    NO_GRADIENT("QueueIsClosedV2"),
};
// clang-format on

const struct gradient_list queue_gradients = {rows, ARRAY_LEN(rows)};
