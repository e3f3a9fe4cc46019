/* Sparse matrices by compressed rows, alone or in a batch of the same size: the value of a variant.
 *
 *   held tensors   dense_shape    int64 [rank]            rank 2, or 3 with the batch first
 *                  batch_pointers int32 [batches + 1]     where a batch's entries begin
 *                  row_pointers   int32 [batches·(rows + 1)]   where a row's entries begin, counted
 *                                                         from its batch's first
 *                  col_indices    int32 [entries]
 *                  values         T [entries]
 *
 * Immutable once made. A matrix may have come from another task, so its structure is checked where
 * it is taken from an input. */
#ifndef MILLRACE_KERNELS_CPU_SPARSE_CSR_H
#define MILLRACE_KERNELS_CPU_SPARSE_CSR_H

#include "kernels/kernel.h"
#include "kernels/support/complex_values.h"
#include "kernels/support/variant_tensors.h"

struct csr {
    struct variant_tensors *held; /* a reference */
    enum dtype dtype;
    int rank;
    int64_t n_batches, n_rows, n_cols, n_entries;
    int32_t *batch, *row, *col; /* of the held tensors; written only by the maker */
    void *values;
};
enum { CSR_SHAPE, CSR_BATCH, CSR_ROW, CSR_COL, CSR_VALUES };

/* The types that TensorFlow's kernels have. */
#define CSR_TYPES                                                           \
    (DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE) | DTYPE_BIT(DT_COMPLEX64) | \
     DTYPE_BIT(DT_COMPLEX128))

/* Makes a matrix whose pointers are zeros; the caller fills it. dims has `rank` sizes. Errors:
 * INVALID_ARGUMENT for sizes that int32 cannot count; RESOURCE_EXHAUSTED. */
struct status *csr_new(struct kernel_ctx *ctx, enum dtype dtype, int rank, const int64_t *dims,
                       int64_t n_entries, struct csr *ret) MUST_USE;
/* Takes a reference to the matrix of a variant input, and checks its structure. Its values must
 * have the dtype; DT_INVALID allows any dtype. Errors: INVALID_ARGUMENT. */
struct status *csr_of_input(struct kernel_ctx *ctx, int input, enum dtype dtype,
                            struct csr *ret) MUST_USE;
void csr_fini(struct csr *csr); /* accepts a zeroed one */
/* Sets output 0 to the matrix, which is empty after that. */
void csr_output(struct kernel_ctx *ctx, struct csr *csr);

/* Returns the first entry of a row. *ret_end is the entry after its last one. */
static inline int64_t csr_row(const struct csr *csr, int64_t batch, int64_t row, int64_t *ret_end) {
    const int32_t *rows = csr->row + batch * (csr->n_rows + 1);
    *ret_end = csr->batch[batch] + rows[row + 1];
    return csr->batch[batch] + rows[row];
}

/* Makes the transpose; with `conjugate`, its values are conjugated. Errors: RESOURCE_EXHAUSTED. */
struct status *csr_transpose(struct kernel_ctx *ctx, const struct csr *from, bool conjugate,
                             struct csr *ret) MUST_USE;

#endif
