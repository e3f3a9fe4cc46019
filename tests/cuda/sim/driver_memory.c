/* Device memory: addresses, memory behind them, and both at once. */
#include "tests/cuda/sim/driver.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { GRANULARITY = 2 << 20 };

/* Memory of a device's file. */
struct handle {
    int device;
    bool is_exportable; /* to RDMA devices */
    uint64_t offset, size;
    int n_references; /* its creator, and each mapping */
};

/* Guarded by the link's lock. A page that is never used follows each reservation. */
static struct {
    struct ranges reserved; /* addresses */
    struct ranges mapped;   /* addresses; data: the handle */
    struct ranges used;     /* offsets in the file; data: the handle */
    uint64_t n_bytes;
} devices[SIM_MAX_DEVICES];

static uint64_t span_start(int device) { return sim.base + (uint64_t)device * SIM_DEVICE_SPAN; }

static uint64_t rounded(uint64_t size, uint64_t to) { return (size + to - 1) / to * to; }

/* The device whose addresses these are; -1: none. */
static int device_of(CUdeviceptr address) {
    uint64_t offset = address - sim.base;
    return offset < (uint64_t)sim.n_devices * SIM_DEVICE_SPAN ? (int)(offset / SIM_DEVICE_SPAN)
                                                              : -1;
}

static struct handle *handle_new(int device, uint64_t size) {
    struct handle *handle = calloc(1, sizeof *handle);
    uint64_t offset = 0;
    if (handle == NULL || !shared_take(device, size)) {
        free(handle);
        return NULL;
    }
    if (!ranges_find_gap(&devices[device].used, 0, sim.memory, size, SIM_PAGE, &offset) ||
        !ranges_add(&devices[device].used, (struct range){offset, size, handle})) {
        shared_give_back(device, size);
        free(handle);
        return NULL;
    }
    *handle = (struct handle){.device = device, .offset = offset, .size = size, .n_references = 1};
    devices[device].n_bytes += size;
    return handle;
}

static void handle_unref(struct handle *handle) {
    if (--handle->n_references > 0)
        return;
    devices[handle->device].n_bytes -= handle->size;
    shared_give_back(handle->device, handle->size);
    ranges_remove(&devices[handle->device].used, handle->offset);
    free(handle);
}

static CUresult reserve(int device, uint64_t size, uint64_t alignment, uint64_t *ret_start) {
    uint64_t from = span_start(device);
    if (!ranges_find_gap(&devices[device].reserved, from, from + SIM_DEVICE_SPAN, size + SIM_PAGE,
                         alignment, ret_start) ||
        !ranges_add(&devices[device].reserved, (struct range){*ret_start, size + SIM_PAGE, NULL}))
        return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

static CUresult map(uint64_t start, uint64_t size, struct handle *handle, bool may_use,
                    uint64_t last_bytes) {
    if (!ranges_add(&devices[handle->device].mapped, (struct range){start, size, handle}))
        return CUDA_ERROR_INVALID_VALUE;
    handle->n_references++;
    link_send(&(struct sim_message){.command = SIM_MAP,
                                    .device = (uint32_t)handle->device,
                                    .at = start,
                                    .size = size,
                                    .from = handle->offset,
                                    .value = may_use,
                                    .clock = (uint32_t)last_bytes},
              NULL, -1);
    return CUDA_SUCCESS;
}

static void unmap(int device, struct range range, bool is_free) {
    link_send(&(struct sim_message){.command = SIM_UNMAP,
                                    .device = (uint32_t)device,
                                    .at = range.start,
                                    .size = range.size,
                                    .value = is_free},
              NULL, -1);
    ranges_remove(&devices[device].mapped, range.start);
    handle_unref(range.data);
}

void memory_reset(int device) {
    for (size_t i = 0; i < devices[device].used.n; i++)
        free(devices[device].used.list[i].data);
    ranges_clear(&devices[device].used);
    ranges_clear(&devices[device].mapped);
    ranges_clear(&devices[device].reserved);
    shared_give_back(device, devices[device].n_bytes);
    devices[device].n_bytes = 0;
}

CUresult cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total) {
    struct CUctx_st *context;
    BEGIN(cuMemGetInfo_v2);
    TRY(context_now(&context));
    link_lock();
    *ret_free =
        sim.memory - devices[context->device].n_bytes - shared_used_by_others(context->device);
    *ret_total = sim.memory;
    link_unlock();
    return CUDA_SUCCESS;
}

/* ---- plain allocations ---- */

