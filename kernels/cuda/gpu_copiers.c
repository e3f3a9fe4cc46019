/* The threads that copy between a GPU's memory and the host's, and wait for it (gpu_copies.h).
 *
 * A copier asks the device in the order in which its jobs came. Because all wait for the one
 * compute stream, an earlier job is never ready later than a later one. */
#include <stdlib.h>

#include "common/base/log.h"
#include "kernels/cuda/gpu_pageable.h"
#include "kernels/cuda/gpu_copies.h"

/* ---- jobs ---- */

/* The device whose memory a copy frees at its end; NULL: none. */
static struct gpu_device *holder_of(const struct tensor *value) {
    return tensor_is_on_device(value) ? gpu_of_allocator(value->buffer->allocator) : NULL;
}

void gpu_job_hold_take(struct gpu_job *job, struct tensor *value) {
    struct gpu_device *holder = holder_of(value);
    tensor_move(&job->held, value);
    if (holder)
        atomic_fetch_add(&holder->n_copies, 1);
}

void gpu_job_free(struct gpu_device *gpu, struct gpu_job *job) {
    struct gpu_device *holder = holder_of(&job->held);
    if (job->ready)
        gpu_event_put(gpu, job->ready);
    tensor_clear(&job->held);
    if (holder)
        atomic_fetch_sub(&holder->n_copies, 1);
    buffer_unref(job->growing);
    free(job);
}

void gpu_job_take_callers(struct gpu_copier *copier, struct gpu_job *job,
                          struct device_copy **ret_copy, struct device_wait **ret_wait) {
    pthread_mutex_lock(&copier->lock);
    *ret_copy = job->copy;
    *ret_wait = job->wait;
    job->copy = NULL;
    job->wait = NULL;
    if (copier->current == job)
        copier->current = NULL;
    pthread_mutex_unlock(&copier->lock);
}

/* ---- copiers ---- */

static void *copier_serve(void *arg) {
    struct gpu_copier *copier = arg;
    pthread_mutex_lock(&copier->lock);
    unsigned generation = copier->generation;
    while (generation == copier->generation) {
        while (list_is_empty(&copier->jobs) && !copier->is_closed)
            pthread_cond_wait(&copier->changed, &copier->lock);
        struct list *link = list_pop_front(&copier->jobs);
        if (!link)
            break;
        struct gpu_job *job = LIST_ENTRY(link, struct gpu_job, link);
        copier->current = job;
        pthread_mutex_unlock(&copier->lock);
        /* the last job may have freed another device's buffer */
        struct status *st = gpu_enter(copier->gpu);
        if (!job->status)
            job->status = st;
        else
            status_unref(st);
        job->run(copier, job);
        pthread_mutex_lock(&copier->lock);
    }
    pthread_mutex_unlock(&copier->lock);
    return NULL;
}

void gpu_copier_submit(struct gpu_copier *copier, struct gpu_job *job) {
    pthread_mutex_lock(&copier->lock);
    list_push_back(&copier->jobs, &job->link);
    pthread_cond_signal(&copier->changed);
    pthread_mutex_unlock(&copier->lock);
}

void gpu_copier_submit_first(struct gpu_copier *copier, struct gpu_job *job) {
    pthread_mutex_lock(&copier->lock);
    list_push_front(&copier->jobs, &job->link);
    pthread_cond_signal(&copier->changed);
    pthread_mutex_unlock(&copier->lock);
}

static struct status *copier_start(struct gpu_device *gpu, struct gpu_copier *copier,
                                   const char *name) {
    copier->gpu = gpu;
    copier->name = name;
    list_init(&copier->jobs);
    pthread_mutex_init(&copier->lock, NULL);
    pthread_cond_init(&copier->changed, NULL);
    gpu_team_init(&copier->team);
    TRY(gpu_call(gpu, cuStreamCreateWithPriority, &copier->stream, CU_STREAM_NON_BLOCKING, 0));
    TRY(gpu_pieces_open(gpu, &copier->pieces));
    if (pthread_create(&copier->thread, NULL, copier_serve, copier) != 0)
        return status_exhausted("no thread for copies");
    copier->is_started = true;
    return NULL;
}

/* The thread ends when it has served what is queued. */
static void copier_close(struct gpu_copier *copier) {
    pthread_mutex_lock(&copier->lock);
    copier->is_closed = true;
    pthread_cond_signal(&copier->changed);
    pthread_mutex_unlock(&copier->lock);
}

