/* Opens a GPU, and enqueues on its compute stream (gpu_device.h). */
#include "kernels/cuda/gpu_device.h"

#include <stdlib.h>
#include <time.h>

#include "common/base/log.h"
#include "kernels/cuda/blas.h"
#include "kernels/cuda/compiler.h"
#include "kernels/cuda/dnn.h"
#include "kernels/cuda/gpu_host_memory.h"
#include "kernels/cuda/gpu_outbox.h"
#include "kernels/cuda/gpu_peers.h"
#include "kernels/cuda/gpu_pageable.h"
#include "kernels/cuda/gpu_trace.h"
#include "kernels/cuda/gpu_xid.h"

/* ---- contexts, errors, the lock ---- */

/* Every launch reads this, and a loaded library would call a function to find it. */
static _Thread_local struct gpu_device *current __attribute__((tls_model("initial-exec")));

static COLD struct status *change_current(struct gpu_device *gpu) {
    TRY(gpu_call(gpu, cuCtxSetCurrent, gpu->context));
    current = gpu;
    return NULL;
}

struct status *gpu_set_current(struct gpu_device *gpu) {
    return likely(current == gpu) ? NULL : change_current(gpu);
}

void gpu_try_set_current(struct gpu_device *gpu) {
    struct status *st = gpu_set_current(gpu);
    if (st)
        log_event(EVENT_GPU_TROUBLE, "GPU %d: %s", gpu->ordinal, status_message(st));
    status_unref(st);
}

struct status *gpu_enter(struct gpu_device *gpu) {
    struct status *failure = atomic_load_explicit(&gpu->failure, memory_order_acquire);
    return unlikely(failure) ? status_ref(failure) : gpu_set_current(gpu);
}

/* ThreadSanitizer does not see pthread_mutex_clocklock, and would report all that the lock guards.
 */
static bool lock_within_a_second(pthread_mutex_t *lock) {
    struct timespec until;
#ifdef __SANITIZE_THREAD__
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    return pthread_mutex_timedlock(lock, &until) == 0;
#else
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    return pthread_mutex_clocklock(lock, CLOCK_MONOTONIC, &until) == 0;
#endif
}

/* Waits for the lock, but not behind a thread that hangs in the driver. */
static COLD struct status *wait_for_lock(struct gpu_device *gpu) {
    for (;;) {
        if (lock_within_a_second(&gpu->lock))
            return NULL;
        struct status *failure = atomic_load_explicit(&gpu->failure, memory_order_acquire);
        if (failure)
            return status_ref(failure);
    }
}

struct status *gpu_lock_only(struct gpu_device *gpu) {
    TRY(gpu_enter(gpu));
    if (unlikely(pthread_mutex_trylock(&gpu->lock) != 0))
        TRY(wait_for_lock(gpu));
    uint64_t n = atomic_load_explicit(&gpu->n_locked, memory_order_relaxed);
    atomic_store_explicit(&gpu->n_locked, n + 1, memory_order_relaxed);
    return NULL;
}

bool gpu_lock_always(struct gpu_device *gpu) {
    while (!lock_within_a_second(&gpu->lock))
        if (atomic_load_explicit(&gpu->failure, memory_order_acquire))
            return false;
    return true;
}

struct status *gpu_lock_for(struct gpu_device *gpu, enum device_count why) {
    TRY(gpu_lock_only(gpu));
    if (gpu->segments.n > 0)
        gpu_segments_end(gpu, why);
    if (unlikely(gpu->traces))
        gpu_trace_touch(gpu);
    return NULL;
}

struct status *gpu_lock(struct gpu_device *gpu) {
    return gpu_lock_for(gpu, DEVICE_ENDS_OTHER_USE);
}

void gpu_unlock(struct gpu_device *gpu) { pthread_mutex_unlock(&gpu->lock); }

void gpu_drain(struct gpu_device *gpu, CUstream stream) {
    enum { TRIES = 3 };
    CUresult error = CUDA_SUCCESS;
    if (atomic_load(&gpu->is_hung)) /* the call would not return either */
        return;
    for (int i = 0; i < TRIES; i++) {
        error = gpu->api->cuStreamSynchronize(stream);
        if (error == CUDA_SUCCESS)
            return;
        driver_note(error, "cuStreamSynchronize");
    }
    status_unref(gpu_fail_take(gpu, driver_status(error, "cuStreamSynchronize")));
}

