/* A flag that stops threads, the first error, and the threads. */
#include "client/training/coordinator.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "client/c_describe.h"

struct MR_Coordinator {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t stopped;
    bool should_stop, is_joined;
    struct status *error; /* the first */
    pthread_t *threads;
    size_t n_threads;
};

struct thread_start {
    MR_Coordinator *coordinator;
    void (*run)(MR_Coordinator *coordinator, void *arg, TF_Status *status);
    void *arg;
};

MR_Coordinator *MR_NewCoordinator(void) {
    pthread_condattr_t attr;
    MR_Coordinator *c = xcalloc(1, sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->stopped, &attr);
    pthread_condattr_destroy(&attr);
    return c;
}

void MR_DeleteCoordinator(MR_Coordinator *coordinator) {
    if (!coordinator)
        return;
    TF_Status *status = TF_NewStatus();
    MR_RequestStop(coordinator, NULL);
    MR_Join(coordinator, status);
    TF_DeleteStatus(status);
    status_unref(coordinator->error);
    pthread_cond_destroy(&coordinator->stopped);
    pthread_mutex_destroy(&coordinator->lock);
    free(coordinator->threads);
    free(coordinator);
}

void MR_RequestStop(MR_Coordinator *coordinator, const TF_Status *status) {
    if (!coordinator)
        return;
    pthread_mutex_lock(&coordinator->lock);
    if (status && status->status && !coordinator->error && TF_GetCode(status) != TF_OUT_OF_RANGE &&
        !coordinator->should_stop)
        coordinator->error = status_ref(status->status);
    coordinator->should_stop = true;
    pthread_cond_broadcast(&coordinator->stopped);
    pthread_mutex_unlock(&coordinator->lock);
}

unsigned char MR_ShouldStop(MR_Coordinator *coordinator) { return MR_WaitForStop(coordinator, 0); }

unsigned char MR_WaitForStop(MR_Coordinator *coordinator, int64_t timeout_ms) {
    if (!coordinator)
        return 1;
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += timeout_ms / 1000;
    end.tv_nsec += timeout_ms % 1000 * 1000000;
    if (end.tv_nsec >= 1000000000) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&coordinator->lock);
    int code = 0;
    while (!coordinator->should_stop && timeout_ms != 0 && code != ETIMEDOUT)
        code = timeout_ms < 0
                   ? pthread_cond_wait(&coordinator->stopped, &coordinator->lock)
                   : pthread_cond_timedwait(&coordinator->stopped, &coordinator->lock, &end);
    bool should_stop = coordinator->should_stop;
    pthread_mutex_unlock(&coordinator->lock);
    return should_stop;
}

static void *run_thread(void *data) {
    struct thread_start start = *(struct thread_start *)data;
    free(data);
    TF_Status *status = TF_NewStatus();
    start.run(start.coordinator, start.arg, status);
    if (TF_GetCode(status) != TF_OK)
        MR_RequestStop(start.coordinator, status);
    TF_DeleteStatus(status);
    return NULL;
}

void MR_StartThread(MR_Coordinator *coordinator,
                    void (*run)(MR_Coordinator *coordinator, void *arg, TF_Status *status),
                    void *arg, TF_Status *status) {
    if (!coordinator || !run) {
        tf_status_set(status, null_refused(__func__, coordinator ? "run" : "coordinator"));
        return;
    }
    struct status *st = NULL;
    struct thread_start *start = xmalloc(sizeof *start);
    *start = (struct thread_start){coordinator, run, arg};
    pthread_mutex_lock(&coordinator->lock);
    size_t n = coordinator->n_threads;
    coordinator->threads = xreallocarray(coordinator->threads, n + 1, sizeof(pthread_t));
    if (coordinator->is_joined)
        st = status_failed_precondition("%s: the coordinator has joined its threads", __func__);
    else if (pthread_create(&coordinator->threads[n], NULL, run_thread, start) != 0)
        st = status_exhausted("%s: there can be no more threads than %zu", __func__, n);
    else
        coordinator->n_threads++;
    pthread_mutex_unlock(&coordinator->lock);
    if (st)
        free(start);
    tf_status_set(status, st);
}

void MR_Join(MR_Coordinator *coordinator, TF_Status *status) {
    if (!coordinator) {
        tf_status_set(status, null_refused(__func__, "coordinator"));
        return;
    }
    pthread_mutex_lock(&coordinator->lock);
    while (coordinator->n_threads > 0) { /* a thread may start others */
        pthread_t thread = coordinator->threads[--coordinator->n_threads];
        pthread_mutex_unlock(&coordinator->lock);
        pthread_join(thread, NULL);
        pthread_mutex_lock(&coordinator->lock);
    }
    coordinator->is_joined = true;
    tf_status_set(status, status_ref(coordinator->error));
    pthread_mutex_unlock(&coordinator->lock);
}
