/* The arguments of the kernels that reduce runs of rows, and that count. Plain C, read by both
 * sides. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_SEGMENTS_ARGS_H
#define MILLRACE_KERNELS_CUDA_OPS_SEGMENTS_ARGS_H

#include <stdint.h>

#include "kernels/cuda/ops/order_args.h"

enum segments_scale { SEGMENTS_SUM, SEGMENTS_MEAN, SEGMENTS_SQRT_N };

/* out[s] = op over i in [firsts[s], firsts[s + 1]) of scale · data[row(i)], where
 *
 *   place(i) = positions[i]        row(i) = rows[place(i)], or place(i) without rows
 *
 * A row out of range is left out. A block of threads is `width` columns by n_lanes threads that
 * share a segment by n_groups segments; lanes are merged as a tree. */
struct runs_args {
    void *out;
    const void *data;
    struct order_positions positions;
    const void *rows;  /* NULL, or indices */
    int64_t row_index; /* enum pick_index of `rows` */
    const int64_t *firsts;
    /* NULL: the scale is that of the output's segment. Else of the row's: row r is scaled as
     * segment r, which has row_firsts[r + 1] - row_firsts[r] rows. */
    const int64_t *row_firsts;
    int64_t op;    /* enum update_op */
    int64_t scale; /* enum segments_scale */
    int64_t n_segments, n_rows, inner;
    int64_t width, n_lanes;
};

/* counts[bin] += 1 for each value, or = 1. Values out of range are left out. */
struct bincount_args {
    const void *values;
    int32_t *counts; /* [n_rows, n_bins] */
    int64_t index;   /* enum pick_index */
    int64_t n, row_len, n_bins;
    int64_t is_binary;
};

/* keys[i] = value i's bin among those of all rows; n_bins · n_rows where it is out of range */
struct bin_keys_args {
    const void *values;
    uint64_t *keys;
    int64_t index; /* enum pick_index */
    int64_t n, row_len, n_bins, n_rows;
};

/* to[i] = from[i] as a float */
struct counts_float_args {
    const int32_t *from;
    float *to;
    int64_t n;
};

struct histogram_args {
    const void *values;
    int32_t *counts;
    int64_t n, n_bins;
    double low, step;
};

struct in_top_k_args {
    const float *predictions;
    const void *targets, *k_at; /* k_at: one number, or NULL for k */
    uint8_t *out;
    int64_t index; /* enum pick_index of the targets and k */
    int64_t n_rows, n_classes, k;
};

/* out[i] = how many of the row's sorted elements are below value i, or not above it */
struct search_args {
    const void *sorted, *values;
    void *out;
    int64_t n, n_sorted, n_values, is_upper;
    int64_t out_bytes;
};

struct bucketize_args {
    const void *values;
    const float *boundaries;
    int32_t *out;
    int64_t n, n_boundaries;
};

struct cross_args {
    const void *a, *b;
    void *out;
    int64_t n_vectors;
};

/* *found: 1 for an infinity, 2 for -infinity, 4 for NaN; several are or-ed */
struct check_args {
    const void *values;
    uint32_t *found;
    int64_t n;
};

/* keys[i] = the place of sparse entry i in the dense shape, whose sizes are on the device */
struct coordinates_args {
    const int64_t *indices; /* [n, rank] */
    const int64_t *dims;
    uint64_t *keys;
    int64_t n, rank;
};

#endif
