/* Kernels: finding them by name, launching them; functions of the host as operations; blocks. */
#include "tests/cuda/sim/driver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SHARED_PLAIN = 49152,
    SHARED_MAX = 232448,
    MAX_ARGUMENTS = 32764, /* of CUDA 12.1 and later */
    MAX_BLOCK = 1024,
    MAX_BLOCK_Z = 64,
    MAX_GRID_YZ = 65535,
};

struct CUlib_st {
    int unused;
};

/* A kernel and its function are the same here. Never freed: a few hundred in a process. */
struct CUkern_st {
    char *name;
    uint32_t number;
    size_t size; /* of the arguments */
    int shared_max;
    struct CUkern_st *next;
};
static struct CUkern_st *kernels; /* guarded by the link's lock */

/* The device process has it open when it answers. */
static CUresult load_object(const char *path) {
    struct sim_message message = {.command = SIM_LOAD_KERNELS, .n_bytes = (uint32_t)strlen(path)};
    struct sim_answer answer;
    link_lock();
    CUresult result = link_request(&message, path, &answer);
    unlink(path);
    return result;
}

CUresult cuLibraryLoadData(CUlibrary *ret_library, const void *code, int *jit_options,
                           void **jit_values, unsigned n_jit, int *options, void **values,
                           unsigned n) {
    BEGIN(cuLibraryLoadData);
    if (code == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (strncmp(code, SIM_CODE_MARK, strlen(SIM_CODE_MARK)) == 0)
        TRY(load_object((const char *)code + strlen(SIM_CODE_MARK)));
    *ret_library = calloc(1, sizeof **ret_library);
    return *ret_library != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuLibraryUnload(CUlibrary library) {
    BEGIN_DESTROY(cuLibraryUnload, library);
    free(library);
    return CUDA_SUCCESS;
}

const char *kernel_name(uint32_t number) {
    link_lock();
    const struct CUkern_st *kernel = kernels;
    while (kernel != NULL && kernel->number != number)
        kernel = kernel->next;
    link_unlock();
    return kernel != NULL ? kernel->name : NULL;
}

static CUresult kernel_ask(const char *name, uint32_t *ret_number, size_t *ret_size) {
    struct sim_message message = {.command = SIM_FIND_KERNEL, .n_bytes = (uint32_t)strlen(name)};
    struct sim_answer answer;
    link_lock();
    TRY(link_request(&message, name, &answer));
    *ret_number = (uint32_t)answer.value2;
    *ret_size = answer.value;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *ret_kernel, CUlibrary library, const char *name) {
    BEGIN(cuLibraryGetKernel);
    if (library == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    link_lock();
    struct CUkern_st *kernel = kernels;
    while (kernel != NULL && strcmp(kernel->name, name) != 0)
        kernel = kernel->next;
    link_unlock();
    if (kernel == NULL) {
        uint32_t number;
        size_t size;
        TRY(kernel_ask(name, &number, &size));
        kernel = calloc(1, sizeof *kernel);
        if (kernel == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        *kernel = (struct CUkern_st){strdup(name), number, size, SHARED_PLAIN, NULL};
        link_lock();
        kernel->next = kernels;
        kernels = kernel;
        link_unlock();
    }
    *ret_kernel = kernel;
    return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction *ret_function, CUkernel kernel) {
    struct CUctx_st *context;
    BEGIN(cuKernelGetFunction);
    TRY(context_now(&context));
    *ret_function = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
    struct CUkern_st *kernel = (struct CUkern_st *)function;
    BEGIN(cuFuncSetAttribute);
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        value > SHARED_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    link_lock();
    kernel->shared_max = value;
    link_unlock();
    return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int *ret_value, CUfunction_attribute attribute, CUfunction function) {
    const struct CUkern_st *kernel = (const struct CUkern_st *)function;
    BEGIN(cuFuncGetAttribute);
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *ret_value = MAX_BLOCK;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *ret_value = 0;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *ret_value = 32;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        link_lock();
        *ret_value = kernel->shared_max;
        link_unlock();
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* ---- launches ---- */

static CUresult launch_check(const struct CUkern_st *kernel, const CUlaunchConfig *config) {
    uint64_t threads = (uint64_t)config->block_x * config->block_y * config->block_z;
    uint64_t blocks = (uint64_t)config->grid_x * config->grid_y * config->grid_z;
    if (kernel == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    if (threads == 0 || threads > MAX_BLOCK || config->block_z > MAX_BLOCK_Z || blocks == 0 ||
        config->grid_x > INT32_MAX || config->grid_y > MAX_GRID_YZ ||
        config->grid_z > MAX_GRID_YZ || config->shared_size > (unsigned)kernel->shared_max)
        return CUDA_ERROR_INVALID_VALUE;
    if (blocks > UINT32_MAX) { /* a limit of the simulator's */
        link_report("a launch of more than 2^32 blocks is not simulated");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

CUresult kernel_bytes(const CUlaunchConfig *config, CUfunction function, void **arguments,
                      void **extra, void **ret, uint32_t *ret_size) {
    const struct CUkern_st *kernel = (const struct CUkern_st *)function;
    TRY(launch_check(kernel, config));
    if (extra != NULL)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (kernel->size > MAX_ARGUMENTS || arguments == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_launch launch = {.kernel = kernel->number,
                                .grid = {config->grid_x, config->grid_y, config->grid_z},
                                .block = {config->block_x, config->block_y, config->block_z},
                                .shared_size = config->shared_size};
    *ret_size = (uint32_t)(sizeof launch + kernel->size);
    *ret = malloc(*ret_size);
    if (*ret == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(*ret, &launch, sizeof launch);
    memcpy((unsigned char *)*ret + sizeof launch, arguments[0], kernel->size);
    return CUDA_SUCCESS;
}

static CUresult launch(const CUlaunchConfig *config, CUfunction function, void **arguments,
                       void **extra) {
    struct sim_message message = {0};
    void *bytes;
    if (sim.is_null)
        return launch_check((const struct CUkern_st *)function, config);
    TRY(kernel_bytes(config, function, arguments, extra, &bytes, &message.n_bytes));
    CUresult result = stream_begin(config->stream, SIM_KERNEL, &message);
    if (result == CUDA_SUCCESS)
        stream_finish(&message, bytes);
    free(bytes);
    return result;
}

CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_size,
                        CUstream stream, void **arguments, void **extra) {
    CUlaunchConfig config = {.grid_x = grid_x,
                             .grid_y = grid_y,
                             .grid_z = grid_z,
                             .block_x = block_x,
                             .block_y = block_y,
                             .block_z = block_z,
                             .shared_size = shared_size,
                             .stream = stream};
    BEGIN(cuLaunchKernel);
    return launch(&config, function, arguments, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **arguments,
                          void **extra) {
    BEGIN(cuLaunchKernelEx);
    for (unsigned i = 0; i < config->n_attributes; i++)
        if (config->attributes[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE &&
            config->attributes[i].value.cooperative)
            return CUDA_ERROR_NOT_SUPPORTED; /* blocks run one after another */
    return launch(config, function, arguments, extra);
}

/* ---- operations that the driver API does not have ---- */

static CUresult host_function_ask(const char *name, uint32_t *ret_number) {
    struct sim_message message = {.command = SIM_FIND_HOST, .n_bytes = (uint32_t)strlen(name)};
    struct sim_answer answer;
    link_lock();
    TRY(link_request(&message, name, &answer));
    *ret_number = (uint32_t)answer.value2;
    return CUDA_SUCCESS;
}

EXPORTED CUresult simEnqueueHostOperation(CUstream stream, const char *name, const void *args,
                                          size_t size, const struct sim_range *reads,
                                          size_t n_reads, const struct sim_range *writes,
                                          size_t n_writes) {
    struct sim_host_operation host = {.n_reads = (uint32_t)n_reads, .n_writes = (uint32_t)n_writes};
    size_t ranges_size = (n_reads + n_writes) * sizeof *reads;
    struct sim_message message = {.n_bytes = (uint32_t)(sizeof host + ranges_size + size)};
    if (message.n_bytes > SIM_MAX_MESSAGE)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(host_function_ask(name, &host.function));
    unsigned char *bytes = malloc(message.n_bytes);
    if (bytes == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(bytes, &host, sizeof host);
    if (n_reads > 0)
        memcpy(bytes + sizeof host, reads, n_reads * sizeof *reads);
    if (n_writes > 0)
        memcpy(bytes + sizeof host + n_reads * sizeof *reads, writes, n_writes * sizeof *writes);
    memcpy(bytes + sizeof host + ranges_size, args, size);
    CUresult result = stream_begin(stream, SIM_HOST, &message);
    if (result == CUDA_SUCCESS)
        stream_finish(&message, bytes);
    free(bytes);
    return result;
}

static CUresult block_change(enum sim_command command, CUdeviceptr start, size_t size,
                             CUstream stream) {
    struct sim_message message = {.at = start, .size = size};
    if (start % SIM_PAGE != 0 || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    TRY(stream_begin(stream, command, &message));
    stream_finish(&message, NULL);
    return CUDA_SUCCESS;
}

EXPORTED CUresult simBlockAllocated(CUdeviceptr start, size_t size, CUstream stream) {
    return block_change(SIM_BLOCK_NEW, start, size, stream);
}

EXPORTED CUresult simBlockFreed(CUdeviceptr start, size_t size, CUstream stream) {
    return block_change(SIM_BLOCK_FREED, start, size, stream);
}
