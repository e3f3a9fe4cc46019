/* Opens the CUDA driver (driver.h). */
#include "kernels/cuda/driver.h"

#include <dlfcn.h>

#include "common/base/log.h"

static const struct driver_error {
    CUresult number;
    const char *name, *text;
} errors[] = {
#define DRIVER_ERROR(name, number, text) {name, #name, text},
#include "kernels/cuda/driver_errors.inc"
};

struct call_row {
    const char *symbol;
    size_t offset; /* in struct driver_api */
};
static const struct call_row calls[] = {
#define DRIVER_CALL(name, symbol, arguments) {#symbol, offsetof(struct driver_api, name)},
#include "kernels/cuda/driver_calls.inc"
};

static const struct driver_error *error_find(CUresult error) {
    for (size_t i = 0; i < ARRAY_LEN(errors); i++)
        if (errors[i].number == error)
            return &errors[i];
    return NULL;
}

struct status *driver_status(CUresult error, const char *what) {
    if (likely(error == CUDA_SUCCESS))
        return NULL;
    const struct driver_error *known = error_find(error);
    enum status_code code = error == CUDA_ERROR_OUT_OF_MEMORY        ? STATUS_RESOURCE_EXHAUSTED
                            : error == CUDA_ERROR_DEVICE_UNAVAILABLE ? STATUS_UNAVAILABLE
                                                                     : STATUS_INTERNAL;
    if (!known)
        return status_new(code, "%s failed with CUDA error %d", what, (int)error);
    return status_new(code, "%s failed: %s (%s, CUDA error %d)", what, known->text, known->name,
                      (int)error);
}

void driver_note(CUresult error, const char *call) {
    struct status *st = driver_status(error, call);
    if (st)
        log_event(EVENT_GPU_TROUBLE, "%s", status_message(st));
    status_unref(st);
}

bool driver_error_is_sticky(CUresult error) {
    switch (error) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_MPS_CLIENT_TERMINATED:
        return true;
    default:
        return false;
    }
}

static struct driver_checker checker;

/* A simulated driver has all of these calls. */
static const struct driver_checker *find_checker(void *handle) {
    *(void **)&checker.block_allocated = dlsym(handle, "simBlockAllocated");
    *(void **)&checker.block_freed = dlsym(handle, "simBlockFreed");
    *(void **)&checker.graph_block = dlsym(handle, "simGraphBlock");
    *(void **)&checker.enqueue_host = dlsym(handle, "simEnqueueHostOperation");
    int (*is_null)(void);
    *(void **)&is_null = dlsym(handle, "simIsNull");
    checker.is_null = is_null && is_null();
    checker.library = handle;
    return checker.block_allocated && checker.block_freed && checker.graph_block &&
                   checker.enqueue_host
               ? &checker
               : NULL;
}

struct status *driver_open(const char *library, struct driver_api *ret,
                           const struct driver_checker **ret_checker) {
    struct driver_api api;
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        const char *why = dlerror();
        return status_unavailable("no CUDA driver: %s", why ? why : library);
    }
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        void *symbol = dlsym(handle, calls[i].symbol);
        if (!symbol) {
            struct status *st = status_unavailable(
                "the CUDA driver %s has no %s: a driver for CUDA 12.0 or newer is needed", library,
                calls[i].symbol);
            dlclose(handle);
            return st;
        }
        memcpy((char *)&api + calls[i].offset, &symbol, sizeof(symbol));
    }
    CUresult error = api.cuInit(0);
    if (error == CUDA_ERROR_NO_DEVICE)
        return status_unavailable("the CUDA driver %s finds no device", library);
    if (error != CUDA_SUCCESS)
        return status_prefix_take(driver_status(error, "cuInit"), "the CUDA driver %s: ", library);
    *ret = api;
    *ret_checker = find_checker(handle);
    return NULL;
}
