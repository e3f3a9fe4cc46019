/* Checks what histograms, searches in sorted rows and gradients of segments are given. The kernels
 * of the CPU and of a GPU share these functions, so that a mistake has the same words on both. They
 * look at shapes and at arguments that are in host memory. Any thread.
 *
 * Errors: INVALID_ARGUMENT, in each function. */
#ifndef MILLRACE_KERNELS_SUPPORT_COUNTING_CHECKS_H
#define MILLRACE_KERNELS_SUPPORT_COUNTING_CHECKS_H

#include "kernels/kernel.h"

/* HistogramFixedWidth: bin k counts the values from low + k · step on; the first and the last bin
 * also count what is below and above. */
struct histogram_bins {
    double low, step;
    int64_t n;
};
struct status *histogram_check(const struct kernel_ctx *ctx, struct histogram_bins *ret) MUST_USE;
/* LowerBound and UpperBound. */
struct status *bound_check(const struct kernel_ctx *ctx) MUST_USE;
/* SparseSegmentXGrad, without the elements of ids and indices. */
struct status *segment_grad_check(const struct kernel_ctx *ctx, int64_t *ret_n_rows) MUST_USE;

#endif
