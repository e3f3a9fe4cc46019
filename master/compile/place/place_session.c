/* Placing what has state, once, on the session's whole graph [WP 4.2, 4.3]: so that every step
 * finds the same variable and queue.
 *
 * Stateful is what the op's signature says (variables, queues, readers, tables; random ops too,
 * whose sequence must not start again on another device) and what hands out references; with it
 * goes its whole colocation group. All other nodes are placed per signature: calls of functions
 * too, which are gone by then, and what takes a handle from one, which must follow whatever made
 * it inside. Unplaced means -1, so calling this again after the graph has grown places only the
 * newcomers, where their group is already if it is. Nothing changes on failure. */
#include "master/compile/compilation.h"
#include "master/compile/inline/inline.h"
#include "master/compile/place/place.h"

static bool takes_handle_of_call(const struct node *node) {
    for (int i = 0; i < node->n_data; i++)
        if (node->inputs[i].src->out_types[node->inputs[i].index] == DT_RESOURCE &&
            node_is_call(node->inputs[i].src))
            return true;
    return false;
}

static bool has_state(const struct node *node) {
    if (node_is_call(node) || takes_handle_of_call(node))
        return false;
    for (int i = 0; i < node->n_outputs; i++)
        if (dtype_is_ref((enum dtype)node->out_types[i]))
            return true;
    return node_is_stateful(node);
}

static struct status *place_groups(struct placer *placer, struct graph *graph) {
    for (int id = 0; id < graph->n_nodes; id++)
        if (!graph->nodes[id]->is_removed && has_state(graph->nodes[id]))
            placer_group(placer, graph->nodes[id])->is_wanted = true;
    TRY(placer_settle(placer, true));
    if (placer->options->placement != PLACEMENT_SIMPLE)
        spread_variables(placer);
    for (int id = 0; id < graph->n_nodes; id++) {
        struct node *node = graph->nodes[id];
        struct place_group *group = node->is_removed ? NULL : placer_group(placer, node);
        if (group && group->is_wanted)
            node->placed = group->device >= 0
                               ? group->device
                               : placer_best_device(placer, group, placer->devices->default_device);
    }
    return NULL;
}

struct status *place_session(struct graph *graph, const struct device_table *devices,
                             const struct compile_options *options) {
    struct arena arena;
    struct placer placer;
    arena_init(&arena);
    struct status *st = placer_init(&placer, graph, devices, options, &arena);
    if (!st)
        st = place_groups(&placer, graph);
    placer_fini(&placer);
    arena_fini(&arena);
    return st;
}
