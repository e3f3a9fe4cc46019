/* The part of NVRTC that Millrace uses, in declarations of our own (nvrtc.h of libnvrtc.so.12 and
 * .13). */
#ifndef MILLRACE_KERNELS_CUDA_COMPILER_API_H
#define MILLRACE_KERNELS_CUDA_COMPILER_API_H

#include <stddef.h>

typedef struct _nvrtcProgram *nvrtcProgram;

struct compiler_api {
#define COMPILER_CALL(name, arguments) int(*name) arguments;
#include "kernels/cuda/compiler_calls.inc"
};

#endif
