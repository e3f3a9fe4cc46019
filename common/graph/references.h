/* Finds the values that are references to variables and are read late, as late as in TensorFlow.
 *
 * Clients make "v/read", an Identity of the reference, outside of all control dependencies, and yet
 * rely on "update v, then use v". In TensorFlow the output of such an Identity shares the
 * variable's buffer, which updates write in place, and so does the output of every op that forwards
 * its input's buffer: a Reshape, a CheckNumerics, an Enter. So in a worker's plan these ops pass
 * the reference itself on, with the shape that their output has, and each consumer reads the
 * variable when it runs. docs/compatibility.md says where this ends. Any thread. */
#ifndef MILLRACE_COMMON_GRAPH_REFERENCES_H
#define MILLRACE_COMMON_GRAPH_REFERENCES_H

#include "common/graph/graph.h"

/* How many inputs, from the first on, a node of control flow passes on without reading them. */
int node_n_passed_on(const struct node *node);
/* How many inputs, from the first on, a node reads whose buffers its outputs share in TensorFlow. A
 * node does at most one of passing on and forwarding. */
int node_n_forwarded(const struct node *node);

/* By node id: may its values be references, although its op makes values? malloc'd. Cost: linear.
 */
bool *graph_find_references(const struct graph *graph, const struct graph_consumers *consumers);

#endif
