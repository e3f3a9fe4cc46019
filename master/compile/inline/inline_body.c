/* Copies a function's body into the graph, and makes the small nodes around bodies (inline.h). */
#include <stdlib.h>

#include "common/graph/graph_controls.h"
#include "master/compile/compilation.h"
#include "master/compile/inline/inline.h"

enum {
    INLINE_MAX_DEPTH = 256, /* of functions within functions */
    /* on average, of the edges that a step's graph may have per node */
    INLINE_MAX_EDGES_PER_NODE = 16,
};

/* ---- small nodes ---- */

enum dtype endpoint_type(struct node_input value) {
    return dtype_base((enum dtype)value.src->out_types[value.index]);
}

struct status *inline_node(struct inliner *in, const struct inline_call *call, const char *what,
                           const char *op, enum dtype type, struct node **ret) {
    const char *name =
        graph_unique_name(in->graph, arena_printf(&in->c->arena, "%s/%s", call->node->name, what));
    TRY(graph_add_node(in->graph, name, op, call->node->device, ret));
    if (type != DT_INVALID)
        node_set_attr_type(in->graph, *ret, "T", type);
    return NULL;
}

struct status *inline_identity(struct inliner *in, const struct inline_call *call, const char *what,
                               struct node_input value, struct node *control, struct node **ret) {
    /* Each consumer of an Identity of a reference reads the variable again. A Snapshot reads it
     * once for all. */
    bool is_ref = dtype_is_ref((enum dtype)value.src->out_types[value.index]);
    TRY(inline_node(in, call, what, is_ref ? "Snapshot" : "Identity", endpoint_type(value), ret));
    node_add_input(in->graph, *ret, value.src, value.index);
    TRY(node_finish(in->graph, *ret));
    if (control)
        node_add_control(in->graph, *ret, control);
    return NULL;
}

struct status *inline_join(struct inliner *in, const struct inline_call *call, const char *what,
                           struct node *const *nodes, int n_nodes, struct node **ret) {
    TRY(inline_node(in, call, what, "NoOp", DT_INVALID, ret));
    TRY(node_finish(in->graph, *ret));
    node_add_controls(in->graph, *ret, nodes, n_nodes);
    return NULL;
}

/* A call without control inputs has the entry of the body that contains it. If it has one control
 * input, that is the entry, because it depends on the body's entry. If only inputs decide, the
 * entry waits for identities of all of them: a control edge from a Switch is alive although the
 * output is dead. */
struct status *inline_entry(struct inliner *in, const struct inline_call *call, struct node **ret) {
    const struct node *node = call->node;
    int n_control = node->n_inputs - node->n_data, n = 0;
    *ret = n_control == 1 ? node->inputs[node->n_data].src : call->pivot;
    if (!call->inputs_decide && n_control <= 1)
        return NULL;
    struct node **sources = arena_array(&in->c->arena, struct node *, node->n_inputs + 1);
    for (int i = node->n_data; i < node->n_inputs; i++)
        sources[n++] = node->inputs[i].src;
    if (n == 0)
        sources[n++] = call->pivot;
    for (int i = 0; call->inputs_decide && i < node->n_data; i++)
        TRY(inline_identity(in, call, "input", node->inputs[i], NULL, &sources[n++]));
    return inline_join(in, call, "entry", sources, n, ret);
}

struct status *inline_predicate(struct inliner *in, const struct inline_call *call,
                                struct node_input value, struct node_input *ret) {
    struct node *node;
    *ret = value;
    if (endpoint_type(value) == DT_BOOL)
        return NULL;
    TRY(inline_node(in, call, "predicate", "ToBool", endpoint_type(value), &node));
    node_add_input(in->graph, node, value.src, value.index);
    *ret = (struct node_input){node, 0};
    return node_finish(in->graph, node);
}

/* ---- functions ---- */

struct status *inline_function(struct inliner *in, const struct inline_call *call, const char *name,
                               const struct function_body **ret) {
    struct function_body *body = strmap_get(&in->bodies, name);
    if (!body) {
        const struct graph_function *function = strmap_get(&in->graph->functions, name);
        if (!function && !node_is_op(call->node, "PartitionedCall") &&
            !node_is_op(call->node, "StatefulPartitionedCall"))
            return status_not_found("Function %.256s is not defined.\n\t [[{{node %s}}]]", name,
                                    call->node->name);
        if (!function)
            return status_invalid(
                "Failed to find function \"%.256s\" in function library\n\t [[{{node %s}}]]", name,
                call->node->name);
        struct status *st = function_body_read(in->graph, function, &in->limits, &body);
        if (st)
            return status_suffix_take(st, "\n\t [[{{node %s}}]]", call->node->name);
        strmap_put(&in->bodies, body->name, body);
    }
    *ret = body;
    return NULL;
}

