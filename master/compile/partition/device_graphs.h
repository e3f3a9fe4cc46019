/* A compiled partition as RunMetadata shows it to clients. */
#ifndef MILLRACE_MASTER_COMPILE_PARTITION_DEVICE_GRAPHS_H
#define MILLRACE_MASTER_COMPILE_PARTITION_DEVICE_GRAPHS_H

#include "common/base/str.h"
#include "common/graph/graph.h"

/* Appends the GraphDef of the nodes on a device, and of the copies of a debugger on any. */
void device_graph_write(const struct graph *partition, struct span device, struct str *out);
/* Appends RunMetadata.partition_graphs: a GraphDef for each device that a node of the partition is
 * on, in the order of their first nodes. A partition is a task's, but TensorFlow's are a device's,
 * and its debugger takes all nodes of a graph to be on one. An input from another device names a
 * node of another graph. Cost: for each device, a look at all nodes. */
void device_graphs_add(const struct graph *partition, struct str *out);

#endif
