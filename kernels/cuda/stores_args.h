/* The argument of the kernel in stores.cu. Plain C, read by both sides. */
#ifndef MILLRACE_KERNELS_CUDA_STORES_ARGS_H
#define MILLRACE_KERNELS_CUDA_STORES_ARGS_H

#include <stdint.h>

/* A kernel's arguments may have 4,096 bytes. nvcc has each thread copy an argument of 80 bytes, and
 * none of this size. */
enum { STORE_BYTES = 1024 };

struct store_args {
    void *to;
    int64_t size_bytes;
    unsigned char bytes[STORE_BYTES];
};

#endif
