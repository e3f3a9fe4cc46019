/* Asks NVML for Xids (gpu_xid.h). Names and numbers are the public ABI of libnvidia-ml.so.1. */
#include "kernels/cuda/gpu_xid.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "kernels/cuda/library.h"

enum { XID_EVENT = 8, XID_PATIENCE_MS = 100 };

struct nvml_event {
    void *device;
    unsigned long long type, xid;
    unsigned gpu_instance, compute_instance;
};

static struct nvml {
    int (*init)(void);
    int (*find)(const char *bus_id, void **ret_device);
    int (*new_set)(void **ret_set);
    int (*listen)(void *device, unsigned long long types, void *set);
    int (*wait)(void *set, struct nvml_event *ret, unsigned timeout_ms);
    int (*free_set)(void *set);
} nvml;
static const struct gpu_library_call calls[] = {
    {"nvmlInit_v2", offsetof(struct nvml, init)},
    {"nvmlDeviceGetHandleByPciBusId_v2", offsetof(struct nvml, find)},
    {"nvmlEventSetCreate", offsetof(struct nvml, new_set)},
    {"nvmlDeviceRegisterEvents", offsetof(struct nvml, listen)},
    {"nvmlEventSetWait_v2", offsetof(struct nvml, wait)},
    {"nvmlEventSetFree", offsetof(struct nvml, free_set)},
};
static const char *const names[] = {"libnvidia-ml.so.1"};

struct gpu_xid {
    void *set;
};

/* Once a process. Devices are opened by one thread. */
static bool open_library(void *simulated) {
    static bool was_tried, is_open;
    struct str why = STR_INIT;
    if (was_tried)
        return is_open;
    was_tried = true;
    void *library = simulated ? simulated : gpu_library_open(NULL, names, ARRAY_LEN(names), &why);
    is_open = library && gpu_library_find(library, calls, ARRAY_LEN(calls), &nvml, &why) &&
              nvml.init() == 0;
    if (!is_open)
        log_event(EVENT_GPU, "no Xids of GPUs: %s",
                  why.len > 0 ? str_text(&why) : "NVML does not start");
    str_fini(&why);
    return is_open;
}

struct gpu_xid *gpu_xid_new(const char *bus_id, void *simulated) {
    void *device, *set;
    if (!open_library(simulated) || nvml.find(bus_id, &device) != 0 || nvml.new_set(&set) != 0)
        return NULL;
    if (nvml.listen(device, XID_EVENT, set) != 0) {
        nvml.free_set(set);
        return NULL;
    }
    struct gpu_xid *xid = xcalloc(1, sizeof *xid);
    xid->set = set;
    return xid;
}

void gpu_xid_free(struct gpu_xid *xid) {
    if (xid)
        nvml.free_set(xid->set);
    free(xid);
}

uint64_t gpu_xid_next(struct gpu_xid *xid) {
    struct nvml_event event;
    if (!xid || nvml.wait(xid->set, &event, XID_PATIENCE_MS) != 0 || event.type != XID_EVENT)
        return 0;
    return event.xid;
}
