/* Batchers: steps that run at the same time put their rows together, by number or by time
 * (Batch, BatchFunction).
 *
 *   step A ─ rows ─┐                        full, or timeout          a running slot is free
 *   step B ─ rows ─┼─► open batch ──────────────────────────► closed ─────────────────────────► joined, on the pool
 *   step C ─ rows ─┘   (of a queue)                            batches, first in first out         │
 *                                                                                                  ├─ Batch: all to one step, nothing to
 * the others └─ BatchFunction: one call; each gets its rows
 *
 * A batcher is a resource: whoever names it shares it, of whatever session. It has queues by
 * name, function and types: nodes of two sessions that are called alike, as they are by default,
 * share its slots, and get into each other's batches only if they would call a function of the
 * same name with the same types. (Sessions whose functions are called alike and differ give
 * their nodes a container or shared_name each.) Batches of all its queues share the running
 * slots. An entry is one execution that waits; it has a part in one batch, or in several where
 * large inputs are split.
 *
 * Cancellation takes an entry out of the batches that wait. Out of a running one it is taken,
 * too, unless it is the last that wants the result: then the call is cancelled, and the entry
 * ends with it. So no call outlives the steps that wait for it.
 *
 * Threads: any. No callback runs with the batcher's lock held. */
#ifndef MILLRACE_KERNELS_HOST_DATA_BATCHER_H
#define MILLRACE_KERNELS_HOST_DATA_BATCHER_H

#include <pthread.h>

#include "common/base/alarm.h"
#include "kernels/host.h"

enum {
    BATCH_MAX_PARTS = 1 << 16,   /* of one input */
    BATCH_MAX_PIECES = 1 << 20,  /* the inputs and outputs of all parts of one execution */
    BATCH_MAX_PADDING = 1 << 20, /* rows of a batch */
    BATCH_MAX_RUNNING = 1 << 12, /* batches of a batcher at the same time, whatever the node says */
};
#define BATCH_MAX_ROWS ((int64_t)1 << 31) /* of one input: sums of them do not overflow */

struct batcher_options {
    bool calls_function;
    bool splits; /* inputs larger than what a batch may hold go into several */
    /* an open batch that is not full goes with as many rows as a smaller allowed size holds; the
     * rest waits on */
    bool trims_down;
    bool is_adaptive; /* takes as many running batches as there are; of messages */
    int64_t max_input_rows, max_batch_rows;
    int64_t timeout_us;
    int64_t max_enqueued; /* batches that wait, the open one among them */
    int64_t max_running;  /* 1 … BATCH_MAX_RUNNING */
    int64_t *allowed;     /* sizes that batches are padded to, rising; malloc'd */
    int n_allowed;
};

struct batcher {
    struct object object;
    struct batcher_options options; /* owns `allowed` */
    struct alarm_clock *alarms;
    struct pool *pool;
    pthread_mutex_t lock;
    struct list queues; /* guarded by lock, as what follows */
    int64_t n_running;
};

struct batch_queue {
    struct list link;
    struct batcher *batcher;
    char *key; /* batching_queue, function and types */
    /* struct batch.link: closed ones, and last the open one, which may be empty */
    struct list batches;
    int n_batches;
    struct alarm alarm; /* keeps a reference on the batcher while it is set */
    int64_t open_until_ns;
};

struct batch {
    struct list link;
    struct batch_queue *queue;
    struct list parts; /* struct batch_part.link */
    int64_t n_rows;
    int n_live;      /* entries that want the result */
    bool is_running; /* on the pool: its entries are fixed */
    bool is_calling, is_cancelling, was_cancelled, has_ended_meanwhile;
    struct pool_task task;
    /* Of a call: */
    struct function_call call;
    struct function *function; /* a reference */
    struct tensor *captured, *args, *rets;
    int n_captured, n_args, n_rets;
    int64_t n_padded;
};

struct batch_part {
    struct list link, of_entry;
    struct batch *batch;
    struct batch_entry *entry; /* NULL: it does not want the result any more */
    int64_t n_rows;
    int index;           /* among the entry's */
    struct tensor *rows; /* one for each input */
    int n_inputs;
};

/* One execution. Made by batch_entry_new; batcher_enter takes it. */
struct batch_entry {
    struct batcher *batcher; /* a reference */
    struct kernel_ctx *ctx;  /* until host->done */
    struct kernel_cancel_hook hook;
    struct list link; /* among those that have ended */
    _Atomic uint32_t n_refs;
    int n_pending; /* parts that have no end yet; guarded by the batcher's lock, as what follows */
    bool is_ended, is_cancelled, has_hook;
    struct list parts; /* struct batch_part.of_entry */
    int n_parts;
    struct status *status;
    int64_t key;  /* random */
    int n_inputs; /* the first ones of ctx */
    int n_outputs;
    struct tensor *outs;       /* n_parts times the node's outputs */
    struct function *function; /* a reference; or NULL */
    struct tensor *captured;
    int n_captured;
    struct allocator *allocator;
    int64_t start_ns;
};

extern const struct object_type batcher_type;

/* Takes what options own. Errors: INVALID_ARGUMENT. */
struct status *batcher_new(struct batcher_options *options_take, struct alarm_clock *alarms,
                           struct pool *pool, struct batcher **ret) MUST_USE;
void batcher_options_fini(struct batcher_options *options);

/* The first n_inputs inputs of ctx have rank 1 or more and as many rows, at least one. */
struct batch_entry *batch_entry_new(struct batcher *batcher, struct kernel_ctx *ctx, int n_inputs);
void batch_entry_unref(struct batch_entry *entry); /* one that has not entered */
/* Puts its rows into the queue of that key: the answer of the kernel. */
enum kernel_result batcher_enter(struct batch_entry *entry_take, const char *queue_key);

/* ---- between the files ---- */

#define BATCH_FOR_EACH_PART(part, batch)                                                     \
    for (struct batch_part *part = LIST_ENTRY((batch)->parts.next, struct batch_part, link); \
         &part->link != &(batch)->parts;                                                     \
         part = LIST_ENTRY(part->link.next, struct batch_part, link))

void batch_run(struct pool_task *task); /* batch_run.c: the batch's work, on the pool */
void batch_on_done(struct function_call *call);
/* Each entry that still has a part gets that failure, or its outputs are in `outs`; the batch
 * goes, and its slot is free. */
void batch_finish(struct batch *batch, struct status *why_take);

#endif
