/* Waits for a call on another thread, and abandons it when nobody wants its result any more. */
#include "kernels/support/detached_call.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/denormals.h"
#include "common/base/pool_cancel.h"

enum { POLL_NS = 5 * 1000 * 1000, STACK_BYTES = 8 << 20 };

struct detached_state {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_ended;            /* guarded by lock */
    _Atomic bool is_abandoned; /* written under lock */
    struct detached_call *call;
};

static _Atomic int n_abandoned;

static void state_free(struct detached_state *state) {
    pthread_cond_destroy(&state->changed);
    pthread_mutex_destroy(&state->lock);
    free(state);
}

static bool is_unwanted(void *arg) {
    return atomic_load_explicit(&((struct detached_state *)arg)->is_abandoned,
                                memory_order_relaxed);
}

static void *thread_main(void *arg) {
    struct detached_state *state = arg;
    struct pool_cancel cancel = {is_unwanted, state};
    denormals_flush_to_zero();
    pool_set_cancel(&cancel);
    state->call->work(state->call);
    pthread_mutex_lock(&state->lock);
    bool is_abandoned = state->is_abandoned;
    state->has_ended = true;
    pthread_cond_signal(&state->changed);
    pthread_mutex_unlock(&state->lock);
    if (is_abandoned) {
        atomic_fetch_sub(&n_abandoned, 1);
        state->call->free(state->call);
        state_free(state);
    }
    return NULL;
}

static bool thread_start(struct detached_state *state) {
    pthread_t thread;
    pthread_attr_t attr;
    CHECK(pthread_attr_init(&attr) == 0);
    CHECK(pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED) == 0);
    CHECK(pthread_attr_setstacksize(&attr, STACK_BYTES) == 0);
    bool is_started = pthread_create(&thread, &attr, thread_main, state) == 0;
    pthread_attr_destroy(&attr);
    return is_started;
}

static struct detached_state *state_new(struct detached_call *call) {
    struct detached_state *state = xcalloc(1, sizeof(*state));
    pthread_condattr_t attr;
    CHECK(pthread_condattr_init(&attr) == 0);
    CHECK(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
    CHECK(pthread_mutex_init(&state->lock, NULL) == 0);
    CHECK(pthread_cond_init(&state->changed, &attr) == 0);
    pthread_condattr_destroy(&attr);
    state->call = call;
    return state;
}

/* True: it has ended. The lock is held. */
static bool wait_for_end(struct detached_state *state) {
    while (!state->has_ended && !pool_is_unwanted()) {
        int64_t until_ns = clock_now_ns() + POLL_NS;
        struct timespec until = {until_ns / 1000000000, until_ns % 1000000000};
        pthread_cond_timedwait(&state->changed, &state->lock, &until);
    }
    return state->has_ended;
}

bool detached_call_run(struct detached_call *call) {
    if (atomic_load(&n_abandoned) >= DETACHED_CALL_MAX_ABANDONED) {
        call->work(call);
        return true;
    }
    struct detached_state *state = state_new(call);
    if (!thread_start(state)) {
        state_free(state);
        call->work(call);
        return true;
    }
    pthread_mutex_lock(&state->lock);
    bool has_ended = wait_for_end(state);
    if (!has_ended) {
        state->is_abandoned = true;
        atomic_fetch_add(&n_abandoned, 1);
    }
    pthread_mutex_unlock(&state->lock);
    if (has_ended)
        state_free(state);
    return has_ended;
}
