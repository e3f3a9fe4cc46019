/* Makes the shapes that the sparse, ragged and set families need: the three tensors of a sparse
 * tensor, vectors and matrices. */
#ifndef MILLRACE_COMMON_OPS_SPARSE_SHAPES_H
#define MILLRACE_COMMON_OPS_SPARSE_SHAPES_H

#include "common/ops/op_def.h"

static inline struct shape vector_of(struct shape_inference *ctx, int64_t n) {
    return shape_make(ctx, 1, &n);
}
static inline struct shape matrix_of(struct shape_inference *ctx, int64_t n_rows,
                                     int64_t n_columns) {
    return shape_make(ctx, 2, (int64_t[]){n_rows, n_columns});
}
/* Size d of the shape; -1 where it has no dimension d. */
static inline int64_t dim_of(struct shape shape, int d) {
    return shape.rank > d ? shape.dims[d] : -1;
}

/* Sets outputs first … first + 2 to a sparse tensor of n entries (-1: unknown) whose shape vector
 * has the shape `shape_vector`. */
static inline void set_sparse(struct shape_inference *ctx, int first, int64_t n,
                              struct shape shape_vector) {
    ctx->out[first] = matrix_of(ctx, n, dim_of(shape_vector, 0));
    ctx->out[first + 1] = vector_of(ctx, n);
    ctx->out[first + 2] = shape_vector.rank < 0 ? vector_of(ctx, -1) : shape_vector;
}

/* Checks the ranks of inputs, a letter for each: 'm' a matrix, 'v' a vector, 's' a scalar, '.'
 * anything. */
static inline struct status *require_ranks(struct shape_inference *ctx, const char *ranks) {
    for (int i = 0; ranks[i]; i++)
        if (ranks[i] != '.')
            TRY(shape_require_rank(ctx, i, ranks[i] == 'm' ? 2 : ranks[i] == 'v' ? 1 : 0, NULL));
    return NULL;
}

/* SparseFillEmptyRowsGrad and RaggedFillEmptyRowsGrad (sparse_ops.c). */
op_shape_fn shape_fill_rows_grad;

#endif
