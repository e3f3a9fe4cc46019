/* Finds the saves of a step that ask for a consistent checkpoint, and the tasks whose values they
 * take (master/session/save_barrier.h).
 *
 * A SaveV2 asks by its attr `_consistent_save` (bool), which clients may set on any node. For a
 * node without the attr, the operator's flag --consistent-saves decides. */
#include "master/compile/compilation.h"

static bool is_save(const struct node *node) {
    return !node->is_removed && strcmp(node->op_name, "SaveV2") == 0;
}

static bool asks_for_barrier(const struct compilation *c, const struct node *node) {
    bool asks = c->options->consistent_saves;
    if (node_attr(node, "_consistent_save")) {
        struct status *st = node_get_b(node, "_consistent_save", &asks);
        status_unref(st); /* an attr of another type is ignored */
    }
    return asks;
}

/* Returns the task of a node that keeps a value between steps. Internal nodes (feeds, …) have
 * effects but keep nothing. */
static void note_task(const struct compilation *c, const struct node *node, bool *is_source) {
    if (node_is_stateful(node) && !node_is_internal(node) && node->placed >= 0)
        is_source[c->devices->devices[node->placed].task] = true;
}

static void find_sources(const struct compilation *c, struct node **stack, int n, bool *is_seen,
                         bool *is_source) {
    while (n > 0) {
        const struct node *node = stack[--n];
        note_task(c, node, is_source);
        for (int i = 0; i < node->n_data; i++) {
            struct node *src = node->inputs[i].src;
            if (is_seen[src->id])
                continue;
            is_seen[src->id] = true;
            stack[n++] = src;
        }
    }
}

void compile_find_saves(struct compilation *c) {
    struct node **stack = NULL;
    bool *is_seen = NULL;
    int n = 0, n_saves = 0;
    for (int id = 0; id < c->graph.n_nodes; id++) {
        if (!is_save(c->graph.nodes[id]))
            continue;
        n_saves++;
        if (!asks_for_barrier(c, c->graph.nodes[id]))
            continue;
        if (!stack) {
            stack = arena_array(&c->arena, struct node *, c->graph.n_nodes + 1);
            is_seen = arena_array(&c->arena, bool, c->graph.n_nodes + 1);
        }
        is_seen[id] = true;
        stack[n++] = c->graph.nodes[id];
    }
    c->n_barrier_saves = n > 0 ? n_saves : 0;
    if (n == 0)
        return;
    c->is_saved_task = arena_array(&c->arena, bool, c->devices->n_tasks + 1);
    find_sources(c, stack, n, is_seen, c->is_saved_task);
}
