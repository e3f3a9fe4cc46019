/* Loop invariants [CF 4.1]: what a loop computes from its constants alone is computed once, before
 * the loop.
 *
 *   c = Enter(x, constant)   e = Exp(c, ^pivot)   m = Mul(i, e)
 *      =>  e = Exp(x)   e/_enter = Enter(e, constant)
 *          e/_inside = Identity(e/_enter, ^pivot)   m = Mul(i, e/_inside)
 *
 * An Identity takes its place in the loop, and waits for what the node and its constants waited
 * for, if this is anything. So the value is dead in the last iteration, as it was. The node before
 * the loop waits for what the Enters wait for, so it is dead where the loop is. A Const of the loop
 * is copied, since it waits for the loop's pivot.
 *
 * The loop may run zero times, and then the node would not have run. So a node is moved only if
 *
 *   - it runs whenever the loop is entered: it waits for nothing but the loop's Merges and Enters,
 *     as nodes of the condition do, or
 *   - it is elementwise and cannot fail: it takes one value, or two of which one is a scalar. It
 *     costs no more than a pass over values that are there already.
 *
 * Left alone: targets, state, effects, references, resources, variants, checks (pass_waits.c), and
 * nodes of several outputs. A node moves out of one loop, not of several. Linear. */
#include <stdlib.h>

#include "common/graph/conditions.h"
#include "kernels/kernel.h"
#include "master/compile/compilation.h"

enum {
    MAX_INPUTS = 16,   /* of a node that moves */
    MAX_CONTROLS = 16, /* of an Enter, and of a node that moves */
};

/* What a node of a loop hands on in all iterations. */
struct invariant {
    struct node_input outside; /* the value in the frame around the loop; NULL: none */
    const struct node *enter;  /* an Enter of the loop that this value has come through */
    struct node *inside;       /* what takes the moved node's place in the loop */
    bool runs_first;           /* alive in the first iteration, under this condition */
    int condition;
};

struct mover {
    struct compilation *c;
    struct loop_frames frames;
    struct conditions conditions;
    struct invariant *of; /* by node id */
    bool *is_target;      /* by node id */
    bool *is_reference;   /* by node id */
    int n_ids;
    bool changed;
};

/* ---- what stays the same ---- */

static bool is_constant_enter(const struct mover *m, const struct node *node) {
    const struct attr_value *is_constant = node_attr(node, "is_constant");
    return node_is_op(node, "Enter") && is_constant && is_constant->b && !node_has_ref(node) &&
           !m->is_reference[node->id] && m->frames.out[node->id] != m->frames.in[node->id] &&
           node->n_inputs - node->n_data <= MAX_CONTROLS;
}

static bool is_loop_const(const struct mover *m, const struct node *node) {
    return node_is_op(node, "Const") && m->frames.in[node->id] != 0 &&
           node->n_inputs <= MAX_CONTROLS;
}

/* The condition under which a control edge from the node holds nobody up in the first iteration: an
 * Enter's, also behind the Merge of a loop variable. */
static int first_condition(const struct mover *m, const struct node *src) {
    for (int i = 0; node_is_op(src, "Merge") && i < src->n_data; i++)
        if (node_is_op(src->inputs[i].src, "Enter") && src->inputs[i].src->id < m->n_ids)
            return m->conditions.of[src->inputs[i].src->id];
    if (node_is_op(src, "Enter"))
        return m->conditions.of[src->id];
    return m->of[src->id].runs_first ? m->of[src->id].condition : CONDITION_UNCERTAIN;
}

/* Does the node run in the first iteration whenever the loop is entered? All that it waits for must
 * be there under one condition. */
static bool runs_first(const struct mover *m, const struct node *node, int *ret_condition) {
    for (int i = 0; i < node->n_inputs; i++) {
        const struct node *src = node->inputs[i].src;
        int condition = i < node->n_data && !m->of[src->id].runs_first ? CONDITION_UNCERTAIN
                                                                       : first_condition(m, src);
        if (condition == CONDITION_UNCERTAIN || (i > 0 && condition != *ret_condition))
            return false;
        *ret_condition = condition;
    }
    return node->n_inputs > 0;
}

/* ---- what cannot fail ---- */

