/* Tasks that pull elements through a pipeline without holding a thread while something is on its
 * way (a function's call, a file).
 *
 * A task is polled: its poll goes down the pipeline and answers DATA_PENDING where it cannot get
 * further; whoever it waits for wakes the task, which is then polled again from the top and
 * finds its way back by what the iterators remember. A poll may come too early: it answers
 * DATA_PENDING once more.
 *
 *            wake                       poll: PENDING
 *   IDLE ──────────► RUNNING ──────────────────────────► IDLE          one thread runs it at a time; who wakes an idle task runs it there
 *                     │  ▲ └─ wake: WOKEN ─ poll: PENDING ─► RUNNING
 *                     │  └── turn taken again on the pool, when its time is over
 *                     └─ poll: anything else ─► ENDED
 *
 * Threads: wake, cancel, ref and unref any; the rest belongs to the poll. Nobody wakes a task
 * while holding a lock. */
#ifndef MILLRACE_KERNELS_HOST_DATA_DATA_TASK_H
#define MILLRACE_KERNELS_HOST_DATA_DATA_TASK_H

#include <pthread.h>
#include <stdatomic.h>

#include "kernels/host.h"

enum data_poll {
    DATA_PENDING, /* the task will be woken */
    DATA_ELEMENT,
    DATA_END,
    DATA_FAILED, /* task->status says why */
};

struct data_task {
    _Atomic uint32_t n_refs;
    _Atomic int state;
    _Atomic bool is_cancelled, is_queued;
    /* Set by the maker. `ended` gets what poll answered last; free the memory, with the last
     * reference. */
    enum data_poll (*poll)(struct data_task *task);
    void (*ended)(struct data_task *task, enum data_poll result);
    void (*free)(struct data_task *task);
    struct pool *pool; /* NULL: all runs in who wakes it */
    struct pool_task pool_task;
    bool wants_turn; /* the poll's: its time is over, it goes on on the pool */
    uint32_t n_checks;
    int n_running; /* the poll's: what it has started and not taken back; it does not end before */
    int64_t until_ns;
    struct status *status; /* the poll's */
    pthread_mutex_t lock;  /* guards what follows */
    struct status *why;    /* of its cancellation */
    struct list calls;     /* struct data_call.link: under way */
};

void data_task_init(struct data_task *task, struct pool *pool); /* one reference; state IDLE */
void data_task_fini(struct data_task *task);                    /* for `free` */
struct data_task *data_task_ref(struct data_task *task);
void data_task_unref(struct data_task *task); /* accepts NULL */
void data_task_wake(struct data_task *task);
void data_task_wake_on_pool(struct data_task *task); /* on the pool, where there is one */
/* Its calls are cancelled; what else it waits for, it does not wait for any longer. `why` is
 * borrowed. */
void data_task_cancel(struct data_task *task, struct status *why);

/* For polls: */
enum data_poll data_task_fail(struct data_task *task, struct status *status_take);
/* Must the poll answer PENDING because its time is over? The task goes on by itself. Or is it
 * cancelled, and nothing that it has started is on its way? Then *ret is DATA_FAILED. */
bool data_task_must_stop(struct data_task *task, enum data_poll *ret);

/* A call of a function that a poll waits for. */
struct data_call {
    struct function_call call;
    struct data_task *task; /* woken at the end; a reference while under way */
    struct list link;
    bool is_cancelling, was_cancelled, has_ended_meanwhile; /* guarded by the task's lock */
    _Atomic bool is_ended;
};
/* call.function, args, rets are set. The answer comes when data_call_is_ended; maybe at once. */
void data_call_start(struct data_call *call, struct data_task *task);
static inline bool data_call_is_ended(struct data_call *call) {
    return atomic_load_explicit(&call->is_ended, memory_order_acquire);
}
/* Ends it: the record may be used again. What the callee said. */
struct status *data_call_take(struct data_call *call, struct data_task *task) MUST_USE;

/* Somebody who waits for an event: a place for one task. */
struct data_waiter {
    struct data_task *task; /* guarded by the lock of who embeds it */
};
/* With that lock held: the task will be woken. */
void data_waiter_set(struct data_waiter *waiter, struct data_task *task);
/* With that lock held: who is to be woken, for data_waiter_wake without it; NULL: nobody waits. */
struct data_task *data_waiter_take(struct data_waiter *waiter) MUST_USE;
void data_waiter_wake(struct data_task *task_take); /* elsewhere; accepts NULL */

#endif
