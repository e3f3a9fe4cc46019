/* Makes a problem for the simulation (schedule.h) of a graph that is to be placed by cost:
 *
 *   nodes ─► units     every node but feeds, fetches, and what has no inputs: those follow others
 *   groups ─► groups   the groups of one loop are one, since a loop must stay on one task
 *   outputs ─► values  sizes from static shapes; a size that is unknown is a guess
 *   devices            the first of each type of each task; the CPUs of a task share its cores
 *   kept bytes         what a group holds for the whole step: variables whose values no node reads
 *                      (an optimizer's slots), and values that only the client takes
 *
 * State never moves. That of the client's own nodes was placed before, for the whole session. What
 * functions have within them is where the simple rule puts it, in every step. */
#include <math.h>
#include <stdlib.h>

#include "common/graph/internal_ops.h"
#include "master/compile/place/place_cost_internal.h"
#include "master/compile/place/placement.h"

/* ---- devices ---- */

static bool is_cpu(const struct device_info *device) { return strcmp(device->type, "CPU") == 0; }

/* Devices of one type and about the same speed are of one class: that of the first. */
static int class_of(const struct cost_placer *p, int n_before) {
    const struct device_info *all = p->c->devices->devices, *device = &all[p->device_of[n_before]];
    int n_classes = 0;
    for (int i = 0; i < n_before; i++) {
        const struct device_info *other = &all[p->device_of[i]];
        if (strcmp(other->type, device->type) == 0 &&
            device_slowness_is_near(&other->slowness, &device->slowness))
            return p->problem.devices[i].cost_class;
        n_classes = MAX(n_classes, p->problem.devices[i].cost_class + 1);
    }
    return n_classes;
}

static void find_devices(struct cost_placer *p) {
    const struct device_table *table = p->c->devices;
    struct schedule_problem *problem = &p->problem;
    p->device_of = arena_array(&p->arena, int, table->n_devices + 1);
    for (int i = 0; i < table->n_devices; i++)
        if (device_is_first_of_type(table, i))
            p->device_of[problem->n_devices++] = i;
    int n = problem->n_devices;
    struct schedule_device *devices = arena_array(&p->arena, struct schedule_device, n + 1);
    problem->devices = devices;
    for (int i = 0; i < n; i++) {
        const struct device_info *info = &table->devices[p->device_of[i]];
        double limit = info->memory_limit_bytes > 0 ? (double)info->memory_limit_bytes : INFINITY;
        devices[i] = (struct schedule_device){
            .cost_class = class_of(p, i), .memory_bytes = limit, .n_lanes = 1};
        problem->n_classes = MAX(problem->n_classes, devices[i].cost_class + 1);
    }
}

static void find_links(struct cost_placer *p) {
    const struct device_info *all = p->c->devices->devices;
    int n = p->problem.n_devices;
    struct schedule_link *links = arena_array(&p->arena, struct schedule_link, n * n + 1);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            links[i * n + k] =
                cost_estimate_link(p->c, &all[p->device_of[i]], &all[p->device_of[k]]);
    p->problem.links = links;
}

/* A device of the table in the problem: the first one of its type in its task. */
static int candidate_of(const struct cost_placer *p, int device) {
    const struct device_info *all = p->c->devices->devices;
    for (int i = 0; i < p->problem.n_devices; i++)
        if (all[p->device_of[i]].task == all[device].task &&
            strcmp(all[p->device_of[i]].type, all[device].type) == 0)
            return i;
    return 0;
}

/* ---- groups ---- */

/* Feeds, fetches and what has no inputs follow others; their values cost nothing. */
static bool is_unit(const struct node *node) {
    return !node_is_op(node, OP_FEED) && !node_is_op(node, OP_FETCH) &&
           (node->n_data > 0 || node_is_stateful(node) || node->n_outputs != 1);
}

static int group_id(const struct cost_placer *p, const struct node *node) {
    return placer_group(p->placer, node)->id;
}

/* Inlined nodes with state are not placed yet. Those of one function, in any step, may share it. */
static void find_state(struct cost_placer *p) {
    p->has_state = arena_array(&p->arena, bool, p->c->graph.n_nodes + 1);
    for (int i = 0; i < p->c->graph.n_live; i++)
        if (node_is_stateful(p->order[i]) && !node_is_internal(p->order[i]))
            p->has_state[group_id(p, p->order[i])] = true;
}

