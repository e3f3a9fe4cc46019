/* The functions of the rows of sparse tensors (kernels/cuda/rows/sparse.inc). */
#ifndef MILLRACE_KERNELS_CUDA_OPS_SPARSE_H
#define MILLRACE_KERNELS_CUDA_OPS_SPARSE_H

#include "kernels/cpu/sparse/sparse_dense.h"
#include "kernels/kernel.h"

kernel_fn sparse_reshape_on_gpu, sparse_concat_on_gpu, sparse_slice_grad_on_gpu;
kernel_fn sparse_slice_on_gpu, sparse_split_on_gpu; /* may answer KERNEL_PENDING */
/* Both also serve ragged tensors. */
kernel_fn sparse_fill_on_gpu; /* may answer KERNEL_PENDING */
kernel_fn sparse_fill_grad_on_gpu;
kernel_fn sparse_product_on_gpu;  /* its init is sparse_product_init */
kernel_fn sparse_to_dense_on_gpu; /* its init is sparse_to_dense_init; may answer KERNEL_PENDING */

#endif
