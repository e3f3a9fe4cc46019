/* Keeps the values of a forward loop that the loop of its gradient needs [CF 5.1].
 *
 * A value is pushed to a list in each iteration, and popped by the iteration of the gradient that
 * belongs to it. The list is one more value of both loops:
 *
 *   forward    empty ─► Enter ─► push(list, value) ─► Exit ─┐
 *   gradient                     pop(list) ─► value   ◄─ Enter
 *
 * What all iterations share is not pushed: it enters the loop of gradients as well. A value of one
 * side of a condition is pushed with a stand-in on the other sides, and is dead there in the
 * gradient, too. */
#include "common/gradients/backprop_internal.h"
#include "common/gradients/build.h"
#include "common/tensor/tensor.h"

/* ---- nodes of loops ---- */

void loop_enter(struct gradient_ctx *g, const char *frame_name, int64_t parallel_iterations,
                struct node_input initial, struct made_var *ret) {
    struct node_input enter = OP_WITH(
        "Enter",
        ATTRS(ATTR_S("frame_name", frame_name), ATTR_I("parallel_iterations", parallel_iterations)),
        initial);
    *ret = (struct made_var){.merge = OP("Merge", enter, enter)};
}

void loop_switch(struct gradient_ctx *g, struct node_input cond, struct made_var *var) {
    var->switch_node = OP("Switch", var->merge, cond);
    var->exit = OP("Exit", var->switch_node);
}

void loop_close(struct gradient_ctx *g, const struct made_var *var, struct node_input next) {
    struct node_input back = OP("NextIteration", next);
    if (g->status)
        return;
    node_set_input(var->merge.src, 1, back.src, back.index);
    g->status = node_finish(g->graph, var->merge.src);
}

/* ---- nodes that were added to the forward loop ---- */

static struct added_node *added_of(struct walk *walk, const struct node *node) {
    int i = node->id - walk->b->first_id - walk->n_part;
    while (i >= walk->added_capacity) {
        int grown = MAX(64, 2 * walk->added_capacity);
        walk->added = xreallocarray(walk->added, (size_t)grown, sizeof(walk->added[0]));
        memset(&walk->added[walk->added_capacity], 0,
               (size_t)(grown - walk->added_capacity) * sizeof(walk->added[0]));
        walk->added_capacity = grown;
    }
    return &walk->added[i];
}

/* The frame of a forward value; -1: the value is not of a forward graph. */
static int forward_frame(struct walk *walk, const struct node *node) {
    if (node->id < walk->b->first_id + walk->n_part)
        return walk->frames.out[node->id];
    const struct added_node *added = added_of(walk, node);
    return added->is_forward ? added->frame : -1;
}

/* Marks the nodes from `first_id` on as ones of a forward frame. */
static void mark_forward(struct loop_saver *s, int first_id, int frame) {
    /* what is in the loop is not asked for its condition */
    int condition = s->walk->conditions.of[s->loop->vars[0].enter->id];
    for (int id = first_id; id < s->walk->b->graph->n_nodes; id++)
        *added_of(s->walk, s->walk->b->graph->nodes[id]) =
            (struct added_node){.is_forward = true, .frame = frame, .condition = condition};
}

/* The context for nodes beside `node`. */
static struct gradient_ctx *beside(struct loop_saver *s, const struct node *node,
                                   struct node *entry) {
    struct gradient_ctx g = walk_context(s->walk, node, entry);
    g.status = s->g.status;
    s->g = g;
    return &s->g;
}

/* ---- the forward loop ---- */

struct status *saver_init(struct loop_saver *s, struct walk *walk, struct loop *loop,
                          const char *prefix) {
    const struct node *enter = loop->vars[0].enter;
    struct span frame_name;
    *s = (struct loop_saver){.walk = walk, .loop = loop, .grad_frame_name = prefix};
    u64map_init(&s->known);
    TRY(node_get_s(enter, "frame_name", &frame_name));
    TRY(node_get_i(enter, "parallel_iterations", &s->parallel_iterations));
    s->frame_name =
        arena_printf(&walk->arena, "%.*s", (int)frame_name.len, (const char *)frame_name.data);
    struct gradient_ctx *g = beside(s, loop->cond, NULL);
    int first_id = walk->b->graph->n_nodes;
    s->outer_pivot = OP("Identity", enter->inputs[0]).src;
    mark_forward(s, first_id, walk->frames.parent[loop->frame]);
    first_id = walk->b->graph->n_nodes;
    s->inner_pivot = OP("Identity", ((struct node_input){loop->vars[0].switch_node, 1})).src;
    mark_forward(s, first_id, loop->frame);
    return g->status;
}

