/* Products of floats by AMX, on processors that have it; see amx.h. */
#ifndef MILLRACE_KERNELS_CPU_MATMUL_MATMUL_AMX_H
#define MILLRACE_KERNELS_CPU_MATMUL_MATMUL_AMX_H

#include "kernels/cpu/matmul/matmul.h"

/* Computes a product of floats. False: nothing is computed, because the processor has no such unit,
 * the sizes do not suit it, or a value is not finite. */
bool matmul_amx(const struct matmul *g);

#endif
