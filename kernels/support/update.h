/* Loops that change a value in place. The Assign ops, scatters and accumulators use them. Any
 * thread. */
#ifndef MILLRACE_KERNELS_SUPPORT_UPDATE_H
#define MILLRACE_KERNELS_SUPPORT_UPDATE_H

#include "common/base/pool.h"
#include "common/tensor/tensor.h"
#include "kernels/support/update_op.h"

/* ---- updates: dst[i] = a[i] op b[i] ---- */

/* Computes dst[i] = a[i] op b[i]. dst may be a, or must not overlap it; b may be dst too. b_step is
 * 1, or 0 when b is one element for all i. UPDATE_ASSIGN ignores a; for object dtypes its dst holds
 * valid pointers. Returns false when an integer was divided by zero. */
typedef bool update_fn(void *dst, const void *a, const void *b, int64_t n, int b_step);
/* Returns the loop, or NULL when the dtype does not have the op. */
update_fn *update_find(enum update_op op, enum dtype dtype);
/* Runs the loop over n elements in parallel. Errors: INVALID_ARGUMENT "Integer division by zero".
 */
struct status *update_run(struct pool *pool, update_fn *fn, enum dtype dtype, void *dst,
                          const void *a, const void *b, int64_t n) MUST_USE;

/* ---- scattered updates: slices of `params` at offsets ---- */

struct scatter_job {
    update_fn *fn;
    enum dtype dtype;
    char *params;
    /* n_slices contiguous slices, or one element when update_step is 0 */
    const char *updates;
    int update_step;
    /* offsets of n_slices slices in params, in elements; the caller has checked them; -1 skips a
     * slice */
    const int64_t *offsets;
    /* used when offsets is NULL: row numbers of int32 or int64; the caller has checked them */
    const void *indices;
    bool indices_are_wide;
    int64_t n_slices, slice_len;
    _Atomic bool divided_by_zero;
};
/* Updates the slices in order, so a slice that is named twice is updated twice. Large slices are
 * split between threads by columns, which keeps the order. Errors: INVALID_ARGUMENT "Integer
 * division by zero". */
struct status *scatter_run(struct pool *pool, struct scatter_job *job) MUST_USE;

#endif
