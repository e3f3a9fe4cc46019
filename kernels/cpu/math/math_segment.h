/* Helpers that the ops of segments and counts share. */
#ifndef MILLRACE_KERNELS_CPU_MATH_MATH_SEGMENT_H
#define MILLRACE_KERNELS_CPU_MATH_MATH_SEGMENT_H

#include "kernels/cpu/math/math_internal.h"

/* By what a sparse segment's sum of n rows is divided: 1, n, √n. */
enum segment_scale { SCALE_NONE, SCALE_MEAN, SCALE_SQRT_N };

/* An int32 or int64 scalar input. `what` opens the message: "num_segments should be a scalar,
 * not shape [1]". */
struct status *segment_scalar(const struct tensor *t, const char *what, int64_t *ret) MUST_USE;
/* Output 0 of [n_rows] + data's sizes from dimension `from` on; *ret_inner is the product of
 * those (1 when the output is empty). */
struct status *segment_alloc(struct kernel_ctx *ctx, enum dtype dtype, int64_t n_rows,
                             const struct tensor *data, int from, int64_t *ret_inner) MUST_USE;

#endif
