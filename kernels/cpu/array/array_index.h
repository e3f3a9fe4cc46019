/* Index tensors of gathers and scatters: reading them, and naming a bad one. */
#ifndef MILLRACE_KERNELS_CPU_ARRAY_ARRAY_INDEX_H
#define MILLRACE_KERNELS_CPU_ARRAY_ARRAY_INDEX_H

#include "kernels/cpu/array/array_internal.h"

/* One index of int16, int32 or int64; inlined into loops whose dtype is a constant. */
static inline __attribute__((always_inline)) int64_t index_of(enum dtype dtype, const void *data,
                                                              int64_t i) {
    return dtype == DT_INT32   ? ((const int32_t *)data)[i]
           : dtype == DT_INT64 ? ((const int64_t *)data)[i]
                               : ((const int16_t *)data)[i];
}

/* What becomes of an index outside of its dimension. */
enum bad_index_policy { BAD_INDEX_FAILS, BAD_INDEX_IS_SKIPPED };
struct status *bad_index_policy_read(const struct node *node, enum bad_index_policy *ret) MUST_USE;

/* Rows of an index matrix [n, depth], each a point in the leading `depth` dimensions of `shape`,
 * as the element it points at: ret[row] is the point's offset in slices (row-major over those
 * dimensions), -1 for a point outside. Returns the first row outside, or -1. */
int64_t index_rows_flatten(const struct tensor *indices, int depth, struct shape shape, int64_t n,
                           int64_t *ret);
/* "indices[1] = [7, 2] does not index into …". `what` is "param shape" or "shape". */
struct status *index_row_bad(const struct tensor *indices, int depth, int64_t row, const char *what,
                             struct shape shape) MUST_USE COLD;

/* Copies n slices of `len` elements: slice i of `to` is slice at[i] of `from`; -1 leaves zeros. */
void index_copy_slices(enum dtype dtype, void *to, const void *from, const int64_t *at, int64_t n,
                       int64_t len, struct pool *pool);

#endif
