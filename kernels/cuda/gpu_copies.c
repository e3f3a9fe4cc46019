/* Copies between a GPU's memory and the host's, and the table of a GPU's methods.
 *
 *   small, to the device   in the arguments of a launch, or through the stage, on the compute
 *                          stream: enqueued when the call returns
 *   large, to the device   by the copier `in`, in pieces; while the value arrives: gpu_arriving.c
 *   to the host            by the copiers `out` and `large_out`, in pieces; few bytes that a step
 *                          fetches: gpu_outbox.h
 *   between two devices    gpu_peers.h
 *
 * Memory that tasks share is copied from and to as it is (gpu_host_memory.h). All other memory of
 * the host is copied in pieces (gpu_pageable.h). */
#include "kernels/cuda/gpu_copies.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "kernels/cuda/compiler.h"
#include "kernels/cuda/gpu_host_memory.h"
#include "kernels/cuda/gpu_outbox.h"
#include "kernels/cuda/gpu_peers.h"
#include "kernels/cuda/gpu_pageable.h"

enum { LARGE_OUT_BYTES = 256 << 10 };

static struct status *wait_for_copy(struct gpu_copier *copier) {
    return gpu_call(copier->gpu, cuEventSynchronize, copier->pieces.done[0]);
}

static struct status *mark_copy(struct gpu_copier *copier) {
    return gpu_call(copier->gpu, cuEventRecord, copier->pieces.done[0], copier->stream);
}

/* The copier's stream goes on when the compute stream has passed the job's event. */
static struct status *follow_compute(struct gpu_copier *copier, const struct gpu_job *job) {
    return !job->ready ? NULL
                       : gpu_call(copier->gpu, cuStreamWaitEvent, copier->stream, job->ready, 0);
}

/* ---- to the host ---- */

/* Into registered memory. */
static struct status *copy_out_direct(struct gpu_copier *copier, const char *from, char *to,
                                      size_t size_bytes) {
    TRY(gpu_call(copier->gpu, cuMemcpyDtoHAsync, to, (CUdeviceptr)from, size_bytes,
                 copier->stream));
    TRY(mark_copy(copier));
    return wait_for_copy(copier);
}

static struct status *copy_out(struct gpu_copier *copier, struct gpu_job *job,
                               struct tensor *value) {
    const struct tensor *from = &job->held;
    size_t size_bytes = tensor_size_bytes(from);
    struct buffer *growing = job->growing;
    if (!growing)
        TRY(tensor_new(job->allocator, (enum dtype)from->dtype, tensor_shape(from), value));
    TRY(follow_compute(copier, job));
    char *to = growing ? growing->data : tensor_data(value);
    struct gpu_host_range *range = growing ? NULL : gpu_host_memory_use(copier->gpu, value, true);
    struct status *st =
        range ? copy_out_direct(copier, from->data, to, size_bytes)
              : gpu_copy_staged(copier,
                                &(struct gpu_staged_copy){.device_data = (CUdeviceptr)from->data,
                                                          .to = to,
                                                          .size_bytes = size_bytes,
                                                          .growing = growing});
    if (!st)
        gpu_count_copy(copier->gpu, range ? DEVICE_TO_HOST_DIRECT : DEVICE_TO_HOST_STAGED,
                       size_bytes);
    if (st) /* a piece may still be on its way to pinned memory */
        gpu_drain(copier->gpu, copier->stream);
    else
        gpu_note_ended(copier->gpu, job->number);
    gpu_host_memory_unuse(range);
    return st;
}

void gpu_end_copy_take(struct gpu_copier *copier, struct gpu_job *job, struct status *st,
                       struct tensor *value) {
    struct gpu_device *gpu = copier->gpu;
    struct device_copy *copy;
    struct device_wait *wait;
    gpu_job_take_callers(copier, job, &copy, &wait);
    gpu_job_free(gpu, job);
    if (st || !copy)
        tensor_clear(value);
    if (!copy) {
        status_unref(st);
        return;
    }
    if (!st)
        tensor_move(copy->ret, value);
    copy->status = st;
    copy->on_done(copy);
}

static void run_copy_out(struct gpu_copier *copier, struct gpu_job *job) {
    struct tensor value = TENSOR_INIT;
    struct status *st = job->status ? job->status : copy_out(copier, job, &value);
    gpu_end_copy_take(copier, job, st, &value);
}

/* ---- to the device ---- */

