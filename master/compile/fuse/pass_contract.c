/* Puts a product in front of the fused program that takes it, so that the elementwise ops behind it
 * run on its elements while a cache has them (common/graph/fused.h) [WP 5.1].
 *
 *   c = Conv2D(x, w)   r = _MrFused(c, b) {program=[&BiasAdd, &Relu]}
 *      =>  r = _MrFused(x, w, b) {program=[&Conv2D, &BiasAdd, &Relu]}
 *
 * A single elementwise node becomes a program, too. A program with reductions is computed row by
 * row, and takes no product. All edges from the product go to the one node that takes it, so no
 * cycle arises, and no value comes to wait for what it did not wait for. Only the product runs
 * later than before, after the other operands of its taker:
 *
 *   - A product that reads a reference to a variable must not run later.
 *   - Where another operand takes as long as the product (the sum of two products), both would run
 *     one after the other. So each other operand has a smaller depth than the product: the largest
 *     number of nodes on a path to it that are not elementwise.
 *
 * The pass comes after `fuse`. In a partial run the taker depends on the same feeds as the product,
 * as with that pass. */
#include <stdlib.h>

#include "common/graph/fused.h"
#include "common/graph/graph_controls.h"
#include "common/graph/references.h"
#include "kernels/kernel.h"
#include "master/compile/compilation.h"
#include "master/compile/cost/cost_rows.h"
#include "master/compile/fuse/fuse.h"

struct contractor {
    struct compilation *c;
    struct graph_consumers consumers;
    bool *is_reference, *is_target, *has_product; /* by node id */
    int *depth;                                   /* by node id */
    uint64_t *feed_sets;                          /* by node id, in a partial run */
};

static bool has_flag(const struct node *node, enum kernel_flags flag) {
    const struct kernel_def *def = kernel_find(node, "CPU");
    return def && (def->flags & flag);
}

/* ---- depths ---- */

static void find_depths(struct contractor *own, struct node *const *order) {
    for (int i = 0; i < own->c->graph.n_live; i++) {
        const struct node *node = order[i];
        bool is_light = node_is_op(node, OP_FUSED) || has_flag(node, KERNEL_ELEMENTWISE);
        int depth = 0, is_crossed = 0;
        for (int k = 0; k < node->n_inputs; k++) {
            const struct node *src = node->inputs[k].src;
            if (node_is_either(src, "NextIteration", "RefNextIteration"))
                continue;
            is_crossed |= src->placed != node->placed;
            depth = MAX(depth, own->depth[src->id]);
        }
        own->depth[node->id] = depth + ((node->n_inputs > 0 && !is_light) || is_crossed);
    }
}

static bool is_deepest_operand(const struct contractor *own, const struct node *taker,
                               const struct node *product) {
    for (int i = 0; i < taker->n_inputs; i++) {
        const struct node *src = taker->inputs[i].src;
        if (src != product && own->depth[src->id] >= own->depth[product->id])
            return false;
    }
    return true;
}

/* ---- who takes part ---- */

static bool is_on_cpu(const struct contractor *own, const struct node *node) {
    return node->placed >= 0 && strcmp(own->c->devices->devices[node->placed].type, "CPU") == 0;
}

static bool is_product(const struct contractor *own, const struct node *node) {
    if (node->n_outputs != 1 || own->is_target[node->id] || node_has_ref(node) ||
        !is_on_cpu(own, node) || !has_flag(node, KERNEL_PRODUCT))
        return false;
    for (int i = 0; i < node->n_data; i++)
        if (own->is_reference[node->inputs[i].src->id])
            return false;
    return true;
}

/* A channel in the middle has no blocks. */
static bool has_middle_channels(const struct node *node) {
    const struct attr_value *format = node_attr(node, "data_format");
    return format && !(format->type == ATTR_STRING && span_is(format->s, "NHWC"));
}

static bool may_take(const struct contractor *own, const struct node *node,
                     const struct node *product) {
    if (node->placed != product->placed || own->has_product[node->id] ||
        !feed_sets_are_equal(own->feed_sets, node, product))
        return false;
    if (node_is_op(node, OP_FUSED)) {
        const struct attr_value *program = node_attr(node, "program");
        return program->list.n_values < FUSED_MAX_INSTRUCTIONS && !fuse_has_reduction(node);
    }
    return has_flag(node, KERNEL_ELEMENTWISE) && node->n_outputs == 1 &&
           !own->is_target[node->id] && !node_has_ref(node) && !has_middle_channels(node);
}

/* The only node that takes the product's value, and that any edge from it goes to; NULL: there are
 * several, or none. */
static struct node *only_taker(const struct contractor *own, const struct node *product) {
    struct node *taker = NULL;
    bool takes_value = false;
    for (int k = own->consumers.first[product->id]; k < own->consumers.first[product->id + 1];
         k++) {
        const struct node_output_edge *edge = &own->consumers.edges[k];
        if (taker && edge->dst != taker)
            return NULL;
        taker = edge->dst;
        takes_value |= edge->index != CONTROL_EDGE;
    }
    return takes_value ? taker : NULL;
}

/* ---- the rewrite ---- */

static struct status *contract(struct contractor *own, struct node *product, bool *ret_changed) {
    struct graph *graph = &own->c->graph;
    struct node *taker = is_product(own, product) ? only_taker(own, product) : NULL;
    if (!taker || taker->is_removed || !may_take(own, taker, product) ||
        !is_deepest_operand(own, taker, product))
        return NULL;
    struct node *members[] = {product, taker};
    *ret_changed = own->has_product[taker->id] = true;
    cost_rows_join(own->c, members, 2);
    if (node_is_op(taker, OP_FUSED))
        return fused_node_prepend(graph, taker, product);
    return fused_node_make(graph, members, 2, (const bool[]){false, true});
}

struct status *pass_contract(struct compilation *c, bool *ret_changed) {
    struct contractor own = {.c = c};
    struct node **order;
    struct status *st = NULL;
    TRY(compile_feed_sets(c, &own.feed_sets));
    TRY(graph_topological_order(&c->graph, &order));
    int n_live = c->graph.n_live;
    graph_consumers_init(&own.consumers, &c->graph);
    own.is_reference = graph_find_references(&c->graph, &own.consumers);
    own.is_target = compile_targets(c);
    own.has_product = arena_array(&c->arena, bool, c->graph.n_nodes + 1);
    own.depth = arena_array(&c->arena, int, c->graph.n_nodes + 1);
    find_depths(&own, order);
    for (int i = 0; i < n_live; i++)
        TRY_OUT(contract(&own, order[i], ret_changed));
out:
    graph_consumers_fini(&own.consumers);
    free(own.is_reference);
    free(order);
    return st;
}
