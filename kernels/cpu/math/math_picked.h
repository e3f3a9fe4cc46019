/* Reductions of rows that are picked from a matrix, for fused programs (kernels/cpu/fused): the
 * rows are read where they are, so that nobody copies them side by side first. */
#ifndef MILLRACE_KERNELS_CPU_MATH_MATH_PICKED_H
#define MILLRACE_KERNELS_CPU_MATH_MATH_PICKED_H

#include "kernels/kernel.h"

/* to[o, :] = the reduction of from[rows[o, i], :] over i */
struct math_picked {
    const void *from;    /* rows of `inner` elements */
    const int64_t *rows; /* n_outer x n_reduced, all of them valid */
    int64_t n_outer, n_reduced, inner;
    void *to; /* n_outer x inner */
};

/* Is the kernel a reduction? */
bool math_is_reduction(const struct kernel_instance *instance);
/* Does a reduction of picked rows have the bits that the reduction of copied ones has? False for
 * few columns, for a single row, and for rows so long that chunks of them are reduced apart. */
bool math_picked_suits(const struct math_picked *job);
/* Computes a job that suits. */
void math_reduce_picked(const struct kernel_instance *reduction, const struct math_picked *job,
                        struct pool *pool);

#endif
