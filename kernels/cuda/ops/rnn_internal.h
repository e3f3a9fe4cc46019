/* What the files of recurrent cells share. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_RNN_INTERNAL_H
#define MILLRACE_KERNELS_CUDA_OPS_RNN_INTERNAL_H

#include "kernels/cuda/ops/engine_internal.h"
#include "kernels/cuda/ops/rnn.h"
#include "kernels/cuda/ops/rnn_args.h"

/* out [m, n] = x · y, each stored transposed if that is said. No size is 0. */
static inline struct status *rnn_multiply_on_gpu(struct kernel_ctx *ctx, struct device_products p) {
    p.n_products = 1;
    return ctx->instance->engine->multiply(ctx, &p);
}

/* Element i of a value in the device's memory. */
static inline char *rnn_at(const void *values, enum dtype dtype, int64_t i) {
    return (char *)(uintptr_t)values + (size_t)i * dtype_size(dtype);
}

static inline struct rnn_order rnn_order_of(const struct lstm_order *order, int64_t n_cells) {
    return (struct rnn_order){.i = order->i * n_cells,
                              .ci = order->ci * n_cells,
                              .f = order->f * n_cells,
                              .o = order->o * n_cells};
}

#endif
