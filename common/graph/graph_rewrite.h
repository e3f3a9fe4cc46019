/* Changes what a node of a graph is, for passes. Threads: as graph.h has it. */
#ifndef MILLRACE_COMMON_GRAPH_GRAPH_REWRITE_H
#define MILLRACE_COMMON_GRAPH_GRAPH_REWRITE_H

#include "common/graph/graph.h"

/* Makes the node one of another op, which must exist, without inputs. Name, device and place stay,
 * and so do attrs whose names begin with "_"; the other attrs are the op's defaults. The caller
 * adds inputs and attrs and then calls node_finish. */
void node_change_op(struct graph *graph, struct node *node, const char *op);

#endif
