/* What the ragged kernels share. A ragged tensor has values and, per ragged dimension, a vector of
 * splits; the outermost comes first. Row i of a dimension is [splits[i], splits[i + 1]) of the next
 * one. Any thread. */
#ifndef MILLRACE_KERNELS_CPU_SPARSE_RAGGED_H
#define MILLRACE_KERNELS_CPU_SPARSE_RAGGED_H

#include "kernels/kernel.h"

/* Checks that splits are a vector with an element, do not decrease and stay within [0, n_values].
 * With `is_exact` they must begin at 0 and end at n_values. A negative n_values means that it is
 * unknown. Errors: INVALID_ARGUMENT. */
struct status *ragged_check_splits(const struct tensor *splits, int64_t n_values,
                                   bool is_exact) MUST_USE;
/* Checks all splits of a ragged tensor, from the outermost down to the values. Errors:
 * INVALID_ARGUMENT. */
struct status *ragged_check_nested(const struct tensor *splits, int n_splits,
                                   const struct tensor *values, bool is_exact) MUST_USE;

/* Returns the elements per row of a tensor of rank 1 or more; 1 when there are no rows. */
int64_t ragged_row_len(const struct tensor *values);

#endif
