/* Checks the operands of elementwise ops, and plans their broadcasts. The kernels of every type of
 * device share these, so that a mistake has the same words everywhere. Any thread.
 *
 * Errors: INVALID_ARGUMENT with the shapes, in each function that returns a status. */
#ifndef MILLRACE_KERNELS_SUPPORT_ELEMENTWISE_CHECKS_H
#define MILLRACE_KERNELS_SUPPORT_ELEMENTWISE_CHECKS_H

#include "kernels/kernel.h"
#include "kernels/support/broadcast.h"

/* Makes the error that the two shapes cannot be broadcast together. */
struct status *elementwise_incompatible(struct shape a, struct shape b) MUST_USE;
/* Checks that inputs 0 and 1 have the same number of elements, for gradients of functions. */
struct status *elementwise_check_equal_sizes(const struct kernel_ctx *ctx) MUST_USE;
/* Checks that all inputs have the shape of the first one. */
struct status *elementwise_check_same_shapes(const struct kernel_ctx *ctx) MUST_USE;

/* SelectV2: condition, then and else are broadcast against each other. */
struct status *elementwise_plan_select_v2(const struct kernel_ctx *ctx,
                                          struct broadcast *ret) MUST_USE;
/* Select: the condition has the shape of the others, or is a scalar, or chooses whole rows. */
struct status *elementwise_plan_select(const struct kernel_ctx *ctx,
                                       struct broadcast *ret) MUST_USE;
/* ClipByValue: each limit is a scalar or has the shape of the input. */
struct status *elementwise_check_clip(const struct kernel_ctx *ctx) MUST_USE;
/* ApproximateEqual: both inputs have the same shape. */
struct status *elementwise_check_approximate(const struct kernel_ctx *ctx) MUST_USE;
/* Betainc: all inputs that are not scalars have the same shape. *ret is that shape, borrowed from
 * an input. */
struct status *elementwise_check_betainc(const struct kernel_ctx *ctx, struct shape *ret) MUST_USE;

/* A value with channels is treated as outer × channels × inner: in NHWC inner is 1, in NCHW outer
 * is the batch. */
struct bias_extent {
    int64_t outer, channels, inner;
};
/* Reads the extent of input 0. */
struct status *bias_extent_of(const struct kernel_ctx *ctx, bool is_nchw,
                              struct bias_extent *ret) MUST_USE;
/* Checks that input 1 has a bias for each channel. */
struct status *bias_check(const struct kernel_ctx *ctx, bool is_nchw,
                          const struct bias_extent *extent) MUST_USE;
/* Reads the attr data_format. BiasAddV1 does not have it: then the format is NHWC. */
struct status *bias_read_format(const struct node *node, bool *ret_is_nchw) MUST_USE;

/* Returns the number of fraction bits of a floating type. For any other dtype returns a number that
 * is larger than that of every floating type. */
int elementwise_fraction_bits(enum dtype dtype);

#endif
