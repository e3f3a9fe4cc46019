/* Float products a · bᵀ with few rows, which libraries are slow at. Serial, any thread. */
#ifndef MILLRACE_KERNELS_CPU_MATMUL_MATMUL_DOT_H
#define MILLRACE_KERNELS_CPU_MATMUL_MATMUL_DOT_H

#include "kernels/cpu/matmul/matmul.h"

/* The product c = a · bᵀ, float, if it is one of these and the machine has AVX-512; else false,
 * and nothing is done. */
bool matmul_dot(const struct matmul *g);

#endif
