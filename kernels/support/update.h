/* Loops that change a value in place: of the Assign ops, of scatters, of accumulators. */
#ifndef MILLRACE_KERNELS_SUPPORT_UPDATE_H
#define MILLRACE_KERNELS_SUPPORT_UPDATE_H

#include "common/base/pool.h"
#include "common/tensor/tensor.h"

/* ---- updates: dst[i] = a[i] op b[i] ---- */

enum update_op {
    UPDATE_ASSIGN,
    UPDATE_ADD,
    UPDATE_SUB,
    UPDATE_MUL,
    UPDATE_DIV,
    UPDATE_MIN,
    UPDATE_MAX,
    N_UPDATE_OPS
};

/* dst may be a, or be disjoint from it; it may be b as well. b_step is 1, or 0 when b is a
 * single element for all i. UPDATE_ASSIGN ignores a; for object dtypes its dst holds valid
 * pointers. False: an integer was divided by zero. */
typedef bool update_fn(void *dst, const void *a, const void *b, int64_t n, int b_step);
/* NULL where the dtype does not have the op. */
update_fn *update_find(enum update_op op, enum dtype dtype);
/* The same over n elements in parallel. Errors: INVALID_ARGUMENT integer division by zero. */
struct status *update_run(struct pool *pool, update_fn *fn, enum dtype dtype, void *dst,
                          const void *a, const void *b, int64_t n) MUST_USE;

/* ---- scattered updates: slices of `params` at offsets ---- */

struct scatter_job {
    update_fn *fn;
    enum dtype dtype;
    char *params;
    /* n_slices slices one after the other, or one element when update_step is 0 */
    const char *updates;
    int update_step;
    /* n_slices element offsets in params, checked; -1 leaves the slice out */
    const int64_t *offsets;
    /* instead of offsets, when those are NULL: row numbers, checked, int32 or int64 */
    const void *indices;
    bool indices_are_wide;
    int64_t n_slices, slice_len;
    _Atomic bool divided_by_zero;
};
/* Slices in order, so a doubled one is updated twice. Large ones are shared out by columns,
 * which keeps that order. */
struct status *scatter_run(struct pool *pool, struct scatter_job *job) MUST_USE;

#endif
