/* Takes sparse tensors apart into pieces, and stacks pieces along new leading dimensions. */
#ifndef MILLRACE_KERNELS_CPU_SPARSE_SPARSE_STACK_H
#define MILLRACE_KERNELS_CPU_SPARSE_SPARSE_STACK_H

#include "kernels/cpu/sparse/sparse.h"

/* The three tensors of one sparse tensor. The piece owns them. */
struct sparse_piece {
    struct tensor indices, values, shape;
};
/* Returns n pieces that hold nothing; NULL when there is no memory. */
struct sparse_piece *sparse_pieces_new(int64_t n);
void sparse_pieces_free(struct sparse_piece *pieces, int64_t n);

/* Makes a piece of entries [begin, end) of `in`, without dimension 0. The entries agree in
 * dimension 0, or there are none. */
struct status *sparse_piece_of_run(struct kernel_ctx *ctx, const struct sparse *in, int64_t begin,
                                   int64_t end, struct sparse_piece *ret) MUST_USE;
/* Checks that a piece is a sparse tensor with values of the dtype. `index` is for the message.
 * Errors: INVALID_ARGUMENT. */
struct status *sparse_piece_check(const struct sparse_piece *piece, enum dtype dtype,
                                  int64_t index) MUST_USE;
/* Sets outputs 0 to 2 to the stack of as many pieces as `front` has positions. All pieces have the
 * same rank; a size of the result is the largest size of that dimension. Errors: INVALID_ARGUMENT.
 */
struct status *sparse_stack(struct kernel_ctx *ctx, const struct sparse_piece *pieces, int64_t n,
                            struct shape front, enum dtype dtype) MUST_USE;

#endif
