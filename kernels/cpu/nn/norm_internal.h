/* What the files of the normalisation kernels share. norm_kernels.c lists the rows. */
#ifndef MILLRACE_KERNELS_CPU_NN_NORM_INTERNAL_H
#define MILLRACE_KERNELS_CPU_NN_NORM_INTERNAL_H

#include "kernels/kernel.h"

/* norm_batch.c: the three versions of FusedBatchNorm, and their gradients */
struct status *batch_norm_init(struct kernel_init *init);
kernel_fn batch_norm_compute, batch_norm_grad_compute;

/* norm_global.c: BatchNormWithGlobalNormalization and its gradient */
struct status *global_norm_init(struct kernel_init *init);
kernel_fn global_norm_compute, global_norm_grad_compute;

/* norm_lrn.c */
struct status *lrn_init(struct kernel_init *init);
kernel_fn lrn_compute, lrn_grad_compute;

/* ---- moments by channel (norm_moments.c) ---- Values are rows of channels (inner is 1), or outer
 * × channels × inner. The shape alone decides how work is cut into blocks, and the blocks are added
 * in order. So results do not depend on the number of threads. */
struct norm_extent {
    int64_t outer, channels, inner;
};

/* Computes the mean and the population variance of each channel. Errors: RESOURCE_EXHAUSTED. */
struct status *norm_moments(const struct kernel_ctx *ctx, const float *x, struct norm_extent extent,
                            float *mean, float *variance) MUST_USE;
/* Computes the sums of g and of g · (x - mean) of each channel. Errors: RESOURCE_EXHAUSTED. */
struct status *norm_gradient_sums(const struct kernel_ctx *ctx, const float *g, const float *x,
                                  const float *mean, struct norm_extent extent, double *sums,
                                  double *products) MUST_USE;
/* y = (x - shift) · factor + offset + g · weight, channel by channel. g may be NULL. y may be x or
 * g. */
struct norm_line {
    const float *shift, *factor, *offset, *weight;
};
void norm_apply(const struct kernel_ctx *ctx, const float *x, const float *g,
                const struct norm_line *line, struct norm_extent extent, float *y);

#endif
