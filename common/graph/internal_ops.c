/* Defines the signatures of our own ops. */
#include "common/graph/internal_ops.h"

#include "common/graph/fused.h"

/* clang-format off */
static const struct op_arg_signature value_arg[] = {{.name = "value", .type_attr = "T"}};

static const struct op_attr_signature slot_attrs[] = {
    {.name = "T", .type = ATTR_TYPE},
    {.name = "index", .type = ATTR_INT, .has_minimum = true, .minimum = 0},
};
static const struct op_attr_signature edge_attrs[] = {
    {.name = "T", .type = ATTR_TYPE},
    {.name = "edge", .type = ATTR_INT},
    {.name = "src_device", .type = ATTR_STRING},
    {.name = "dst_device", .type = ATTR_STRING},
    {.name = "tensor_name", .type = ATTR_STRING},
};
static const struct op_attr_signature copy_attrs[] = {
    {.name = "T", .type = ATTR_TYPE},
    {.name = "src_device", .type = ATTR_STRING},
    {.name = "dst_device", .type = ATTR_STRING},
};

static const struct op_attr_signature debug_graph_attrs[] = {
    {.name = "device_name", .type = ATTR_STRING},
    {.name = "debug_url", .type = ATTR_STRING},
    {.name = "graph", .type = ATTR_STRING},
    {.name = "metadata", .type = ATTR_STRING},
};

static const struct op_attr_signature debug_open_attrs[] = {
    {.name = "debug_urls", .type = ATTR_LIST_STRING},
    {.name = "names", .type = ATTR_STRING},
};
static const struct op_arg_signature gates_arg[] = {{.name = "gates", .type = DT_STRING}};

static const struct op_arg_signature fused_inputs[] = {{.name = "args", .type_list_attr = "Tin"}};
static const struct op_arg_signature fused_outputs[] = {
    {.name = "results", .type_list_attr = "Tout"}};
static const struct op_attr_signature fused_attrs[] = {
    {.name = "Tin", .type = ATTR_LIST_TYPE},
    {.name = "Tout", .type = ATTR_LIST_TYPE},
    {.name = "program", .type = ATTR_LIST_FUNC},
    {.name = "names", .type = ATTR_LIST_STRING},
    {.name = "operands", .type = ATTR_LIST_INT},
    {.name = "results", .type = ATTR_LIST_INT},
};

static const struct op_signature internal_ops[] = {
    {.name = OP_FEED, .outputs = value_arg, .n_outputs = 1, .attrs = slot_attrs,
     .n_attrs = ARRAY_LEN(slot_attrs), .is_stateful = true},
    {.name = OP_FETCH, .inputs = value_arg, .n_inputs = 1, .attrs = slot_attrs,
     .n_attrs = ARRAY_LEN(slot_attrs), .is_stateful = true},
    {.name = OP_SEND, .inputs = value_arg, .n_inputs = 1, .attrs = edge_attrs,
     .n_attrs = ARRAY_LEN(edge_attrs), .is_stateful = true},
    {.name = OP_RECV, .outputs = value_arg, .n_outputs = 1, .attrs = edge_attrs,
     .n_attrs = ARRAY_LEN(edge_attrs), .is_stateful = true},
    {.name = OP_COPY, .inputs = value_arg, .n_inputs = 1, .outputs = value_arg, .n_outputs = 1,
     .attrs = copy_attrs, .n_attrs = ARRAY_LEN(copy_attrs), .is_stateful = true},
    {.name = OP_DEBUG_GRAPH, .attrs = debug_graph_attrs, .n_attrs = ARRAY_LEN(debug_graph_attrs),
     .is_stateful = true},
    {.name = OP_DEBUG_OPEN, .outputs = gates_arg, .n_outputs = 1, .attrs = debug_open_attrs,
     .n_attrs = ARRAY_LEN(debug_open_attrs), .is_stateful = true},
    {.name = OP_DEBUG_GATES, .inputs = gates_arg, .n_inputs = 1, .is_stateful = true},
    {.name = OP_FUSED, .inputs = fused_inputs, .n_inputs = 1, .outputs = fused_outputs,
     .n_outputs = 1, .attrs = fused_attrs, .n_attrs = ARRAY_LEN(fused_attrs)},
};
/* clang-format on */

const struct op_signature *internal_op_find(struct span name) {
    if (name.len < 4 || memcmp(name.data, "_Mr", 3) != 0)
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(internal_ops); i++)
        if (span_is(name, internal_ops[i].name))
            return &internal_ops[i];
    return NULL;
}
