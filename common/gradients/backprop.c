/* Visits nodes from the outputs to the inputs and adds their gradients (backprop.h). */
#include "common/gradients/backprop.h"

#include <stdlib.h>

/* One contribution to the gradient of an output, in a list for each output. */
struct contribution {
    struct node_input value;
    int next; /* index + 1 of the next one; 0 at the end */
};

struct walk {
    const struct backprop *b;
    struct node **order; /* the nodes of the part, in order */
    int n_order;
    int *first_output; /* for each node of the part: the index of its outputs in `heads` */
    int *heads;        /* for each output: its first contribution + 1 */
    bool *is_on_way;   /* for each node of the part: does it depend on an x? */
    struct contribution *contributions;
    int n_contributions, capacity;
    int n_part;
};

/* PREFIX/gradient/NAME for the node PREFIX/NAME. */
static const char *name_below(const struct walk *walk, const struct node *node) {
    const char *prefix = walk->b->prefix, *name = node->name;
    size_t len = strlen(prefix);
    if (strncmp(name, prefix, len) == 0 && name[len] == '/')
        name += len + 1;
    return arena_printf(&walk->b->graph->arena, "%s/gradient/%s", prefix, name);
}

static bool carries_gradient(struct node_input value) {
    enum dtype dtype = dtype_base((enum dtype)value.src->out_types[value.index]);
    return dtype_in(dtype, DTYPES_FLOAT | DTYPES_COMPLEX) || dtype == DT_VARIANT ||
           dtype == DT_RESOURCE;
}

static bool is_in_part(const struct walk *walk, const struct node *node) {
    int place = node->id - walk->b->first_id;
    return place >= 0 && place < walk->n_part;
}

static int *head_of(struct walk *walk, struct node_input output) {
    return &walk->heads[walk->first_output[output.src->id - walk->b->first_id] + output.index];
}

static void contribute(struct walk *walk, struct node_input to, struct node_input value) {
    if (!value.src || !is_in_part(walk, to.src) || !carries_gradient(to))
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

/* Adds a gradient to that of an output. src NULL: there is none. */
static struct status *take(struct walk *walk, struct node_input output, struct node_input *ret) {
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
    return status_unimplemented("No gradient defined for op: %s\n\t [[{{node %s}}]]", node->op_name,
                                node->name);
}

static struct status *differentiate(struct walk *walk, const struct node *node) {
    struct graph *graph = walk->b->graph;
    struct node_input *grads =
        arena_array(&graph->arena, struct node_input, node->n_outputs + node->n_data + 1);
    bool has_any = false;
    gradient_fn *function;
    for (int i = 0; i < node->n_outputs; i++) {
        TRY(take(walk, (struct node_input){(struct node *)(uintptr_t)node, i}, &grads[i]));
        has_any = has_any || grads[i].src;
    }
    if (!has_any)
        return NULL;
    TRY(find_function(walk, node, &function));
    if (!function)
        return NULL;
    struct gradient_ctx ctx = {
        .graph = graph,
        .node = node,
        .grad_out = grads,
        .grad_in = grads + node->n_outputs,
        .prefix = name_below(walk, node),
        .entry = walk->b->entry,
        .user = walk->b->user,
    };
    if (graph->n_nodes > walk->b->max_nodes)
        return status_exhausted(
            "The gradient makes a graph of more than %d nodes\n\t [[{{node %s}}]]",
            walk->b->max_nodes, node->name);
    function(&ctx);
    if (ctx.status)
        return status_suffix_take(ctx.status, "\n\t [[{{node %s}}]]", node->name);
    for (int i = 0; i < node->n_data; i++)
        contribute(walk, node->inputs[i], ctx.grad_in[i]);
    return NULL;
}

/* Marks the nodes that depend on an x and that a gradient can reach. One x may depend on
 * another. */
static void mark_path(struct walk *walk) {
    bool *is_x = xcalloc((size_t)walk->n_part + 1, sizeof(*is_x));
    for (int i = 0; i < walk->b->n_xs; i++)
        is_x[walk->b->xs[i].src->id - walk->b->first_id] = true;
    for (int i = 0; i < walk->n_order; i++) {
        const struct node *node = walk->order[i];
        bool is_below = false;
        for (int k = 0; k < node->n_data && !is_below; k++) {
            const struct node *src = node->inputs[k].src;
            int place = src->id - walk->b->first_id;
            is_below = is_in_part(walk, src) && (is_x[place] || walk->is_on_way[place]) &&
                       carries_gradient(node->inputs[k]);
        }
        walk->is_on_way[node->id - walk->b->first_id] = is_below;
    }
    free(is_x);
}

static void number_outputs(struct walk *walk) {
    int n = 0;
    for (int i = 0; i < walk->n_part; i++) {
        const struct node *node = walk->b->graph->nodes[walk->b->first_id + i];
        walk->first_output[i] = n;
        n += node->is_removed ? 0 : node->n_outputs;
    }
    walk->heads = xcalloc((size_t)n + 1, sizeof(walk->heads[0]));
}

static struct status *walk_run(struct walk *walk, struct node_input *ret_dxs) {
    const struct backprop *b = walk->b;
    for (int i = 0; i < walk->n_part; i++)
        walk->n_order += !b->graph->nodes[b->first_id + i]->is_removed;
    TRY(graph_order_from(b->graph, b->first_id, &walk->order));
    number_outputs(walk);
    mark_path(walk);
    for (int i = 0; i < b->n_ys; i++)
        contribute(walk, b->ys[i], b->dys[i]);
    for (int i = walk->n_order - 1; i >= 0; i--)
        if (walk->is_on_way[walk->order[i]->id - b->first_id])
            TRY(differentiate(walk, walk->order[i]));
    for (int i = 0; i < b->n_xs; i++)
        TRY(take(walk, b->xs[i], &ret_dxs[i]));
    return NULL;
}

struct status *backprop_run(const struct backprop *backprop, struct node_input *ret_dxs) {
    struct walk walk = {.b = backprop, .n_part = backprop->graph->n_nodes - backprop->first_id};
    walk.first_output = xcalloc((size_t)walk.n_part + 1, sizeof(walk.first_output[0]));
    walk.is_on_way = xcalloc((size_t)walk.n_part + 1, sizeof(walk.is_on_way[0]));
    struct status *st = walk_run(&walk, ret_dxs);
    free(walk.order);
    free(walk.first_output);
    free(walk.heads);
    free(walk.is_on_way);
    free(walk.contributions);
    return st;
}
