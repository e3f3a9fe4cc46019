/* Tensors one after the other along dimension 0. */
#ifndef MILLRACE_KERNELS_SUPPORT_ROWS_H
#define MILLRACE_KERNELS_SUPPORT_ROWS_H

#include "common/base/pool.h"
#include "common/tensor/tensor.h"

struct tensor *rows_new(int n); /* tensors that hold nothing; aligned, never NULL */
/* The same where a client says how many: RESOURCE_EXHAUSTED when there is no memory, and *ret
 * stays. */
struct status *rows_try_new(size_t n, struct tensor **ret) MUST_USE;
void rows_free(struct tensor *tensors, size_t n); /* clears; accepts NULL */

/* All rows of the pieces, each of rank 1 or more. Errors: INVALID_ARGUMENT when their types or
 * the sizes of their rows differ. */
struct status *rows_join(struct allocator *allocator, const struct tensor *const *pieces, int n,
                         struct pool *pool, struct tensor *ret) MUST_USE;

#endif
