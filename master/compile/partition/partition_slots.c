/* Finds the shapes of values that every step sends to another task. A Recv of such a value gets the
 * shape as its attr `_shape`, so its task may pre-grant memory for it
 * (worker/exchange/rendezvous.h).
 *
 * Only for values whose pre-grant is never useless: of known shape and plain dtype, too large to be
 * pushed without a grant, outside of loops (the number of iterations is unknown), not in a partial
 * run (whose feeds may come at any time), and certain to be sent (conditions.h).
 *
 * Shapes are a hint: a step may feed another shape than the Placeholder states, and the receiver
 * handles that. */
#include <stdlib.h>

#include "common/graph/conditions.h"
#include "master/compile/partition/partition.h"

/* smaller values are sent without a grant (worker/exchange/rendezvous.h) */
enum { SLOT_MIN_BYTES = 64 << 10 };

struct partitioner_slots {
    const struct graph_shapes *shapes;
    struct conditions conditions;
};

void partitioner_slots_free(struct partitioner_slots *slots) {
    if (!slots)
        return;
    conditions_fini(&slots->conditions);
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
    conditions_init(&slots->conditions, graph, order, graph->n_live);
    free(order);
    slots->shapes = compilation_shapes(p->c);
    p->slots = slots;
    p->conditions = &slots->conditions;
    return NULL;
}

void partitioner_say_shape(const struct partitioner *p, const struct node *src, int index,
                           struct node *recv) {
    const struct partitioner_slots *slots = p->slots;
    if (!slots || src->id >= p->n_ids || p->frames.out[src->id] != 0 || node_is_switch(src) ||
        slots->conditions.of[src->id] != CONDITION_ALWAYS)
        return;
    if (graph_shapes_bytes(slots->shapes, src, index) > SLOT_MIN_BYTES)
        node_set_attr_shape(&p->c->graph, recv, "_shape",
                            graph_shapes_of(slots->shapes, src, index));
}

int64_t partitioner_known_bytes(const struct partitioner *p, const struct node *src, int index) {
    return graph_shapes_bytes(p->slots->shapes, src, index);
}

int partitioner_condition(const struct partitioner *p, const struct node *node) {
    return p->conditions->of[node->id];
}
