/* Outputs an input under another shape. */
#ifndef MILLRACE_KERNELS_CPU_ARRAY_RESHAPE_H
#define MILLRACE_KERNELS_CPU_ARRAY_RESHAPE_H

#include "kernels/kernel.h"

/* Makes output `output` the value of input `input` with another shape of as many elements. The
 * value is moved, so its reference count does not change. */
void array_pass_as(struct kernel_ctx *ctx, int input, int output, struct shape shape);
/* The kernel of Reshape: output 0 is input 0 with the shape that input 1 holds. */
kernel_fn array_reshape;

#endif
