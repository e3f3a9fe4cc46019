/* The prune: only what a fetch or a target needs stays [WP 4.2]. A walk backwards from them over
 * data and control edges; linear.
 *
 * It runs twice: after the cut, and ("sweep") after the passes that leave nodes without a
 * consumer. No optimisation: what stands before a feed, and what a function computes for nobody,
 * must not run, for it may fail or change a variable. */
#include <stdlib.h>

#include "master/compile/compilation.h"

static void push(struct node *node, bool *is_needed, struct node **stack, int *n_stack) {
    if (is_needed[node->id])
        return;
    is_needed[node->id] = true;
    stack[(*n_stack)++] = node;
}

struct status *pass_prune(struct compilation *c, bool *ret_changed) {
    struct graph *graph = &c->graph;
    bool *is_needed = xcalloc((size_t)graph->n_nodes + 1, sizeof(*is_needed));
    struct node **stack = xcalloc((size_t)graph->n_nodes + 1, sizeof(*stack));
    int n_stack = 0;
    for (int i = 0; i < c->signature->n_fetches; i++)
        push(c->fetch_nodes[i], is_needed, stack, &n_stack);
    for (int i = 0; i < c->n_targets; i++)
        push(c->target_nodes[i], is_needed, stack, &n_stack);
    while (n_stack > 0) {
        const struct node *node = stack[--n_stack];
        for (int i = 0; i < node->n_inputs; i++)
            push(node->inputs[i].src, is_needed, stack, &n_stack);
    }
    for (int id = 0; id < graph->n_nodes; id++) {
        if (is_needed[id] || graph->nodes[id]->is_removed)
            continue;
        graph_remove_node(graph, graph->nodes[id]);
        *ret_changed = true;
    }
    free(is_needed);
    free(stack);
    return NULL;
}
