/* Keeps the client's graphs: operations beside nodes, shapes, and what graphs say about themselves.
 */
#include "client/c_graph.h"

#include <stdlib.h>

#include "client/c_graph_internal.h"
#include "client/client_tensor.h"
#include "common/graph/internal_ops.h"
#include "common/tensor/tensor_proto.h"

/* ---- words for errors ---- */

struct status *null_refused(const char *function, const char *what) {
    return status_invalid("%s: %s is NULL", function, what);
}

struct status *operation_check(const char *function, const TF_Graph *graph,
                               const TF_Operation *oper) {
    if (!oper)
        return null_refused(function, "an operation");
    return oper->owner == graph ? NULL
                                : status_invalid("%s: operation '%s' is of another graph", function,
                                                 oper->node->name);
}

struct status *output_check(const char *function, const TF_Graph *graph, TF_Output output) {
    TRY(operation_check(function, graph, output.oper));
    if (output.index < 0 || output.index >= output.oper->node->n_outputs)
        return status_invalid("%s: operation '%s' (op %s) has no output %d, but %d outputs",
                              function, output.oper->node->name, output.oper->node->op_name,
                              output.index, output.oper->node->n_outputs);
    return NULL;
}

struct status *buffer_fill(const char *function, TF_Buffer *buffer, struct str *text) {
    struct status *st = NULL;
    if (buffer->data) {
        st = status_invalid("%s: passing non-empty output buffer is invalid", function);
    } else {
        TF_Buffer *copy = TF_NewBufferFromString(str_text(text), text->len);
        *buffer = *copy;
        free(copy);
    }
    str_fini(text);
    return st;
}

/* ---- life ---- */

TF_Graph *TF_NewGraph(void) {
    TF_Graph *graph = xcalloc(1, sizeof *graph);
    pthread_mutex_init(&graph->lock, NULL);
    graph_init(&graph->graph);
    graph_shapes_init(&graph->shapes);
    graph->graph.producer = GRAPH_DEF_VERSION;
    return graph;
}

static void free_graph(TF_Graph *graph) {
    graph_shapes_fini(&graph->shapes);
    graph_fini(&graph->graph);
    pthread_mutex_destroy(&graph->lock);
    free(graph->operations);
    free(graph);
}

void TF_DeleteGraph(TF_Graph *graph) {
    if (!graph)
        return;
    pthread_mutex_lock(&graph->lock);
    graph->is_deleted = true;
    bool is_free = graph->n_sessions == 0;
    pthread_mutex_unlock(&graph->lock);
    if (is_free)
        free_graph(graph);
}

void graph_ref_session(TF_Graph *graph) {
    pthread_mutex_lock(&graph->lock);
    graph->n_sessions++;
    pthread_mutex_unlock(&graph->lock);
}

void graph_unref_session(TF_Graph *graph) {
    pthread_mutex_lock(&graph->lock);
    bool is_free = --graph->n_sessions == 0 && graph->is_deleted;
    pthread_mutex_unlock(&graph->lock);
    if (is_free)
        free_graph(graph);
}

/* ---- operations beside nodes ---- */

TF_Operation *graph_operation(const TF_Graph *graph, const struct node *node) {
    return graph->operations[node->id];
}

static void add_consumer(TF_Graph *graph, TF_Operation *to, struct consumer consumer) {
    if (to->n_consumers == to->consumers_capacity) {
        to->consumers_capacity = to->consumers_capacity ? 2 * to->consumers_capacity : 2;
        struct consumer *consumers =
            arena_array(&graph->graph.arena, struct consumer, to->consumers_capacity);
        if (to->n_consumers > 0)
            memcpy(consumers, to->consumers, (size_t)to->n_consumers * sizeof *consumers);
        to->consumers = consumers;
    }
    to->consumers[to->n_consumers++] = consumer;
}

static void track_inputs(TF_Graph *graph, TF_Operation *oper) {
    const struct node *node = oper->node;
    for (int i = 0; i < node->n_inputs; i++)
        add_consumer(graph, graph_operation(graph, node->inputs[i].src),
                     (struct consumer){oper, i, node->inputs[i].index});
}

