/* The functions of the rows of recurrent cells (kernels/cuda/rows/products.inc). The inits and what
 * they check are the CPU's (kernels/cpu/nn/rnn.h).
 *
 * The products of all inputs with the weights are one matrix product. A step is the product of the
 * state before it, and one launch for all gates. half is multiplied as half, and its gates and
 * cells are computed in float. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_RNN_H
#define MILLRACE_KERNELS_CUDA_OPS_RNN_H

#include "kernels/cpu/nn/rnn.h"

/* lstm_kernels.c, lstm_grad_kernels.c */
kernel_fn lstm_cell_on_gpu, lstm_block_on_gpu, lstm_cell_grad_on_gpu, lstm_block_grad_on_gpu;
/* gru_kernels.c */
kernel_fn gru_cell_on_gpu, gru_cell_grad_on_gpu;

#endif
