/* What the files of the convolution kernels share. conv_kernels.c lists the rows. */
#ifndef MILLRACE_KERNELS_CPU_NN_CONV_INTERNAL_H
#define MILLRACE_KERNELS_CPU_NN_CONV_INTERNAL_H

#include "common/ops/window.h"
#include "kernels/cpu/nn/conv.h"

/* What a kernel's row says about its op. */
struct conv_op {
    enum conv_direction direction;
    int n_spatial; /* 0: the rank of the input tells (Conv) */
    /* the first gradient ops with three dimensions take tensors for shapes, where later ones take
     * vectors of sizes */
    bool takes_tensors;
};

/* conv_run.c: computes half and bfloat16 in float. It passes run_plain_dtype the operands, widened
 * to float where `dtype` is half or bfloat16, and rounds its result once. */
typedef struct status *conv_plain_fn(const struct kernel_ctx *ctx, enum conv_direction direction,
                                     const struct conv_shape *shape, enum dtype dtype,
                                     const struct conv_operands *operands);
struct status *conv_run_wide(const struct kernel_ctx *ctx, enum conv_direction direction,
                             const struct conv_shape *shape, enum dtype dtype,
                             const struct conv_operands *operands,
                             conv_plain_fn *run_plain_dtype) MUST_USE;

/* conv_swap.c: few channels. Does the input's gradient have so few channels that columns and
 * products are faster than a library? */
bool conv_has_few_inputs(const struct conv_shape *shape);
/* Answers whether conv_swapped computes this convolution of floats. */
bool conv_swaps(enum conv_direction direction, const struct conv_shape *shape);
struct status *conv_swapped(const struct kernel_ctx *ctx, enum conv_direction direction,
                            const struct conv_shape *shape,
                            const struct conv_operands *operands) MUST_USE;
/* Returns the shape of the convolution from the result to the image, for strides of one. */
struct conv_shape conv_exchanged(const struct conv_shape *shape);
/* Allocates memory for a mirrored filter [-taps, o, c], and fills it in when `filter` is not NULL.
 */
struct status *conv_mirrored(const struct kernel_ctx *ctx, const struct conv_shape *shape,
                             const float *filter, struct tensor *ret_scratch, float **ret) MUST_USE;

/* conv_ops.c: Conv2D, Conv3D, Conv and their gradients */
struct status *conv_init(struct kernel_init *init);
kernel_fn conv_compute;

/* depthwise.c */
struct status *depthwise_init(struct kernel_init *init);
kernel_fn depthwise_compute;

/* dilation.c: Dilation2D and its gradients */
struct status *dilation_init(struct kernel_init *init);
kernel_fn dilation_compute;

/* patches.c */
struct status *patches_init(struct kernel_init *init);
kernel_fn patches_compute;

/* data_format.c */
struct status *data_format_init(struct kernel_init *init);
kernel_fn data_format_dim_map, data_format_vec_permute;

/* Reads a vector of n sizes, none of which may be negative. `what` is the input's name for the
 * message. Errors: INVALID_ARGUMENT. */
struct status *conv_read_sizes(const struct tensor *t, const char *what, int n,
                               int64_t *ret) MUST_USE;
#endif
