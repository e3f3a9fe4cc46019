/* Lists the nodes of a compiled step whose executions sampled steps measure, and divides what a
 * program takes among its nodes. */
#include "master/compile/cost/cost_rows.h"

#include <math.h>

#include "common/graph/internal_ops.h"
#include "kernels/cost.h"
#include "kernels/kernel.h"
#include "master/compile/compilation.h"
#include "master/compile/cost/cost_table.h"
#include "master/compile/cost/expected_shapes.h"

enum { RELEVANT_NS = 50000 /* of a step, as in place_cost.c */ };

/* ---- keys ---- */

static const char *key_of(struct arena *arena, const struct graph_shapes *shapes,
                          const struct node *node, const char *device_type) {
    struct str key = STR_INIT;
    struct shape *in = arena_array(arena, struct shape, node->n_data + 1);
    for (int i = 0; i < node->n_data; i++)
        in[i] = graph_shapes_of(shapes, node->inputs[i].src, node->inputs[i].index);
    cost_key_write(&key, device_type, node, in);
    const char *copy = arena_strdup(arena, str_text(&key));
    str_fini(&key);
    return copy;
}

static bool has_guesses(const struct compilation *c, const struct node *node) {
    for (int i = 0; i < node->n_data; i++)
        if (expected_is_guessed(c, node->inputs[i].src))
            return true;
    return false;
}

/* The key under which the node's executions will be noted. */
static const char *own_key(const struct compilation *c, const struct graph_shapes *expected,
                           struct arena *arena, const struct node *node, const char *device_type) {
    return key_of(arena, has_guesses(c, node) ? &c->shapes : expected, node, device_type);
}

/* `key` is its own_key. */
static double measured_ns(const struct compilation *c, const struct graph_shapes *expected,
                          struct arena *scratch, const struct node *node, const char *device_type,
                          const char *key) {
    double ns = cost_table_find(c->options->costs, key);
    if (ns > 0 || expected == &c->shapes || has_guesses(c, node))
        return ns;
    return cost_table_find(c->options->costs, key_of(scratch, &c->shapes, node, device_type));
}

double cost_measured_ns(const struct compilation *c, const struct graph_shapes *expected,
                        struct arena *scratch, const struct node *node, const char *device_type) {
    return measured_ns(c, expected, scratch, node, device_type,
                       own_key(c, expected, scratch, node, device_type));
}

/* ---- nodes ---- */

/* What waits, or hands values on, costs nothing that a placer could save. */
static bool is_measurable(const struct compilation *c, const struct node *node) {
    if (node->is_removed || node_is_internal(node) || node->n_data == 0 || node->placed < 0)
        return false;
    const struct kernel_def *def = kernel_find(node, c->devices->devices[node->placed].type);
    return !def || !(def->flags & KERNEL_ASYNC);
}

/* What the node's executions are called in traces. The host's row of a node of another device has
 * the time in which the host enqueued it; the device's row is called NAME:OP. */
static const char *traced_name(struct arena *arena, const struct node *node,
                               const struct device_info *device) {
    if (strcmp(device->type, "CPU") == 0)
        return arena_strdup(arena, node->name);
    return arena_printf(arena, "%s:%s", node->name, node->op_name);
}

static struct cost estimate(struct arena *arena, const struct graph_shapes *shapes,
                            const struct node *node, const char *device_type) {
    struct shape *in = arena_array(arena, struct shape, node->n_data + 1);
    struct shape *out = arena_array(arena, struct shape, node->n_outputs + 1);
    for (int i = 0; i < node->n_data; i++)
        in[i] = expected_full_shape(
            arena, graph_shapes_of(shapes, node->inputs[i].src, node->inputs[i].index));
    for (int i = 0; i < node->n_outputs; i++)
        out[i] = expected_full_shape(arena, graph_shapes_of(shapes, node, i));
    return cost_of_shapes(device_type, node, in, out);
}

/* The table as it is now is that of the placement, but for a sample that came since. */
static struct compiled_cost compiled_cost(struct compilation *c, struct arena *scratch,
                                          const struct graph_shapes *shapes,
                                          const struct node *node) {
    const struct device_info *device = &c->devices->devices[node->placed];
    struct cost cost = estimate(scratch, shapes, node, device->type);
    const char *key = own_key(c, shapes, scratch, node, device->type);
    double known_ns = measured_ns(c, shapes, scratch, node, device->type, key);
    double estimated_ns = device_slowness_ns(&device->slowness, &cost);
    const struct kernel_def *def = kernel_find(node, device->type);
    return (struct compiled_cost){.key = arena_strdup(&c->arena, key),
                                  .slowness = cost.ns > 0 ? estimated_ns / cost.ns : 1,
                                  .expected_ns = known_ns > 0 ? known_ns : cost.ns,
                                  .next = -1,
                                  .is_product = def && (def->flags & KERNEL_PRODUCT),
                                  .is_measured = known_ns > 0};
}

