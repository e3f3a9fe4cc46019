/* Chooses the thread that drives a session's loop. */
#include "client/call_loop.h"

#include <time.h>

#include "common/base/clock.h"
#include "common/base/thread.h"

enum {
    /* The keeper drives only when no thread has for this long, because taking the loop from the
     * keeper costs a change of thread, which a series of calls should not pay each time. */
    KEEPER_PAUSE_NS = 2000000,
};

void call_loop_init(struct call_loop *calls) {
    pthread_condattr_t monotonic;
    *calls = (struct call_loop){.loop = loop_new()};
    pthread_mutex_init(&calls->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&calls->keeper_cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
    list_init(&calls->waiting);
}

static void begin_call(struct loop_task *task) {
    struct loop_call *call = CONTAINER_OF(task, struct loop_call, task);
    call->begin(call);
}

/* Hands the loop to a thread that waits, else to nobody. The caller holds the lock and drives no
 * more. */
static void stop_driving(struct call_loop *calls) {
    loop_release(calls->loop);
    struct list *link = list_pop_front(&calls->waiting);
    calls->is_driven = link != NULL;
    if (!link) {
        if (calls->is_keeper_waiting || calls->n_async > 0)
            pthread_cond_signal(&calls->keeper_cond);
        calls->is_keeper_waiting = false;
        return;
    }
    struct loop_call *next = LIST_ENTRY(link, struct loop_call, link);
    next->is_driver = true;
    pthread_cond_signal(&next->cond);
}

static void wait_for_turn(struct call_loop *calls, struct loop_call *call) {
    pthread_cond_init(&call->cond, NULL);
    list_push_back(&calls->waiting, &call->link);
    while (!call->is_done && !call->is_driver)
        pthread_cond_wait(&call->cond, &calls->lock);
}

void call_loop_run(struct call_loop *calls, struct loop_call *call,
                   void (*begin)(struct loop_call *call)) {
    *call = (struct loop_call){.begin = begin, .owner = calls, .task = {.run = begin_call}};
    list_init(&call->link);
    pthread_mutex_lock(&calls->lock);
    bool waits = calls->is_driven;
    loop_post(calls->loop, &call->task);
    if (waits) {
        wait_for_turn(calls, call);
    } else {
        calls->is_driven = true;
        call->is_driver = true;
    }
    pthread_mutex_unlock(&calls->lock);
    if (call->is_driver) {
        while (!call->is_done) /* set by this thread, inside loop_run_once */
            loop_run_once(calls->loop);
        pthread_mutex_lock(&calls->lock);
        stop_driving(calls);
        pthread_mutex_unlock(&calls->lock);
    }
    if (waits)
        pthread_cond_destroy(&call->cond);
}

void loop_call_done(struct loop_call *call) {
    struct call_loop *calls = call->owner;
    pthread_mutex_lock(&calls->lock);
    call->is_done = true;
    list_remove(&call->link);
    if (!call->is_driver) /* the driver is this thread, or will look before it sleeps */
        pthread_cond_signal(&call->cond);
    pthread_mutex_unlock(&calls->lock);
}

/* ---- the keeper ---- */

static bool is_needed(const struct call_loop *calls, bool is_idle) {
    return !calls->is_driven && (calls->n_async > 0 || (calls->is_kept_always && is_idle));
}

/* Waits until the keeper has to drive. A driver wakes the keeper only if its call outlasts the
 * pause, or an asynchronous call needs it. False: the keeper has to end. The lock is held. */
static bool wait_for_need(struct call_loop *calls) {
    bool is_idle = false;
    while (!calls->is_keeper_stopping && !is_needed(calls, is_idle)) {
        if (calls->is_driven || !calls->is_kept_always) {
            calls->is_keeper_waiting = true;
            pthread_cond_wait(&calls->keeper_cond, &calls->lock);
            is_idle = false;
        } else {
            int64_t until_ns = clock_now_ns() + KEEPER_PAUSE_NS;
            struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};
            is_idle = pthread_cond_timedwait(&calls->keeper_cond, &calls->lock, &until) != 0;
        }
    }
    return !calls->is_keeper_stopping;
}

static bool must_go_on(const struct call_loop *calls) {
    return list_is_empty(&calls->waiting) && !calls->is_keeper_stopping &&
           (calls->is_kept_always || calls->n_async > 0);
}

static void *keep(void *arg) {
    struct call_loop *calls = arg;
    pthread_mutex_lock(&calls->lock);
    while (wait_for_need(calls)) {
        calls->is_driven = true;
        while (must_go_on(calls)) {
            pthread_mutex_unlock(&calls->lock);
            loop_run_once(calls->loop);
            pthread_mutex_lock(&calls->lock);
        }
        stop_driving(calls);
    }
    pthread_mutex_unlock(&calls->lock);
    return NULL;
}

struct status *call_loop_keep(struct call_loop *calls, bool always) {
    int error = 0;
    pthread_mutex_lock(&calls->lock);
    calls->is_kept_always |= always;
    if (!calls->has_keeper)
        error = thread_start(&calls->keeper, NULL, keep, calls);
    calls->has_keeper = error == 0;
    pthread_mutex_unlock(&calls->lock);
    return error ? status_exhausted("cannot start a thread: %s", strerror(error)) : NULL;
}

void call_loop_begin_async(struct call_loop *calls, struct loop_task *task) {
    pthread_mutex_lock(&calls->lock);
    calls->n_async++;
    loop_post(calls->loop, task);
    if (!calls->is_driven)
        pthread_cond_signal(&calls->keeper_cond);
    pthread_mutex_unlock(&calls->lock);
}

void call_loop_end_async(struct call_loop *calls) {
    pthread_mutex_lock(&calls->lock);
    calls->n_async--;
    pthread_mutex_unlock(&calls->lock);
}

struct wake {
    struct loop_task task;
    bool has_run; /* set by whoever drives */
};

static void wake(struct loop_task *task) { CONTAINER_OF(task, struct wake, task)->has_run = true; }

void call_loop_end_keeper(struct call_loop *calls) {
    struct wake waker = {.task = {.run = wake}};
    if (!calls->has_keeper)
        return;
    pthread_mutex_lock(&calls->lock);
    calls->is_keeper_stopping = true;
    pthread_cond_signal(&calls->keeper_cond);
    loop_post(calls->loop, &waker.task);
    pthread_mutex_unlock(&calls->lock);
    pthread_join(calls->keeper, NULL);
    calls->has_keeper = false;
    while (!waker.has_run) /* it was asleep, not in the loop */
        loop_run_once(calls->loop);
}

void call_loop_fini(struct call_loop *calls) {
    loop_free(calls->loop);
    pthread_cond_destroy(&calls->keeper_cond);
    pthread_mutex_destroy(&calls->lock);
}
