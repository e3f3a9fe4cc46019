/* The functions of all op families, for the plugin's table. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_FAMILIES_H
#define MILLRACE_KERNELS_CUDA_OPS_FAMILIES_H

#include "kernels/cpu/nn/pooling.h"
#include "kernels/cuda/gpu_kernel.h"
#include "kernels/cuda/ops/elementwise.h"
#include "kernels/cuda/ops/fused.h"
#include "kernels/cuda/ops/reductions.h"
#include "kernels/cuda/ops/rnn.h"
#include "kernels/cuda/ops/segments.h"
#include "kernels/cuda/ops/select.h"
#include "kernels/cuda/ops/sparse.h"
#include "kernels/cuda/ops/sync.h"

#endif
