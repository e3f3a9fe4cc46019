/* Finds the values that are references to variables (references.h). */
#include "common/graph/references.h"

#include <stdlib.h>

static bool input_is_reference(const struct node *node, int input) {
    const struct node_input *in = &node->inputs[input];
    return dtype_is_ref((enum dtype)in->src->out_types[in->index]);
}

/* Control flow passes a value on without reading it. The row says how many inputs, from the first
 * on. */
int node_n_passed_on(const struct node *node) {
    if (node_is_either(node, "Merge", "RefMerge"))
        return node->n_data;
    return node_is_either(node, "Enter", "RefEnter") || node_is_either(node, "Exit", "RefExit") ||
           node_is_either(node, "NextIteration", "RefNextIteration") ||
           node_is_either(node, "Switch", "RefSwitch") || node_is_op(node, "_SwitchN");
}

/* These ops read the value, and in TensorFlow their output k shares the buffer of input k. Snapshot
 * is not one of them, because it copies a value that is shared. */
int node_n_forwarded(const struct node *node) {
    static const char *const ops[] = {"Identity",        "StopGradient",
                                      "PreventGradient", "CheckNumerics",
                                      "CheckNumericsV2", "EnsureShape",
                                      "Reshape",         "Squeeze",
                                      "ExpandDims",      "PlaceholderWithDefault",
                                      "GuaranteeConst",  "Print"};
    if (node_is_op(node, "IdentityN"))
        return node->n_data;
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (node_is_op(node, ops[i]))
            return MIN(1, node->n_data);
    return 0;
}

/* An op does at most one of passing on and forwarding. */
static int n_shared(const struct node *node) {
    return MAX(node_n_passed_on(node), node_n_forwarded(node));
}

static bool begins_reference(const struct node *node) {
    for (int i = 0; i < n_shared(node); i++)
        if (input_is_reference(node, i))
            return true;
    return false;
}

bool *graph_find_references(const struct graph *graph, const struct graph_consumers *consumers) {
    bool *is_reference = xcalloc((size_t)graph->n_nodes + 1, sizeof *is_reference);
    int *found = xcalloc((size_t)graph->n_nodes + 1, sizeof *found), n_found = 0;
    for (int id = 0; id < graph->n_nodes; id++)
        if (!graph->nodes[id]->is_removed && begins_reference(graph->nodes[id])) {
            is_reference[id] = true;
            found[n_found++] = id;
        }
    while (n_found > 0) {
        int id = found[--n_found];
        for (int k = consumers->first[id]; k < consumers->first[id + 1]; k++) {
            const struct node_output_edge *edge = &consumers->edges[k];
            if (edge->index == CONTROL_EDGE || is_reference[edge->dst->id] ||
                edge->position >= n_shared(edge->dst))
                continue;
            is_reference[edge->dst->id] = true;
            found[n_found++] = edge->dst->id;
        }
    }
    free(found);
    return is_reference;
}
