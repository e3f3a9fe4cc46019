/* Sparse tensors kept one by one, and stacked again along new dimensions in front. */
#ifndef MILLRACE_KERNELS_CPU_SPARSE_SPARSE_STACK_H
#define MILLRACE_KERNELS_CPU_SPARSE_SPARSE_STACK_H

#include "kernels/cpu/sparse/sparse.h"

/* The three tensors of one sparse tensor, owned. */
struct sparse_piece {
    struct tensor indices, values, shape;
};
struct sparse_piece *sparse_pieces_new(int64_t n); /* that hold nothing; NULL: no memory */
void sparse_pieces_free(struct sparse_piece *pieces, int64_t n);

/* Entries [begin, end) of `in`, which agree in dimension 0 (or none), without that dimension. */
struct status *sparse_piece_of_run(struct kernel_ctx *ctx, const struct sparse *in, int64_t begin,
                                   int64_t end, struct sparse_piece *ret) MUST_USE;
/* Are these a sparse tensor with values of the dtype? `index` is for the message. Errors:
 * INVALID_ARGUMENT. */
struct status *sparse_piece_check(const struct sparse_piece *piece, enum dtype dtype,
                                  int64_t index) MUST_USE;
/* Outputs 0 to 2: as many pieces as `front` has places, all of one rank; a size is the largest
 * of its dimension's. Errors: INVALID_ARGUMENT. */
struct status *sparse_stack(struct kernel_ctx *ctx, const struct sparse_piece *pieces, int64_t n,
                            struct shape front, enum dtype dtype) MUST_USE;

#endif