/* The compute stream goes on when the copier's stream has done what is enqueued. */
static struct status *compute_follows(struct gpu_copier *copier) {
    struct gpu_device *gpu = copier->gpu;
    TRY(mark_copy(copier));
    TRY(gpu_lock(gpu));
    struct status *st = gpu_call(gpu, cuStreamWaitEvent, gpu->compute, copier->pieces.done[0], 0);
    gpu_unlock(gpu);
    return st;
}

struct status *gpu_begin_copy_in(struct gpu_copier *copier, const struct gpu_job *job,
                                 const struct tensor *to) {
    struct gpu_device *gpu = copier->gpu;
    TRY(follow_compute(copier, job));
    if (gpu->checker) /* the memory is new for this stream */
        gpu->checker->block_allocated((CUdeviceptr)to->buffer->data, to->buffer->size_bytes,
                                      copier->stream);
    return NULL;
}

/* The next copy fills the pieces from the start. */
struct status *gpu_end_copy_in_take(struct gpu_copier *copier, struct status *st_take,
                                    bool is_last) {
    struct gpu_device *gpu = copier->gpu;
    struct status *st = st_take;
    if (!st && is_last)
        st = compute_follows(copier);
    struct status *waited = gpu_call(gpu, cuStreamSynchronize, copier->stream);
    if (waited)
        gpu_drain(gpu, copier->stream);
    if (st)
        status_unref(waited);
    return st ? st : waited;
}

/* Copies host bytes into `to`. When it returns, later work of the compute stream finds them, and
 * the pieces may be filled again. */
static struct status *copy_in(struct gpu_copier *copier, struct gpu_job *job, struct tensor *to) {
    struct gpu_device *gpu = copier->gpu;
    const char *from = tensor_cdata(&job->held);
    size_t size_bytes = tensor_size_bytes(to);
    TRY(gpu_begin_copy_in(copier, job, to));
    struct gpu_host_range *range = gpu_host_memory_use(gpu, &job->held, false);
    struct status *st;
    if (range)
        st = gpu_call(gpu, cuMemcpyHtoDAsync, (CUdeviceptr)to->data, from, size_bytes,
                      copier->stream);
    else
        st = gpu_copy_staged(copier, &(struct gpu_staged_copy){.device_data = (CUdeviceptr)to->data,
                                                               .from = from,
                                                               .size_bytes = size_bytes});
    gpu_count_copy(gpu, range ? DEVICE_FROM_HOST_DIRECT : DEVICE_FROM_HOST_STAGED, size_bytes);
    st = gpu_end_copy_in_take(copier, st, true);
    gpu_host_memory_unuse(range);
    return st;
}

/* The event that the stream of copies to the device waits for before it writes into memory that was
 * freed when the compute stream was at `free_number`. */
static struct status *after_free(struct gpu_device *gpu, uint64_t free_number,
                                 struct gpu_job *job) {
    if (free_number <= atomic_load_explicit(&gpu->ended, memory_order_acquire) && !gpu->checker)
        return NULL;
    TRY(gpu_lock(gpu));
    struct status *st = gpu_record(gpu, &job->ready, &job->number);
    gpu_unlock(gpu);
    return st;
}

struct status *gpu_wrap_destination(struct gpu_device *gpu, const struct tensor *value,
                                    struct buffer *buffer_take, uint64_t free_number,
                                    struct gpu_job *job, struct tensor *ret) {
    struct status *st = tensor_view(buffer_take, buffer_take->data, (enum dtype)value->dtype,
                                    tensor_shape(value), ret);
    buffer_unref(buffer_take); /* the tensor holds it */
    if (!st && job)
        st = after_free(gpu, free_number, job);
    if (st)
        tensor_clear(ret);
    return st;
}

/* A tensor of the device for a copy by `stream`, and what that must wait for. */
static struct status *new_destination(struct gpu_device *gpu, const struct tensor *value,
                                      CUstream stream, struct gpu_job *job, struct tensor *ret) {
    struct buffer *buffer;
    uint64_t free_number;
    TRY(gpu_buffer_new(gpu, tensor_size_bytes(value), stream, &buffer, &free_number));
    return gpu_wrap_destination(gpu, value, buffer, free_number, job, ret);
}

