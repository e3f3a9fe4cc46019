/* What benchmarks of the executor share: nodes on a device, and an error that ends the program.
 * PROGRAM is defined before: the name in messages. */
#ifndef MILLRACE_BENCH_BENCH_GRAPH_H
#define MILLRACE_BENCH_BENCH_GRAPH_H

#include <stdio.h>
#include <stdlib.h>

#include "common/base/options.h"
#include "common/graph/graph.h"

static inline void die(struct status *st) {
    if (!st)
        return;
    fprintf(stderr, PROGRAM ": %s\n", status_message(st));
    exit(EXIT_INTERNAL);
}

/* `name` is a prefix; the graph makes it unique. */
static inline struct node *add_node(struct graph *graph, const char *name, const char *op,
                                    const char *device) {
    struct node *node;
    die(graph_add_node(graph, graph_unique_name(graph, name), op, device, &node));
    return node;
}

static inline struct node *add_const(struct graph *graph, const char *name,
                                     const struct tensor *value, const char *device) {
    struct node *node = add_node(graph, name, "Const", device);
    node_set_attr_type(graph, node, "dtype", (enum dtype)value->dtype);
    node_set_attr_tensor(graph, node, "value", value);
    die(node_finish(graph, node));
    return node;
}

#endif
