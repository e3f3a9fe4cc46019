/* Walks through the trace of a step, a StepStats message of a task. Any thread. */
#ifndef MILLRACE_MASTER_STEP_TRACE_NODES_H
#define MILLRACE_MASTER_STEP_TRACE_NODES_H

#include "common/base/map.h"
#include "common/tensor/tensor_proto.h"

/* Calls `read` for each NodeExecStats message of all devices, in order, up to the first that is
 * malformed. The messages' contents may be wrong in every way. */
static inline void trace_for_each_node(struct span trace, const struct strmap *by_name,
                                       void (*read)(struct span node,
                                                    const struct strmap *by_name)) {
    struct proto_field device, node; /* StepStats {dev_stats 1 {node_stats 2}} */
    while (proto_next(&trace, &device) > 0)
        while (proto_field_is(&device, 1, 2) && proto_next(&device.bytes, &node) > 0)
            if (proto_field_is(&node, 2, 2))
                read(node.bytes, by_name);
}

#endif
