/* What SparseFillEmptyRows, RaggedFillEmptyRows and their gradients check before they touch an
 * entry. The kernels of GPUs use it too. All errors are INVALID_ARGUMENT. Any thread. */
#ifndef MILLRACE_KERNELS_CPU_SPARSE_SPARSE_FILL_H
#define MILLRACE_KERNELS_CPU_SPARSE_SPARSE_FILL_H

#include "kernels/cpu/sparse/sparse.h"

struct sparse_fill {
    const struct tensor *values, *filler;
    const int64_t *indices; /* [n, rank]; the first column is the row number */
    int64_t n, n_rows;
    int rank;
    bool is_ragged; /* the ragged form, whose output 0 is a vector */
};

struct status *sparse_fill_read(const struct kernel_ctx *ctx, struct sparse_fill *ret) MUST_USE;
/* Entry i is in a row that does not exist. */
struct status *sparse_fill_row_error(const struct sparse_fill *job, int64_t i,
                                     int64_t row) MUST_USE;
struct status *sparse_fill_grad_check(const struct tensor *map, const struct tensor *grad) MUST_USE;

#endif
