/* The arguments of the kernels in pooling.cu and pooling_images.cu, as the host fills them and the
 * kernels read them. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_POOLING_ARGS_H
#define MILLRACE_KERNELS_CUDA_OPS_POOLING_ARGS_H

#include "kernels/cuda/ops/division.h"

/* A tensor of images or volumes. An image has the size 1 along z.
 *
 *   channels last    [batch, z, y, x, channels]
 *   channels first   [batch, channels, z, y, x]   */
struct window_grid {
    struct gpu_divisor sizes[4]; /* as stored, innermost first: channels, x, y, z or x, y, z, … */
    int64_t dims[3];             /* z, y, x */
    int64_t strides[3];          /* of z, y, x */
    int64_t channel_stride, image; /* an image is this many elements */
};

struct pooling_args {
    const void *in, *out, *gradient; /* NULL where the op has no such input */
    void *result;
    void *argmax;   /* int32 or int64 */
    int32_t *first; /* by element of the output: the tap that has the maximum, as a place y · x */
    int64_t n;      /* elements that are written */
    struct window_grid from, to; /* of the op's input and output */
    int64_t window[3], stride[3], pad[3];
    struct gpu_divisor by_stride[3];
    int32_t is_small; /* no number of elements is too large for int32_t */
    int32_t is_channels_first;
    int32_t is_argmax_wide, counts_batch;
    /* The gradient of a mean of images: a window that begins in the padding and is wider than the
     * image counts as if it reached to the end of the image, as on a CPU. */
    int32_t reaches_end;
};

/* Images with channels last, whose elements are read and written in packs of 16 bytes. Everything
 * counts packs, and no number is too large for int32_t. Rows come before columns. */
enum { IMAGE_PACK_BYTES = 16, IMAGE_MAX_TAPS = 256 };
struct image_pool_args {
    const void *in, *gradient; /* NULL where the kernel has no such input */
    void *result;
    void *argmax; /* int32 or int64 */
    void *taps;   /* uint8 by element of the output: the tap of its window that has the maximum */
    int32_t n;    /* packs of what a thread is made for, of the input or the output */
    int32_t n_packs;                                  /* of a pixel */
    struct gpu_divisor by_packs, by_columns, by_rows; /* of what threads are made for */
    int32_t from[2], to[2];                           /* dims of the op's input and output */
    int32_t from_image, to_image;                     /* packs */
    int32_t window[2], stride[2], pad[2];
    struct gpu_divisor by_stride[2];
    int32_t is_argmax_wide, counts_batch;
};

#endif
