/* Keeps the table of registered host memory (gpu_host_memory.h).
 *
 *                        use
 *                      ┌─────┐
 *   registering ──► ready    │ ──► unregistering ──► gone
 *        │             ▲─────┘            │
 *        └──► gone                        └──► left
 *
 * A ready range is unregistered without users: because its pages are released, or others need its
 * place. If its pages are released while it has users, it is stale: it gets no new ones, and its
 * last user unregisters it. A range that the driver does not unregister is left: nobody uses it,
 * and the driver is asked again before a range that overlaps it is registered.
 *
 * The driver is called without the lock, by the thread that has begun to register or unregister a
 * range. So a call that hangs holds up nobody but those who need that range: copies go through
 * pinned memory instead, and a release waits until the range is unregistered. */
#include "kernels/cuda/gpu_host_memory.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/tensor/shared_areas.h"

enum range_state { REGISTERING, READY, UNREGISTERING, LEFT };

struct gpu_host_range {
    uintptr_t begin, end;
    struct gpu_device *gpu; /* whose context has registered it; NULL: it was closed */
    enum range_state state;
    int n_users; /* while it is registering or ready */
    bool is_stale, is_read_only;
    uint64_t used; /* when it was last used, counted in uses */
};

static struct {
    pthread_mutex_t lock;   /* guards all of this */
    pthread_cond_t changed; /* a range is not unregistering any more */
    struct gpu_host_range *ranges[GPU_MAX_HOST_RANGES];
    size_t n, size_bytes;
    uint64_t n_uses;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* ---- with the lock ---- */

static void take_out(const struct gpu_host_range *range) {
    size_t at = 0;
    while (table.ranges[at] != range)
        at++;
    table.size_bytes -= range->end - range->begin;
    table.ranges[at] = table.ranges[--table.n];
}

static bool is_idle(const struct gpu_host_range *range) {
    return range->state == LEFT || (range->state == READY && range->n_users == 0);
}

/* Asks the driver a few times: memory that stays registered cannot be registered again. A device
 * that has failed, or hangs, is told nothing more. Without the lock. */
static bool is_unregistered(struct gpu_device *gpu, const struct gpu_host_range *range) {
    enum { TRIES = 3 };
    const struct driver_api *api = gpu->api;
    if (atomic_load(&gpu->failure) || atomic_load(&gpu->is_hung))
        return true;
    gpu_try_set_current(gpu);
    for (int i = 0; i < TRIES; i++) {
        CUresult error =
            api->cuMemHostUnregister((void *)range->begin); /* NOLINT(performance-no-int-to-ptr) */
        if (error == CUDA_SUCCESS || error == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
            return true;
        driver_note(error, "cuMemHostUnregister");
    }
    return false;
}

/* Unregisters an idle range. Gives up the lock meanwhile. False: it is left. */
static bool unregister(struct gpu_host_range *range) {
    range->state = UNREGISTERING;
    pthread_mutex_unlock(&table.lock);
    bool is_gone = is_unregistered(range->gpu, range);
    pthread_mutex_lock(&table.lock);
    pthread_cond_broadcast(&table.changed);
    range->state = LEFT;
    if (!is_gone)
        return false;
    take_out(range);
    free(range);
    return true;
}

static bool overlaps(const struct gpu_host_range *range, uintptr_t begin, uintptr_t end) {
    return range->begin < end && begin < range->end;
}

/* What a device has registered that has failed since serves nobody. */
static struct gpu_host_range *find_whole(uintptr_t begin, uintptr_t end) {
    for (size_t i = 0; i < table.n; i++) {
        struct gpu_host_range *range = table.ranges[i];
        if (range->state == READY && range->begin <= begin && end <= range->end &&
            !range->is_stale && !atomic_load(&range->gpu->failure))
            return range;
    }
    return NULL;
}

static struct gpu_host_range *find_overlapping(uintptr_t begin, uintptr_t end) {
    for (size_t i = 0; i < table.n; i++)
        if (overlaps(table.ranges[i], begin, end))
            return table.ranges[i];
    return NULL;
}

static bool has_place(size_t n, size_t used_bytes, size_t size_bytes) {
    return n < GPU_MAX_HOST_RANGES && size_bytes <= GPU_MAX_HOST_RANGE_BYTES &&
           used_bytes <= GPU_MAX_HOST_RANGE_BYTES - size_bytes;
}

/* Would there be a place if all that nobody uses were unregistered? */
static bool could_have_place(size_t size_bytes) {
    size_t n = table.n, used_bytes = table.size_bytes;
    for (size_t i = 0; i < table.n; i++) {
        const struct gpu_host_range *range = table.ranges[i];
        if (range->state != READY || !is_idle(range))
            continue;
        n--;
        used_bytes -= range->end - range->begin;
    }
    return has_place(n, used_bytes, size_bytes);
}

/* The one that was not used for the longest time. */
static struct gpu_host_range *find_oldest_idle(void) {
    struct gpu_host_range *oldest = NULL;
    for (size_t i = 0; i < table.n; i++) {
        struct gpu_host_range *range = table.ranges[i];
        if (range->state == READY && is_idle(range) && (!oldest || range->used < oldest->used))
            oldest = range;
    }
    return oldest;
}

/* Grows the wanted range by those that it overlaps, and unregisters these and others until there is
 * a place. Gives up the lock meanwhile. False: there is none. */
static bool make_place(struct gpu_host_range *wanted) {
    for (;;) {
        struct gpu_host_range *other = find_overlapping(wanted->begin, wanted->end);
        if (other) {
            wanted->begin = MIN(wanted->begin, other->begin);
            wanted->end = MAX(wanted->end, other->end);
        }
        size_t size_bytes = wanted->end - wanted->begin;
        if (!other && has_place(table.n, table.size_bytes, size_bytes))
            return true;
        if (!could_have_place(size_bytes) || (other && !is_idle(other)))
            return false;
        if (!other)
            other = find_oldest_idle();
        if (!other || !unregister(other))
            return false;
    }
}

/* ---- registering: without the lock ---- */

/* A driver that does not know the attribute does not support it. */
static struct status *ask_support(struct gpu_device *gpu, bool is_read_only, int *ret) {
    CUresult error = gpu->api->cuDeviceGetAttribute(
        ret,
        is_read_only ? CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED
                     : CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED,
        gpu->cuda_device);
    return error == CUDA_ERROR_INVALID_VALUE ? NULL : gpu_check(gpu, error, "cuDeviceGetAttribute");
}

/* *ret_is_kind: the driver refuses all memory of this kind, and not only the range. */
static struct status *register_range(const struct gpu_host_range *range, bool *ret_is_kind) {
    struct gpu_device *gpu = range->gpu;
    unsigned flags = CU_MEMHOSTREGISTER_PORTABLE |
                     (range->is_read_only ? (unsigned)CU_MEMHOSTREGISTER_READ_ONLY : 0);
    int is_supported = 0;
    *ret_is_kind = true;
    TRY(ask_support(gpu, range->is_read_only, &is_supported));
    if (!is_supported)
        return status_new(STATUS_UNIMPLEMENTED, "the driver does not support it");
    gpu_try_set_current(gpu);
    CUresult error =
        gpu->api->cuMemHostRegister((void *)range->begin, /* NOLINT(performance-no-int-to-ptr) */
                                    range->end - range->begin, flags);
    *ret_is_kind = error != CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    return gpu_check(gpu, error, "cuMemHostRegister");
}

static void log_refusal_take(const struct gpu_host_range *range, struct status *st, bool is_kind) {
    log_event(EVENT_GPU_TROUBLE,
              "GPU %d: %s memory that tasks share cannot be registered, so it is copied through "
              "pinned memory%s: %s",
              range->gpu->ordinal, range->is_read_only ? "the peers'" : "the task's own",
              is_kind ? " from now on" : "", status_message(st));
    status_unref(st);
}

/* With the lock, which is given up meanwhile. NULL: there is no place, or the driver refuses. */
static struct gpu_host_range *add_range(struct gpu_host_range *wanted) {
    struct gpu_host_refusals *refusals = &wanted->gpu->host_refusals;
    bool is_kind;
    if (refusals->is_off[wanted->is_read_only] || !make_place(wanted))
        return NULL;
    struct gpu_host_range *range = xmalloc(sizeof *range);
    *range = *wanted;
    range->state = REGISTERING;
    table.ranges[table.n++] = range;
    table.size_bytes += range->end - range->begin;
    pthread_mutex_unlock(&table.lock);
    struct status *st = register_range(range, &is_kind);
    pthread_mutex_lock(&table.lock);
    range->state = READY;
    if (!st)
        return range;
    if (!range->gpu) { /* its device was closed meanwhile */
        status_unref(st);
        free(range);
        return NULL;
    }
    take_out(range);
    bool *is_known = is_kind ? &refusals->is_off[range->is_read_only] : &refusals->is_told;
    if (!*is_known)
        log_refusal_take(range, st, is_kind);
    else
        status_unref(st);
    *is_known = true;
    free(range);
    return NULL;
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

void gpu_host_memory_unuse(struct gpu_host_range *range) {
    if (!range)
        return;
    pthread_mutex_lock(&table.lock);
    bool is_last = --range->n_users == 0;
    if (is_last && !range->gpu)
        free(range); /* its device was closed, and is not in the table */
    else if (is_last && range->is_stale)
        (void)unregister(range);
    pthread_mutex_unlock(&table.lock);
}

/* ---- ends ---- */

/* Waits until another thread has unregistered a range, but for a second at most, because the device
 * may have failed meanwhile. */
static void wait_a_second(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    pthread_cond_timedwait(&table.changed, &table.lock, &until);
}

/* Something in the range that can be unregistered now, or whose end can be waited for. */
static struct gpu_host_range *find_released(uintptr_t begin, uintptr_t end) {
    for (size_t i = 0; i < table.n; i++) {
        struct gpu_host_range *range = table.ranges[i];
        bool is_ending = range->state == UNREGISTERING && !atomic_load(&range->gpu->failure);
        if (overlaps(range, begin, end) &&
            (is_ending || (range->state == READY && range->n_users == 0)))
            return range;
    }
    return NULL;
}

static void on_release(const char *data, size_t size_bytes) {
    uintptr_t begin = (uintptr_t)data, end = begin + size_bytes;
    struct gpu_host_range *range;
    pthread_mutex_lock(&table.lock);
    for (size_t i = 0; i < table.n; i++)
        table.ranges[i]->is_stale |= overlaps(table.ranges[i], begin, end);
    while ((range = find_released(begin, end)))
        if (range->state == UNREGISTERING)
            wait_a_second();
        else
            (void)unregister(range);
    pthread_mutex_unlock(&table.lock);
}

void gpu_host_memory_open(void) { shared_areas_watch(on_release); }
void gpu_host_memory_close(void) { shared_areas_watch(NULL); }

/* Whoever still uses a range is a thread that hangs with another device. The end of the context
 * ends the registration, and the thread frees the record if it ever comes back. */
static void leave_to_user(struct gpu_host_range *range) {
    take_out(range);
    range->gpu = NULL;
}

void gpu_host_memory_forget(struct gpu_device *gpu) {
    pthread_mutex_lock(&table.lock);
    for (size_t i = 0; i < table.n;) {
        struct gpu_host_range *range = table.ranges[i];
        if (range->gpu != gpu || range->state == UNREGISTERING) {
            i++;
        } else if (!is_idle(range)) {
            leave_to_user(range);
        } else if (!unregister(range)) { /* the end of the context ends it */
            take_out(range);
            free(range);
            i = 0; /* others may have changed the table meanwhile */
        } else {
            i = 0;
        }
    }
    pthread_mutex_unlock(&table.lock);
}
