/* Differentiates loops [CF 5.1]. The gradient of a loop is a loop that runs backwards:
 *
 *   forward    x ─► Enter ─► [ y = body(x) ] ─► Exit            counts its iterations,
 *                               │ saves                         and keeps the values that the
 *                               ▼                               gradient needs (saved_values.c)
 *   gradient  dx ◄─ Exit ◄─ [ dx = body'(dy) ] ◄─ Enter ◄─ dy   while count > 0
 *
 * A value that all iterations share (an Enter that is_constant) has a sum of gradients, which is
 * one more value of the loop. Loops within the body are differentiated in the same way; what they
 * have saved is a value of the body, which is saved in turn. */
#include <stdlib.h>

#include "common/gradients/backprop_internal.h"
#include "common/gradients/build.h"

/* ---- what the part has ---- */

static int place_of(const struct walk *walk, const struct node *node) {
    return node->id - walk->b->first_id;
}

static bool is_back_edge(struct node_input in) {
    return node_is_either(in.src, "NextIteration", "RefNextIteration");
}

/* The input of a loop's Merge that comes from the body; -1 for another node. */
static int back_edge_of(const struct node *node) {
    if (node_is_either(node, "Merge", "RefMerge"))
        for (int i = 0; i < node->n_data; i++)
            if (is_back_edge(node->inputs[i]))
                return i;
    return -1;
}

static bool is_loop_switch(const struct node *node) {
    return node_is_either(node, "Switch", "RefSwitch") &&
           node_is_op(node->inputs[1].src, "LoopCond");
}

static bool is_enter(const struct node *node) { return node_is_either(node, "Enter", "RefEnter"); }
static bool is_exit(const struct node *node) { return node_is_either(node, "Exit", "RefExit"); }

bool walk_is_of_loop(const struct node *node) {
    return node_is_op(node, "LoopCond") || back_edge_of(node) >= 0 || is_loop_switch(node) ||
           node_is_either(node, "NextIteration", "RefNextIteration");
}

/* A variable of a loop; a Merge like it outside of loops is not. */
static bool is_loop_merge(const struct walk *walk, const struct node *node) {
    return walk->frames.in[node->id] != 0 && node->n_data == 2 && back_edge_of(node) >= 0;
}

static void count_node(struct walk *walk, const struct node *node) {
    int in = walk->frames.in[node->id], out = walk->frames.out[node->id];
    walk->loops[out].n_enters += is_enter(node);
    walk->loops[in].n_exits += is_exit(node);
    walk->loops[in].n_vars += is_loop_merge(walk, node);
    walk->regions[in].n++;
}

static void take_node(struct walk *walk, struct node *node) {
    int in = walk->frames.in[node->id], out = walk->frames.out[node->id];
    if (is_enter(node))
        walk->loops[out].enters[walk->loops[out].n_enters++] = node;
    if (is_exit(node))
        walk->loops[in].exits[walk->loops[in].n_exits++] = node;
    struct loop *loop = &walk->loops[in];
    if (node_is_op(node, "LoopCond")) {
        loop->is_odd = loop->is_odd || loop->cond;
        loop->cond = node;
    }
    if (!is_loop_merge(walk, node))
        return;
    int back = back_edge_of(node);
    struct node *enter = node->inputs[1 - back].src;
    loop->vars[loop->n_vars] = (struct loop_var){
        .enter = is_enter(enter) ? enter : NULL, .merge = node, .next = node->inputs[back].src};
    walk->var_of[place_of(walk, node)] = ++loop->n_vars;
    if (is_enter(enter) && walk_has(walk, enter))
        walk->is_var_enter[place_of(walk, enter)] = true;
}

static void take_switch(struct walk *walk, struct node *node) {
    const struct node *merge = node->inputs[0].src;
    int frame = walk->frames.in[node->id], var = 0;
    if (frame != 0 && is_loop_switch(node) && walk_has(walk, merge) &&
        walk->frames.in[merge->id] == frame)
        var = walk->var_of[place_of(walk, merge)];
    if (var == 0)
        return;
    struct loop *loop = &walk->loops[frame];
    loop->is_odd = loop->is_odd || loop->vars[var - 1].switch_node;
    loop->vars[var - 1].switch_node = node;
    walk->var_of[place_of(walk, node)] = var;
}

/* ---- the order of units ---- */

enum visit { VISIT_NEW, VISIT_OPEN, VISIT_DONE };

struct unit_order {
    struct walk *walk;
    int frame;
    uint8_t *of_node, *of_loop; /* enum visit */
    struct unit *stack;
    int n, capacity;
};

