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

enum {
    REDUCE_TILE = 512,           /* the most results that one call finishes */
    REDUCE_MAX_ACCUMULATOR = 16, /* bytes */
    /* A long row is treated as this many bytes of accumulators, which are merged to REDUCE_LANES
     * accumulators and then as a tree (math_reduce_loop.inc). */
    REDUCE_WIDE_BYTES = 512,
    REDUCE_LANES = 32,
};

/* What init makes for a node. */
struct reduce_state {
    const struct reduce_loops *loops; /* float's loops when the dtype is a narrow float */
    enum dtype dtype;
    size_t size;
    bool keep_dims, is_narrow, is_identity_of_one;
};

/* Loops with a conversion of narrow floats. */
void reduce_run_row(const struct reduce_state *state, const char *in, int64_t n, void *acc);
/* n is at most REDUCE_TILE. */
void reduce_run_finish(const struct reduce_state *state, const void *acc, char *out, int64_t n,
                       int64_t n_reduced);

#define MATH_REDUCE_OPS(X) X(sum) X(prod) X(mean) X(max) X(min) X(all) X(any) X(norm)
#define DECLARE_REDUCTION(name)                                                                    \
    extern const struct reduce_loops name##_loops_base[DT_N_TYPES], name##_loops_avx2[DT_N_TYPES], \
        name##_loops_avx512[DT_N_TYPES];
MATH_REDUCE_OPS(DECLARE_REDUCTION)
#undef DECLARE_REDUCTION

#endif
