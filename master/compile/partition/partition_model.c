/* Makes the problem of a placed step for the simulation, and tries late values in it
 * (partition_model.h). */
#include "master/compile/partition/partition_model.h"

#include <math.h>
#include <stdlib.h>

#include "master/compile/cost/cost_estimate.h"

/* ---- the problem ---- */

struct maker {
    const struct partitioner *p;
    struct node *const *order;
    struct step_model *model;
    struct cost_estimates estimates;
    int *device_in; /* by device of the table, the first of its type: its index in the problem */
};

/* All devices of one type in a task count as one, as in place_cost.c: the first. */
static int first_of_type(const struct maker *m, int device) {
    const struct device_info *all = m->p->devices->devices;
    int first = m->p->devices->tasks[all[device].task].first_device;
    while (strcmp(all[first].type, all[device].type) != 0)
        first++;
    return first;
}

/* In the order of the table, so that models of one graph have the same devices. */
static void number_devices(struct maker *m) {
    const struct device_table *table = m->p->devices;
    struct step_model *model = m->model;
    m->device_in = arena_array(&model->arena, int, table->n_devices + 1);
    model->first_device = arena_array(&model->arena, int, table->n_devices + 1);
    for (int i = 0; i < m->p->c->graph.n_live; i++)
        m->device_in[first_of_type(m, m->order[i]->placed)] = 1;
    for (int device = 0; device < table->n_devices; device++) {
        if (m->device_in[device] == 0)
            continue;
        m->device_in[device] = model->problem.n_devices;
        model->first_device[model->problem.n_devices++] = device;
    }
}

static void add_units(struct maker *m) {
    const struct partitioner *p = m->p;
    struct step_model *model = m->model;
    int n = p->c->graph.n_live;
    double *cost_ns = arena_array(&model->arena, double, n + 1);
    int *group = arena_array(&model->arena, int, n + 1);
    for (int i = 0; i < n; i++) {
        const struct node *node = m->order[i];
        int device = m->device_in[first_of_type(m, node->placed)];
        group[i] = i;
        model->unit_of[node->id] = i;
        model->device_of_unit[i] = device;
        cost_ns[i] = cost_estimate_ns(&m->estimates, node,
                                      &p->devices->devices[model->first_device[device]]);
        if (p->frames.outermost[MAX(p->frames.in[node->id], p->frames.out[node->id])] != 0)
            cost_ns[i] *= COST_LOOP_TRIPS;
    }
    model->problem.cost_ns = cost_ns;
    model->problem.group = group;
    model->problem.n_units = model->problem.n_groups = n;
}

static void add_devices(struct maker *m) {
    const struct device_info *all = m->p->devices->devices;
    struct step_model *model = m->model;
    int n = model->problem.n_devices;
    struct schedule_device *devices = arena_array(&model->arena, struct schedule_device, n + 1);
    struct schedule_link *links = arena_array(&model->arena, struct schedule_link, n * n + 1);
    for (int i = 0; i < n; i++) {
        devices[i] = (struct schedule_device){.memory_bytes = INFINITY,
                                              .n_lanes = all[model->first_device[i]].n_lanes};
        for (int k = 0; k < n; k++)
            links[i * n + k] = cost_estimate_link(m->p->c, &all[model->first_device[i]],
                                                  &all[model->first_device[k]]);
    }
    model->problem.devices = devices;
    model->problem.links = links;
    model->problem.n_classes = 1;
}

/* One value for each output that somebody takes, and one for the control edges. The consumers are
 * sorted by output. */
static void add_values(struct maker *m, const struct graph_consumers *consumers) {
    struct step_model *model = m->model;
    struct schedule_problem *problem = &model->problem;
    int n_edges = consumers->first[m->p->c->graph.n_nodes];
    struct schedule_value *values = arena_array(&model->arena, struct schedule_value, n_edges + 1);
    struct schedule_edge *edges = arena_array(&model->arena, struct schedule_edge, n_edges + 1);
    int *first_value = arena_array(&model->arena, int, problem->n_units + 2);
    model->output_of = arena_array(&model->arena, int, n_edges + 1);
    for (int unit = 0; unit < problem->n_units; unit++) {
        const struct node *node = m->order[unit];
        int i = consumers->first[node->id], end = consumers->first[node->id + 1];
        while (i < end && !node_is_way_back(node)) {
            int output = consumers->edges[i].index;
            struct schedule_value value = {.producer = unit, .first_edge = problem->n_edges};
            for (; i < end && consumers->edges[i].index == output; i++)
                edges[problem->n_edges++].consumer = model->unit_of[consumers->edges[i].dst->id];
            value.n_edges = problem->n_edges - value.first_edge;
            if (output != CONTROL_EDGE && !partitioner_is_copied(node))
                value.bytes = cost_estimate_bytes(&m->estimates, node, output);
            model->output_of[problem->n_values] = output;
            values[problem->n_values++] = value;
        }
        first_value[unit + 1] = problem->n_values;
    }
    problem->values = model->values = values;
    problem->edges = edges;
    problem->first_value = first_value;
}

struct step_model *step_model_new(const struct partitioner *p, struct node *const *order) {
    const struct graph *graph = &p->c->graph;
    struct step_model *model = xcalloc(1, sizeof(*model));
    struct maker m = {.p = p, .order = order, .model = model};
    struct graph_consumers consumers;
    arena_init(&model->arena);
    graph_consumers_init(&consumers, graph);
    graph_consumers_sort(&consumers, graph);
    model->device_of_unit = arena_array(&model->arena, int, graph->n_live + 1);
    model->unit_of = arena_array(&model->arena, int, graph->n_nodes + 1);
    cost_estimates_init(&m.estimates, p->c, &model->arena);
    number_devices(&m);
    add_units(&m);
    add_devices(&m);
    add_values(&m, &consumers);
    graph_consumers_fini(&consumers);
    model->schedule = schedule_new(&model->problem);
    return model;
}

