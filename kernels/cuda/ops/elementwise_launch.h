/* Fills the argument of an elementwise kernel and launches it; for the elementwise files only. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_ELEMENTWISE_LAUNCH_H
#define MILLRACE_KERNELS_CUDA_OPS_ELEMENTWISE_LAUNCH_H

#include "kernels/cuda/gpu_kernel.h"
#include "kernels/cuda/ops/elementwise_args.h"
#include "kernels/support/broadcast.h"

struct elementwise_state {
    const struct gpu_function *function;
    double alpha;
    int cut_bits;
    /* sizes of the elements of inputs and of the output */
    uint8_t in_bytes[ELEMENTWISE_MAX_OPERANDS], out_bytes;
    bool is_pass; /* Cast to the same type */
    bool is_nchw;
    bool accepts_incompatible, incompatible_result; /* Equal, NotEqual */
};

/* A launch that is being made. */
struct elementwise_launch {
    struct elementwise_args args;
    int n_operands;
    unsigned largest; /* element, in bytes */
    struct buffer *staged[ELEMENTWISE_MAX_OPERANDS];
};

void elementwise_begin(struct kernel_ctx *ctx, struct elementwise_launch *ret);
/* Takes an input of the node as the next operand. Its address is read here, so call it before the
 * output takes over the input's memory. An input that is a value in host memory is passed along.
 * Errors, which drop the launch: RESOURCE_EXHAUSTED; the driver's. */
struct status *elementwise_take(struct kernel_ctx *ctx, struct elementwise_launch *launch,
                                int input) MUST_USE;
/* Launches the node's kernel for output 0, and releases what the launch holds. Errors:
 * UNIMPLEMENTED for a broadcast of more than ELEMENTWISE_MAX_RANK merged dimensions; the
 * driver's. */
enum kernel_result elementwise_run(struct kernel_ctx *ctx, struct elementwise_launch *launch,
                                   const struct broadcast *plan);
/* Releases what the launch holds; for errors before elementwise_run. */
void elementwise_drop(struct elementwise_launch *launch);

#endif
