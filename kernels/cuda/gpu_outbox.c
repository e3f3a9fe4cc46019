/* Copies small values to the host as parts of segments (gpu_outbox.h). */
#include "kernels/cuda/gpu_outbox.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/base/map.h"
#include "kernels/cuda/gpu_copies.h"

_Static_assert(OUTBOX_SLOTS == 64, "a bit for each slot");

void gpu_outbox_init(struct gpu_device *gpu) {
    list_init(&gpu->outbox.waiting);
    pthread_mutex_init(&gpu->outbox.lock, NULL);
}

void gpu_outbox_close(struct gpu_device *gpu) {
    if (gpu->outbox.memory)
        gpu_give_back(gpu, cuMemFreeHost, gpu->outbox.memory);
}

void gpu_outbox_free(struct gpu_device *gpu) { pthread_mutex_destroy(&gpu->outbox.lock); }

/* ---- slots ---- */

/* With the outbox' lock. */
static bool has_memory(struct gpu_device *gpu) {
    struct gpu_outbox *box = &gpu->outbox;
    if (box->memory || box->is_off)
        return box->memory != NULL;
    struct status *st = gpu_pinned_new(gpu, OUTBOX_SLOTS * OUTBOX_SLOT_BYTES, &box->memory);
    box->is_off = st != NULL;
    if (st)
        log_event(EVENT_GPU_TROUBLE, "GPU %d: what steps fetch is not a part of their graphs: %s",
                  gpu->ordinal, status_message(st));
    status_unref(st);
    return !box->is_off;
}

/* The first free slot from the preferred one on, or -1. */
static int slot_take(struct gpu_device *gpu, uint64_t preferred) {
    struct gpu_outbox *box = &gpu->outbox;
    int found = -1;
    pthread_mutex_lock(&box->lock);
    for (uint64_t i = 0; i < OUTBOX_SLOTS && found < 0 && has_memory(gpu); i++) {
        uint64_t slot = (preferred + i) % OUTBOX_SLOTS;
        if (!(box->used_slots >> slot & 1))
            found = (int)slot;
    }
    if (found >= 0)
        box->used_slots |= UINT64_C(1) << found;
    pthread_mutex_unlock(&box->lock);
    return found;
}

static void slot_put(struct gpu_device *gpu, int slot) {
    pthread_mutex_lock(&gpu->outbox.lock);
    gpu->outbox.used_slots &= ~(UINT64_C(1) << slot);
    pthread_mutex_unlock(&gpu->outbox.lock);
}

static char *slot_memory(const struct gpu_device *gpu, int slot) {
    return gpu->outbox.memory + (size_t)slot * OUTBOX_SLOT_BYTES;
}

/* ---- on the copier's thread ---- */

static struct status *take_value(struct gpu_device *gpu, struct gpu_job *job) {
    size_t size_bytes = tensor_size_bytes(&job->made);
    struct status *st = gpu_call(gpu, cuEventSynchronize, job->ready);
    if (st) { /* the copy may still write to the slot */
        gpu_drain(gpu, gpu->compute);
        return st;
    }
    memcpy(tensor_data(&job->made), slot_memory(gpu, job->slot), size_bytes);
    gpu_count_copy(gpu, DEVICE_TO_HOST_STAGED, size_bytes);
    gpu_note_ended(gpu, job->number);
    return NULL;
}

static void run_job(struct gpu_copier *copier, struct gpu_job *job) {
    struct gpu_device *gpu = copier->gpu;
    struct tensor value = TENSOR_INIT;
    struct status *st = job->status;
    if (!st)
        st = take_value(gpu, job);
    if (job->slot >= 0)
        slot_put(gpu, job->slot);
    tensor_move(&value, &job->made);
    gpu_end_copy_take(copier, job, st, &value);
}

/* ---- parts of segments ---- */

struct outbox_args {
    char *to;
    const void *from;
    size_t size_bytes;
};

static struct status *enqueue_copy_out(struct gpu_device *gpu, const struct gpu_work *work,
                                       CUstream stream) {
    const struct outbox_args *args = work->args;
    return gpu_call(gpu, cuMemcpyDtoHAsync, args->to, (CUdeviceptr)args->from, args->size_bytes,
                    stream);
}

