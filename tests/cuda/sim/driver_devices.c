/* cuInit, devices and their primary contexts. */
#include "tests/cuda/sim/driver.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct sim sim;
atomic_int device_errors[SIM_MAX_DEVICES];

static struct CUctx_st contexts[SIM_MAX_DEVICES];
static _Thread_local struct CUctx_st *current;

enum { DRIVER_VERSION = 13000 };

/* ---- the beginning ---- */

static uint64_t setting(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtoull(text, NULL, 0) : otherwise;
}

/* Takes addresses that are closed in this process for good: device memory is not the host's. */
static bool reserve(uint64_t base) {
    uint64_t size = (uint64_t)sim.n_devices * SIM_DEVICE_SPAN;
    void *memory = mmap((void *)base, size, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    if (memory != (void *)base) { /* an old kernel took the address as a hint */
        munmap(memory, size);
        return false;
    }
    sim.base = base;
    return true;
}

static CUresult start(void) {
    /* All are free in ordinary processes and under the sanitizers, as far as chance allows. */
    static const uint64_t bases[] = {0x7e9000000000, 0x7eb000000000, 0x200000000000,
                                     0x300000000000};
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
        if (!reserve(bases[i]))
            continue;
        CUresult result = sim.is_null ? CUDA_SUCCESS : link_start();
        if (result != CUDA_ERROR_UNKNOWN) /* unknown: it has ended before it answered */
            return result;
        munmap((void *)sim.base, (uint64_t)sim.n_devices * SIM_DEVICE_SPAN);
        for (int d = 0; d < SIM_MAX_DEVICES; d++)
            atomic_store(&device_errors[d], 0);
    }
    link_report("the device process cannot be used; it may have said why above");
    return CUDA_ERROR_SYSTEM_NOT_READY;
}

static void see_devices(int n_physical) {
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    sim.n_devices = n_physical;
    for (int d = 0; d < n_physical; d++)
        sim.physical[d] = d;
    if (list != NULL)
        sim.n_devices = devices_visible(list, n_physical, sim.physical);
}

static CUresult init(void) {
    const char *mode = getenv("MILLRACE_SIM_MODE"), *name = getenv("MILLRACE_SIM_NAME");
    sim.is_null = mode != NULL && strcmp(mode, "null") == 0;
    sim.has_peers = setting("MILLRACE_SIM_PEERS", 1) != 0;
    sim.rounds_to_tf32 = setting("MILLRACE_SIM_TF32", 0) != 0;
    uint64_t n_physical = setting("MILLRACE_SIM_DEVICES", 1);
    sim.memory = setting("MILLRACE_SIM_MEMORY", 2ull << 30) & ~(uint64_t)(SIM_PAGE - 1);
    sim.name = name != NULL ? name : "Simulated GPU";
    if (n_physical > SIM_MAX_DEVICES)
        return CUDA_ERROR_NO_DEVICE;
    see_devices((int)n_physical);
    if (sim.n_devices < 1)
        return CUDA_ERROR_NO_DEVICE;
    for (int d = 0; d < sim.n_devices; d++) {
        contexts[d].device = d;
        sim.memory_files[d] = memfd_create("sim_device_memory", MFD_CLOEXEC);
        sim.memory_files[d] = file_moved(sim.memory_files[d]);
        if (sim.memory_files[d] < 0 || ftruncate(sim.memory_files[d], (off_t)sim.memory) != 0)
            return CUDA_ERROR_OPERATING_SYSTEM;
    }
    TRY(shared_init());
    TRY(start());
    host_faults_init();
    return CUDA_SUCCESS;
}

