/* The allocator of a GPU's memory (gpu_memory.h).
 *
 * Blocks are a list by address that covers what is mapped without a gap. No two free blocks are
 * neighbours. */
#include "kernels/cuda/gpu_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/base.h"
#include "common/base/log.h"
#include "common/tensor/release.h"
#include "kernels/cuda/driver.h"
#include "kernels/cuda/gpu_memory_places.h"

enum { STEP_BYTES = 32 << 20, WAIT_NS = 100000000 };

/* ---- records ---- */

static struct gpu_block *record_new(struct gpu_memory *memory) {
    struct gpu_block *block = memory->spare;
    if (unlikely(!block))
        return xcalloc(1, sizeof(*block));
    memory->spare = block->bin_next;
    return block;
}

static void record_free(struct gpu_memory *memory, struct gpu_block *block) {
    block->bin_next = memory->spare;
    memory->spare = block;
}

/* ---- the mapped part ---- */

static CUmemAllocationProp properties_of(const struct gpu_memory *memory) {
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requested_handle_types = memory->has_descriptors ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                          : CU_MEM_HANDLE_TYPE_NONE,
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, memory->device},
        .flags = {.gpu_direct_rdma = memory->is_exportable}};
    return properties;
}

static void count_calls(struct gpu_memory *memory, uint64_t n) {
    atomic_fetch_add_explicit(&memory->n_calls, n, memory_order_relaxed);
}

/* Lets one user after the other use a step. Who cannot is left out of all steps that follow.
 * Returns the error of the device itself. */
static CUresult let_use_one_by_one(struct gpu_memory *memory, CUdeviceptr address,
                                   const CUmemAccessDesc *access, size_t n) {
    const struct driver_api *api = memory->api;
    for (size_t i = 0; i < n; i++) {
        CUdevice user = access[i].location.id;
        CUresult error = api->cuMemSetAccess(address, memory->step_bytes, &access[i], 1);
        if (error != CUDA_SUCCESS && user == memory->device)
            return error;
        if (error == CUDA_SUCCESS)
            continue;
        log_event(EVENT_GPU_TROUBLE,
                  "device %d of the driver cannot use more memory of device %d, so copies go "
                  "through the host: CUDA error %d of cuMemSetAccess",
                  user, memory->device, (int)error);
        for (size_t k = 1; k < memory->n_users; k++)
            if (memory->users[k] == user)
                atomic_fetch_or(&memory->left_out, UINT32_C(1) << k);
    }
    return CUDA_SUCCESS;
}

/* The driver refuses all if one of the peers has fallen off the bus. */
static CUresult let_use(struct gpu_memory *memory, CUdeviceptr address) {
    CUmemAccessDesc access[GPU_MEMORY_MAX_USERS];
    uint32_t left_out = atomic_load_explicit(&memory->left_out, memory_order_relaxed);
    size_t n = 0;
    for (size_t i = 0; i < memory->n_users; i++)
        if ((left_out >> i & 1) == 0)
            access[n++] = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, memory->users[i]},
                                            CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult error = memory->api->cuMemSetAccess(address, memory->step_bytes, access, n);
    if (error == CUDA_SUCCESS || n == 1)
        return error;
    driver_note(error, "cuMemSetAccess");
    count_calls(memory, n);
    return let_use_one_by_one(memory, address, access, n);
}

