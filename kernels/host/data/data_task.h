/* Runs tasks that pull elements through a pipeline. A task holds no thread while it waits for an
 * event, such as the end of a function's call or of a read.
 *
 * A task is polled. Its poll asks the pipeline for an element, and returns DATA_PENDING when it has
 * to wait. Whoever ends that wait wakes the task. The task is then polled again from the top, and
 * the iterators continue from what they remember. A poll may also come too early; then it returns
 * DATA_PENDING again.
 *
 *            wake                       poll: PENDING
 *   IDLE ──────────► RUNNING ──────────────────────────► IDLE
 *                     │  ▲ └─ wake: WOKEN ─ poll: PENDING ─► RUNNING
 *                     │  └── its time slice is over: it continues on the pool
 *                     └─ poll: anything else ─► ENDED
 *
 * One thread runs a task at a time: the thread that wakes an idle task runs it.
 *
 * Threads: wake, cancel, ref and unref may be called on any thread; the other functions only by the
 * poll. Nobody may hold a lock while waking a task. */
#ifndef MILLRACE_KERNELS_HOST_DATA_DATA_TASK_H
#define MILLRACE_KERNELS_HOST_DATA_DATA_TASK_H

#include <pthread.h>
#include <stdatomic.h>

#include "kernels/host.h"

enum data_poll {
    DATA_PENDING, /* the task will be woken */
    DATA_ELEMENT,
    DATA_END,
    DATA_FAILED, /* task->status is the reason */
};

struct data_task {
    _Atomic uint32_t n_refs;
    _Atomic int state;
    _Atomic bool is_cancelled, is_queued;
    /* Set by the creator. `ended` gets the last result of poll. `free` frees the memory, when the
     * last reference is dropped. */
    enum data_poll (*poll)(struct data_task *task);
    void (*ended)(struct data_task *task, enum data_poll result);
    void (*free)(struct data_task *task);
    struct pool *pool; /* NULL: the task always runs on the thread that wakes it */
    struct pool_task pool_task;
    bool is_slice_over; /* the poll's: its time slice is over, so it continues on the pool */
    uint32_t n_checks;
    /* the poll's: the number of calls and reads in progress; the task ends after them */
    int n_running;
    int64_t until_ns;
    struct status *status; /* the poll's */
    pthread_mutex_t lock;  /* guards what follows */
    struct status *why;    /* the reason of its cancellation */
    struct list calls;     /* struct data_call.link: the calls in progress */
};

void data_task_init(struct data_task *task, struct pool *pool); /* one reference; state IDLE */
void data_task_fini(struct data_task *task);                    /* for `free` */
struct data_task *data_task_ref(struct data_task *task);
void data_task_unref(struct data_task *task); /* accepts NULL */
void data_task_wake(struct data_task *task);
void data_task_wake_on_pool(struct data_task *task); /* wakes it on the pool, if there is one */
/* Cancels the task and its calls. The task stops waiting for anything else. Borrows `why`. */
void data_task_cancel(struct data_task *task, struct status *why);

/* ---- for polls ---- */
enum data_poll data_task_fail(struct data_task *task, struct status *status_take);
/* After DATA_FAILED: is the failure one of the element, so that the next one may follow? False: the
 * task is cancelled. */
static inline bool data_task_may_continue(const struct data_task *task) {
    return !atomic_load(&task->is_cancelled) && status_code(task->status) != STATUS_CANCELLED;
}
/* Tells whether the poll must return *ret now. *ret is DATA_PENDING when the time slice is over;
 * the task then continues by itself. It is DATA_FAILED when the task is cancelled and nothing that
 * it started is in progress. */
bool data_task_must_stop(struct data_task *task, enum data_poll *ret);

/* A call of a function that a poll waits for. */
struct data_call {
    struct function_call call;
    struct data_task *task; /* woken at the end; holds a reference while the call runs */
    struct list link;
    bool is_cancelling, was_cancelled, has_ended_meanwhile; /* guarded by the task's lock */
    _Atomic bool is_ended;
};
/* Starts a call, whose function, args and rets the caller has set. The call may have ended already
 * when this returns: see data_call_is_ended. */
void data_call_start(struct data_call *call, struct data_task *task);
static inline bool data_call_is_ended(struct data_call *call) {
    return atomic_load_explicit(&call->is_ended, memory_order_acquire);
}
/* Finishes an ended call, so that the record may be used again. Returns the call's status. */
struct status *data_call_take(struct data_call *call, struct data_task *task) MUST_USE;

/* The task that waits for an event, at most one. */
struct data_waiter {
    struct data_task *task; /* guarded by the lock of the struct that embeds the waiter */
};
/* Registers the task. The caller holds that lock. */
void data_waiter_set(struct data_waiter *waiter, struct data_task *task);
/* Removes the waiting task, for data_waiter_wake after the lock is released. NULL: none waits. The
 * caller holds that lock. */
struct data_task *data_waiter_take(struct data_waiter *waiter) MUST_USE;
void data_waiter_wake(struct data_task *task_take); /* on the pool; accepts NULL */

#endif
