/* The executor: runs a plan once, as one step [WP 3.1, OSDI 5, CF 4].
 *
 * One owner at a time: the thread that starts a step runs it, node after node, without locks or
 * atomics, until nothing is ready. What ends elsewhere (an asynchronous kernel, an expensive one
 * on the pool, an arriving tensor) goes to the step's mailbox; a post into a step without owner
 * makes the poster the owner. A step that started on a loop thread moves to the pool after its
 * inline budget, or before its first expensive kernel, so that sockets and heartbeats never
 * starve. The first failure ends the step: nothing more is started, waits are cancelled, and
 * on_done gets that status once all kernels have come home.
 *
 * Threads: executor_start and executor_cancel any thread; on_done on the last owner's thread. */
#ifndef MILLRACE_WORKER_EXECUTOR_EXECUTOR_H
#define MILLRACE_WORKER_EXECUTOR_EXECUTOR_H

#include "common/base/pool.h"
#include "worker/plan/plan.h"

struct step;
struct step_stats;
struct rendezvous;
struct container_table;
struct peer_call_task;

/* What one step is given. The caller keeps it alive and unchanged until on_done. */
struct step_run {
    struct plan *plan;
    uint64_t step_id;
    struct tensor *feeds; /* plan->n_feeds, borrowed: shared into the step */
    /* plan->n_fetches, holding nothing: set on success; TENSOR_DEAD where the value was dead */
    struct tensor *fetches;
    /* this step's meeting place; NULL when the plan has no channels */
    struct rendezvous *rendezvous;
    struct container_table *containers; /* of the task */
    struct pool *pool;                  /* NULL: everything runs in the caller */
    /* for kernels that block on files; NULL: they run on the pool */
    struct pool *io_pool;
    struct alarm_clock *alarms; /* for kernels that wait for a time; NULL: none can */
    /* tasks that kernels may ask (kernels/host.h); of the graph */
    struct peer_call_task *const *others;
    int n_others;
    bool collect_stats; /* per node: NodeExecStats */
    uint32_t depth;     /* of a function's call: how many calls it is within; 0 for a step */
    /* > 0: on the caller's thread at first, for so long; 0: no limit (the caller may block) */
    int64_t inline_budget_ns;
    /* A partial run: a feed that holds nothing comes later, by executor_feed; each fetch is
     * handed out as soon as it is there (TENSOR_DEAD for a dead one; moved out), on the owner's
     * thread. `fetches` is only marked. */
    bool is_partial;
    void (*on_fetch)(struct step_run *run, uint32_t position, struct tensor *value);
    /* A SaveV2 holds all that it saves: what happens to the variables from now on does not
     * matter to it. Any thread; NULL: nobody asks. */
    void (*on_inputs_taken)(struct step_run *run);
    /* Called exactly once; status is taken by the callee. May run inside executor_start. */
    void (*on_done)(struct step_run *run, struct status *status_take);
    /* the executor's: guards what follows; in a partial run also what `feeds` holds */
    pthread_mutex_t lock;
    struct step *step;
    struct status *cancelled_before;
    /* of a partial run, by position: lists of those that wait for it; NULL in others */
    struct async_op **waiting_feeds;
    /* set when collect_stats, at on_done; freed by step_stats_free */
    struct step_stats *stats;
    uint64_t n_executed; /* nodes run, set at on_done */
};

void step_run_init(struct step_run *run); /* all zero, and the lock */
/* after on_done; feeds, fetches and stats are the caller's */
void step_run_fini(struct step_run *run);

void executor_start(struct step_run *run);
/* Ends the step soon with `why` (shared). Harmless after it has ended; before the start it makes
 * the start end at once. */
void executor_cancel(struct step_run *run, struct status *why);
/* A feed of a partial run, taken. Any thread while the run is alive; a second value for one
 * position, or one after the end, is dropped. */
void executor_feed(struct step_run *run, uint32_t position, struct tensor *value_take);
/* What the step waits for, for /stepz: a line per pending asynchronous node. Any thread while
 * the run is alive. */
void executor_describe_waits(struct step_run *run, struct str *out);

/* Kernel host of the executor: fill in a plan's options with it. */
extern const struct kernel_host executor_host;

/* ---- statistics ---- */
struct node_stats {
    const struct plan_node *node;
    int64_t scheduled_ns, start_ns, end_ns; /* monotonic */
    uint32_t thread_id;
    struct {
        uint8_t dtype, rank;
        int64_t dims[TENSOR_INLINE_RANK];
        int64_t size_bytes;
    } output; /* of output 0 */
};
struct step_stats {
    struct node_stats *nodes;
    size_t n_nodes, capacity;
    int64_t start_ns, start_wall_us;
    struct plan *plan; /* one reference: node names live there */
};
void step_stats_free(struct step_stats *stats);

#endif