static void copier_stop(struct gpu_copier *copier) {
    if (!copier->gpu)
        return;
    if (copier->is_started) {
        copier_close(copier);
        pthread_join(copier->thread, NULL);
    }
    gpu_team_stop(&copier->team);
}

static void copier_free(struct gpu_copier *copier) {
    struct gpu_device *gpu = copier->gpu;
    if (!gpu)
        return;
    gpu_team_free(copier);
    gpu_pieces_close(gpu, &copier->pieces);
    if (copier->stream)
        gpu_give_back(gpu, cuStreamDestroy, copier->stream);
    pthread_mutex_destroy(&copier->lock);
    pthread_cond_destroy(&copier->changed);
}

struct status *gpu_copiers_start(struct gpu_device *gpu) {
    TRY(copier_start(gpu, &gpu->in, "in"));
    TRY(copier_start(gpu, &gpu->arriving, "arriving"));
    TRY(copier_start(gpu, &gpu->out, "out"));
    return copier_start(gpu, &gpu->large_out, "large out");
}

enum { N_COPIERS = 4 };

static void list_copiers(struct gpu_device *gpu, struct gpu_copier *ret[N_COPIERS]) {
    ret[0] = &gpu->in;
    ret[1] = &gpu->arriving;
    ret[2] = &gpu->out;
    ret[3] = &gpu->large_out;
}

void gpu_copiers_stop(struct gpu_device *gpu) {
    struct gpu_copier *list[N_COPIERS];
    list_copiers(gpu, list);
    for (int i = 0; i < N_COPIERS; i++)
        copier_stop(list[i]);
}

void gpu_copiers_free(struct gpu_device *gpu) {
    struct gpu_copier *list[N_COPIERS];
    list_copiers(gpu, list);
    for (int i = 0; i < N_COPIERS; i++)
        copier_free(list[i]);
}

/* ---- devices that fail ---- */

bool gpu_copiers_are_busy(struct gpu_device *gpu) {
    struct gpu_copier *list[N_COPIERS];
    bool is_busy = false;
    list_copiers(gpu, list);
    for (int i = 0; i < N_COPIERS; i++) {
        pthread_mutex_lock(&list[i]->lock);
        is_busy |= list[i]->current || !list_is_empty(&list[i]->jobs);
        pthread_mutex_unlock(&list[i]->lock);
    }
    return is_busy;
}

/* Ends the copier's job with the failure. The thread that hangs finds, when it comes back, that it
 * was replaced. */
static void abandon(struct gpu_copier *copier, struct status *failure) {
    pthread_mutex_lock(&copier->lock);
    struct gpu_job *job = copier->current;
    struct device_copy *copy = job ? job->copy : NULL;
    struct device_wait *wait = job ? job->wait : NULL;
    pthread_t replaced = copier->thread;
    bool is_replaced = false;
    if (job) {
        if (job->to) /* the thread may use it, too */
            atomic_store(&job->to->is_hung, true);
        job->copy = NULL;
        job->wait = NULL;
        copier->current = NULL;
        copier->generation++;
        is_replaced = pthread_create(&copier->thread, NULL, copier_serve, copier) == 0;
        copier->is_started = is_replaced;
    }
    pthread_mutex_unlock(&copier->lock);
    if (job)
        pthread_detach(replaced);
    if (job && !is_replaced)
        log_event(EVENT_GPU_TROUBLE, "GPU %d: no thread for copies", copier->gpu->ordinal);
    if (copy) {
        copy->status = status_ref(failure);
        copy->on_done(copy);
    }
    if (wait) {
        wait->status = status_ref(failure);
        wait->on_done(wait);
    }
}

void gpu_copiers_detach(struct gpu_device *gpu) {
    struct gpu_copier *list[N_COPIERS];
    list_copiers(gpu, list);
    for (int i = 0; i < N_COPIERS; i++) {
        copier_close(list[i]);
        if (list[i]->is_started)
            pthread_detach(list[i]->thread);
        gpu_team_detach(&list[i]->team);
    }
}

void gpu_copiers_abandon(struct gpu_device *gpu) {
    struct gpu_copier *list[N_COPIERS];
    list_copiers(gpu, list);
    for (int i = 0; i < N_COPIERS; i++)
        abandon(list[i], atomic_load(&gpu->failure));
}
