/* Spreads variables over parameter servers, by bytes [OSDI 4.2]: the largest first, each to the
 * task that holds the fewest bytes of this graph's variables so far, so that no server holds much
 * more than its share. What shares a variable's group (its initializer's Assign, an optimizer's
 * slots) goes with it. */
#include <stdlib.h>

#include "master/compile/place/place.h"

enum { UNKNOWN_DIM = 1 }; /* the size of a dimension that a variable leaves open */

/* A group of variables without a task. */
struct spread_group {
    struct place_group *group;
    double bytes;
    int first; /* the id of its first variable: the order among equals */
};

struct spreader {
    struct placer *placer;
    struct spread_group *groups;
    int n_groups;
    double *held; /* by task: bytes of variables */
};

static bool is_variable(const struct node *node) {
    return node_is_either(node, "VariableV2", "Variable") || node_is_op(node, "VarHandleOp");
}

double variable_bytes(const struct node *node) {
    const struct attr_value *shape = node_attr(node, "shape"), *dtype = node_attr(node, "dtype");
    double bytes = dtype ? (double)MAX(dtype_size(dtype_base(dtype->dtype)), 1) : 1;
    for (int d = 0; shape && d < shape->shape.rank; d++)
        bytes *= (double)(shape->shape.dims[d] < 0 ? UNKNOWN_DIM : shape->shape.dims[d]);
    return bytes;
}

static bool is_asked(const struct place_group *group) { return group->request && group->is_strict; }

static bool is_server(const struct spreader *s, int task) {
    return strcmp(s->placer->devices->tasks[task].job, "ps") == 0;
}

/* May the group be on that server? The request of what owns the variable decides; without one,
 * every server will do. */
static bool may_be_on(const struct spreader *s, const struct place_group *group, int task) {
    const struct device_table *devices = s->placer->devices;
    int first = devices->tasks[task].first_device;
    if (!is_server(s, task) || devices->tasks[task].n_devices == 0)
        return false;
    return !is_asked(group) ||
           device_name_matches(&group->request->name, &devices->devices[first].name);
}

/* Is it for the spreader to choose the group's task? */
static bool is_free(const struct spreader *s, const struct place_group *group) {
    int n = 0;
    bool spreads_all = s->placer->options->placement == PLACEMENT_SPREAD;
    if (group->pinned >= 0 || (!is_asked(group) && !spreads_all))
        return false;
    for (int task = 0; task < s->placer->devices->n_tasks; task++)
        n += may_be_on(s, group, task);
    return n > is_asked(group);
}

static void add_variable(struct spreader *s, const struct node *node, int *index_of) {
    struct place_group *group = placer_group(s->placer, node);
    int *index = &index_of[group->id];
    int device = node->placed >= 0 ? node->placed : group->device;
    if (node->placed >= 0 || !is_free(s, group)) {
        if (device >= 0)
            s->held[s->placer->devices->devices[device].task] += variable_bytes(node);
        return;
    }
    if (*index == 0) {
        s->groups[s->n_groups++] = (struct spread_group){.group = group, .first = node->id};
        *index = s->n_groups;
    }
    s->groups[*index - 1].bytes += variable_bytes(node);
}

static int by_bytes(const void *a, const void *b) {
    const struct spread_group *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->first - y->first;
}

static void choose_task(struct spreader *s, const struct spread_group *entry) {
    const struct device_table *devices = s->placer->devices;
    int best = -1;
    for (int task = 0; task < devices->n_tasks; task++)
        if (may_be_on(s, entry->group, task) && (best < 0 || s->held[task] < s->held[best]))
            best = task;
    s->held[best] += entry->bytes;
    entry->group->device =
        placer_best_device(s->placer, entry->group, devices->tasks[best].first_device);
}

void spread_variables(struct placer *placer) {
    const struct graph *graph = placer->graph;
    struct spreader s = {.placer = placer};
    s.groups = arena_array(placer->arena, struct spread_group, graph->n_nodes + 1);
    s.held = arena_array(placer->arena, double, placer->devices->n_tasks + 1);
    int *index_of = arena_array(placer->arena, int, graph->n_nodes + 1);
    for (int id = 0; id < graph->n_nodes; id++)
        if (!graph->nodes[id]->is_removed && is_variable(graph->nodes[id]))
            add_variable(&s, graph->nodes[id], index_of);
    qsort(s.groups, (size_t)s.n_groups, sizeof(*s.groups), by_bytes);
    for (int i = 0; i < s.n_groups; i++)
        choose_task(&s, &s.groups[i]);
}
