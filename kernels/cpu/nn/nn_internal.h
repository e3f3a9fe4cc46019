/* What the files of the nn kernels share. nn_kernels.c lists the rows. */
#ifndef MILLRACE_KERNELS_CPU_NN_NN_INTERNAL_H
#define MILLRACE_KERNELS_CPU_NN_NN_INTERNAL_H

#include "kernels/kernel.h"

/* nn_activations.c: Relu, Elu, … and their gradients. init finds the loop by the node's op name. */
struct status *nn_activation_init(struct kernel_init *init);
kernel_fn nn_activation;

/* nn_bias.c */
struct status *nn_bias_init(struct kernel_init *init);
kernel_fn nn_bias_add, nn_bias_add_grad, nn_l2_loss;

/* nn_softmax.c */
kernel_fn nn_softmax, nn_log_softmax, nn_softmax_xent, nn_sparse_softmax_xent;

/* nn_topk.c */
struct status *nn_top_k_init(struct kernel_init *init);
struct status *nn_in_top_k_init(struct kernel_init *init);
struct status *nn_nth_element_init(struct kernel_init *init);
kernel_fn nn_top_k, nn_in_top_k, nn_nth_element;

#endif
