/* The function of SyncDevice's row (kernels/cuda/rows/implementations.inc). */
#ifndef MILLRACE_KERNELS_CUDA_OPS_SYNC_H
#define MILLRACE_KERNELS_CUDA_OPS_SYNC_H

#include "kernels/kernel.h"

kernel_fn sync_device; /* may answer KERNEL_PENDING */

#endif
