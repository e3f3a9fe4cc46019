/* The argument of every elementwise kernel, as the host fills it and the kernel reads it.
 *
 * An element of the output is a function of one element of each operand, of which there are up to
 * three. The host has merged the dimensions of a broadcast (kernels/support/broadcast.h), so what
 * is left is one of three forms. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_ELEMENTWISE_ARGS_H
#define MILLRACE_KERNELS_CUDA_OPS_ELEMENTWISE_ARGS_H

#include "kernels/cuda/ops/division.h"

enum { ELEMENTWISE_MAX_OPERANDS = 3, ELEMENTWISE_MAX_RANK = 16, ELEMENTWISE_VECTOR_BYTES = 16 };

enum elementwise_form {
    /* Element i of the output is made from element i of each operand, or from its only one. */
    ELEMENTWISE_FLAT,
    /* The last dimension is a multiple of a vector, so a vector never crosses the end of a row. */
    ELEMENTWISE_ROWS,
    ELEMENTWISE_ANY_BROADCAST
};

struct elementwise_args {
    const void *in[ELEMENTWISE_MAX_OPERANDS];
    void *out;
    int64_t n;
    /* numbers of the op: alpha of LeakyRelu; how many fraction bits Cast cuts off */
    double alpha;
    int32_t cut_bits;
    int32_t form;
    int32_t is_vector;  /* all addresses are aligned to ELEMENTWISE_VECTOR_BYTES */
    uint32_t stretched; /* bit k: operand k has one element along the last dimension */
    uint32_t is_inline; /* bit k: operand k is the one element in `values`, and in[k] is not set */
    int32_t rank;       /* merged dimensions, of every form but the flat one */
    uint64_t values[ELEMENTWISE_MAX_OPERANDS][2];
    struct gpu_divisor dims[ELEMENTWISE_MAX_RANK];
    int64_t strides[ELEMENTWISE_MAX_OPERANDS][ELEMENTWISE_MAX_RANK];
};

enum { ADD_N_MAX = 64 };

/* The argument of AddN's kernels. */
struct add_n_args {
    const void *in[ADD_N_MAX];
    void *out;
    int64_t n;
    int32_t n_inputs;
    int32_t is_vector; /* as above */
};

#endif
