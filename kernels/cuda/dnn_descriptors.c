/* Makes cuDNN's descriptors, and turns its numbers into statuses (dnn_plan.h). */
#include "common/base/log.h"
#include "kernels/cuda/dnn_plan.h"

struct status *dnn_check(int error, const char *what) {
    return likely(error == 0) ? NULL
                              : status_internal("%s failed with cuDNN status %d", what, error);
}

void dnn_note(int error, const char *what) {
    if (error)
        log_event(EVENT_GPU_TROUBLE, "%s failed with cuDNN status %d", what, error);
}

bool dnn_is_unsupported(int error) {
    return error >= CUDNN_NOT_SUPPORTED_FIRST && error < CUDNN_NOT_SUPPORTED_END;
}

/* ---- descriptors ---- */

void dnn_destroy(cudnnBackendDescriptor_t descriptor) {
    if (descriptor)
        dnn_note(dnn_api.cudnnBackendDestroyDescriptor(descriptor),
                 "cudnnBackendDestroyDescriptor");
}

struct status *dnn_create(int type, cudnnBackendDescriptor_t *ret) {
    return dnn_check(dnn_api.cudnnBackendCreateDescriptor(type, ret),
                     "cudnnBackendCreateDescriptor");
}

struct status *dnn_set(cudnnBackendDescriptor_t descriptor, int name, int type, int64_t n,
                       const void *elements) {
    return dnn_check(dnn_api.cudnnBackendSetAttribute(descriptor, name, type, n, elements),
                     "cudnnBackendSetAttribute");
}

struct status *dnn_set_descriptor(cudnnBackendDescriptor_t descriptor, int name,
                                  cudnnBackendDescriptor_t value) {
    return dnn_set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

struct status *dnn_get(cudnnBackendDescriptor_t descriptor, int name, int type, int64_t n_wanted,
                       int64_t *ret_n, void *elements) {
    return dnn_check(
        dnn_api.cudnnBackendGetAttribute(descriptor, name, type, n_wanted, ret_n, elements),
        "cudnnBackendGetAttribute");
}

struct status *dnn_finalize(cudnnBackendDescriptor_t descriptor) {
    return dnn_check(dnn_api.cudnnBackendFinalize(descriptor), "cudnnBackendFinalize");
}
