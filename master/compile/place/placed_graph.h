/* A step's graph as it was placed, for people: each node with its device, why it is there and what
 * it may take. It is made beside a compilation (compile_options.placed_graph), before nodes are
 * fused and the graph is cut into partitions. */
#ifndef MILLRACE_MASTER_COMPILE_PLACE_PLACED_GRAPH_H
#define MILLRACE_MASTER_COMPILE_PLACE_PLACED_GRAPH_H

#include "common/base/arena.h"

struct placed_input {
    int node; /* index in the graph's nodes */
    bool is_control;
};

struct placed_node {
    const char *name, *op, *device, *why;
    const char *inner_name; /* in the compiled graph: feeds and fetches are nodes there */
    double estimate_ns;     /* of one execution */
    struct placed_input *inputs;
    int n_inputs;
};

/* Everything is allocated in the arena. The nodes are in topological order, but for loops. */
struct placed_graph {
    struct arena arena;
    struct placed_node *nodes;
    int n_nodes;
};

static inline void placed_graph_init(struct placed_graph *graph) {
    *graph = (struct placed_graph){.n_nodes = 0};
    arena_init(&graph->arena);
}
static inline void placed_graph_fini(struct placed_graph *graph) { arena_fini(&graph->arena); }

#endif
