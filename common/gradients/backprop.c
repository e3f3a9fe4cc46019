/* Visits nodes from the outputs to the inputs and adds their gradients (backprop.h). A loop is
 * visited as a whole (backprop_loop.c). */
#include "common/gradients/backprop.h"

#include <stdlib.h>

#include "common/gradients/backprop_internal.h"

/* PREFIX/gradient/NAME for the node PREFIX/NAME. */
static const char *name_below(const struct walk *walk, const struct node *node) {
    const char *prefix = walk->b->prefix, *name = node->name;
    size_t len = strlen(prefix);
    if (strncmp(name, prefix, len) == 0 && name[len] == '/')
        name += len + 1;
    return arena_printf(&walk->b->graph->arena, "%s/gradient/%s", prefix, name);
}

bool carries_gradient(struct node_input value) {
    enum dtype dtype = dtype_base((enum dtype)value.src->out_types[value.index]);
    return dtype_in(dtype, DTYPES_FLOAT | DTYPES_COMPLEX) || dtype == DT_VARIANT ||
           dtype == DT_RESOURCE;
}

bool walk_has(const struct walk *walk, const struct node *node) {
    int place = node->id - walk->b->first_id;
    return place >= 0 && place < walk->n_part;
}

static int *head_of(struct walk *walk, struct node_input output) {
    return &walk->heads[walk->first_output[output.src->id - walk->b->first_id] + output.index];
}

void walk_contribute(struct walk *walk, struct node_input to, struct node_input value) {
    if (!value.src || !walk_has(walk, to.src) || !carries_gradient(to))
        return;
    int place = to.src->id - walk->b->first_id;
    if (!walk->is_x[place] && !walk->is_on_way[place])
        return;
    if (walk->n_contributions == walk->capacity) {
        walk->capacity = walk->capacity ? 2 * walk->capacity : 64;
        walk->contributions = xreallocarray(walk->contributions, (size_t)walk->capacity,
                                            sizeof(walk->contributions[0]));
    }
    int *head = head_of(walk, to);
    walk->contributions[walk->n_contributions] = (struct contribution){value, *head};
    *head = ++walk->n_contributions;
}

static struct status *sum_parts(struct walk *walk, struct node_input output, int n,
                                struct node_input *ret) {
    struct graph *graph = walk->b->graph;
    struct node *sum;
    const char *name = graph_unique_name(
        graph, arena_printf(&graph->arena, "%s/AddN", name_below(walk, output.src)));
    TRY(graph_add_node(graph, name, "AddN", output.src->device, &sum));
    node_set_attr_i(graph, sum, "N", n);
    for (int i = *head_of(walk, output); i > 0; i = walk->contributions[i - 1].next) {
        struct node_input value = walk->contributions[i - 1].value;
        node_set_attr_type(graph, sum, "T",
                           dtype_base((enum dtype)value.src->out_types[value.index]));
        node_add_input(graph, sum, value.src, value.index);
    }
    *ret = (struct node_input){sum, 0};
    return node_finish(graph, sum);
}

struct status *walk_take(struct walk *walk, struct node_input output, struct node_input *ret) {
    int n = 0;
    *ret = (struct node_input){NULL, 0};
    for (int i = *head_of(walk, output); i > 0; i = walk->contributions[i - 1].next, n++)
        *ret = walk->contributions[i - 1].value;
    return n > 1 ? sum_parts(walk, output, n, ret) : NULL;
}

static struct status *find_function(const struct walk *walk, const struct node *node,
                                    gradient_fn **ret) {
    const struct gradient_row *row = gradient_find(node->op_name);
    *ret = NULL;
    bool is_call =
        (!row && !op_signature_is_known(node->op)) || (row && row->kind == GRADIENT_CALL);
    if (is_call && walk->b->function)
        *ret = walk->b->function;
    else if (row && row->kind == GRADIENT_FN)
        *ret = row->fn;
    if (*ret || (row && row->kind == GRADIENT_NONE))
        return NULL;
    bool is_refused = row && row->kind == GRADIENT_REFUSED;
    return status_not_found("No gradient defined for op: %s%s%s%s\n\t [[{{node %s}}]]",
                            node->op_name, is_refused ? " (" : "", is_refused ? row->why : "",
                            is_refused ? ")" : "", node->name);
}

