/* SymbolicGradient: a function's body, forward, and after it what its derivative adds (inline.h;
 * common/gradients/backprop.h).
 *
 *   SymbolicGradient(x…, dy…)[f]      x ──► f/x ──► f's nodes ──► (y)
 *                                                      │ backprop
 *                                     dx ◄──────── nodes of the gradient ◄── dy
 *
 * The forward nodes that the gradient needs nothing of fall to the prune. A call inside f is
 * differentiated as a call: it becomes a SymbolicGradient of what it calls. Conditionals and loops
 * inside f are lowered first. Where the library
 * names a function's gradient, that is called instead: it takes (x…, dy…) and hands out (dx…),
 * as this op does. */
#include "common/gradients/backprop.h"
#include "common/gradients/build.h"
#include "common/tensor/tensor.h"
#include "common/tensor/tensor_proto.h"
#include "master/compile/compilation.h"
#include "master/compile/inline/inline.h"

/* What backprop_run passes to the function that differentiates calls. */
struct within {
    struct inliner *in;
    const struct body *body;
    bool has_control_flow;
};

/* ---- the library's gradients ---- */

static const char *read_gradient_def(struct arena *arena, struct span def,
                                     const char **ret_function) {
    struct proto_field field;
    struct span names[2] = {{"", 0}, {"", 0}};
    while (proto_next(&def, &field) > 0)
        if ((field.number == 1 || field.number == 2) && field.wire_type == 2)
            names[field.number - 1] = field.bytes;
    *ret_function = arena_strndup(arena, names[0].data, names[0].len);
    return arena_strndup(arena, names[1].data, names[1].len);
}

/* Returns the function that the library names as this one's gradient; NULL: there is none. */
static const char *find_gradient_function(struct inliner *in, const char *function) {
    if (!in->gradients_are_read) {
        in->gradients_are_read = true;
        for (int i = 0; i < in->graph->n_gradient_defs; i++) {
            const char *of,
                *gradient = read_gradient_def(&in->c->arena, in->graph->gradient_defs[i], &of);
            strmap_put(&in->gradients, of, (void *)(uintptr_t)gradient);
        }
    }
    const char *gradient = strmap_get(&in->gradients, function);
    return gradient && gradient[0] ? gradient : NULL;
}

/* ---- calls inside ---- */

static void set_list(struct inliner *in, struct node *node, const char *attr,
                     const enum dtype *types, int n) {
    struct attr_value *values = arena_array(&in->c->arena, struct attr_value, n + 1);
    for (int i = 0; i < n; i++)
        values[i] = (struct attr_value){.type = ATTR_TYPE, .dtype = types[i]};
    node_set_attr(in->graph, node, attr,
                  &(struct attr_value){.type = ATTR_LIST_TYPE, .list = {values, n}});
}

static struct status *add_gradient_call(struct inliner *in, struct gradient_ctx *g,
                                        const struct node_input *inputs, int n, struct node **ret) {
    const struct inline_call called = {.node = (struct node *)(uintptr_t)g->node};
    const struct attr_func *function;
    enum dtype *types = arena_array(&in->c->arena, enum dtype, n + 1);
    for (int i = 0; i < n; i++)
        types[i] = endpoint_type(inputs[i]);
    TRY(inline_called_function(in, &called, &function));
    TRY(graph_add_node(in->graph, graph_unique_name(in->graph, g->prefix), "SymbolicGradient",
                       g->node->device, ret));
    set_list(in, *ret, "Tin", types, n);
    set_list(in, *ret, "Tout", types, g->node->n_data);
    node_set_attr(
        in->graph, *ret, "f",
        &(struct attr_value){.type = ATTR_FUNC, .func = (struct attr_func *)(uintptr_t)function});
    for (int i = 0; i < n; i++)
        node_add_input(in->graph, *ret, inputs[i].src, inputs[i].index);
    return node_finish(in->graph, *ret);
}

static void differentiate_call(struct gradient_ctx *g) {
    const struct within *within = g->user;
    struct inliner *in = within->in;
    const struct node *node = g->node;
    struct node *gradient;
    int n = node->n_data;
    struct node_input *inputs =
        arena_array(&in->c->arena, struct node_input, n + node->n_outputs + 1);
    memcpy(inputs, node->inputs, (size_t)n * sizeof(inputs[0]));
    for (int i = 0; i < node->n_outputs && !g->status; i++)
        inputs[n++] = gradient_of(g, i);
    if (!g->status)
        g->status = add_gradient_call(in, g, inputs, n, &gradient);
    if (g->status)
        return;
    inliner_push(in, (struct inline_call){.node = gradient,
                                          .pivot = g->entry,
                                          .inputs_decide = within->has_control_flow,
                                          .chain = within->body->chain,
                                          .region = REGION_KERNEL});
    for (int i = 0; i < node->n_data; i++)
        gradient_set(g, i, (struct node_input){gradient, i});
}