void gpu_note_ended(struct gpu_device *gpu, uint64_t number) {
    uint64_t before = atomic_load_explicit(&gpu->ended, memory_order_relaxed);
    while (before < number && !atomic_compare_exchange_weak(&gpu->ended, &before, number))
        ;
}

/* ---- events ---- */

struct status *gpu_record(struct gpu_device *gpu, CUevent *ret_event, uint64_t *ret_number) {
    CUevent event;
    if (gpu->n_free_events > 0)
        event = gpu->free_events[--gpu->n_free_events];
    else
        TRY(gpu_call(gpu, cuEventCreate, &event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING));
    struct status *st = gpu_call(gpu, cuEventRecord, event, gpu->compute);
    if (st) {
        gpu_give_back(gpu, cuEventDestroy, event);
        return st;
    }
    *ret_event = event;
    *ret_number = atomic_load_explicit(&gpu->memory.enqueued, memory_order_relaxed);
    return NULL;
}

static void event_put(struct gpu_device *gpu, CUevent event) {
    if (gpu->n_free_events < GPU_MAX_FREE_EVENTS)
        gpu->free_events[gpu->n_free_events++] = event;
    else
        gpu_give_back(gpu, cuEventDestroy, event);
}

void gpu_event_put(struct gpu_device *gpu, CUevent event) {
    if (pthread_mutex_trylock(&gpu->lock) != 0) {
        struct status *failure = wait_for_lock(gpu);
        if (failure) { /* the event is lost with the device */
            status_unref(failure);
            return;
        }
    }
    event_put(gpu, event);
    pthread_mutex_unlock(&gpu->lock);
}

/* ---- marks ---- */

static void mark_clear(struct gpu_device *gpu, struct gpu_mark *mark) {
    if (mark->event)
        event_put(gpu, mark->event);
    mark->event = NULL;
}

void gpu_mark(struct gpu_device *gpu, uint64_t number) {
    struct gpu_mark *mark = &gpu->marks[number / GPU_MARK_EVERY % ARRAY_LEN(gpu->marks)];
    mark_clear(gpu, mark);
    gpu->marked = number;
    struct status *st = gpu_record(gpu, &mark->event, &mark->number);
    if (!st)
        return;
    mark->event = NULL; /* who waits uses another one */
    log_event(EVENT_GPU_TROUBLE, "GPU %d: %s", gpu->ordinal, status_message(st));
    status_unref(st);
}

/* Clears the marks that the device has passed. */
static struct status *marks_look(struct gpu_device *gpu) {
    for (size_t i = 0; i < ARRAY_LEN(gpu->marks); i++) {
        struct gpu_mark *mark = &gpu->marks[i];
        if (!mark->event)
            continue;
        bool has_passed = mark->number <= atomic_load_explicit(&gpu->ended, memory_order_acquire);
        if (!has_passed) {
            CUresult error = gpu->api->cuEventQuery(mark->event);
            if (error == CUDA_ERROR_NOT_READY)
                continue;
            TRY(gpu_check(gpu, error, "cuEventQuery"));
            gpu_note_ended(gpu, mark->number);
        }
        mark_clear(gpu, mark);
    }
    return NULL;
}

struct status *gpu_mark_take(struct gpu_device *gpu, CUevent *ret_event, uint64_t *ret_number) {
    struct gpu_mark *best = NULL;
    *ret_event = NULL;
    TRY(marks_look(gpu));
    if (!gpu_is_far_ahead(gpu))
        return NULL;
    uint64_t wanted = atomic_load_explicit(&gpu->given, memory_order_relaxed) - GPU_MAX_AHEAD / 2;
    for (size_t i = 0; i < ARRAY_LEN(gpu->marks); i++) {
        struct gpu_mark *mark = &gpu->marks[i];
        if (mark->event && mark->number >= wanted && (!best || mark->number < best->number))
            best = mark;
    }
    if (!best) { /* others wait for them; an event comes after what is held back */
        if (gpu->segments.candidate)
            gpu_segments_end(gpu, DEVICE_ENDS_IDLE);
        return gpu_record(gpu, ret_event, ret_number);
    }
    *ret_event = best->event;
    *ret_number = best->number;
    best->event = NULL;
    return NULL;
}

/* ---- life ---- */

static struct status *read_attribute(struct gpu_device *gpu, CUdevice_attribute which, int *ret) {
    return gpu_call(gpu, cuDeviceGetAttribute, ret, which, gpu->cuda_device);
}

/* 0: the driver does not say. */
static double attribute_or_zero(const struct gpu_device *gpu, CUdevice_attribute which) {
    int value = 0;
    CUresult error = gpu->api->cuDeviceGetAttribute(&value, which, gpu->cuda_device);
    return error == CUDA_SUCCESS && value > 0 ? value : 0;
}

