/* Convolutions on a GPU, by cuDNN, which is opened by dlopen when the plugin starts. The simulated
 * driver has cuDNN's calls, too (tests/cuda/sim/driver_dnn.c). */
#ifndef MILLRACE_KERNELS_CUDA_DNN_H
#define MILLRACE_KERNELS_CUDA_DNN_H

#include "kernels/cuda/driver_api.h"
#include "kernels/kernel.h"

struct conv_job;
struct gpu_device;
struct gpu_dnn;
struct gpu_work;

/* Opens libcudnn as gpu_blas_open opens cuBLASLt. Called once in a process, before devices are
 * opened. If the library cannot be opened, convolutions fail with UNIMPLEMENTED and the reason. */
void gpu_dnn_open(const char *folders, bool allow_tf32, void *simulated);
/* Returns why cuDNN cannot be used; NULL if it can. */
const char *gpu_dnn_missing(void);

/* Is the filter of gpu_convolve [out, in, window]? Otherwise it is [out, window, in]. */
bool dnn_filter_is_channels_first(const struct conv_job *job);

/* Computes a convolution as device_engine.convolve does, of a filter that is stored as
 * dnn_filter_is_channels_first says. A plan's workspace is at most the device's limit; where memory
 * is short, an engine that wants less takes its place. Errors: UNIMPLEMENTED without the library or
 * an engine, RESOURCE_EXHAUSTED, the library's and the driver's. */
struct status *gpu_convolve(struct kernel_ctx *ctx, const struct conv_job *job) MUST_USE;

/* Makes a plan for a GPU that need not be there, for tests, and frees it. device_json describes the
 * GPU as CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION does. Errors: those of gpu_convolve. */
struct status *gpu_dnn_plan_for(const char *device_json, const struct conv_job *job,
                                int64_t max_workspace_bytes, int64_t *ret_workspace_bytes) MUST_USE;

/* ---- captures (gpu_graphs.c); with the device's lock ---- */

/* From now on convolutions go to this stream. Called before and after a capture, because what a
 * library does meanwhile is captured, too. Errors: the library's. */
struct status *gpu_dnn_set_stream(struct gpu_device *gpu, CUstream stream) MUST_USE;
/* A capture with this work has failed. If it is a convolution, others of its kind are not parts of
 * segments any more. */
void gpu_dnn_note_not_captured(const struct gpu_work *work);

/* What a device keeps for convolutions: plans, and the library's handles. */
struct gpu_dnn *gpu_dnn_new(void);
void gpu_dnn_free(struct gpu_dnn *device); /* accepts NULL */

#endif
