/* Answers questions about nodes that several passes have. */
#include <stdlib.h>

#include "common/graph/internal_ops.h"
#include "common/graph/references.h"
#include "common/tensor/tensor.h"
#include "master/compile/compilation.h"

bool node_has_ref(const struct node *node) {
    for (int i = 0; i < node->n_data; i++)
        if (dtype_is_ref((enum dtype)node->in_types[i]) ||
            dtype_is_ref((enum dtype)node->inputs[i].src->out_types[node->inputs[i].index]))
            return true;
    for (int i = 0; i < node->n_outputs; i++)
        if (dtype_is_ref((enum dtype)node->out_types[i]))
            return true;
    return false;
}

bool node_uses_functions(const struct node *node) {
    if (!op_signature_is_known(node->op))
        return !node_is_internal(node);
    for (int i = 0; i < node->op->n_attrs; i++)
        if (attr_type_element(node->op->attrs[i].type) == ATTR_FUNC)
            return true;
    return false;
}

enum { MAX_IDENTITIES = 100 }; /* a client's graph may have a cycle of them */

const struct tensor *const_behind(const struct node *node) {
    for (int i = 0; i < MAX_IDENTITIES && node_is_op(node, "Identity") && node->n_data > 0; i++)
        node = node->inputs[0].src;
    const struct attr_value *value = node_is_op(node, "Const") ? node_attr(node, "value") : NULL;
    return value && value->type == ATTR_TENSOR ? value->tensor : NULL;
}

bool node_is_internal(const struct node *node) {
    return internal_op_find(span_of(node->op_name)) != NULL;
}

int64_t const_size_bytes(const struct node *node) {
    const struct attr_value *value = node_is_op(node, "Const") ? node_attr(node, "value") : NULL;
    if (!value || value->type != ATTR_TENSOR)
        return -1;
    const struct tensor *t = value->tensor;
    /* its worker refuses it; until then no pass computes with it */
    if (t->dtype != node->out_types[0])
        return -1;
    int64_t size = (int64_t)tensor_size_bytes(t);
    for (int64_t i = 0; t->dtype == DT_STRING && i < t->n_elements && size <= CONST_COUNTED_BYTES;
         i++)
        size += (int64_t)tensor_string(t, i).len;
    return size;
}

/* Adds what the node depends on to its set. Returns whether the set has grown. */
static bool add_feeds(const struct node *node, uint64_t *sets) {
    uint64_t set = sets[node->id];
    int64_t index = 0;
    if (node_is_op(node, OP_FEED)) {
        CHECK(node_get_i(node, "index", &index) == NULL);
        set |= UINT64_C(1) << index;
    }
    for (int i = 0; i < node->n_inputs; i++)
        set |= sets[node->inputs[i].src->id];
    bool has_grown = set != sets[node->id];
    sets[node->id] = set;
    return has_grown;
}

/* A loop takes further sweeps, for what comes back to its beginning. */
struct status *compile_feed_sets(struct compilation *c, uint64_t **ret) {
    struct node **order;
    bool changed = c->signature->n_feeds <= 64;
    *ret = NULL;
    if (!c->signature->is_partial)
        return NULL;
    TRY(graph_topological_order(&c->graph, &order));
    uint64_t *sets = arena_array(&c->arena, uint64_t, c->graph.n_nodes + 1);
    for (int id = 0; id < c->graph.n_nodes && !changed; id++)
        sets[id] = (uint64_t)id;
    while (changed) {
        changed = false;
        for (int i = 0; i < c->graph.n_live; i++)
            changed |= add_feeds(order[i], sets);
    }
    free(order);
    *ret = sets;
    return NULL;
}

bool *compile_targets(struct compilation *c) {
    bool *is_target = arena_array(&c->arena, bool, c->graph.n_nodes + 1);
    for (int i = 0; i < c->n_targets; i++)
        is_target[c->target_nodes[i]->id] = true;
    return is_target;
}

bool *compile_references(const struct graph *graph) {
    struct graph_consumers consumers;
    bool has_references = false;
    for (int id = 0; id < graph->n_nodes && !has_references; id++)
        for (int i = 0; i < graph->nodes[id]->n_outputs; i++)
            has_references =
                has_references || dtype_is_ref((enum dtype)graph->nodes[id]->out_types[i]);
    if (!has_references)
        return xcalloc((size_t)graph->n_nodes + 1, sizeof(bool));
    graph_consumers_init(&consumers, graph);
    bool *is_reference = graph_find_references(graph, &consumers);
    graph_consumers_fini(&consumers);
    return is_reference;
}
