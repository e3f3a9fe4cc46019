/* Keeps the table of registered host memory (gpu_host_memory.h).
 *
 *   used ──unuse──► idle ──use──► used          idle, and its pages are released: unregistered
 *    │ its pages are released
 *    ▼
 *   stale ──last unuse──► unregistered          no new user; a new range may not overlap it */
#include "kernels/cuda/gpu_host_memory.h"

#include <stdlib.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/tensor/shared_areas.h"

struct gpu_host_range {
    uintptr_t begin, end;
    struct gpu_device *gpu; /* whose context has registered it */
    int n_users;
    bool is_stale, is_read_only;
    uint64_t used; /* when it was last used, counted in uses */
};

static struct {
    pthread_mutex_t lock; /* guards all of this; held during calls of the driver */
    struct gpu_host_range *ranges[GPU_MAX_HOST_RANGES];
    size_t n, size_bytes;
    uint64_t n_uses;
    bool has_failed[2]; /* by is_read_only: nothing of this kind is registered any more */
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- with the lock ---- */

/* A device that has failed, or hangs, is told nothing more. */
static void unregister(size_t at) {
    struct gpu_host_range *range = table.ranges[at];
    struct gpu_device *gpu = range->gpu;
    if (!atomic_load(&gpu->failure) && !atomic_load(&gpu->is_hung)) {
        gpu_try_set_current(gpu);
        gpu_give_back(gpu, cuMemHostUnregister,
                      (void *)range->begin); /* NOLINT(performance-no-int-to-ptr) */
    }
    table.size_bytes -= range->end - range->begin;
    table.ranges[at] = table.ranges[--table.n];
    free(range);
}

static bool overlaps(const struct gpu_host_range *range, uintptr_t begin, uintptr_t end) {
    return range->begin < end && begin < range->end;
}

/* What a device has registered that has failed since serves nobody. */
static struct gpu_host_range *find_whole(uintptr_t begin, uintptr_t end) {
    for (size_t i = 0; i < table.n; i++) {
        struct gpu_host_range *range = table.ranges[i];
        if (range->begin <= begin && end <= range->end && !range->is_stale &&
            !atomic_load(&range->gpu->failure))
            return range;
    }
    return NULL;
}

/* Grows a new range by those that it overlaps, and unregisters them. False: one is used. */
static bool join(struct gpu_host_range *range) {
    for (size_t i = 0; i < table.n;) {
        const struct gpu_host_range *other = table.ranges[i];
        if (!overlaps(other, range->begin, range->end)) {
            i++;
            continue;
        }
        if (other->n_users > 0)
            return false;
        range->begin = MIN(range->begin, other->begin);
        range->end = MAX(range->end, other->end);
        unregister(i);
        i = 0;
    }
    return true;
}

/* Unregisters what was not used for the longest time, until there is a place. */
static bool make_place(size_t size_bytes) {
    while (table.n == GPU_MAX_HOST_RANGES ||
           table.size_bytes + size_bytes > GPU_MAX_HOST_RANGE_BYTES) {
        size_t oldest = table.n;
        for (size_t i = 0; i < table.n; i++)
            if (table.ranges[i]->n_users == 0 &&
                (oldest == table.n || table.ranges[i]->used < table.ranges[oldest]->used))
                oldest = i;
        if (oldest == table.n)
            return false;
        unregister(oldest);
    }
    return true;
}

static void note_failure_take(const struct gpu_host_range *range, struct status *st) {
    table.has_failed[range->is_read_only] = true;
    log_event(EVENT_GPU_TROUBLE,
              "GPU %d: %s memory that tasks share cannot be registered, so it is copied through "
              "pinned memory from now on: %s",
              range->gpu->ordinal, range->is_read_only ? "the peers'" : "the task's own",
              status_message(st));
    status_unref(st);
}

/* A driver that does not know the attribute does not support it. */
static struct status *ask_support(struct gpu_device *gpu, bool is_read_only, int *ret) {
    CUresult error = gpu->api->cuDeviceGetAttribute(
        ret,
        is_read_only ? CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED
                     : CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
        gpu->cuda_device);
    return error == CUDA_ERROR_INVALID_VALUE ? NULL : gpu_check(gpu, error, "cuDeviceGetAttribute");
}

static struct status *register_range(const struct gpu_host_range *range) {
    struct gpu_device *gpu = range->gpu;
    unsigned flags = CU_MEMHOSTREGISTER_PORTABLE |
                     (range->is_read_only ? (unsigned)CU_MEMHOSTREGISTER_READ_ONLY : 0);
    int is_supported = 0;
    TRY(ask_support(gpu, range->is_read_only, &is_supported));
    if (!is_supported)
        return status_new(STATUS_UNIMPLEMENTED, "the driver does not support it");
    return gpu_call(gpu, cuMemHostRegister,
                    (void *)range->begin, /* NOLINT(performance-no-int-to-ptr) */
                    range->end - range->begin, flags);
}

/* NULL: there is no place, or the driver refuses. */
static struct gpu_host_range *add_range(const struct gpu_host_range *wanted) {
    struct gpu_host_range made = *wanted;
    if (table.has_failed[made.is_read_only] || !join(&made) || !make_place(made.end - made.begin))
        return NULL;
    gpu_try_set_current(made.gpu);
    struct status *st = register_range(&made);
    if (st) {
        note_failure_take(&made, st);
        return NULL;
    }
    struct gpu_host_range *range = xmalloc(sizeof *range);
    *range = made;
    table.ranges[table.n++] = range;
    table.size_bytes += range->end - range->begin;
    return range;
}

/* ---- uses ---- */

/* The pages of the value's buffer that are in the area. */
static struct gpu_host_range range_of(struct gpu_device *gpu, const struct buffer *buffer,
                                      const struct shared_area *area) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), base = (uintptr_t)area->base,
              begin = (uintptr_t)buffer->data & ~(page - 1),
              end = ((uintptr_t)buffer->data + buffer->size_bytes + page - 1) & ~(page - 1);
    return (struct gpu_host_range){.begin = MAX(begin, base),
                                   .end = MIN(end, base + area->size_bytes),
                                   .gpu = gpu,
                                   .is_read_only = area->is_read_only};
}

