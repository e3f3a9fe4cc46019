/* Keeps what the last steps of a task have done, all the time, for /tracez and `tfctl trace`.
 *
 * The ring is one piece of memory of a fixed size. A step that has ended is written behind the one
 * before, and the oldest ones are overwritten. An entry has all names in itself, so it does not
 * keep its graph.
 *
 *   │ entry │ entry │ entry │      │ entry │ entry │ unused │      entry: step_ring_step
 *                           ▲      ▲                                      rows: ring_row, names
 *                           end    oldest
 *
 * What is recorded of a step depends on what recording costs (step_ring_level). A run of a graph
 * earns a small part of its time. A run whose nodes are all timed costs so much per node. So small
 * steps of few nodes and all steps with real work are recorded node by node, and of a step with
 * thousands of tiny nodes only what it waited for, apart from some runs. Threads: any. */
#ifndef MILLRACE_WORKER_SERVICE_STEP_RING_H
#define MILLRACE_WORKER_SERVICE_STEP_RING_H

#include <stdatomic.h>

#include "worker/executor/executor.h"

struct step_ring;

enum {
    STEP_RING_BYTES = 1 << 20,
    STEP_RING_SHARE = 8,     /* an entry may have this part of the ring */
    STEP_RING_EARNS = 64,    /* a run earns this part of its time ... */
    STEP_RING_NODE_NS = 800, /* ... and a run whose nodes are timed costs this for each */
};

/* What is kept of a step beside its rows. */
struct step_ring_step {
    uint64_t step_id, master_incarnation, graph;
    int64_t start_us;   /* the task's wall clock when the request arrived */
    int64_t prepare_ns; /* until the execution started: feeds, and the wait for a thread */
    int64_t run_ns;     /* from then on until its end */
    int32_t code;       /* enum status_code */
    bool has_nodes;     /* all nodes were timed, not only those that waited */
    uint32_t n_rows, n_left_out;
};

/* A row that is read. The texts point into the copy. */
struct step_ring_row {
    enum step_ring_kind { STEP_RING_NODE, STEP_RING_SEND, STEP_RING_RECV } kind;
    struct span name;   /* of the node; of a transfer "tensor:0" (short_name.h) */
    struct span op;     /* of a transfer: the other task */
    struct span device; /* "CPU:0", or "GPU:0/stream" */
    int64_t start_ns;   /* since the request arrived */
    int64_t duration_ns, size_bytes;
    uint64_t frame_iter;
    uint32_t edge, thread_id;
};

/* Returns NULL for a size of 0. All functions accept NULL, a ring that keeps nothing. */
struct step_ring *step_ring_new(size_t size_bytes);
void step_ring_free(struct step_ring *ring);

/* What it costs to time that many nodes. */
static inline int64_t step_ring_cost_ns(uint64_t n_nodes) {
    return (int64_t)MIN(n_nodes, (uint64_t)INT32_MAX) * STEP_RING_NODE_NS;
}
/* What the next run of a graph is to record. `credit_ns` is the graph's. */
enum execution_stats step_ring_level(const struct step_ring *ring, _Atomic int64_t *credit_ns,
                                     uint64_t n_nodes);
/* A run of the graph has ended. */
static inline void step_ring_earn(_Atomic int64_t *credit_ns, int64_t run_ns) {
    atomic_fetch_add_explicit(credit_ns, run_ns / STEP_RING_EARNS, memory_order_relaxed);
}

/* Adds a step. `step` is complete but for the numbers of rows; `start_ns` is the monotonic clock
 * when the request arrived. `stats` NULL: there are no rows. */
void step_ring_add(struct step_ring *ring, const struct step_ring_step *step, int64_t start_ns,
                   const struct step_stats *stats);

/* Copies the newest steps, at most n, the newest first; those of one master only, unless that is 0.
 * With `ids`, only steps that are among these n. The caller frees the copy. */
struct step_ring_copy {
    char *bytes;
    const struct step_ring_step **steps;
    int n;
};
void step_ring_copy(struct step_ring *ring, uint64_t master_incarnation, const uint64_t *ids, int n,
                    struct step_ring_copy *ret);
void step_ring_copy_free(struct step_ring_copy *copy);
/* Walks through the rows of a copied step: *cursor is 0 at first. False: there are no more. */
bool step_ring_next(const struct step_ring_step *step, size_t *cursor, struct step_ring_row *ret);

#endif
