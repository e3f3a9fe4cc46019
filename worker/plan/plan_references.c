/* Says how a node takes references to variables (common/graph/references.h): whether it reads them
 * late, and whether it wants their values. */
#include "common/graph/references.h"
#include "worker/plan/plan.h"

bool plan_reads_late(const struct node *node, const bool *is_reference) {
    return is_reference[node->id] && node_n_forwarded(node) > 0;
}

bool plan_wants_values(const struct node *node, const bool *is_reference) {
    for (int i = node_n_passed_on(node); i < node->n_data; i++)
        if ((dtype_is_ref((enum dtype)node->inputs[i].src->out_types[node->inputs[i].index]) ||
             is_reference[node->inputs[i].src->id]) &&
            !dtype_is_ref((enum dtype)node->in_types[i]))
            return true;
    return false;
}
