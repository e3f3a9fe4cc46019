/* Writes a CostGraphDef. Field numbers are those of TensorFlow's cost_graph.proto, and for the
 * traces those of its step_stats.proto and tensor_description.proto. */
#include "master/step/cost_graph.h"

#include "common/graph/internal_ops.h"
#include "master/step/trace_nodes.h"

/* What the traces say of one node. */
struct measured {
    int64_t total_us, n_executions;
    int64_t size_bytes; /* of the largest value of output 0; -1: none was seen */
    struct span shape;  /* of the same value: a TensorShapeProto */
};

bool cost_graph_is_due(int64_t build_cost_model, int64_t build_cost_model_after, int64_t step) {
    int64_t n_measured = step + 1 - MAX(build_cost_model_after, (int64_t)0);
    return build_cost_model > 0 && n_measured > 0 && n_measured % build_cost_model == 0;
}

/* ---- reading the traces ---- */

/* AllocationDescription {requested_bytes 1} */
static int64_t read_allocation(struct span in) {
    struct proto_field field;
    int64_t size_bytes = -1;
    while (proto_next(&in, &field) > 0)
        if (proto_field_is(&field, 1, 0))
            size_bytes = (int64_t)field.value;
    return size_bytes;
}

static void read_output(struct span in, struct measured *into) {
    struct trace_output output;
    if (!trace_read_output(in, &output))
        return;
    int64_t size_bytes = read_allocation(output.allocation);
    if (size_bytes > into->size_bytes && proto_is_message(output.shape)) {
        into->size_bytes = size_bytes;
        into->shape = output.shape;
    }
}

/* NodeExecStats {node_name 1, all_end_rel_micros 5, output 7} */
static void read_node(struct span in, const struct strmap *by_name) {
    struct proto_field field;
    struct measured *measured = NULL;
    int64_t elapsed_us = 0;
    for (struct span rest = in; !measured && proto_next(&rest, &field) > 0;)
        if (proto_field_is(&field, 1, 2))
            measured = strmap_get_span(by_name, field.bytes);
    while (measured && proto_next(&in, &field) > 0)
        if (proto_field_is(&field, 5, 0))
            elapsed_us = (int64_t)field.value;
        else if (proto_field_is(&field, 7, 2))
            read_output(field.bytes, measured);
    if (!measured || elapsed_us < 0)
        return;
    measured->total_us += MIN(elapsed_us, INT32_MAX);
    measured->n_executions++;
}

/* ---- writing ---- */

/* OutputInfo {size 1, alias_input_port 2, shape 3, dtype 4} */
static void add_output(struct str *out, const struct node *node, int output,
                       const struct measured *measured) {
    struct str info = STR_INIT;
    bool is_known = output == 0 && measured->size_bytes >= 0;
    proto_add_int(&info, 1, (uint64_t)(is_known ? measured->size_bytes : -1));
    proto_add_int(&info, 2, (uint64_t)-1);
    if (is_known)
        proto_add_bytes(&info, 3, measured->shape.data, measured->shape.len);
    else
        proto_add_shape(&info, 3, (struct shape){.rank = SHAPE_UNKNOWN_RANK});
    proto_add_int(&info, 4, node->out_types[output]);
    proto_add_bytes(out, 5, info.data, info.len);
    str_fini(&info);
}

/* InputInfo {preceding_node 1, preceding_port 2}, or control_input. */
static void add_input(struct str *out, const struct node_input *input, const int *id_of) {
    struct str info = STR_INIT;
    int id = id_of[input->src->id];
    if (input->index == CONTROL_EDGE) {
        proto_add_tag(out, 8, 0);
        proto_add_varint(out, (uint64_t)id);
        return;
    }
    proto_add_int(&info, 1, (uint64_t)id);
    proto_add_int(&info, 2, (uint64_t)input->index);
    proto_add_bytes(out, 4, info.data, info.len);
    str_fini(&info);
}

/* Node {name 1, device 2, id 3, input_info 4, output_info 5, is_final 7, control_input 8,
 * compute_cost 9} */
static void add_node(struct str *out, const struct node *node, const int *id_of,
                     const struct measured *measured) {
    struct str bytes = STR_INIT;
    proto_add_bytes(&bytes, 1, node->name, strlen(node->name));
    proto_add_bytes(&bytes, 2, node->device, strlen(node->device));
    proto_add_int(&bytes, 3, (uint64_t)id_of[node->id]);
    for (int i = 0; i < node->n_inputs; i++)
        add_input(&bytes, &node->inputs[i], id_of);
    for (int i = 0; i < node->n_outputs; i++)
        add_output(&bytes, node, i, measured);
    proto_add_int(&bytes, 7, node_is_op(node, OP_FETCH) || node_is_op(node, OP_SEND));
    if (measured->n_executions > 0)
        proto_add_int(&bytes, 9,
                      (uint64_t)MAX(measured->total_us / measured->n_executions, (int64_t)1));
    proto_add_bytes(out, 1, bytes.data, bytes.len);
    str_fini(&bytes);
}

/* Adds a record for each name. Nodes of different partitions may have one name (copies of
 * constants): they share the record. */
static void add_records(const struct graph *graph, struct strmap *by_name, struct arena *arena) {
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct node *node = graph->nodes[i];
        if (node->is_removed || strmap_get(by_name, node->name))
            continue;
        struct measured *measured = arena_new(arena, struct measured);
        measured->size_bytes = -1;
        strmap_put(by_name, node->name, measured);
    }
}

/* Writes the nodes of one partition, whose ids begin with `first`. Returns the next id. */
static int add_partition(struct str *out, const struct graph *graph, int first,
                         const struct strmap *by_name, struct arena *arena) {
    int *id_of = arena_array(arena, int, graph->n_nodes + 1), next = first;
    for (int i = 0; i < graph->n_nodes; i++)
        if (!graph->nodes[i]->is_removed)
            id_of[i] = next++;
    for (int i = 0; i < graph->n_nodes; i++)
        if (!graph->nodes[i]->is_removed)
            add_node(out, graph->nodes[i], id_of, strmap_get(by_name, graph->nodes[i]->name));
    return next;
}

void cost_graph_write(const struct compiled *compiled, const struct span *traces, int n_traces,
                      struct str *out) {
    struct arena arena;
    struct strmap by_name;
    arena_init(&arena);
    strmap_init(&by_name);
    for (int i = 0; i < compiled->n_partitions; i++)
        add_records(&compiled->partitions[i].graph, &by_name, &arena);
    for (int i = 0; i < n_traces; i++)
        trace_for_each_node(traces[i], &by_name, read_node);
    for (int i = 0, next = 0; i < compiled->n_partitions; i++)
        next = add_partition(out, &compiled->partitions[i].graph, next, &by_name, &arena);
    strmap_fini(&by_name);
    arena_fini(&arena);
}
