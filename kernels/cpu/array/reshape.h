/* Passing an input on under another shape. */
#ifndef MILLRACE_KERNELS_CPU_ARRAY_RESHAPE_H
#define MILLRACE_KERNELS_CPU_ARRAY_RESHAPE_H

#include "kernels/kernel.h"

/* Output `output` becomes input `input` under another shape of as many elements; moved, so no
 * atomic is touched. */
void array_pass_as(struct kernel_ctx *ctx, int input, int output, struct shape shape);
kernel_fn array_reshape; /* Reshape: output 0 is input 0 under the shape that input 1 holds */

#endif
