/* Checks what reductions, scans and softmaxes are given, and computes their shapes. The kernels of
 * every type of device share these, so that a mistake has the same words everywhere. Any thread.
 *
 * Errors: INVALID_ARGUMENT with the culprit, in each function that returns a status. */
#ifndef MILLRACE_KERNELS_SUPPORT_REDUCTION_CHECKS_H
#define MILLRACE_KERNELS_SUPPORT_REDUCTION_CHECKS_H

#include "kernels/kernel.h"

/* Sets is_reduced[0 … rank) from a tensor of axes in host memory. */
struct status *reduction_read_axes(const struct tensor *axes, int rank,
                                   bool *ret_is_reduced) MUST_USE;
/* The sizes are written to `dims`, which has room for the rank. */
struct shape reduction_output_shape(struct shape in, const bool *is_reduced, bool keep_dims,
                                    int64_t *dims);

/* The axis of ArgMax and ArgMin, which must not be empty, and of scans. Input 1, in host memory. */
struct status *arg_read_axis(const struct kernel_ctx *ctx, int *ret) MUST_USE;
struct status *scan_read_axis(const struct kernel_ctx *ctx, int *ret) MUST_USE;

/* A shape as [outer, n, inner], where n is one of its dimensions. It has no size 0. */
struct along {
    int64_t outer, n, inner;
};
struct along along_axis(struct shape shape, int axis);

/* Softmax, LogSoftmax: input 0 is no scalar. */
struct status *softmax_check(const struct kernel_ctx *ctx) MUST_USE;
/* SoftmaxCrossEntropyWithLogits: how the two operands are broadcast to a matrix. */
struct cross_entropy_plan {
    int64_t dims[2];
    struct cross_entropy_operand {
        int64_t row_step; /* between rows; 0: one row stands for all */
        bool is_one;      /* one element stands for a whole row */
    } features, labels;
    bool has_all_features;
};
struct status *cross_entropy_plan(const struct kernel_ctx *ctx,
                                  struct cross_entropy_plan *ret) MUST_USE;
/* SparseSoftmaxCrossEntropyWithLogits: the shapes; the labels are not looked at. */
struct status *sparse_cross_entropy_check(const struct kernel_ctx *ctx) MUST_USE;

#endif