struct gradient_ctx walk_context(struct walk *walk, const struct node *node, struct node *entry) {
    return (struct gradient_ctx){
        .graph = walk->b->graph,
        .node = node,
        .prefix = name_below(walk, node),
        .entry = entry,
        .array_source = walk->b->array_source ? walk->b->array_source : "gradients",
        .walk = walk,
        .user = walk->b->user,
    };
}

static struct status *differentiate(struct walk *walk, const struct node *node) {
    struct graph *graph = walk->b->graph;
    struct node_input *grads =
        arena_array(&walk->arena, struct node_input, node->n_outputs + node->n_data + 1);
    bool has_any = false;
    gradient_fn *function;
    for (int i = 0; i < node->n_outputs; i++) {
        TRY(walk_take(walk, (struct node_input){(struct node *)(uintptr_t)node, i}, &grads[i]));
        has_any = has_any || grads[i].src;
    }
    if (!has_any)
        return NULL;
    TRY(find_function(walk, node, &function));
    if (!function)
        return NULL;
    struct gradient_ctx ctx = walk_context(walk, node, walk->entry);
    ctx.grad_out = grads;
    ctx.grad_in = grads + node->n_outputs;
    if (graph->n_nodes > walk->b->max_nodes)
        return status_exhausted(
            "The gradient makes a graph of more than %d nodes\n\t [[{{node %s}}]]",
            walk->b->max_nodes, node->name);
    function(&ctx);
    if (ctx.status)
        return status_suffix_take(ctx.status, "\n\t [[{{node %s}}]]", node->name);
    for (int i = 0; i < node->n_data; i++)
        walk_contribute(walk, node->inputs[i], walk_live_as(&ctx, i, ctx.grad_in[i]));
    if (ctx.status)
        return status_suffix_take(ctx.status, "\n\t [[{{node %s}}]]", node->name);
    return NULL;
}

struct status *walk_region(struct walk *walk, int frame) {
    const struct region *region = &walk->regions[frame];
    for (int i = region->n - 1; i >= 0; i--) {
        struct node *node = region->units[i].node;
        if (!node)
            TRY(walk_loop(walk, &walk->loops[region->units[i].frame]));
        else if (walk->is_on_way[node->id - walk->b->first_id] && !walk_is_of_loop(node))
            TRY(differentiate(walk, node));
    }
    return NULL;
}

/* ---- the path from the xs ---- */

/* The data edges between nodes of the part, by producer. */
struct uses {
    int *first; /* by place: nodes[first[place] … first[place + 1]) */
    struct node **nodes;
};

static bool is_use(const struct walk *walk, struct node_input in) {
    return walk_has(walk, in.src) && carries_gradient(in);
}

static void uses_init(struct uses *uses, const struct walk *walk) {
    int base = walk->b->first_id, n = 0;
    uses->first = xcalloc((size_t)walk->n_part + 2, sizeof(*uses->first));
    for (int i = 0; i < walk->n_order; i++)
        for (int k = 0; k < walk->order[i]->n_data; k++)
            if (is_use(walk, walk->order[i]->inputs[k]))
                uses->first[walk->order[i]->inputs[k].src->id - base + 1]++;
    for (int i = 0; i < walk->n_part; i++)
        n = uses->first[i + 1] += n;
    uses->nodes = xcalloc((size_t)n + 1, sizeof(*uses->nodes));
    int *next = xcalloc((size_t)walk->n_part + 1, sizeof(*next));
    memcpy(next, uses->first, (size_t)walk->n_part * sizeof(*next));
    for (int i = 0; i < walk->n_order; i++)
        for (int k = 0; k < walk->order[i]->n_data; k++)
            if (is_use(walk, walk->order[i]->inputs[k]))
                uses->nodes[next[walk->order[i]->inputs[k].src->id - base]++] = walk->order[i];
    free(next);
}

