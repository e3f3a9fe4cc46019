/* Chooses the implementation of a convolution, and computes half and bfloat16 in float. */
#include "kernels/cpu/nn/conv.h"
#include "kernels/cpu/nn/conv_internal.h"
#include "kernels/cpu/nn/widen.h"

/* Below this many multiplications, loading the library and making a primitive cost more than they
 * save. */
enum { SMALL_CONVOLUTION = 20000 };

double conv_n_multiplications(const struct conv_shape *shape) {
    double n = (double)shape->batch * (double)shape->in_channels / (double)shape->groups *
               (double)shape->out_channels;
    for (int i = 0; i < 3; i++)
        n *= (double)shape->out[i] * (double)shape->window[i];
    return n;
}

int64_t conv_images_per_share(const struct conv_shape *shape, double least) {
    double per_image = conv_n_multiplications(shape) / (double)shape->batch;
    int64_t images = 1;
    while (images < shape->batch &&
           ((double)images * per_image < least || shape->batch % images != 0))
        images++;
    return images;
}

static struct status *run_plain(const struct kernel_ctx *ctx, enum conv_direction direction,
                                const struct conv_shape *shape, enum dtype dtype,
                                const struct conv_operands *operands) {
    bool is_done = false,
         is_for_columns = dtype != DT_FLOAT || conv_n_multiplications(shape) < SMALL_CONVOLUTION ||
                          (direction == CONV_BACKPROP_INPUT && conv_has_few_inputs(shape));
    if (is_for_columns)
        return conv_by_gemm(ctx, direction, shape, dtype, operands);
    if (conv_swaps(direction, shape))
        return conv_swapped(ctx, direction, shape, operands);
    TRY(conv_by_amx(ctx, direction, shape, operands, &is_done));
    if (!is_done)
        TRY(conv_by_winograd(ctx, direction, shape, operands, &is_done));
    if (!is_done)
        TRY(conv_by_onednn(ctx, direction, shape, operands, &is_done));
    return is_done ? NULL : conv_by_gemm(ctx, direction, shape, dtype, operands);
}

struct status *conv_run_wide(const struct kernel_ctx *ctx, enum conv_direction direction,
                             const struct conv_shape *shape, enum dtype dtype,
                             const struct conv_operands *operands, conv_plain_fn *run_plain_dtype) {
    struct tensor scratch[4] = {TENSOR_INIT, TENSOR_INIT, TENSOR_INIT, TENSOR_INIT};
    int64_t n_in = shape->batch * conv_n_positions(shape->in) * shape->in_channels;
    int64_t n_out = shape->batch * conv_n_positions(shape->out) * shape->out_channels;
    int64_t n_filter = conv_n_positions(shape->window) * (shape->in_channels / shape->groups) *
                       shape->out_channels;
    int64_t n_result = direction == CONV_FORWARD          ? n_out
                       : direction == CONV_BACKPROP_INPUT ? n_in
                                                          : n_filter;
    struct conv_operands wide = *operands;
    wide.hands_over &= !dtype_is_narrow_float(dtype);
    struct status *st = NULL;
    TRY_OUT(widen_operand(ctx, dtype, n_in, &wide.in, &scratch[0]));
    TRY_OUT(widen_operand(ctx, dtype, n_filter, &wide.filter, &scratch[1]));
    TRY_OUT(widen_operand(ctx, dtype, n_out, &wide.out, &scratch[2]));
    TRY_OUT(widen_result(ctx, dtype, n_result, operands->result, &wide.result, &scratch[3]));
    TRY_OUT(run_plain_dtype(ctx, direction, shape, dtype_is_narrow_float(dtype) ? DT_FLOAT : dtype,
                            &wide));
    narrow_result(ctx, dtype, n_result, operands->result, wide.result);
out:
    for (size_t i = 0; i < ARRAY_LEN(scratch); i++)
        tensor_clear(&scratch[i]);
    return st;
}

struct status *conv_run(const struct kernel_ctx *ctx, enum conv_direction direction,
                        const struct conv_shape *shape, enum dtype dtype,
                        const struct conv_operands *operands) {
    return conv_run_wide(ctx, direction, shape, dtype, operands, run_plain);
}
