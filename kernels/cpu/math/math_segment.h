/* Helpers that the kernels of segments and of counts share. */
#ifndef MILLRACE_KERNELS_CPU_MATH_MATH_SEGMENT_H
#define MILLRACE_KERNELS_CPU_MATH_MATH_SEGMENT_H

#include "kernels/cpu/math/math_internal.h"

/* What a sparse segment's sum of n rows is divided by: 1, n or √n. */
enum segment_scale { SCALE_NONE, SCALE_MEAN, SCALE_SQRT_N };

/* Reads an int32 or int64 scalar input. `what` opens the message: "num_segments should be a scalar,
 * not shape [1]". Errors: INVALID_ARGUMENT. */
struct status *segment_scalar(const struct tensor *t, const char *what, int64_t *ret) MUST_USE;
/* Allocates output 0 with the shape [n_rows] + the sizes of data from dimension `from` on.
 * *ret_inner is the product of these sizes, or 1 when the output is empty. */
struct status *segment_alloc(struct kernel_ctx *ctx, enum dtype dtype, int64_t n_rows,
                             const struct tensor *data, int from, int64_t *ret_inner) MUST_USE;

#endif
