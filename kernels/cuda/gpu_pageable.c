/* Copies pageable memory by a team of threads (gpu_pageable.h).
 *
 *   copier   begins a copy: wakes all helpers ─ its own pieces ─ waits until n_busy is 0 ─ ends it
 *   helper   asleep ─ its pieces ─ n_busy - 1 ─ asleep
 *
 * The copier's thread never returns before its helpers, so what a copy uses lives as long as its
 * record. The first failure ends the work of all at their next pieces. */
#include "kernels/cuda/gpu_pageable.h"

#include <sched.h>

#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/tensor/growing_buffer.h"

int gpu_copy_threads(void) {
    cpu_set_t cores; /* a host with more cores than that refuses the call */
    int n_cores = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : CPU_SETSIZE;
    return MAX(1, MIN(n_cores / 4, (int)GPU_MAX_COPY_THREADS));
}

/* ---- pieces ---- */

struct status *gpu_pieces_open(struct gpu_device *gpu, struct gpu_pieces *pieces) {
    for (int i = 0; i < 2; i++)
        if (!pieces->done[i])
            TRY(gpu_call(gpu, cuEventCreate, &pieces->done[i],
                         CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
    return NULL;
}

void gpu_pieces_close(struct gpu_device *gpu, struct gpu_pieces *pieces) {
    for (int i = 0; i < 2; i++) {
        if (pieces->memory[i])
            gpu_give_back(gpu, cuMemFreeHost, pieces->memory[i]);
        if (pieces->done[i])
            gpu_give_back(gpu, cuEventDestroy, pieces->done[i]);
    }
}

static struct status *pin(struct gpu_device *gpu, char **memory, size_t size_bytes) {
    return *memory ? NULL : gpu_pinned_new(gpu, size_bytes, memory);
}

struct status *gpu_need_pieces(struct gpu_copier *copier, size_t size_bytes) {
    TRY(pin(copier->gpu, &copier->pieces.memory[0], GPU_PIECE_BYTES));
    return size_bytes > GPU_PIECE_BYTES
               ? pin(copier->gpu, &copier->pieces.memory[1], GPU_PIECE_BYTES)
               : NULL;
}

/* ---- the part of one thread ---- */

struct part {
    struct gpu_copier *copier;
    struct gpu_pieces *pieces;
    const struct gpu_staged_copy *copy;
    int number, n_threads;
    size_t piece_bytes;
};

static struct status *wait_for_piece(const struct part *part, int i) {
    return gpu_call(part->copier->gpu, cuEventSynchronize, part->pieces->done[i]);
}

static struct status *mark_piece(const struct part *part, int i) {
    return gpu_call(part->copier->gpu, cuEventRecord, part->pieces->done[i], part->copier->stream);
}

static size_t size_at(const struct part *part, size_t at) {
    return MIN(part->copy->size_bytes - at, part->piece_bytes);
}

/* Another thread of the copy has failed. */
static bool is_given_up(const struct part *part) {
    return atomic_load_explicit(&part->copier->team.has_failed, memory_order_relaxed);
}

/* Tells a growing buffer how far it is filled without a gap: a thread's first piece that is not
 * there ends what is. */
static void note_filled(const struct part *part) {
    struct gpu_team *team = &part->copier->team;
    size_t first_missing = SIZE_MAX;
    pthread_mutex_lock(&team->lock);
    team->n_filled[part->number]++;
    for (int t = 0; t < part->n_threads; t++)
        first_missing = MIN(first_missing, (size_t)t + team->n_filled[t] * (size_t)part->n_threads);
    pthread_mutex_unlock(&team->lock);
    growing_buffer_advance(part->copy->growing,
                           MIN(first_missing * part->piece_bytes, part->copy->size_bytes));
}

static struct status *start_out_piece(const struct part *part, size_t at, int i) {
    TRY(gpu_call(part->copier->gpu, cuMemcpyDtoHAsync, part->pieces->memory[i],
                 part->copy->device_data + at, size_at(part, at), part->copier->stream));
    return mark_piece(part, i);
}

static struct status *part_out(const struct part *part) {
    const struct gpu_staged_copy *copy = part->copy;
    size_t step = part->piece_bytes * (size_t)part->n_threads,
           at = part->piece_bytes * (size_t)part->number;
    int i = 0;
    if (at < copy->size_bytes)
        TRY(start_out_piece(part, at, i));
    for (; at < copy->size_bytes && !is_given_up(part); at += step, i ^= 1) {
        if (step < copy->size_bytes - at)
            TRY(start_out_piece(part, at + step, i ^ 1));
        TRY(wait_for_piece(part, i));
        memcpy(copy->to + at, part->pieces->memory[i], size_at(part, at));
        if (copy->growing)
            note_filled(part);
    }
    return NULL;
}

static struct status *part_in(const struct part *part) {
    const struct gpu_staged_copy *copy = part->copy;
    size_t step = part->piece_bytes * (size_t)part->n_threads,
           begin = part->piece_bytes * (size_t)part->number;
    int i = 0;
    for (size_t at = begin; at < copy->size_bytes && !is_given_up(part); at += step, i ^= 1) {
        if (at - begin >= 2 * step)
            TRY(wait_for_piece(part, i));
        memcpy(part->pieces->memory[i], copy->from + at, size_at(part, at));
        TRY(gpu_call(part->copier->gpu, cuMemcpyHtoDAsync, copy->device_data + at,
                     part->pieces->memory[i], size_at(part, at), part->copier->stream));
        TRY(mark_piece(part, i));
    }
    return NULL;
}

static struct status *part_run(const struct part *part) {
    return part->copy->to ? part_out(part) : part_in(part);
}

/* ---- helpers ---- */

static void fail_take(struct gpu_team *team, struct status *st) {
    if (!st)
        return;
    pthread_mutex_lock(&team->lock);
    if (!team->failure) {
        team->failure = st;
        st = NULL;
        atomic_store_explicit(&team->has_failed, true, memory_order_relaxed);
    }
    pthread_mutex_unlock(&team->lock);
    status_unref(st);
}

static struct part team_part(struct gpu_copier *copier, struct gpu_pieces *pieces, int number) {
    return (struct part){.copier = copier,
                         .pieces = pieces,
                         .copy = copier->team.copy,
                         .number = number,
                         .n_threads = copier->team.n_helpers + 1,
                         .piece_bytes = GPU_TEAM_PIECE_BYTES};
}

static void *helper_run(void *arg) {
    struct gpu_helper *helper = arg;
    struct gpu_copier *copier = helper->copier;
    struct gpu_team *team = &copier->team;
    uint64_t n_seen = 0;
    pthread_mutex_lock(&team->lock);
    for (;;) {
        while (team->n_begun == n_seen && !team->is_closed)
            pthread_cond_wait(&team->begun, &team->lock);
        if (team->n_begun == n_seen)
            break;
        n_seen = team->n_begun;
        struct part part = team_part(copier, &helper->pieces, helper->number);
        pthread_mutex_unlock(&team->lock);
        struct status *st = gpu_enter(copier->gpu);
        if (!st)
            st = part_run(&part);
        fail_take(team, st);
        pthread_mutex_lock(&team->lock);
        if (--team->n_busy == 0)
            pthread_cond_signal(&team->ended);
    }
    pthread_mutex_unlock(&team->lock);
    return NULL;
}

static struct status *helper_start(struct gpu_copier *copier, struct gpu_helper *helper) {
    struct gpu_team *team = &copier->team;
    helper->copier = copier;
    TRY(gpu_pieces_open(copier->gpu, &helper->pieces));
    for (int i = 0; i < 2; i++)
        TRY(pin(copier->gpu, &helper->pieces.memory[i], GPU_TEAM_PIECE_BYTES));
    pthread_mutex_lock(&team->lock); /* gpu_team_detach may look */
    helper->number = team->n_helpers + 1;
    bool is_started =
        !team->is_closed && thread_start(&helper->thread, NULL, helper_run, helper) == 0;
    team->n_helpers += is_started;
    pthread_mutex_unlock(&team->lock);
    return is_started ? NULL : status_exhausted("no thread for copies");
}

/* Starts the helpers once. Those that cannot be had are done without. */
static void need_helpers(struct gpu_copier *copier) {
    struct gpu_team *team = &copier->team;
    if (team->is_complete)
        return;
    team->is_complete = true;
    struct status *st = NULL;
    while (!st && team->n_helpers + 1 < copier->gpu->n_copy_threads)
        st = helper_start(copier, &team->helpers[team->n_helpers]);
    if (st)
        log_event(EVENT_GPU_TROUBLE, "GPU %d: large copies have %d threads instead of %d: %s",
                  copier->gpu->ordinal, team->n_helpers + 1, copier->gpu->n_copy_threads,
                  status_message(st));
    status_unref(st);
}

static struct status *team_run(struct gpu_copier *copier, const struct gpu_staged_copy *copy) {
    struct gpu_team *team = &copier->team;
    pthread_mutex_lock(&team->lock);
    team->copy = copy;
    team->n_begun++;
    team->n_busy = team->n_helpers;
    memset(team->n_filled, 0, sizeof team->n_filled);
    pthread_cond_broadcast(&team->begun);
    struct part part = team_part(copier, &copier->pieces, 0);
    pthread_mutex_unlock(&team->lock);
    fail_take(team, part_run(&part));
    pthread_mutex_lock(&team->lock);
    while (team->n_busy > 0)
        pthread_cond_wait(&team->ended, &team->lock);
    struct status *st = team->failure;
    team->failure = NULL;
    team->copy = NULL;
    atomic_store_explicit(&team->has_failed, false, memory_order_relaxed);
    pthread_mutex_unlock(&team->lock);
    return st;
}

/* ---- copies ---- */

static struct status *run_alone(struct gpu_copier *copier, const struct gpu_staged_copy *copy) {
    struct gpu_team *team = &copier->team;
    team->n_filled[0] = 0;
    return part_run(&(struct part){.copier = copier,
                                   .pieces = &copier->pieces,
                                   .copy = copy,
                                   .n_threads = 1,
                                   .piece_bytes = GPU_PIECE_BYTES});
}

struct status *gpu_copy_staged(struct gpu_copier *copier, const struct gpu_staged_copy *copy) {
    bool is_large = copy->size_bytes > GPU_TEAM_BYTES;
    TRY(gpu_need_pieces(copier, copy->size_bytes));
    if (is_large)
        need_helpers(copier);
    return is_large && copier->team.n_helpers > 0 ? team_run(copier, copy)
                                                  : run_alone(copier, copy);
}

/* ---- life ---- */

void gpu_team_init(struct gpu_team *team) {
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->begun, NULL);
    pthread_cond_init(&team->ended, NULL);
}

/* Returns how many helpers there are. */
static int team_close(struct gpu_team *team) {
    pthread_mutex_lock(&team->lock);
    team->is_closed = true;
    int n_helpers = team->n_helpers;
    pthread_cond_broadcast(&team->begun);
    pthread_mutex_unlock(&team->lock);
    return n_helpers;
}

void gpu_team_stop(struct gpu_team *team) {
    int n_helpers = team_close(team);
    for (int i = 0; i < n_helpers; i++)
        pthread_join(team->helpers[i].thread, NULL);
}

void gpu_team_free(struct gpu_copier *copier) {
    struct gpu_team *team = &copier->team;
    for (int i = 0; i < GPU_MAX_COPY_THREADS - 1; i++)
        gpu_pieces_close(copier->gpu, &team->helpers[i].pieces);
    pthread_mutex_destroy(&team->lock);
    pthread_cond_destroy(&team->begun);
    pthread_cond_destroy(&team->ended);
}

void gpu_team_detach(struct gpu_team *team) {
    int n_helpers = team_close(team);
    for (int i = 0; i < n_helpers; i++)
        pthread_detach(team->helpers[i].thread);
}