static uint8_t *visit_of(struct unit_order *o, struct unit unit) {
    return unit.node ? &o->of_node[place_of(o->walk, unit.node)] : &o->of_loop[unit.frame];
}

static void push_unit(struct unit_order *o, struct unit unit) {
    if (*visit_of(o, unit) != VISIT_NEW)
        return;
    if (o->n == o->capacity) {
        o->capacity = o->capacity ? 2 * o->capacity : 64;
        o->stack = xreallocarray(o->stack, (size_t)o->capacity, sizeof(o->stack[0]));
    }
    o->stack[o->n++] = unit;
}

/* Pushes the unit of the region that makes the value of an edge, if there is one. */
static void push_producer(struct unit_order *o, struct node_input in) {
    const struct loop_frames *frames = &o->walk->frames;
    if (!walk_has(o->walk, in.src) || frames->out[in.src->id] != o->frame || is_enter(in.src))
        return;
    int frame = frames->in[in.src->id];
    push_unit(o, frame != o->frame ? (struct unit){NULL, frame} : (struct unit){in.src, frame});
}

static void push_producers(struct unit_order *o, struct unit unit) {
    const struct loop *loop = &o->walk->loops[unit.frame];
    for (int i = 0; !unit.node && i < loop->n_enters; i++)
        for (int k = 0; k < loop->enters[i]->n_inputs; k++)
            push_producer(o, loop->enters[i]->inputs[k]);
    for (int k = 0; unit.node && k < unit.node->n_inputs; k++)
        if (!is_back_edge(unit.node->inputs[k]))
            push_producer(o, unit.node->inputs[k]);
}

/* Appends a unit to its region, after those that it needs. */
static void append_unit(struct unit_order *o, struct unit unit) {
    struct region *region = &o->walk->regions[o->frame];
    for (push_unit(o, unit); o->n > 0;) {
        struct unit top = o->stack[o->n - 1];
        uint8_t *visit = visit_of(o, top);
        if (*visit == VISIT_NEW) {
            *visit = VISIT_OPEN;
            push_producers(o, top);
            continue;
        }
        if (*visit == VISIT_OPEN)
            region->units[region->n++] = top;
        *visit = VISIT_DONE;
        o->n--;
    }
}

static void order_units(struct walk *walk) {
    struct unit_order o = {
        .walk = walk,
        .of_node = arena_array(&walk->arena, uint8_t, walk->n_part + 1),
        .of_loop = arena_array(&walk->arena, uint8_t, walk->frames.n_frames),
    };
    for (int i = 0; i < walk->n_order; i++) {
        struct node *node = walk->order[i];
        int in = walk->frames.in[node->id], out = walk->frames.out[node->id];
        o.frame = is_exit(node) ? out : in;
        append_unit(&o, is_enter(node)  ? (struct unit){NULL, out}
                        : is_exit(node) ? (struct unit){NULL, in}
                                        : (struct unit){node, in});
    }
    free(o.stack);
}

/* All nodes are in one region. */
static void take_plain_part(struct walk *walk) {
    walk->regions = arena_array(&walk->arena, struct region, 1);
    walk->regions[0].units = arena_array(&walk->arena, struct unit, walk->n_order + 1);
    walk->regions[0].n = walk->n_order;
    for (int i = 0; i < walk->n_order; i++)
        walk->regions[0].units[i] = (struct unit){walk->order[i], 0};
}

void walk_find_loops(struct walk *walk) {
    for (int i = 0; i < walk->n_order && !walk->has_control_flow; i++)
        walk->has_control_flow = node_is_switch(walk->order[i]) || node_is_frame_op(walk->order[i]);
    if (!walk->has_control_flow) {
        take_plain_part(walk);
        return;
    }
    loop_frames_init(&walk->frames, walk->b->graph, walk->order, walk->n_order);
    conditions_init(&walk->conditions, walk->b->graph, walk->order, walk->n_order);
    int n_frames = walk->frames.n_frames;
    walk->regions = arena_array(&walk->arena, struct region, n_frames);
    walk->loops = arena_array(&walk->arena, struct loop, n_frames);
    walk->var_of = arena_array(&walk->arena, int, walk->n_part + 1);
    walk->seen_by = arena_array(&walk->arena, int, walk->n_part + 1);
    walk->is_var_enter = arena_array(&walk->arena, bool, walk->n_part + 1);
    for (int i = 0; i < walk->n_order; i++)
        count_node(walk, walk->order[i]);
    for (int f = 1; f < n_frames; f++) { /* the loops in a region are units, too */
        walk->regions[walk->frames.parent[f]].n++;
        walk->loops[f].depth = walk->loops[walk->frames.parent[f]].depth + 1;
    }
    for (int f = 0; f < n_frames; f++) {
        struct loop *loop = &walk->loops[f];
        loop->frame = f;
        loop->vars = arena_array(&walk->arena, struct loop_var, loop->n_vars + 1);
        loop->enters = arena_array(&walk->arena, struct node *, loop->n_enters + 1);
        loop->exits = arena_array(&walk->arena, struct node *, loop->n_exits + 1);
        loop->n_vars = loop->n_enters = loop->n_exits = 0;
        walk->regions[f].units = arena_array(&walk->arena, struct unit, walk->regions[f].n + 1);
        walk->regions[f].n = 0;
    }
    for (int i = 0; i < walk->n_order; i++)
        take_node(walk, walk->order[i]);
    for (int i = 0; i < walk->n_order; i++)
        if (node_is_switch(walk->order[i]))
            take_switch(walk, walk->order[i]);
    order_units(walk);
}

