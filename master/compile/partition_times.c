/* When the nodes of a step run, and what they may wait for, before the graph is cut: by a
 * simulation of the step on its devices (schedule.h). For the scheduling of receives, and of nodes
 * with large values.
 *
 * The nodes have an order, by start and then topological, in which every edge leads forwards but
 * those from a loop's NextIteration. */
#include <stdlib.h>
#include <math.h>

#include "kernels/kernel.h"
#include "master/compile/cost_estimate.h"
#include "master/compile/partition.h"

enum { MAX_WAITERS = 63 };
_Static_assert(NODE_TIME_LOST == UINT64_C(1) << MAX_WAITERS, "a bit for each, and one more");

/* ---- simulating the step ---- */

struct timing {
    struct partitioner *p;
    struct node *const *order;
    struct cost_estimates estimates;
    struct arena arena;
    int *device_in;      /* by device of the table: its index in the problem; -1 */
    int *device_of_unit; /* in the problem */
    int *unit_of;        /* by node id; -1 */
    int *first_device;   /* by index in the problem: a device of the table */
    struct schedule_problem problem;
};

/* All devices of one type in a task count as one, as in place_cost.c. */
static int device_in_problem(struct timing *t, int device) {
    const struct device_info *all = t->p->devices->devices;
    int first = t->p->devices->tasks[all[device].task].first_device;
    while (strcmp(all[first].type, all[device].type) != 0)
        first++;
    if (t->device_in[first] < 0) {
        t->device_in[first] = t->problem.n_devices;
        t->first_device[t->problem.n_devices++] = first;
    }
    return t->device_in[first];
}

static bool is_way_back(const struct node *src) {
    return node_is_either(src, "NextIteration", "RefNextIteration");
}

static void add_units(struct timing *t) {
    const struct partitioner *p = t->p;
    double *cost_ns = arena_array(&t->arena, double, p->c->graph.n_live + 1);
    for (int i = 0; i < p->c->graph.n_live; i++) {
        const struct node *node = t->order[i];
        int device = device_in_problem(t, node->placed);
        t->unit_of[node->id] = i;
        t->device_of_unit[i] = device;
        cost_ns[i] =
            cost_estimate_ns(&t->estimates, node, &p->devices->devices[t->first_device[device]]);
        if (p->frames.outermost[MAX(p->frames.in[node->id], p->frames.out[node->id])] != 0)
            cost_ns[i] *= COST_LOOP_TRIPS;
    }
    t->problem.cost_ns = cost_ns;
    t->problem.n_units = t->problem.n_groups = p->c->graph.n_live;
}

static void add_devices(struct timing *t) {
    const struct device_info *all = t->p->devices->devices;
    int n = t->problem.n_devices;
    struct schedule_device *devices = arena_array(&t->arena, struct schedule_device, n + 1);
    struct schedule_link *links = arena_array(&t->arena, struct schedule_link, n * n + 1);
    for (int i = 0; i < n; i++) {
        devices[i] = (struct schedule_device){.memory_bytes = INFINITY, .n_lanes = 1};
        for (int k = 0; k < n; k++)
            links[i * n + k] =
                cost_estimate_link(t->p->c, &all[t->first_device[i]], &all[t->first_device[k]]);
    }
    t->problem.devices = devices;
    t->problem.links = links;
    t->problem.n_classes = 1;
}

/* One value for each output that somebody takes, and one for the control edges. The consumers are
 * sorted by output. */
static void add_values(struct timing *t, const struct graph_consumers *consumers) {
    struct schedule_problem *problem = &t->problem;
    int n_edges = consumers->first[t->p->c->graph.n_nodes];
    struct schedule_value *values = arena_array(&t->arena, struct schedule_value, n_edges + 1);
    struct schedule_edge *edges = arena_array(&t->arena, struct schedule_edge, n_edges + 1);
    int *first_value = arena_array(&t->arena, int, problem->n_units + 2);
    for (int unit = 0; unit < problem->n_units; unit++) {
        const struct node *node = t->order[unit];
        int i = consumers->first[node->id], end = consumers->first[node->id + 1];
        while (i < end && !is_way_back(node)) {
            int output = consumers->edges[i].index;
            struct schedule_value value = {.producer = unit, .first_edge = problem->n_edges};
            for (; i < end && consumers->edges[i].index == output; i++)
                edges[problem->n_edges++].consumer = t->unit_of[consumers->edges[i].dst->id];
            value.n_edges = problem->n_edges - value.first_edge;
            if (output != CONTROL_EDGE && !partitioner_is_copied(node))
                value.bytes = cost_estimate_bytes(&t->estimates, node, output);
            values[problem->n_values++] = value;
        }
        first_value[unit + 1] = problem->n_values;
    }
    problem->values = values;
    problem->edges = edges;
    problem->first_value = first_value;
}

