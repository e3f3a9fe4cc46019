/* What every kernel file (.cu) includes: the macros that declare kernels and shared memory.
 *
 *     struct scale_args { const float *x; float *y; float factor; long n; };
 *     KERNEL(scale, struct scale_args) {
 *         long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
 *         if (i < args.n)
 *             args.y[i] = args.factor * args.x[i];
 *     }
 *
 * A kernel has one parameter, args, a trivially copyable struct that is passed by value. Its name
 * is the symbol that cuLibraryGetKernel looks for. Threads that do nothing still reach every
 * barrier: no return before __syncthreads.
 *
 * nvcc reads this file as it is. For the simulated device the host's compiler reads
 * tests/cuda/sim/device_runtime.h first (-include), which defines the same macros. */
#ifndef MILLRACE_KERNELS_CUDA_KERNEL_LANGUAGE_H
#define MILLRACE_KERNELS_CUDA_KERNEL_LANGUAGE_H

#ifndef KERNEL
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#define KERNEL(name, type) extern "C" __global__ void name(type args)

/* The dynamic shared memory of the launch, as an array of type, aligned to 16 bytes. */
#define DYNAMIC_SHARED(type, name)                                           \
    extern __shared__ __align__(16) unsigned char millrace_dynamic_shared[]; \
    type *name = reinterpret_cast<type *>(millrace_dynamic_shared)
#endif

#endif