/* ---- one loop ---- */

static struct status *refuse(const struct loop *loop, const char *what) {
    const struct node *node = loop->cond       ? loop->cond
                              : loop->n_enters ? loop->enters[0]
                                               : loop->exits[0];
    return status_unimplemented("The gradient of a loop with %s is not supported\n\t "
                                "[[{{node %s}}]]",
                                what, node->name);
}

/* The variable of the loop whose Switch has this output. */
static struct loop_var *var_of_switch(const struct walk *walk, struct loop *loop,
                                      struct node_input in, int index) {
    int var = in.index == index && walk_has(walk, in.src) && is_loop_switch(in.src) &&
                      walk->frames.in[in.src->id] == loop->frame
                  ? walk->var_of[place_of(walk, in.src)]
                  : 0;
    return var > 0 ? &loop->vars[var - 1] : NULL;
}

static struct loop_var *var_of_exit(const struct walk *walk, struct loop *loop,
                                    const struct node *exit) {
    return var_of_switch(walk, loop, exit->inputs[0], 0);
}

struct loop_var *walk_var(const struct walk *walk, struct loop *loop, struct node_input value) {
    return var_of_switch(walk, loop, value, 1);
}

static void find_shared(const struct walk *walk, struct loop *loop) {
    for (int i = 0; i < loop->n_vars; i++) {
        struct node_input next = loop->vars[i].next->inputs[0];
        while (node_is_op(next.src, "Identity") && next.index == 0)
            next = next.src->inputs[0];
        loop->vars[i].is_shared = walk_var(walk, loop, next) == &loop->vars[i];
    }
}

static struct status *check_loop(const struct walk *walk, struct loop *loop) {
    enum { MAX_DEPTH = 64 };
    if (loop->depth > MAX_DEPTH)
        return refuse(loop, "more than 63 loops around it");
    if (!loop->cond || loop->is_odd)
        return refuse(loop, loop->cond ? "several conditions" : "no LoopCond");
    if (loop->n_vars == 0)
        return refuse(loop, "no variable");
    for (int i = 0; i < loop->n_vars; i++)
        if (!loop->vars[i].enter || !loop->vars[i].switch_node || !loop->vars[i].next)
            return refuse(loop, "a variable without Enter, Switch or NextIteration");
    for (int i = 0; i < loop->n_exits; i++) {
        struct loop_var *var = var_of_exit(walk, loop, loop->exits[i]);
        if (!var)
            return refuse(loop, "an Exit of something else than its variables");
        var->exit = var->exit ? var->exit : loop->exits[i];
    }
    return NULL;
}

/* Is the node in the loop, or in a loop within it? */
static bool is_inside(const struct walk *walk, const struct loop *loop, const struct node *node) {
    int frame = walk_has(walk, node) ? walk->frames.out[node->id] : 0;
    if (walk_has(walk, node) && is_exit(node))
        frame = walk->frames.in[node->id];
    while (frame > loop->frame)
        frame = walk->frames.parent[frame];
    return frame == loop->frame;
}

struct node_stack {
    struct node **nodes;
    int n, capacity;
};

/* Pushes a node that this loop has not seen. */
static void push_new(struct walk *walk, const struct loop *loop, struct node *node,
                     struct node_stack *stack) {
    int *seen_by = &walk->seen_by[place_of(walk, node)];
    if (*seen_by == loop->frame)
        return;
    *seen_by = loop->frame;
    if (stack->n == stack->capacity) {
        stack->capacity = stack->capacity ? 2 * stack->capacity : 64;
        stack->nodes =
            xreallocarray(stack->nodes, (size_t)stack->capacity, sizeof(stack->nodes[0]));
    }
    stack->nodes[stack->n++] = node;
}

