/* Runs QuantizedMaxPool and QuantizedAvgPool: the kernels of the pooling ops on codes, which keep
 * their range. */
#include "kernels/cpu/nn/pooling.h"
#include "kernels/cpu/quant/quant_internal.h"
#include "kernels/kernel.h"

/* QuantizedMaxPool, QuantizedAvgPool (whose means drop their fraction).
 *   input                   T [batch, height, width, channels]
 *   min_input, max_input    float scalars
 *   output                  T [batch, out height, out width, channels]
 *   min_output, max_output  the input's range
 * Errors   INVALID_ARGUMENT   ranges that are no scalars, the rank
 *          UNIMPLEMENTED      windows over the batch or, for means, the channels */
enum kernel_result quant_pooling(struct kernel_ctx *ctx) {
    float min, max;
    KERNEL_TRY(ctx, quant_scalar(ctx, 1, "min_input shape", &min));
    KERNEL_TRY(ctx, quant_scalar(ctx, 2, "max_input shape", &max));
    if (kernel_input(ctx, 0)->rank != 4)
        return kernel_fail(
            ctx, status_invalid(
                     "tensor_in_shape must have 2 spatial dimensions, must be 4-dimensional: %s",
                     TENSOR_SHAPE_TEXT(kernel_input(ctx, 0))));
    pooling_compute(ctx);
    if (!ctx->status)
        quant_set_range(ctx, 1, min, max);
    return KERNEL_DONE;
}
