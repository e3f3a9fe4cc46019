/* Reads of reference variables that come as late as TensorFlow's.
 *
 * Clients make "v/read", an Identity of the reference, outside of all control dependencies, and
 * yet rely on "update v, then use v": in TensorFlow its output shares the variable's buffer,
 * which updates write in place. So here the reference itself goes on to the consumers, and each
 * reads the variable when it runs. What only hands values on, from branch to branch and from
 * iteration to iteration, hands the reference on: a loop's condition sees what its body has
 * assigned. */
#include <stdlib.h>

#include "worker/plan/plan.h"

static bool is_either(const struct node *node, const char *op, const char *ref_op) {
    return node_is_op(node, op) || node_is_op(node, ref_op);
}

static bool comes_as_reference(const struct node *node, int input) {
    const struct node_input *in = &node->inputs[input];
    return dtype_is_ref((enum dtype)in->src->out_types[in->index]);
}

bool plan_reads_late(const struct node *node) {
    return node_is_op(node, "Identity") && comes_as_reference(node, 0);
}

/* How many of its inputs, from the first on, the op only hands on. */
static int n_handed_on(const struct node *node) {
    if (is_either(node, "Merge", "RefMerge"))
        return node->n_data;
    return is_either(node, "Enter", "RefEnter") || is_either(node, "Exit", "RefExit") ||
           is_either(node, "NextIteration", "RefNextIteration") ||
           is_either(node, "Switch", "RefSwitch") || node_is_op(node, "_SwitchN");
}

static bool begins_reference(const struct node *node) {
    if (plan_reads_late(node))
        return true;
    for (int i = 0; i < n_handed_on(node); i++)
        if (comes_as_reference(node, i))
            return true;
    return false;
}

bool *plan_find_references(const struct graph *graph, const struct graph_consumers *consumers) {
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
                edge->position >= n_handed_on(edge->dst))
                continue;
            is_reference[edge->dst->id] = true;
            found[n_found++] = edge->dst->id;
        }
    }
    free(found);
    return is_reference;
}

bool plan_wants_values(const struct node *node, const bool *is_reference) {
    for (int i = n_handed_on(node); i < node->n_data; i++)
        if ((comes_as_reference(node, i) || is_reference[node->inputs[i].src->id]) &&
            !dtype_is_ref((enum dtype)node->in_types[i]))
            return true;
    return false;
}
