/* The loops of reductions, as the engine (math_reduce.c) calls them. Accumulators are wider than
 * elements: unsigned integers, which wrap, and double for float. So the sum of floats is nearly
 * exact and is rounded once. */
#ifndef MILLRACE_KERNELS_CPU_MATH_MATH_REDUCE_H
#define MILLRACE_KERNELS_CPU_MATH_MATH_REDUCE_H

#include "kernels/cpu/math/math_internal.h"

struct reduce_loops {
    size_t accumulator_size; /* 0 when the op does not have the dtype */
    void (*init)(void *acc, int64_t n);
    /* reduces n elements into one accumulator */
    void (*row)(const void *in, int64_t n, void *acc);
    /* reduces contiguous rows of n elements, each into its own accumulator */
    void (*short_rows)(const void *in, int64_t n_rows, int64_t n, void *acc);
    /* reduces rows that are `stride` apart into n accumulators */
    void (*columns)(const void *in, int64_t n_rows, int64_t stride, int64_t n, void *acc);
    void (*merge)(const void *from, void *acc, int64_t n);
    void (*finish)(const void *acc, void *out, int64_t n, int64_t n_reduced);
};

#define MATH_REDUCE_OPS(X) X(sum) X(prod) X(mean) X(max) X(min) X(all) X(any) X(norm)
#define DECLARE_REDUCTION(name)                                                                    \
    extern const struct reduce_loops name##_loops_base[DT_N_TYPES], name##_loops_avx2[DT_N_TYPES], \
        name##_loops_avx512[DT_N_TYPES];
MATH_REDUCE_OPS(DECLARE_REDUCTION)
#undef DECLARE_REDUCTION

#endif
