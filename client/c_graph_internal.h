/* Declares what the files of the client's graph API share. */
#ifndef MILLRACE_CLIENT_C_GRAPH_INTERNAL_H
#define MILLRACE_CLIENT_C_GRAPH_INTERNAL_H

#include <pthread.h>

#include "client/c_api_internal.h"
#include "client/c_graph.h"
#include "common/graph/graph.h"
#include "common/graph/graph_proto.h"
#include "common/ops/infer.h"

/* Who uses an output, or waits for the node (index CONTROL_EDGE). */
struct consumer {
    TF_Operation *oper;
    int position; /* in the consumer's inputs */
    int index;
};

struct TF_Operation {
    TF_Graph *owner;
    struct node *node;
    struct consumer *consumers; /* in the arena of the graph */
    int n_consumers, consumers_capacity;
};

struct TF_Graph {
    pthread_mutex_t lock; /* guards all below, and the operations */
    struct graph graph;
    struct graph_shapes shapes;
    TF_Operation **operations; /* by node id; NULL for a removed node */
    int n_operations, operations_capacity;
    int n_sessions;  /* that use the graph */
    bool is_deleted; /* the last session frees it */
};

/* What a description has for one argument of the op. */
struct described_input {
    TF_Output *values;
    int n;
    bool is_list;
};

/* Lives in the arena of its graph, so that a second finish can be refused. */
struct TF_OperationDescription {
    TF_Graph *owner;
    const char *name, *op_name, *device;
    bool is_finished;
    struct status *status; /* the first error of a call without a status */
    /* of the heap; freed by the finish */
    struct attr *attrs;
    struct described_input *inputs;
    TF_Operation **controls;
    char **colocations; /* "loc:@NAME" */
    int n_attrs, n_inputs, n_controls, n_colocations;
    struct arena arena; /* of names and values */
};

/* NULL where the output exists in that graph. */
struct status *output_check(const char *function, const TF_Graph *graph, TF_Output output) MUST_USE;
/* NULL where the operation is one of the graph. */
struct status *operation_check(const char *function, const TF_Graph *graph,
                               const TF_Operation *oper) MUST_USE;

/* Makes operations of the nodes that were added to the graph. The caller holds the lock. */
void graph_track_operations(TF_Graph *graph);
/* Infers the shapes of the nodes with ids from `first_id` on and makes operations of them. After an
 * error these nodes are removed. The caller holds the lock. */
struct status *graph_take_nodes(TF_Graph *graph, int first_id) MUST_USE;
void graph_drop_nodes(TF_Graph *graph, int first_id);
TF_Operation *graph_operation(const TF_Graph *graph, const struct node *node);

/* Counts a session in or out; the last one frees a deleted graph. */
void graph_ref_session(TF_Graph *graph);
void graph_unref_session(TF_Graph *graph);

/* Fills the caller's buffer, which must be empty, and frees the text. */
struct status *buffer_fill(const char *function, TF_Buffer *buffer, struct str *text) MUST_USE;

#endif