void saver_fini(struct loop_saver *s) { u64map_fini(&s->known); }

/* Adds a value to the forward loop; `initial` has been made outside of it, from `first_id` on. */
static void begin_forward(struct loop_saver *s, struct gradient_ctx *g, int first_id,
                          struct node_input initial, struct made_var *ret) {
    mark_forward(s, first_id, s->walk->frames.parent[s->loop->frame]);
    first_id = g->graph->n_nodes;
    loop_enter(g, s->frame_name, s->parallel_iterations, initial, ret);
    loop_switch(g, (struct node_input){s->loop->cond, 0}, ret);
    mark_forward(s, first_id, s->loop->frame);
    if (!g->status)
        added_of(s->walk, ret->exit.src)->frame = s->walk->frames.parent[s->loop->frame];
    g->entry = s->inner_pivot;
}

static void end_forward(struct loop_saver *s, struct gradient_ctx *g, const struct made_var *var,
                        int first_id, struct node_input next) {
    loop_close(g, var, next);
    mark_forward(s, first_id, s->loop->frame);
}

struct status *saver_count(struct loop_saver *s, struct node_input *ret) {
    struct gradient_ctx *g = beside(s, s->loop->cond, s->outer_pivot);
    int first_id = g->graph->n_nodes;
    struct made_var count;
    begin_forward(s, g, first_id, I32(0), &count);
    first_id = g->graph->n_nodes;
    end_forward(s, g, &count, first_id, ADD(gradient_second(count.switch_node, 1), I32(1)));
    *ret = count.exit;
    return g->status;
}

struct node_input saver_exit(struct loop_saver *s, const struct loop_var *var) {
    struct gradient_ctx *g = beside(s, var->enter, s->outer_pivot);
    int first_id = g->graph->n_nodes;
    struct node_input exit = OP("Exit", ((struct node_input){var->switch_node, 0}));
    mark_forward(s, first_id, s->walk->frames.parent[s->loop->frame]);
    return exit;
}

/* ---- conditions ---- */

/* One condition of a value within the iteration: the predicate and the side on which it lives. */
struct side {
    struct node_input pred;
    int side, n_sides;
};

static int condition_of(struct loop_saver *s, struct node_input value) {
    if (value.src->id < s->walk->b->first_id + s->walk->n_part)
        return condition_of_input(&s->walk->conditions, &value);
    return added_of(s->walk, value.src)->condition;
}

/* The conditions from the inner to the outer one. */
static int find_sides(struct loop_saver *s, struct node_input value, struct side **ret) {
    const struct conditions *conditions = &s->walk->conditions;
    int condition = condition_of(s, value), n = 0;
    if (condition == CONDITION_UNCERTAIN) {
        if (!s->g.status)
            s->g.status = status_unimplemented(
                "The gradient of a loop needs '%s', whose conditions are not certain",
                value.src->name);
        return 0;
    }
    *ret = arena_array(&s->walk->arena, struct side, conditions->all[condition].depth + 1);
    for (; condition != CONDITION_ALWAYS; condition = conditions->all[condition].parent) {
        const struct condition *at = &conditions->all[condition];
        struct node *pred = s->walk->b->graph->nodes[at->pred_id];
        if (pred == s->loop->cond || forward_frame(s->walk, pred) != s->loop->frame)
            break;
        (*ret)[n++] = (struct side){{pred, at->pred_output}, at->side, at->n_sides};
    }
    return n;
}

/* The value on its sides, the inner one first, and `other` on all others. */
static struct node_input fill_other_sides(struct gradient_ctx *g, struct node_input value,
                                          struct node_input other, const struct side *sides,
                                          int n) {
    for (int i = 0; i < n; i++) {
        struct node_input *parts =
            arena_array(&g->graph->arena, struct node_input, sides[i].n_sides + 1);
        struct node_input switched = gradient_switch(g, other, sides[i].pred, sides[i].n_sides);
        for (int k = 0; k < sides[i].n_sides; k++)
            parts[k] = k == sides[i].side ? value : gradient_second(switched, k);
        value = gradient_op(g, "Merge", false, NULL, sides[i].n_sides, parts);
    }
    return value;
}

