/* Lets a test wait for the end of something that runs on other threads. */
#ifndef MILLRACE_TESTS_UNIT_WORKER_ENDING_H
#define MILLRACE_TESTS_UNIT_WORKER_ENDING_H

#include <pthread.h>
#include <stdbool.h>

#include "common/base/status.h"

struct ending {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_done; /* guarded by lock, like the fields below */
    int n_done;
    struct status *status;
};

#define ENDING_INIT \
    { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER }

/* Prepares for another run; drops the status. */
static inline void ending_reset(struct ending *ending) {
    status_unref(ending->status);
    ending->status = NULL;
    ending->is_done = false;
    ending->n_done = 0;
}

static inline void ending_tell(struct ending *ending, struct status *status_take) {
    pthread_mutex_lock(&ending->lock);
    ending->status = status_take;
    ending->is_done = true;
    ending->n_done++;
    pthread_cond_broadcast(&ending->changed);
    pthread_mutex_unlock(&ending->lock);
}

static inline void ending_wait(struct ending *ending) {
    pthread_mutex_lock(&ending->lock);
    while (!ending->is_done)
        pthread_cond_wait(&ending->changed, &ending->lock);
    pthread_mutex_unlock(&ending->lock);
}

static inline bool ending_has_come(struct ending *ending) {
    pthread_mutex_lock(&ending->lock);
    bool is_done = ending->is_done;
    pthread_mutex_unlock(&ending->lock);
    return is_done;
}

#endif
