/* Computes float products a · bᵀ with few rows, at which the libraries are slow. Runs on the
 * calling thread. Any thread. */
#ifndef MILLRACE_KERNELS_CPU_MATMUL_MATMUL_DOT_H
#define MILLRACE_KERNELS_CPU_MATMUL_MATMUL_DOT_H

#include "kernels/cpu/matmul/matmul.h"

/* Answers whether matmul_dot computes products of this size. Their bits do not depend on how a
 * product is divided. */
bool matmul_dot_suits(const struct matmul *g);

/* Computes c = a · bᵀ when g is such a product and the machine has AVX-512. Otherwise returns false
 * and does nothing. */
bool matmul_dot(const struct matmul *g);

#endif
