/* The arguments of the kernels in norm.cu and norm_packs.cu, as the host fills them and the kernels
 * read them. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_NORM_ARGS_H
#define MILLRACE_KERNELS_CUDA_OPS_NORM_ARGS_H

#include "kernels/cuda/ops/division.h"

enum {
    NORM_THREADS_BITS = 8,
    NORM_THREADS = 1 << NORM_THREADS_BITS,
    NORM_MAX_WIDTH = 32,
    NORM_MERGE_THREADS = 64
};
/* Rows that a thread reads at once, of one operand or of two, and the channels of a pack. */
enum { NORM_TILE = 8, NORM_PAIR_TILE = 4, NORM_VECTOR = 4 };

/* Values [outer, channels, inner]. A channel has n_rows of them, outer times inner.
 *
 * A block adds up a chunk of the rows of `width` channels, a power of two: neighbouring threads
 * read neighbouring channels, or neighbouring rows where inner is more than 1 and width is 1. In
 * norm_packs.cu inner is 1, and width counts packs of channels. A block's threads are merged as a
 * tree, and the chunks in order. The shape alone decides all of this, so a result is always the
 * same. */
struct norm_rows {
    int64_t n_rows, channels;
    struct gpu_divisor inner;
    int64_t n_chunks, chunk;   /* a chunk is this many rows */
    int32_t width, width_bits; /* width = 2^width_bits */
    int32_t n_groups;          /* of width channels, or packs */
};

/* By chunk and channel: mean and squares around it, or with g the sums of g and of g · (x - mean).
 *
 * The means are those of x - pivot, where the pivot is the channel's first value. A mean that is
 * much larger than the deviation, 256 for numbers from 256 to 257, is rounded to 3e-5; and such an
 * error of a chunk's mean is one of the variance when means are merged. */
struct norm_chunks_args {
    const void *x, *g;
    const float *mean;
    float *first, *second; /* [n_chunks, channels] */
    float *pivot;          /* [channels], without g */
    struct norm_rows rows;
};

/* What a channel's values are multiplied with and shifted by. */
struct norm_line {
    float *factor, *offset, *weight; /* [channels] */
};

struct norm_statistics_args {
    const float *first, *second, *pivot; /* as above */
    const float *scale, *mean, *variance;
    float *out[4]; /* moving mean and variance, mean and variance */
    float *factor; /* scale / √(variance + epsilon) */
    float epsilon, average_factor;
    int32_t is_training;
    struct norm_rows rows;
};

struct norm_gradients_args {
    const float *first, *second;
    const float *scale, *variance;
    float *scale_out, *offset_out;
    struct norm_line line;
    float epsilon;
    int32_t is_training;
    struct norm_rows rows;
};

/* result = (x - mean) · factor + offset + g · weight. Without x it is g · weight, and without g
 * there is no weight. */
struct norm_apply_args {
    const void *x, *g;
    void *result;
    const float *mean, *factor, *offset, *weight;
    int64_t n;
    struct gpu_divisor inner, channels;
};
/* The same for channels that are last and come in packs. A thread has some rows of a pack. */
struct norm_packs_args {
    const void *x, *g;
    void *result;
    const float *mean, *factor, *offset, *weight;
    struct norm_rows rows;
};

/* LRN over `depth` channels, which are last. */
struct lrn_args {
    const float *in, *out, *gradient;
    float *result;
    float *norms;  /* bias + alpha · Σ in² */
    float *shares; /* gradient · out / norms */
    int64_t n, radius;
    struct gpu_divisor depth;
    float bias, alpha, beta;
    int32_t is_small; /* no number of elements is too large for int32_t */
};

#endif
