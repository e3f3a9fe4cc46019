/* Floats that cross between tasks in 16 bits [WP 5.5]: cut to bfloat16 before the Send, filled
 * up with zeros after the Recv. Two Casts per pair, where the edge is p, so that transports
 * and rendezvous know nothing of it:
 *
 *   a ──float──► Cast ──bfloat16──► _MrSend ┄┄► _MrRecv ──bfloat16──► Cast ──float──► b
 *
 * Truncation rather than rounding, as the paper has it: it costs less, and training does not
 * mind. */
#include "master/compile/partition/partition.h"
#include "master/compile/place/place.h"

static struct status *add_cast(struct partitioner *p, const char *name, struct node *from,
                               int index, enum dtype to, int device, struct node **ret) {
    struct graph *graph = &p->c->graph;
    TRY(graph_add_node(graph, graph_unique_name(graph, name), "Cast", "", ret));
    node_set_attr_type(graph, *ret, "SrcT", dtype_base((enum dtype)from->out_types[index]));
    node_set_attr_type(graph, *ret, "DstT", to);
    node_set_attr_b(graph, *ret, "Truncate", true);
    node_add_input(graph, *ret, from, index);
    TRY(node_finish(graph, *ret));
    (*ret)->placed = device;
    return NULL;
}

bool partitioner_is_narrowed(const struct partitioner *p, const struct node *src, int index) {
    return p->c->options->bfloat16_sends &&
           dtype_base((enum dtype)src->out_types[index]) == DT_FLOAT;
}

struct status *partitioner_add_narrow_pair(struct partitioner *p, struct node *src, int index,
                                           const char *tensor_name, int task, struct node **ret) {
    struct arena *arena = &p->c->arena;
    int number = p->n_edges;
    struct node *narrow, *recv;
    TRY(add_cast(p, arena_printf(arena, "%s/_narrow_%d", src->name, number), src, index,
                 DT_BFLOAT16, device_host(p->devices, src->placed), &narrow));
    TRY(partitioner_add_pair(p, narrow, 0, src, p->frames.out[src->id], tensor_name, task, &recv));
    partitioner_say_shape(p, src, index, recv);
    return add_cast(p, arena_printf(arena, "%s/_widen_%d", src->name, number), recv, 0, DT_FLOAT,
                    recv->placed, ret);
}
