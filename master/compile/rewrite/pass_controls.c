/* Control edges that say nothing new: NoOps in the middle are bypassed, and an edge is removed if
 * its consumer waits for the producer in another way.
 *
 *   g = NoOp(^a)   r = Neg(x, ^g)              =>  r = Neg(x, ^a)
 *   b = Exp(a)     r = Neg(b, ^a)              =>  r = Neg(b)
 *
 * A NoOp is bypassed if the new edges cost no more than the NoOp and its edges (p inputs, c
 * consumers: p·c <= p + c + NOOP_EDGES), and if it does not join edges of one device into one edge
 * to another: groups are made for that. TensorFlow's gradients have such a NoOp behind every op.
 * Where it waits for elementwise nodes and such nodes wait for it, it would keep them from being
 * fused (fuse/pass_fuse.c).
 *
 * So that fewer inputs are counted, edges to NoOps that say nothing new are removed first.
 *
 * The search for another way is bounded, so the pass is linear. It does not look behind a Merge,
 * which runs when one of its inputs has come, nor behind any other node that ends a frame or hides
 * that its inputs are dead. */
#include <stdlib.h>

#include "common/graph/graph_controls.h"
#include "master/compile/compilation.h"

enum {
    SEARCH_EDGES = 32,            /* how many edges the search for a node may walk … */
    SEARCH_EDGES_PER_CONTROL = 8, /* … and for each of its control inputs */
    NOOP_EDGES = 6,               /* a NoOp costs about 8 ns, an edge 1.2 ns (bench/executor) */
};

struct reducer {
    struct compilation *c;
    struct node **order;
    int n;
    int *position;    /* by node id: in `order` */
    int *n_consumers; /* by node id: edges from it */
    /* by node id: a target, or a NoOp whose consumers do not let it be bypassed */
    bool *is_fixed, *has_far_consumer;
    bool *is_bypassed;
    int *reached; /* by node id: 1 + the id of the node whose search came here last */
    struct node **stack;
    int stack_capacity;
    bool changed;
};

/* ---- bypassing NoOps ---- */

static void note_consumers(struct reducer *r) {
    for (int i = 0; i < r->n; i++) {
        const struct node *node = r->order[i];
        for (int k = 0; k < node->n_inputs; k++) {
            const struct node *src = node->inputs[k].src;
            r->n_consumers[src->id]++;
            if (node_is_frame_op(node))
                r->is_fixed[src->id] = true;
            if (node->placed != src->placed || strcmp(node->device, src->device) != 0)
                r->has_far_consumer[src->id] = true;
        }
    }
    for (int i = 0; i < r->c->n_targets; i++)
        r->is_fixed[r->c->target_nodes[i]->id] = true;
}

static bool may_be_bypassed(const struct reducer *r, const struct node *node) {
    int64_t n_in = node->n_inputs, n_out = r->n_consumers[node->id];
    return node_is_op(node, "NoOp") && !r->is_fixed[node->id] &&
           (n_in <= 1 || !r->has_far_consumer[node->id]) &&
           n_in * n_out <= n_in + n_out + NOOP_EDGES;
}

/* Replaces control edges from bypassed NoOps by control edges from their inputs. */
static void rewire(struct reducer *r, struct node *node) {
    int n_bypassed = 0, n_added = 0, n_kept = node->n_data;
    for (int i = node->n_data; i < node->n_inputs; i++)
        if (r->is_bypassed[node->inputs[i].src->id])
            n_added += node->inputs[i].src->n_inputs, n_bypassed++;
    if (n_bypassed == 0)
        return;
    struct node **added = arena_array(&r->c->arena, struct node *, n_added + 1);
    n_added = 0;
    for (int i = node->n_data; i < node->n_inputs; i++) {
        const struct node *src = node->inputs[i].src;
        if (!r->is_bypassed[src->id])
            node->inputs[n_kept++] = node->inputs[i];
        for (int k = 0; r->is_bypassed[src->id] && k < src->n_inputs; k++)
            added[n_added++] = src->inputs[k].src;
    }
    node->n_inputs = n_kept;
    node_add_controls(&r->c->graph, node, added, n_added);
}