static struct status *map_step(struct gpu_memory *memory) {
    const struct driver_api *api = memory->api;
    CUmemAllocationProp properties = properties_of(memory);
    CUdeviceptr address = memory->base + memory->mapped_bytes;
    CUmemGenericAllocationHandle handle;
    count_calls(memory, 3);
    CUresult error = api->cuMemCreate(&handle, memory->step_bytes, &properties, 0);
    if (error != CUDA_SUCCESS)
        return driver_status(error, "cuMemCreate");
    error = api->cuMemMap(address, memory->step_bytes, 0, handle, 0);
    if (error != CUDA_SUCCESS) {
        api->cuMemRelease(handle);
        return driver_status(error, "cuMemMap");
    }
    error = let_use(memory, address);
    if (error != CUDA_SUCCESS) {
        api->cuMemUnmap(address, memory->step_bytes);
        api->cuMemRelease(handle);
        return driver_status(error, "cuMemSetAccess");
    }
    memory->steps = xreallocarray(memory->steps, memory->n_steps + 1, sizeof(*memory->steps));
    memory->steps[memory->n_steps++] = handle;
    memory->mapped_bytes += memory->step_bytes;
    return NULL;
}

static void unmap_step(struct gpu_memory *memory) {
    const struct driver_api *api = memory->api;
    memory->mapped_bytes -= memory->step_bytes;
    CUdeviceptr address = memory->base + memory->mapped_bytes;
    memory_announce_release((char *)(uintptr_t)address, /* NOLINT(performance-no-int-to-ptr) */
                            memory->step_bytes);
    count_calls(memory, 2);
    driver_note(api->cuMemUnmap(address, memory->step_bytes), "cuMemUnmap");
    driver_note(api->cuMemRelease(memory->steps[--memory->n_steps]), "cuMemRelease");
}

/* Adds a fresh step to the free block at the end of the range, or makes that block. */
static void append_step(struct gpu_memory *memory) {
    struct gpu_block *last = memory->last;
    if (last && last->is_free) {
        gpu_free_blocks_remove(&memory->free, last);
    } else {
        struct gpu_block *block = record_new(memory);
        block->address = memory->base + memory->mapped_bytes - memory->step_bytes;
        block->size_bytes = 0;
        block->free_number = 0;
        block->before = last;
        block->after = NULL;
        if (last)
            last->after = block;
        memory->last = last = block;
    }
    last->size_bytes += memory->step_bytes;
    gpu_free_blocks_add(&memory->free, last);
}

/* Unmaps the last n steps, or as many as are in the free block at the end. */
static void remove_steps(struct gpu_memory *memory, size_t n) {
    struct gpu_block *last = memory->last;
    if (n == 0 || !last || !last->is_free || last->size_bytes < memory->step_bytes)
        return;
    gpu_free_blocks_remove(&memory->free, last);
    for (; n > 0 && last->size_bytes >= memory->step_bytes; n--) {
        unmap_step(memory);
        last->size_bytes -= memory->step_bytes;
    }
    if (last->size_bytes > 0) {
        gpu_free_blocks_add(&memory->free, last);
        return;
    }
    memory->last = last->before;
    if (last->before)
        last->before->after = NULL;
    record_free(memory, last);
}

struct status *gpu_memory_map_until(struct gpu_memory *memory, size_t end_bytes) {
    for (size_t n = 0; memory->mapped_bytes < end_bytes; n++) {
        struct status *st = map_step(memory);
        if (st) {
            remove_steps(memory, n);
            return st;
        }
        append_step(memory);
    }
    return NULL;
}

/* Maps steps until a block of that size is free at the end. */
static struct status *grow(struct gpu_memory *memory, size_t size_bytes) {
    size_t at_end = memory->last && memory->last->is_free ? memory->last->size_bytes : 0;
    size_t wanted = size_bytes - at_end; /* no free block fits, so the last is smaller */
    if (wanted > memory->limit_bytes - memory->mapped_bytes)
        return status_exhausted("%zu bytes are not free in one piece", size_bytes);
    return gpu_memory_map_until(memory, memory->mapped_bytes + wanted);
}

/* ---- blocks ---- */

