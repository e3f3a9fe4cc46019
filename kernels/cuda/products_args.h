/* A stack of matrix products as the simulated device gets it from the simulated cuBLASLt
 * (tests/cuda/sim/driver_blas.c): the arguments of gpu_products, in
 * tests/cuda/host_operations.cpp. */
#ifndef MILLRACE_KERNELS_CUDA_PRODUCTS_ARGS_H
#define MILLRACE_KERNELS_CUDA_PRODUCTS_ARGS_H

#include <stdint.h>

enum products_type {
    PRODUCTS_F16,
    PRODUCTS_BF16,
    PRODUCTS_F32,
    PRODUCTS_F64,
    PRODUCTS_C64,
    PRODUCTS_C128
};

/* out[i] = op(x[i]) · op(y[i]), all stored row by row: [m, n] of [m, k] and [k, n]. op transposes
 * what is stored transposed, and conjugates it, too, where `conjugates` is set. */
struct products_args {
    const void *x, *y;
    void *out;
    int64_t m, n, k, n_products, x_stride, y_stride; /* strides in elements; 0: the same matrix */
    int32_t type;                                    /* enum products_type */
    uint8_t transposes_x, transposes_y, conjugates;
    uint8_t rounds_to_tf32; /* the inputs of float */
};

#endif
