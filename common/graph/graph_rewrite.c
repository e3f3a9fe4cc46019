/* Changes what a node of a graph is. */
#include "common/graph/graph_rewrite.h"

#include "common/graph/graph_internal.h"

void node_change_op(struct graph *graph, struct node *node, const char *op) {
    const struct op_signature *signature = graph_op_lookup(graph, op);
    CHECK(signature != NULL);
    const struct attr *before = node->attrs;
    int n_before = node->n_attrs;
    node->op = signature;
    node->op_name = signature->name;
    node->attrs_capacity = n_before + signature->n_attrs + 1;
    node->attrs = arena_alloc(&graph->arena, (size_t)node->attrs_capacity * sizeof(node->attrs[0]));
    node->n_attrs = 0;
    for (int i = 0; i < n_before; i++)
        if (before[i].name[0] == '_')
            node->attrs[node->n_attrs++] = before[i];
    node_fill_defaults(graph, node);
    node->n_data = node->n_inputs = node->n_outputs = 0;
    node->in_types = node->out_types = NULL;
}