static bool is_open(const struct cost_placer *p, const struct place_group *group) {
    if (p->has_state[group->id])
        return false;
    bool moves_free = p->c->options->placement == PLACEMENT_COST;
    return group->pinned < 0 && (group->is_open || (moves_free && group->device < 0));
}

static int outermost_loop(const struct cost_placer *p, const struct node *node) {
    int frame = p->frames->in[node->id] ? p->frames->in[node->id] : p->frames->out[node->id];
    return p->frames->outermost[frame];
}

/* A loop with a member that may not move stays where the simple rule puts it. */
static bool *find_fixed_loops(const struct cost_placer *p) {
    bool *is_fixed = xcalloc((size_t)p->frames->n_frames + 1, sizeof(*is_fixed));
    for (int i = 0; i < p->c->graph.n_live; i++)
        if (is_unit(p->order[i]) && !is_open(p, placer_group(p->placer, p->order[i])))
            is_fixed[outermost_loop(p, p->order[i])] = true;
    is_fixed[0] = false; /* outside of loops */
    return is_fixed;
}

static int add_group(struct cost_placer *p, struct place_group *group) {
    p->first_in[p->problem.n_groups] = group;
    return p->problem.n_groups++;
}

/* Groups of a loop that may move become one. A group may have nodes in several loops, which it then
 * joins: the later loop uses the group that the earlier one made. */
static void find_groups(struct cost_placer *p, const bool *is_fixed_loop) {
    for (int i = 0; i < p->c->graph.n_live; i++) {
        const struct node *node = p->order[i];
        struct place_group *group = placer_group(p->placer, node);
        int loop = outermost_loop(p, node), *of = &p->group_of[group_id(p, node)];
        if (!is_unit(node))
            continue;
        bool joins = loop != 0 && !is_fixed_loop[loop];
        if (*of < 0)
            *of = joins && p->loop_group[loop] >= 0 ? p->loop_group[loop] : add_group(p, group);
        if (joins && p->loop_group[loop] < 0)
            p->loop_group[loop] = *of;
    }
}

/* Where the simple rule puts the group. */
static int simple_device(const struct cost_placer *p, const struct place_group *group) {
    int device = group->device >= 0 ? group->device : p->c->devices->default_device;
    return placer_best_device(p->placer, group, device);
}

static bool may_be_on(const struct cost_placer *p, const struct place_group *group, int device) {
    const struct device_info *info = &p->c->devices->devices[device];
    if (group->request && !device_name_matches(&group->request->name, &info->name))
        return false;
    return is_cpu(info) || !group->needs_cpu;
}

/* Nothing moves to a task that is away. What is there by the simple rule stays, as its step would
 * have to wait for that task in any case. */
static void avoid_away_tasks(const struct cost_placer *p, bool *may_use) {
    const struct device_info *all = p->c->devices->devices;
    const bool *is_away = p->c->options->is_away;
    int n_devices = p->problem.n_devices;
    for (int d = 0; is_away && d < n_devices; d++)
        for (int g = 0; is_away[all[p->device_of[d]].task] && g < p->problem.n_groups; g++)
            if (p->placed[g] != d)
                may_use[(size_t)g * (size_t)n_devices + (size_t)d] = false;
}

/* Which devices each group may use: those that all its members may use. */
static void constrain_groups(struct cost_placer *p, const bool *is_fixed_loop) {
    const struct schedule_problem *problem = &p->problem;
    size_t n_devices = (size_t)problem->n_devices;
    int *fixed = arena_array(&p->arena, int, problem->n_groups + 1);
    bool *may_use = arena_array(&p->arena, bool, (size_t)problem->n_groups *n_devices + 1);
    memset(may_use, true, (size_t)problem->n_groups * n_devices);
    p->placed = arena_array(&p->arena, int, problem->n_groups + 1);
    for (int g = 0; g < problem->n_groups; g++) {
        fixed[g] = -1;
        p->placed[g] = candidate_of(p, simple_device(p, p->first_in[g]));
    }
    for (int i = 0; i < p->c->graph.n_live; i++) {
        const struct node *node = p->order[i];
        const struct place_group *group = placer_group(p->placer, node);
        int g = p->group_of[group_id(p, node)];
        if (!is_unit(node))
            continue;
        if (!is_open(p, group) || is_fixed_loop[outermost_loop(p, node)])
            fixed[g] = p->placed[g] = candidate_of(p, simple_device(p, group));
        for (size_t d = 0; d < n_devices; d++)
            may_use[(size_t)g * n_devices + d] &= may_be_on(p, group, p->device_of[d]);
    }
    avoid_away_tasks(p, may_use);
    p->problem.fixed = fixed;
    p->problem.may_use = may_use;
}

