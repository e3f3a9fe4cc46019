/* Plain calls: PartitionedCall, StatefulPartitionedCall, RemoteCall, and functions of the
 * library as ops (inline.h).
 *
 *   x ──► f(…) ──► y          x ──► f/a ──► f/b ──► y
 *   c ─ ─► f                  c ─ ─► f/a                     (a: what has no input but loose ones)
 *          f ─ ─► d           f/b, effects ─ ─► f/done ─ ─► d */
#include "master/compile/compilation.h"
#include "master/compile/inline/inline.h"

struct status *inline_called_function(struct inliner *in, const struct inline_call *call,
                                      const struct attr_func **ret) {
    struct node *node = call->node;
    const struct attr_value *value = op_signature_is_known(node->op) ? node_attr(node, "f") : NULL;
    if (value && value->type == ATTR_FUNC && !value->is_placeholder) {
        *ret = value->func;
        return NULL;
    }
    struct attr_func *func = arena_new(&in->c->arena, struct attr_func);
    *func = (struct attr_func){node->op_name, node->attrs, node->n_attrs};
    *ret = func;
    return NULL;
}

/* Does nothing happen for the node's value: is it a constant, a feed, the handle of a variable? */
static bool is_at_hand(const struct node *node) {
    enum { MAX_STEPS = 16 }; /* a handle is passed on into loops and branches */
    for (int i = 0; i < MAX_STEPS && node->n_data > 0; i++) {
        bool is_plain = node_is_op(node, "Identity") && node->n_inputs == node->n_data;
        if (!is_plain && !node_is_op(node, "Enter") && !node_is_op(node, "Switch"))
            break;
        node = node->inputs[0].src;
    }
    if (node_is_op(node, "VarHandleOp") || node_is_internal(node))
        return true;
    return node->n_inputs == 0 && !node_is_call(node) && !node_is_stateful(node);
}

/* TensorFlow's call takes its inputs before it begins: also those that the body does not use, or
 * that only a part of it uses which is pruned. So their effects happen. What else computes them is
 * left out by pass_waits. */
static struct status *wait_for_unused(struct inliner *in, const struct inline_call *call,
                                      const struct body *body, struct replacement *ret) {
    struct node **unused = arena_array(&in->c->arena, struct node *, body->n_args + 1), *join;
    int n = 0;
    if (call->is_recomputed || call->inputs_decide) /* then the entry waits for all inputs */
        return NULL;
    for (int i = 0; i < body->n_args; i++) {
        const struct body_arg *arg = &body->args[i];
        if (arg->is_unused && !is_at_hand(arg->value.src))
            TRY(inline_identity(in, call, "unused", arg->value, NULL, &unused[n++]));
    }
    if (n == 0)
        return NULL;
    TRY(inline_join(in, call, "inputs", unused, n, &join));
    node_add_control(in->graph, ret->done, join);
    for (int i = 0; i < body->n_outputs; i++) {
        struct node *output;
        TRY(inline_identity(in, call, "output", ret->outputs[i], join, &output));
        ret->outputs[i] = (struct node_input){output, 0};
    }
    return NULL;
}

struct status *lower_call_of(struct inliner *in, const struct inline_call *call,
                             const struct attr_func *function, int first_input,
                             struct replacement *ret) {
    struct body body = {.prefix = call->node->name};
    TRY(inline_entry(in, call, &body.entry));
    body_take_args(in, call, first_input, body.entry != NULL, &body);
    TRY(body_make(in, call, function, &body));
    TRY(body_check_outputs(call, &body));
    ret->outputs = body.outputs;
    ret->effects = body.effects;
    ret->n_effects = body.n_effects;
    TRY(inline_join(in, call, "done", body.effects, body.n_effects, &ret->done));
    for (int i = 0; i < body.n_outputs; i++)
        node_add_control(in->graph, ret->done, body.outputs[i].src);
    if (body.entry)
        node_add_control(in->graph, ret->done, body.entry);
    return wait_for_unused(in, call, &body, ret);
}

/* There is one executor here, which does what both of TensorFlow's executors promise. A name that
 * TensorFlow does not know is an error. */
static struct status *check_executor(const struct node *node) {
    const struct attr_value *value =
        op_signature_is_known(node->op) ? node_attr(node, "executor_type") : NULL;
    static const char *const known[] = {"", "DEFAULT", "SINGLE_THREADED_EXECUTOR"};
    if (!value || value->type != ATTR_STRING)
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (span_is(value->s, known[i]))
            return NULL;
    return status_not_found(
        "No executor factory registered for the given executor type: %.*s\n\t [[{{node %s}}]]",
        (int)MIN(value->s.len, 256), (const char *)value->s.data, node->name);
}

struct status *lower_call(struct inliner *in, const struct inline_call *call,
                          struct replacement *ret) {
    const struct attr_func *function;
    TRY(check_executor(call->node));
    TRY(inline_called_function(in, call, &function));
    inline_choose(in, &function);
    return lower_call_of(in, call, function, 0, ret);
}

/* RemoteCall(target, x…): a call on the device that `target` names. The device is part of the
 * graph here. A call whose target only the step knows stays a node. */
struct status *lower_remote_call(struct inliner *in, const struct inline_call *call,
                                 struct replacement *ret) {
    const struct tensor *target = const_behind(call->node->inputs[0].src);
    const struct attr_func *function;
    CHECK(target); /* node_is_call */
    if (target->dtype != DT_STRING || target->rank != 0)
        return status_invalid("RemoteCall's target must be a scalar string\n\t [[{{node %s}}]]",
                              call->node->name);
    struct span device = tensor_string(target, 0);
    struct device_name name;
    TRY(status_suffix_take(device_name_parse(device, &name), "\n\t [[{{node %s}}]]",
                           call->node->name));
    struct node *there = arena_memdup(&in->c->arena, call->node, sizeof(*call->node));
    struct inline_call there_call = *call;
    there->device = arena_strndup(&in->c->arena, device.data, device.len);
    there_call.node = there;
    TRY(inline_called_function(in, call, &function));
    return lower_call_of(in, &there_call, function, 1, ret);
}
