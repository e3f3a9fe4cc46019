/* The arguments of the kernels in sparse_dense.cu. Plain C, read by both sides. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_SPARSE_DENSE_ARGS_H
#define MILLRACE_KERNELS_CUDA_OPS_SPARSE_DENSE_ARGS_H

#include <stdint.h>

#include "kernels/cuda/ops/order_args.h"

/* out [m, n] = a · b. Entry e of a is at indices [n_entries, 2], of which coordinate `row_at` is a
 * row of the product, and the other one a row of b. Entries are sorted by their row: those of row r
 * are [firsts[r], firsts[r + 1]). Blocks are as in struct runs_args. */
struct sparse_product_args {
    const void *indices, *values, *b;
    void *out;
    void *keys; /* keys[e] = the row of entry e; m where it is out of range */
    int64_t key_bytes;
    struct order_positions positions;
    const int64_t *firsts;
    int64_t index; /* enum pick_index */
    int64_t row_at, adjoint_a, adjoint_b;
    int64_t n_entries, m, n, inner;
    int64_t b_row, b_column; /* strides of b */
    int64_t width, n_lanes;
};

/* What is wrong with the first wrong entry of a SparseToDense: found[0] = SPARSE_WHAT · i + what,
 * where what is a dimension, SPARSE_REPEATED or SPARSE_UNORDERED; SPARSE_NONE: nothing. found[1] is
 * the coordinate in that dimension. */
enum { SPARSE_WHAT = 64, SPARSE_REPEATED = 62, SPARSE_UNORDERED = 63, SPARSE_DENSE_RANK = 8 };
#define SPARSE_NONE UINT64_MAX
struct sparse_validate_args {
    const void *indices; /* [n, rank] */
    uint64_t *found;     /* [2] */
    int64_t index;       /* enum pick_index */
    int64_t n, rank;
    int64_t dims[SPARSE_DENSE_RANK];
};

#endif
