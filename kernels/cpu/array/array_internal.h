/* What the files of the array family share: passing inputs on, sums of slices. */
#ifndef MILLRACE_KERNELS_CPU_ARRAY_ARRAY_INTERNAL_H
#define MILLRACE_KERNELS_CPU_ARRAY_ARRAY_INTERNAL_H

#include "kernels/cpu/array/reshape.h"
#include "kernels/support/dims.h"
#include "kernels/support/strided.h"
#include "kernels/kernel.h"

/* to[i] += from[i]; integers wrap, bools or. NULL for dtypes without a sum. */
typedef void array_slice_fn(void *to, const void *from, int64_t n);
array_slice_fn *array_add_fn(enum dtype dtype);

#endif
