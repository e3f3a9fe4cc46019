/* Folds constants [OSDI 3.3]: computes a stateless node whose inputs are all constant here, once,
 * with the kernel that would compute it in every step.
 *
 *   a = Const {2}   b = Const {3}   c = AddV2(a, b)   d = Mul(c, x)
 *      =>  c = Const {5}   d = Mul(c, x)
 *
 * Chains fold in one sweep in topological order. Only values that a node outside of the chain reads
 * become Consts; the sweep pass removes their producers. A node with one output keeps its name; of
 * one with several outputs, each is called name/_fold_i. Device, colocation and placement stay.
 *
 * A Const may have control inputs: inside a conditional they make it dead if the branch is not
 * taken. What is computed from it must be dead there too. So a folded Const gets all control inputs
 * of the constants that it was computed from. A control edge from a constant becomes control edges
 * from the constant's own control inputs, and disappears if it has none.
 *
 * Not folded: nodes in a loop (their control inputs mean an iteration), nodes with state, effects
 * or references, nodes that output resources or variants, nodes without a kernel in the master, and
 * nodes whose result, work or strings would exceed a limit (fold_limits.h). A kernel that runs on
 * when the time of the pass is up sees its step cancelled. If a fold fails or exceeds a budget, the
 * node stays as it was: the error occurs where the user would see it, if the step gets there. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/pool_cancel.h"
#include "common/tensor/buffer.h"
#include "kernels/host.h"
#include "master/request/budgets.h"
#include "common/graph/graph_controls.h"
#include "master/compile/compilation.h"
#include "master/compile/rewrite/fold_limits.h"

enum {
    FOLD_MAX_CONTROLS = 8,  /* control inputs of one folded Const */
    FOLD_TOTAL_FACTOR = 16, /* limit for all folded values: this many times fold_max_bytes */
    /* limit for what one kernel may allocate: this many times fold_max_bytes */
    FOLD_SCRATCH_FACTOR = 2,
    FOLD_MAX_ARGS = 1024, /* inputs or outputs of a node that is folded */
};

/* The values of a constant node, or of one that has been computed. */
struct folded {
    const struct tensor *outputs; /* n_outputs values */
    struct node **controls;       /* nodes that are not constant */
    int n_controls;
    bool is_const;      /* a Const of the graph: `outputs` borrows from its attr */
    struct node **made; /* by output: the Const that replaces it, once a node reads it */
};

struct folder {
    struct compilation *c;
    struct loop_frames frames;
    struct folded **folded; /* by node id */
    int n_ids;
    struct allocator *allocator;
    struct tensor *inputs; /* FOLD_MAX_ARGS, borrowed values */
    struct arena scratch;
    int64_t deadline_ns, total_bytes;
    _Atomic bool was_cancelled; /* a kernel was told to stop: its outputs may be incomplete */
    bool changed;
};

/* ---- what may be folded ---- */

static bool outputs_fit_a_const(const struct node *node) {
    for (int i = 0; i < node->n_outputs; i++)
        if (node->out_types[i] == DT_RESOURCE || node->out_types[i] == DT_VARIANT ||
            dtype_is_ref((enum dtype)node->out_types[i]))
            return false;
    return node->n_outputs > 0 && node->n_outputs <= FOLD_MAX_ARGS;
}

static bool can_be_computed(const struct folder *f, const struct node *node) {
    if (node->n_data == 0 || node->n_data > FOLD_MAX_ARGS || node_is_stateful(node) ||
        f->frames.in[node->id] || f->frames.out[node->id])
        return false;
    for (int i = 0; i < node->n_data; i++)
        if (!f->folded[node->inputs[i].src->id])
            return false;
    if (node_is_frame_op(node) || node_is_switch(node) || !outputs_fit_a_const(node))
        return false;
    const struct kernel_def *def = kernel_find(node, "CPU");
    return def && !(def->flags & (KERNEL_STATEFUL | KERNEL_ASYNC));
}

/* Adds what an input edge from `src` makes the node wait for in addition to values. Returns false
 * when there are too many. */
static bool add_controls(const struct folder *f, struct node *src, struct node **controls,
                         int *n_controls) {
    const struct folded *from = f->folded[src->id];
    struct node **added = from ? from->controls : &src;
    int n_added = from ? from->n_controls : 1;
    for (int i = 0; i < n_added; i++) {
        int k = 0;
        while (k < *n_controls && controls[k] != added[i])
            k++;
        if (k < *n_controls)
            continue;
        if (k == FOLD_MAX_CONTROLS)
            return false;
        controls[(*n_controls)++] = added[i];
    }
    return true;
}