/* Pushes the producer of a value if a gradient can reach it within the loop. */
static void push_reached(struct walk *walk, const struct loop *loop, struct node_input value,
                         struct node_stack *stack) {
    if (is_inside(walk, loop, value.src) && carries_gradient(value) &&
        walk->is_on_way[place_of(walk, value.src)])
        push_new(walk, loop, value.src, stack);
}

/* Marks the variables that a gradient reaches, from those whose Exit has one. */
static void find_active(struct walk *walk, struct loop *loop) {
    struct node_stack stack = {0};
    for (int i = 0; i < loop->n_vars; i++)
        if (loop->vars[i].is_active)
            push_new(walk, loop, loop->vars[i].next, &stack);
    while (stack.n > 0) {
        struct node *node = stack.nodes[--stack.n];
        struct loop_var *var = walk_var(walk, loop, (struct node_input){node, 1});
        if (var) {
            var->is_active = true;
            push_reached(walk, loop, (struct node_input){var->next, 0}, &stack);
        }
        for (int i = 0; !var && i < node->n_data; i++)
            push_reached(walk, loop, node->inputs[i], &stack);
    }
    free(stack.nodes);
}

/* ---- the loop of gradients ---- */

struct loop_gradient {
    struct walk *walk;
    struct loop *loop;
    struct loop_saver saver;
    struct gradient_ctx g;
    struct node *entry;    /* of the surroundings */
    struct made_var *vars; /* as those of the loop */
};

/* Sets where new nodes belong: `entry` is the control input of those without data inputs. */
static struct gradient_ctx *at(struct loop_gradient *lg, struct node *entry) {
    lg->g.entry = entry;
    return &lg->g;
}

static void begin_var(struct loop_gradient *lg, struct node_input initial, struct made_var *ret) {
    loop_enter(at(lg, lg->entry), lg->saver.grad_frame_name, lg->saver.parallel_iterations, initial,
               ret);
}

/* Adds to each variable's first Exit what its other ones have. Marks the variables whose Exits have
 * a gradient. */
static struct status *take_exits(struct loop_gradient *lg, struct node_input *initial) {
    struct gradient_ctx *g = at(lg, lg->entry);
    for (int i = 0; i < lg->loop->n_exits; i++) {
        struct node_input value = {lg->loop->exits[i], 0}, taken;
        struct loop_var *var = var_of_exit(lg->walk, lg->loop, lg->loop->exits[i]);
        struct node_input *sum = &initial[var - lg->loop->vars];
        TRY(walk_take(lg->walk, value, &taken));
        if (!taken.src || !lg->walk->is_on_way[place_of(lg->walk, lg->loop->exits[i])])
            continue;
        *sum = sum->src ? OP("AddN", *sum, taken) : taken;
        var->is_active = true;
    }
    return NULL;
}

/* Zeros like the last value of a variable. */
static struct node_input zeros_after(struct loop_gradient *lg, const struct loop_var *var) {
    struct node_input last =
        var->exit ? (struct node_input){var->exit, 0} : saver_exit(&lg->saver, var);
    struct gradient_ctx *g = at(lg, lg->entry);
    return lg->saver.g.status ? last : ZEROS(last);
}

/* Counts down from the number of iterations. */
static void make_count(struct loop_gradient *lg, struct node_input count) {
    struct made_var var;
    begin_var(lg, count, &var);
    struct gradient_ctx *g = at(lg, var.merge.src);
    lg->saver.grad_cond = OP("LoopCond", OP("Greater", var.merge, I32(0)));
    loop_switch(g, lg->saver.grad_cond, &var);
    struct node_input current = gradient_second(var.switch_node, 1);
    lg->saver.grad_pivot = OP("Identity", current).src;
    g = at(lg, lg->saver.grad_pivot);
    loop_close(g, &var, SUB(current, I32(1)));
}

static void make_vars(struct loop_gradient *lg, const struct node_input *initial) {
    for (int i = 0; i < lg->loop->n_vars; i++) {
        struct loop_var *var = &lg->loop->vars[i];
        if (!var->is_active || var->is_shared)
            continue;
        begin_var(lg, initial[i].src ? initial[i] : zeros_after(lg, var), &lg->vars[i]);
        loop_switch(&lg->g, lg->saver.grad_cond, &lg->vars[i]);
        if (!lg->g.status)
            walk_contribute(lg->walk, var->next->inputs[0],
                            gradient_second(lg->vars[i].switch_node, 1));
    }
}

