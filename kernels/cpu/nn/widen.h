/* Whole operands of half and bfloat16 as floats, for kernels whose loops are float's: computed
 * in float, rounded once. */
#ifndef MILLRACE_KERNELS_CPU_NN_WIDEN_H
#define MILLRACE_KERNELS_CPU_NN_WIDEN_H

#include "kernels/kernel.h"

/* Replaces *operand (NULL stays) by n floats in *scratch, which must hold nothing; other dtypes
 * stay as they are. Errors: no memory. */
struct status *widen_operand(const struct kernel_ctx *ctx, enum dtype dtype, int64_t n,
                             const void **operand, struct tensor *scratch) MUST_USE;
/* Memory for a result: floats in *scratch for 16-bit floats, `result` itself for other dtypes. */
struct status *widen_result(const struct kernel_ctx *ctx, enum dtype dtype, int64_t n, void *result,
                            void *ret_wide, struct tensor *scratch) MUST_USE;
/* Rounds what was computed there into the result; nothing to do for other dtypes. */
void narrow_result(const struct kernel_ctx *ctx, enum dtype dtype, int64_t n, void *result,
                   const void *wide);

#endif
