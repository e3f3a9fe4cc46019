/* NVML: the calls by which the plugin hears of Xids. A device that has an error has the Xid that a
 * real one would have, once. */
#include "tests/cuda/sim/driver.h"
#include <stdio.h>
#include <stdlib.h>

enum { NVML_SUCCESS = 0, NVML_INVALID = 2, NVML_NOT_FOUND = 6, NVML_TIMEOUT = 10, XID_EVENT = 8 };

struct nvml_event {
    void *device;
    unsigned long long type, xid;
    unsigned gpu_instance, compute_instance;
};
struct event_set {
    int device; /* -1: none */
    atomic_bool was_told;
};

EXPORTED int nvmlInit_v2(void);
EXPORTED int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **ret_device);
EXPORTED int nvmlEventSetCreate(void **ret_set);
EXPORTED int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set);
EXPORTED int nvmlEventSetWait_v2(void *set, struct nvml_event *ret, unsigned timeout_ms);
EXPORTED int nvmlEventSetFree(void *set);

static unsigned long long xid_of(int error) {
    switch (error) {
    case CUDA_SUCCESS:
        return 0;
    case CUDA_ERROR_ECC_UNCORRECTABLE:
        return 48;
    case CUDA_ERROR_ILLEGAL_ADDRESS:
        return 31;
    case CUDA_ERROR_UNKNOWN: /* the process is gone: the device has fallen off the bus */
        return 79;
    default:
        return 13;
    }
}

int nvmlInit_v2(void) { return NVML_SUCCESS; }

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, void **ret_device) {
    unsigned bus;
    if (sscanf(bus_id, "0000:%X:00.0", &bus) != 1)
        return NVML_NOT_FOUND;
    for (int d = 0; d < sim.n_devices; d++)
        if (sim.physical[d] == (int)bus - 1) {
            *ret_device = (void *)(uintptr_t)(d + 1);
            return NVML_SUCCESS;
        }
    return NVML_NOT_FOUND;
}

int nvmlEventSetCreate(void **ret_set) {
    struct event_set *set = calloc(1, sizeof *set);
    if (!set)
        return NVML_INVALID;
    set->device = -1;
    *ret_set = set;
    return NVML_SUCCESS;
}

int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) {
    if (types != XID_EVENT)
        return NVML_INVALID;
    ((struct event_set *)set)->device = (int)(uintptr_t)device - 1;
    return NVML_SUCCESS;
}

int nvmlEventSetWait_v2(void *set, struct nvml_event *ret, unsigned timeout_ms) {
    struct event_set *events = set;
    (void)timeout_ms;
    unsigned long long xid =
        events->device < 0 ? 0 : xid_of(atomic_load(&device_errors[events->device]));
    if (xid == 0 || atomic_exchange(&events->was_told, true))
        return NVML_TIMEOUT;
    *ret = (struct nvml_event){.type = XID_EVENT, .xid = xid};
    return NVML_SUCCESS;
}

int nvmlEventSetFree(void *set) {
    free(set);
    return NVML_SUCCESS;
}