static COLD struct status *recursion(const struct inline_call *call, const char *function) {
    enum { MAX_SHOWN = 16 };
    const char *names[MAX_SHOWN];
    int n = 0;
    for (const struct call_chain *link = call->chain; link && n < MAX_SHOWN; link = link->outer) {
        names[n++] = link->function;
        if (strcmp(link->function, function) == 0)
            break;
    }
    struct str text = STR_INIT;
    while (n > 0)
        str_addf(&text, "%s -> ", names[--n]);
    struct status *st =
        status_invalid("Recursive functions are not supported: %s%s\n\t [[{{node %s}}]]",
                       str_text(&text), function, call->node->name);
    str_fini(&text);
    return st;
}

static struct status *extend_chain(struct inliner *in, const struct inline_call *call,
                                   const char *function, struct call_chain **ret) {
    for (const struct call_chain *link = call->chain; link; link = link->outer)
        if (strcmp(link->function, function) == 0)
            return recursion(call, function);
    int depth = call->chain ? call->chain->depth + 1 : 1;
    if (depth > INLINE_MAX_DEPTH)
        return status_exhausted(
            "Functions call each other %d deep, at most %d is supported\n\t [[{{node %s}}]]", depth,
            INLINE_MAX_DEPTH, call->node->name);
    *ret = arena_new(&in->c->arena, struct call_chain);
    **ret = (struct call_chain){function, call->chain, depth};
    return NULL;
}

/* ---- a copy under way ---- */

struct copy {
    struct inliner *in;
    const struct inline_call *call;
    struct body *body;
    const struct function_body *function;
    struct function_attrs attrs;
    struct node **nodes; /* by the function's nodes */
    int *first_arg;      /* by argument: its first tensor; n_args + 1 entries */
    /* the last device of the body that was looked up, and the result */
    const char *device_asked, *device;
};

static struct status *bind_args(struct copy *copy) {
    const struct function_body *function = copy->function;
    int n = 0, count;
    copy->first_arg = arena_array(&copy->in->c->arena, int, function->n_args + 1);
    for (int i = 0; i < function->n_args; i++) {
        copy->first_arg[i] = n;
        TRY(function_arg_count(function, &function->args[i], &copy->attrs, &count));
        n = MIN(n + count, 2 * NODE_MAX_ARGS);
    }
    copy->first_arg[function->n_args] = n;
    if (n != copy->body->n_args)
        return status_invalid("Function '%s' takes %d inputs, %d are given", function->name, n,
                              copy->body->n_args);
    for (int i = 0; i < function->n_args; i++)
        for (int k = copy->first_arg[i]; k < copy->first_arg[i + 1]; k++)
            copy->body->args[k].is_unused = !function->arg_is_used[i];
    return NULL;
}

/* A node of the body runs where it asks to. What its device leaves open is taken from the call. */
static const char *device_of(struct copy *copy, const char *asked) {
    const char *by_call = copy->call->node->device;
    struct device_name name, body_name;
    if (asked[0] == '\0' || by_call[0] == '\0')
        return asked[0] ? asked : by_call;
    if (copy->device_asked && strcmp(asked, copy->device_asked) == 0)
        return copy->device;
    copy->device_asked = copy->device = asked;
    struct status *st = device_name_parse(span_of(by_call), &name);
    if (!st)
        st = device_name_parse(span_of(asked), &body_name);
    if (!st) {
        struct str text = STR_INIT;
        device_name_override(&name, &body_name);
        device_name_print(&name, &text);
        copy->device = arena_strdup(&copy->in->c->arena, str_text(&text));
        str_fini(&text);
    }
    status_unref(st); /* the placer reports a name that is malformed */
    return copy->device;
}

/* Returns the argument as a node. */
static struct status *arg_identity(struct copy *copy, int position, struct node **ret) {
    struct body_arg *arg = &copy->body->args[position];
    if (!arg->identity)
        TRY(inline_identity(copy->in, copy->call, "input", arg->value, copy->body->entry,
                            &arg->identity));
    *ret = arg->identity;
    return NULL;
}

/* Returns the source of a tensor of an argument. Two readers of a reference must see one value, so
 * they read it through an identity. */