/* ---- one gradient ---- */

struct symbolic {
    struct inliner *in;
    const struct inline_call *call;
    const struct attr_func *function;
    struct body body;
    int first_id, n_xs, n_dys;
    bool has_control_flow; /* in the forward graph */
    struct node_input *xs, *dys, *dxs;
};

/* Each argument gets a node of its own, so that two arguments with one source have two gradients,
 * and so that nothing runs before its time. */
static struct status *take_inputs(struct symbolic *s) {
    struct inliner *in = s->in;
    const struct node *node = s->call->node;
    s->first_id = in->graph->n_nodes;
    s->xs = arena_array(&in->c->arena, struct node_input, 2 * s->n_xs + s->n_dys + 1);
    s->dys = s->xs + s->n_xs;
    s->dxs = s->dys + s->n_dys;
    for (int i = 0; i < node->n_data; i++) {
        struct node_input *input = i < s->n_xs ? &s->xs[i] : &s->dys[i - s->n_xs];
        *input = (struct node_input){NULL, 0};
        TRY(inline_identity(in, s->call, i < s->n_xs ? "x" : "dy", node->inputs[i], s->body.entry,
                            &input->src));
    }
    return NULL;
}

/* The function is named by the op itself. */
static struct status *make_op(struct symbolic *s) {
    struct inliner *in = s->in;
    struct node *node;
    TRY(inline_node(in, s->call, s->function->name, s->function->name, DT_INVALID, &node));
    for (int i = 0; i < s->function->n_attrs; i++)
        node_set_attr(in->graph, node, s->function->attrs[i].name, &s->function->attrs[i].value);
    for (int i = 0; i < s->n_xs; i++)
        node_add_input(in->graph, node, s->xs[i].src, s->xs[i].index);
    TRY(node_finish(in->graph, node));
    s->body.n_outputs = node->n_outputs;
    s->body.outputs = arena_array(&in->c->arena, struct node_input, node->n_outputs + 1);
    for (int i = 0; i < node->n_outputs; i++)
        s->body.outputs[i] = (struct node_input){node, i};
    if (!node_is_call(node))
        return NULL;
    struct inline_call call = *s->call;
    call.node = node;
    call.pivot = s->body.entry;
    call.region = REGION_KERNEL;
    call.is_recomputed = true;
    inliner_push(in, call);
    s->body.chain = call.chain;
    return NULL;
}

static struct status *make_forward(struct symbolic *s) {
    struct inliner *in = s->in;
    if (!strmap_get(&in->graph->functions, s->function->name) &&
        op_signature_find(s->function->name))
        return make_op(s);
    s->body.n_args = s->n_xs;
    s->body.args = arena_array(&in->c->arena, struct body_arg, s->n_xs + 1);
    for (int i = 0; i < s->n_xs; i++)
        s->body.args[i] = (struct body_arg){.value = s->xs[i]};
    return body_make(in, s->call, s->function, &s->body);
}

static struct status *check_dys(const struct symbolic *s) {
    const struct node *node = s->call->node;
    if (s->body.n_outputs != s->n_dys)
        return status_invalid(
            "Function '%s' has %d outputs, but %d gradients are given\n\t [[{{node %s}}]]",
            s->function->name, s->body.n_outputs, s->n_dys, node->name);
    for (int i = 0; i < s->n_dys; i++)
        if (endpoint_type(s->body.outputs[i]) != endpoint_type(s->dys[i]))
            return status_invalid(
                "Output %d of function '%s' is %s, its gradient %s\n\t [[{{node %s}}]]", i,
                s->function->name, dtype_name(endpoint_type(s->body.outputs[i])),
                dtype_name(endpoint_type(s->dys[i])), node->name);
    return NULL;
}

/* Conditionals and loops are differentiated as the nodes that they become. */
static struct status *lower_forward(struct symbolic *s, int n_calls) {
    bool has_any;
    TRY(inliner_lower_control_flow(s->in, n_calls, s->first_id, &has_any));
    s->has_control_flow = has_any || s->body.has_control_flow;
    for (int i = 0; has_any && i < s->body.n_outputs; i++)
        TRY(inliner_resolve(s->in, &s->body.outputs[i]));
    return NULL;
}

static struct status *run_backprop(struct symbolic *s) {
    struct within within = {s->in, &s->body, s->has_control_flow};
    const struct backprop backprop = {
        .graph = s->in->graph,
        .first_id = s->first_id,
        .xs = s->xs,
        .n_xs = s->n_xs,
        .ys = s->body.outputs,
        .dys = s->dys,
        .n_ys = s->n_dys,
        .max_nodes = s->in->c->options->max_inlined_nodes,
        .prefix = s->call->node->name,
        .entry = s->body.entry,
        .function = differentiate_call,
        .user = &within,
    };
    return status_suffix_take(backprop_run(&backprop, s->dxs), "\n\t [[{{node %s}}]]",
                              s->call->node->name);
}