void graph_track_operations(TF_Graph *graph) {
    int first = graph->n_operations, n = graph->graph.n_nodes;
    if (n > graph->operations_capacity) {
        graph->operations_capacity = MAX(n, 2 * graph->operations_capacity);
        graph->operations = xreallocarray(graph->operations, (size_t)graph->operations_capacity,
                                          sizeof *graph->operations);
    }
    for (int id = first; id < n; id++) {
        struct node *node = graph->graph.nodes[id];
        TF_Operation *oper =
            node->is_removed ? NULL : arena_new(&graph->graph.arena, struct TF_Operation);
        if (oper)
            *oper = (struct TF_Operation){.owner = graph, .node = node};
        graph->operations[id] = oper;
    }
    graph->n_operations = n;
    for (int id = first; id < n; id++)
        if (graph->operations[id])
            track_inputs(graph, graph->operations[id]);
}

void graph_drop_nodes(TF_Graph *graph, int first_id) {
    for (int id = graph->graph.n_nodes - 1; id >= first_id; id--)
        graph_remove_node(&graph->graph, graph->graph.nodes[id]);
}

struct status *graph_take_nodes(TF_Graph *graph, int first_id) {
    struct infer_options options;
    infer_options_default(&options);
    options.refuses = true;
    struct status *st = graph_infer_shapes(&graph->graph, &graph->shapes, &options);
    if (st)
        graph_drop_nodes(graph, first_id);
    graph_track_operations(graph);
    return st;
}

TF_Operation *TF_GraphOperationByName(TF_Graph *graph, const char *oper_name) {
    if (!graph || !oper_name)
        return NULL;
    pthread_mutex_lock(&graph->lock);
    struct node *node = graph_find(&graph->graph, oper_name);
    TF_Operation *oper = node ? graph_operation(graph, node) : NULL;
    pthread_mutex_unlock(&graph->lock);
    return oper;
}

TF_Operation *TF_GraphNextOperation(TF_Graph *graph, size_t *pos) {
    TF_Operation *oper = NULL;
    if (!graph || !pos)
        return NULL;
    pthread_mutex_lock(&graph->lock);
    while (!oper && *pos < (size_t)graph->n_operations)
        oper = graph->operations[(*pos)++];
    pthread_mutex_unlock(&graph->lock);
    return oper;
}

/* ---- what a graph says about itself ---- */

void TF_GraphToGraphDef(TF_Graph *graph, TF_Buffer *output_graph_def, TF_Status *status) {
    struct str text = STR_INIT;
    if (!graph || !output_graph_def) {
        tf_status_set(status, null_refused(__func__, graph ? "output_graph_def" : "graph"));
        return;
    }
    pthread_mutex_lock(&graph->lock);
    graph_to_graphdef(&graph->graph, NULL, &text);
    pthread_mutex_unlock(&graph->lock);
    tf_status_set(status, buffer_fill(__func__, output_graph_def, &text));
}

void TF_GraphVersions(TF_Graph *graph, TF_Buffer *output_version_def, TF_Status *status) {
    struct str text = STR_INIT;
    if (!graph || !output_version_def) {
        tf_status_set(status, null_refused(__func__, graph ? "output_version_def" : "graph"));
        return;
    }
    pthread_mutex_lock(&graph->lock);
    graph_versions_to_proto(&graph->graph, &text);
    pthread_mutex_unlock(&graph->lock);
    tf_status_set(status, buffer_fill(__func__, output_version_def, &text));
}

void TF_GraphGetOpDef(TF_Graph *graph, const char *op_name, TF_Buffer *output_op_def,
                      TF_Status *status) {
    struct str text = STR_INIT;
    if (!graph || !op_name || !output_op_def) {
        tf_status_set(status, null_refused(__func__, !graph     ? "graph"
                                                     : !op_name ? "op_name"
                                                                : "output_op_def"));
        return;
    }
    pthread_mutex_lock(&graph->lock);
    const struct op_signature *op =
        internal_op_find(span_of(op_name)) ? NULL : graph_op_lookup(&graph->graph, op_name);
    if (op)
        op_signature_to_proto(op, &text);
    pthread_mutex_unlock(&graph->lock);
    tf_status_set(status,
                  op ? buffer_fill(__func__, output_op_def, &text)
                     : status_not_found("%s: Op type not registered '%s'", __func__, op_name));
}

