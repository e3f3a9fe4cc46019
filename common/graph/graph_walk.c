/* Walks over whole graphs: makes consumer lists, topological orders and copies. */
#include "common/graph/graph.h"

#include <stdlib.h>

#include "common/graph/graph_internal.h"

/* ---- edges from the producer's side ---- */

void graph_consumers_init(struct graph_consumers *consumers, const struct graph *graph) {
    int *first = xcalloc((size_t)graph->n_nodes + 2, sizeof(first[0]));
    for (int id = 0; id < graph->n_nodes; id++) {
        const struct node *node = graph->nodes[id];
        for (int i = 0; !node->is_removed && i < node->n_inputs; i++)
            first[node->inputs[i].src->id + 2]++;
    }
    for (int id = 0; id < graph->n_nodes; id++)
        first[id + 2] += first[id + 1];
    /* first[id + 1] is the position of the next edge of `id`; after the last one it is the first of
     * id + 1. */
    consumers->edges =
        xmalloc(((size_t)first[graph->n_nodes + 1] + 1) * sizeof(consumers->edges[0]));
    for (int id = 0; id < graph->n_nodes; id++) {
        struct node *node = graph->nodes[id];
        for (int i = 0; !node->is_removed && i < node->n_inputs; i++)
            consumers->edges[first[node->inputs[i].src->id + 1]++] =
                (struct node_output_edge){node, i, node->inputs[i].index};
    }
    consumers->first = first;
}

void graph_consumers_fini(struct graph_consumers *consumers) {
    free(consumers->first);
    free(consumers->edges);
    *consumers = (struct graph_consumers){NULL, NULL};
}

/* Sorts by counting. next[output + 1] is the position of the next edge of that output. */
static void sort_by_output(struct node_output_edge *edges, int n_edges, int n_outputs, int *next,
                           struct node_output_edge *copy) {
    memset(next, 0, sizeof(next[0]) * ((size_t)n_outputs + 2));
    for (int i = 0; i < n_edges; i++)
        next[edges[i].index - CONTROL_EDGE + 1]++;
    for (int output = 0; output < n_outputs; output++)
        next[output + 1] += next[output];
    memcpy(copy, edges, sizeof(edges[0]) * (size_t)n_edges);
    for (int i = 0; i < n_edges; i++)
        edges[next[copy[i].index - CONTROL_EDGE]++] = copy[i];
}

void graph_consumers_sort(struct graph_consumers *consumers, const struct graph *graph) {
    int most_edges = 0, most_outputs = 0;
    for (int id = 0; id < graph->n_nodes; id++) {
        most_edges = MAX(most_edges, consumers->first[id + 1] - consumers->first[id]);
        most_outputs = MAX(most_outputs, graph->nodes[id]->n_outputs);
    }
    struct node_output_edge *copy = xmalloc(((size_t)most_edges + 1) * sizeof(copy[0]));
    int *next = xmalloc(((size_t)most_outputs + 2) * sizeof(next[0]));
    for (int id = 0; id < graph->n_nodes; id++) {
        int n_edges = consumers->first[id + 1] - consumers->first[id];
        if (n_edges > 1)
            sort_by_output(&consumers->edges[consumers->first[id]], n_edges,
                           graph->nodes[id]->n_outputs, next, copy);
    }
    free(copy);
    free(next);
}

/* ---- order ---- */

/* The ops whose output edge closes a loop. */
struct loop_ops {
    const struct op_signature *merge, *ref_merge, *next_iteration, *ref_next_iteration;
};

static struct loop_ops loop_ops_find(void) {
    return (struct loop_ops){op_signature_find("Merge"), op_signature_find("RefMerge"),
                             op_signature_find("NextIteration"),
                             op_signature_find("RefNextIteration")};
}

static bool is_way_back(const struct loop_ops *ops, const struct node *node, int position) {
    if (node->op != ops->merge && node->op != ops->ref_merge)
        return false;
    const struct op_signature *src = node->inputs[position].src->op;
    return position < node->n_data &&
           (src == ops->next_iteration || src == ops->ref_next_iteration);
}

/* Goes from a node that can never run back along inputs that cannot run either; this walk must
 * reach a cycle. */
static COLD struct status *cycle_found(const int *n_pending, int first_id, struct node *waiting,
                                       int n_left, const struct loop_ops *ops) {
    int n_steps = n_left;
    for (; n_steps > 0; n_steps--)
        for (int i = 0; i < waiting->n_inputs; i++) {
            struct node *src = waiting->inputs[i].src;
            if (src->id >= first_id && n_pending[src->id - first_id] > 0 &&
                !is_way_back(ops, waiting, i)) {
                waiting = src;
                break;
            }
        }
    return status_invalid("%d nodes in a cycle, or behind one that node '%s' is on: only "
                          "NextIteration may close a loop\n\t [[{{node %s}}]]",
                          n_left, waiting->name, waiting->name);
}

/* Lists the edges by producer among nodes from first_id on, without those that close loops. */
struct forward_edges {
    int *first, *consumers;
};

