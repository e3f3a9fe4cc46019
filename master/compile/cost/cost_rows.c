/* Lists the nodes of a compiled step whose executions sampled steps measure. */
#include "master/compile/cost/cost_rows.h"

#include <math.h>

#include "common/graph/internal_ops.h"
#include "kernels/cost.h"
#include "kernels/kernel.h"
#include "master/compile/compilation.h"
#include "master/compile/cost/cost_table.h"

enum {
    UNKNOWN_SIZE = 32,   /* elements along a dimension of unknown size */
    RELEVANT_NS = 50000, /* of a step, as in place_cost.c */
};

struct shape cost_full_shape(struct arena *arena, struct shape shape) {
    static const int64_t unknown_dims[] = {-1};
    if (shape.rank == SHAPE_UNKNOWN_RANK)
        shape = (struct shape){1, unknown_dims};
    int64_t *dims = arena_array(arena, int64_t, shape.rank + 1);
    for (int d = 0; d < shape.rank; d++)
        dims[d] = shape.dims[d] < 0 ? UNKNOWN_SIZE : shape.dims[d];
    return (struct shape){shape.rank, dims};
}

static struct shape *input_shapes(struct arena *arena, const struct graph_shapes *shapes,
                                  const struct node *node) {
    struct shape *in = arena_array(arena, struct shape, node->n_data + 1);
    for (int i = 0; i < node->n_data; i++)
        in[i] = cost_full_shape(
            arena, graph_shapes_of(shapes, node->inputs[i].src, node->inputs[i].index));
    return in;
}

const char *cost_key_of(struct arena *arena, const struct graph_shapes *shapes,
                        const struct node *node, const char *device_type) {
    struct str key = STR_INIT;
    cost_key_write(&key, device_type, node, input_shapes(arena, shapes, node));
    const char *copy = arena_strdup(arena, str_text(&key));
    str_fini(&key);
    return copy;
}

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
        return node->name;
    return arena_printf(arena, "%s:%s", node->name, node->op_name);
}

static struct cost estimate(struct arena *arena, const struct graph_shapes *shapes,
                            const struct node *node, const char *device_type) {
    struct shape *in = input_shapes(arena, shapes, node);
    struct shape *out = arena_array(arena, struct shape, node->n_outputs + 1);
    for (int i = 0; i < node->n_outputs; i++)
        out[i] = cost_full_shape(arena, graph_shapes_of(shapes, node, i));
    return cost_of_shapes(device_type, node, in, out);
}

/* The table as it is now is that of the placement, but for a sample that came since. */
static struct compiled_cost compiled_cost(struct compilation *c, struct arena *scratch,
                                          const struct graph_shapes *shapes,
                                          const struct node *node) {
    const struct device_info *device = &c->devices->devices[node->placed];
    struct cost cost = estimate(scratch, shapes, node, device->type);
    const char *key = cost_key_of(scratch, shapes, node, device->type);
    double measured_ns = cost_table_find(c->options->costs, key);
    return (struct compiled_cost){
        .node = traced_name(&c->arena, node, device),
        .key = arena_strdup(&c->arena, key),
        .slowness = cost.ns > 0 ? device_slowness_ns(&device->slowness, &cost) / cost.ns : 1,
        .expected_ns = measured_ns > 0 ? measured_ns : cost.ns};
}

void cost_rows_find(struct compilation *c) {
    if (!c->options->costs)
        return;
    const struct graph_shapes *shapes = compilation_shapes(c);
    struct arena scratch;
    arena_init(&scratch);
    c->costs = arena_array(&c->arena, struct compiled_cost, c->graph.n_nodes + 1);
    for (int i = 0; i < c->graph.n_nodes; i++) {
        const struct node *node = c->graph.nodes[i];
        if (is_measurable(c, node))
            c->costs[c->n_costs++] = compiled_cost(c, &scratch, shapes, node);
    }
    arena_fini(&scratch);
}

double cost_rows_contradiction(const struct compiled *compiled, const double *expected_ns,
                               struct cost_table *table) {
    double expected = 0, measured = 0, difference = 0;
    for (int i = 0; i < compiled->n_costs; i++) {
        const struct compiled_cost *cost = &compiled->costs[i];
        double ns = cost_table_find(table, cost->key) * cost->slowness;
        double taken_ns = (expected_ns ? expected_ns[i] : cost->expected_ns) * cost->slowness;
        if (ns == 0)
            continue;
        expected += taken_ns;
        measured += ns;
        difference += fabs(ns - taken_ns);
    }
    return difference < RELEVANT_NS ? 0 : difference / (expected + measured);
}

void cost_rows_keep(const struct compilation *c, struct compiled *compiled) {
    compiled->n_costs = c->n_costs;
    compiled->costs = arena_array(&compiled->arena, struct compiled_cost, c->n_costs + 1);
    for (int i = 0; i < c->n_costs; i++) {
        compiled->costs[i] = c->costs[i];
        compiled->costs[i].node = arena_strdup(&compiled->arena, c->costs[i].node);
        compiled->costs[i].key = arena_strdup(&compiled->arena, c->costs[i].key);
    }
}
