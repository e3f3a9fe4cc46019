/* The arguments of the kernels in depthwise.cu, as the host fills them and kernels read them. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_DEPTHWISE_ARGS_H
#define MILLRACE_KERNELS_CUDA_OPS_DEPTHWISE_ARGS_H

#include "kernels/cuda/ops/pooling_args.h"

enum { DEPTHWISE_THREADS = 256, DEPTHWISE_MAX_WIDTH = 32 };

struct depthwise_args {
    const void *in, *filter, *out; /* `out` is the incoming gradient */
    void *result;
    int64_t n; /* elements that are written */
    struct window_grid from, to;
    int64_t window[3], stride[3], pad[3];
    struct gpu_divisor by_stride[3];
    struct gpu_divisor multiplier; /* output channels of an input channel */
    int64_t out_channels;
    int32_t is_channels_first;
    /* ---- the filter's gradient ----
     *
     * A block adds up a chunk of the output's pixels for one tap and `width` output channels, a
     * power of two, as in norm_args.h. Its sums are merged in the order of the chunks. */
    int32_t width;
    struct gpu_divisor row, column; /* output pixels of an image, and of one of its rows */
    int64_t n_pixels, n_chunks, chunk;
    void *sums; /* [n_chunks, taps, out_channels], float or double */
};

#endif
