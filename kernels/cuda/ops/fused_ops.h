/* The ops that fused programs are made from, without kernels of their own: those of the single ops,
 * so each value has the bits of theirs. Device code only. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_FUSED_OPS_H
#define MILLRACE_KERNELS_CUDA_OPS_FUSED_OPS_H

#define ELEMENTWISE_KERNEL(name)
#include "kernels/cuda/ops/elementwise_activation.cu"
#include "kernels/cuda/ops/elementwise_binary.cu"
#include "kernels/cuda/ops/elementwise_cast.cu"
#include "kernels/cuda/ops/elementwise_compare.cu"
#include "kernels/cuda/ops/elementwise_select.cu"
#include "kernels/cuda/ops/elementwise_unary.cu"

#endif