static struct status *arg_value(struct copy *copy, const struct function_input *input, int index,
                                struct node_input *ret, bool *ret_is_loose) {
    int first = copy->first_arg[input->position], n = copy->first_arg[input->position + 1] - first;
    if (index >= n)
        return status_invalid("tensor %d of the %d of argument '%s' of function '%s' is asked for",
                              index, n, copy->function->args[input->position].name,
                              copy->function->name);
    struct body_arg *arg = &copy->body->args[first + index];
    *ret = arg->value;
    *ret_is_loose = arg->is_loose;
    if (!dtype_is_ref((enum dtype)arg->value.src->out_types[arg->value.index]))
        return NULL;
    *ret_is_loose = false;
    *ret = (struct node_input){NULL, 0};
    return arg_identity(copy, first + index, &ret->src);
}

/* Returns the i-th tensor after the one that `input` names. */
static struct status *find_value(struct copy *copy, const struct function_input *input, int i,
                                 struct node_input *ret, bool *ret_is_loose) {
    if (input->is_arg)
        return arg_value(copy, input, input->index + i, ret, ret_is_loose);
    struct node *src = copy->nodes[input->position];
    int first = 0, n = INT32_MAX;
    *ret_is_loose = false;
    if (input->output.len > 0)
        TRY(node_find_output(src, input->output, &first, &n));
    if (input->index >= n - i)
        return status_invalid(
            "Output %d of '%.*s' of node '%s' in function '%s' is asked for, it has %d",
            input->index + i, (int)input->output.len, input->output.data,
            copy->function->nodes[input->position].name, copy->function->name, n);
    *ret = (struct node_input){src, first + input->index + i};
    return NULL;
}

/* ---- nodes ---- */

/* Translates colocation with nodes of the body and with arguments to their names in the graph.
 * Other names are of the graph around the call. */
static struct status *rename_colocation(struct copy *copy, struct node *node) {
    static const char prefix[] = "loc:@";
    const struct attr_value *from = node_attr(node, "_class");
    if (!from || from->is_placeholder || from->type != ATTR_LIST_STRING || from->list.n_values == 0)
        return NULL;
    struct attr_value value = {.type = ATTR_LIST_STRING};
    struct attr_value *names = arena_memdup(&copy->in->c->arena, from->list.values,
                                            (size_t)from->list.n_values * sizeof(*names));
    for (int i = 0; i < from->list.n_values; i++) {
        struct span name = names[i].s;
        size_t len = sizeof(prefix) - 1;
        bool is_arg;
        int position;
        if (name.len <= len || memcmp(name.data, prefix, len) != 0)
            continue;
        name = (struct span){name.data + len, name.len - len};
        if (!function_body_find(copy->function, name, &is_arg, &position))
            continue;
        struct node *other = NULL;
        if (!is_arg)
            other = copy->nodes[position];
        else if (copy->first_arg[position] < copy->first_arg[position + 1])
            TRY(arg_identity(copy, copy->first_arg[position], &other));
        names[i].s = span_of(other ? arena_printf(&copy->in->c->arena, "loc:@%s", other->name)
                                   : arena_printf(&copy->in->c->arena, "loc:@%s/%.*s",
                                                  copy->body->prefix, (int)name.len, name.data));
    }
    value.list.values = names;
    value.list.n_values = from->list.n_values;
    node_set_attr(copy->in->graph, node, "_class", &value);
    return NULL;
}

/* A loop that the client built by hand gets another frame name in each copy. */
static void rename_frame(struct copy *copy, struct node *node) {
    const struct attr_value *frame = node_attr(node, "frame_name");
    if (frame && !frame->is_placeholder && frame->type == ATTR_STRING)
        node_set_attr_s(copy->in->graph, node, "frame_name",
                        arena_printf(&copy->in->c->arena, "%s/%.*s", copy->body->prefix,
                                     (int)frame->s.len, frame->s.data));
}

static struct status *over_budget(const struct copy *copy) {
    return status_exhausted("Inlining functions makes a graph of more than %d nodes, or of more "
                            "than %d edges for each\n\t [[{{node %s}}]]",
                            copy->in->c->options->max_inlined_nodes, INLINE_MAX_EDGES_PER_NODE,
                            copy->call->node->name);
}

/* Counts the nodes that were ever made, not the present ones, because calls are removed as they are
 * replaced, and even copies of empty bodies take time. */
