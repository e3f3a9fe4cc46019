/* Converts whole operands of half and bfloat16 to float, for kernels with float loops. The result
 * is rounded once. */
#ifndef MILLRACE_KERNELS_CPU_NN_WIDEN_H
#define MILLRACE_KERNELS_CPU_NN_WIDEN_H

#include "kernels/kernel.h"

/* For half and bfloat16, sets *operand to n floats in *scratch, which must hold nothing before and
 * which the caller clears. Does nothing for other dtypes, and when *operand is NULL. Errors:
 * RESOURCE_EXHAUSTED. */
struct status *widen_operand(const struct kernel_ctx *ctx, enum dtype dtype, int64_t n,
                             const void **operand, struct tensor *scratch) MUST_USE;
/* Sets *(void **)ret_wide to memory for a result: n floats in *scratch for half and bfloat16, else
 * `result`. Errors: RESOURCE_EXHAUSTED. */
struct status *widen_result(const struct kernel_ctx *ctx, enum dtype dtype, int64_t n, void *result,
                            void *ret_wide, struct tensor *scratch) MUST_USE;
/* Rounds the floats into `result` for half and bfloat16. Does nothing for other dtypes. */
void narrow_result(const struct kernel_ctx *ctx, enum dtype dtype, int64_t n, void *result,
                   const void *wide);

#endif
