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

/* What a NodeOutput message says of its value: a TensorShapeProto and an AllocationDescription,
 * which are empty where it says nothing. */
struct trace_output {
    struct span shape, allocation;
};
/* NodeOutput {slot 1, tensor_description 3 {shape 2, allocation_description 4}}. False: it is of
 * another output than 0. */
static inline bool trace_read_output(struct span in, struct trace_output *ret) {
    struct proto_field field;
    struct span description = {"", 0};
    *ret = (struct trace_output){{"", 0}, {"", 0}};
    while (proto_next(&in, &field) > 0)
        if (proto_field_is(&field, 1, 0) && field.value != 0)
            return false;
        else if (proto_field_is(&field, 3, 2))
            description = field.bytes;
    while (proto_next(&description, &field) > 0)
        if (proto_field_is(&field, 2, 2))
            ret->shape = field.bytes;
        else if (proto_field_is(&field, 4, 2))
            ret->allocation = field.bytes;
    return true;
}

#endif
