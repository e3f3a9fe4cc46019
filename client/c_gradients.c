/* Differentiates a client's graph with common/gradients. */
#include "client/c_gradients.h"

#include <stdlib.h>

#include "client/c_graph_internal.h"
#include "common/gradients/backprop.h"
#include "common/gradients/build.h"

/* ---- calls of functions ---- */

static void set_types(struct gradient_ctx *g, struct node *node, const char *attr,
                      const struct node_input *inputs, int n,
                      enum dtype (*type_of)(struct node_input)) {
    struct attr_value *types = arena_array(&g->graph->arena, struct attr_value, n + 1);
    for (int i = 0; i < n; i++)
        types[i] = (struct attr_value){.type = ATTR_TYPE, .dtype = type_of(inputs[i])};
    node_set_attr(g->graph, node, attr,
                  &(struct attr_value){.type = ATTR_LIST_TYPE, .list = {types, n}});
}

/* The function that a node calls: that of its attr, or its op. */
static struct attr_value called_function(struct gradient_ctx *g) {
    const struct attr_value *called = node_attr(g->node, "f");
    if (called && called->type == ATTR_FUNC && op_signature_is_known(g->node->op))
        return *called;
    struct attr_func *func = arena_new(&g->graph->arena, struct attr_func);
    *func = (struct attr_func){g->node->op_name, g->node->attrs, g->node->n_attrs};
    return (struct attr_value){.type = ATTR_FUNC, .func = func};
}

/* The dtype of a gradient by an argument: of the variable's value for a handle, if the graph says
 * which variable that is. */
static enum dtype gradient_type(struct node_input argument) {
    enum { MAX_NODES = 100 };
    for (int i = 0; i < MAX_NODES && gradient_dtype(argument) == DT_RESOURCE; i++) {
        const struct attr_value *dtype = node_attr(argument.src, "dtype");
        if (node_is_op(argument.src, "VarHandleOp") && dtype && dtype->type == ATTR_TYPE)
            return dtype->dtype;
        if (argument.src->n_data == 0)
            break;
        argument = argument.src->inputs[0];
    }
    return gradient_dtype(argument);
}

/* Adds a SymbolicGradient, which takes the arguments and the gradients of the results. */
static void differentiate_call(struct gradient_ctx *g) {
    const struct node *call = g->node;
    struct node *node;
    int n = call->n_data;
    struct node_input *inputs =
        arena_array(&g->graph->arena, struct node_input, n + call->n_outputs + 1);
    memcpy(inputs, call->inputs, (size_t)n * sizeof inputs[0]);
    for (int i = 0; i < call->n_outputs && !g->status; i++)
        inputs[n++] = gradient_of(g, i);
    if (!g->status)
        g->status = graph_add_node(g->graph, graph_unique_name(g->graph, g->prefix),
                                   "SymbolicGradient", call->device, &node);
    if (g->status)
        return;
    struct attr_value function = called_function(g);
    set_types(g, node, "Tin", inputs, n, gradient_dtype);
    set_types(g, node, "Tout", inputs, call->n_data, gradient_type);
    node_set_attr(g->graph, node, "f", &function);
    for (int i = 0; i < n; i++)
        node_add_input(g->graph, node, inputs[i].src, inputs[i].index);
    g->status = node_finish(g->graph, node);
    for (int i = 0; i < call->n_data && !g->status; i++)
        if (node->out_types[i] != DT_RESOURCE)
            gradient_set(g, i, (struct node_input){node, i});
}

/* ---- one call ---- */

struct differentiation {
    TF_Graph *graph;
    const char *prefix;
    struct node_input *xs, *ys, *dys, *dxs; /* the xs: each one once */
    int *x_index;                           /* for each x of the caller: its place in `xs` */
    int n_xs, nx, ny;
};

static struct node_input edge_of(TF_Output output) {
    return (struct node_input){output.oper->node, output.index};
}

static struct status *check_arguments(const char *function, const TF_Graph *graph,
                                      const TF_Output *y, int ny, const TF_Output *x, int nx,
                                      const TF_Output *dx, const TF_Output *dy) {
    if (!graph || (ny > 0 && !y) || (nx > 0 && (!x || !dy)))
        return null_refused(function, !graph ? "graph" : ny > 0 && !y ? "y" : !x ? "x" : "dy");
    if (ny < 0 || nx < 0)
        return status_invalid("%s: %d y, %d x", function, ny, nx);
    for (int i = 0; i < ny; i++)
        TRY(output_check(function, graph, y[i]));
    for (int i = 0; i < nx; i++)
        TRY(output_check(function, graph, x[i]));
    for (int i = 0; dx && i < ny; i++)
        TRY(output_check(function, graph, dx[i]));
    return NULL;
}

/* Returns a node that has this name, or a name below it; NULL where there is none. */
static const struct node *find_below(const struct graph *graph, const char *prefix) {
    size_t len = strlen(prefix);
    for (int id = 0; id < graph->n_nodes; id++) {
        const struct node *node = graph->nodes[id];
        if (!node->is_removed && strncmp(node->name, prefix, len) == 0 &&
            (node->name[len] == '/' || node->name[len] == '\0'))
            return node;
    }
    return NULL;
}

static struct status *choose_prefix(TF_Graph *graph, const char *prefix, const char **ret) {
    struct graph *nodes = &graph->graph;
    const struct node *taken = prefix ? find_below(nodes, prefix) : NULL;
    if (taken)
        return status_invalid("prefix [%s] conflicts with existing node in the graph named [%s]",
                              prefix, taken->name);
    *ret = prefix ? prefix : "gradients";
    for (int i = 1; !prefix && find_below(nodes, *ret); i++)
        *ret = arena_printf(&nodes->arena, "gradients_%d", i);
    return NULL;
}

