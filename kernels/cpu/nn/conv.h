/* The convolution engine: forward and both gradients, 1 to 3 spatial dimensions, strides,
 * dilations, groups, channels last.
 *
 *   in      T [batch, in[0], in[1], in[2], in_channels]
 *   filter  T [window[0], window[1], window[2], in_channels / groups, out_channels]
 *   out     T [batch, out[0], out[1], out[2], out_channels]
 *
 * Fewer spatial dimensions are seen as three with leading ones. float goes to oneDNN where that
 * is there and worth it (conv_onednn.c), double, int32 and the rest through columns and matrix
 * products (conv_gemm.c); half and bfloat16 are computed in float and rounded once. How work is
 * split depends on the shape alone, so results do not depend on how many threads there are. */
#ifndef MILLRACE_KERNELS_CPU_NN_CONV_H
#define MILLRACE_KERNELS_CPU_NN_CONV_H

#include "common/ops/window.h"
#include "kernels/kernel.h"

enum conv_direction { CONV_FORWARD, CONV_BACKPROP_INPUT, CONV_BACKPROP_FILTER, CONV_N_DIRECTIONS };

struct conv_shape {
    int64_t batch, in_channels, out_channels, groups;
    int64_t in[3], out[3], window[3], stride[3], rate[3], pad_before[3];
};

/* The two operands that are read and the one that is written: forward reads in and filter, the
 * gradients read out (the incoming gradient) and the operand that is left. */
struct conv_operands {
    const void *in, *filter, *out;
    void *result; /* in, filter or out, by direction; all of it is written */
};

/* All operands have elements. Errors: RESOURCE_EXHAUSTED for scratch memory. */
struct status *conv_run(const struct kernel_ctx *ctx, enum conv_direction direction,
                        const struct conv_shape *shape, enum dtype dtype,
                        const struct conv_operands *operands) MUST_USE;

/* The ways to compute one, for plain dtypes (float; float, double, int32). conv_by_onednn
 * answers false in *ret_done when oneDNN is not there or has nothing better than its reference. */
struct status *conv_by_onednn(const struct kernel_ctx *ctx, enum conv_direction direction,
                              const struct conv_shape *shape, const struct conv_operands *operands,
                              bool *ret_done) MUST_USE;
struct status *conv_by_gemm(const struct kernel_ctx *ctx, enum conv_direction direction,
                            const struct conv_shape *shape, enum dtype dtype,
                            const struct conv_operands *operands) MUST_USE;

static inline int64_t conv_n_positions(const int64_t spatial[3]) {
    return spatial[0] * spatial[1] * spatial[2];
}
/* Multiplications of the whole, as a double: no overflow. */
double conv_n_multiplications(const struct conv_shape *shape);
/* How many images make a share of work of at least `least` multiplications: a divisor of the
 * batch. */
int64_t conv_images_per_share(const struct conv_shape *shape, double least);

/* Fills one spatial dimension of a geometry that kernels see as three-dimensional. */
struct status *conv_fit_dim(const struct window_attrs *attrs, int i, int64_t input, int64_t window,
                            struct conv_shape *shape, int64_t *ret_out) MUST_USE;

#endif