static struct status *check_budget(struct copy *copy, int64_t n_new_nodes, int64_t n_new_edges) {
    int64_t max = copy->in->c->options->max_inlined_nodes;
    copy->in->n_edges += n_new_edges;
    if (copy->in->graph->n_nodes + n_new_nodes > max ||
        copy->in->n_edges > max * INLINE_MAX_EDGES_PER_NODE)
        return over_budget(copy);
    return NULL;
}

static struct status *make_nodes(struct copy *copy) {
    struct inliner *in = copy->in;
    copy->nodes = arena_array(&in->c->arena, struct node *, copy->function->n_nodes);
    for (int i = 0; i < copy->function->n_nodes; i++) {
        const struct function_node *from = &copy->function->nodes[i];
        if (!from->is_needed)
            continue;
        TRY(check_budget(copy, 1, from->n_inputs));
        const char *name = graph_unique_name(
            in->graph, arena_printf(&in->c->arena, "%s/%s", copy->body->prefix, from->name));
        TRY(function_node_new(in->graph, copy->function, from, &copy->attrs, name,
                              device_of(copy, from->device), &copy->nodes[i]));
        if (node_is_frame_op(copy->nodes[i]))
            rename_frame(copy, copy->nodes[i]);
    }
    return NULL;
}

static struct status *connect(struct copy *copy, const struct function_node *from,
                              struct node *node) {
    struct graph *graph = copy->in->graph;
    bool needs_entry = true, is_loose;
    for (int i = 0; i < from->n_data; i++) {
        struct node_input value;
        TRY(find_value(copy, &from->inputs[i], 0, &value, &is_loose));
        node_add_input(graph, node, value.src, value.index);
        needs_entry = needs_entry && is_loose;
    }
    TRY(node_finish(graph, node));
    int n_controls = from->n_inputs - from->n_data;
    struct node **controls =
        n_controls > 0 ? arena_array(&copy->in->c->arena, struct node *, n_controls) : NULL;
    for (int i = from->n_data; i < from->n_inputs; i++) {
        const struct function_input *input = &from->inputs[i];
        struct node *src = NULL;
        if (!input->is_arg)
            src = copy->nodes[input->position];
        else if (copy->first_arg[input->position] < copy->first_arg[input->position + 1])
            TRY(arg_identity(copy, copy->first_arg[input->position], &src));
        controls[i - from->n_data] = src;
        needs_entry = needs_entry && !src;
    }
    node_add_controls(graph, node, controls, n_controls);
    if (needs_entry && copy->body->entry)
        node_add_control(graph, node, copy->body->entry);
    inline_name_state(copy->in, copy->body->states, from->name, node);
    return rename_colocation(copy, node);
}

/* Is what nobody needs of the body pruned, although the call is needed? */
static bool is_pruned_with_graph(const struct copy *copy) {
    return copy->body->region == REGION_PRUNED && inline_is_lowered(copy->call);
}

static struct status *connect_all(struct copy *copy, struct call_chain *chain) {
    for (int i = 0; i < copy->function->n_nodes; i++) {
        const struct function_node *from = &copy->function->nodes[i];
        struct node *node = copy->nodes[i];
        if (!node)
            continue;
        TRY(status_suffix_take(connect(copy, from, node), "\n\t [[{{node %s}}]]", node->name));
        if (node_is_call(node))
            inliner_push(copy->in,
                         (struct inline_call){
                             node, copy->body->entry, copy->function->has_control_flow, chain,
                             inline_state_name(copy->in, copy->body->states, from->name),
                             copy->body->region, is_pruned_with_graph(copy),
                             copy->call->is_recomputed});
    }
    return NULL;
}

/* ---- results ---- */

static struct status *make_outputs(struct copy *copy) {
    const struct function_body *function = copy->function;
    struct body *body = copy->body;
    int *counts = arena_array(&copy->in->c->arena, int, function->n_rets + 1);
    int n = 0;
    for (int i = 0; i < function->n_rets; i++) {
        TRY(function_arg_count(function, &function->rets[i], &copy->attrs, &counts[i]));
        n = MIN(n + counts[i], 2 * NODE_MAX_ARGS);
    }
    if (n > NODE_MAX_ARGS)
        return status_invalid("Function '%s' has more than %d outputs", function->name,
                              NODE_MAX_ARGS);
    body->outputs = arena_array(&copy->in->c->arena, struct node_input, n + 1);
    for (int i = 0; i < function->n_rets; i++)
        for (int k = 0; k < counts[i]; k++) {
            struct node_input *out = &body->outputs[body->n_outputs];
            bool is_loose;
            TRY(find_value(copy, &function->ret_values[i], k, out, &is_loose));
            if (out->index >= out->src->n_outputs)
                return status_invalid("Function '%s' returns output %d of '%s', which has %d",
                                      function->name, out->index, out->src->name,
                                      out->src->n_outputs);
            bool is_ref = dtype_is_ref((enum dtype)out->src->out_types[out->index]);
            if (is_ref || (is_loose && body->entry)) {
                struct node *identity;
                TRY(inline_identity(copy->in, copy->call, "output", *out, body->entry, &identity));
                *out = (struct node_input){identity, 0};
            }
            body->n_outputs++;
        }
    return NULL;
}

