/* Copies values to a GPU while they are still arriving (common/tensor/growing_buffer.h).
 *
 * Such a copy occupies no thread while it waits for bytes: it is a job of the copier `arriving`
 * again when the next piece has come. In between no copy is under way, so a value that does not
 * become whole gives its memory back at once. `arriving` serves no other copies, and allocates only
 * what is free, so whatever waits for memory or for the network holds up nothing there.
 *
 *   start ── wait for bytes ──► copy the pieces that are there ──► end
 *               ▲                  │             │
 *               └── more to come ──┘             └── no memory now: when it is whole, by `in` */
#include "common/tensor/growing_buffer.h"
#include "kernels/cuda/gpu_copies.h"
#include "kernels/cuda/gpu_pageable.h"

/* The bytes that the job waits for are there, or will not come. */
static void go_on(struct gpu_job *job) {
    struct status *failure = growing_buffer_failure(job->held.buffer);
    if (failure && !job->status)
        job->status = status_ref(failure);
    gpu_copier_submit(job->copier, job);
}

static void on_more(struct growing_wait *wait) { go_on(CONTAINER_OF(wait, struct gpu_job, more)); }

static size_t piece_end(const struct gpu_job *job) {
    return MIN(job->n_copied + GPU_PIECE_BYTES, tensor_size_bytes(&job->held));
}

/* The job is served again when that much of the value is there. */
static void await_bytes(struct gpu_job *job, size_t n_bytes) {
    job->more.on_reached = on_more;
    if (growing_buffer_wait(job->held.buffer, &job->more, n_bytes))
        go_on(job);
}

/* Makes the new value if there is memory for it now. Otherwise *ret stays empty. */
static struct status *begin(struct gpu_copier *copier, struct gpu_job *job, struct tensor *ret) {
    struct gpu_device *gpu = copier->gpu;
    struct buffer *buffer;
    uint64_t free_number;
    struct status *st = gpu_buffer_try_new(gpu, tensor_size_bytes(&job->held), copier->stream,
                                           &buffer, &free_number);
    if (st && status_code(st) == STATUS_RESOURCE_EXHAUSTED) {
        status_unref(st);
        return NULL;
    }
    TRY(st);
    TRY(gpu_wrap_destination(gpu, &job->held, buffer, free_number, job, ret));
    return gpu_begin_copy_in(copier, job, ret);
}

/* Copies the pieces that are there. When it returns, no copy is under way. */
static struct status *copy_arrived(struct gpu_copier *copier, struct gpu_job *job) {
    size_t size_bytes = tensor_size_bytes(&job->held), begin = job->n_copied;
    size_t n_filled = growing_buffer_filled(job->held.buffer);
    while (job->n_copied < size_bytes && piece_end(job) <= n_filled)
        job->n_copied = piece_end(job);
    struct gpu_staged_copy copy = {.device_data = (CUdeviceptr)job->made.data + begin,
                                   .from = tensor_cdata(&job->held) + begin,
                                   .size_bytes = job->n_copied - begin};
    struct status *st = copy.size_bytes > 0 ? gpu_copy_staged(copier, &copy) : NULL;
    if (!st && job->n_copied == size_bytes)
        gpu_count_copy(copier->gpu, DEVICE_FROM_HOST_STAGED, size_bytes);
    return gpu_end_copy_in_take(copier, st, !st && job->n_copied == size_bytes);
}

/* Nobody serves the job until more has come, so a device that has failed meanwhile says so then. */
static void pause_copy(struct gpu_copier *copier, struct gpu_job *job) {
    pthread_mutex_lock(&copier->lock);
    if (copier->current == job)
        copier->current = NULL;
    pthread_mutex_unlock(&copier->lock);
    if (job->made.storage != TENSOR_NONE) {
        await_bytes(job, piece_end(job));
        return;
    }
    /* There is no memory now: `in` waits for it once the value is whole. */
    job->run = gpu_run_copy_in;
    job->copier = &copier->gpu->in;
    await_bytes(job, tensor_size_bytes(&job->held));
}

static void run_arriving(struct gpu_copier *copier, struct gpu_job *job) {
    struct tensor made = TENSOR_INIT;
    struct status *st = job->status;
    if (!st && job->made.storage == TENSOR_NONE)
        st = begin(copier, job, &job->made);
    if (!st && job->made.storage != TENSOR_NONE)
        st = copy_arrived(copier, job);
    if (!st && job->n_copied < tensor_size_bytes(&job->held)) {
        pause_copy(copier, job);
        return;
    }
    tensor_move(&made, &job->made);
    gpu_end_copy_take(copier, job, st, &made);
}

void gpu_arriving_start(struct gpu_device *gpu, struct gpu_job *job) {
    job->run = run_arriving;
    job->copier = &gpu->arriving;
    await_bytes(job, piece_end(job));
}