/* Peaks. A multiprocessor begins a multiply-add of as many float32 in each cycle as it has lanes
 * (NVIDIA, "CUDA C++ Programming Guide", "Throughput of Native Arithmetic Instructions"); memory
 * moves two words of the bus in one. */
static struct device_rates read_rates(const struct gpu_device *gpu, int n_multiprocessors) {
    double kilohertz = attribute_or_zero(gpu, CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
           memory_kilohertz = attribute_or_zero(gpu, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
           bus_bits = attribute_or_zero(gpu, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
    int n_lanes = gpu->major < 8 || (gpu->major == 8 && gpu->minor == 0) ? 64 : 128;
    return (struct device_rates){.flops_per_second =
                                     n_multiprocessors * n_lanes * 2 * kilohertz * 1e3,
                                 .bytes_per_second = memory_kilohertz * 1e3 * 2 * bus_bits / 8};
}

static struct status *read_properties(struct gpu_device *gpu) {
    int alignment, n_multiprocessors, n_threads;
    TRY(gpu_call(gpu, cuDeviceGet, &gpu->cuda_device, gpu->ordinal));
    TRY(gpu_call(gpu, cuDeviceGetName, gpu->name, sizeof gpu->name, gpu->cuda_device));
    TRY(gpu_call(gpu, cuDeviceGetPCIBusId, gpu->bus_id, sizeof gpu->bus_id, gpu->cuda_device));
    TRY(read_attribute(gpu, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &gpu->major));
    TRY(read_attribute(gpu, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &gpu->minor));
    TRY(read_attribute(gpu, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, &alignment));
    TRY(read_attribute(gpu, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &n_multiprocessors));
    TRY(read_attribute(gpu, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, &n_threads));
    gpu->alignment = (size_t)alignment;
    gpu->n_busy_blocks = (unsigned)(n_multiprocessors * (n_threads / GPU_BLOCK_THREADS));
    gpu->rates = read_rates(gpu, n_multiprocessors);
    return NULL;
}

static struct status *open_context(struct gpu_device *gpu) {
    TRY(gpu_call(gpu, cuDevicePrimaryCtxSetFlags, gpu->cuda_device, CU_CTX_SCHED_BLOCKING_SYNC));
    TRY(gpu_call(gpu, cuDevicePrimaryCtxRetain, &gpu->context, gpu->cuda_device));
    TRY(gpu_set_current(gpu));
    return gpu_call(gpu, cuStreamCreateWithPriority, &gpu->compute, CU_STREAM_NON_BLOCKING, 0);
}

static struct status *open_memory(struct gpu_device *gpu, int64_t limit_bytes) {
    size_t free_bytes, total_bytes;
    TRY(gpu_call(gpu, cuMemGetInfo, &free_bytes, &total_bytes));
    size_t limit = limit_bytes > 0 ? (size_t)limit_bytes : free_bytes / 100 * 92;
    TRY(gpu_memory_init(&gpu->memory, gpu->api, gpu->cuda_device, MIN(limit, total_bytes)));
    gpu->allocator.limit_bytes = (int64_t)gpu->memory.limit_bytes;
    return NULL;
}

static struct status *device_open(struct gpu_device *gpu,
                                  const struct gpu_device_options *options) {
    TRY(read_properties(gpu));
    gpu->xid = gpu_xid_new(gpu->bus_id, gpu->checker ? gpu->checker->library : NULL);
    TRY(open_context(gpu));
    TRY(open_memory(gpu, options->memory_limit_bytes));
    TRY(gpu_export_init(gpu));
    TRY(gpu_images_load(gpu));
    return gpu_copiers_start(gpu);
}

/* Gives back what the driver has made for the device. */
static void close_context(struct gpu_device *gpu) {
    if (!gpu->context)
        return;
    gpu_try_set_current(gpu);
    gpu_copiers_free(gpu);
    if (gpu->compute)
        gpu_drain(gpu, gpu->compute);
    gpu_host_memory_forget(gpu);
    gpu_peers_close(gpu);
    gpu_segments_fini(gpu);
    gpu_stage_close(gpu);
    gpu_outbox_close(gpu);
    for (size_t i = 0; i < ARRAY_LEN(gpu->marks); i++)
        mark_clear(gpu, &gpu->marks[i]);
    for (int i = 0; i < gpu->n_free_events; i++)
        gpu_give_back(gpu, cuEventDestroy, gpu->free_events[i]);
    gpu_blas_close(gpu);
    gpu_dnn_free(gpu->dnn);
    gpu->dnn = NULL;
    gpu_compiler_free(gpu->compiler);
    gpu->compiler = NULL;
    for (size_t i = 0; i < gpu->n_libraries; i++)
        gpu_give_back(gpu, cuLibraryUnload, gpu->libraries[i]);
    gpu->n_libraries = 0;
    gpu_memory_fini(&gpu->memory);
    if (gpu->compute)
        gpu_give_back(gpu, cuStreamDestroy, gpu->compute);
    gpu->compute = NULL;
    gpu_give_back(gpu, cuDevicePrimaryCtxRelease, gpu->cuda_device);
    gpu->context = NULL;
    if (current == gpu) /* another device may get the same address */
        current = NULL;
}

/* A device that cannot be opened keeps its number, and has failed from the beginning. */
static void keep_closed_take(struct gpu_device *gpu, struct status *st) {
    st = status_prefix_take(st, "it could not be opened: ");
    status_unref(gpu_fail_take(gpu, st));
    gpu_device_stop(gpu);
    close_context(gpu);
}

struct status *gpu_device_new(const struct gpu_device_options *options, struct gpu_device **ret) {
    struct gpu_device *gpu = xcalloc(1, sizeof *gpu);
    gpu->api = options->api;
    gpu->checker = options->checker;
    gpu->ordinal = options->ordinal;
    gpu->n_copy_threads = options->n_copy_threads > 0
                              ? MIN(options->n_copy_threads, (int)GPU_MAX_COPY_THREADS)
                              : gpu_copy_threads();
    pthread_mutex_init(&gpu->lock, NULL);
    strmap_init(&gpu->functions);
    strmap_init(&gpu->products);
    gpu->dnn = gpu_dnn_new();
    gpu->compiler = gpu_compiler_new(gpu);
    gpu_allocator_init(gpu, options->engine);
    gpu_segments_init(gpu, options->has_graphs);
    gpu_outbox_init(gpu);
    gpu_reads_init(gpu);
    struct status *st = device_open(gpu, options);
    if (st && status_code(st) == STATUS_UNIMPLEMENTED) {
        gpu_device_free(gpu);
        return status_prefix_take(st, "GPU %d: ", options->ordinal);
    }
    if (st)
        keep_closed_take(gpu, st);
    *ret = gpu;
    return NULL;
}

/* A compile lasts seconds at most. One that hangs would use what is freed. */
static void stop_compiler(struct gpu_device *gpu) {
    static const int64_t PATIENCE_NS = INT64_C(10000000000);
    if (gpu_compiler_stop(gpu->compiler, PATIENCE_NS))
        return;
    log_event(EVENT_GPU_TROUBLE,
              "GPU %d: a kernel was not compiled within %lld s, so nothing of the device is freed",
              gpu->ordinal, (long long)(PATIENCE_NS / 1000000000));
    atomic_store(&gpu->is_hung, true);
}

void gpu_device_stop(struct gpu_device *gpu) {
    if (!gpu || gpu->is_stopped)
        return;
    gpu->is_stopped = true;
    if (!atomic_load(&gpu->is_hung))
        stop_compiler(gpu);
    if (atomic_load(&gpu->is_hung)) {
        gpu_compiler_detach(gpu->compiler);
        gpu_copiers_detach(gpu);
    } else {
        gpu_copiers_stop(gpu);
    }
}

void gpu_device_free(struct gpu_device *gpu) {
    gpu_device_stop(gpu);
    if (!gpu || atomic_load(&gpu->is_hung))
        return;
    close_context(gpu);
    gpu_dnn_free(gpu->dnn);
    gpu_compiler_free(gpu->compiler);
    gpu_xid_free(gpu->xid);
    free(gpu->libraries);
    gpu_functions_free(gpu);
    gpu_segments_free(gpu);
    gpu_outbox_free(gpu);
    gpu_reads_free(gpu);
    status_unref(gpu->failure);
    pthread_mutex_destroy(&gpu->lock);
    free(gpu);
}

void gpu_device_bind(struct gpu_device *gpu, struct device *device) {
    gpu->device = device;
    gpu->allocator.name = device->full_name;
    device->type = "GPU";
    device->ops = &gpu_device_ops;
    device->allocator = &gpu->allocator;
    device->memory_limit_bytes = (int64_t)gpu->memory.limit_bytes;
    device->state = gpu;
}
