/* What the kernels of pooling share, of any pool and of images in packs. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_POOLS_H
#define MILLRACE_KERNELS_CUDA_OPS_POOLS_H

#include "kernels/cuda/ops/windows.h"

/* The least finite number, where a maximum begins: minus infinity is never a result. */
__device__ static inline float pool_least(__half) { return -65504.0f; }
__device__ static inline float pool_least(__nv_bfloat16) { return -0x1.fep127f; }
__device__ static inline float pool_least(float) { return -0x1.fffffep127f; }
__device__ static inline int8_t pool_least(int8_t) { return -128; }
__device__ static inline double pool_least(double) { return -0x1.fffffffffffffp1023; }

#endif
