/* Waits for a GPU: device_ops of a GPU, served by the copier `out`. */
#include <stdlib.h>

#include "kernels/cuda/gpu_copies.h"

static void run_wait(struct gpu_copier *copier, struct gpu_job *job) {
    struct gpu_device *gpu = copier->gpu;
    struct device_copy *copy;
    struct device_wait *wait;
    struct status *st = job->status ? job->status : gpu_call(gpu, cuEventSynchronize, job->ready);
    if (!st)
        gpu_note_ended(gpu, job->number);
    gpu_job_take_callers(copier, job, &copy, &wait);
    gpu_job_free(gpu, job);
    if (!wait) {
        status_unref(st);
        return;
    }
    wait->status = st;
    wait->on_done(wait);
}

static void run_probe(struct gpu_copier *copier, struct gpu_job *job) {
    struct gpu_device *gpu = copier->gpu;
    struct device_copy *copy;
    struct device_wait *wait;
    struct status *st = job->status ? job->status : gpu_lock(gpu);
    if (!st) {
        st = gpu_record(gpu, &job->ready, &job->number);
        gpu_unlock(gpu);
    }
    if (!st)
        st = gpu_call(gpu, cuEventSynchronize, job->ready);
    status_unref(st); /* a failure of the device is known and logged by now */
    gpu_job_take_callers(copier, job, &copy, &wait);
    gpu_job_free(gpu, job);
}

static struct gpu_job *wait_job(struct device_wait *wait) {
    struct gpu_job *job = xcalloc(1, sizeof *job);
    job->run = run_wait;
    job->wait = wait;
    return job;
}

bool gpu_wait_start(struct device *device, struct device_wait *wait) {
    struct gpu_device *gpu = device->state;
    uint64_t enqueued = atomic_load_explicit(&gpu->memory.enqueued, memory_order_acquire);
    wait->status = gpu_lock(gpu);
    if (wait->status)
        return true;
    gpu_segments_restart(gpu);
    struct gpu_job *job = NULL;
    if (enqueued > atomic_load_explicit(&gpu->ended, memory_order_acquire)) {
        job = wait_job(wait);
        wait->status = gpu_record(gpu, &job->ready, &job->number);
    }
    gpu_unlock(gpu);
    if (!job || wait->status) {
        free(job);
        return true;
    }
    gpu_copier_submit(&gpu->out, job);
    return false;
}

bool gpu_catch_up_start(struct device *device, struct device_wait *wait) {
    struct gpu_device *gpu = device->state;
    CUevent event = NULL;
    uint64_t number = 0;
    wait->status = gpu_lock_only(gpu); /* where a step pauses is another place in each step */
    if (wait->status)
        return true;
    wait->status = gpu_mark_take(gpu, &event, &number);
    gpu_unlock(gpu);
    if (!event)
        return true;
    struct gpu_job *job = wait_job(wait);
    job->ready = event;
    job->number = number;
    gpu_copier_submit_first(&gpu->out, job);
    return false;
}

/* ---- probes ---- */

/* A wait that nobody waits for. */
void gpu_copiers_probe(struct gpu_device *gpu) {
    struct gpu_job *job = wait_job(NULL);
    job->run = run_probe;
    gpu_copier_submit(&gpu->out, job);
}
