/* Checks the invariants that every pass must keep (graph.h): after each pass in debug builds, and
 * in every test of a pass. */
#include <stdlib.h>

#include "master/compile/compile.h"

static struct status *verify_input(const struct graph *graph, const struct node *node,
                                   int position) {
    const struct node_input *in = &node->inputs[position];
    const struct node *src = in->src;
    if (!src || src->id < 0 || src->id >= graph->n_nodes || graph->nodes[src->id] != src)
        return status_internal("{{node %s}} input %d comes from no node of its graph", node->name,
                               position);
    if (src->is_removed)
        return status_internal(
            "{{node %s}} input %d comes from {{node %s}}, which has been removed", node->name,
            position, src->name);
    if (position >= node->n_data)
        return in->index == CONTROL_EDGE
                   ? NULL
                   : status_internal("{{node %s}} has a data input among its control inputs",
                                     node->name);
    if (in->index < 0 || in->index >= src->n_outputs)
        return status_internal(
            "{{node %s}} input %d is output %d of {{node %s}}, which has only %d", node->name,
            position, in->index, src->name, src->n_outputs);
    enum dtype given = (enum dtype)src->out_types[in->index],
               expected = (enum dtype)node->in_types[position];
    if (given != expected && given != dtype_ref(expected))
        return status_internal("{{node %s}} input %d is %s from {{node %s}}, but must be %s",
                               node->name, position, dtype_name(given), src->name,
                               dtype_name(expected));
    return NULL;
}

/* `last_seen`, by node id: 1 + the consumer that had it as a control input last. */
static struct status *verify_node(const struct graph *graph, const struct node *node,
                                  int *last_seen) {
    if (!node->op || node->n_data > node->n_inputs)
        return status_internal("{{node %s}} is incomplete", node->name);
    if (graph_find(graph, node->name) != node)
        return status_internal("{{node %s}} is not found by its name", node->name);
    for (int i = 0; i < node->n_inputs; i++) {
        TRY(verify_input(graph, node, i));
        const struct node *src = node->inputs[i].src;
        if (i < node->n_data)
            continue;
        if (last_seen[src->id] == node->id + 1)
            return status_internal("{{node %s}} has two control edges from {{node %s}}", node->name,
                                   src->name);
        last_seen[src->id] = node->id + 1;
    }
    return NULL;
}

struct status *graph_verify(const struct graph *graph) {
    struct status *st = NULL;
    struct node **order = NULL;
    int n_live = 0;
    int *last_seen = xcalloc((size_t)graph->n_nodes + 1, sizeof(int));
    for (int id = 0; id < graph->n_nodes; id++) {
        const struct node *node = graph->nodes[id];
        if (node->is_removed)
            continue;
        n_live++;
        if (node->id != id)
            TRY_OUT(status_internal("{{node %s}} with id %d is at position %d", node->name,
                                    node->id, id));
        TRY_OUT(verify_node(graph, node, last_seen));
    }
    if (n_live != graph->n_live)
        TRY_OUT(
            status_internal("the graph counts %d live nodes, but has %d", graph->n_live, n_live));
    st = graph_topological_order(graph, &order);
    if (st)
        st = status_prefix_take(st, "a pass made a cycle: ");
out:
    free(last_seen);
    free(order);
    return st;
}