CUresult cuInit(unsigned flags) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool was_tried;
    static CUresult result;
    TRY(calls_init());
    BEGIN(cuInit);
    pthread_mutex_lock(&lock);
    if (!was_tried) {
        was_tried = true;
        result = init();
        atomic_store_explicit(&sim.is_initialized, result == CUDA_SUCCESS, memory_order_release);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

EXPORTED CUresult simHold(int is_held) {
    struct sim_message message = {.command = SIM_HOLD, .value = is_held != 0};
    struct sim_answer answer;
    link_lock();
    return link_request(&message, NULL, &answer);
}

EXPORTED int simIsNull(void) { return sim.is_null; }

CUresult cuDriverGetVersion(int *ret_version) {
    BEGIN(cuDriverGetVersion);
    *ret_version = DRIVER_VERSION;
    return CUDA_SUCCESS;
}

/* ---- devices ---- */

static CUresult device_check(CUdevice device) {
    return device >= 0 && device < sim.n_devices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceGetCount(int *ret_n) {
    BEGIN(cuDeviceGetCount);
    *ret_n = sim.n_devices;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *ret_device, int ordinal) {
    BEGIN(cuDeviceGet);
    TRY(device_check(ordinal));
    *ret_device = ordinal;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *ret_name, int size, CUdevice device) {
    BEGIN(cuDeviceGetName);
    TRY(device_check(device));
    snprintf(ret_name, (size_t)size, "%s", sim.name);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *ret_uuid, CUdevice device) {
    BEGIN(cuDeviceGetUuid_v2);
    TRY(device_check(device));
    device_uuid(sim.physical[device], ret_uuid);
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *ret_id, int size, CUdevice device) {
    BEGIN(cuDeviceGetPCIBusId);
    TRY(device_check(device));
    snprintf(ret_id, (size_t)size, "0000:%02X:00.0", sim.physical[device] + 1);
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *ret_size, CUdevice device) {
    BEGIN(cuDeviceTotalMem_v2);
    TRY(device_check(device));
    *ret_size = sim.memory;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *ret_value, CUdevice_attribute attribute, CUdevice device) {
    static const struct {
        CUdevice_attribute attribute;
        int value;
    } attributes[] = {
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
        {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, SIM_PAGE},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 4},
        {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 1024},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 4 << 20},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
        {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
        {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 0},
        {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS,
         CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST},
        {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, 0},
        {CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 1},
    };
    BEGIN(cuDeviceGetAttribute);
    TRY(device_check(device));
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++)
        if (attributes[i].attribute == attribute) {
            *ret_value = attributes[i].value;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceCanAccessPeer(int *ret_can, CUdevice device, CUdevice peer) {
    BEGIN(cuDeviceCanAccessPeer);
    TRY(device_check(device));
    TRY(device_check(peer));
    *ret_can = device != peer && sim.has_peers;
    return CUDA_SUCCESS;
}

/* ---- contexts ---- */

CUresult context_now(struct CUctx_st **ret_context) {
    if (current == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    int error = atomic_load_explicit(&device_errors[current->device], memory_order_acquire);
    if (error != 0)
        return (CUresult)error;
    *ret_context = current;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ret_context, CUdevice device) {
    BEGIN(cuDevicePrimaryCtxRetain);
    TRY(device_check(device));
    TRY((CUresult)atomic_load(&device_errors[device]));
    link_lock();
    contexts[device].n_retained++;
    link_unlock();
    *ret_context = &contexts[device];
    return CUDA_SUCCESS;
}

/* What a context has is gone with it: memory, streams, events, the sticky error. */
static CUresult context_reset(CUdevice device) {
    struct sim_message message = {.command = SIM_RESET, .device = (uint32_t)device};
    struct sim_answer answer;
    link_lock();
    memory_reset(device);
    streams_reset(device);
    memset(contexts[device].peers, 0, sizeof contexts[device].peers);
    TRY(link_request(&message, NULL, &answer));
    pinned_release_device((uint32_t)device);
    atomic_store(&device_errors[device], 0);
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    BEGIN(cuDevicePrimaryCtxRelease_v2);
    TRY(device_check(device));
    link_lock();
    int n = contexts[device].n_retained > 0 ? contexts[device].n_retained-- : 0;
    link_unlock();
    if (n == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    return n == 1 ? context_reset(device) : CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    BEGIN(cuDevicePrimaryCtxReset_v2);
    TRY(device_check(device));
    return context_reset(device);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *ret_flags, int *ret_is_active) {
    BEGIN(cuDevicePrimaryCtxGetState);
    TRY(device_check(device));
    link_lock();
    *ret_flags = contexts[device].flags;
    *ret_is_active = contexts[device].n_retained > 0;
    link_unlock();
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    BEGIN(cuDevicePrimaryCtxSetFlags_v2);
    TRY(device_check(device));
    link_lock();
    contexts[device].flags = flags;
    link_unlock();
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    BEGIN(cuCtxSetCurrent);
    current = context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ret_context) {
    BEGIN(cuCtxGetCurrent);
    *ret_context = current;
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void) {
    struct CUctx_st *context;
    struct sim_answer answer;
    BEGIN(cuCtxSynchronize);
    TRY(context_now(&context));
    link_lock();
    return link_request(&(struct sim_message){.command = SIM_SYNCHRONIZE_DEVICE,
                                              .device = (uint32_t)context->device},
                        NULL, &answer);
}

CUresult cuCtxGetStreamPriorityRange(int *ret_least, int *ret_greatest) {
    struct CUctx_st *context;
    BEGIN(cuCtxGetStreamPriorityRange);
    TRY(context_now(&context));
    *ret_least = 0;
    *ret_greatest = -5;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    struct CUctx_st *context;
    BEGIN(cuCtxEnablePeerAccess);
    TRY(context_now(&context));
    if (peer == NULL || peer == context || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim.has_peers)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    link_lock();
    bool was_enabled = context->peers[peer->device];
    context->peers[peer->device] = true;
    if (!was_enabled)
        link_send(&(struct sim_message){.command = SIM_ENABLE_PEER,
                                        .device = (uint32_t)context->device,
                                        .value = (uint64_t)peer->device},
                  NULL, -1);
    link_unlock();
    return was_enabled ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_SUCCESS;
}

EXPORTED CUresult simFailDevice(CUdevice device, CUresult error) {
    struct sim_answer answer;
    TRY(device_check(device));
    link_lock();
    return link_request(&(struct sim_message){.command = SIM_FAIL,
                                              .device = (uint32_t)device,
                                              .value = (uint64_t)error},
                        NULL, &answer);
}
