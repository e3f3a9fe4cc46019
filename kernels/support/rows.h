/* Joins tensors along dimension 0. Any thread. */
#ifndef MILLRACE_KERNELS_SUPPORT_ROWS_H
#define MILLRACE_KERNELS_SUPPORT_ROWS_H

#include "common/base/pool.h"
#include "common/tensor/tensor.h"

/* Returns n tensors that hold nothing. Never NULL; aligned for tensors. */
struct tensor *rows_new(int n);
/* As rows_new, for an n that a client chooses. Errors: RESOURCE_EXHAUSTED; *ret is then unchanged.
 */
struct status *rows_try_new(size_t n, struct tensor **ret) MUST_USE;
/* Clears the tensors and frees the array. Accepts NULL. */
void rows_free(struct tensor *tensors, size_t n);

/* Joins all rows of the pieces. Each piece has rank 1 or more. *ret must hold nothing. Errors:
 * INVALID_ARGUMENT when the types or the row sizes of the pieces differ. */
struct status *rows_join(struct allocator *allocator, const struct tensor *const *pieces, int n,
                         struct pool *pool, struct tensor *ret) MUST_USE;

#endif
