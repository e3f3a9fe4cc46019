/* Plain calls: PartitionedCall, StatefulPartitionedCall, and functions of the library as ops (inline.h).
 *
 *   x ──► f(…) ──► y          x ──► f/a ──► f/b ──► y
 *   c ─ ─► f                  c ─ ─► f/a                     (a: what has no input but loose ones)
 *          f ─ ─► d           f/b, effects ─ ─► f/done ─ ─► d */
#include "master/compile_internal.h"
#include "master/inline.h"

static struct status *called_function(struct inliner *in, const struct inline_call *call, const struct attr_func **ret) {
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

struct status *lower_call(struct inliner *in, const struct inline_call *call, struct replacement *ret) {
    const struct attr_func *function;
    struct body body = {.prefix = call->node->name};
    TRY(called_function(in, call, &function));
    TRY(inline_entry(in, call, &body.entry));
    body_take_args(in, call, 0, body.entry != NULL, &body);
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
    return NULL;
}