TF_Buffer *TF_GetAllOpList(void) {
    struct str text = STR_INIT;
    for (size_t i = 0; i < op_signature_count(); i++) {
        size_t begin = proto_begin(&text, 1, 0);
        op_signature_to_proto(op_signature_at(i), &text);
        proto_end(&text, begin, 0);
    }
    TF_Buffer *buffer = TF_NewBufferFromString(str_text(&text), text.len);
    str_fini(&text);
    return buffer;
}

/* ---- shapes ---- */

void TF_GraphSetTensorShape(TF_Graph *graph, TF_Output output, const int64_t *dims, int num_dims,
                            TF_Status *status) {
    struct status *st = !graph                  ? null_refused(__func__, "graph")
                        : num_dims > 0 && !dims ? null_refused(__func__, "dims")
                                                : output_check(__func__, graph, output);
    if (!st && num_dims > SHAPE_MAX_RANK)
        st = status_invalid("%s: a shape of %d dimensions, more than %d", __func__, num_dims,
                            SHAPE_MAX_RANK);
    if (!st && num_dims >= 0) {
        int64_t sizes[SHAPE_MAX_RANK];
        for (int i = 0; i < num_dims; i++)
            sizes[i] = MAX(dims[i], -1);
        pthread_mutex_lock(&graph->lock);
        st = graph_shapes_merge(&graph->shapes, output.oper->node, output.index,
                                (struct shape){num_dims, sizes});
        pthread_mutex_unlock(&graph->lock);
        st = status_suffix_take(st, " (output %d of '%s')", output.index, output.oper->node->name);
    }
    tf_status_set(status, st);
}

int TF_GraphGetTensorNumDims(TF_Graph *graph, TF_Output output, TF_Status *status) {
    int rank = -1;
    struct status *st =
        graph ? output_check(__func__, graph, output) : null_refused(__func__, "graph");
    if (!st) {
        pthread_mutex_lock(&graph->lock);
        rank = graph_shapes_of(&graph->shapes, output.oper->node, output.index).rank;
        pthread_mutex_unlock(&graph->lock);
    }
    tf_status_set(status, st);
    return rank;
}

void TF_GraphGetTensorShape(TF_Graph *graph, TF_Output output, int64_t *dims, int num_dims,
                            TF_Status *status) {
    struct status *st = !graph                  ? null_refused(__func__, "graph")
                        : num_dims > 0 && !dims ? null_refused(__func__, "dims")
                                                : output_check(__func__, graph, output);
    if (!st) {
        pthread_mutex_lock(&graph->lock);
        struct shape shape = graph_shapes_of(&graph->shapes, output.oper->node, output.index);
        if (shape.rank != num_dims)
            st = status_invalid("%s: Expected rank is %d but actual rank is %d (output %d of '%s')",
                                __func__, num_dims, shape.rank, output.index,
                                output.oper->node->name);
        else if (shape.rank > 0)
            memcpy(dims, shape.dims, (size_t)shape.rank * sizeof dims[0]);
        pthread_mutex_unlock(&graph->lock);
    }
    tf_status_set(status, st);
}

unsigned char TF_TryEvaluateConstant(TF_Graph *graph, TF_Output output, TF_Tensor **result,
                                     TF_Status *status) {
    struct status *st = !graph    ? null_refused(__func__, "graph")
                        : !result ? null_refused(__func__, "result")
                                  : output_check(__func__, graph, output);
    if (result)
        *result = NULL;
    if (!st) {
        pthread_mutex_lock(&graph->lock);
        const struct tensor *value =
            graph_shapes_value(&graph->shapes, output.oper->node, output.index);
        if (value)
            st = client_tensor_clone(value, result);
        pthread_mutex_unlock(&graph->lock);
    }
    tf_status_set(status, st);
    return !st && *result;
}