/* The sum of the parts that all iterations add to the gradient of what they share. */
static void make_sum(struct loop_gradient *lg, struct node_input shared, struct node_input initial,
                     struct node_input part) {
    struct made_var sum;
    struct gradient_ctx *g = at(lg, lg->entry);
    if (!part.src) {
        walk_contribute(lg->walk, shared, initial);
        return;
    }
    begin_var(lg, initial.src ? initial : gradient_zeros(g, shared, gradient_dtype(part)), &sum);
    loop_switch(g, lg->saver.grad_cond, &sum);
    g = at(lg, lg->saver.grad_pivot);
    loop_close(g, &sum, OP("AddN", gradient_second(sum.switch_node, 1), part));
    walk_contribute(lg->walk, shared, sum.exit);
}

/* The gradient of a variable before an iteration, from that after it. */
static struct status *close_vars(struct loop_gradient *lg, const struct node_input *initial) {
    for (int i = 0; i < lg->loop->n_vars; i++) {
        struct loop_var *var = &lg->loop->vars[i];
        struct node_input value = {var->switch_node, 1}, before, in_cond;
        TRY(walk_take(lg->walk, (struct node_input){var->merge, 0}, &in_cond));
        TRY(walk_take(lg->walk, value, &before));
        if (in_cond.src || (before.src && !var->is_active && !var->is_shared))
            return refuse(lg->loop, "a value that is used before its condition");
        if (var->is_shared) {
            make_sum(lg, var->enter->inputs[0], initial[i], before);
        } else if (var->is_active) {
            struct gradient_ctx *g = at(lg, lg->saver.grad_pivot);
            loop_close(g, &lg->vars[i], before.src ? before : ZEROS(value));
            walk_contribute(lg->walk, var->enter->inputs[0], lg->vars[i].exit);
        }
    }
    return NULL;
}

/* Sums of the gradients of what all iterations share. */
static struct status *make_sums(struct loop_gradient *lg) {
    for (int i = 0; i < lg->loop->n_enters; i++) {
        struct node *enter = lg->loop->enters[i];
        struct node_input part;
        bool is_constant = false;
        TRY(walk_take(lg->walk, (struct node_input){enter, 0}, &part));
        TRY(node_get_b(enter, "is_constant", &is_constant));
        if (part.src && (!is_constant || lg->walk->is_var_enter[place_of(lg->walk, enter)]))
            return refuse(lg->loop, "an Enter for its first iteration only");
        if (part.src)
            make_sum(lg, enter->inputs[0], (struct node_input){NULL, 0}, part);
    }
    return NULL;
}

static struct status *make_gradient(struct loop_gradient *lg) {
    struct walk *walk = lg->walk;
    struct node_input *initial = arena_array(&walk->arena, struct node_input, lg->loop->n_vars + 1);
    struct node_input count;
    find_shared(walk, lg->loop);
    TRY(take_exits(lg, initial));
    find_active(walk, lg->loop);
    TRY(saver_count(&lg->saver, &count));
    int first_id = walk->b->graph->n_nodes;
    make_count(lg, count);
    make_vars(lg, initial);
    TRY(lg->g.status);
    TRY(lg->saver.g.status);
    walk->entry = lg->saver.grad_pivot;
    TRY(walk_region(walk, lg->loop->frame));
    walk->entry = lg->entry;
    TRY(close_vars(lg, initial));
    TRY(make_sums(lg));
    TRY(lg->g.status);
    return saver_replace(&lg->saver, first_id);
}

static bool has_gradient(const struct walk *walk, const struct loop *loop) {
    for (int i = 0; i < loop->n_exits; i++) {
        int place = place_of(walk, loop->exits[i]);
        if (walk->is_on_way[place] && walk->heads[walk->first_output[place]] > 0)
            return true;
    }
    return false;
}

struct status *walk_loop(struct walk *walk, struct loop *loop) {
    if (!has_gradient(walk, loop))
        return NULL;
    struct loop_gradient lg = {
        .walk = walk,
        .loop = loop,
        .entry = walk->entry,
        .vars = arena_array(&walk->arena, struct made_var, loop->n_vars + 1),
    };
    TRY(check_loop(walk, loop));
    lg.g = walk_context(walk, loop->cond, walk->entry);
    struct status *st = saver_init(&lg.saver, walk, loop, lg.g.prefix);
    if (!st)
        st = make_gradient(&lg);
    saver_fini(&lg.saver);
    if (st != lg.g.status)
        status_unref(lg.g.status);
    return st;
}