static void bypass_all(struct reducer *r) {
    for (int i = 0; i < r->n; i++) {
        struct node *node = r->order[i];
        rewire(r, node);
        r->is_bypassed[node->id] = may_be_bypassed(r, node);
    }
    for (int i = 0; i < r->n; i++) {
        if (!r->is_bypassed[r->order[i]->id])
            continue;
        graph_remove_node(&r->c->graph, r->order[i]);
        r->changed = true;
    }
}

/* ---- edges that say nothing new ---- */

static bool passes_all_on(const struct node *node) {
    return !node_is_frame_op(node) && !node_is_op(node, "ControlTrigger");
}

static void push(struct reducer *r, struct node *node, int reached, int first, int *n_stack) {
    if (r->reached[node->id] == reached || r->position[node->id] < first)
        return;
    r->reached[node->id] = reached;
    if (!passes_all_on(node))
        return;
    if (*n_stack == r->stack_capacity) {
        r->stack_capacity = MAX(2 * r->stack_capacity, 64);
        r->stack = xreallocarray(r->stack, (size_t)r->stack_capacity, sizeof(r->stack[0]));
    }
    r->stack[(*n_stack)++] = node;
}

/* Marks what the inputs of `node` wait for, as far as it is not before `first` in the order. */
static void search(struct reducer *r, const struct node *node, int first) {
    int n_stack = 0, reached = node->id + 1;
    int budget = SEARCH_EDGES + SEARCH_EDGES_PER_CONTROL * (node->n_inputs - node->n_data);
    for (int i = 0; i < node->n_inputs && budget > 0; i++) {
        struct node *src = node->inputs[i].src;
        if (i < node->n_data) { /* a control edge beside a data edge */
            push(r, src, reached, first, &n_stack);
            budget--;
            continue;
        }
        for (int k = 0; k < src->n_inputs && passes_all_on(src) && budget > 0; k++, budget--)
            push(r, src->inputs[k].src, reached, first, &n_stack);
    }
    while (n_stack > 0 && budget > 0) {
        const struct node *src = r->stack[--n_stack];
        for (int k = 0; k < src->n_inputs && budget > 0; k++, budget--)
            push(r, src->inputs[k].src, reached, first, &n_stack);
    }
}

static void drop_redundant(struct reducer *r, struct node *node) {
    int first = r->n, n_kept = node->n_data;
    if (node->n_inputs < 2 || node_is_frame_op(node))
        return;
    for (int i = node->n_data; i < node->n_inputs; i++)
        first = MIN(first, r->position[node->inputs[i].src->id]);
    if (first == r->n)
        return;
    search(r, node, first);
    for (int i = node->n_data; i < node->n_inputs; i++)
        if (r->reached[node->inputs[i].src->id] != node->id + 1)
            node->inputs[n_kept++] = node->inputs[i];
    r->changed = r->changed || n_kept < node->n_inputs;
    node->n_inputs = n_kept;
}

static void drop_all_redundant(struct reducer *r, bool of_noops) {
    memset(r->reached, 0, sizeof(int) * (size_t)r->c->graph.n_nodes);
    for (int i = 0; i < r->n; i++)
        if (!r->order[i]->is_removed && (!of_noops || node_is_op(r->order[i], "NoOp")))
            drop_redundant(r, r->order[i]);
}

struct status *pass_controls(struct compilation *c, bool *ret_changed) {
    size_t n_ids = (size_t)c->graph.n_nodes + 1;
    struct reducer r = {.c = c, .n = c->graph.n_live};
    TRY(graph_topological_order(&c->graph, &r.order));
    r.position = xcalloc(n_ids, sizeof(int));
    r.n_consumers = xcalloc(n_ids, sizeof(int));
    r.reached = xcalloc(n_ids, sizeof(int));
    r.is_fixed = xcalloc(n_ids, sizeof(bool));
    r.has_far_consumer = xcalloc(n_ids, sizeof(bool));
    r.is_bypassed = xcalloc(n_ids, sizeof(bool));
    for (int i = 0; i < r.n; i++)
        r.position[r.order[i]->id] = i;
    drop_all_redundant(&r, true);
    note_consumers(&r);
    bypass_all(&r);
    drop_all_redundant(&r, false);
    *ret_changed = r.changed;
    free(r.order);
    free(r.position);
    free(r.n_consumers);
    free(r.reached);
    free(r.is_fixed);
    free(r.has_far_consumer);
    free(r.is_bypassed);
    free(r.stack);
    return NULL;
}
