/* What the files of the conv family share: conv_kernels.c lists the rows. */
#ifndef MILLRACE_KERNELS_CPU_NN_CONV_INTERNAL_H
#define MILLRACE_KERNELS_CPU_NN_CONV_INTERNAL_H

#include "common/ops/window.h"
#include "kernels/cpu/nn/conv.h"

/* What a row says of its op. */
struct conv_op {
    enum conv_direction direction;
    int n_spatial; /* 0: the rank of the input says (Conv) */
    /* the first gradient ops of three dimensions: shapes come as tensors, not as vectors of
     * sizes */
    bool takes_tensors;
};

/* conv_run.c: computes half and bfloat16 in float. Gives run_plain_dtype the operands, widened to
 * float where `dtype` is one of these, and rounds its result once. */
typedef struct status *conv_plain_fn(const struct kernel_ctx *ctx, enum conv_direction direction,
                                     const struct conv_shape *shape, enum dtype dtype,
                                     const struct conv_operands *operands);
struct status *conv_run_wide(const struct kernel_ctx *ctx, enum conv_direction direction,
                             const struct conv_shape *shape, enum dtype dtype,
                             const struct conv_operands *operands,
                             conv_plain_fn *run_plain_dtype) MUST_USE;

/* conv_ops.c: Conv2D, Conv3D, Conv and their gradients. */
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

/* A vector of n sizes, none negative. Errors: INVALID_ARGUMENT in TensorFlow's words, `what`
 * being the input's name. */
struct status *conv_read_sizes(const struct tensor *t, const char *what, int n,
                               int64_t *ret) MUST_USE;
#endif