static bool is_scalar(const struct mover *m, const struct node_input *in) {
    const struct node *src = in->src;
    if (m->of[src->id].outside.src)
        src = m->of[src->id].outside.src;
    const struct tensor *t = const_behind(src);
    return t && t->rank == 0;
}

static bool cannot_fail(const struct mover *m, const struct node *node) {
    static const char *const ops[] = {
        "Add",        "AddV2",     "Sub",     "Mul",     "RealDiv",      "SquaredDifference",
        "Less",       "LessEqual", "Greater", "Maximum", "GreaterEqual", "Minimum",
        "LogicalAnd", "LogicalOr"};
    const struct kernel_def *def = kernel_find(node, "CPU");
    if (!def || !(def->flags & KERNEL_ELEMENTWISE) || node->n_data > 2)
        return false;
    if (node->n_data == 1)
        return true;
    for (size_t i = 0; i < ARRAY_LEN(ops); i++)
        if (node_is_op(node, ops[i]))
            return is_scalar(m, &node->inputs[0]) || is_scalar(m, &node->inputs[1]);
    return false;
}

static bool may_move(const struct mover *m, const struct node *node) {
    bool has_enter = false;
    int condition;
    if (node->n_data == 0 || node->n_data > MAX_INPUTS || node->n_outputs != 1 ||
        m->is_target[node->id] || m->frames.in[node->id] == 0 ||
        node->n_inputs - node->n_data > MAX_CONTROLS)
        return false;
    for (int i = 0; i < node->n_data; i++) {
        const struct node *src = node->inputs[i].src;
        if (!m->of[src->id].outside.src && !is_loop_const(m, src))
            return false;
        has_enter = has_enter || m->of[src->id].enter;
    }
    return has_enter && !node_is_op(node, "Identity") && node_may_be_left_out(node) &&
           (runs_first(m, node, &condition) || cannot_fail(m, node));
}

/* ---- moving ---- */

static struct status *add_beside(struct mover *m, const struct node *node, const char *op,
                                 const char *suffix, struct node **ret) {
    struct graph *graph = &m->c->graph;
    const char *name =
        graph_unique_name(graph, arena_printf(&m->c->arena, "%s/_%s", node->name, suffix));
    TRY(graph_add_node(graph, name, op, node->device, ret));
    (*ret)->placed = node->placed;
    for (int i = 0; i < node->n_attrs; i++)
        if (node_is_op(node, op) || strcmp(node->attrs[i].name, "_class") == 0)
            node_set_attr(graph, *ret, node->attrs[i].name, &node->attrs[i].value);
    return NULL;
}

/* A value of the loop as it is around the loop. In a loop of its own, a Const belongs to it by what
 * it waits for. */
static struct status *take_outside(struct mover *m, struct node *src, const struct node *enter,
                                   struct node_input *ret) {
    struct node *copy;
    *ret = m->of[src->id].outside;
    if (ret->src)
        return NULL;
    TRY(add_beside(m, src, "Const", "outside", &copy));
    TRY(node_finish(&m->c->graph, copy));
    if (m->frames.in[enter->id] != 0)
        node_add_control(&m->c->graph, copy, enter->inputs[0].src);
    *ret = (struct node_input){copy, 0};
    return NULL;
}

static struct status *make_enter(struct mover *m, struct node *node, const struct node *like,
                                 struct node **ret) {
    struct graph *graph = &m->c->graph;
    static const char *const attrs[] = {"frame_name", "is_constant", "parallel_iterations"};
    TRY(add_beside(m, node, "Enter", "enter", ret));
    node_set_attr_type(graph, *ret, "T", (enum dtype)node->out_types[0]);
    for (size_t i = 0; i < ARRAY_LEN(attrs); i++)
        if (node_attr(like, attrs[i]))
            node_set_attr(graph, *ret, attrs[i], node_attr(like, attrs[i]));
    node_add_input(graph, *ret, node, 0);
    return node_finish(graph, *ret);
}

/* Collects what the node waits for in the loop: its control inputs, and those of its data inputs.
 * An Enter is alive in all iterations. Returns their number. */
static int waits_inside(const struct mover *m, const struct node *node, struct node **waits) {
    int n = 0;
    for (int i = 0; i < node->n_inputs; i++) {
        struct node *src = node->inputs[i].src, *inside = m->of[src->id].inside;
        if (i >= node->n_data)
            waits[n++] = inside ? inside : src;
        else if (inside && !node_is_op(inside, "Enter"))
            waits[n++] = inside;
        for (int k = 0; i < node->n_data && is_loop_const(m, src) && k < src->n_inputs; k++)
            waits[n++] = src->inputs[k].src;
    }
    return n;
}

