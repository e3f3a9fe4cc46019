/* A convolution as the simulated device gets it from the simulated cuDNN
 * (tests/cuda/sim/driver_dnn.c): the arguments of gpu_convolution, in
 * tests/cuda/host_operations.cpp. */
#ifndef MILLRACE_KERNELS_CUDA_CONVOLUTION_ARGS_H
#define MILLRACE_KERNELS_CUDA_CONVOLUTION_ARGS_H

#include <stdint.h>

#include "kernels/cuda/products_args.h"

enum convolution_direction {
    CONVOLUTION_FORWARD,
    CONVOLUTION_BACKPROP_INPUT,
    CONVOLUTION_BACKPROP_FILTER
};

/* Dimensions [batch, channels, z, y, x], of a filter [out, in of a group, z, y, x]. */
struct convolution_tensor {
    void *at;
    int64_t dims[5], strides[5]; /* in elements */
    int64_t alignment;           /* of `at`, in bytes, as the tensor was described */
};

struct convolution_args {
    int32_t direction, type; /* enum products_type */
    struct convolution_tensor in, filter, out;
    int64_t stride[3], rate[3], pad[3];
    int32_t rounds_to_tf32; /* the inputs of float */
};

#endif