void step_model_free(struct step_model *model) {
    if (!model)
        return;
    schedule_free(model->schedule);
    arena_fini(&model->arena);
    free(model);
}

/* ---- gates ---- */

int *step_model_new_gates(struct step_model *model) {
    int *gates = arena_array(&model->arena, int, model->problem.n_edges + 1);
    memset(gates, -1, sizeof(*gates) * ((size_t)model->problem.n_edges + 1));
    return gates;
}

static int value_of(const struct step_model *model, const struct node *src, int index) {
    int unit = model->unit_of[src->id];
    for (int v = model->problem.first_value[unit]; v < model->problem.first_value[unit + 1]; v++)
        if (model->output_of[v] == index)
            return v;
    return -1;
}

void step_model_set_gate(const struct step_model *model, const struct partitioner *p, int *gates,
                         const struct node *src, int index, int task, const struct node *gate) {
    int v = value_of(model, src, index);
    if (v < 0)
        return;
    const struct schedule_value *value = &model->problem.values[v];
    for (int edge = value->first_edge; edge < value->first_edge + value->n_edges; edge++) {
        int device = model->device_of_unit[model->problem.edges[edge].consumer];
        if (p->devices->devices[model->first_device[device]].task == task)
            gates[edge] = gate ? model->unit_of[gate->id] : -1;
    }
}

void step_model_keep(struct step_model *model, const struct node *src, int index) {
    int v = value_of(model, src, index);
    if (v >= 0)
        model->values[v].is_kept = true;
}

/* ---- trials ---- */

/* The lanes are those that the device tells, times `lanes`; 0: one. */
static const struct world {
    int lanes;
    double link_times;
} worlds[STEP_N_WORLDS] = {{1, 1}, {0, 1}, {4, 4}};

static const double LONGER = 1.005, HIGHER = 1 + 1e-9, RELEVANTLY_LOWER = 0.98;

enum { MAX_LANES = 1 << 20 };

void step_model_run(struct step_model *model, int world, const int *gates,
                    struct step_result *ret) {
    struct schedule_problem *problem = &model->problem, told = *problem;
    const struct world *w = &worlds[world];
    int n = problem->n_devices;
    struct schedule_device *devices = xcalloc((size_t)n + 1, sizeof(*devices));
    struct schedule_link *links = xcalloc((size_t)(n * n) + 1, sizeof(*links));
    for (int d = 0; d < n; d++) {
        devices[d] = told.devices[d];
        devices[d].n_lanes = MIN(MAX(devices[d].n_lanes * w->lanes, 1), MAX_LANES);
    }
    for (int i = 0; i < n * n; i++)
        links[i] = (struct schedule_link){told.links[i].latency_ns * w->link_times,
                                          told.links[i].ns_per_byte * w->link_times};
    problem->devices = devices;
    problem->links = links;
    problem->gate = gates;
    ret->makespan_ns = schedule_run(model->schedule, model->device_of_unit).makespan_ns;
    ret->peak_bytes = arena_memdup(&model->arena, schedule_peak_bytes(model->schedule),
                                   sizeof(double) * ((size_t)n + 1));
    *problem = told;
    free(devices);
    free(links);
}

bool step_result_is_harmless(const struct step_result *late, const struct step_result *at_once,
                             int n_devices) {
    bool is_harmless = late->makespan_ns <= at_once->makespan_ns * LONGER;
    for (int d = 0; d < n_devices; d++)
        is_harmless &= late->peak_bytes[d] <= at_once->peak_bytes[d] * HIGHER;
    return is_harmless;
}

/* With one lane on every device, the second world is as the first. */
static bool is_world(const struct step_model *model, int world) {
    bool has_lanes = false;
    for (int d = 0; d < model->problem.n_devices; d++)
        has_lanes |= model->problem.devices[d].n_lanes > 1;
    return has_lanes || worlds[world].lanes > 0;
}

void step_trial_init(struct step_trial *trial, struct step_model *model) {
    const int *none = step_model_new_gates(model);
    *trial = (struct step_trial){0};
    for (int world = 0; world < STEP_N_WORLDS; world++)
        if (is_world(model, world))
            step_model_run(model, world, none, &trial->without[world]);
    trial->lowest_bytes = trial->without[0].peak_bytes;
}

enum step_verdict step_trial_run(struct step_trial *trial, struct step_model *model,
                                 const int *gates) {
    double *peak_bytes = NULL;
    bool is_lower = false;
    for (int world = 0; world < STEP_N_WORLDS; world++) {
        struct step_result late;
        if (!is_world(model, world))
            continue;
        step_model_run(model, world, gates, &late);
        if (!step_result_is_harmless(&late, &trial->without[world], model->problem.n_devices))
            return STEP_HARMS;
        if (world > 0)
            continue;
        peak_bytes = late.peak_bytes;
        for (int d = 0; d < model->problem.n_devices; d++)
            is_lower |= peak_bytes[d] < trial->lowest_bytes[d] * RELEVANTLY_LOWER;
        if (!is_lower)
            return STEP_GAINS_NOTHING;
    }
    trial->lowest_bytes = peak_bytes;
    return STEP_PAYS;
}