/* Replaces what the loop takes of the node. */
static struct status *make_inside(struct mover *m, struct node *node, const struct node *like,
                                  struct node **ret) {
    struct graph *graph = &m->c->graph;
    struct node *waits[MAX_INPUTS * MAX_CONTROLS + MAX_CONTROLS], *enter;
    int n_waits = waits_inside(m, node, waits);
    TRY(make_enter(m, node, like, &enter));
    *ret = enter;
    if (n_waits == 0)
        return NULL;
    TRY(add_beside(m, node, "Identity", "inside", ret));
    node_set_attr_type(graph, *ret, "T", (enum dtype)node->out_types[0]);
    node_add_input(graph, *ret, enter, 0);
    TRY(node_finish(graph, *ret));
    for (int i = 0; i < n_waits; i++)
        node_add_control(graph, *ret, waits[i]);
    return NULL;
}

static struct status *move_out(struct mover *m, struct node *node) {
    struct node *waits[MAX_INPUTS * MAX_CONTROLS];
    struct invariant made = {.outside = {node, 0}};
    int n_waits = 0;
    made.runs_first = runs_first(m, node, &made.condition);
    for (int i = 0; i < node->n_data; i++) {
        const struct node *enter = m->of[node->inputs[i].src->id].enter;
        made.enter = made.enter ? made.enter : enter;
        for (int k = 1; enter && k < enter->n_inputs; k++)
            waits[n_waits++] = enter->inputs[k].src;
    }
    TRY(make_inside(m, node, made.enter, &made.inside));
    for (int i = 0; i < node->n_data; i++) {
        struct node_input value;
        TRY(take_outside(m, node->inputs[i].src, made.enter, &value));
        node_set_input(node, i, value.src, value.index);
    }
    node->n_inputs = node->n_data;
    for (int i = 0; i < n_waits; i++)
        node_add_control(&m->c->graph, node, waits[i]);
    m->of[node->id] = made;
    m->changed = true;
    return NULL;
}

static void rewire(struct mover *m, struct node *node) {
    for (int i = 0; i < node->n_inputs; i++) {
        struct node *inside = m->of[node->inputs[i].src->id].inside;
        if (inside)
            node_set_input(node, i, inside, node->inputs[i].index);
    }
}

static struct status *look_at_node(struct mover *m, struct node *node) {
    struct invariant *of = &m->of[node->id];
    if (may_move(m, node))
        return move_out(m, node);
    if (is_loop_const(m, node))
        of->runs_first = runs_first(m, node, &of->condition);
    rewire(m, node);
    if (is_constant_enter(m, node))
        *of = (struct invariant){.outside = node->inputs[0],
                                 .enter = node,
                                 .runs_first = true,
                                 .condition = m->conditions.of[node->id]};
    return NULL;
}

static bool has_constant_enters(const struct graph *graph) {
    for (int id = 0; id < graph->n_nodes; id++) {
        const struct node *node = graph->nodes[id];
        const struct attr_value *is_constant =
            !node->is_removed && node_is_op(node, "Enter") ? node_attr(node, "is_constant") : NULL;
        if (is_constant && is_constant->b)
            return true;
    }
    return false;
}

struct status *pass_invariants(struct compilation *c, bool *ret_changed) {
    struct node **order;
    struct status *st = NULL;
    int n = c->graph.n_live;
    if (!has_constant_enters(&c->graph))
        return NULL;
    TRY(graph_topological_order(&c->graph, &order));
    struct mover m = {.c = c, .n_ids = c->graph.n_nodes};
    m.of = arena_array(&c->arena, struct invariant, m.n_ids + 1);
    m.is_target = compile_targets(c);
    m.is_reference = compile_references(&c->graph);
    loop_frames_init(&m.frames, &c->graph, order, n);
    conditions_init(&m.conditions, &c->graph, order, n);
    for (int i = 0; i < n && !st; i++)
        st = look_at_node(&m, order[i]);
    *ret_changed = m.changed;
    loop_frames_fini(&m.frames);
    conditions_fini(&m.conditions);
    free(m.is_reference);
    free(order);
    return st;
}
