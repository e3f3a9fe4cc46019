/* What SparseToDense and SparseTensorDenseMatMul check before they touch an entry. The kernels of
 * GPUs use it too, so nothing here reads indices or values. All errors are INVALID_ARGUMENT. Any
 * thread. */
#ifndef MILLRACE_KERNELS_CPU_SPARSE_SPARSE_DENSE_H
#define MILLRACE_KERNELS_CPU_SPARSE_SPARSE_DENSE_H

#include "kernels/kernel.h"

/* ---- SparseToDense ---- */

struct sparse_to_dense {
    const struct tensor *indices, *values, *filler; /* borrowed from the kernel's inputs */
    int64_t n, n_dims;                              /* entries, and coordinates of each */
    int64_t dims[SHAPE_MAX_RANK];                   /* of the output */
};

/* The node's state is a bool: are entries checked? */
struct status *sparse_to_dense_init(struct kernel_init *init) MUST_USE;
struct status *sparse_to_dense_check(const struct kernel_ctx *ctx,
                                     struct sparse_to_dense *ret) MUST_USE;
/* Coordinate d of entry i is `at`, which is out of range. */
struct status *sparse_to_dense_bounds_error(const struct sparse_to_dense *job, int64_t i, int d,
                                            int64_t at) MUST_USE;
/* Entry i is not behind the entry before it. */
struct status *sparse_to_dense_order_error(int64_t i, bool is_repeated) MUST_USE;

/* ---- SparseTensorDenseMatMul ---- */

struct sparse_product_state { /* of the node */
    bool adjoint_a, adjoint_b;
};
struct sparse_product {
    int64_t m, n, inner;     /* the product is [m, n] */
    int64_t b_row, b_column; /* strides of b, transposed when the attr says so */
};

struct status *sparse_product_init(struct kernel_init *init) MUST_USE;
struct status *sparse_product_check(const struct kernel_ctx *ctx,
                                    struct sparse_product *ret) MUST_USE;

#endif
