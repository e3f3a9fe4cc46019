/* Finds the saves whose values are copied from a device's memory (plan.saves). */
#include <stdlib.h>

#include "worker/plan/plan_internal.h"

static bool is_save(const struct plan_node *node) {
    return node->frame == 0 && node->instance && strcmp(node->node->op_name, "SaveV2") == 0;
}

/* Counts the values that the copy brings to the node, and adds them to copies[] unless that is
 * NULL. */
static uint32_t add_values(const struct plan *plan, const struct plan_node *copy, uint32_t node,
                           uint32_t *copies) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < copy->n_edges; i++) {
        const struct plan_edge *edge = &plan->edges[copy->first_edge + i];
        if (edge->dst != node || (edge->flags & EDGE_CONTROL))
            continue;
        if (copies)
            copies[n] = copy->aux;
        n++;
    }
    return n;
}

static uint32_t find_values(const struct plan *plan, uint32_t node, uint32_t *copies) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < plan->n_nodes; i++)
        if (plan->nodes[i].kind == PLAN_COPY && plan->nodes[i].frame == 0)
            n += add_values(plan, &plan->nodes[i], node, copies ? copies + n : NULL);
    return n;
}

void plan_find_saves(struct plan *plan) {
    for (uint32_t i = 0; plan->n_copies > 0 && i < plan->n_nodes; i++) {
        uint32_t n = is_save(&plan->nodes[i]) ? find_values(plan, i, NULL) : 0;
        if (n == 0)
            continue;
        plan->saves = xreallocarray(plan->saves, plan->n_saves + 1, sizeof(*plan->saves));
        struct plan_save *save = &plan->saves[plan->n_saves++];
        *save = (struct plan_save){
            .node = i, .copies = xcalloc(n, sizeof(*save->copies)), .n_copies = n};
        (void)find_values(plan, i, save->copies);
    }
}
