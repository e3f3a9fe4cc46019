/* Names the states of stateful nodes that come from a function's body (inline.h).
 *
 * A random op with a seed draws from a stream that belongs to a node, and a queue without a
 * shared_name is a node's, too. TensorFlow calls functions by kernels, and a body's node exists
 * once for all calls: three calls draw three different numbers. Here each call has a copy of the
 * node, so the copies get the attr NODE_STATE_ATTR, and nodes with equal values share one state
 * (worker/session_state.h):
 *
 *   f = PartitionedCall[&g]   ─►  f/r {_state="&g:r@…"}   g's r, whoever calls g
 *   h = PartitionedCall[&g]   ─►  h/r {_state="&g:r@…"}
 *   d = SymbolicGradient[&g]  ─►  d/r {_state="d&g:r@…"}  the gradient's body is one of its own
 *   i = If (lowered) in g     ─►  f/i/then/s {_state="&g:i/then:s@…"}
 *   j = If (lowered) in the client's graph ─► j/then/s    by its own name
 *
 * Two sets of attrs make two instances of a function, as types may differ: a hash of the attrs then
 * follows the name. TensorFlow makes the functions' kernels for each signature (feeds, fetches and
 * targets), so a hash of the signature follows the names of streams; resources are found by their
 * names, whatever the signature. Names of nodes contain neither '&' nor ':', so no state of a node
 * in the client's graph has such a name. */
#include "common/base/map.h"
#include "common/graph/function_key.h"
#include "kernels/kernel.h"
#include "master/compile/compilation.h"
#include "master/compile/inline/inline.h"

bool inline_is_lowered(const struct inline_call *call) {
    const struct attr_value *lowers = node_attr(call->node, "_lower_using_switch_merge");
    return lowers && lowers->type == ATTR_BOOL && lowers->b && call->region != REGION_KERNEL &&
           !node_is_op(call->node, "PartitionedCall") &&
           !node_is_op(call->node, "StatefulPartitionedCall");
}

/* A number for the step's signature, whatever the order of its names. */
static uint64_t hash_signature(const struct signature *signature) {
    enum { FEED = 1, FETCH, TARGET };
    uint64_t sum = 0;
    for (int i = 0; i < signature->n_feeds; i++)
        sum += hash_bytes(signature->feeds[i], strlen(signature->feeds[i]), FEED);
    for (int i = 0; i < signature->n_fetches; i++)
        sum += hash_bytes(signature->fetches[i], strlen(signature->fetches[i]), FETCH);
    for (int i = 0; i < signature->n_targets; i++)
        sum += hash_bytes(signature->targets[i], strlen(signature->targets[i]), TARGET);
    return sum;
}

/* Attrs that begin with '_' are about one call. */
static struct attr_func without_private_attrs(struct arena *arena, const struct attr_func *from) {
    struct attr_func func = {from->name, arena_array(arena, struct attr, from->n_attrs + 1), 0};
    for (int i = 0; i < from->n_attrs; i++)
        if (from->attrs[i].name[0] != '_')
            func.attrs[func.n_attrs++] = from->attrs[i];
    return func;
}

const char *inline_states(struct inliner *in, const struct inline_call *call,
                          const struct attr_func *function, const char *prefix) {
    enum { SEED = 0x6d72, OTHER_SEED = 0x7374 };
    struct arena *arena = &in->c->arena;
    const char *kind = node_is_op(call->node, "SymbolicGradient") ? "d" : "";
    if (node_attr(call->node, CALLED_BY_KERNEL_ATTR))
        return NULL;
    if (inline_is_lowered(call))
        return call->state
                   ? arena_printf(arena, "%s%s", call->state, prefix + strlen(call->node->name))
                   : NULL;
    struct attr_func shown = without_private_attrs(arena, function);
    if (shown.n_attrs == 0 && !strchr(shown.name, ':'))
        return arena_printf(arena, "%s&%s", kind, shown.name);
    struct str bytes = STR_INIT;
    function_identity(&shown, &bytes);
    const char *states =
        arena_printf(arena, "%s&%s{%016llx%016llx}", kind, shown.name,
                     (unsigned long long)hash_bytes(bytes.data, bytes.len, SEED),
                     (unsigned long long)hash_bytes(bytes.data, bytes.len, OTHER_SEED));
    str_fini(&bytes);
    return states;
}

const char *inline_state_name(struct inliner *in, const char *states, const char *node) {
    return states ? arena_printf(&in->c->arena, "%s:%s", states, node) : NULL;
}

static bool names_resource(const struct node *node) {
    return node->n_outputs > 0 &&
           (node->out_types[0] == DT_RESOURCE || dtype_is_ref((enum dtype)node->out_types[0]));
}

/* Does the worker keep something for the node from step to step, or name a variable after it? */
static bool has_state(const struct node *node) {
    if (!node_is_stateful(node) || node_is_call(node))
        return false;
    return (node->n_data == 0 && names_resource(node)) ||
           kernel_op_has_session_state(node->op_name, "CPU");
}

void inline_name_state(struct inliner *in, const char *states, const char *name_in_body,
                       struct node *node) {
    if (!states || !has_state(node))
        return;
    const char *name = inline_state_name(in, states, name_in_body);
    if (!names_resource(node))
        name = arena_printf(&in->c->arena, "%s@%016llx", name,
                            (unsigned long long)hash_signature(in->c->signature));
    node_set_attr_s(in->graph, node, NODE_STATE_ATTR, name);
}
