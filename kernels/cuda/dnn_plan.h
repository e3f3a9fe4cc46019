/* Plans of convolutions: which of cuDNN's engines computes one, and with how much workspace. For
 * dnn.c, which keeps plans and runs them. */
#ifndef MILLRACE_KERNELS_CUDA_DNN_PLAN_H
#define MILLRACE_KERNELS_CUDA_DNN_PLAN_H

#include <stdatomic.h>

#include "common/base/status.h"
#include "kernels/cpu/nn/conv.h"
#include "kernels/cuda/dnn_api.h"

enum { CONVOLUTION_MAX_KEPT = 8 };

/* All that decides; compared as bytes. */
struct convolution_kind {
    struct conv_shape shape;
    int64_t alignment;           /* of all operands, in bytes */
    int64_t max_workspace_bytes; /* engines that need more are passed over */
    int32_t dtype;
    uint8_t direction, is_channels_first, has_filter_channels_first, allows_tf32;
};

/* What a device keeps for convolutions of one kind. Shared; constant once it is made, except for
 * what the device's lock guards. */
struct gpu_convolution {
    _Atomic int n_refs;
    struct convolution_kind kind;                        /* the key under which it is kept */
    cudnnBackendDescriptor_t kept[CONVOLUTION_MAX_KEPT]; /* what the plan was made of */
    int n_kept;
    cudnnBackendDescriptor_t plan; /* NULL: no engine computes this kind */
    int64_t workspace_bytes;
    struct status *why_none; /* set where plan is NULL */
    bool is_held;            /* by gpu_dnn.held, for segments; with the device's lock */
    bool is_not_captured;    /* a capture has failed; with the device's lock */
};

/* The ids of a graph's tensors. */
enum { ID_IN = 1, ID_FILTER, ID_OUT };

/* What plans are made for: the GPU of a handle, or one that is only described. */
struct dnn_target {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t description;
};

/* Makes a plan. One thread at a time uses a handle. *ret has no plan if no engine computes the kind
 * (UNIMPLEMENTED in why_none), or those that do need more workspace (RESOURCE_EXHAUSTED). Errors:
 * what the first engine failed with, if all that would do have failed; the library's. */
struct status *convolution_new(const struct dnn_target *target, const struct convolution_kind *kind,
                               struct gpu_convolution **ret) MUST_USE;
void convolution_unref(struct gpu_convolution *c); /* accepts NULL */

/* ---- the library (dnn.c, dnn_descriptors.c) ---- */

extern struct dnn_api dnn_api; /* set by gpu_dnn_open, then constant */

/* NULL for success, otherwise INTERNAL with the call and the library's status. */
struct status *dnn_check(int error, const char *what) MUST_USE;
void dnn_note(int error, const char *what); /* as driver_note */
/* Does the library say that it does not support what was asked for? */
bool dnn_is_unsupported(int error);

/* ---- descriptors (dnn_descriptors.c) ---- */

void dnn_destroy(cudnnBackendDescriptor_t descriptor); /* accepts NULL */
struct status *dnn_create(int type, cudnnBackendDescriptor_t *ret) MUST_USE;
struct status *dnn_set(cudnnBackendDescriptor_t descriptor, int name, int type, int64_t n,
                       const void *elements) MUST_USE;
struct status *dnn_set_descriptor(cudnnBackendDescriptor_t descriptor, int name,
                                  cudnnBackendDescriptor_t value) MUST_USE;
struct status *dnn_get(cudnnBackendDescriptor_t descriptor, int name, int type, int64_t n_wanted,
                       int64_t *ret_n, void *elements) MUST_USE;
struct status *dnn_finalize(cudnnBackendDescriptor_t descriptor) MUST_USE;

#endif
