/* The functions of the rows of reductions, softmaxes and scans (kernels/cuda/rows/reductions.inc).
 * A row's arg is the stem of its kernels' names: "reduce_sum" of reduce_sum_f32, … */
#ifndef MILLRACE_KERNELS_CUDA_OPS_REDUCTIONS_H
#define MILLRACE_KERNELS_CUDA_OPS_REDUCTIONS_H

#include "kernels/kernel.h"

/* Reads keep_dims or data_format, where the op has them. */
struct status *reduction_init(struct kernel_init *init);
/* Reduction over the axes in input 1. One element reduced is the element itself, except for a
 * norm. */
kernel_fn reduction_over_axes, reduction_norm;
kernel_fn reduction_bias_grad; /* over all but the channels */
kernel_fn reduction_to_scalar;
/* The engine's sums of rows (kernels/support/device_engine.h). */
struct status *reduction_sum_rows(struct kernel_ctx *ctx, enum dtype dtype, const void *from,
                                  void *to, int64_t n_rows, int64_t n) MUST_USE;

/* Their init is gpu_init_function. */
kernel_fn softmax_of_rows, softmax_cross_entropy, softmax_sparse_cross_entropy;

kernel_fn along_arg; /* ArgMax, ArgMin: its init is gpu_init_function */
/* Cumsum, Cumprod, CumulativeLogsumexp. */
struct status *along_init_scan(struct kernel_init *init);
kernel_fn along_scan;

#endif