/* Starts and ends of all nodes. A start is at least that of each input, whatever the simulation and
 * its rounding say, because the order of the nodes depends on it. */
static void simulate(struct timing *t, struct node_time *times) {
    int n = t->problem.n_units;
    int *group = arena_array(&t->arena, int, n + 1);
    for (int i = 0; i < n; i++)
        group[i] = i;
    t->problem.group = group;
    struct schedule *schedule = schedule_new(&t->problem);
    schedule_run(schedule, t->device_of_unit);
    for (int i = 0; i < n; i++) {
        const struct node *node = t->order[i];
        struct node_time *time = &times[node->id];
        time->order = i;
        time->end_ns = schedule_ends_ns(schedule)[i];
        time->start_ns = time->end_ns - t->problem.cost_ns[i];
        for (int k = 0; k < node->n_inputs; k++)
            if (!is_way_back(node->inputs[k].src))
                time->start_ns = MAX(time->start_ns, times[node->inputs[k].src->id].start_ns);
    }
    schedule_free(schedule);
}

/* ---- waiting for what the graph does not show ---- */

/* Kernels do not block, so only an asynchronous one can wait for more than its inputs. */
static bool is_waiter(const struct partitioner *p, const struct node *node) {
    const struct kernel_def *def = kernel_find(node, p->devices->devices[node->placed].type);
    return !node_is_internal(node) &&
           (!def || (def->flags & KERNEL_ASYNC) || node_uses_functions(node));
}

/* A Merge waits for one of its data inputs only. */
static uint64_t must_of_inputs(const struct node *node, const struct node_time *times) {
    bool is_merge = node_is_either(node, "Merge", "RefMerge");
    uint64_t all = 0, common = is_merge && node->n_data > 0 ? ~UINT64_C(0) : 0;
    for (int i = 0; i < node->n_inputs; i++) {
        const struct node *src = node->inputs[i].src;
        if (is_merge && i < node->n_data)
            common &= is_way_back(src) ? 0 : times[src->id].must;
        else if (!is_way_back(src))
            all |= times[src->id].must;
    }
    return all | common;
}

static void find_waits(const struct partitioner *p, struct node *const *order,
                       struct node_time *times) {
    int n_waiters = 0;
    for (int i = 0; i < p->c->graph.n_live; i++) {
        const struct node *node = order[i];
        struct node_time *time = &times[node->id];
        for (int k = 0; k < node->n_inputs; k++)
            if (!is_way_back(node->inputs[k].src))
                time->may |= times[node->inputs[k].src->id].may;
        time->must = must_of_inputs(node, times);
        if (node_is_either(node, "Exit", "RefExit"))
            time->may |= NODE_TIME_LOST;
        if (!is_waiter(p, node))
            continue;
        uint64_t bit = n_waiters < MAX_WAITERS ? UINT64_C(1) << n_waiters++ : NODE_TIME_LOST;
        time->may |= bit;
        time->must |= bit & ~NODE_TIME_LOST;
    }
}

struct status *partitioner_time_nodes(struct partitioner *p) {
    struct graph *graph = &p->c->graph;
    struct timing t = {.p = p};
    struct graph_consumers consumers;
    struct node **order;
    TRY(graph_topological_order(graph, &order));
    arena_init(&t.arena);
    graph_consumers_init(&consumers, graph);
    graph_consumers_sort(&consumers, graph);
    p->times = arena_array(&p->c->arena, struct node_time, graph->n_nodes + 1);
    t.order = order;
    t.device_in = arena_array(&t.arena, int, p->devices->n_devices + 1);
    t.first_device = arena_array(&t.arena, int, p->devices->n_devices + 1);
    memset(t.device_in, -1, sizeof(int) * ((size_t)p->devices->n_devices + 1));
    t.device_of_unit = arena_array(&t.arena, int, graph->n_live + 1);
    t.unit_of = arena_array(&t.arena, int, graph->n_nodes + 1);
    cost_estimates_init(&t.estimates, p->c, &t.arena);
    add_units(&t);
    add_devices(&t);
    add_values(&t, &consumers);
    simulate(&t, p->times);
    find_waits(p, order, p->times);
    graph_consumers_fini(&consumers);
    arena_fini(&t.arena);
    free(order);
    return NULL;
}
