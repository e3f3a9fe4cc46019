/* The arguments of the kernels in sparse.cu. Plain C, read by both sides. Entry i of a sparse
 * tensor has `rank` coordinates from indices + i · rank on. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_SPARSE_ARGS_H
#define MILLRACE_KERNELS_CUDA_OPS_SPARSE_ARGS_H

#include <stdint.h>

#include "kernels/cuda/ops/order_args.h"

enum { SPARSE_MAX_RANK = 32 };

/* to[i] = the coordinates, by new_strides, of the place that `from[i]` has by strides */
struct sparse_reshape_args {
    const int64_t *from;
    int64_t *to;
    int64_t n, rank, new_rank;
    int64_t strides[SPARSE_MAX_RANK], new_strides[SPARSE_MAX_RANK];
};

/* to[i] = from[i], with `offset` added to coordinate `dim` */
struct sparse_shift_args {
    const int64_t *from;
    int64_t *to;
    int64_t n, rank, dim, offset;
};

/* A box of a sparse tensor is cut into n_parts along `axis`: the first `n_longer` are `length` + 1
 * long, the others `length`. keys[i] = the part of entry i; n_parts outside of the box. */
struct sparse_part_args {
    const int64_t *indices;
    uint32_t *keys;
    int64_t n, rank, axis, n_parts, length, n_longer;
    int64_t begin[SPARSE_MAX_RANK], size[SPARSE_MAX_RANK];
};

/* to[j] = the coordinates of entry positions[first + j], counted from `begin` on */
struct sparse_take_args {
    const int64_t *indices;
    int64_t *to;
    struct order_positions positions;
    int64_t first, n, rank;
    int64_t begin[SPARSE_MAX_RANK];
};

/* Rows without entries get one. Entries are sorted by their row, which is their first coordinate;
 * those of row r are [firsts[r], firsts[r + 1]). */
struct sparse_fill_args {
    const int64_t *indices;
    const int64_t *rows; /* the row of entry i */
    const void *values, *filler;
    struct order_positions positions;
    const int64_t *firsts;
    int64_t *starts;  /* how many entries row r gets; then, scanned, where they begin */
    int64_t *summary; /* entries in all, valid ones, and the first invalid one and its row */
    int64_t *to_indices, *map; /* map[i]: where entry i is */
    void *to_values;
    uint8_t *is_empty;
    int64_t n, n_rows, rank;
};

/* *out = the sum of the values that are not marked, by one block */
struct sparse_rest_args {
    const void *values;
    const uint8_t *marks;
    void *out;
    int64_t n;
};

/* to[i] = the gradient of entry i of the input: that of the entry of the slice with its
 * coordinates, or 0. Both lists are in order. */
struct sparse_slice_grad_args {
    const void *grad;
    const int64_t *in, *out, *start;
    void *to;
    int64_t n, n_grads, rank;
};

#endif
