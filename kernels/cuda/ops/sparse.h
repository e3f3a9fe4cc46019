/* The functions of the rows of sparse tensors (kernels/cuda/rows/sparse.inc). */
#ifndef MILLRACE_KERNELS_CUDA_OPS_SPARSE_H
#define MILLRACE_KERNELS_CUDA_OPS_SPARSE_H

#include "kernels/kernel.h"

kernel_fn sparse_reshape_on_gpu, sparse_concat_on_gpu, sparse_slice_grad_on_gpu;
kernel_fn sparse_slice_on_gpu, sparse_split_on_gpu; /* may answer KERNEL_PENDING */
/* Both also serve ragged tensors. */
kernel_fn sparse_fill_on_gpu; /* may answer KERNEL_PENDING */
kernel_fn sparse_fill_grad_on_gpu;

#endif
