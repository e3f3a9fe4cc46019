/* Segments: runs of work that a device is given as one, as a CUDA graph.
 *
 * A training step enqueues the same kernels as the step before it, mostly at the same addresses. So
 * what is enqueued on the compute stream is noted, from one end of a segment to the next. A run of
 * work that has come three times is captured as a graph. When the same work begins to come again,
 * it is held back: as long as it is what the graph has, nothing is given to the driver, and with
 * its last part the whole graph is launched.
 *
 *   noted      │ mul │ add │ relu │ product │ … │ end     each is enqueued at once
 *                                                          the third time: capture, instantiate
 *   held back  │ mul │ add │ relu │ product │ … │          each is compared only
 *                                               └─ launch  one call of the driver for all
 *
 * The order on the stream is the order in which the work came, as without graphs, and the kernels
 * and their arguments are the same, so every value has the same bits. What differs from step to
 * step is only an argument of a kernel: an address, a counter of random numbers, a scalar. The
 * graph's kernel is then given the new arguments before the launch. Work whose arguments cannot be
 * changed (fills, copies, matrix products, convolutions) must come with equal ones; with other ones
 * it is other work, which may have a graph of its own.
 *
 * A segment ends
 *   - where something else uses the compute stream: a copy from or to the host that is not a part
 *     (gpu_copy_small, gpu_outbox.h), an event that somebody waits for, a traced node whose times
 *     events tell;
 *   - where another step enqueues;
 *   - where its step has nothing ready to run, or gives its thread to others, but not where it
 *     pauses until the device has caught up: that is another place in each step;
 *   - after SEGMENT_MAX_WORK parts.
 * If it ends, or goes on in another way, while work is held back, that work is enqueued part by
 * part, or as the graph that is just as long.
 *
 * A graph holds no memory of the device: the memory that its kernels use is allocated and freed as
 * without graphs. When memory runs out, all graphs are freed anyway, because the driver has memory
 * for them.
 *
 * A failure of a call about a graph ends the graph, and its work is enqueued part by part. A
 * failure of that, or of the device, is the failure of the step which the work is of
 * (gpu_segments_take_failure).
 *
 * Threads: any. All functions but gpu_add_work, gpu_site_next, gpu_note_block and those with
 * _failure are called with the device's lock.
 *
 * Source: CUDA driver API, "Graph Management". Later: graphs with conditional nodes, for loops. */
#ifndef MILLRACE_KERNELS_CUDA_GPU_SEGMENTS_H
#define MILLRACE_KERNELS_CUDA_GPU_SEGMENTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "kernels/cuda/driver_api.h"
#include "kernels/cuda/gpu_kernel.h"

enum {
    SEGMENT_MIN_WORK = 4, /* fewer parts are not worth a graph */
    SEGMENT_MAX_WORK = 256,
    SEGMENT_MAX_BYTES = 512 << 10, /* of all arguments */
    SEGMENT_RUNS = 3,              /* captured when it has come this often */
    SEGMENTS_MAX = 128,            /* graphs of a device; one that is not used is replaced */
    SEGMENTS_SEEN_SETS = 128,      /* runs of work are counted in sets, by hash */
    SEGMENTS_SEEN_WAYS = 8,        /* of a set; the one that has come least recently is replaced */
    SEGMENT_RETRY_RUNS = 100,      /* after a capture that has failed */
};

struct gpu_work;
/* Enqueues work on a stream: the compute stream, or one that captures. With the device's lock. */
typedef struct status *gpu_work_fn(struct gpu_device *gpu, const struct gpu_work *work,
                                   CUstream stream);

/* One part of what a compute function enqueues. */
struct gpu_work {
    gpu_work_fn *enqueue;
    /* of a launch, whose arguments a graph may change; NULL: the arguments are a part of what the
     * work is */
    const struct gpu_function *function;
    struct gpu_grid grid;
    const void *args; /* copied before gpu_enqueue returns; compared as bytes */
    uint32_t args_bytes;
    const char *node;  /* for messages; lives as long as the step */
    const char *nodes; /* of a part that computes several nodes: "{{node a}}, {{node b}}" */
    uint64_t trace;    /* whose span it is of (gpu_trace.h); 0: nobody's */
    int span;
};

/* A captured segment. */
struct gpu_segment {
    int n;
    struct gpu_work *work;
    uint64_t *hashes; /* of the work up to and with each part */
    uint64_t kinds;   /* a hash of the work without its arguments */
    char *bytes;      /* the arguments of the graph's kernels, as they are now */
    CUgraph graph;
    CUgraphExec exec;
    CUgraphNode *nodes;   /* of launches */
    int *n_nodes;         /* how many nodes of the graph each part is */
    int n_nodes_sum;      /* 0: not known */
    uint64_t serial;      /* no other segment of the process has it */
    uint64_t *activities; /* by node, what CUPTI calls it; NULL: not known (gpu_trace_join.c) */
    uint64_t last_use;
    uint64_t number; /* of the compute stream at the last launch */
};

/* A graph that is freed once the device has come to a number. */
struct gpu_retired {
    struct gpu_retired *next;
    CUgraph graph;
    CUgraphExec exec;
    uint64_t number;
};

struct gpu_late_failure {
    struct gpu_late_failure *next;
    const void *owner;
    struct status *status;
};

/* For the simulated device: a block begins or ends after so many parts of the held work. */
struct gpu_block_note {
    int at;
    bool is_new;
    CUdeviceptr start;
    size_t size_bytes;
};

