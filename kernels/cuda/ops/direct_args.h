/* The arguments of the kernels in direct.cu, as the host fills them and the kernels read them. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_DIRECT_ARGS_H
#define MILLRACE_KERNELS_CUDA_OPS_DIRECT_ARGS_H

#include "kernels/cuda/ops/pooling_args.h"

struct direct_args {
    const void *in, *filter, *out; /* `out` is the incoming gradient */
    void *result;
    int64_t n;                   /* elements that are written */
    struct window_grid from, to; /* of in and out */
    int64_t window[3], stride[3], rate[3], pad[3];
    int64_t group_in, group_out; /* channels of a group */
    int64_t out_channels;
    int32_t is_channels_first;
};

#endif
