/* The functions of the elementwise rows (kernels/cuda/rows/elementwise.inc). A row's arg is the
 * stem of its kernels' names: "add" of add_f32, add_f64, … */
#ifndef MILLRACE_KERNELS_CUDA_OPS_ELEMENTWISE_H
#define MILLRACE_KERNELS_CUDA_OPS_ELEMENTWISE_H

#include "kernels/kernel.h"

/* By the dtype of the first input; also reads alpha (LeakyRelu), tolerance (ApproximateEqual),
 * data_format (BiasAdd) and incompatible_shape_error (Equal), where the op has them. */
struct status *elementwise_init(struct kernel_init *init);
/* By the size of the output's elements. */
struct status *elementwise_init_by_size(struct kernel_init *init);
struct status *elementwise_init_cast(struct kernel_init *init);

kernel_fn elementwise_unary, elementwise_binary, elementwise_equal;
kernel_fn elementwise_relu_of_qint8;       /* a multiple of 4 elements, as TensorFlow asks for */
kernel_fn elementwise_function_gradient;   /* of two operands with as many elements */
kernel_fn elementwise_activation_gradient; /* of two operands of one shape */
kernel_fn elementwise_approximate_equal, elementwise_bias_add;
kernel_fn elementwise_select, elementwise_select_v2, elementwise_clip, elementwise_betainc;
kernel_fn elementwise_cast, elementwise_add_n;
kernel_fn elementwise_fill, elementwise_zeros_like, elementwise_ones_like;

#endif
