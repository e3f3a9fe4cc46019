/* Finds the conditions of nodes (conditions.h), in topological order. */
#include "common/graph/conditions.h"

#include <stdlib.h>

#include "common/graph/control_flow.h"

enum {
    MAX_DEPTH = 64,
    MAX_IDENTITIES = 16,
};

static bool is_same(const struct condition *a, const struct condition *b) {
    return a->parent == b->parent && a->pred_id == b->pred_id && a->pred_output == b->pred_output &&
           a->side == b->side && a->n_sides == b->n_sides;
}

static size_t bucket_of(const struct conditions *conditions, const struct condition *condition) {
    const int parts[] = {condition->parent, condition->pred_id, condition->pred_output,
                         condition->side, condition->n_sides};
    return hash_bytes(parts, sizeof(parts), 0) % conditions->n_buckets;
}

/* What the Identities before a predicate hand on, so that equal predicates are one. A reference is
 * read by who takes it from them, so they are left as they are. */
static struct node_input source_of(struct node_input pred) {
    struct node_input source = pred;
    for (int i = 0;
         i < MAX_IDENTITIES && node_is_op(source.src, "Identity") && source.src->n_data == 1; i++) {
        source = source.src->inputs[0];
        if (dtype_is_ref((enum dtype)source.src->out_types[source.index]))
            return pred;
    }
    return source;
}

static int condition_find(struct conditions *conditions, int parent, struct node_input pred,
                          int side, int n_sides) {
    pred = source_of(pred);
    struct condition asked = {.parent = parent,
                              .depth = conditions->all[parent].depth + 1,
                              .pred_id = pred.src->id,
                              .pred_output = pred.index,
                              .side = side,
                              .n_sides = n_sides};
    if (asked.depth > MAX_DEPTH)
        return CONDITION_UNCERTAIN;
    int *first = &conditions->first_of[bucket_of(conditions, &asked)];
    for (int i = *first; i != 0; i = conditions->all[i].next)
        if (is_same(&conditions->all[i], &asked))
            return i;
    if (conditions->n == conditions->capacity) {
        conditions->capacity *= 2;
        conditions->all =
            xreallocarray(conditions->all, (size_t)conditions->capacity, sizeof(*conditions->all));
    }
    asked.next = *first;
    conditions->all[conditions->n] = asked;
    *first = conditions->n;
    return conditions->n++;
}

/* Both conditions hold: returns the inner one if one contains the other. */
static int condition_join(const struct conditions *conditions, int a, int b) {
    if (a == CONDITION_UNCERTAIN || b == CONDITION_UNCERTAIN)
        return CONDITION_UNCERTAIN;
    int inner = conditions->all[a].depth >= conditions->all[b].depth ? a : b,
        outer = inner == a ? b : a, at = inner;
    while (conditions->all[at].depth > conditions->all[outer].depth)
        at = conditions->all[at].parent;
    return at == outer ? inner : CONDITION_UNCERTAIN;
}

int condition_of_input(struct conditions *conditions, const struct node_input *in) {
    int of = conditions->of[in->src->id];
    if (of == CONDITION_UNCERTAIN || in->index == CONTROL_EDGE || !node_is_switch(in->src))
        return of;
    return condition_find(conditions, of, in->src->inputs[1], in->index, in->src->n_outputs);
}

/* Alive if one of its inputs is. It is certain if every side of one condition has an input. */
static int condition_of_merge(struct conditions *conditions, const struct node *node) {
    int first = condition_of_input(conditions, &node->inputs[0]);
    for (int i = 0; i < node->n_data; i++)
        if (node_is_either(node->inputs[i].src, "NextIteration", "RefNextIteration"))
            return condition_of_input(conditions, &node->inputs[i == 0]);
    if (first <= CONDITION_ALWAYS)
        return first;
    struct condition of = conditions->all[first]; /* the array may move */
    if (of.n_sides != node->n_data)
        return CONDITION_UNCERTAIN;
    bool *is_there = arena_array(&conditions->arena, bool, of.n_sides);
    for (int i = 0; i < node->n_data; i++) {
        int other = condition_of_input(conditions, &node->inputs[i]);
        const struct condition *side = other > CONDITION_ALWAYS ? &conditions->all[other] : NULL;
        if (!side || side->parent != of.parent || side->pred_id != of.pred_id ||
            side->pred_output != of.pred_output || side->n_sides != of.n_sides ||
            is_there[side->side])
            return CONDITION_UNCERTAIN;
        is_there[side->side] = true;
    }
    return of.parent;
}

static int condition_of_node(struct conditions *conditions, const struct node *node) {
    int of = CONDITION_ALWAYS, n_done = 0;
    if (node_is_either(node, "Merge", "RefMerge") && node->n_data > 1) {
        of = condition_of_merge(conditions, node);
        n_done = node->n_data;
    } else if (node_is_either(
                   node, "Exit",
                   "RefExit")) { /* of the loop's Switch: its side is the end of the loop */
        of = conditions->of[node->inputs[0].src->id];
        n_done = 1;
    }
    for (int i = n_done; i < node->n_inputs; i++)
        of = condition_join(conditions, of, condition_of_input(conditions, &node->inputs[i]));
    return of;
}

void conditions_init(struct conditions *conditions, const struct graph *graph,
                     struct node *const *order, int n_order) {
    *conditions =
        (struct conditions){.n = 1, .capacity = 16, .n_buckets = (size_t)graph->n_nodes + 1};
    arena_init(&conditions->arena);
    conditions->all = xcalloc((size_t)conditions->capacity, sizeof(*conditions->all));
    conditions->first_of = arena_array(&conditions->arena, int, conditions->n_buckets);
    conditions->of = arena_array(&conditions->arena, int, graph->n_nodes + 1);
    for (int i = 0; i < n_order; i++)
        conditions->of[order[i]->id] = condition_of_node(conditions, order[i]);
}

void conditions_fini(struct conditions *conditions) {
    free(conditions->all);
    arena_fini(&conditions->arena);
    *conditions = (struct conditions){0};
}
