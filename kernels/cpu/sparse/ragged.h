/* What the ragged family shares. A ragged tensor is values and, per ragged dimension from the
 * outside in, a vector of splits: row i of a dimension is [splits[i], splits[i + 1]) of the next
 * one. Any thread. */
#ifndef MILLRACE_KERNELS_CPU_SPARSE_RAGGED_H
#define MILLRACE_KERNELS_CPU_SPARSE_RAGGED_H

#include "kernels/kernel.h"

/* Splits are a vector, not empty, do not fall and stay within [0, n_values]; with `is_exact`
 * they begin at 0 and end at n_values. n_values < 0: nobody knows. Errors: INVALID_ARGUMENT. */
struct status *ragged_check_splits(const struct tensor *splits, int64_t n_values,
                                   bool is_exact) MUST_USE;
/* All splits of a ragged tensor, outermost first, down to its values. Errors: INVALID_ARGUMENT. */
struct status *ragged_check_nested(const struct tensor *splits, int n_splits,
                                   const struct tensor *values, bool is_exact) MUST_USE;

/* Elements per row of a tensor of rank 1 and above; 1 where there are no rows to tell. */
int64_t ragged_row_len(const struct tensor *values);
/* An int32 or int64 element of a tensor in the making. */
static inline void ragged_set_int(struct tensor *t, int64_t i, int64_t value) {
    if (t->dtype == DT_INT32)
        ((int32_t *)tensor_data(t))[i] = (int32_t)value;
    else
        ((int64_t *)tensor_data(t))[i] = value;
}

#endif