/* Zeros of the shape of a variable. */
static struct status *zeros_of_variable(struct symbolic *s, struct node_input handle,
                                        enum dtype dtype, struct node **ret) {
    struct graph *graph = s->in->graph;
    struct tensor zero = TENSOR_INIT;
    struct node *shape, *value;
    TRY(inline_node(s->in, s->call, "shape", "VariableShape", DT_INVALID, &shape));
    node_add_input(graph, shape, handle.src, handle.index);
    TRY(node_finish(graph, shape));
    TRY(tensor_new_zeroed(allocator_host(), dtype, (struct shape){0}, &zero));
    TRY(inline_node(s->in, s->call, "zero", "Const", DT_INVALID, &value));
    node_set_attr_type(graph, value, "dtype", dtype);
    node_set_attr_tensor(graph, value, "value", &zero);
    tensor_clear(&zero);
    TRY(node_finish(graph, value));
    node_add_control(graph, value, shape);
    TRY(inline_node(s->in, s->call, "zeros", "Fill", dtype, ret));
    node_set_attr_type(graph, *ret, "index_type", DT_INT32);
    node_add_input(graph, *ret, shape, 0);
    node_add_input(graph, *ret, value, 0);
    return node_finish(graph, *ret);
}

static struct status *make_zeros(struct symbolic *s, struct node_input like, struct node **ret) {
    TRY(inline_node(s->in, s->call, "zeros", "ZerosLike", endpoint_type(like), ret));
    node_add_input(s->in->graph, *ret, like.src, like.index);
    return node_finish(s->in->graph, *ret);
}

/* A gradient that is not defined is zeros. The gradient of a handle has the type of its variable.
 * If that is not known and the call asks for a resource, the handle itself is returned. */
static struct status *make_dx(struct symbolic *s, int i) {
    enum dtype wanted = (enum dtype)s->call->node->out_types[i];
    struct node_input *dx = &s->dxs[i];
    struct node *zeros = NULL;
    bool is_handle = endpoint_type(s->xs[i]) == DT_RESOURCE;
    if (!dx->src && is_handle && wanted != DT_RESOURCE)
        TRY(zeros_of_variable(s, s->xs[i], wanted, &zeros));
    else if (!dx->src && !is_handle)
        TRY(make_zeros(s, s->xs[i], &zeros));
    if (!dx->src)
        *dx = zeros ? (struct node_input){zeros, 0} : s->xs[i];
    if (endpoint_type(*dx) == wanted)
        return NULL;
    return status_invalid(
        "Gradient %d of function '%s' is %s where %s is wanted\n\t [[{{node %s}}]]", i,
        s->function->name, dtype_name(endpoint_type(*dx)), dtype_name(wanted), s->call->node->name);
}

static struct status *expand(struct symbolic *s, struct replacement *ret) {
    TRY(inline_entry(s->in, s->call, &s->body.entry));
    TRY(take_inputs(s));
    int n_calls = s->in->n_calls;
    TRY(make_forward(s));
    TRY(check_dys(s));
    TRY(lower_forward(s, n_calls));
    TRY(run_backprop(s));
    for (int i = 0; i < s->n_xs; i++)
        TRY(make_dx(s, i));
    ret->outputs = s->dxs;
    ret->effects = s->body.effects;
    ret->n_effects = s->body.n_effects;
    TRY(inline_join(s->in, s->call, "done", s->body.effects, s->body.n_effects, &ret->done));
    for (int i = 0; i < s->n_xs; i++)
        node_add_control(s->in->graph, ret->done, s->dxs[i].src);
    if (s->body.entry)
        node_add_control(s->in->graph, ret->done, s->body.entry);
    return NULL;
}

struct status *lower_symbolic_gradient(struct inliner *in, const struct inline_call *call,
                                       struct replacement *ret) {
    const struct node *node = call->node;
    const struct attr_value *f = node_attr(node, "f");
    if (!f || f->type != ATTR_FUNC || f->is_placeholder)
        return status_invalid("Node '%s' has no function 'f'\n\t [[{{node %s}}]]", node->name,
                              node->name);
    const char *gradient = find_gradient_function(in, f->func->name);
    if (gradient) {
        const struct attr_func function = {gradient, f->func->attrs, f->func->n_attrs};
        return lower_call_of(in, call, &function, 0, ret);
    }
    if (node->n_data < node->n_outputs)
        return status_invalid("%d gradients of %d arguments are requested\n\t [[{{node %s}}]]",
                              node->n_outputs, node->n_data, node->name);
    struct symbolic s = {.in = in,
                         .call = call,
                         .function = f->func,
                         .n_xs = node->n_outputs,
                         .n_dys = node->n_data - node->n_outputs};
    s.body.prefix = node->name;
    return expand(&s, ret);
}