static struct status *copy_in_now(struct gpu_device *gpu, const struct device_copy *copy) {
    struct tensor made = TENSOR_INIT;
    size_t size_bytes = tensor_size_bytes(&copy->from);
    enum device_count path;
    TRY(new_destination(gpu, &copy->from, gpu->compute, NULL, &made));
    struct status *st = gpu_copy_small(gpu, copy->owner, copy->node, (CUdeviceptr)made.data,
                                       tensor_cdata(&copy->from), size_bytes, &path);
    if (st) {
        tensor_clear(&made);
        return st;
    }
    gpu_count_copy(gpu, path, size_bytes);
    tensor_move(copy->ret, &made);
    return NULL;
}

void gpu_run_copy_in(struct gpu_copier *copier, struct gpu_job *job) {
    struct tensor made = TENSOR_INIT;
    struct status *st = job->status;
    if (!st)
        st = new_destination(copier->gpu, &job->held, copier->stream, job, &made);
    if (!st)
        st = copy_in(copier, job, &made);
    gpu_end_copy_take(copier, job, st, &made);
}

/* ---- between devices ---- */

/* The step that made the copy may have ended, so a failure is only logged. */
static void run_release(struct gpu_copier *copier, struct gpu_job *job) {
    struct gpu_device *gpu = copier->gpu;
    struct status *st = job->status ? job->status : gpu_call(gpu, cuEventSynchronize, job->ready);
    if (st) {
        log_event(EVENT_GPU_TROUBLE, "GPU %d: %s", gpu->ordinal, status_message(st));
        status_unref(st);
        gpu_drain(gpu, gpu->compute);
    } else {
        gpu_note_ended(gpu, job->number);
    }
    struct device_copy *copy;
    struct device_wait *wait;
    gpu_job_take_callers(copier, job, &copy, &wait); /* there are none */
    gpu_job_free(gpu, job);
}

/* With the lock of `to`. The compute stream of `to` waits for `ready` of the other device. After a
 * failure no copy is under way. */
static struct status *enqueue_peer_copy(struct gpu_device *to, struct gpu_device *from,
                                        CUevent ready, const struct tensor *value,
                                        const struct tensor *made, struct gpu_job *release) {
    TRY(gpu_call(to, cuStreamWaitEvent, to->compute, ready, 0));
    TRY(gpu_call(to, cuMemcpyPeerAsync, (CUdeviceptr)made->data, to->context,
                 (CUdeviceptr)value->data, from->context, tensor_size_bytes(value), to->compute));
    gpu_count_enqueued(to);
    gpu_count_copy(to, DEVICE_FROM_PEER_DIRECT, tensor_size_bytes(value));
    struct status *st = gpu_record(to, &release->ready, &release->number);
    if (st)
        gpu_drain(to, to->compute);
    return st;
}

static struct status *copy_between(struct gpu_device *from, struct gpu_device *to,
                                   struct device_copy *copy, struct tensor *made) {
    CUevent ready;
    uint64_t number;
    TRY(new_destination(to, &copy->from, to->compute, NULL, made));
    TRY(gpu_lock(from));
    struct status *st = gpu_record(from, &ready, &number);
    gpu_unlock(from);
    if (st)
        return st;
    struct gpu_job *release = xcalloc(1, sizeof *release);
    release->run = run_release;
    st = gpu_lock(to);
    if (!st) {
        st = enqueue_peer_copy(to, from, ready, &copy->from, made, release);
        gpu_unlock(to);
    }
    gpu_event_put(from, ready);
    if (st) {
        free(release);
        return st;
    }
    gpu_job_hold_take(release, &copy->from); /* until the copy has ended */
    gpu_copier_submit(&to->out, release);
    return NULL;
}

/* Between devices that do not reach each other: the value on `to`, whose memory the bridge's stream
 * may write once what used it before has ended. */
static struct status *copy_over(struct gpu_copier *copier, struct gpu_job *job,
                                struct tensor *made) {
    struct gpu_device *to = job->to;
    struct gpu_job after = {.ready = NULL}; /* its event is of `to` */
    struct gpu_bridge *bridge;
    size_t size_bytes = tensor_size_bytes(&job->held);
    TRY(gpu_need_pieces(copier, size_bytes));
    TRY(follow_compute(copier, job));
    TRY(gpu_peers_bridge(to, copier->gpu, &bridge));
    TRY(new_destination(to, &job->held, bridge->stream, &after, made));
    struct status *st =
        after.ready ? gpu_call(to, cuStreamWaitEvent, bridge->stream, after.ready, 0) : NULL;
    if (after.ready)
        gpu_event_put(to, after.ready);
    if (st)
        return st;
    if (to->checker) /* the memory is new for this stream */
        to->checker->block_allocated((CUdeviceptr)made->buffer->data, made->buffer->size_bytes,
                                     bridge->stream);
    gpu_count_copy(to, DEVICE_FROM_PEER_STAGED, size_bytes);
    return gpu_peers_copy(&(struct gpu_peer_copy){.copier = copier,
                                                  .to = to,
                                                  .bridge = bridge,
                                                  .from_data = job->held.data,
                                                  .to_data = made->data,
                                                  .size_bytes = size_bytes,
                                                  .piece_bytes = GPU_PIECE_BYTES});
}

