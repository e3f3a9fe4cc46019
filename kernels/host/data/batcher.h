/* Batches the rows of steps that run at the same time: a batch is closed when it is full or when
 * its time is over (Batch, BatchFunction).
 *
 *   step A ─ rows ─┐                 full, or timeout        a running slot is free
 *   step B ─ rows ─┼─► open batch ───────────────────► closed ─────────────────────► joined,
 *   step C ─ rows ─┘   (of a queue)                    batches, first in first out   on the pool
 *
 *   Batch: one step gets all rows, the others get none
 *   BatchFunction: one call for all rows; each step gets the results of its rows
 *
 * A batcher is a resource. Steps of different sessions share it when they name it alike. It has a
 * queue for each name, function and list of types. By default the nodes of two sessions have the
 * same names: then they share the batcher's slots, and they share batches only when they would call
 * a function of the same name with the same types. (Sessions whose functions have the same name and
 * differ must give their nodes a container or a shared_name each.) The batches of all queues share
 * the running slots. An entry is one execution that waits. It has a part in one batch, or in
 * several when its input is large and is split.
 *
 * Cancellation removes an entry from batches that wait. It also removes the entry from a running
 * batch, unless no other entry wants the result: then the call is cancelled, and the entry ends
 * with the call. So no call outlives the steps that wait for it.
 *
 * Any thread. No callback runs with the batcher's lock held. */
#ifndef MILLRACE_KERNELS_HOST_DATA_BATCHER_H
#define MILLRACE_KERNELS_HOST_DATA_BATCHER_H

#include <pthread.h>

#include "common/base/alarm.h"
#include "kernels/host.h"

enum {
    BATCH_MAX_PARTS = 1 << 16,   /* of one input */
    BATCH_MAX_PIECES = 1 << 20,  /* the inputs and outputs of all parts of one execution */
    BATCH_MAX_PADDING = 1 << 20, /* rows of a batch */
    /* limit on the batches of a batcher that run at the same time, above the node's attr */
    BATCH_MAX_RUNNING = 1 << 12,
};
/* rows of one input; the limit keeps sums from overflowing */
#define BATCH_MAX_ROWS ((int64_t)1 << 31)

struct batcher_options {
    bool calls_function;
    bool splits; /* an input that is larger than a batch is split into several */
    /* When an open batch must run before it is full, it runs with the largest allowed size that its
     * rows fill; the other rows wait for the next batch. */
    bool trims_down;
    /* there is no limit of its own on running batches; also words error messages */
    bool is_adaptive;
    int64_t max_input_rows, max_batch_rows;
    int64_t timeout_us;
    int64_t max_enqueued; /* batches that wait, with the open one */
    int64_t max_running;  /* 1 … BATCH_MAX_RUNNING */
    int64_t *allowed;     /* sizes to which batches are padded, in rising order; malloc'd */
    int n_allowed;
};

struct batcher {
    struct object object;
    struct batcher_options options; /* owns `allowed` */
    struct alarm_clock *alarms;
    struct pool *pool;
    pthread_mutex_t lock;
    struct list queues; /* guarded by lock, like the fields below */
    int64_t n_running;
};

struct batch_queue {
    struct list link;
    struct batcher *batcher;
    struct str key; /* bytes: batching_queue, function and types */
    /* struct batch.link: the closed batches, then the open one, which may be empty */
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
    int n_live;      /* the number of entries that still want the result */
    bool is_running; /* it runs on the pool: no entry joins or leaves */
    bool is_calling, is_cancelling, was_cancelled, has_ended_meanwhile;
    struct pool_task task;
    /* of a batch that calls a function: */
    struct function_call call;
    struct function *function; /* a reference */
    struct tensor *captured, *args, *rets;
    int n_captured, n_args, n_rets;
    int64_t n_padded;
};

struct batch_part {
    struct list link, of_entry;
    struct batch *batch;
    struct batch_entry *entry; /* NULL: the entry no longer wants the result */
    int64_t n_rows;
    int index;           /* which part of its entry it is */
    struct tensor *rows; /* one for each input */
    int n_inputs;
};

/* One execution that waits. batch_entry_new makes it, batcher_enter takes it. */
struct batch_entry {
    struct batcher *batcher; /* a reference */
    struct kernel_ctx *ctx;  /* valid until host->done */
    struct kernel_cancel_hook hook;
    struct list link; /* in a list of ended entries */
    _Atomic uint32_t n_refs;
    /* the number of parts that have not ended; guarded by the batcher's lock, like the fields
     * below */
    int n_pending;
    bool is_ended, is_cancelled, has_hook;
    struct list parts; /* struct batch_part.of_entry */
    int n_parts;
    struct status *status;
    int64_t key;  /* random */
    int n_inputs; /* the number of ctx's inputs that are batched: the first ones */
    int n_outputs;
    struct tensor *outs;       /* the node's outputs for each of n_parts */
    struct function *function; /* a reference; or NULL */
    struct tensor *captured;
    int n_captured;
    struct allocator *allocator;
    int64_t start_ns;
};

extern const struct object_type batcher_type;

/* A batcher with one reference. Takes what the options own, on failure too. Errors:
 * INVALID_ARGUMENT. */
struct status *batcher_new(struct batcher_options *options_take, struct alarm_clock *alarms,
                           struct pool *pool, struct batcher **ret) MUST_USE;
void batcher_options_fini(struct batcher_options *options);

/* An entry for ctx. The first n_inputs inputs of ctx must have rank 1 or more and the same number
 * of rows, at least one. */
struct batch_entry *batch_entry_new(struct batcher *batcher, struct kernel_ctx *ctx, int n_inputs);
/* for an entry that batcher_enter has not taken */
void batch_entry_unref(struct batch_entry *entry);
/* Adds the entry's rows to the queue of that key. Returns what the kernel must return. */
enum kernel_result batcher_enter(struct batch_entry *entry_take, struct span queue_key);

/* ---- shared by batcher.c and batch_run.c ---- */

#define BATCH_FOR_EACH_PART(part, batch)                                                     \
    for (struct batch_part *part = LIST_ENTRY((batch)->parts.next, struct batch_part, link); \
         &part->link != &(batch)->parts;                                                     \
         part = LIST_ENTRY(part->link.next, struct batch_part, link))

void batch_run(struct pool_task *task); /* batch_run.c: runs a closed batch on the pool */
void batch_on_done(struct function_call *call);
/* Ends a batch: each entry that still has a part gets the failure `why_take`, or with NULL finds
 * its outputs in `outs`. Frees the batch and its running slot. */
void batch_finish(struct batch *batch, struct status *why_take);

#endif
