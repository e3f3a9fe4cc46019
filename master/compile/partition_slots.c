/* Finds the shapes of values that every step sends to another task. A Recv of such a value gets the
 * shape as its attr `_shape`, so its task may pre-grant memory for it
 * (worker/exchange/rendezvous.h).
 *
 * Only for values whose pre-grant is never useless: of known shape and plain dtype, too large to be
 * pushed without a grant, outside of loops (the number of iterations is unknown), not in a partial
 * run (whose feeds may come at any time), and certain to be sent. Conditions tell which are
 * certain:
 *
 *   a ──► Switch(p) ──0──► b ──► Merge ──► d       a: always
 *               └───1──► c ───────┘                b: (always, p, 0)    c: (always, p, 1)
 *                                                  d: always: all sides of one condition meet there
 *
 * A node has the innermost condition of its inputs. If one of these does not contain the other, the
 * node is uncertain. A loop is entered and left under the condition of its Enters. A node below
 * more than MAX_DEPTH conditions is uncertain too, since joining two conditions costs the
 * difference of their depths.
 *
 * Shapes are a hint: a step may feed another shape than the Placeholder states, and the receiver
 * handles that. */
#include <stdlib.h>

#include "common/base/map.h"
#include "master/compile/partition.h"

enum {
    /* smaller values are sent without a grant (worker/exchange/rendezvous.h) */
    SLOT_MIN_BYTES = 64 << 10,
    ALWAYS = 0,
    UNCERTAIN = -1,
    MAX_DEPTH = 64,
};

/* Holds if the predicate chooses `side`, within `parent`. */
struct condition {
    int parent, depth;
    int pred_id, pred_output; /* the predicate: a node's output */
    int side, n_sides;
    int next; /* the next one of its bucket */
};

struct partitioner_slots {
    struct arena *arena;
    const struct graph_shapes *shapes;
    struct condition *conditions; /* [ALWAYS] */
    int n_conditions, capacity;
    int *first_of; /* by hash; 0: none */
    size_t n_buckets;
    int *of; /* by node id: the condition under which it runs */
};

/* ---- conditions ---- */

static bool is_same(const struct condition *a, const struct condition *b) {
    return a->parent == b->parent && a->pred_id == b->pred_id && a->pred_output == b->pred_output &&
           a->side == b->side && a->n_sides == b->n_sides;
}

static size_t bucket_of(const struct partitioner_slots *slots, const struct condition *condition) {
    const int parts[] = {condition->parent, condition->pred_id, condition->pred_output,
                         condition->side, condition->n_sides};
    return hash_bytes(parts, sizeof(parts), 0) % slots->n_buckets;
}

static int condition_find(struct partitioner_slots *slots, int parent,
                          const struct node_input *pred, int side, int n_sides) {
    struct condition asked = {.parent = parent,
                              .depth = slots->conditions[parent].depth + 1,
                              .pred_id = pred->src->id,
                              .pred_output = pred->index,
                              .side = side,
                              .n_sides = n_sides};
    if (asked.depth > MAX_DEPTH)
        return UNCERTAIN;
    int *first = &slots->first_of[bucket_of(slots, &asked)];
    for (int i = *first; i != 0; i = slots->conditions[i].next)
        if (is_same(&slots->conditions[i], &asked))
            return i;
    if (slots->n_conditions == slots->capacity) {
        slots->capacity *= 2;
        slots->conditions =
            xreallocarray(slots->conditions, (size_t)slots->capacity, sizeof(*slots->conditions));
    }
    asked.next = *first;
    slots->conditions[slots->n_conditions] = asked;
    *first = slots->n_conditions;
    return slots->n_conditions++;
}

/* Both conditions hold: returns the inner one if one contains the other. */
static int condition_join(const struct partitioner_slots *slots, int a, int b) {
    if (a == UNCERTAIN || b == UNCERTAIN)
        return UNCERTAIN;
    int inner = slots->conditions[a].depth >= slots->conditions[b].depth ? a : b,
        outer = inner == a ? b : a, at = inner;
    while (slots->conditions[at].depth > slots->conditions[outer].depth)
        at = slots->conditions[at].parent;
    return at == outer ? inner : UNCERTAIN;
}