/* Where the groups are that were placed before: those of a group are on one device. */
static void find_present(struct cost_placer *p) {
    const int *device_of_node = placement_present_devices(p->c, &p->arena);
    if (!device_of_node)
        return;
    p->present = arena_array(&p->arena, int, p->problem.n_groups + 1);
    memcpy(p->present, p->placed, sizeof(int) * (size_t)p->problem.n_groups);
    for (int i = 0; i < p->c->graph.n_live; i++) {
        int device = device_of_node[p->order[i]->id], g = cost_placer_group(p, p->order[i]);
        if (g >= 0 && device >= 0 && p->problem.fixed[g] < 0)
            p->present[g] = candidate_of(p, device);
    }
}

/* ---- units ---- */

static double unit_ns(struct cost_placer *p, const struct node *node,
                      const struct device_info *device) {
    double ns = cost_estimate_ns(&p->estimates, node, device);
    return outermost_loop(p, node) != 0 ? ns * COST_LOOP_TRIPS : ns;
}

/* A class that lacks the kernel is forbidden by may_use; its cost does not count. */
static void find_costs(struct cost_placer *p, int *group, double *cost_ns) {
    const struct schedule_problem *problem = &p->problem;
    int *first_of = arena_array(&p->arena, int, problem->n_classes + 1); /* the class's device */
    for (int d = problem->n_devices - 1; d >= 0; d--)
        first_of[problem->devices[d].cost_class] = p->device_of[d];
    for (int i = 0, unit = 0; i < p->c->graph.n_live; i++) {
        const struct node *node = p->order[i];
        if (!is_unit(node))
            continue;
        group[unit] = p->group_of[group_id(p, node)];
        for (int k = 0; k < problem->n_classes; k++)
            cost_ns[(size_t)unit * (size_t)problem->n_classes + (size_t)k] =
                unit_ns(p, node, &p->c->devices->devices[first_of[k]]);
        unit++;
    }
}

/* The edges that the simulation follows: the way back of a loop is cut. */
static bool is_followed(const struct cost_placer *p, const struct node *src,
                        const struct node_output_edge *edge) {
    return p->unit_of[edge->dst->id] >= 0 &&
           !node_is_either(src, "NextIteration", "RefNextIteration");
}

struct value_list {
    struct schedule_value *values;
    struct schedule_edge *edges;
    int *first_value;
    double *kept_bytes; /* by group */
};

static bool is_fetched(const struct graph_consumers *consumers, int begin, int end) {
    for (int i = begin; i < end; i++)
        if (node_is_op(consumers->edges[i].dst, OP_FETCH))
            return true;
    return false;
}

/* A variable that is read counts as the value that is read, in the same memory. */
static bool is_variable_read(const struct graph_consumers *consumers, const struct node *handle) {
    for (int i = consumers->first[handle->id]; i < consumers->first[handle->id + 1]; i++)
        if (node_is_op(consumers->edges[i].dst, "ReadVariableOp"))
            return true;
    return false;
}

/* One value for each output that somebody takes, and one for the control edges. The consumers are
 * sorted by output. */
