/* Puts the operands of a large float product in the order in which oneDNN reads them. For
 * matmul_kernels.c; any thread. */
#ifndef MILLRACE_KERNELS_CPU_MATMUL_MATMUL_ORDER_H
#define MILLRACE_KERNELS_CPU_MATMUL_MATMUL_ORDER_H

#include "kernels/cpu/matmul/matmul.h"
#include "kernels/kernel.h"

/* Replaces operands of *product that are stored transposed by copies that are not, if the product
 * takes less time so. Which are replaced depends on the product and its division only, and not on
 * the pool, since it may change the last bits of the result. `copies` gets the copies: both must be
 * empty before, and the caller clears them. Errors: RESOURCE_EXHAUSTED. */
struct status *matmul_put_in_order(const struct kernel_ctx *ctx, enum dtype dtype,
                                   const struct matmul_division *division, struct matmul *product,
                                   struct tensor copies[2]) MUST_USE;

#endif