/* Returns the record of a node whose values are known. NULL: it waits for too many nodes. */
static struct folded *new_folded(struct folder *f, const struct node *node) {
    struct node *controls[FOLD_MAX_CONTROLS];
    int n_controls = 0;
    for (int i = 0; i < node->n_inputs; i++)
        if (!add_controls(f, node->inputs[i].src, controls, &n_controls))
            return NULL;
    struct folded *folded = arena_new(&f->c->arena, struct folded);
    folded->controls =
        arena_memdup(&f->c->arena, controls, (size_t)n_controls * sizeof(controls[0]));
    folded->n_controls = n_controls;
    return folded;
}

/* ---- computing ---- */

static bool values_are_small(struct folder *f, const struct tensor *values, int n_values) {
    int64_t max_bytes = f->c->options->fold_max_bytes;
    for (int i = 0; i < n_values; i++) {
        int64_t size = tensor_has_value(&values[i]) ? fold_value_bytes(&values[i], max_bytes) : 0;
        if (!tensor_has_value(&values[i]) || size > max_bytes)
            return false;
        f->total_bytes += size;
    }
    return true;
}

/* Any thread of the pool. */
static bool is_out_of_time(void *arg) {
    struct folder *f = arg;
    if (clock_now_ns() <= f->deadline_ns)
        return false;
    atomic_store_explicit(&f->was_cancelled, true, memory_order_relaxed);
    return true;
}

static bool fold_is_cancelled(struct kernel_ctx *ctx) { return is_out_of_time(ctx->host_data); }

static const struct kernel_host fold_host = {.is_cancelled = fold_is_cancelled};

static bool compute(struct folder *f, const struct node *node, struct folded *folded) {
    int64_t max_bytes = f->c->options->fold_max_bytes;
    size_t size = (size_t)node->n_outputs * sizeof(struct tensor);
    struct tensor *outputs = arena_alloc_aligned(&f->c->arena, size, _Alignof(struct tensor));
    memset(outputs, 0, size);
    for (int i = 0; i < node->n_data; i++) /* borrowed, not owned: never cleared */
        f->inputs[i] = f->folded[node->inputs[i].src->id]->outputs[node->inputs[i].index];
    /* Only this thread uses the allocator. The limit is moved with its use, so that one kernel can
     * never take more than its share. */
    f->allocator->limit_bytes =
        atomic_load(&f->allocator->in_use_bytes) + FOLD_SCRATCH_FACTOR * max_bytes;
    struct fold_limits limits = {.max_bytes = max_bytes,
                                 .max_ns = (double)(f->deadline_ns - clock_now_ns()),
                                 .producer = f->c->graph.producer};
    if (!fold_is_within(&limits, node, f->inputs, &f->scratch))
        return false;
    struct pool_cancel cancel = {is_out_of_time, f};
    const struct pool_cancel *before = pool_set_cancel(&cancel);
    struct status *st =
        kernel_eval(node, f->allocator, f->c->pool, &fold_host, f, f->inputs, outputs);
    pool_set_cancel(before);
    if (!st && !atomic_load_explicit(&f->was_cancelled, memory_order_relaxed) &&
        values_are_small(f, outputs, node->n_outputs)) {
        folded->outputs = outputs;
        return true;
    }
    status_unref(st);
    for (int i = 0; i < node->n_outputs; i++)
        tensor_clear(&outputs[i]);
    return false;
}

static bool is_out_of_budget(const struct folder *f) {
    return f->total_bytes > FOLD_TOTAL_FACTOR * f->c->options->fold_max_bytes ||
           clock_now_ns() > f->deadline_ns;
}

static void compute_all(struct folder *f, struct node *const *order, int n_nodes) {
    bool has_budget = true;
    for (int i = 0; i < n_nodes; i++) {
        const struct node *node = order[i];
        if (f->frames.in[node->id] == 0 && const_size_bytes(node) >= 0) {
            struct folded *folded = new_folded(f, node);
            if (folded) {
                folded->is_const = true;
                folded->outputs = node_attr(node, "value")->tensor;
            }
            f->folded[node->id] = folded;
        } else if (has_budget && can_be_computed(f, node)) {
            struct folded *folded = new_folded(f, node);
            if (folded && compute(f, node, folded))
                f->folded[node->id] = folded;
            has_budget = !is_out_of_budget(f);
        }
    }
    if (!has_budget)
        budget_count(BUDGET_FOLD);
}

/* ---- putting the values into the graph ---- */

static bool is_computed(const struct folder *f, const struct node *node) {
    return node->id < f->n_ids && f->folded[node->id] && !f->folded[node->id]->is_const;
}

/* Makes the Const for an output of a computed node. The old node is removed first, so that the
 * Const can have its name. The consumers still refer to the old node until put_values has visited
 * them all. */
