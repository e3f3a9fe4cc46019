/* CUDA graphs: capturing one stream, and launching what it captured.
 *
 * A captured stream is a chain, so a launch enqueues the operations of the graph one after another
 * on the launch's stream: each is ordered after what was enqueued before, and before what comes
 * later, as the driver promises for the whole graph. Missing waits, freed blocks and bad addresses
 * are found as in the same operations without a graph.
 *
 * What a capture may not contain is refused with CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: events, and
 * copies from the host, whose source nobody may change before any launch. Then, and after a call
 * that a capturing thread may not make, the capture is invalid, and its end says so.
 *
 * A graph names what it uses by address. A launch protects the pinned memory that its copies write,
 * as a copy without a graph does, and is refused if the memory is not pinned any more, or if the
 * plan of a captured convolution was destroyed: a kernel's code must outlive the graphs with it. */
#include "tests/cuda/sim/driver.h"
#include <stdlib.h>
#include <string.h>

enum { GRAPH_MAGIC = 0x47525048, EXEC_MAGIC = 0x45584543, MAX_NOTES = 1 << 16 };

struct CUgraphNode_st {
    struct sim_message message;
    unsigned char *bytes;
    void *host;    /* of a copy to the host: its destination */
    uint32_t plan; /* of a convolution, which names its plan; 0: none */
};

/* The beginning of a graph that was destroyed is kept, because a program may still name it, and
 * gets an error then. */
struct handle {
    uint32_t magic;
    struct handle *next_destroyed;
};

struct CUgraph_st {
    struct handle handle;
    int device;
    struct CUgraphNode_st **nodes;
    size_t n, max;
};

/* A block that begins or ends during the next launch. */
struct note {
    int at;
    struct sim_message message;
};

struct CUgraphExec_st {
    struct handle handle;
    int device;
    struct CUgraph_st *graph; /* whose nodes name those of this */
    struct CUgraphNode_st **nodes;
    size_t n;
    uint64_t number; /* of its first node, for watchers */
    struct note *notes;
    size_t n_notes;
};

static atomic_ullong n_nodes_ever = 1;
static struct handle *_Atomic last_destroyed;

/* Guarded by the link's lock. */
static CUstream capturing[SIM_MAX_STREAMS];
static _Thread_local CUstream own_capture; /* that this thread has begun, unless it is relaxed */
static _Thread_local uint32_t current_plan;

static atomic_int refused = -1; /* the call that is not allowed next while its thread captures */

static struct CUgraphNode_st *node_new(const struct sim_message *message, const void *bytes) {
    struct CUgraphNode_st *node = calloc(1, sizeof *node);
    if (node == NULL)
        abort();
    node->message = *message;
    node->bytes = malloc(message->n_bytes + 1);
    if (node->bytes == NULL)
        abort();
    if (message->n_bytes > 0)
        memcpy(node->bytes, bytes, message->n_bytes);
    return node;
}

static struct CUgraphNode_st *node_copy(const struct CUgraphNode_st *from) {
    struct CUgraphNode_st *node = node_new(&from->message, from->bytes);
    node->host = from->host;
    node->plan = from->plan;
    return node;
}

static void nodes_free(struct CUgraphNode_st **nodes, size_t n) {
    for (size_t i = 0; i < n; i++) {
        free(nodes[i]->bytes);
        free(nodes[i]);
    }
    free(nodes);
}

static void destroy(struct handle *handle) {
    handle->magic = 0;
    handle->next_destroyed = atomic_load(&last_destroyed);
    while (!atomic_compare_exchange_weak(&last_destroyed, &handle->next_destroyed, handle)) {
    }
}

static void graph_free(CUgraph graph) {
    nodes_free(graph->nodes, graph->n);
    destroy(&graph->handle);
}

/* ---- capturing ---- */