static void forward_edges_init(struct forward_edges *edges, const struct graph *graph, int first_id,
                               int *n_pending, const struct loop_ops *ops) {
    int n = graph->n_nodes - first_id;
    edges->first = xcalloc((size_t)n + 2, sizeof(int));
    for (int k = 0; k < n; k++) {
        const struct node *node = graph->nodes[first_id + k];
        n_pending[k] = 0;
        for (int i = 0; !node->is_removed && i < node->n_inputs; i++) {
            int src = node->inputs[i].src->id - first_id;
            if (src < 0 || is_way_back(ops, node, i))
                continue;
            n_pending[k]++;
            edges->first[src + 2]++;
        }
    }
    for (int k = 0; k < n; k++)
        edges->first[k + 2] += edges->first[k + 1];
    edges->consumers = xmalloc(((size_t)edges->first[n + 1] + 1) * sizeof(int));
    for (int k = 0; k < n; k++) {
        const struct node *node = graph->nodes[first_id + k];
        for (int i = 0; !node->is_removed && i < node->n_inputs; i++) {
            int src = node->inputs[i].src->id - first_id;
            if (src >= 0 && !is_way_back(ops, node, i))
                edges->consumers[edges->first[src + 1]++] = k;
        }
    }
}

struct status *graph_order_from(const struct graph *graph, int first_id, struct node ***ret_order) {
    struct loop_ops ops = loop_ops_find();
    size_t n = (size_t)(graph->n_nodes - first_id);
    int *n_pending = xmalloc((n + 1) * sizeof(int));
    struct node **order = xmalloc((n + 1) * sizeof(order[0]));
    struct forward_edges edges;
    struct status *st = NULL;
    int n_ordered = 0, n_live = 0;
    forward_edges_init(&edges, graph, first_id, n_pending, &ops);
    for (size_t k = 0; k < n; k++) {
        struct node *node = graph->nodes[(size_t)first_id + k];
        n_live += !node->is_removed;
        if (!node->is_removed && n_pending[k] == 0)
            order[n_ordered++] = node;
    }
    for (int done = 0; done < n_ordered; done++) {
        int src = order[done]->id - first_id;
        for (int i = edges.first[src]; i < edges.first[src + 1]; i++) {
            int consumer = edges.consumers[i];
            if (--n_pending[consumer] == 0)
                order[n_ordered++] = graph->nodes[first_id + consumer];
        }
    }
    for (size_t k = 0; k < n && n_ordered < n_live && !st; k++)
        if (n_pending[k] > 0)
            st = cycle_found(n_pending, first_id, graph->nodes[(size_t)first_id + k],
                             n_live - n_ordered, &ops);
    if (ret_order && !st)
        *ret_order = order;
    else
        free(order);
    free(n_pending);
    free(edges.first);
    free(edges.consumers);
    return st;
}

struct status *graph_topological_order(const struct graph *graph, struct node ***ret_order) {
    return graph_order_from(graph, 0, ret_order);
}

/* ---- copies ---- */

static void copy_functions(const struct graph *from, struct graph *to) {
    size_t cursor = 0;
    struct span name;
    void *function;
    while (strmap_next(&from->functions, &cursor, &name, &function))
        strmap_put_span(&to->functions, name, function);
    to->gradient_defs = from->gradient_defs;
    to->n_gradient_defs = from->n_gradient_defs;
}

void graph_copy(const struct graph *from, const bool *keep, struct graph *ret,
                struct node ***ret_map) {
    graph_init(ret);
    ret->producer = from->producer;
    ret->min_consumer = from->min_consumer;
    copy_functions(from, ret);
    size_t n_kept = 0, n_inputs = 0, n_attrs = 0;
    for (int id = 0; id < from->n_nodes; id++) {
        const struct node *node = from->nodes[id];
        if (node->is_removed || (keep && !keep[id]))
            continue;
        n_kept++;
        n_inputs += (size_t)node->n_inputs;
        n_attrs += (size_t)node->n_attrs;
    }
    /* Allocates three blocks for what may change; everything else is shared with the source. */
    struct node *nodes = arena_alloc(&ret->arena, n_kept * sizeof(*nodes));
    struct node_input *inputs = arena_alloc(&ret->arena, n_inputs * sizeof(*inputs));
    struct attr *attrs = arena_alloc(&ret->arena, n_attrs * sizeof(*attrs));
    struct node **map = xcalloc((size_t)from->n_nodes + 1, sizeof(map[0]));
    ret->nodes = xmalloc((n_kept + 1) * sizeof(ret->nodes[0]));
    ret->capacity = (int)n_kept + 1;
    for (int id = 0; id < from->n_nodes; id++) {
        const struct node *node = from->nodes[id];
        if (node->is_removed || (keep && !keep[id]))
            continue;
        struct node *copy = &nodes[ret->n_nodes];
        *copy = *node;
        copy->id = ret->n_nodes;
        copy->user = 0;
        copy->attrs = attrs;
        copy->attrs_capacity = node->n_attrs;
        if (node->n_attrs > 0)
            memcpy(attrs, node->attrs, (size_t)node->n_attrs * sizeof(attrs[0]));
        attrs += node->n_attrs;
        map[id] = ret->nodes[ret->n_nodes++] = copy;
        strmap_put(&ret->by_name, copy->name, copy);
    }
    for (int i = 0; i < ret->n_nodes; i++) {
        struct node *copy = &nodes[i];
        for (int k = 0; k < copy->n_inputs; k++) {
            inputs[k] = (struct node_input){map[copy->inputs[k].src->id], copy->inputs[k].index};
            CHECK(inputs[k].src != NULL); /* `keep` contains all producers of its nodes */
        }
        copy->inputs = inputs;
        copy->inputs_capacity = copy->n_inputs;
        inputs += copy->n_inputs;
    }
    ret->n_live = ret->n_nodes;
    if (ret_map)
        *ret_map = map;
    else
        free(map);
}
