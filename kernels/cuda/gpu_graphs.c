/* Captures segments as CUDA graphs, and launches them with other arguments (gpu_segments.h). */
#include <stdlib.h>

#include "common/base/log.h"
#include "kernels/cuda/dnn.h"
#include "kernels/cuda/gpu_device.h"

void gpu_graph_note_take(struct gpu_device *gpu, struct status *st) {
    log_event(EVENT_GPU_TROUBLE, "GPU %d: a segment is not replayed: %s", gpu->ordinal,
              status_message(st));
    status_unref(st);
}

static _Atomic uint64_t n_segments; /* of all devices */

/* ---- freeing ---- */

static void graph_free(struct gpu_device *gpu, CUgraph graph, CUgraphExec exec) {
    if (exec)
        gpu_give_back(gpu, cuGraphExecDestroy, exec);
    if (graph)
        gpu_give_back(gpu, cuGraphDestroy, graph);
}

static void segment_free(struct gpu_segment *segment) {
    free(segment->work);
    free(segment->hashes);
    free(segment->nodes);
    free(segment->n_nodes);
    free(segment->activities);
    free(segment->bytes);
    free(segment);
}

void gpu_graph_retire(struct gpu_device *gpu, struct gpu_segment *segment) {
    struct gpu_retired *retired = xcalloc(1, sizeof *retired);
    *retired = (struct gpu_retired){.next = gpu->segments.retired,
                                    .graph = segment->graph,
                                    .exec = segment->exec,
                                    .number = segment->number};
    gpu->segments.retired = retired;
    segment_free(segment);
}

void gpu_graphs_reap(struct gpu_device *gpu, bool all) {
    uint64_t ended = atomic_load_explicit(&gpu->ended, memory_order_acquire);
    for (struct gpu_retired **at = &gpu->segments.retired; *at;) {
        struct gpu_retired *retired = *at;
        if (!all && retired->number > ended) {
            at = &retired->next;
            continue;
        }
        *at = retired->next;
        graph_free(gpu, retired->graph, retired->exec);
        free(retired);
    }
}

/* ---- capturing ---- */

static struct status *open_stream(struct gpu_device *gpu) {
    CUstream *stream = &gpu->segments.stream;
    return *stream ? NULL
                   : gpu_call(gpu, cuStreamCreateWithPriority, stream, CU_STREAM_NON_BLOCKING, 0);
}

/* The node that the stream's next operation will follow: the one that was captured last. */
static struct status *last_node(struct gpu_device *gpu, CUgraphNode *ret) {
    unsigned status;
    uint64_t id;
    CUgraph graph;
    const CUgraphNode *nodes;
    size_t n;
    TRY(gpu_call(gpu, cuStreamGetCaptureInfo, gpu->segments.stream, &status, &id, &graph, &nodes,
                 &n));
    if (status != CU_STREAM_CAPTURE_STATUS_ACTIVE || n != 1)
        return status_internal("a launch was captured as %zu nodes", n);
    *ret = nodes[0];
    return NULL;
}

/* How many nodes have been captured so far. 0: it is not known, which only traces need. */
static int count_nodes(struct gpu_device *gpu) {
    unsigned status;
    uint64_t id;
    CUgraph graph = NULL;
    const CUgraphNode *nodes;
    size_t n = 0;
    CUresult error =
        gpu->api->cuStreamGetCaptureInfo(gpu->segments.stream, &status, &id, &graph, &nodes, &n);
    driver_note(error, "cuStreamGetCaptureInfo");
    if (error != CUDA_SUCCESS || !graph)
        return 0;
    error = gpu->api->cuGraphGetNodes(graph, NULL, &n);
    driver_note(error, "cuGraphGetNodes");
    return error == CUDA_SUCCESS ? (int)n : 0;
}

/* Only captures: nothing runs. A launch is one node; a library's call may be several. */
static struct status *capture_work(struct gpu_device *gpu, struct gpu_segment *segment) {
    struct gpu_segments *s = &gpu->segments;
    bool is_counted = true;
    for (int i = 0; i < segment->n; i++) {
        int before = segment->n_nodes_sum;
        TRY(s->work[i].enqueue(gpu, &s->work[i], s->stream));
        if (s->work[i].function)
            TRY(last_node(gpu, &segment->nodes[i]));
        segment->n_nodes_sum = s->work[i].function ? before + 1 : count_nodes(gpu);
        segment->n_nodes[i] = segment->n_nodes_sum - before;
        is_counted &= segment->n_nodes[i] > 0;
    }
    if (!is_counted)
        segment->n_nodes_sum = 0;
    return NULL;
}

/* The simulated device is told of blocks by the number of the work. */
static struct status *check_nodes(struct gpu_device *gpu, const struct gpu_segment *segment) {
    if (gpu->checker && segment->n_nodes_sum != segment->n)
        return status_internal("%d parts were captured as %d nodes", segment->n,
                               segment->n_nodes_sum);
    return NULL;
}

