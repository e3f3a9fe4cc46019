/* Runs tasks and the calls of functions that they wait for (kernels/host/data/data_task.h). */
#include "kernels/host/data/data_task.h"

#include "common/base/clock.h"
#include "kernels/host.h"

enum { TASK_IDLE, TASK_RUNNING, TASK_WOKEN, TASK_ENDED };
enum {
    INLINE_NS = 50000,    /* on a thread that is not one of the pool's, and may be a loop's */
    QUANTUM_NS = 2000000, /* on a thread of the pool */
    CHECK_EVERY = 32,     /* polls between two readings of the clock */
};

/* ---- lifetime ---- */

void data_task_init(struct data_task *task, struct pool *pool) {
    atomic_init(&task->n_refs, 1);
    atomic_init(&task->state, TASK_IDLE);
    atomic_init(&task->is_cancelled, false);
    atomic_init(&task->is_queued, false);
    task->pool = pool;
    CHECK(pthread_mutex_init(&task->lock, NULL) == 0);
    list_init(&task->calls);
}

void data_task_fini(struct data_task *task) {
    CHECK(list_is_empty(&task->calls));
    status_unref(task->status);
    status_unref(task->why);
    pthread_mutex_destroy(&task->lock);
}

struct data_task *data_task_ref(struct data_task *task) {
    atomic_fetch_add_explicit(&task->n_refs, 1, memory_order_relaxed);
    return task;
}

void data_task_unref(struct data_task *task) {
    if (task && atomic_fetch_sub_explicit(&task->n_refs, 1, memory_order_acq_rel) == 1)
        task->free(task);
}

/* ---- running ---- */

static void run_on_pool(struct pool_task *pool_task) {
    struct data_task *task = CONTAINER_OF(pool_task, struct data_task, pool_task);
    atomic_store_explicit(&task->is_queued, false, memory_order_release);
    data_task_wake(task);
    data_task_unref(task);
}

static void submit(struct data_task *task) {
    if (atomic_exchange_explicit(&task->is_queued, true, memory_order_acq_rel))
        return;
    data_task_ref(task);
    task->pool_task.run = run_on_pool;
    pool_submit(task->pool, &task->pool_task);
}

/* Runs a task that the caller has made RUNNING. */
static void run(struct data_task *task) {
    task->until_ns =
        task->pool ? clock_now_ns() + (pool_is_current() ? QUANTUM_NS : INLINE_NS) : INT64_MAX;
    for (;;) {
        enum data_poll result = task->poll(task);
        if (result != DATA_PENDING) {
            atomic_store_explicit(&task->state, TASK_ENDED, memory_order_release);
            task->ended(task, result);
            return;
        }
        if (task->is_slice_over) {
            task->is_slice_over = false;
            submit(task);
        }
        int expected = TASK_RUNNING;
        if (atomic_compare_exchange_strong_explicit(&task->state, &expected, TASK_IDLE,
                                                    memory_order_acq_rel, memory_order_acquire))
            return;
        atomic_store_explicit(&task->state, TASK_RUNNING, memory_order_release);
    }
}

