/* Writes a partition's graph device by device (device_graphs.h). */
#include "master/compile/partition/device_graphs.h"

#include <stdlib.h>
#include <string.h>

#include "common/graph/graph_proto.h"
#include "common/tensor/tensor_proto.h"

enum { GRAPHDEF_NODE = 1, METADATA_PARTITION_GRAPHS = 3 };

/* tfdbg looks up what a debugger's copy takes in the graph of who takes the copy. */
static bool is_in_all(const struct node *node) {
    return strncmp(node->name, "__copy_", strlen("__copy_")) == 0;
}

void device_graph_write(const struct graph *partition, struct span device, struct str *out) {
    struct str nodedef = STR_INIT;
    for (int id = 0; id < partition->n_nodes; id++) {
        const struct node *node = partition->nodes[id];
        if (node->is_removed || (!span_is(device, node->device) && !is_in_all(node)))
            continue;
        str_clear(&nodedef);
        node_to_nodedef(node, &nodedef);
        proto_add_bytes(out, GRAPHDEF_NODE, nodedef.data, nodedef.len);
    }
    graph_to_graphdef_from(partition, partition->n_nodes, true, out);
    str_fini(&nodedef);
}

void device_graphs_add(const struct graph *partition, struct str *out) {
    const char **seen = NULL;
    int n_seen = 0;
    struct str graphdef = STR_INIT;
    for (int id = 0; id < partition->n_nodes; id++) {
        const struct node *node = partition->nodes[id];
        int k = 0;
        while (!node->is_removed && k < n_seen && strcmp(seen[k], node->device) != 0)
            k++;
        if (node->is_removed || k < n_seen)
            continue;
        seen = xreallocarray(seen, (size_t)n_seen + 1, sizeof *seen);
        seen[n_seen++] = node->device;
        str_clear(&graphdef);
        device_graph_write(partition, span_of(node->device), &graphdef);
        proto_add_bytes(out, METADATA_PARTITION_GRAPHS, graphdef.data, graphdef.len);
    }
    str_fini(&graphdef);
    free(seen);
}
