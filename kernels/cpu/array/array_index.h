/* Reads the index tensors of gathers and scatters, and writes the error that names a bad index. Any
 * thread. */
#ifndef MILLRACE_KERNELS_CPU_ARRAY_ARRAY_INDEX_H
#define MILLRACE_KERNELS_CPU_ARRAY_ARRAY_INDEX_H

#include "kernels/cpu/array/array_internal.h"

/* Returns one index of dtype int16, int32 or int64. It is inlined into loops whose dtype is
 * constant. */
static inline __attribute__((always_inline)) int64_t index_of(enum dtype dtype, const void *data,
                                                              int64_t i) {
    return dtype == DT_INT32   ? ((const int32_t *)data)[i]
           : dtype == DT_INT64 ? ((const int64_t *)data)[i]
                               : ((const int16_t *)data)[i];
}

/* What a kernel does with an index outside of its dimension. */
enum bad_index_policy { BAD_INDEX_FAILS, BAD_INDEX_IS_SKIPPED };
struct status *bad_index_policy_read(const struct node *node, enum bad_index_policy *ret) MUST_USE;

/* Turns the rows of an index matrix [n, depth] into offsets. Each row is a point in the leading
 * `depth` dimensions of `shape`; ret[row] is its row-major offset over those dimensions, in slices,
 * or -1 when the point is outside. Returns the first row that is outside, or -1. Leaves the rest of
 * `ret` unset once nobody wants the result (common/base/pool_cancel.h); loops over the offsets must
 * ask before the first one. */
int64_t index_rows_flatten(const struct tensor *indices, int depth, struct shape shape, int64_t n,
                           int64_t *ret);
/* Returns the error "indices[1] = [7, 2] does not index into …". `what` is "param shape" or
 * "shape". */
struct status *index_row_bad(const struct tensor *indices, int depth, int64_t row, const char *what,
                             struct shape shape) MUST_USE COLD;

/* Copies n slices of `len` elements: slice i of `to` becomes slice at[i] of `from`, and zeros where
 * at[i] is -1. */
void index_copy_slices(enum dtype dtype, void *to, const void *from, const int64_t *at, int64_t n,
                       int64_t len, struct pool *pool);

#endif