struct gpu_host_range *gpu_host_memory_use(struct gpu_device *gpu, const struct tensor *value,
                                           bool is_written) {
    struct shared_area area;
    if (value->storage != TENSOR_BUFFER ||
        !shared_areas_find(value->data, tensor_size_bytes(value), &area) ||
        (is_written && area.is_read_only))
        return NULL;
    uintptr_t begin = (uintptr_t)value->data, end = begin + tensor_size_bytes(value);
    struct gpu_host_range wanted = range_of(gpu, value->buffer, &area);
    pthread_mutex_lock(&table.lock);
    struct gpu_host_range *range = find_whole(begin, end);
    if (!range)
        range = add_range(&wanted);
    if (range) {
        range->n_users++;
        range->used = ++table.n_uses;
    }
    pthread_mutex_unlock(&table.lock);
    gpu_try_set_current(gpu); /* what was unregistered for it may have been another device's */
    return range;
}

static size_t index_of(const struct gpu_host_range *range) {
    size_t at = 0;
    while (table.ranges[at] != range)
        at++;
    return at;
}

void gpu_host_memory_unuse(struct gpu_host_range *range) {
    if (!range)
        return;
    pthread_mutex_lock(&table.lock);
    if (--range->n_users == 0 && range->is_stale)
        unregister(index_of(range));
    pthread_mutex_unlock(&table.lock);
}

/* ---- ends ---- */

static void on_release(const char *data, size_t size_bytes) {
    uintptr_t begin = (uintptr_t)data, end = begin + size_bytes;
    pthread_mutex_lock(&table.lock);
    for (size_t i = table.n; i-- > 0;) {
        if (!overlaps(table.ranges[i], begin, end))
            continue;
        if (table.ranges[i]->n_users == 0)
            unregister(i);
        else
            table.ranges[i]->is_stale = true;
    }
    pthread_mutex_unlock(&table.lock);
}

void gpu_host_memory_open(void) { shared_areas_watch(on_release); }
void gpu_host_memory_close(void) { shared_areas_watch(NULL); }

void gpu_host_memory_forget(struct gpu_device *gpu) {
    pthread_mutex_lock(&table.lock);
    for (size_t i = table.n; i-- > 0;)
        if (table.ranges[i]->gpu == gpu)
            unregister(i);
    pthread_mutex_unlock(&table.lock);
}
