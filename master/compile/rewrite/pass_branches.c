/* Dead branches of constant predicates [CF 3.2]: what a conditional never chooses is cut off, so
 * that the sweep removes it.
 *
 *   p = Const {true}   s = Switch(x, p)   a = Exp(s:1)   b = Sin(s:0)   r = Merge(b, a)
 *      =>  s = Identity(x)   a = Exp(s)   r = Identity(a)
 *
 * 1. A node is dead if one of its inputs is: the other output of a Switch whose predicate is a
 *    constant, or any output of a dead node. A Merge is dead if all its inputs are.
 * 2. A Merge of which one input is not dead becomes an Identity of this input, and its value_index
 *    a Const.
 * 3. After a prune, a Switch whose other outputs nobody takes becomes an Identity.
 *
 * A dead node that a fetch, a target or a node outside still needs stays, and so does its Switch.
 * What is removed would not have run, so only complaints about nodes that never run disappear: of
 * devices that do not exist, and ops without kernel. TensorFlow's rewriter removes them, too.
 *
 * Left alone: references, Merges of loops, and Merges with control inputs, which wait for them even
 * if they are dead. Nothing is known to be dead behind an op that makes frames. */
#include <stdlib.h>

#include "common/graph/graph_rewrite.h"
#include "master/compile/compilation.h"

struct cutter {
    struct compilation *c;
    int n_ids;
    bool *is_dead;      /* by node id */
    int *chosen;        /* by node id: 1 + the output of a Switch that is alive; 0: unknown */
    bool *is_reference; /* by node id */
    bool changed;
};

/* ---- what is dead ---- */

/* Returns 1 + the output that the Switch's constant predicate chooses; 0: it has none. */
static int chosen_output(const struct node *node) {
    bool is_case = node_is_op(node, "_SwitchN");
    if (!is_case && !node_is_op(node, "Switch"))
        return 0;
    const struct tensor *t = node->inputs[1].index == 0 ? const_behind(node->inputs[1].src) : NULL;
    if (!t || t->rank != 0 || t->dtype != (is_case ? DT_INT32 : DT_BOOL))
        return 0;
    if (!is_case)
        return *(const bool *)tensor_cdata(t) ? 2 : 1;
    int64_t index = tensor_index_at(t, 0);
    return index >= 0 && index < node->n_outputs ? (int)index + 1 : node->n_outputs;
}

static bool is_dead_edge(const struct cutter *cut, const struct node_input *in) {
    if (in->src->id >= cut->n_ids)
        return false; /* the index of a Merge that has been replaced */
    int chosen = cut->chosen[in->src->id];
    return cut->is_dead[in->src->id] ||
           (chosen > 0 && in->index != CONTROL_EDGE && in->index != chosen - 1);
}

static int count_dead(const struct cutter *cut, const struct node *node, int begin, int end) {
    int n = 0;
    for (int i = begin; i < end; i++)
        n += is_dead_edge(cut, &node->inputs[i]);
    return n;
}

static bool is_dead_node(const struct cutter *cut, const struct node *node) {
    if (node_is_op(node, "Merge")) /* a loop's way back is not dead: it comes later in the order */
        return count_dead(cut, node, 0, node->n_data) == node->n_data;
    return count_dead(cut, node, 0, node->n_inputs) > 0 && !node_is_frame_op(node) &&
           !node_is_op(node, "ControlTrigger");
}

/* ---- Merges ---- */

static bool may_replace(const struct cutter *cut, const struct node *node) {
    for (int i = 0; i < node->n_data; i++)
        if (node_is_either(node->inputs[i].src, "NextIteration", "RefNextIteration"))
            return false;
    return node_is_op(node, "Merge") && !cut->is_dead[node->id] && node->n_inputs == node->n_data &&
           !node_has_ref(node) && !cut->is_reference[node->id] &&
           count_dead(cut, node, 0, node->n_data) == node->n_data - 1;
}

static struct status *become_identity(struct cutter *cut, struct node *node,
                                      struct node_input value) {
    struct graph *graph = &cut->c->graph;
    node_change_op(graph, node, "Identity");
    node_set_attr_type(graph, node, "T", (enum dtype)value.src->out_types[value.index]);
    node_add_input(graph, node, value.src, value.index);
    cut->changed = true;
    return node_finish(graph, node);
}

static struct status *make_index(struct cutter *cut, struct node *merge, int index,
                                 struct node **ret) {
    struct graph *graph = &cut->c->graph;
    struct tensor value = {0};
    const char *name =
        graph_unique_name(graph, arena_printf(&cut->c->arena, "%s/_index", merge->name));
    TRY(graph_add_node(graph, name, "Const", merge->device, ret));
    (*ret)->placed = merge->placed;
    tensor_init_scalar_i32(&value, index);
    node_set_attr_type(graph, *ret, "dtype", DT_INT32);
    node_set_attr_tensor(graph, *ret, "value", &value);
    TRY(node_finish(graph, *ret));
    node_add_control(graph, *ret, merge);
    return NULL;
}

