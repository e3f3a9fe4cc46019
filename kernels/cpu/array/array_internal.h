/* Declares what the array files share: sums of slices. Any thread. */
#ifndef MILLRACE_KERNELS_CPU_ARRAY_ARRAY_INTERNAL_H
#define MILLRACE_KERNELS_CPU_ARRAY_ARRAY_INTERNAL_H

#include "kernels/cpu/array/reshape.h"
#include "kernels/support/dims.h"
#include "kernels/support/moves.h"
#include "kernels/kernel.h"

/* to[i] += from[i] for n elements. Integers wrap, and bools are ored. */
typedef void array_slice_fn(void *to, const void *from, int64_t n);
/* Finds the function for a dtype. Returns NULL for a dtype without sums. */
array_slice_fn *array_add_fn(enum dtype dtype);

#endif