/* Marks the nodes that depend on an x and that a gradient can reach. One x may depend on
 * another. */
static void mark_path(struct walk *walk) {
    struct uses uses;
    int base = walk->b->first_id, n = 0;
    int *stack = xcalloc((size_t)walk->n_part + (size_t)walk->b->n_xs + 1, sizeof(*stack));
    uses_init(&uses, walk);
    for (int i = 0; i < walk->b->n_xs; i++) {
        stack[n++] = walk->b->xs[i].src->id - base;
        walk->is_x[stack[n - 1]] = true;
    }
    while (n > 0) {
        int place = stack[--n];
        for (int i = uses.first[place]; i < uses.first[place + 1]; i++) {
            int user = uses.nodes[i]->id - base;
            if (!walk->is_on_way[user])
                stack[n++] = user;
            walk->is_on_way[user] = true;
        }
    }
    free(stack);
    free(uses.first);
    free(uses.nodes);
}

/* ---- one run ---- */

static void number_outputs(struct walk *walk) {
    int n = 0;
    for (int i = 0; i < walk->n_part; i++) {
        const struct node *node = walk->b->graph->nodes[walk->b->first_id + i];
        walk->first_output[i] = n;
        n += node->is_removed ? 0 : node->n_outputs;
    }
    walk->heads = xcalloc((size_t)n + 1, sizeof(walk->heads[0]));
}

static struct status *check_frame(const struct walk *walk, const char *what,
                                  struct node_input value) {
    if (!walk->has_control_flow || walk->frames.out[value.src->id] == 0)
        return NULL;
    return status_unimplemented("The %s '%s' of a gradient is within a loop", what,
                                value.src->name);
}

static struct status *walk_run(struct walk *walk, struct node_input *ret_dxs) {
    const struct backprop *b = walk->b;
    for (int i = 0; i < walk->n_part; i++)
        walk->n_order += !b->graph->nodes[b->first_id + i]->is_removed;
    TRY(graph_order_from(b->graph, b->first_id, &walk->order));
    number_outputs(walk);
    mark_path(walk);
    walk_find_loops(walk);
    for (int i = 0; i < b->n_xs; i++)
        TRY(check_frame(walk, "input", b->xs[i]));
    for (int i = 0; i < b->n_ys; i++) {
        TRY(check_frame(walk, "output", b->ys[i]));
        walk_contribute(walk, b->ys[i], b->dys[i]);
    }
    TRY(walk_region(walk, 0));
    for (int i = 0; i < b->n_xs; i++)
        TRY(walk_take(walk, b->xs[i], &ret_dxs[i]));
    return NULL;
}

struct status *backprop_run(const struct backprop *backprop, struct node_input *ret_dxs) {
    struct walk walk = {.b = backprop,
                        .n_part = backprop->graph->n_nodes - backprop->first_id,
                        .entry = backprop->entry};
    arena_init(&walk.arena);
    walk.first_output = xcalloc((size_t)walk.n_part + 1, sizeof(walk.first_output[0]));
    walk.is_on_way = xcalloc((size_t)walk.n_part + 1, sizeof(walk.is_on_way[0]));
    walk.is_x = xcalloc((size_t)walk.n_part + 1, sizeof(walk.is_x[0]));
    struct status *st = walk_run(&walk, ret_dxs);
    loop_frames_fini(&walk.frames);
    conditions_fini(&walk.conditions);
    arena_fini(&walk.arena);
    free(walk.order);
    free(walk.first_output);
    free(walk.heads);
    free(walk.is_on_way);
    free(walk.is_x);
    free(walk.contributions);
    free(walk.added);
    return st;
}