static int condition_of_input(struct partitioner_slots *slots, const struct node_input *in) {
    int of = slots->of[in->src->id];
    if (of == UNCERTAIN || in->index == CONTROL_EDGE || !node_is_switch(in->src))
        return of;
    return condition_find(slots, of, &in->src->inputs[1], in->index, in->src->n_outputs);
}

/* Alive if one of its inputs is. It is certain if every side of one condition has an input. */
static int condition_of_merge(struct partitioner_slots *slots, const struct node *node) {
    int first = condition_of_input(slots, &node->inputs[0]);
    for (int i = 0; i < node->n_data; i++)
        if (node_is_either(node->inputs[i].src, "NextIteration", "RefNextIteration"))
            return condition_of_input(slots, &node->inputs[i == 0]);
    if (first <= ALWAYS)
        return first;
    struct condition of = slots->conditions[first]; /* the array may move */
    if (of.n_sides != node->n_data)
        return UNCERTAIN;
    bool *is_there = arena_array(slots->arena, bool, of.n_sides);
    for (int i = 0; i < node->n_data; i++) {
        int other = condition_of_input(slots, &node->inputs[i]);
        const struct condition *side = other > ALWAYS ? &slots->conditions[other] : NULL;
        if (!side || side->parent != of.parent || side->pred_id != of.pred_id ||
            side->pred_output != of.pred_output || side->n_sides != of.n_sides ||
            is_there[side->side])
            return UNCERTAIN;
        is_there[side->side] = true;
    }
    return of.parent;
}

static int condition_of_node(struct partitioner_slots *slots, const struct node *node) {
    int of = ALWAYS, n_done = 0;
    if (node_is_either(node, "Merge", "RefMerge") && node->n_data > 1) {
        of = condition_of_merge(slots, node);
        n_done = node->n_data;
    } else if (node_is_either(
                   node, "Exit",
                   "RefExit")) { /* of the loop's Switch: its side is the end of the loop */
        of = slots->of[node->inputs[0].src->id];
        n_done = 1;
    }
    for (int i = n_done; i < node->n_inputs; i++)
        of = condition_join(slots, of, condition_of_input(slots, &node->inputs[i]));
    return of;
}

/* ---- what the cut asks ---- */

void partitioner_slots_free(struct partitioner_slots *slots) {
    if (!slots)
        return;
    free(slots->conditions);
}

static bool crosses_tasks(const struct partitioner *p) {
    const struct graph *graph = &p->c->graph;
    for (int id = 0; id < graph->n_nodes; id++)
        for (int i = 0; !graph->nodes[id]->is_removed && i < graph->nodes[id]->n_data; i++)
            if (partitioner_task(p, graph->nodes[id]->inputs[i].src) !=
                partitioner_task(p, graph->nodes[id]))
                return true;
    return false;
}

struct status *partitioner_find_slots(struct partitioner *p) {
    const struct graph *graph = &p->c->graph;
    struct node **order;
    if (p->c->signature->is_partial || !crosses_tasks(p))
        return NULL;
    TRY(graph_topological_order(graph, &order));
    struct partitioner_slots *slots = arena_new(&p->c->arena, struct partitioner_slots);
    *slots = (struct partitioner_slots){.arena = &p->c->arena, .n_conditions = 1, .capacity = 16};
    slots->conditions = xcalloc((size_t)slots->capacity, sizeof(*slots->conditions));
    slots->n_buckets = (size_t)graph->n_nodes + 1;
    slots->first_of = arena_array(&p->c->arena, int, slots->n_buckets);
    slots->of = arena_array(&p->c->arena, int, graph->n_nodes + 1);
    for (int i = 0; i < graph->n_live; i++)
        slots->of[order[i]->id] = condition_of_node(slots, order[i]);
    free(order);
    slots->shapes = compilation_shapes(p->c);
    p->slots = slots;
    return NULL;
}

void partitioner_say_shape(const struct partitioner *p, const struct node *src, int index,
                           struct node *recv) {
    const struct partitioner_slots *slots = p->slots;
    if (!slots || src->id >= p->n_ids || p->frames.out[src->id] != 0 || node_is_switch(src) ||
        slots->of[src->id] != ALWAYS)
        return;
    if (graph_shapes_bytes(slots->shapes, src, index) > SLOT_MIN_BYTES)
        node_set_attr_shape(&p->c->graph, recv, "_shape",
                            graph_shapes_of(slots->shapes, src, index));
}