static void add_values(struct cost_placer *p, const struct graph_consumers *consumers,
                       const struct node *node, struct value_list *list) {
    struct schedule_problem *problem = &p->problem;
    int i = consumers->first[node->id], end = consumers->first[node->id + 1];
    int group = cost_placer_group(p, node);
    if (node_is_op(node, "VarHandleOp") && !is_variable_read(consumers, node))
        list->kept_bytes[group] += variable_bytes(node);
    while (i < end) {
        int output = consumers->edges[i].index, begin = i;
        struct schedule_value value = {.producer = p->unit_of[node->id],
                                       .first_edge = problem->n_edges};
        for (; i < end && consumers->edges[i].index == output; i++)
            if (is_followed(p, node, &consumers->edges[i]))
                list->edges[problem->n_edges++].consumer = p->unit_of[consumers->edges[i].dst->id];
        value.n_edges = problem->n_edges - value.first_edge;
        if (value.n_edges == 0) {
            if (output != CONTROL_EDGE && is_fetched(consumers, begin, i))
                list->kept_bytes[group] += cost_estimate_bytes(&p->estimates, node, output);
            continue;
        }
        value.bytes = output == CONTROL_EDGE ? 0 : cost_estimate_bytes(&p->estimates, node, output);
        list->values[problem->n_values++] = value;
    }
}

static void find_units(struct cost_placer *p) {
    struct schedule_problem *problem = &p->problem;
    const struct graph *graph = &p->c->graph;
    struct graph_consumers consumers;
    graph_consumers_init(&consumers, graph);
    graph_consumers_sort(&consumers, graph);
    for (int i = 0; i < graph->n_live; i++)
        if (is_unit(p->order[i]))
            p->unit_of[p->order[i]->id] = problem->n_units++;
    int n_edges = consumers.first[graph->n_nodes];
    struct value_list list = {
        .values = arena_array(&p->arena, struct schedule_value, n_edges + 1),
        .edges = arena_array(&p->arena, struct schedule_edge, n_edges + 1),
        .first_value = arena_array(&p->arena, int, problem->n_units + 2),
        .kept_bytes = arena_array(&p->arena, double, problem->n_groups + 1),
    };
    int *group = arena_array(&p->arena, int, problem->n_units + 1);
    double *cost_ns =
        arena_array(&p->arena, double, (size_t)problem->n_units *(size_t)problem->n_classes + 1);
    find_costs(p, group, cost_ns);
    for (int i = 0; i < graph->n_live; i++) {
        if (p->unit_of[p->order[i]->id] < 0)
            continue;
        add_values(p, &consumers, p->order[i], &list);
        list.first_value[p->unit_of[p->order[i]->id] + 1] = problem->n_values;
    }
    problem->group = group;
    problem->cost_ns = cost_ns;
    problem->values = list.values;
    problem->edges = list.edges;
    problem->first_value = list.first_value;
    problem->kept_bytes = list.kept_bytes;
    graph_consumers_fini(&consumers);
}

/* ---- all of it ---- */

static bool has_choice(const struct cost_placer *p) {
    for (int g = 0; g < p->problem.n_groups; g++)
        if (p->problem.fixed[g] < 0)
            return p->problem.n_devices > 1;
    return false;
}

void cost_placer_init(struct cost_placer *p, struct compilation *c, struct placer *placer,
                      const struct loop_frames *frames, struct node *const *order) {
    *p = (struct cost_placer){.c = c, .placer = placer, .frames = frames, .order = order};
    arena_init(&p->arena);
    p->unit_of = arena_array(&p->arena, int, c->graph.n_nodes + 1);
    p->group_of = arena_array(&p->arena, int, c->graph.n_nodes + 1);
    p->loop_group = arena_array(&p->arena, int, frames->n_frames + 1);
    p->first_in = arena_array(&p->arena, struct place_group *, c->graph.n_nodes + 1);
    memset(p->unit_of, -1, sizeof(int) * ((size_t)c->graph.n_nodes + 1));
    memset(p->group_of, -1, sizeof(int) * ((size_t)c->graph.n_nodes + 1));
    memset(p->loop_group, -1, sizeof(int) * ((size_t)frames->n_frames + 1));
    find_state(p);
    bool *is_fixed_loop = find_fixed_loops(p);
    find_devices(p);
    find_groups(p, is_fixed_loop);
    constrain_groups(p, is_fixed_loop);
    p->has_choice = has_choice(p);
    if (p->has_choice) {
        find_links(p);
        find_present(p);
        cost_estimates_init(&p->estimates, c, &p->arena);
        find_units(p);
    }
    free(is_fixed_loop);
}

void cost_placer_fini(struct cost_placer *p) { arena_fini(&p->arena); }

int cost_placer_group(const struct cost_placer *p, const struct node *node) {
    return is_unit(node) ? p->group_of[group_id(p, node)] : -1;
}
