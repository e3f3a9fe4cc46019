/* Opens a GPU, and enqueues on its compute stream (gpu_device.h). */
#include "kernels/cuda/gpu_device.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "kernels/cuda/blas.h"
#include "kernels/cuda/images.h"

/* ---- contexts, errors, the lock ---- */

void gpu_set_current(struct gpu_device *gpu) {
    static _Thread_local struct gpu_device *current;
    if (likely(current == gpu))
        return;
    /* A failure shows in the call that needs the context. */
    if (gpu->api->cuCtxSetCurrent(gpu->context) == CUDA_SUCCESS)
        current = gpu;
}

static void keep_failure(struct gpu_device *gpu, struct status *st) {
    struct status *none = NULL,
                  *failure = status_prefix_take(
                      status_ref(st), "GPU %d (%s) has failed: ", gpu->ordinal, gpu->bus_id);
    if (atomic_compare_exchange_strong(&gpu->failure, &none, failure))
        log_error("%s", status_message(failure));
    else
        status_unref(failure);
}

struct status *gpu_check(struct gpu_device *gpu, CUresult error, const char *what) {
    if (likely(error == CUDA_SUCCESS))
        return NULL;
    struct status *st = driver_status(error, what);
    if (driver_error_is_sticky(error))
        keep_failure(gpu, st);
    return st;
}

struct status *gpu_lock(struct gpu_device *gpu) {
    struct status *failure = atomic_load_explicit(&gpu->failure, memory_order_acquire);
    if (unlikely(failure))
        return status_ref(failure);
    pthread_mutex_lock(&gpu->lock);
    gpu_set_current(gpu);
    return NULL;
}

void gpu_unlock(struct gpu_device *gpu) { pthread_mutex_unlock(&gpu->lock); }

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
        TRY(gpu_check(
            gpu, gpu->api->cuEventCreate(&event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING),
            "cuEventCreate"));
    struct status *st =
        gpu_check(gpu, gpu->api->cuEventRecord(event, gpu->compute), "cuEventRecord");
    if (st) {
        gpu->api->cuEventDestroy(event);
        return st;
    }
    *ret_event = event;
    *ret_number = atomic_load_explicit(&gpu->memory.enqueued, memory_order_relaxed);
    return NULL;
}

void gpu_event_put(struct gpu_device *gpu, CUevent event) {
    pthread_mutex_lock(&gpu->lock);
    bool is_kept = gpu->n_free_events < GPU_MAX_FREE_EVENTS;
    if (is_kept)
        gpu->free_events[gpu->n_free_events++] = event;
    pthread_mutex_unlock(&gpu->lock);
    if (!is_kept)
        gpu->api->cuEventDestroy(event);
}

/* ---- the stage ---- */

static struct status *stage_open(struct gpu_device *gpu) {
    struct gpu_stage *stage = &gpu->stage;
    for (int i = 0; i < GPU_STAGE_PARTS; i++)
        if (!stage->full[i])
            TRY(gpu_check(gpu,
                          gpu->api->cuEventCreate(&stage->full[i],
                                                  CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING),
                          "cuEventCreate"));
    return gpu_check(gpu,
                     gpu->api->cuMemHostAlloc((void **)&stage->memory,
                                              GPU_STAGE_PARTS * GPU_STAGE_PART_BYTES,
                                              CU_MEMHOSTALLOC_PORTABLE),
                     "cuMemHostAlloc");
}

/* Ends the part that is being filled, and waits until the next one may be overwritten. The compute
 * stream has then passed three parts of one MiB, so a wait is rare. */
static struct status *stage_next_part(struct gpu_device *gpu) {
    struct gpu_stage *stage = &gpu->stage;
    TRY(gpu_check(gpu, gpu->api->cuEventRecord(stage->full[stage->part], gpu->compute),
                  "cuEventRecord"));
    stage->is_full[stage->part] = true;
    stage->part = (stage->part + 1) % GPU_STAGE_PARTS;
    stage->used_bytes = 0;
    if (!stage->is_full[stage->part])
        return NULL;
    TRY(gpu_check(gpu, gpu->api->cuEventSynchronize(stage->full[stage->part]),
                  "cuEventSynchronize"));
    stage->is_full[stage->part] = false;
    return NULL;
}

static struct status *stage_piece(struct gpu_device *gpu, CUdeviceptr to, const void *from,
                                  size_t size_bytes) {
    struct gpu_stage *stage = &gpu->stage;
    if (!stage->memory)
        TRY(stage_open(gpu));
    if (size_bytes > GPU_STAGE_PART_BYTES - stage->used_bytes)
        TRY(stage_next_part(gpu));
    char *at = stage->memory + (size_t)stage->part * GPU_STAGE_PART_BYTES + stage->used_bytes;
    memcpy(at, from, size_bytes);
    TRY(gpu_check(gpu, gpu->api->cuMemcpyHtoDAsync(to, at, size_bytes, gpu->compute),
                  "a copy to the device"));
    stage->used_bytes += (size_bytes + gpu->alignment - 1) / gpu->alignment * gpu->alignment;
    gpu_count_enqueued(gpu);
    return NULL;
}

struct status *gpu_stage_in(struct gpu_device *gpu, CUdeviceptr to, const void *from,
                            size_t size_bytes) {
    for (size_t done = 0; done < size_bytes;) {
        size_t piece = MIN(size_bytes - done, (size_t)GPU_STAGE_PART_BYTES);
        TRY(stage_piece(gpu, to + done, (const char *)from + done, piece));
        done += piece;
    }
    return NULL;
}

static void stage_close(struct gpu_device *gpu) {
    for (int i = 0; i < GPU_STAGE_PARTS; i++)
        if (gpu->stage.full[i])
            gpu->api->cuEventDestroy(gpu->stage.full[i]);
    if (gpu->stage.memory)
        gpu->api->cuMemFreeHost(gpu->stage.memory);
}