static CUresult allocate(const struct CUctx_st *context, uint64_t size, uint64_t *ret_start) {
    int device = context->device;
    uint64_t whole = rounded(size, SIM_PAGE);
    struct handle *handle = handle_new(device, whole);
    if (handle == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = reserve(device, whole, SIM_PAGE, ret_start);
    if (result == CUDA_SUCCESS)
        result = map(*ret_start, whole, handle, true, size % SIM_PAGE);
    handle_unref(handle);
    return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *ret_pointer, size_t size) {
    struct CUctx_st *context;
    uint64_t start;
    BEGIN(cuMemAlloc_v2);
    TRY(context_now(&context));
    if (size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    link_lock();
    CUresult result = allocate(context, size, &start);
    link_unlock();
    if (result == CUDA_SUCCESS)
        *ret_pointer = start;
    return result;
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
    struct CUctx_st *context;
    BEGIN(cuMemFree_v2);
    TRY(context_now(&context));
    int device = device_of(pointer);
    if (pointer == 0 || device < 0)
        return pointer == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    link_lock();
    struct range *range = ranges_find(&devices[device].mapped, pointer);
    bool is_valid = range != NULL && range->start == pointer;
    if (is_valid) {
        unmap(device, *range, true);
        ranges_remove(&devices[device].reserved, pointer);
    }
    link_unlock();
    return is_valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- addresses and memory apart ---- */

static CUresult properties_check(const CUmemAllocationProp *properties) {
    if (properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (properties->requested_handle_types != CU_MEM_HANDLE_TYPE_NONE) /* no attribute offers one */
        return CUDA_ERROR_NOT_SUPPORTED;
    return properties->location.id >= 0 && properties->location.id < sim.n_devices
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuMemGetAllocationGranularity(size_t *ret_size, const CUmemAllocationProp *properties,
                                       unsigned option) {
    BEGIN(cuMemGetAllocationGranularity);
    TRY(properties_check(properties));
    *ret_size = GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *ret_pointer, size_t size, size_t alignment,
                             CUdeviceptr hint, unsigned long long flags) {
    struct CUctx_st *context;
    uint64_t start;
    BEGIN(cuMemAddressReserve);
    TRY(context_now(&context));
    if (size == 0 || size % GRANULARITY != 0)
        return CUDA_ERROR_INVALID_VALUE;
    link_lock();
    CUresult result =
        reserve(context->device, size, alignment < GRANULARITY ? GRANULARITY : alignment, &start);
    link_unlock();
    if (result == CUDA_SUCCESS)
        *ret_pointer = start;
    return result;
}

CUresult cuMemAddressFree(CUdeviceptr pointer, size_t size) {
    BEGIN(cuMemAddressFree);
    int device = device_of(pointer);
    if (device < 0)
        return CUDA_ERROR_INVALID_VALUE;
    link_lock();
    struct range *range = ranges_find(&devices[device].reserved, pointer);
    bool is_valid = range != NULL && range->start == pointer && range->size == size + SIM_PAGE;
    struct range *mapped = NULL;
    for (uint64_t at = pointer; is_valid && mapped == NULL && at < pointer + size;
         at += GRANULARITY)
        mapped = ranges_find(&devices[device].mapped, at);
    is_valid = is_valid && mapped == NULL;
    if (is_valid)
        ranges_remove(&devices[device].reserved, pointer);
    link_unlock();
    return is_valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *ret_handle, size_t size,
                     const CUmemAllocationProp *properties, unsigned long long flags) {
    BEGIN(cuMemCreate);
    TRY(properties_check(properties));
    TRY((CUresult)atomic_load(&device_errors[properties->location.id]));
    if (size == 0 || size % GRANULARITY != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    link_lock();
    struct handle *handle = handle_new(properties->location.id, size);
    if (handle != NULL)
        handle->is_exportable = properties->flags.gpu_direct_rdma != 0;
    link_unlock();
    if (handle == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret_handle = (CUmemGenericAllocationHandle)handle;
    return CUDA_SUCCESS;
}

/* Handles of a device that was reset are no longer in its list. */
static bool handle_is_valid(const struct handle *handle) {
    for (int d = 0; d < sim.n_devices; d++)
        for (size_t i = 0; i < devices[d].used.n; i++)
            if (devices[d].used.list[i].data == handle)
                return true;
    return false;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle number) {
    struct handle *handle = (struct handle *)number;
    BEGIN(cuMemRelease);
    link_lock();
    bool is_valid = handle_is_valid(handle);
    if (is_valid)
        handle_unref(handle);
    link_unlock();
    return is_valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemMap(CUdeviceptr pointer, size_t size, size_t offset,
                  CUmemGenericAllocationHandle number, unsigned long long flags) {
    struct handle *handle = (struct handle *)number;
    BEGIN(cuMemMap);
    int device = device_of(pointer);
    if (device < 0)
        return CUDA_ERROR_INVALID_VALUE;
    link_lock();
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    struct range *range = ranges_find(&devices[device].reserved, pointer);
    if (range != NULL && pointer + size <= range->start + range->size - SIM_PAGE && offset == 0 &&
        flags == 0 && handle_is_valid(handle) && size == handle->size) {
        /* Addresses are given out by device, and memory of another is not simulated behind them. */
        result = handle->device != device ? CUDA_ERROR_NOT_SUPPORTED
                                          : map(pointer, size, handle, false, 0);
    }
    link_unlock();
    return result;
}

/* The mapping at an address; NULL: it does not begin there, or ends behind end. */
static struct range *mapping_at(int device, uint64_t start, uint64_t end) {
    struct range *range = ranges_find(&devices[device].mapped, start);
    return range != NULL && range->start == start && start + range->size <= end ? range : NULL;
}

CUresult cuMemUnmap(CUdeviceptr pointer, size_t size) {
    BEGIN(cuMemUnmap);
    int device = device_of(pointer);
    if (device < 0)
        return CUDA_ERROR_INVALID_VALUE;
    link_lock();
    uint64_t at = pointer, end = pointer + size;
    struct range *range;
    while (at < end && (range = mapping_at(device, at, end)) != NULL) {
        at += range->size;
        unmap(device, *range, false);
    }
    link_unlock();
    return at == end && size > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemSetAccess(CUdeviceptr pointer, size_t size, const CUmemAccessDesc *access, size_t n) {
    BEGIN(cuMemSetAccess);
    int device = device_of(pointer);
    if (device < 0)
        return CUDA_ERROR_INVALID_VALUE;
    link_lock();
    uint64_t at = pointer, end = pointer + size;
    struct range *range;
    while (at < end && (range = mapping_at(device, at, end)) != NULL)
        at += range->size;
    bool is_valid = at == end && size > 0;
    for (size_t i = 0; i < n; i++)
        is_valid &= access[i].location.id >= 0 && access[i].location.id < sim.n_devices &&
                    (sim.has_peers || access[i].location.id == device);
    CUresult failure = CUDA_SUCCESS; /* of a device that is of no use any more */
    for (size_t i = 0; is_valid && i < n && failure == CUDA_SUCCESS; i++)
        failure = (CUresult)atomic_load(&device_errors[access[i].location.id]);
    for (size_t i = 0; is_valid && failure == CUDA_SUCCESS && i < n; i++)
        link_send(
            &(struct sim_message){.command = SIM_SET_ACCESS,
                                  .device = (uint32_t)access[i].location.id,
                                  .at = pointer,
                                  .size = size,
                                  .value = access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
            NULL, -1);
    link_unlock();
    return is_valid ? failure : CUDA_ERROR_INVALID_VALUE;
}

/* ---- memory for other devices of the host ---- */

static void (*_Atomic on_flush)(void);

EXPORTED void simOnFlush(void (*flush)(void)) { atomic_store(&on_flush, flush); }

/* Where the range begins in the device's file, if it is mapped in one piece there. */
static CUresult find_exported(int device, uint64_t start, uint64_t end, uint64_t *ret_offset) {
    const struct range *range = mapping_at(device, start, end);
    if (range == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    uint64_t first = ((const struct handle *)range->data)->offset;
    for (uint64_t at = start; at < end; at += range->size) {
        range = mapping_at(device, at, end);
        if (range == NULL)
            return CUDA_ERROR_INVALID_VALUE;
        const struct handle *handle = range->data;
        if (!handle->is_exportable || handle->offset - first != at - start)
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    *ret_offset = first;
    return CUDA_SUCCESS;
}

/* A descriptor of its own, whose position is the beginning of the range: a real dmabuf has no
 * other bytes than the range. */
static CUresult open_at(int file, uint64_t offset, int *ret_fd) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || lseek(fd, (off_t)offset, SEEK_SET) < 0) {
        if (fd >= 0)
            close(fd);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *ret_fd = fd;
    return CUDA_SUCCESS;
}

CUresult cuMemGetHandleForAddressRange(void *ret_handle, CUdeviceptr pointer, size_t size,
                                       unsigned handle_type, unsigned long long flags) {
    struct CUctx_st *context;
    uint64_t offset = 0;
    BEGIN(cuMemGetHandleForAddressRange);
    TRY(context_now(&context));
    int device = device_of(pointer);
    if (device != context->device || size == 0 || (pointer | size) % SIM_PAGE != 0 ||
        handle_type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    link_lock();
    CUresult result = find_exported(device, pointer, pointer + size, &offset);
    link_unlock();
    return result == CUDA_SUCCESS ? open_at(sim.memory_files[device], offset, ret_handle) : result;
}

CUresult cuFlushGPUDirectRDMAWrites(unsigned target, unsigned scope) {
    struct CUctx_st *context;
    BEGIN(cuFlushGPUDirectRDMAWrites);
    TRY(context_now(&context));
    if (target != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX ||
        scope != CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER)
        return CUDA_ERROR_INVALID_VALUE;
    void (*flush)(void) = atomic_load(&on_flush);
    if (flush)
        flush();
    return CUDA_SUCCESS;
}
