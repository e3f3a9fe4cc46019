/* Changes many control edges of one node at a time, which may have as many as the graph has nodes.
 * Threads: as graph.h has it. */
#ifndef MILLRACE_COMMON_GRAPH_GRAPH_CONTROLS_H
#define MILLRACE_COMMON_GRAPH_GRAPH_CONTROLS_H

#include "common/graph/graph.h"

/* Adds control edges from n nodes, NULL among them for none; existing edges are not added again.
 * Linear in the edges, where n calls of node_add_control are quadratic. */
void node_add_controls(struct graph *graph, struct node *node, struct node *const *srcs, int n);
/* Keeps the last of several control edges from one producer. `last_seen`, by node id, holds 1 + the
 * id of the consumer that had the producer as a control input last; 0 at first. */
void node_drop_doubled_controls(struct node *node, int *last_seen);

#endif
