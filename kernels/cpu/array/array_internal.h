/* What the array files share: outputs that are an input in another shape, and sums of slices. */
#ifndef MILLRACE_KERNELS_CPU_ARRAY_ARRAY_INTERNAL_H
#define MILLRACE_KERNELS_CPU_ARRAY_ARRAY_INTERNAL_H

#include "kernels/cpu/array/reshape.h"
#include "kernels/support/dims.h"
#include "kernels/support/moves.h"
#include "kernels/kernel.h"

/* to[i] += from[i] for n elements. Integers wrap, and bools are ored. array_slice_add_find returns
 * NULL for a dtype without sums. */
typedef void array_slice_fn(void *to, const void *from, int64_t n);
array_slice_fn *array_add_fn(enum dtype dtype);

#endif
