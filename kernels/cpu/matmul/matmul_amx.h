/* Products of floats by AMX, on processors that have it; see amx.h. */
#ifndef MILLRACE_KERNELS_CPU_MATMUL_MATMUL_AMX_H
#define MILLRACE_KERNELS_CPU_MATMUL_MATMUL_AMX_H

#include "kernels/cpu/matmul/matmul.h"

/* Computes a product by other means than AMX. */
typedef void matmul_other(const struct matmul *g);

/* Answers whether matmul_amx computes products of this size. */
bool matmul_amx_suits(const struct matmul *g);

/* Computes a product of floats. False: nothing is computed, because the processor has no such unit,
 * or the sizes do not suit it. What comes out as NaN, because a value is not finite, is computed
 * again by `other`, in blocks of rows. */
bool matmul_amx(const struct matmul *g, matmul_other *other);

#endif