static void run_copy_over(struct gpu_copier *copier, struct gpu_job *job) {
    struct tensor made = TENSOR_INIT;
    struct status *st = job->status ? job->status : copy_over(copier, job, &made);
    if (!st)
        gpu_note_ended(copier->gpu, job->number);
    gpu_end_copy_take(copier, job, st, &made);
}

/* ---- the device's table ---- */

static bool ended(struct device_copy *copy, struct status *st) {
    copy->status = st;
    tensor_clear(&copy->from);
    return true;
}

/* The caller submits the job. */
static void take_copy(struct device_copy *copy, struct gpu_job *job) {
    job->copy = copy;
    job->allocator = copy->allocator;
    job->growing = copy->growing ? buffer_ref(copy->growing) : NULL;
    gpu_job_hold_take(job, &copy->from);
}

static bool submit(struct gpu_copier *copier, struct device_copy *copy, struct gpu_job *job) {
    take_copy(copy, job);
    gpu_copier_submit(copier, job);
    return false;
}

/* An event after all that the source was told to do. After a failure the copier ends the copy, so
 * that a caller sees one way only. */
static void record_ready(struct gpu_device *gpu, struct gpu_job *job) {
    job->status = gpu_lock(gpu);
    if (job->status)
        return;
    job->status = gpu_record(gpu, &job->ready, &job->number);
    gpu_unlock(gpu);
}

static bool start_between(struct device_copy *copy) {
    struct gpu_device *from = copy->src->state, *to = copy->dst->state;
    if (!gpu_reaches(to, from)) {
        struct gpu_job *job = xcalloc(1, sizeof *job);
        job->run = run_copy_over;
        job->to = to;
        record_ready(from, job);
        return submit(&from->large_out, copy, job);
    }
    struct tensor made = TENSOR_INIT;
    struct status *st = copy_between(from, to, copy, &made);
    if (st)
        tensor_clear(&made);
    else
        tensor_move(copy->ret, &made);
    return ended(copy, st);
}

static bool is_growing(const struct tensor *value) {
    return value->storage == TENSOR_BUFFER && buffer_is_growing(value->buffer);
}

static bool start_in(struct gpu_device *gpu, struct device_copy *copy) {
    if (tensor_size_bytes(&copy->from) <= GPU_SMALL_BYTES)
        return ended(copy, copy_in_now(gpu, copy));
    struct gpu_job *job = xcalloc(1, sizeof *job);
    if (is_growing(&copy->from)) {
        take_copy(copy, job);
        gpu_arriving_start(gpu, job);
        return false;
    }
    job->run = gpu_run_copy_in;
    return submit(&gpu->in, copy, job);
}

static bool start_out(struct gpu_device *gpu, struct device_copy *copy) {
    if (gpu_outbox_add(gpu, copy))
        return false;
    struct gpu_job *job = xcalloc(1, sizeof *job);
    job->run = run_copy_out;
    record_ready(gpu, job);
    if (!job->status) /* the copy reads what was never computed */
        job->status = gpu_segments_see_failure(gpu, copy->owner);
    bool is_large = tensor_size_bytes(&copy->from) > LARGE_OUT_BYTES;
    return submit(is_large ? &gpu->large_out : &gpu->out, copy, job);
}

/* A GPU that could not be opened has no threads that copy. */
static struct status *check_opened(const struct device *device) {
    struct gpu_device *gpu = device ? device->state : NULL;
    return gpu && gpu->is_stopped ? gpu_enter(gpu) : NULL;
}

static bool copy_start(struct device *device, struct device_copy *copy) {
    struct status *st = check_opened(copy->dst);
    if (!st)
        st = check_opened(copy->src);
    if (st)
        return ended(copy, st);
    if (copy->src && copy->dst && copy->src != copy->dst)
        return start_between(copy);
    return copy->dst ? start_in(device->state, copy) : start_out(device->state, copy);
}

