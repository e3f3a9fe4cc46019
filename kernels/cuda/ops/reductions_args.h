/* The arguments of the kernels that reduce or scan dimensions, as the host fills them and the
 * kernels read them. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_REDUCTIONS_ARGS_H
#define MILLRACE_KERNELS_CUDA_OPS_REDUCTIONS_ARGS_H

#include "kernels/cuda/ops/division.h"

enum {
    REDUCTION_MAX_RANK = 16, /* merged dimensions of one kind */
    REDUCTION_THREADS = 256, /* of a block */
    REDUCTION_MAX_ACCUMULATOR = 16,
};

/* Dimensions of one kind, outermost first. Rank 0 has one position, with stride 0. */
struct reduction_axes {
    int32_t rank;
    struct gpu_divisor dims[REDUCTION_MAX_RANK];
    int64_t strides[REDUCTION_MAX_RANK];
};

/* A block reduces for REDUCTION_THREADS / n_lanes outputs at a time, with n_lanes threads each:
 *
 *   rows      neighbouring threads read neighbouring elements of one output
 *   columns   neighbouring threads read for neighbouring outputs
 *
 * Lanes are merged as a tree. Where outputs are few, the elements of each are also split into
 * chunks, whose accumulators a second launch reduces in order. The shape alone decides all of
 * this, so a result is always the same. */
struct reduction_args {
    const void *in; /* elements; accumulators [n_outputs, n_reduced] if is_last_of_two */
    void *out;      /* elements; accumulators [n_outputs, n_chunks] if n_chunks > 1 */
    int64_t n_outputs, n_reduced;
    int64_t n_chunks, chunk; /* a chunk is this many elements of an output */
    int64_t count;           /* by which a mean is divided */
    int32_t n_lanes;         /* a power of two */
    int32_t is_column;
    int32_t is_last_of_two;
    struct reduction_axes kept, reduced;
};

/* Softmaxes and cross entropies of rows: n_lanes threads share a row. */
struct softmax_args {
    const void *in;
    const void *labels; /* numbers, or classes as integers */
    void *out, *loss;
    int64_t n_rows, n_columns;
    /* the distance of rows, 0 where one row stands for all; of columns, 0 or 1 */
    int64_t in_row_step, in_step, label_row_step, label_step;
    int32_t n_lanes;
    int32_t class_bytes; /* 4 or 8 */
};

/* ArgMax and the scans: the input is [n_outer, n, n_inner]. */
struct along_args {
    const void *in;
    void *out;
    int64_t n_outer, n, n_inner;
    int32_t n_lanes;
    int32_t out_bytes; /* ArgMax: 4 or 8 */
    int32_t is_exclusive, is_reverse;
};

#endif