/* What TensorFlow does with the body: it decides which unused nodes run, and whether the lowered
 * conditionals within are nodes like others. */
static void set_region(struct copy *copy) {
    const struct node *node = copy->call->node;
    struct body *body = copy->body;
    if (node_is_op(node, "PartitionedCall") || node_is_op(node, "StatefulPartitionedCall"))
        body->region = copy->function->has_results || node_attr(node, CALLED_BY_KERNEL_ATTR)
                           ? REGION_PRUNED
                           : REGION_WHOLE;
    else if (inline_is_lowered(copy->call))
        body->region = copy->call->region;
    else
        body->region = REGION_KERNEL;
}

/* Does the function's i-th effect happen? The others are stateful nodes that nobody uses, and
 * calls whose nodes are pruned one by one. */
static bool happens(const struct copy *copy, int i, const struct node *effect) {
    const struct inline_call called = {.node = (struct node *)(uintptr_t)effect,
                                       .region = copy->body->region};
    if (copy->call->is_recomputed)
        return false;
    if (copy->body->region != REGION_PRUNED || node_attr(copy->call->node, CALLED_BY_KERNEL_ATTR))
        return true;
    if (i < copy->function->n_named_effects)
        return true;
    return i < copy->function->n_kept_effects && !is_pruned_with_graph(copy) &&
           !inline_is_lowered(&called);
}

static struct status *make(struct copy *copy) {
    struct body *body = copy->body;
    const struct function_body *function = copy->function;
    set_region(copy);
    body->has_control_flow = function->has_control_flow;
    TRY(extend_chain(copy->in, copy->call, function->name, &body->chain));
    TRY(bind_args(copy));
    TRY(make_nodes(copy));
    TRY(connect_all(copy, body->chain));
    TRY(make_outputs(copy));
    body->effects = arena_array(&copy->in->c->arena, struct node *, function->n_effects + 1);
    for (int i = 0; i < function->n_effects; i++) {
        struct node *effect = copy->nodes[function->effects[i]];
        if (happens(copy, i, effect))
            body->effects[body->n_effects++] = effect;
    }
    return NULL;
}

struct status *body_make(struct inliner *in, const struct inline_call *call,
                         const struct attr_func *function, struct body *body) {
    struct copy copy = {
        .in = in, .call = call, .body = body, .attrs = {function->attrs, function->n_attrs}};
    TRY(inline_function(in, call, function->name, &copy.function));
    body->function = copy.function;
    body->states = inline_states(in, call, function, body->prefix);
    return status_suffix_take(make(&copy), "\n\t [[{{node %s}}]]", call->node->name);
}

void body_take_args(struct inliner *in, const struct inline_call *call, int first, bool are_loose,
                    struct body *body) {
    body->n_args = call->node->n_data - first;
    body->args = arena_array(&in->c->arena, struct body_arg, body->n_args + 1);
    for (int i = 0; i < body->n_args; i++)
        body->args[i] =
            (struct body_arg){.value = call->node->inputs[first + i], .is_loose = are_loose};
}

struct status *body_check_outputs(const struct inline_call *call, const struct body *body) {
    const struct node *node = call->node;
    if (body->n_outputs != node->n_outputs)
        return status_invalid(
            "Function '%s' has %d outputs where %d are wanted\n\t [[{{node %s}}]]",
            body->function->name, body->n_outputs, node->n_outputs, node->name);
    for (int i = 0; i < node->n_outputs; i++)
        if (endpoint_type(body->outputs[i]) != (enum dtype)node->out_types[i])
            return status_invalid(
                "Output %d of function '%s' is %s where %s is wanted\n\t [[{{node %s}}]]", i,
                body->function->name, dtype_name(endpoint_type(body->outputs[i])),
                dtype_name((enum dtype)node->out_types[i]), node->name);
    return NULL;
}
