/* Decides when and where an execution begins that another one has woken: a kernel puts into a queue
 * what the other execution waits for.
 *
 * A woken execution does not run inside its waker, because the waker's own nodes would have to wait
 * for it. It is deferred: it begins on the waker's thread when the waker pauses, ends or moves. It
 * begins on the pool when the waker first comes to something that takes long, or to the end of its
 * time slice. So a pipeline of short steps costs no wake-up of a thread, a pipeline of long steps
 * runs in parallel, and wake-ups do not nest. */
#include "common/base/clock.h"
#include "common/base/pool_cancel.h"
#include "worker/executor/executor_internal.h"

/* Deferred executions share the thread of their waker for this long. The rest of them is queued on
 * the pool, behind the work that waits there. */
enum { DEFERRED_ON_LOOP_NS = 200000, DEFERRED_ON_POOL_NS = 2000000 };

static _Thread_local struct {
    /* How many executions are on this thread's stack; the execution of a function is inside its
     * caller's. */
    unsigned n_running;
    struct list deferred; /* struct executor.deferred_link */
} here;

static bool has_deferred(void) { return here.deferred.next && !list_is_empty(&here.deferred); }

static struct executor *next_deferred(void) {
    return LIST_ENTRY(list_pop_front(&here.deferred), struct executor, deferred_link);
}

static struct async_op *take_mail_of(struct executor *executor) {
    struct async_op *mail = executor->mail;
    executor->mail = NULL;
    return mail;
}

static COLD void submit_deferred(void) {
    while (has_deferred()) {
        struct executor *executor = next_deferred();
        if (!executor->execution->pool) {
            list_push_front(&here.deferred, &executor->deferred_link);
            return;
        }
        pool_submit(executor->execution->pool, &executor->task);
    }
}

void wake_submit_deferred(void) {
    if (unlikely(has_deferred()))
        submit_deferred();
}

void wake_defer_begin(void) { here.n_running++; }

/* The kernel that this execution runs inside of, if there is one, may be unwanted; this execution
 * is not for that. */
static void run(struct executor *executor, struct async_op *mail) {
    const struct pool_cancel *before = pool_set_cancel(NULL);
    executor_run(executor, mail);
    pool_set_cancel(before);
}

static COLD void run_deferred(void) {
    int64_t until_ns =
        clock_now_ns() + (pool_is_current() ? DEFERRED_ON_POOL_NS : DEFERRED_ON_LOOP_NS);
    while (has_deferred()) {
        struct executor *executor = next_deferred();
        executor->is_on_pool = pool_is_current();
        run(executor, take_mail_of(executor));
        if (has_deferred() && clock_now_ns() > until_ns)
            submit_deferred(); /* without a pool the loop continues */
    }
}

void wake_defer_end(void) {
    if (here.n_running == 1 && unlikely(has_deferred()))
        run_deferred();
    here.n_running--;
}

void executor_drive(struct executor *executor, struct async_op *mail) {
    wake_defer_begin();
    run(executor, mail);
    wake_defer_end();
}

void executor_drive_on_pool(struct pool_task *task) {
    struct executor *executor = CONTAINER_OF(task, struct executor, task);
    executor->is_on_pool = true;
    executor_drive(executor, take_mail_of(executor));
}

void executor_wake(struct executor *executor, struct async_op *mail) {
    if (here.n_running == 0) {
        executor->is_on_pool = pool_is_current();
        executor_drive(executor, mail);
        return;
    }
    if (!here.deferred.next)
        list_init(&here.deferred);
    executor->mail = mail;
    list_push_back(&here.deferred, &executor->deferred_link);
}