void data_task_wake(struct data_task *task) {
    int state = atomic_load_explicit(&task->state, memory_order_acquire);
    while (state == TASK_IDLE || state == TASK_RUNNING) {
        int next = state == TASK_IDLE ? TASK_RUNNING : TASK_WOKEN;
        if (!atomic_compare_exchange_weak_explicit(&task->state, &state, next, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        if (next == TASK_WOKEN)
            return;
        data_task_ref(task);
        run(task);
        data_task_unref(task);
        return;
    }
}

void data_task_wake_on_pool(struct data_task *task) {
    if (task->pool)
        submit(task);
    else
        data_task_wake(task);
}

enum data_poll data_task_fail(struct data_task *task, struct status *status_take) {
    status_unref(task->status);
    task->status = status_take;
    return DATA_FAILED;
}

bool data_task_must_stop(struct data_task *task, enum data_poll *ret) {
    if (unlikely(atomic_load_explicit(&task->is_cancelled, memory_order_acquire)) &&
        task->n_running == 0) {
        pthread_mutex_lock(&task->lock);
        struct status *why = status_ref(task->why);
        pthread_mutex_unlock(&task->lock);
        *ret = data_task_fail(task, why);
        return true;
    }
    if (likely(++task->n_checks % CHECK_EVERY != 0) || task->until_ns == INT64_MAX ||
        clock_now_ns() < task->until_ns)
        return false;
    task->is_slice_over = true;
    *ret = DATA_PENDING;
    return true;
}

/* ---- calls ---- */

static void call_end(struct data_call *call) {
    struct data_task *task = call->task;
    call->task = NULL;
    /* the record belongs to the poll from here on */
    atomic_store_explicit(&call->is_ended, true, memory_order_release);
    data_task_wake(task);
    data_task_unref(task);
}

/* False when another thread is cancelling the call, and will end it. */
static bool call_leave(struct data_call *call) {
    struct data_task *task = call->task;
    pthread_mutex_lock(&task->lock);
    bool is_free = !call->is_cancelling;
    call->has_ended_meanwhile = !is_free;
    if (is_free)
        list_remove(&call->link);
    pthread_mutex_unlock(&task->lock);
    return is_free;
}

static void on_done(struct function_call *function_call) {
    struct data_call *call = CONTAINER_OF(function_call, struct data_call, call);
    if (call_leave(call))
        call_end(call);
}

void data_call_start(struct data_call *call, struct data_task *task) {
    task->n_running++;
    atomic_store_explicit(&call->is_ended, false, memory_order_relaxed);
    call->is_cancelling = call->was_cancelled = call->has_ended_meanwhile = false;
    call->call.on_done = on_done;
    call->call.function->host->function_prepare(&call->call);
    pthread_mutex_lock(&task->lock);
    call->call.status = status_ref(task->why);
    if (!task->why)
        list_push_back(&task->calls, &call->link);
    pthread_mutex_unlock(&task->lock);
    if (call->call.status) {
        atomic_store_explicit(&call->is_ended, true, memory_order_relaxed);
        return;
    }
    call->task = data_task_ref(task);
    if (call->call.function->host->function_call(&call->call) == KERNEL_PENDING ||
        !call_leave(call))
        return;
    call->task = NULL;
    atomic_store_explicit(&call->is_ended, true, memory_order_relaxed);
    data_task_unref(task);
}

struct status *data_call_take(struct data_call *call, struct data_task *task) {
    struct status *st = call->call.status;
    task->n_running--;
    call->call.status = NULL;
    call->call.function->host->function_finish(&call->call);
    return st;
}

/* Finds a call that is not cancelled yet, and marks it. The caller holds the lock. */
static struct data_call *next_to_cancel(struct data_task *task) {
    LIST_FOR_EACH (link, &task->calls) {
        struct data_call *call = LIST_ENTRY(link, struct data_call, link);
        if (call->was_cancelled)
            continue;
        call->was_cancelled = call->is_cancelling = true;
        return call;
    }
    return NULL;
}

void data_task_cancel(struct data_task *task, struct status *why) {
    struct data_call *call;
    pthread_mutex_lock(&task->lock);
    if (task->why) {
        pthread_mutex_unlock(&task->lock);
        return;
    }
    task->why = status_ref(why);
    atomic_store_explicit(&task->is_cancelled, true, memory_order_release);
    while ((call = next_to_cancel(task))) {
        pthread_mutex_unlock(&task->lock);
        call->call.function->host->function_cancel(&call->call, why);
        pthread_mutex_lock(&task->lock);
        call->is_cancelling = false;
        if (!call->has_ended_meanwhile)
            continue;
        list_remove(&call->link);
        pthread_mutex_unlock(&task->lock);
        call_end(call);
        pthread_mutex_lock(&task->lock);
    }
    pthread_mutex_unlock(&task->lock);
    data_task_wake(task);
}

/* ---- waiters ---- */

void data_waiter_set(struct data_waiter *waiter, struct data_task *task) {
    if (waiter->task == task)
        return;
    data_task_unref(waiter->task);
    waiter->task = data_task_ref(task);
}

struct data_task *data_waiter_take(struct data_waiter *waiter) {
    struct data_task *task = waiter->task;
    waiter->task = NULL;
    return task;
}

void data_waiter_wake(struct data_task *task_take) {
    if (!task_take)
        return;
    data_task_wake_on_pool(task_take);
    data_task_unref(task_take);
}