/* ---- life ---- */

static int attribute(const struct gpu_device *gpu, CUdevice_attribute which, int fallback) {
    int value;
    if (gpu->api->cuDeviceGetAttribute(&value, which, gpu->cuda_device) != CUDA_SUCCESS)
        return fallback;
    return value;
}

static struct status *read_properties(struct gpu_device *gpu) {
    const struct driver_api *api = gpu->api;
    TRY(gpu_check(gpu, api->cuDeviceGet(&gpu->cuda_device, gpu->ordinal), "cuDeviceGet"));
    TRY(gpu_check(gpu, api->cuDeviceGetName(gpu->name, sizeof gpu->name, gpu->cuda_device),
                  "cuDeviceGetName"));
    TRY(gpu_check(gpu, api->cuDeviceGetPCIBusId(gpu->bus_id, sizeof gpu->bus_id, gpu->cuda_device),
                  "cuDeviceGetPCIBusId"));
    gpu->major = attribute(gpu, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 0);
    gpu->minor = attribute(gpu, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0);
    gpu->alignment = (size_t)attribute(gpu, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512);
    int n_multiprocessors = attribute(gpu, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 1);
    int n_threads = attribute(gpu, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 1024);
    gpu->n_busy_blocks = (unsigned)(n_multiprocessors * (n_threads / GPU_BLOCK_THREADS));
    return NULL;
}

static struct status *open_context(struct gpu_device *gpu) {
    const struct driver_api *api = gpu->api;
    TRY(gpu_check(gpu,
                  api->cuDevicePrimaryCtxSetFlags(gpu->cuda_device, CU_CTX_SCHED_BLOCKING_SYNC),
                  "cuDevicePrimaryCtxSetFlags"));
    TRY(gpu_check(gpu, api->cuDevicePrimaryCtxRetain(&gpu->context, gpu->cuda_device),
                  "cuDevicePrimaryCtxRetain"));
    TRY(gpu_check(gpu, api->cuCtxSetCurrent(gpu->context), "cuCtxSetCurrent"));
    gpu_set_current(gpu);
    return gpu_check(gpu, api->cuStreamCreateWithPriority(&gpu->compute, CU_STREAM_NON_BLOCKING, 0),
                     "cuStreamCreateWithPriority");
}

static struct status *open_memory(struct gpu_device *gpu, int64_t limit_bytes) {
    size_t free_bytes, total_bytes;
    TRY(gpu_check(gpu, gpu->api->cuMemGetInfo(&free_bytes, &total_bytes), "cuMemGetInfo"));
    size_t limit = limit_bytes > 0 ? (size_t)limit_bytes : free_bytes / 100 * 92;
    TRY(gpu_memory_init(&gpu->memory, gpu->api, gpu->cuda_device, MIN(limit, total_bytes)));
    gpu->allocator.limit_bytes = (int64_t)gpu->memory.limit_bytes;
    return NULL;
}

/* A simulated device ignores the image that it is given, but wants one. */
static struct status *load_images(struct gpu_device *gpu) {
    static const void *const simulated[] = {"no image"};
    const void *const *images = n_gpu_images > 0 ? gpu_images : simulated;
    size_t n = MAX(n_gpu_images, (size_t)1);
    gpu->libraries = xcalloc(n, sizeof *gpu->libraries);
    for (size_t i = 0; i < n; i++) {
        TRY(gpu_check(gpu,
                      gpu->api->cuLibraryLoadData(&gpu->libraries[i], images[i], NULL, NULL, 0,
                                                  NULL, NULL, 0),
                      "loading the kernels"));
        gpu->n_libraries++;
    }
    return NULL;
}

static struct status *device_open(struct gpu_device *gpu,
                                  const struct gpu_device_options *options) {
    TRY(read_properties(gpu));
    TRY(open_context(gpu));
    TRY(open_memory(gpu, options->memory_limit_bytes));
    TRY(load_images(gpu));
    return gpu_copiers_start(gpu);
}

struct status *gpu_device_new(const struct gpu_device_options *options, struct gpu_device **ret) {
    struct gpu_device *gpu = xcalloc(1, sizeof *gpu);
    gpu->api = options->api;
    gpu->checker = options->checker;
    gpu->ordinal = options->ordinal;
    pthread_mutex_init(&gpu->lock, NULL);
    strmap_init(&gpu->functions);
    strmap_init(&gpu->products);
    gpu_allocator_init(gpu, options->engine);
    struct status *st = device_open(gpu, options);
    if (st) {
        gpu_device_free(gpu);
        return status_prefix_take(st, "GPU %d: ", options->ordinal);
    }
    *ret = gpu;
    return NULL;
}

void gpu_device_free(struct gpu_device *gpu) {
    if (!gpu)
        return;
    gpu_copiers_stop(gpu);
    if (gpu->context) {
        gpu_set_current(gpu);
        if (gpu->compute)
            gpu->api->cuStreamSynchronize(gpu->compute);
        stage_close(gpu);
        for (int i = 0; i < gpu->n_free_events; i++)
            gpu->api->cuEventDestroy(gpu->free_events[i]);
        gpu_blas_close(gpu);
        for (size_t i = 0; i < gpu->n_libraries; i++)
            gpu->api->cuLibraryUnload(gpu->libraries[i]);
        gpu_memory_fini(&gpu->memory);
        if (gpu->compute)
            gpu->api->cuStreamDestroy(gpu->compute);
        gpu->api->cuDevicePrimaryCtxRelease(gpu->cuda_device);
    }
    free(gpu->libraries);
    gpu_functions_free(gpu);
    gpu_allocator_fini(gpu);
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