struct node_input walk_live_as(struct gradient_ctx *g, int i, struct node_input value) {
    struct walk *walk = g->walk;
    if (!value.src || g->status || !walk->has_control_flow || !walk_has(walk, g->node) ||
        node_is_either(g->node, "Merge", "RefMerge"))
        return value;
    int inner = walk->conditions.of[g->node->id],
        outer = condition_of_input(&walk->conditions, &g->node->inputs[i]), n = 0;
    const struct condition *all = walk->conditions.all;
    if (inner == outer || inner <= CONDITION_ALWAYS || outer == CONDITION_UNCERTAIN)
        return value;
    struct side *sides = arena_array(&walk->arena, struct side, all[inner].depth + 1);
    for (; inner != outer && inner != CONDITION_ALWAYS; inner = all[inner].parent) {
        struct node *pred = walk->b->graph->nodes[all[inner].pred_id];
        if (node_is_op(pred, "LoopCond"))
            break;
        sides[n++] =
            (struct side){{pred, all[inner].pred_output}, all[inner].side, all[inner].n_sides};
    }
    if (n == 0)
        return value;
    return fill_other_sides(g, value, gradient_zeros(g, g->node->inputs[i], gradient_dtype(value)),
                            sides, n);
}

/* A scalar, or an empty list, in the forward loop. */
static struct node_input stand_in(struct gradient_ctx *g, enum dtype dtype) {
    if (dtype == DT_VARIANT)
        return OP_WITH("EmptyTensorList", ATTRS(ATTR_T("element_dtype", DT_FLOAT)), I32(-1),
                       I32(-1));
    struct tensor scalar = TENSOR_INIT;
    if (!g->status)
        g->status = tensor_new_zeroed(allocator_host(), dtype, (struct shape){0}, &scalar);
    struct node_input value = gradient_constant(g, &scalar);
    tensor_clear(&scalar);
    return value;
}

/* ---- values ---- */

static struct node_input find_saved(struct loop_saver *s, struct node_input value);

/* Makes it dead again where the forward value was dead. */
static struct node_input live_on_sides(struct loop_saver *s, struct node_input value,
                                       const struct node *forward, const struct side *sides,
                                       int n) {
    for (int i = n - 1; i >= 0; i--) {
        struct node_input pred = find_saved(s, sides[i].pred);
        struct gradient_ctx *g = beside(s, forward, s->grad_pivot);
        value = gradient_second(gradient_switch(g, value, pred, sides[i].n_sides), sides[i].side);
    }
    return value;
}

static struct node_input push_and_pop(struct loop_saver *s, struct node_input value) {
    struct side *sides = NULL;
    enum dtype dtype = gradient_dtype(value);
    struct gradient_ctx *g = beside(s, value.src, s->outer_pivot);
    if (dtype == DT_RESOURCE && !g->status)
        g->status = status_unimplemented(
            "The gradient of a loop needs '%s', a handle that its body makes", value.src->name);
    int n_sides = find_sides(s, value, &sides), first_id = g->graph->n_nodes;
    struct made_var list, grad_list;
    begin_forward(
        s, g, first_id,
        OP_WITH("EmptyTensorList", ATTRS(ATTR_T("element_dtype", dtype)), I32(-1), I32(-1)), &list);
    first_id = g->graph->n_nodes;
    end_forward(
        s, g, &list, first_id,
        OP("TensorListPushBack", gradient_second(list.switch_node, 1),
           n_sides > 0 ? fill_other_sides(g, value, stand_in(g, dtype), sides, n_sides) : value));
    loop_enter(g, s->grad_frame_name, s->parallel_iterations, list.exit, &grad_list);
    loop_switch(g, s->grad_cond, &grad_list);
    g->entry = s->grad_pivot;
    struct node_input popped = OP_WITH("TensorListPopBack", ATTRS(ATTR_T("element_dtype", dtype)),
                                       gradient_second(grad_list.switch_node, 1), I32(-1));
    loop_close(g, &grad_list, popped);
    return live_on_sides(s, SECOND(popped), value.src, sides, n_sides);
}

static bool is_constant_enter(const struct node *node) {
    bool is_constant = false;
    if (!node_is_either(node, "Enter", "RefEnter"))
        return false;
    status_unref(node_get_b(node, "is_constant", &is_constant));
    return is_constant;
}

static bool takes_reference(const struct node *node) {
    const struct node_input *in = &node->inputs[0];
    return dtype_is_ref((enum dtype)in->src->out_types[in->index]);
}

/* A variable that every iteration hands on as it is. */
static const struct loop_var *shared_var(const struct loop_saver *s, struct node_input value) {
    const struct loop_var *var = walk_var(s->walk, s->loop, value);
    return var && var->is_shared ? var : NULL;
}

