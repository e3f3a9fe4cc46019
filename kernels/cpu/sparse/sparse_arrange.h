/* What SparseReshape, SparseConcat, SparseSplit, SparseSlice and SparseSliceGrad check and plan
 * before they touch an entry. The kernels of GPUs use it too, so nothing here reads indices or
 * values. All errors are INVALID_ARGUMENT. Any thread. */
#ifndef MILLRACE_KERNELS_CPU_SPARSE_SPARSE_ARRANGE_H
#define MILLRACE_KERNELS_CPU_SPARSE_SPARSE_ARRANGE_H

#include "kernels/cpu/sparse/sparse.h"

/* Computes the new sizes, of which there are *ret_rank. */
struct status *sparse_reshape_check(const struct kernel_ctx *ctx, int64_t dims[SHAPE_MAX_RANK],
                                    int *ret_rank) MUST_USE;
/* Computes row-major strides; a product that does not fit wraps. */
void sparse_fill_strides(const int64_t *dims, int rank, int64_t *strides);

/* What SparseConcat joins along `dim`. A zeroed one may be given to fini. */
struct sparse_parts {
    struct sparse *parts;
    int n, dim;
    int64_t n_entries;            /* of all parts */
    int64_t dims[SHAPE_MAX_RANK]; /* of the output */
};
struct status *sparse_parts_init(const struct kernel_ctx *ctx, struct sparse_parts *ret) MUST_USE;
void sparse_parts_fini(struct sparse_parts *parts);

/* A box of the input. The entries inside it get coordinates that begin at its corner. */
struct sparse_box {
    int64_t begin[SHAPE_MAX_RANK], size[SHAPE_MAX_RANK];
};
struct status *sparse_slice_check(const struct kernel_ctx *ctx, struct sparse *ret_in,
                                  struct sparse_box *ret) MUST_USE;
struct status *sparse_split_check(const struct kernel_ctx *ctx, struct sparse *ret_in,
                                  int *ret_axis) MUST_USE;
struct status *sparse_slice_grad_check(const struct kernel_ctx *ctx) MUST_USE;

#endif