static struct status *ones_like(struct differentiation *d, struct node_input y,
                                struct node_input *ret) {
    struct graph *graph = &d->graph->graph;
    const char *name =
        graph_unique_name(graph, arena_printf(&graph->arena, "%s/OnesLike", d->prefix));
    TRY(graph_add_node(graph, name, "OnesLike", y.src->device, &ret->src));
    ret->index = 0;
    node_set_attr_type(graph, ret->src, "T", dtype_base((enum dtype)y.src->out_types[y.index]));
    node_add_input(graph, ret->src, y.src, y.index);
    return node_finish(graph, ret->src);
}

static void take_xs(struct differentiation *d, const TF_Output *x) {
    for (int i = 0; i < d->nx; i++) {
        struct node_input edge = edge_of(x[i]);
        int k = 0;
        while (k < d->n_xs && (d->xs[k].src != edge.src || d->xs[k].index != edge.index))
            k++;
        d->xs[k] = edge;
        d->n_xs = MAX(d->n_xs, k + 1);
        d->x_index[i] = k;
    }
}

/* Every x must be needed by a y, whether a gradient flows between them or not. */
static struct status *check_reach(const struct differentiation *d, const TF_Output *y,
                                  const TF_Output *x) {
    const struct graph *graph = &d->graph->graph;
    bool *is_needed = xcalloc((size_t)graph->n_nodes + 1, sizeof *is_needed);
    struct node **stack = xmalloc(((size_t)graph->n_nodes + 1) * sizeof *stack);
    struct status *st = NULL;
    int n = 0;
    for (int i = 0; i < d->ny; i++) {
        struct node *node = y[i].oper->node;
        if (!is_needed[node->id])
            stack[n++] = node;
        is_needed[node->id] = true;
    }
    while (n > 0) {
        const struct node *node = stack[--n];
        for (int i = 0; i < node->n_data; i++) {
            struct node *src = node->inputs[i].src;
            if (!is_needed[src->id])
                stack[n++] = src;
            is_needed[src->id] = true;
        }
    }
    for (int i = 0; !st && i < d->nx; i++)
        if (!is_needed[x[i].oper->node->id])
            st = status_invalid("Cannot compute the partial derivative for node '%s' as it's "
                                "unreachable from the output node(s).",
                                x[i].oper->node->name);
    free(stack);
    free(is_needed);
    return st;
}

static struct status *differentiate(struct differentiation *d, const TF_Output *y,
                                    const TF_Output *x, const TF_Output *dx) {
    struct graph_limits limits;
    graph_limits_default(&limits);
    take_xs(d, x);
    for (int i = 0; i < d->ny; i++) {
        d->ys[i] = edge_of(y[i]);
        d->dys[i] = dx ? edge_of(dx[i]) : (struct node_input){NULL, 0};
        if (!dx)
            TRY(ones_like(d, d->ys[i], &d->dys[i]));
    }
    const struct backprop backprop = {
        .graph = &d->graph->graph,
        .first_id = 0,
        .xs = d->xs,
        .n_xs = d->n_xs,
        .ys = d->ys,
        .dys = d->dys,
        .n_ys = d->ny,
        .max_nodes = limits.max_nodes,
        .prefix = d->prefix,
        .array_source = d->prefix,
        .function = differentiate_call,
    };
    return backprop_run(&backprop, d->dxs);
}

static struct status *add_gradients(const char *function, TF_Graph *graph, const char *prefix,
                                    TF_Output *y, int ny, TF_Output *x, int nx, TF_Output *dx,
                                    TF_Output *dy) {
    TRY(check_arguments(function, graph, y, ny, x, nx, dx, dy));
    size_t nx_size = (size_t)MAX(nx, 0) + 1, ny_size = (size_t)MAX(ny, 0) + 1;
    struct differentiation d = {
        .graph = graph,
        .xs = xcalloc(2 * nx_size + 2 * ny_size, sizeof(struct node_input)),
        .x_index = xcalloc(nx_size, sizeof(int)),
        .nx = nx,
        .ny = ny,
    };
    d.dxs = d.xs + nx_size;
    d.ys = d.dxs + nx_size;
    d.dys = d.ys + ny_size;
    pthread_mutex_lock(&graph->lock);
    int first_id = graph->graph.n_nodes;
    struct status *st = choose_prefix(graph, prefix, &d.prefix);
    if (!st)
        st = check_reach(&d, y, x);
    if (!st)
        st = differentiate(&d, y, x, dx);
    if (st) {
        graph_drop_nodes(graph, first_id);
        graph_track_operations(graph);
        st = status_prefix_take(st, "%s: ", function);
    } else {
        st = graph_take_nodes(graph, first_id);
    }
    for (int i = 0; !st && i < nx; i++) {
        struct node_input found = d.dxs[d.x_index[i]];
        dy[i] = found.src ? (TF_Output){graph_operation(graph, found.src), found.index}
                          : (TF_Output){NULL, -1};
    }
    pthread_mutex_unlock(&graph->lock);
    free(d.xs);
    free(d.x_index);
    return st;
}

void TF_AddGradients(TF_Graph *graph, TF_Output *y, int ny, TF_Output *x, int nx, TF_Output *dx,
                     TF_Status *status, TF_Output *dy) {
    tf_status_set(status, add_gradients(__func__, graph, NULL, y, ny, x, nx, dx, dy));
}

void TF_AddGradientsWithPrefix(TF_Graph *graph, const char *prefix, TF_Output *y, int ny,
                               TF_Output *x, int nx, TF_Output *dx, TF_Status *status,
                               TF_Output *dy) {
    tf_status_set(status, add_gradients(__func__, graph, prefix, y, ny, x, nx, dx, dy));
}
