/* The executor runs a plan once: one execution [WP 3.1, OSDI 5, CF 4].
 *
 * An execution is one task's share of a step, or one call of a function that a kernel makes
 * (worker/executor/function.h). docs/glossary.md tells step, execution and executor apart.
 *
 * One thread at a time owns an execution. The thread that starts it runs it, node after node,
 * without locks or atomics, until no node is ready. What ends on another thread (an asynchronous
 * kernel, an expensive kernel on the pool, a tensor that arrives) is posted to the execution's
 * mailbox. A thread that posts while nobody owns the execution becomes its owner. An execution
 * that started on a loop thread moves to the pool when its inline budget is spent, or before its
 * first expensive kernel, because sockets and heartbeats must not wait for it. The first failure
 * ends the execution: no further node starts, waits are cancelled, and on_done gets that failure
 * once every kernel has returned.
 *
 * Threads: execution_start and execution_cancel may be called on any thread; on_done is called on
 * the last owner's thread. */
#ifndef MILLRACE_WORKER_EXECUTOR_EXECUTOR_H
#define MILLRACE_WORKER_EXECUTOR_EXECUTOR_H

#include "common/base/pool.h"
#include "worker/plan/plan.h"

struct executor;
struct step_stats;
struct rendezvous;
struct container_table;
struct peer_call_task;

/* What an execution records of its nodes. Each level has what the one before has. */
enum execution_stats {
    EXECUTION_STATS_NONE = 0,
    EXECUTION_STATS_WAITS, /* nodes that end elsewhere, and Sends: no node of the owner is timed */
    EXECUTION_STATS_NODES, /* every node, as the host ran it */
    EXECUTION_STATS_ALL,   /* and what devices did, from their events */
};
/* How many rows the levels below EXECUTION_STATS_ALL record. */
enum { EXECUTION_STATS_MAX_ROWS = 4096 };

/* What an execution is given, and what it returns. The caller owns it, and keeps it alive and
 * unchanged from execution_start until on_done. */
struct execution {
    struct plan *plan;
    uint64_t step_id;
    struct tensor *feeds; /* plan->n_feeds values, borrowed */
    /* plan->n_fetches tensors that hold nothing. Set on success; TENSOR_DEAD where the value was
     * dead. */
    struct tensor *fetches;
    struct rendezvous *rendezvous;      /* of the step; NULL when the plan has no channels */
    struct container_table *containers; /* of the task */
    struct pool *pool;                  /* NULL: everything runs on the caller's thread */
    struct pool *io_pool;       /* for kernels that block on files; NULL: they run on the pool */
    struct alarm_clock *alarms; /* for kernels that wait for a time; NULL: they cannot */
    /* The tasks that kernels may call (kernels/host.h), as the graph's registration names them. */
    struct peer_call_task *const *others;
    int n_others;
    enum execution_stats stats_level;
    struct step_stats *spare_stats; /* memory for `stats`, which the execution takes; may be NULL */
    uint32_t depth; /* how many function calls this one is nested in; 0 for a step */
    /* > 0: the execution may use the caller's thread for this long, then it moves to the pool.
     * 0: without limit, because the caller may block. */
    int64_t inline_budget_ns;
    /* For tests. > 1: each kernel, apart from those that wait, takes this many times as long: the
     * thread that ran it stays busy, or sleeps where that is long. Such an execution runs on the
     * pool. */
    double scale;
    /* A partial run. A feed that holds nothing comes later, by execution_feed. Each fetch is given
     * to on_fetch as soon as it is there (TENSOR_DEAD for a dead one), on the owner's thread;
     * on_fetch takes the value. `fetches` then only marks which ones have been given. */
    bool is_partial;
    void (*on_fetch)(struct execution *execution, uint32_t position, struct tensor *value);
    /* Called once a SaveV2 holds all that it saves, though values may still be on their way from a
     * device: later updates of variables do not change what is saved. Once for each SaveV2. Any
     * thread; may be NULL. */
    void (*on_inputs_taken)(struct execution *execution);
    /* Called exactly once, perhaps inside execution_start. The callee takes the status. */
    void (*on_done)(struct execution *execution, struct status *status_take);

    /* The executor's. The lock guards what follows, and in a partial run what `feeds` holds. */
    pthread_mutex_t lock;
    struct executor *executor;
    struct status *cancelled_before; /* what a cancel before the start brought */
    /* Of a partial run, by position: lists of the nodes that wait for a feed; else NULL. */
    struct async_op **waiting_feeds;
    /* Set at on_done when stats_level is; the caller frees it, or resets it as spare_stats. */
    struct step_stats *stats;
    uint64_t n_executed; /* nodes that ran; set at on_done */
};

void execution_init(struct execution *execution); /* all zero, and the lock */
/* After on_done. Feeds, fetches and stats stay the caller's. */
void execution_fini(struct execution *execution);

void execution_start(struct execution *execution);
/* Ends the execution soon, with `why`, which it shares. Does nothing after the execution has
 * ended; before execution_start it makes that end at once. */
void execution_cancel(struct execution *execution, struct status *why);
/* Gives a partial run the value of a feed, and takes the value. A second value for a position is
 * dropped, and so is a value after the end. Any thread, while the execution is alive. */
void execution_feed(struct execution *execution, uint32_t position, struct tensor *value_take);
/* Appends a line for each asynchronous node, and each device, that the execution waits for, for
 * /stepz. Appends not much more than max_bytes: names are cut, and "and N more" follows the last
 * line that fits. Any thread, while the execution is alive. */
void execution_describe_waits(struct execution *execution, size_t max_bytes, struct str *out);

/* The kernel host (kernels/host.h) that plans of a worker use: plan_options.host. */
extern const struct kernel_host executor_host;

/* ---- statistics ---- */
struct node_stats {
    const struct plan_node *node;
    /* "DEVICE/stream:all": the times at which a device did the node's work. "DEVICE/stream:N": the
     * times of one thing that it did for the node. NULL: when the host ran the node. */
    const char *stream;
    const char *activity; /* what the device did, of a stream:N; NULL: all of the node's work */
    int64_t scheduled_ns, start_ns, end_ns; /* monotonic */
    uint64_t frame_iter; /* of a Send or Recv: with its edge and the step, the key of its value */
    /* What a kernel took its thread: without the time in which other work had the core. 0: not
     * known. */
    int64_t busy_ns;
    uint32_t thread_id;
    struct {
        uint8_t dtype, rank;
        int64_t dims[TENSOR_INLINE_RANK];
        int64_t size_bytes;
    } output; /* output 0; of a Send, the value that it sends */
};
struct step_stats {
    struct node_stats *nodes;
    size_t n_nodes, capacity;
    size_t n_left_out; /* nodes that ran after the limit of rows */
    int64_t start_ns, start_wall_us;
    int64_t clock_ahead_us; /* of whoever reads the times; set by the owner of the execution */
    struct stats_device *devices; /* executor_stats.c; NULL: the plan uses none that tells times */
    struct plan *plan;            /* one reference, because the nodes' names are the plan's */
};
/* The reader's wall clock at a time of a row. */
static inline int64_t step_stats_us(const struct step_stats *stats, int64_t at_ns) {
    return stats->start_wall_us - stats->clock_ahead_us + (at_ns - stats->start_ns) / 1000;
}
void step_stats_free(struct step_stats *stats); /* accepts NULL */
/* Makes it spare_stats of another execution; frees it, and returns NULL, where it is large. Accepts
 * NULL. */
struct step_stats *step_stats_reset(struct step_stats *stats_take);

#endif