struct gpu_segments {
    bool is_on;      /* constant */
    CUstream stream; /* captures; NULL until the first capture */

    /* The work since the last end. */
    const void *owner; /* which step it is of: kernel_ctx.host_data */
    int n;
    struct gpu_work work[SEGMENT_MAX_WORK];
    uint64_t hashes[SEGMENT_MAX_WORK];
    uint64_t kinds;
    char *bytes;
    uint32_t n_bytes;
    /* Not NULL: the work is held back, and is what this one begins with. */
    struct gpu_segment *candidate;

    struct gpu_segment *captured[SEGMENTS_MAX];
    int n_captured;
    uint64_t n_uses; /* captures and launches of graphs */
    struct gpu_seen {
        uint64_t hash;
        int n_runs;     /* less than 0: it could not be captured */
        uint64_t since; /* n_uses before the first of the runs */
    } seen[SEGMENTS_SEEN_SETS][SEGMENTS_SEEN_WAYS];
    struct gpu_retired *retired;

    /* How far the step is, for the sites of its allocations (gpu_places.h): a sum over the kinds of
     * the work that it has enqueued, and how much was allocated since then for the compute stream,
     * and since the step's begin for others. Written with the device's lock, except for counts, and
     * read without it: a wrong number costs a place only. */
    _Atomic uint64_t position;
    _Atomic unsigned n_allocated, n_allocated_elsewhere;

    /* Blocks that begin and end while work is held back, on a simulated device only. */
    pthread_mutex_t notes_lock; /* guards what follows */
    bool is_holding;
    int n_held;
    struct gpu_block_note *notes;
    int n_notes, notes_capacity;

    pthread_mutex_t failures_lock; /* guards `failures` */
    struct gpu_late_failure *failures;
    _Atomic bool has_failures;

    /* For pages and metrics: those of segments are written with the device's lock, those of copies
     * by any thread. Read without it. */
    _Atomic uint64_t counts[N_DEVICE_COUNTS];
};

void gpu_segments_init(struct gpu_device *gpu, bool is_on);
/* Frees what is the driver's. Nothing is enqueued any more, and the device has ended all work. */
void gpu_segments_fini(struct gpu_device *gpu);
/* Frees the rest. */
void gpu_segments_free(struct gpu_device *gpu);

/* Enqueues work, or holds it back. Errors: those of work->enqueue, if the work was enqueued at
 * once; the caller's node is the work's. After a failure of held work of this owner nothing more of
 * the owner is enqueued. */
struct status *gpu_segments_add(struct gpu_device *gpu, const void *owner,
                                const struct gpu_work *work) MUST_USE;
/* Adds work of a node to the segment of its step: gpu_segments_add under the lock. */
struct status *gpu_add_work(struct kernel_ctx *ctx, struct gpu_work *work) MUST_USE;
/* Ends the segment: enqueues what is held back. `why` is one of DEVICE_ENDS_…. */
void gpu_segments_end(struct gpu_device *gpu, enum device_count why);
/* A step has ended, so the next work is a step's first one. */
void gpu_segments_restart(struct gpu_device *gpu);
/* Forgets all graphs, which are freed when the device has come so far. The segment has ended. */
void gpu_segments_forget(struct gpu_device *gpu);

/* Returns the failure of held work of an owner, or NULL; it is the caller's, and is not told again.
 * Without the device's lock. */
struct status *gpu_segments_take_failure(struct gpu_device *gpu, const void *owner) MUST_USE;
/* The same, and the failure is kept for gpu_segments_take_failure. */
struct status *gpu_segments_see_failure(struct gpu_device *gpu, const void *owner) MUST_USE;

/* ---- gpu_late_failures.c, for gpu_segments.c ---- */

/* Keeps a failure of held work of an owner for gpu_segments_take_failure. */
void gpu_segments_fail_take(struct gpu_device *gpu, const void *owner, struct status *st_take);
/* Frees the failures that nobody has asked for. */
void gpu_segments_forget_failures(struct gpu_device *gpu);

/* ---- gpu_graphs.c, for gpu_segments.c ---- */

/* Makes a graph of the work that is noted. NULL: it has none, which is logged. */
struct gpu_segment *gpu_graph_capture(struct gpu_device *gpu);
/* Launches the graph with the arguments of the work that is noted, which is the same work. After an
 * error nothing was enqueued, and the graph is of no use. */
struct status *gpu_graph_launch(struct gpu_device *gpu, struct gpu_segment *segment) MUST_USE;
/* Logs why a segment is not replayed. */
void gpu_graph_note_take(struct gpu_device *gpu, struct status *st);
/* Frees a segment, and its graph once the device has ended it. */
void gpu_graph_retire(struct gpu_device *gpu, struct gpu_segment *segment);
/* Frees the retired graphs that the device has ended; all of them. */
void gpu_graphs_reap(struct gpu_device *gpu, bool all);

/* ---- any thread, with or without the device's lock ---- */

/* The site of the next allocation for a stream: equal in each step that allocates the same sizes
 * between the same work. */
uint64_t gpu_site_next(struct gpu_device *gpu, CUstream stream, size_t size_bytes);
/* Tells a simulated device that a block begins or ends, in the order of the compute stream.
 */
void gpu_note_block(struct gpu_device *gpu, CUdeviceptr start, size_t size_bytes, bool is_new);

#endif
