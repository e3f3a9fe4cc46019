/* Decides where the nodes are that only hand a predicate or a list on.
 *
 * The placer puts a loop's Merge, Switch and Identity on a device, whatever they hand on. If a
 * predicate is made and used by host nodes, it would be copied there and back; and a copy of a list
 * copies each tensor in it. So carriers that edges connect are looked at together:
 *
 *   Less (host) ──► Identity ──► LoopCond (host)      a predicate: all neighbours are the host's
 *   Reserve (CPU) ──► Merge ──► Switch ──► SetItem (CPU)   a list: most of them are
 *
 * and are moved to the task's CPU if that is so. A value is the same wherever its carriers are. */
#include <stdlib.h>

#include "worker/plan/plan_internal.h"

struct carriers {
    struct graph *graph;
    const struct plan_options *options;
    int *groups;                  /* by node id: the parent in its group, -1: no carrier */
    int *n_on_host, *n_on_device; /* by root: the neighbours that are no carriers */
};

static bool is_carrier(const struct plan_options *options, const struct node *node) {
    static const char *const ops[] = {"Identity", "Switch",        "Merge",       "Enter",
                                      "Exit",     "NextIteration", "StopGradient"};
    if (node->is_removed || node->n_outputs == 0 ||
        (node->out_types[0] != DT_VARIANT && node->out_types[0] != DT_BOOL))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (node_is_op(node, ops[i]))
            return plan_output_memory(options, node, 0) != PLAN_HOST;
    return false;
}

static int root_of(int *groups, int id) {
    while (groups[id] != id)
        id = groups[id] = groups[groups[id]];
    return id;
}

/* Is input i the value that the carrier hands on? (A Switch's predicate is not.) */
static bool is_value(const struct node *node, int i) { return i == 0 || node_is_op(node, "Merge"); }

static void join(struct carriers *carriers) {
    int *groups = carriers->groups;
    for (int id = 0; id < carriers->graph->n_nodes; id++)
        groups[id] = is_carrier(carriers->options, carriers->graph->nodes[id]) ? id : -1;
    for (int id = 0; id < carriers->graph->n_nodes; id++) {
        const struct node *node = carriers->graph->nodes[id];
        for (int i = 0; groups[id] >= 0 && i < node->n_data; i++) {
            int source = node->inputs[i].src->id;
            if (is_value(node, i) && groups[source] >= 0)
                groups[root_of(groups, id)] = root_of(groups, source);
        }
    }
}

static void count(struct carriers *carriers, int id, int memory) {
    int root = root_of(carriers->groups, id);
    ++*(memory == PLAN_HOST ? &carriers->n_on_host[root] : &carriers->n_on_device[root]);
}

static void count_neighbours(struct carriers *carriers) {
    for (int id = 0; id < carriers->graph->n_nodes; id++) {
        const struct node *node = carriers->graph->nodes[id];
        for (int i = 0; !node->is_removed && i < node->n_data; i++) {
            const struct node_input *from = &node->inputs[i];
            bool is_inside = carriers->groups[id] >= 0 && is_value(node, i);
            bool comes_from_inside = carriers->groups[from->src->id] >= 0;
            if (is_inside && !comes_from_inside)
                count(carriers, id, plan_output_memory(carriers->options, from->src, from->index));
            else if (comes_from_inside && !is_inside &&
                     !plan_takes_any_memory(carriers->options, node, i))
                count(carriers, from->src->id, plan_input_memory(carriers->options, node, i));
        }
    }
}

static bool belongs_on_host(struct carriers *carriers, int id) {
    int root = root_of(carriers->groups, id);
    int n_on_host = carriers->n_on_host[root], n_on_device = carriers->n_on_device[root];
    return carriers->graph->nodes[id]->out_types[0] == DT_VARIANT
               ? n_on_host > n_on_device
               : n_on_host > 0 && n_on_device == 0;
}

void plan_place_carriers(struct graph *graph, const struct plan_options *options) {
    size_t n = (size_t)graph->n_nodes + 1;
    struct carriers carriers = {.graph = graph,
                                .options = options,
                                .groups = xcalloc(n, sizeof(int)),
                                .n_on_host = xcalloc(n, sizeof(int)),
                                .n_on_device = xcalloc(n, sizeof(int))};
    join(&carriers);
    count_neighbours(&carriers);
    for (int id = 0; id < graph->n_nodes; id++)
        if (carriers.groups[id] >= 0 && belongs_on_host(&carriers, id))
            graph->nodes[id]->device = plan_first_cpu(options)->full_name;
    free(carriers.groups);
    free(carriers.n_on_host);
    free(carriers.n_on_device);
}