static struct status *make_const(struct folder *f, struct node *node, int index,
                                 struct node **ret) {
    struct graph *graph = &f->c->graph;
    struct folded *folded = f->folded[node->id];
    if (!folded->made)
        folded->made = arena_array(&f->c->arena, struct node *, node->n_outputs);
    *ret = folded->made[index];
    if (*ret)
        return NULL;
    const char *name = node->name;
    if (node->n_outputs == 1)
        graph_remove_node(graph, node);
    else
        name =
            graph_unique_name(graph, arena_printf(&f->c->arena, "%s/_fold_%d", node->name, index));
    struct node *made;
    TRY(graph_add_node(graph, name, "Const", node->device, &made));
    node_set_attr_type(graph, made, "dtype", (enum dtype)node->out_types[index]);
    node_set_attr_tensor(graph, made, "value", &folded->outputs[index]);
    const struct attr_value *colocation = node_attr(node, "_class");
    if (colocation)
        node_set_attr(graph, made, "_class", colocation);
    made->placed = node->placed;
    TRY(node_finish(graph, made));
    for (int i = 0; i < folded->n_controls; i++)
        node_add_control(graph, made, folded->controls[i]);
    *ret = folded->made[index] = made;
    f->changed = true;
    return NULL;
}

/* Replaces control edges from constants by control edges from what the constants wait for. */
static void rewire_controls(struct folder *f, struct node *node) {
    struct node **controls = NULL; /* instead of the constants */
    int n_controls = 0, n_constants = 0, n_kept = node->n_data;
    for (int i = node->n_data; i < node->n_inputs; i++) {
        int src = node->inputs[i].src->id;
        const struct folded *from = src < f->n_ids ? f->folded[src] : NULL;
        if (!from) {
            node->inputs[n_kept++] = node->inputs[i];
            continue;
        }
        n_constants++;
        if (from->n_controls > 0 && !controls)
            controls =
                arena_array(&f->c->arena, struct node *, (node->n_inputs - i) * FOLD_MAX_CONTROLS);
        for (int k = 0; k < from->n_controls; k++)
            controls[n_controls++] = from->controls[k];
    }
    node->n_inputs = n_kept;
    node_add_controls(&f->c->graph, node, controls, n_controls);
    f->changed = f->changed || n_constants > 0;
}

static struct status *put_values(struct folder *f) {
    struct graph *graph = &f->c->graph;
    for (int id = 0; id < f->n_ids; id++) {
        struct node *node = graph->nodes[id];
        if (node->is_removed || is_computed(f, node))
            continue;
        for (int i = 0; i < node->n_data; i++) {
            struct node *src = node->inputs[i].src, *made;
            if (!is_computed(f, src))
                continue;
            TRY(make_const(f, src, node->inputs[i].index, &made));
            node_set_input(node, i, made, 0);
        }
        rewire_controls(f, node);
    }
    for (int i = 0; i < f->c->n_targets; i++)
        if (is_computed(f, f->c->target_nodes[i]))
            TRY(make_const(f, f->c->target_nodes[i], 0, &f->c->target_nodes[i]));
    for (int id = 0; id < f->n_ids; id++) {
        if (!is_computed(f, graph->nodes[id]))
            continue;
        graph_remove_node(graph, graph->nodes[id]); /* all consumers use the Const now */
        f->changed = true;
    }
    return NULL;
}

struct status *pass_fold(struct compilation *c, bool *ret_changed) {
    struct node **order;
    TRY(graph_topological_order(&c->graph, &order));
    struct folder f = {.c = c,
                       .n_ids = c->graph.n_nodes,
                       .deadline_ns = clock_now_ns() + c->options->fold_budget_ns};
    f.folded = arena_array(&c->arena, struct folded *, f.n_ids + 1);
    f.inputs =
        arena_alloc_aligned(&c->arena, FOLD_MAX_ARGS * sizeof(*f.inputs), _Alignof(struct tensor));
    f.allocator = allocator_host_new("fold", 0);
    arena_init(&f.scratch);
    loop_frames_init(&f.frames, &c->graph, order, c->graph.n_live);
    compute_all(&f, order, c->graph.n_live);
    struct status *st = put_values(&f);
    *ret_changed = f.changed;
    for (int id = 0; id < f.n_ids; id++)
        for (int i = 0; is_computed(&f, c->graph.nodes[id]) && i < c->graph.nodes[id]->n_outputs;
             i++)
            tensor_clear((struct tensor *)&f.folded[id]
                             ->outputs[i]); /* our references; the Consts hold their own */
    loop_frames_fini(&f.frames);
    allocator_host_free(f.allocator);
    arena_fini(&f.scratch);
    free(order);
    return st;
}