CUresult capture_allows(enum call call) {
    static const enum call unsafe[] = {
        CALL_cuMemAlloc_v2,    CALL_cuMemFree_v2,         CALL_cuMemHostAlloc,
        CALL_cuMemFreeHost,    CALL_cuMemHostRegister_v2, CALL_cuMemHostUnregister,
        CALL_cuCtxSynchronize, CALL_cuStreamSynchronize,  CALL_cuStreamQuery,
        CALL_cuEventQuery,     CALL_cuEventSynchronize,   CALL_cudnnCreate,
        CALL_cudnnDestroy,     CALL_cublasLtCreate, /* libraries allocate, too */
        CALL_cublasLtDestroy};
    if (own_capture == NULL)
        return CUDA_SUCCESS;
    int expected = (int)call;
    bool is_refused = atomic_compare_exchange_strong(&refused, &expected, -1);
    for (size_t i = 0; i < sizeof unsafe / sizeof *unsafe; i++)
        is_refused |= unsafe[i] == call;
    if (!is_refused)
        return CUDA_SUCCESS;
    own_capture->is_capture_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

EXPORTED CUresult simRefuseCaptured(const char *symbol) {
    int call = call_find(symbol);
    if (call < 0)
        return CUDA_ERROR_NOT_FOUND;
    atomic_store(&refused, call);
    return CUDA_SUCCESS;
}

CUresult capture_check(CUstream stream, enum sim_command command) {
    if (stream->capture == NULL)
        return CUDA_SUCCESS;
    if (stream->is_capture_invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (command == SIM_KERNEL || command == SIM_HOST || command == SIM_COPY ||
        command == SIM_FILL || command == SIM_COPY_OUT)
        return CUDA_SUCCESS;
    stream->is_capture_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

bool capture_add(const struct sim_message *message, const void *bytes) {
    CUstream stream = capturing[message->stream];
    if (stream == NULL)
        return false;
    struct CUgraph_st *graph = stream->capture;
    if (graph->n == graph->max) {
        graph->max = 2 * graph->max + 16;
        graph->nodes = realloc(graph->nodes, graph->max * sizeof *graph->nodes);
        if (graph->nodes == NULL)
            abort();
    }
    graph->nodes[graph->n] = node_new(message, bytes);
    graph->nodes[graph->n++]->plan = current_plan;
    return true;
}

void capture_name_host(CUstream stream, void *host) {
    struct CUgraph_st *graph = stream->capture;
    graph->nodes[graph->n - 1]->host = host;
}

void capture_name_plan(uint32_t plan) { current_plan = plan; }

CUresult capture_refuse(CUstream stream) {
    if (stream->capture == NULL)
        return CUDA_SUCCESS;
    stream->is_capture_invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

void capture_drop(CUstream stream) {
    if (stream->capture == NULL)
        return;
    capturing[stream->number] = NULL;
    graph_free(stream->capture);
    stream->capture = NULL;
    if (own_capture == stream)
        own_capture = NULL;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, unsigned mode) {
    struct CUctx_st *context;
    BEGIN(cuStreamBeginCapture_v2);
    TRY(context_now(&context));
    TRY(stream_check(stream, context));
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture != NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    struct CUgraph_st *graph = calloc(1, sizeof *graph);
    if (graph == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *graph = (struct CUgraph_st){.handle = {.magic = GRAPH_MAGIC}, .device = stream->device};
    link_lock();
    stream->capture = graph;
    stream->is_capture_invalid = false;
    stream->capture_mode = mode;
    stream->capture_thread = pthread_self();
    capturing[stream->number] = stream;
    link_unlock();
    if (mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        own_capture = stream;
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, unsigned *ret_status, uint64_t *ret_id,
                                   CUgraph *ret_graph, const CUgraphNode **ret_last,
                                   size_t *ret_n_last) {
    BEGIN(cuStreamGetCaptureInfo_v2);
    TRY(stream_check(stream, NULL));
    const struct CUgraph_st *graph = stream->capture;
    *ret_status = graph == NULL                ? CU_STREAM_CAPTURE_STATUS_NONE
                  : stream->is_capture_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                               : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (*ret_status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return CUDA_SUCCESS;
    *ret_id = stream->number + 1;
    *ret_graph = stream->capture;
    *ret_n_last = graph->n > 0;
    *ret_last = graph->n > 0 ? &graph->nodes[graph->n - 1] : NULL;
    return CUDA_SUCCESS;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *ret_graph) {
    BEGIN(cuStreamEndCapture);
    TRY(stream_check(stream, NULL));
    if (stream->capture == NULL)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (stream->capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
        !pthread_equal(stream->capture_thread, pthread_self()))
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    link_lock();
    struct CUgraph_st *graph = stream->capture;
    bool is_invalid = stream->is_capture_invalid;
    capturing[stream->number] = NULL;
    stream->capture = NULL;
    link_unlock();
    if (own_capture == stream)
        own_capture = NULL;
    *ret_graph = is_invalid ? NULL : graph;
    if (is_invalid)
        graph_free(graph);
    return is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

/* ---- graphs ---- */

static CUresult graph_check(CUgraph graph) {
    return graph != NULL && graph->handle.magic == GRAPH_MAGIC ? CUDA_SUCCESS
                                                               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult exec_check(CUgraphExec exec) {
    return exec != NULL && exec->handle.magic == EXEC_MAGIC ? CUDA_SUCCESS
                                                            : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *ret_nodes, size_t *n) {
    BEGIN(cuGraphGetNodes);
    TRY(graph_check(graph));
    for (size_t i = 0; ret_nodes != NULL && i < *n; i++)
        ret_nodes[i] = i < graph->n ? graph->nodes[i] : NULL;
    *n = ret_nodes == NULL || *n > graph->n ? graph->n : *n;
    return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *ret_exec, CUgraph graph,
                                     unsigned long long flags) {
    struct CUctx_st *context;
    BEGIN(cuGraphInstantiateWithFlags);
    TRY(context_now(&context));
    TRY(graph_check(graph));
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    struct CUgraphExec_st *exec = calloc(1, sizeof *exec);
    struct CUgraphNode_st **nodes = calloc(graph->n + 1, sizeof *nodes);
    if (exec == NULL || nodes == NULL)
        abort();
    for (size_t i = 0; i < graph->n; i++)
        nodes[i] = node_copy(graph->nodes[i]);
    *exec = (struct CUgraphExec_st){.handle = {.magic = EXEC_MAGIC},
                                    .device = graph->device,
                                    .graph = graph,
                                    .nodes = nodes,
                                    .n = graph->n,
                                    .number = atomic_fetch_add(&n_nodes_ever, graph->n)};
    *ret_exec = exec;
    return CUDA_SUCCESS;
}

/* Enqueues what the message says, as the stream's next operation. */
static CUresult enqueue(CUstream stream, const struct sim_message *message, const void *bytes) {
    struct sim_message own = *message;
    TRY(stream_begin(stream, (enum sim_command)message->command, &own));
    stream_finish(&own, bytes);
    return CUDA_SUCCESS;
}

/* A node's operation. Pinned memory is found by its address, as it is now. */
static CUresult enqueue_node(CUstream stream, const struct CUgraphNode_st *node) {
    struct sim_message own = node->message;
    if (node->plan != 0 && !dnn_plan_is_there(node->plan)) {
        link_report("a graph with a convolution whose plan was destroyed");
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (own.command != SIM_COPY_OUT)
        return enqueue(stream, &own, node->bytes);
    TRY(stream_begin(stream, SIM_COPY_OUT, &own));
    bool is_pinned =
        pinned_find(node->host, own.size, &own.value, &own.at) && pinned_may_write(node->host);
    if (is_pinned)
        pinned_protect(node->host, own.size, true, &own);
    else
        own.command = SIM_NOTHING;
    stream_finish(&own, NULL);
    if (is_pinned)
        return CUDA_SUCCESS;
    link_report("a graph with a copy to memory that is not pinned");
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) {
    struct CUctx_st *context;
    BEGIN(cuGraphLaunch);
    TRY(context_now(&context));
    TRY(exec_check(exec));
    TRY(stream_check(stream, context));
    if (stream->device != exec->device)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->capture != NULL) /* a graph inside a graph */
        return capture_refuse(stream);
    CUresult result = CUDA_SUCCESS;
    size_t note = 0;
    watch_graph_begin();
    for (size_t i = 0; i <= exec->n && result == CUDA_SUCCESS; i++) {
        for (; note < exec->n_notes && exec->notes[note].at <= (int)i && result == CUDA_SUCCESS;
             note++)
            result = enqueue(stream, &exec->notes[note].message, NULL);
        if (i < exec->n)
            watch_graph_node(exec->number + i);
        if (i < exec->n && result == CUDA_SUCCESS)
            result = enqueue_node(stream, exec->nodes[i]);
    }
    watch_graph_end();
    exec->n_notes = 0;
    return result;
}

EXPORTED CUresult simGraphBlock(CUgraphExec exec, int at, CUdeviceptr start, size_t size,
                                int is_new) {
    TRY(exec_check(exec));
    if (start % SIM_PAGE != 0 || size == 0 || exec->n_notes == MAX_NOTES)
        return CUDA_ERROR_INVALID_VALUE;
    exec->notes = realloc(exec->notes, (exec->n_notes + 1) * sizeof *exec->notes);
    if (exec->notes == NULL)
        abort();
    exec->notes[exec->n_notes++] = (struct note){
        .at = at,
        .message = {
            .command = is_new ? SIM_BLOCK_NEW : SIM_BLOCK_FREED, .at = start, .size = size}};
    return CUDA_SUCCESS;
}

CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                           const CUDA_KERNEL_NODE_PARAMS *parameters) {
    BEGIN(cuGraphExecKernelNodeSetParams_v2);
    TRY(exec_check(exec));
    TRY(graph_check(exec->graph)); /* its nodes are named until it is destroyed */
    size_t i = 0;
    while (i < exec->n && exec->graph->nodes[i] != node)
        i++;
    if (i == exec->n || exec->nodes[i]->message.command != SIM_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    CUlaunchConfig config = {.grid_x = parameters->grid_x,
                             .grid_y = parameters->grid_y,
                             .grid_z = parameters->grid_z,
                             .block_x = parameters->block_x,
                             .block_y = parameters->block_y,
                             .block_z = parameters->block_z,
                             .shared_size = parameters->shared_size};
    void *bytes;
    uint32_t size;
    TRY(kernel_bytes(&config, parameters->function, parameters->arguments, parameters->extra,
                     &bytes, &size));
    free(exec->nodes[i]->bytes);
    exec->nodes[i]->bytes = bytes;
    exec->nodes[i]->message.n_bytes = size;
    return CUDA_SUCCESS;
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
    BEGIN_DESTROY(cuGraphExecDestroy, exec);
    TRY(exec_check(exec));
    nodes_free(exec->nodes, exec->n);
    free(exec->notes);
    destroy(&exec->handle);
    return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph) {
    BEGIN_DESTROY(cuGraphDestroy, graph);
    TRY(graph_check(graph));
    graph_free(graph);
    return CUDA_SUCCESS;
}
