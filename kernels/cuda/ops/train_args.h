/* The arguments of the kernels in train.cu. Plain C, read by both sides. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_TRAIN_ARGS_H
#define MILLRACE_KERNELS_CUDA_OPS_TRAIN_ARGS_H

#include "kernels/cuda/ops/picks_args.h"
#include "kernels/support/train_run.h"

struct train_args {
    struct train_run run; /* its scalars are not used */
    struct pick_scalar scalars[TRAIN_MAX_SCALARS];
    int64_t n_slots;
    int64_t n;                 /* of a dense step */
    int64_t n_groups, n_parts; /* of a sparse one, as in struct scatter_args */
    struct pick_slices slices;
};

#endif