/* With the device's lock. The copy may end meanwhile. */
static void add_locked(struct gpu_device *gpu, struct gpu_job *job, const struct tensor *from) {
    const struct device_copy *copy = job->copy;
    struct outbox_args args = {slot_memory(gpu, job->slot), from->data, tensor_size_bytes(from)};
    struct gpu_work work = {
        .enqueue = enqueue_copy_out, .args = &args, .args_bytes = sizeof args, .node = copy->node};
    job->status = gpu_segments_add(gpu, copy->owner, &work);
    if (!job->status) /* then the copy reads what was never computed, and is left out */
        job->status = gpu_segments_see_failure(gpu, copy->owner);
    if (job->status) {
        gpu_copier_submit(&gpu->out, job);
        return;
    }
    pthread_mutex_lock(&gpu->outbox.lock);
    list_push_back(&gpu->outbox.waiting, &job->link);
    pthread_mutex_unlock(&gpu->outbox.lock);
    if (gpu->segments.n == 0) /* this was the last part of a graph */
        gpu_outbox_leave(gpu);
}

/* With the device's lock. */
static bool try_add(struct gpu_device *gpu, struct device_copy *copy) {
    uint64_t position = atomic_load_explicit(&gpu->segments.position, memory_order_relaxed);
    struct tensor made = TENSOR_INIT, from = TENSOR_INIT;
    int slot = slot_take(gpu, hash_mix(position, tensor_size_bytes(&copy->from)));
    if (slot < 0)
        return false;
    struct status *st =
        tensor_new(copy->allocator, (enum dtype)copy->from.dtype, tensor_shape(&copy->from), &made);
    if (st) { /* a copier says so */
        status_unref(st);
        slot_put(gpu, slot);
        return false;
    }
    struct gpu_job *job = xcalloc(1, sizeof *job);
    job->run = run_job;
    job->slot = slot;
    job->copy = copy;
    tensor_move(&job->made, &made);
    tensor_move(&from, &copy->from);
    add_locked(gpu, job, &from);
    tensor_clear(&from); /* like an input of a kernel that is enqueued */
    return true;
}

bool gpu_outbox_add(struct gpu_device *gpu, struct device_copy *copy) {
    if (!gpu->segments.is_on || !copy->may_wait || !copy->owner || copy->growing ||
        tensor_size_bytes(&copy->from) > OUTBOX_SLOT_BYTES)
        return false;
    struct status *st = gpu_lock_only(gpu);
    if (st) { /* a copier says so */
        status_unref(st);
        return false;
    }
    bool is_taken = try_add(gpu, copy);
    gpu_unlock(gpu);
    return is_taken;
}

void gpu_outbox_leave(struct gpu_device *gpu) {
    struct list leaving, *link;
    list_init(&leaving);
    pthread_mutex_lock(&gpu->outbox.lock);
    list_splice_back(&leaving, &gpu->outbox.waiting);
    pthread_mutex_unlock(&gpu->outbox.lock);
    while ((link = list_pop_front(&leaving))) {
        struct gpu_job *job = LIST_ENTRY(link, struct gpu_job, link);
        job->status = gpu_record(gpu, &job->ready, &job->number);
        if (!job->status)
            job->status = gpu_segments_see_failure(gpu, job->copy->owner);
        gpu_copier_submit(&gpu->out, job);
    }
}

void gpu_outbox_fail(struct gpu_device *gpu, const void *owner, struct status *st) {
    struct list failed, *link;
    list_init(&failed);
    pthread_mutex_lock(&gpu->outbox.lock);
    LIST_FOR_EACH_SAFE (at, next, &gpu->outbox.waiting)
        if (LIST_ENTRY(at, struct gpu_job, link)->copy->owner == owner) {
            list_remove(at);
            list_push_back(&failed, at);
        }
    pthread_mutex_unlock(&gpu->outbox.lock);
    while ((link = list_pop_front(&failed))) {
        struct gpu_job *job = LIST_ENTRY(link, struct gpu_job, link);
        job->status = status_ref(st);
        job->slot = -1;
        gpu_copier_submit(&gpu->out, job);
    }
}
