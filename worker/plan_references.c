/* Reads of reference variables that come as late as TensorFlow's.
 *
 * Clients make "v/read", an Identity of the reference, outside of all control dependencies, and yet rely on "update v, then use v": in
 * TensorFlow its output shares the variable's buffer, which updates write in place. So here the reference itself goes on to the consumers,
 * and each reads the variable when it runs. What only hands values on, from branch to branch and from iteration to iteration, hands the
 * reference on: a loop's condition sees what its body has assigned. */
#include <stdlib.h>

#include "worker/plan.h"

static bool is_either(const struct node *node, const char *op, const char *ref_op) {
    return node_is_op(node, op) || node_is_op(node, ref_op);
}

static bool is_merge(const struct node *node) { return is_either(node, "Merge", "RefMerge"); }

static bool comes_as_reference(const struct node *node, int input) {
    const struct node_input *in = &node->inputs[input];
    return dtype_is_ref((enum dtype)in->src->out_types[in->index]);
}

bool plan_reads_late(const struct node *node) { return node_is_op(node, "Identity") && comes_as_reference(node, 0); }

/* Does the op only hand its first input on (a Merge: any of them)? */
static bool hands_on(const struct node *node) {
    return is_merge(node) || is_either(node, "Enter", "RefEnter") || is_either(node, "Exit", "RefExit") ||
           is_either(node, "NextIteration", "RefNextIteration") || is_either(node, "Switch", "RefSwitch");
}

static bool may_be_reference(const struct node *node, int input, const bool *is_reference) {
    return comes_as_reference(node, input) || is_reference[node->inputs[input].src->id];
}

static bool hands_on_reference(const struct node *node, const bool *is_reference) {
    if (!hands_on(node))
        return false;
    for (int i = 0; i < (is_merge(node) ? node->n_data : 1); i++)
        if (may_be_reference(node, i, is_reference))
            return true;
    return false;
}

bool *plan_find_references(const struct graph *graph, struct node *const *order) {
    bool *is_reference = xcalloc((size_t)graph->n_nodes + 1, sizeof *is_reference), has_changed;
    do { /* again for what comes round a loop: as often as loops lie in each other */
        has_changed = false;
        for (int i = 0; i < graph->n_live; i++) {
            bool is = plan_reads_late(order[i]) || hands_on_reference(order[i], is_reference);
            has_changed |= is != is_reference[order[i]->id];
            is_reference[order[i]->id] = is;
        }
    } while (has_changed);
    return is_reference;
}

bool plan_wants_values(const struct node *node, const bool *is_reference) {
    int n_handed_on = !hands_on(node) ? 0 : is_merge(node) ? node->n_data : 1;
    for (int i = n_handed_on; i < node->n_data; i++)
        if (may_be_reference(node, i, is_reference) && !dtype_is_ref((enum dtype)node->in_types[i]))
            return true;
    return false;
}
