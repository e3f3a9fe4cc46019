/* What only waits is not computed: a node without effects whose outputs nobody takes becomes a NoOp
 * that waits for what the node waited for. TensorFlow's rewriter does the same.
 *
 *   a = Exp(x)   b = MatMul(a, y)   r = Neg(z, ^b)
 *      =>  b = NoOp(^x, ^y)   r = Neg(z, ^b)
 *
 * The sweep runs against the topological order, so a whole chain disappears: a node that has become
 * a NoOp takes no outputs either. A node that is not computed cannot fail: a MatMul of wrong shapes
 * whose product nobody takes is no error any more (docs/compatibility.md).
 *
 * The NoOp is dead where the node was dead, and runs in its frame, because its control inputs are
 * the node's inputs. A control edge from a Switch says nothing of the Switch's outputs. So a node
 * that takes an output of a Switch becomes an Identity of this output instead; a node that takes
 * several is left alone.
 *
 * Left alone: targets of the step, nodes with state, effects, references, handles or variants, ops
 * that make frames, placeholders, calls, and ops whose purpose is a check or a look at files. */
#include <stdlib.h>

#include "common/graph/graph_controls.h"
#include "common/graph/graph_rewrite.h"
#include "kernels/kernel.h"
#include "master/compile/compilation.h"

struct waiter {
    struct compilation *c;
    int *n_takers;   /* by node id: data edges from it */
    bool *is_target; /* by node id */
    bool changed;
};

/* ---- what may be left out ---- */

/* Ops that the signature does not call stateful, but that a client may run for more than their
 * outputs. */
static bool is_run_for_itself(const struct node *node) {
    static const char *const ops[] = {
        "EnsureShape",     "CheckNumerics", "CheckNumericsV2", "ReadFile",    "MatchingFiles",
        "PyFuncStateless", "Copy",          "CopyHost",        "XlaSharding", "ParallelConcat"};
    static const char *const prefixes[] = {"Placeholder", "TensorArray", "Debug", "Assert"};
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (node_is_op(node, ops[i]))
            return true;
    for (size_t i = 0; i < ARRAY_LEN(prefixes); i++)
        if (strncmp(node->op_name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return node->op->is_distributed_communication;
}

static bool has_type(const uint8_t *types, int n, enum dtype type) {
    return n > 0 && memchr(types, (int)type, (size_t)n) != NULL;
}

static bool has_handles(const struct node *node) {
    return has_type(node->in_types, node->n_data, DT_RESOURCE) ||
           has_type(node->in_types, node->n_data, DT_VARIANT) ||
           has_type(node->out_types, node->n_outputs, DT_RESOURCE) ||
           has_type(node->out_types, node->n_outputs, DT_VARIANT);
}

/* A kernel that waits for something has an effect that the op's signature does not tell. */
static bool has_plain_kernel(const struct node *node) {
    const struct kernel_def *def = kernel_find(node, "CPU");
    return !def || !(def->flags & (KERNEL_STATEFUL | KERNEL_ASYNC));
}

bool node_may_be_left_out(const struct node *node) {
    return node->n_outputs > 0 && !node_is_stateful(node) && !node_is_internal(node) &&
           !node_is_frame_op(node) && !node_is_switch(node) && !node_uses_functions(node) &&
           !node_has_ref(node) && !has_handles(node) && !is_run_for_itself(node) &&
           has_plain_kernel(node);
}

/* ---- what takes its place ---- */

/* Returns the number of different outputs of Switches that the node takes; *ret is the last. */
static int count_switched(const struct node *node, struct node_input *ret) {
    int n = 0;
    for (int i = 0; i < node->n_data; i++) {
        const struct node_input *in = &node->inputs[i];
        if (!node_is_switch(in->src) || (n > 0 && in->src == ret->src && in->index == ret->index))
            continue;
        *ret = *in;
        n++;
    }
    return n;
}

static bool takes_next_iteration(const struct node *node) {
    for (int i = 0; i < node->n_data; i++)
        if (node_is_either(node->inputs[i].src, "NextIteration", "RefNextIteration"))
            return true;
    return false;
}

/* Makes the node a NoOp, or an Identity of `switched`, that waits for all its inputs. */
static struct status *leave_out(struct waiter *w, struct node *node,
                                const struct node_input *switched) {
    struct graph *graph = &w->c->graph;
    enum dtype type =
        switched ? dtype_base((enum dtype)switched->src->out_types[switched->index]) : DT_INVALID;
    struct node **srcs = arena_array(&w->c->arena, struct node *, node->n_inputs + 1);
    int n = node->n_inputs;
    for (int i = 0; i < n; i++) {
        const struct node_input *in = &node->inputs[i];
        if (i < node->n_data)
            w->n_takers[in->src->id]--;
        srcs[i] = switched && in->src == switched->src ? NULL : in->src;
    }
    node_change_op(graph, node, switched ? "Identity" : "NoOp");
    if (switched) {
        node_set_attr_type(graph, node, "T", type);
        node_add_input(graph, node, switched->src, switched->index);
        w->n_takers[switched->src->id]++;
    }
    TRY(node_finish(graph, node));
    node_add_controls(graph, node, srcs, n);
    w->changed = true;
    return NULL;
}

static struct status *look_at_node(struct waiter *w, struct node *node) {
    struct node_input switched;
    if (w->n_takers[node->id] > 0 || w->is_target[node->id] || !node_may_be_left_out(node) ||
        takes_next_iteration(node))
        return NULL;
    int n_switched = count_switched(node, &switched);
    if (n_switched > 1 || (n_switched == 1 && node_is_op(node, "Identity")))
        return NULL;
    struct node_input copy = n_switched == 1 ? switched : (struct node_input){NULL, 0};
    return leave_out(w, node, n_switched == 1 ? &copy : NULL);
}

struct status *pass_waits(struct compilation *c, bool *ret_changed) {
    struct node **order;
    struct status *st = NULL;
    TRY(pass_prune(c, ret_changed)); /* a node that nothing needs takes nothing */
    TRY(graph_topological_order(&c->graph, &order));
    struct waiter w = {
        .c = c,
        .n_takers = xcalloc((size_t)c->graph.n_nodes + 1, sizeof(*w.n_takers)),
        .is_target = compile_targets(c),
    };
    for (int i = 0; i < c->graph.n_live; i++)
        for (int k = 0; k < order[i]->n_data; k++)
            w.n_takers[order[i]->inputs[k].src->id]++;
    for (int i = c->graph.n_live - 1; i >= 0; i--)
        TRY_OUT(look_at_node(&w, order[i]));
    *ret_changed = *ret_changed || w.changed;
out:
    free(w.n_takers);
    free(order);
    return st;
}