static bool is_plain_identity(const struct node *node) {
    return node_is_op(node, "Identity") && !takes_reference(node);
}

/* A Switch of the body, whose value is cheaper to switch again than to keep. */
static bool is_plain_switch(const struct loop_saver *s, const struct node *node) {
    if (!walk_has(s->walk, node) || !node_is_switch(node) || takes_reference(node) ||
        s->walk->conditions.of[node->id] == CONDITION_UNCERTAIN) /* or too deep */
        return false;
    return !node_is_op(node, "RefSwitch") && node->inputs[1].src != s->loop->cond;
}

static struct node_input copy_constant(struct loop_saver *s, const struct node *node) {
    struct gradient_ctx *g = beside(s, node, s->grad_pivot);
    const struct attr_value *value = node_attr(node, "value");
    if (!value || value->type != ATTR_TENSOR)
        return push_and_pop(s, (struct node_input){(struct node *)(uintptr_t)node, 0});
    return gradient_constant(g, value->tensor);
}

static struct node_input switch_again(struct loop_saver *s, struct node_input value) {
    struct node_input data = find_saved(s, value.src->inputs[0]),
                      pred = find_saved(s, value.src->inputs[1]);
    struct gradient_ctx *g = beside(s, value.src, s->grad_pivot);
    return gradient_second(gradient_switch(g, data, pred, value.src->n_outputs), value.index);
}

static struct node_input enter_again(struct loop_saver *s, const struct node *enter) {
    struct gradient_ctx *g = beside(s, enter, s->grad_pivot);
    return OP_WITH("Enter",
                   ATTRS(ATTR_S("frame_name", s->grad_frame_name), ATTR_B("is_constant", true),
                         ATTR_I("parallel_iterations", s->parallel_iterations)),
                   enter->inputs[0]);
}

static struct node_input make_saved(struct loop_saver *s, struct node_input value) {
    const struct node *node = value.src;
    const struct loop_var *shared = shared_var(s, value);
    if (shared || is_constant_enter(node))
        return enter_again(s, shared ? shared->enter : node);
    if (node_is_op(node, "Const"))
        return copy_constant(s, node);
    if (is_plain_switch(s, node))
        return switch_again(s, value);
    return push_and_pop(s, value);
}

/* The value in the loop of gradients for one of the forward loop. */
static struct node_input find_saved(struct loop_saver *s, struct node_input value) {
    while (is_plain_identity(value.src) &&
           forward_frame(s->walk, value.src->inputs[0].src) == s->loop->frame)
        value = value.src->inputs[0];
    uint64_t key = ((uint64_t)value.src->id << 20 | (uint64_t)value.index) + 1;
    struct node_input *known = u64map_get(&s->known, key);
    if (!known) {
        known = arena_new(&s->walk->arena, struct node_input);
        *known = make_saved(s, value);
        u64map_put(&s->known, key, known);
    }
    return *known;
}

/* ---- the loop of gradients ---- */

/* A shape is smaller than its value: it is taken, and kept, in the forward loop. */
static bool stays_forward(struct loop_saver *s, struct node *node) {
    const struct node *of = node->n_data == 1 ? node->inputs[0].src : NULL;
    if (!node_is_either(node, "Shape", "Size") && !node_is_op(node, "Rank"))
        return false;
    if (is_constant_enter(of) || node_is_op(of, "Const") || shared_var(s, node->inputs[0]))
        return false;
    int condition = condition_of(s, node->inputs[0]);
    *added_of(s->walk, node) = (struct added_node){true, s->loop->frame, condition};
    return true;
}

struct status *saver_replace(struct loop_saver *s, int first_id) {
    struct graph *graph = s->walk->b->graph;
    for (int id = first_id; id < graph->n_nodes && !s->g.status; id++) {
        struct node *node = graph->nodes[id];
        for (int i = 0; i < node->n_data && forward_frame(s->walk, node) < 0; i++) {
            struct node_input in = node->inputs[i];
            if (forward_frame(s->walk, in.src) != s->loop->frame || stays_forward(s, node))
                continue;
            in = find_saved(s, in);
            if (!s->g.status)
                node_set_input(node, i, in.src, in.index);
        }
        if (graph->n_nodes > s->walk->b->max_nodes && !s->g.status)
            s->g.status = status_exhausted("The gradient makes a graph of more than %d nodes",
                                           s->walk->b->max_nodes);
    }
    return s->g.status;
}