/* ---- uploads ---- */

struct upload {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool has_ended;
    struct device_copy copy;
};

static void on_uploaded(struct device_copy *copy) {
    struct upload *upload = CONTAINER_OF(copy, struct upload, copy);
    pthread_mutex_lock(&upload->lock);
    upload->has_ended = true;
    pthread_cond_signal(&upload->changed);
    pthread_mutex_unlock(&upload->lock);
}

static struct status *upload(struct device *device, const struct tensor *value,
                             struct tensor *ret) {
    TRY(check_opened(device));
    struct upload upload = {.copy = {.dst = device, .ret = ret, .on_done = on_uploaded}};
    pthread_mutex_init(&upload.lock, NULL);
    pthread_cond_init(&upload.changed, NULL);
    tensor_copy(&upload.copy.from, value);
    if (!start_in(device->state, &upload.copy)) {
        pthread_mutex_lock(&upload.lock);
        while (!upload.has_ended)
            pthread_cond_wait(&upload.changed, &upload.lock);
        pthread_mutex_unlock(&upload.lock);
    }
    pthread_mutex_destroy(&upload.lock);
    pthread_cond_destroy(&upload.changed);
    return upload.copy.status;
}

/* ---- the table ---- */

static struct status *flush(struct device *device, const void *owner) {
    struct gpu_device *gpu = device->state;
    if (!gpu->segments.is_on) {
        gpu_reads_flush(gpu, owner);
        return NULL;
    }
    struct status *failure = gpu_lock_only(gpu); /* whoever waits for the device is told */
    if (!failure) {
        if (gpu->segments.n > 0 && gpu->segments.owner == owner)
            gpu_segments_end(gpu, DEVICE_ENDS_IDLE);
        gpu_unlock(gpu);
    } else {
        if (!atomic_load(&gpu->failure))
            log_event(EVENT_GPU_TROUBLE, "GPU %d: %s", gpu->ordinal, status_message(failure));
        gpu_outbox_fail(gpu, owner, failure);
    }
    status_unref(failure);
    failure = gpu_segments_take_failure(gpu, owner);
    gpu_reads_flush(gpu, owner);
    return failure;
}

static void read_counts(struct device *device, uint64_t *ret) {
    struct gpu_device *gpu = device->state;
    for (int i = 0; i < N_DEVICE_COUNTS; i++)
        ret[i] = atomic_load_explicit(&gpu->segments.counts[i], memory_order_relaxed);
    struct gpu_compiler_counts compiled = gpu_compiler_count(gpu->compiler);
    ret[DEVICE_MEMORY_CALLS] = atomic_load_explicit(&gpu->memory.n_calls, memory_order_relaxed);
    ret[DEVICE_MOVED] = atomic_load_explicit(&gpu->memory.n_moved, memory_order_relaxed);
    ret[DEVICE_COMPILED] = compiled.compiled;
    ret[DEVICE_NOT_COMPILED] = compiled.failed;
}

static bool is_far_ahead(struct device *device) { return gpu_is_far_ahead(device->state); }

static struct device_rates rates(const struct device *device) {
    return ((const struct gpu_device *)device->state)->rates;
}

static void describe(struct device *device, struct str *out) {
    const struct gpu_device *gpu = device->state;
    str_addf(out, "device: %d, name: %s, pci bus id: %s, compute capability: %d.%d", gpu->ordinal,
             gpu->name, gpu->bus_id, gpu->major, gpu->minor);
}

const struct device_ops gpu_device_ops = {.copy_start = copy_start,
                                          .upload = upload,
                                          .wait_start = gpu_wait_start,
                                          .flush = flush,
                                          .counts = read_counts,
                                          .is_far_ahead = is_far_ahead,
                                          .catch_up_start = gpu_catch_up_start,
                                          .trace_new = gpu_trace_new,
                                          .trace_begin = gpu_trace_begin,
                                          .trace_end = gpu_trace_end,
                                          .trace_read = gpu_trace_read,
                                          .trace_activity = gpu_trace_activity,
                                          .trace_free = gpu_trace_free,
                                          .failure = gpu_failure,
                                          .probe = gpu_probe,
                                          .export = &gpu_export,
                                          .describe = describe,
                                          .rates = rates};
