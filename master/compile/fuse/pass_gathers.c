/* Makes one node of a GatherV2 and the reduction of the rows that it picks, so that these never
 * reach memory (kernels/cpu/fused/fused_gather.c) [WP 5.1].
 *
 *   g = GatherV2(words, ids, 0)   r = Mean(g, [1])
 *      =>  r = _MrFused(words, ids, 0, [1]) {program=[&GatherV2, &Mean]}
 *
 * The axis must be a constant zero, the axes of the reduction a constant, and the reduction the
 * only node that takes the gathered rows. No control edge leaves the GatherV2, and it is neither
 * fetched nor a target. A GatherV2 that reads a reference to a variable stays, since it must not
 * run later. Other shapes than the kernel has a way for run as before, one after the other: the
 * bits are always those of both nodes.
 *
 * The pass comes after `contract`. In a partial run both depend on the same feeds. */
#include <stdlib.h>

#include "common/graph/fused.h"
#include "common/graph/references.h"
#include "kernels/kernel.h"
#include "master/compile/compilation.h"
#include "master/compile/cost/cost_rows.h"

struct gatherer {
    struct compilation *c;
    struct graph_consumers consumers;
    bool *is_reference, *is_target; /* by node id */
    uint64_t *feed_sets;            /* by node id, in a partial run */
};

static bool is_reduction(const struct node *node) {
    static const char *const ops[] = {"Max", "Mean", "Min", "Prod", "Sum"};
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (node_is_op(node, ops[i]))
            return true;
    return false;
}

static bool is_plain(const struct gatherer *own, const struct node *node) {
    for (int i = 0; i < node->n_data; i++)
        if (own->is_reference[node->inputs[i].src->id])
            return false;
    return !node_has_ref(node) && kernel_find(node, "CPU");
}

/* Rows along the first axis. */
static bool gathers_rows(const struct node *gather) {
    int64_t batch_dims = 0;
    const struct tensor *axis = const_behind(gather->inputs[2].src);
    struct status *st = node_get_i(gather, "batch_dims", &batch_dims);
    status_unref(st);
    return !st && batch_dims == 0 && axis && gather->inputs[2].index == 0 &&
           axis->n_elements == 1 && tensor_index_at(axis, 0) == 0;
}

/* The GatherV2 whose rows the reduction takes; NULL: there is none that may be part of it. */
static struct node *gather_of(const struct gatherer *own, const struct node *reduction) {
    struct node *gather = reduction->inputs[0].src;
    int first = own->consumers.first[gather->id];
    bool is_only = own->consumers.first[gather->id + 1] == first + 1;
    return node_is_op(gather, "GatherV2") && is_only && !own->is_target[gather->id] &&
                   gather->placed == reduction->placed && is_plain(own, gather) &&
                   feed_sets_are_equal(own->feed_sets, gather, reduction) && gathers_rows(gather) &&
                   const_behind(reduction->inputs[1].src)
               ? gather
               : NULL;
}

static bool is_on_cpu(const struct gatherer *own, const struct node *node) {
    return node->placed >= 0 && strcmp(own->c->devices->devices[node->placed].type, "CPU") == 0;
}

static struct status *look_at(struct gatherer *own, struct node *node, bool *ret_changed) {
    if (node->is_removed || !is_reduction(node) || !is_on_cpu(own, node) || !is_plain(own, node))
        return NULL;
    struct node *gather = gather_of(own, node);
    if (!gather)
        return NULL;
    struct node *members[] = {gather, node};
    *ret_changed = true;
    cost_rows_join(own->c, members, 2);
    return fused_node_make(&own->c->graph, members, 2, (const bool[]){false, true});
}

struct status *pass_gathers(struct compilation *c, bool *ret_changed) {
    struct gatherer own = {.c = c};
    struct status *st = NULL;
    int n_nodes = c->graph.n_nodes;
    TRY(compile_feed_sets(c, &own.feed_sets));
    graph_consumers_init(&own.consumers, &c->graph);
    own.is_reference = graph_find_references(&c->graph, &own.consumers);
    own.is_target = compile_targets(c);
    for (int i = 0; i < n_nodes && !st; i++)
        st = look_at(&own, c->graph.nodes[i], ret_changed);
    graph_consumers_fini(&own.consumers);
    free(own.is_reference);
    return st;
}