/* Cuts a block after size_bytes, and returns the rest, which is in no list of free blocks. */
static struct gpu_block *cut(struct gpu_memory *memory, struct gpu_block *block,
                             size_t size_bytes) {
    struct gpu_block *rest = record_new(memory);
    rest->before = block;
    rest->after = block->after;
    rest->address = block->address + size_bytes;
    rest->size_bytes = block->size_bytes - size_bytes;
    rest->free_number = block->free_number;
    rest->is_free = false;
    if (rest->after)
        rest->after->before = rest;
    else
        memory->last = rest;
    block->after = rest;
    block->size_bytes = size_bytes;
    return rest;
}

struct gpu_block *gpu_memory_take(struct gpu_memory *memory, struct gpu_block *block,
                                  CUdeviceptr address, size_t size_bytes) {
    gpu_free_blocks_remove(&memory->free, block);
    if (address > block->address) {
        struct gpu_block *front = block;
        block = cut(memory, front, (size_t)(address - front->address));
        gpu_free_blocks_add(&memory->free, front);
    }
    if (block->size_bytes > size_bytes)
        gpu_free_blocks_add(&memory->free, cut(memory, block, size_bytes));
    return block;
}

/* The best fit, in memory that is mapped for it if need be. If there is none, the places may have
 * parted what is free, so they are forgotten. */
static struct status *take_best(struct gpu_memory *memory, size_t size_bytes,
                                struct gpu_block **ret) {
    struct gpu_block *block = gpu_free_blocks_best_fit(&memory->free, size_bytes);
    if (!block) {
        struct status *st = grow(memory, size_bytes);
        if (st) {
            gpu_memory_forget_places(memory);
            return st;
        }
        block = gpu_free_blocks_best_fit(&memory->free, size_bytes);
    }
    CHECK(block);
    *ret = gpu_memory_take(memory, block, block->address, size_bytes);
    return NULL;
}

struct status *gpu_memory_alloc(struct gpu_memory *memory, uint64_t site, size_t size_bytes,
                                struct gpu_block **ret, uint64_t *ret_free_number) {
    struct status *st = NULL;
    struct gpu_block *block = NULL;
    if (size_bytes > memory->limit_bytes)
        return status_exhausted("%zu bytes are more than the limit of %zu", size_bytes,
                                memory->limit_bytes);
    size_t size =
        MAX(size_bytes + memory->alignment - 1, memory->alignment) & ~(memory->alignment - 1);
    pthread_mutex_lock(&memory->lock);
    bool is_tight = MAX(memory->peak_bytes, memory->used_bytes + size) > memory->limit_bytes / 2;
    if (site != GPU_PLACE_NONE && !is_tight) /* places part what is free */
        block = gpu_memory_take_place(memory, site, size);
    if (!block)
        st = take_best(memory, size, &block);
    if (!st) {
        block->site = site;
        if (site != GPU_PLACE_NONE)
            gpu_memory_note_place(memory, site, block);
        memory->used_bytes += size;
        memory->peak_bytes = MAX(memory->peak_bytes, memory->used_bytes);
        *ret_free_number = block->free_number;
        *ret = block;
    }
    pthread_mutex_unlock(&memory->lock);
    return st;
}

/* Joins `next` to the block before it. Neither is in the index of free blocks. */
static void join(struct gpu_memory *memory, struct gpu_block *block, struct gpu_block *next) {
    block->size_bytes += next->size_bytes;
    block->free_number = MAX(block->free_number, next->free_number);
    block->after = next->after;
    if (next->after)
        next->after->before = block;
    else
        memory->last = block;
    record_free(memory, next);
}

void gpu_memory_free(struct gpu_memory *memory, struct gpu_block *block) {
    if (!block)
        return;
    pthread_mutex_lock(&memory->lock);
    CHECK(!block->is_free);
    block->site = GPU_PLACE_NONE;
    memory->used_bytes -= block->size_bytes;
    block->free_number = atomic_load_explicit(&memory->enqueued, memory_order_relaxed);
    if (block->after && block->after->is_free) {
        gpu_free_blocks_remove(&memory->free, block->after);
        join(memory, block, block->after);
    }
    if (block->before && block->before->is_free) {
        block = block->before;
        gpu_free_blocks_remove(&memory->free, block);
        join(memory, block, block->after);
    }
    gpu_free_blocks_add(&memory->free, block);
    memory->n_freed++;
    if (unlikely(memory->n_waiting > 0))
        pthread_cond_broadcast(&memory->freed);
    pthread_mutex_unlock(&memory->lock);
}

