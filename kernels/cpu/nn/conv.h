/* The convolution engine: forward and both gradients, with 1 to 3 spatial dimensions, strides,
 * dilations and groups. Channels are last.
 *
 *   in      T [batch, in[0], in[1], in[2], in_channels]
 *   filter  T [window[0], window[1], window[2], in_channels / groups, out_channels]
 *   out     T [batch, out[0], out[1], out[2], out_channels]
 *
 * With fewer spatial dimensions the leading ones have size 1. oneDNN computes float where it is
 * installed and worth its start-up (conv_onednn.c), AMX where the processor has it (conv_amx.c),
 * and tiles where they save multiplications (conv_winograd.c). Other types and small problems are
 * computed by columns and matrix products (conv_gemm.c). half and bfloat16 are computed in float
 * and rounded once. The shape alone decides how work is split, so results do not depend on the
 * number of threads. */
#ifndef MILLRACE_KERNELS_CPU_NN_CONV_H
#define MILLRACE_KERNELS_CPU_NN_CONV_H

#include "common/ops/window.h"
#include "kernels/kernel.h"

enum conv_direction { CONV_FORWARD, CONV_BACKPROP_INPUT, CONV_BACKPROP_FILTER, CONV_N_DIRECTIONS };

struct conv_shape {
    int64_t batch, in_channels, out_channels, groups;
    int64_t in[3], out[3], window[3], stride[3], rate[3], pad_before[3];
};

/* The two operands that are read and the one that is written. Forward reads in and filter. A
 * gradient reads out, which is then the incoming gradient, and whichever of in and filter it does
 * not compute. */
struct conv_operands {
    const void *in, *filter, *out;
    void *result; /* in, filter or out, by direction; every element is written */
    /* forward: every element is also handed over (kernel_hand_over) */
    bool hands_over;
};

/* A convolution for a device (device_engine.convolve, .depthwise). Channels may be before the
 * spatial dimensions of in and out. Every operand has elements. */
struct conv_job {
    enum conv_direction direction;
    enum dtype dtype;
    bool is_channels_first;
    const struct conv_shape *shape;
    const struct conv_operands *operands;
};

/* Computes one convolution. Every operand has elements. Errors: RESOURCE_EXHAUSTED for scratch
 * memory. */
struct status *conv_run(const struct kernel_ctx *ctx, enum conv_direction direction,
                        const struct conv_shape *shape, enum dtype dtype,
                        const struct conv_operands *operands) MUST_USE;

/* The implementations, in the order in which they are tried. The first three are for float and may
 * refuse, with *ret_done set to false: conv_by_amx where the processor has no AMX, the shape does
 * not fill its tiles or a value is not finite; conv_by_winograd for other windows than 3 x 3 and
 * 5 x 5 with strides of one, for few channels, or where a value is not finite; conv_by_onednn where
 * oneDNN is not installed or would use its reference code. conv_by_gemm is for float, double and
 * int32. */
struct status *conv_by_amx(const struct kernel_ctx *ctx, enum conv_direction direction,
                           const struct conv_shape *shape, const struct conv_operands *operands,
                           bool *ret_done) MUST_USE;
struct status *conv_by_winograd(const struct kernel_ctx *ctx, enum conv_direction direction,
                                const struct conv_shape *shape,
                                const struct conv_operands *operands, bool *ret_done) MUST_USE;
struct status *conv_by_onednn(const struct kernel_ctx *ctx, enum conv_direction direction,
                              const struct conv_shape *shape, const struct conv_operands *operands,
                              bool *ret_done) MUST_USE;
struct status *conv_by_gemm(const struct kernel_ctx *ctx, enum conv_direction direction,
                            const struct conv_shape *shape, enum dtype dtype,
                            const struct conv_operands *operands) MUST_USE;

static inline int64_t conv_n_positions(const int64_t spatial[3]) {
    return spatial[0] * spatial[1] * spatial[2];
}
/* Returns the multiplications of the whole convolution, as a double, which cannot overflow. */
double conv_n_multiplications(const struct conv_shape *shape);
/* Returns how many images make up a share of work of at least `least` multiplications. The number
 * divides the batch. */
int64_t conv_images_per_share(const struct conv_shape *shape, double least);

/* Checks what TensorFlow's kernels for depthwise and for quantized images require: one stride for
 * rows and columns, and none for batch and channels. Errors: INVALID_ARGUMENT. */
struct status *conv_check_image_strides(const struct window_attrs *attrs) MUST_USE;
/* Fills in one spatial dimension of a shape that kernels see as three-dimensional. Errors:
 * INVALID_ARGUMENT when the window does not fit. */
struct status *conv_fit_dim(const struct window_attrs *attrs, int i, int64_t input, int64_t window,
                            struct conv_shape *shape, int64_t *ret_out) MUST_USE;

#endif
