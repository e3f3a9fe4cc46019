/* Matrix products on a GPU, by cuBLASLt, which is opened by dlopen when the plugin starts. On the
 * simulated device a function of the simulation computes them, as an operation of the stream. */
#ifndef MILLRACE_KERNELS_CUDA_BLAS_H
#define MILLRACE_KERNELS_CUDA_BLAS_H

#include "kernels/support/device_engine.h"

/* Looks for libcublasLt in `folders` (DIR:DIR…, or NULL), then where the system looks. Once a
 * process, before devices are opened. Without it, products fail with UNIMPLEMENTED, which says
 * why. */
void gpu_blas_open(const char *folders, bool allow_tf32);
/* NULL, or why there is no cuBLASLt. */
const char *gpu_blas_missing(void);

/* device_engine.multiply. */
struct status *gpu_multiply(struct kernel_ctx *ctx,
                            const struct device_products *products) MUST_USE;

struct gpu_device;
/* Frees the choices that the device has kept. With its lock. */
void gpu_blas_forget(struct gpu_device *gpu);
/* Frees all that it keeps for products. */
void gpu_blas_close(struct gpu_device *gpu);

#endif