void cost_rows_find(struct compilation *c) {
    if (!c->options->costs)
        return;
    const struct graph_shapes *shapes = expected_shapes(c);
    struct arena scratch;
    arena_init(&scratch);
    c->costs = arena_array(&c->arena, struct compiled_cost, c->graph.n_nodes + 1);
    c->cost_of = arena_array(&c->arena, int, c->graph.n_nodes + 1);
    c->n_cost_ids = c->graph.n_nodes;
    for (int i = 0; i < c->graph.n_nodes; i++) {
        const struct node *node = c->graph.nodes[i];
        c->cost_of[i] = -1;
        if (!is_measurable(c, node))
            continue;
        c->cost_of[i] = c->n_costs;
        c->costs[c->n_costs++] = compiled_cost(c, &scratch, shapes, node);
    }
    arena_fini(&scratch);
}

/* What the node was taken to cost on its device. */
static double taken_ns(const struct compiled_cost *cost) {
    return cost->expected_ns * cost->slowness;
}

/* ---- programs ---- */

/* The first row of the node; -1: it has none, or is younger than the list. */
static int first_row(const struct compilation *c, const struct node *node) {
    return node->id < c->n_cost_ids ? c->cost_of[node->id] : -1;
}

void cost_rows_join(struct compilation *c, struct node *const *members, int n_members) {
    int first = -1, *end = &first;
    for (int i = 0; i < n_members; i++) {
        *end = first_row(c, members[i]);
        if (members[i]->id < c->n_cost_ids)
            c->cost_of[members[i]->id] = -1;
        while (*end >= 0)
            end = &c->costs[*end].next;
    }
    if (first >= 0 && members[n_members - 1]->id < c->n_cost_ids)
        c->cost_of[members[n_members - 1]->id] = first;
}

double cost_rows_program_ns(const struct compilation *c, const struct node *program) {
    double ns = 0;
    for (int i = first_row(c, program); i >= 0; i = c->costs[i].next) {
        if (!c->costs[i].is_measured)
            return 0;
        ns += taken_ns(&c->costs[i]);
    }
    return ns;
}

void cost_rows_share(const struct compiled *compiled, int first, double ns,
                     void (*fn)(void *arg, const struct compiled_cost *cost, double ns),
                     void *arg) {
    const struct compiled_cost *costs = compiled->costs;
    double all_ns = 0, rest_ns = ns;
    for (int i = first; i >= 0; i = costs[i].next)
        all_ns += taken_ns(&costs[i]);
    double scale = all_ns > 0 ? ns / all_ns : 0;
    if (costs[first].is_product)
        scale = fmin(scale, 1);
    for (int i = costs[first].next; i >= 0; i = costs[i].next) {
        double share_ns = taken_ns(&costs[i]) * scale;
        fn(arg, &costs[i], share_ns);
        rest_ns -= share_ns;
    }
    fn(arg, &costs[first], rest_ns);
}

/* ---- the list of a compiled step ---- */

double cost_rows_contradiction(const struct compiled *compiled, const double *expected_ns,
                               struct cost_table *table) {
    double expected = 0, measured = 0, difference = 0;
    for (int i = 0; i < compiled->n_costs; i++) {
        const struct compiled_cost *cost = &compiled->costs[i];
        double ns = cost_table_find(table, cost->key) * cost->slowness;
        double before_ns = expected_ns ? expected_ns[i] * cost->slowness : taken_ns(cost);
        if (ns == 0)
            continue;
        expected += before_ns;
        measured += ns;
        difference += fabs(ns - before_ns);
    }
    return difference < RELEVANT_NS ? 0 : difference / (expected + measured);
}

void cost_rows_keep(const struct compilation *c, struct compiled *compiled) {
    compiled->n_costs = c->n_costs;
    compiled->costs = arena_array(&compiled->arena, struct compiled_cost, c->n_costs + 1);
    for (int i = 0; i < c->n_costs; i++) {
        compiled->costs[i] = c->costs[i];
        compiled->costs[i].key = arena_strdup(&compiled->arena, c->costs[i].key);
    }
    for (int id = 0; id < c->n_cost_ids; id++) {
        const struct node *node = c->graph.nodes[id];
        if (c->cost_of[id] >= 0 && !node->is_removed)
            compiled->costs[c->cost_of[id]].node =
                traced_name(&compiled->arena, node, &c->devices->devices[node->placed]);
    }
}