uint64_t gpu_memory_n_freed(struct gpu_memory *memory) {
    pthread_mutex_lock(&memory->lock);
    uint64_t n = memory->n_freed;
    pthread_mutex_unlock(&memory->lock);
    return n;
}

bool gpu_memory_wait_freed(struct gpu_memory *memory, uint64_t n_freed) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += WAIT_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&memory->lock);
    memory->n_waiting++;
    while (memory->n_freed == n_freed)
        if (pthread_cond_timedwait(&memory->freed, &memory->lock, &until) == ETIMEDOUT)
            break;
    memory->n_waiting--;
    bool has_changed = memory->n_freed != n_freed;
    pthread_mutex_unlock(&memory->lock);
    return has_changed;
}

void gpu_memory_each_used(struct gpu_memory *memory,
                          void (*visit)(void *arg, const struct gpu_block *block), void *arg) {
    pthread_mutex_lock(&memory->lock);
    for (const struct gpu_block *block = memory->last; block; block = block->before)
        if (!block->is_free)
            visit(arg, block);
    pthread_mutex_unlock(&memory->lock);
}

void gpu_memory_trim(struct gpu_memory *memory) {
    pthread_mutex_lock(&memory->lock);
    remove_steps(memory, SIZE_MAX);
    pthread_mutex_unlock(&memory->lock);
}

void gpu_memory_widen(const struct gpu_memory *memory, CUdeviceptr *start, size_t *size_bytes) {
    size_t begin = (size_t)(*start - memory->base), end = begin + *size_bytes;
    begin = begin / memory->step_bytes * memory->step_bytes;
    end = (end + memory->step_bytes - 1) / memory->step_bytes * memory->step_bytes;
    *start = memory->base + begin;
    *size_bytes = end - begin;
}

/* ---- life ---- */

/* A driver that does not know the attribute does not have what it tells. */
static struct status *has_attribute(struct gpu_memory *memory, CUdevice_attribute attribute,
                                    bool *ret) {
    int value = 0;
    CUresult error = memory->api->cuDeviceGetAttribute(&value, attribute, memory->device);
    *ret = error == CUDA_SUCCESS && value != 0;
    return error == CUDA_ERROR_INVALID_VALUE ? NULL : driver_status(error, "cuDeviceGetAttribute");
}

/* Memory that RDMA devices may read has to be made for that. */
static struct status *read_exportable(struct gpu_memory *memory) {
    bool has_dmabuf, has_rdma;
    TRY(has_attribute(memory, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, &has_dmabuf));
    TRY(has_attribute(memory, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
                      &has_rdma));
    memory->is_exportable = has_dmabuf && has_rdma;
    return NULL;
}

/* Virtual GPUs may lack both: the first is needed, and memory that asks for the second fails. */
static struct status *read_abilities(struct gpu_memory *memory) {
    bool can_map;
    TRY(has_attribute(memory, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, &can_map));
    if (!can_map)
        return status_unimplemented("the driver cannot map memory of this device at addresses "
                                    "that were reserved");
    TRY(has_attribute(memory, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                      &memory->has_descriptors));
    return read_exportable(memory);
}

/* Divides the limit into equal steps. Steps of STEP_BYTES may leave almost one of them unused, and
 * one step more of less bytes up to a granule for each, so what leaves less is taken. */
