/* Matrix products on a GPU, by cuBLASLt, which is opened by dlopen when the plugin starts. The
 * simulated driver has cuBLASLt's calls, too (tests/cuda/sim/driver_blas.c). */
#ifndef MILLRACE_KERNELS_CUDA_BLAS_H
#define MILLRACE_KERNELS_CUDA_BLAS_H

#include "kernels/support/device_engine.h"

/* Opens libcublasLt from `folders` (DIR:DIR…, or NULL), else from where the system looks for
 * libraries. Called once in a process, before devices are opened. `simulated` is the library of a
 * simulated driver, which is used instead, or NULL. If the library cannot be opened, products fail
 * with UNIMPLEMENTED and the reason. */
void gpu_blas_open(const char *folders, bool allow_tf32, void *simulated);
/* Returns why cuBLASLt cannot be used; NULL if it can. */
const char *gpu_blas_missing(void);

/* Computes device_engine.multiply. */
struct status *gpu_multiply(struct kernel_ctx *ctx,
                            const struct device_products *products) MUST_USE;

struct gpu_device;
/* Frees the algorithms that the device has kept for its products. The caller holds its lock. */
void gpu_blas_forget(struct gpu_device *gpu);
/* Frees everything that the device keeps for products, also the library's handle. */
void gpu_blas_close(struct gpu_device *gpu);

#endif