/* Ends the capture also after a failure. If the stream may still capture, it is given up. */
static struct status *end_capture(struct gpu_device *gpu, CUgraph *ret) {
    CUstream *stream = &gpu->segments.stream;
    CUresult error = gpu->api->cuStreamEndCapture(*stream, ret);
    if (error != CUDA_SUCCESS && error != CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) {
        *ret = NULL;
        gpu_give_back(gpu, cuStreamDestroy, *stream);
        *stream = NULL;
    }
    return gpu_check(gpu, error, "cuStreamEndCapture");
}

/* A library may do what cannot be captured. */
static void note_not_captured(const struct gpu_segments *s) {
    for (int i = 0; i < s->n; i++)
        gpu_dnn_note_not_captured(&s->work[i]);
}

static struct status *capture_all(struct gpu_device *gpu, struct gpu_segment *segment) {
    TRY(gpu_call(gpu, cuStreamBeginCapture, gpu->segments.stream,
                 CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    struct status *st = capture_work(gpu, segment);
    struct status *end = end_capture(gpu, &segment->graph);
    if (st || end)
        note_not_captured(&gpu->segments);
    if (st)
        status_unref(end);
    return st ? st : end;
}

static struct status *capture(struct gpu_device *gpu, struct gpu_segment *segment) {
    TRY(open_stream(gpu));
    TRY(gpu_dnn_set_stream(gpu, gpu->segments.stream));
    struct status *st = capture_all(gpu, segment);
    struct status *back = gpu_dnn_set_stream(gpu, gpu->compute);
    status_unref(back); /* whatever is enqueued next tries again */
    TRY(st);
    TRY(check_nodes(gpu, segment));
    return gpu_call(gpu, cuGraphInstantiate, &segment->exec, segment->graph, 0);
}

struct gpu_segment *gpu_graph_capture(struct gpu_device *gpu) {
    const struct gpu_segments *s = &gpu->segments;
    struct gpu_segment *segment = xcalloc(1, sizeof *segment);
    size_t n = (size_t)s->n;
    segment->n = s->n;
    segment->kinds = s->kinds;
    segment->work = memcpy(xcalloc(n, sizeof *segment->work), s->work, n * sizeof *s->work);
    segment->hashes = memcpy(xcalloc(n, sizeof *s->hashes), s->hashes, n * sizeof *s->hashes);
    segment->nodes = xcalloc(n, sizeof *segment->nodes);
    segment->n_nodes = xcalloc(n, sizeof *segment->n_nodes);
    segment->serial = 1 + atomic_fetch_add(&n_segments, 1);
    segment->bytes = memcpy(xmalloc(s->n_bytes), s->bytes, s->n_bytes);
    for (int i = 0; i < segment->n; i++) {
        segment->work[i].args = segment->bytes + ((const char *)s->work[i].args - s->bytes);
        segment->work[i].node = NULL; /* the step's */
        segment->work[i].trace = 0;
    }
    struct status *st = capture(gpu, segment);
    if (!st)
        return segment;
    graph_free(gpu, segment->graph, segment->exec);
    segment_free(segment);
    gpu_graph_note_take(gpu, st);
    return NULL;
}

/* ---- launching ---- */

static struct status *change_arguments(struct gpu_device *gpu, struct gpu_segment *segment, int i,
                                       const void *args) {
    struct gpu_work *work = &segment->work[i];
    void *to = segment->bytes + ((const char *)work->args - segment->bytes);
    void *arguments[] = {to};
    memcpy(to, args, work->args_bytes);
    CUDA_KERNEL_NODE_PARAMS params = {.function = work->function->function,
                                      .grid_x = work->grid.n_blocks,
                                      .grid_y = 1,
                                      .grid_z = 1,
                                      .block_x = work->grid.n_threads,
                                      .block_y = 1,
                                      .block_z = 1,
                                      .shared_size = work->grid.shared_bytes,
                                      .arguments = arguments};
    return gpu_call(gpu, cuGraphExecKernelNodeSetParams, segment->exec, segment->nodes[i], &params);
}

struct status *gpu_graph_launch(struct gpu_device *gpu, struct gpu_segment *segment) {
    struct gpu_segments *s = &gpu->segments;
    uint64_t n_changed = 0;
    for (int i = 0; i < segment->n; i++) {
        if (memcmp(s->work[i].args, segment->work[i].args, segment->work[i].args_bytes) == 0)
            continue;
        TRY(change_arguments(gpu, segment, i, s->work[i].args));
        n_changed++;
    }
    for (int i = 0; i < s->n_notes; i++)
        gpu->checker->graph_block(segment->exec, s->notes[i].at, s->notes[i].start,
                                  s->notes[i].size_bytes, s->notes[i].is_new);
    TRY(gpu_call(gpu, cuGraphLaunch, segment->exec, gpu->compute));
    atomic_fetch_add_explicit(&s->counts[DEVICE_CHANGES], n_changed, memory_order_relaxed);
    return NULL;
}