static void divide_limit(struct gpu_memory *memory, size_t limit_bytes, size_t granularity) {
    size_t step = (STEP_BYTES + granularity - 1) / granularity * granularity;
    size_t n_steps = limit_bytes / step;
    size_t smaller = limit_bytes / (n_steps + 1) / granularity * granularity;
    if ((n_steps + 1) * smaller > n_steps * step) {
        n_steps++;
        step = smaller;
    }
    memory->step_bytes = n_steps > 0 ? step : granularity;
    memory->limit_bytes = MAX(n_steps, (size_t)1) * memory->step_bytes;
}

struct status *gpu_memory_init(struct gpu_memory *memory, const struct driver_api *api,
                               CUdevice device, size_t limit_bytes) {
    size_t granularity = 0;
    int alignment = 0;
    *memory = (struct gpu_memory){.api = api, .device = device, .users = {device}, .n_users = 1};
    TRY(read_abilities(memory));
    CUmemAllocationProp properties = properties_of(memory);
    TRY(driver_status(
        api->cuDeviceGetAttribute(&alignment, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device),
        "cuDeviceGetAttribute"));
    TRY(driver_status(api->cuMemGetAllocationGranularity(&granularity, &properties,
                                                         CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
                      "cuMemGetAllocationGranularity"));
    memory->alignment = (size_t)MAX(alignment, 256);
    if (granularity == 0 || (memory->alignment & (memory->alignment - 1)) != 0)
        return status_internal("the CUDA driver says an alignment of %d and a granularity of %zu",
                               alignment, granularity);
    divide_limit(memory, limit_bytes, granularity);
    TRY(driver_status(api->cuMemAddressReserve(&memory->base, memory->limit_bytes, 0, 0, 0),
                      "cuMemAddressReserve"));
    pthread_mutex_init(&memory->lock, NULL);
    pthread_cond_init(&memory->freed, NULL);
    return NULL;
}

void gpu_memory_let_use(struct gpu_memory *memory, CUdevice peer) {
    CHECK(memory->mapped_bytes == 0 && memory->n_users < GPU_MEMORY_MAX_USERS);
    memory->users[memory->n_users++] = peer;
}

bool gpu_memory_is_usable_by(const struct gpu_memory *memory, CUdevice device) {
    uint32_t left_out = atomic_load_explicit(&memory->left_out, memory_order_acquire);
    for (size_t i = 0; i < memory->n_users; i++)
        if (memory->users[i] == device)
            return (left_out >> i & 1) == 0;
    return false;
}

void gpu_memory_fini(struct gpu_memory *memory) {
    if (!memory->limit_bytes)
        return;
    if (memory->base) {
        CHECK(memory->used_bytes == 0);
        gpu_memory_trim(memory);
        CHECK(!memory->last && memory->n_steps == 0);
        driver_note(memory->api->cuMemAddressFree(memory->base, memory->limit_bytes),
                    "cuMemAddressFree");
        pthread_mutex_destroy(&memory->lock);
        pthread_cond_destroy(&memory->freed);
    }
    while (memory->spare) {
        struct gpu_block *block = memory->spare;
        memory->spare = block->bin_next;
        free(block);
    }
    gpu_memory_forget_places(memory);
    free(memory->steps);
    *memory = (struct gpu_memory){0};
}

void gpu_memory_check(struct gpu_memory *memory) {
    size_t mapped = 0, used = 0, n_free = 0;
    pthread_mutex_lock(&memory->lock);
    for (struct gpu_block *block = memory->last; block; block = block->before) {
        CHECK(block->size_bytes > 0 && block->size_bytes % memory->alignment == 0);
        CHECK(!block->after || block->after->before == block);
        CHECK(!block->after || block->address + block->size_bytes == block->after->address);
        CHECK(!block->is_free || !block->after || !block->after->is_free);
        mapped += block->size_bytes;
        used += block->is_free ? 0 : block->size_bytes;
        n_free += block->is_free;
    }
    CHECK(mapped == memory->mapped_bytes && used == memory->used_bytes &&
          n_free == gpu_free_blocks_check(&memory->free));
    pthread_mutex_unlock(&memory->lock);
}