static struct status *replace_merge(struct cutter *cut, const struct graph_consumers *consumers,
                                    struct node *merge) {
    struct node *index = NULL;
    int alive = 0;
    while (is_dead_edge(cut, &merge->inputs[alive]))
        alive++;
    TRY(become_identity(cut, merge, merge->inputs[alive]));
    for (int k = consumers->first[merge->id]; k < consumers->first[merge->id + 1]; k++) {
        const struct node_output_edge *edge = &consumers->edges[k];
        if (edge->index != 1)
            continue;
        if (!index)
            TRY(make_index(cut, merge, alive, &index));
        node_set_input(edge->dst, edge->position, index, 0);
    }
    return NULL;
}

/* ---- Switches ---- */

static bool takes_only_chosen(const struct cutter *cut, const struct graph_consumers *consumers,
                              const struct node *node) {
    for (int k = consumers->first[node->id]; k < consumers->first[node->id + 1]; k++)
        if (consumers->edges[k].index != CONTROL_EDGE &&
            consumers->edges[k].index != cut->chosen[node->id] - 1)
            return false;
    return true;
}

/* A Const waits for its control inputs only. */
static struct status *replace_switch(struct cutter *cut, const struct graph_consumers *consumers,
                                     struct node *node) {
    struct graph *graph = &cut->c->graph;
    struct node_input value = node->inputs[0];
    struct node *predicate = node->inputs[1].src;
    struct node **controls = arena_array(&cut->c->arena, struct node *, node->n_inputs);
    int n_controls = 0;
    for (int i = node->n_data; i < node->n_inputs; i++)
        controls[n_controls++] = node->inputs[i].src;
    TRY(become_identity(cut, node, value));
    for (int k = consumers->first[node->id]; k < consumers->first[node->id + 1]; k++)
        if (consumers->edges[k].index != CONTROL_EDGE)
            node_set_input(consumers->edges[k].dst, consumers->edges[k].position, node, 0);
    for (int i = 0; i < n_controls; i++)
        node_add_control(graph, node, controls[i]);
    if (!node_is_op(predicate, "Const") && predicate != value.src)
        node_add_control(graph, node, predicate);
    for (int i = 0; node_is_op(predicate, "Const") && i < predicate->n_inputs; i++)
        node_add_control(graph, node, predicate->inputs[i].src);
    return NULL;
}

/* ---- the pass ---- */

/* Returns the number of Switches with a constant predicate. */
static int find_dead(struct cutter *cut, struct node *const *order, int n) {
    int n_chosen = 0;
    for (int i = 0; i < n; i++) {
        struct node *node = order[i];
        cut->is_dead[node->id] = is_dead_node(cut, node);
        cut->chosen[node->id] = cut->is_dead[node->id] ? 0 : chosen_output(node);
        n_chosen += cut->chosen[node->id] > 0;
    }
    return n_chosen;
}

static struct status *replace_all(struct cutter *cut) {
    struct graph *graph = &cut->c->graph;
    struct graph_consumers consumers;
    struct status *st = NULL;
    bool pruned = false;
    graph_consumers_init(&consumers, graph);
    cut->is_reference = compile_references(graph);
    for (int id = 0; id < cut->n_ids; id++)
        if (!graph->nodes[id]->is_removed && may_replace(cut, graph->nodes[id]))
            TRY_OUT(replace_merge(cut, &consumers, graph->nodes[id]));
    TRY_OUT(pass_prune(cut->c, &pruned));
    cut->changed = cut->changed || pruned;
    graph_consumers_fini(&consumers);
    graph_consumers_init(&consumers, graph);
    for (int id = 0; id < cut->n_ids; id++) {
        struct node *node = graph->nodes[id];
        if (!node->is_removed && cut->chosen[id] > 0 && !node_has_ref(node) &&
            !cut->is_reference[id] && takes_only_chosen(cut, &consumers, node))
            TRY_OUT(replace_switch(cut, &consumers, node));
    }
out:
    graph_consumers_fini(&consumers);
    free(cut->is_reference);
    return st;
}

struct status *pass_branches(struct compilation *c, bool *ret_changed) {
    struct node **order;
    struct status *st = NULL;
    TRY(graph_topological_order(&c->graph, &order));
    struct cutter cut = {.c = c, .n_ids = c->graph.n_nodes};
    cut.is_dead = xcalloc((size_t)cut.n_ids + 1, sizeof(*cut.is_dead));
    cut.chosen = xcalloc((size_t)cut.n_ids + 1, sizeof(*cut.chosen));
    if (find_dead(&cut, order, c->graph.n_live) > 0)
        st = replace_all(&cut);
    *ret_changed = cut.changed;
    free(cut.is_dead);
    free(cut.chosen);
    free(order);
    return st;
}
