/* Fills tensors with independent random numbers. */
#ifndef MILLRACE_KERNELS_CPU_RANDOM_RANDOM_FILL_H
#define MILLRACE_KERNELS_CPU_RANDOM_RANDOM_FILL_H

#include "kernels/kernel.h"
#include "kernels/support/philox.h"

enum random_kind {
    RANDOM_UNIFORM,   /* numbers in [0, 1) of half, bfloat16, float or double */
    RANDOM_NORMAL,    /* normal numbers of the same types, with mean 0 and deviation 1 */
    RANDOM_TRUNCATED, /* normal numbers within (-2, 2) */
    RANDOM_RANGE,     /* integers from `low` on, `range` different ones */
    RANDOM_BITS,      /* integers of all values */
};

struct random_fill {
    enum random_kind kind;
    enum dtype dtype;
    struct philox generator;
    uint64_t low, range; /* for RANDOM_RANGE; the range is below 2^32 (2^64) */
};
/* Fills n elements at `out`, in parallel when it pays. The numbers depend on the generator alone.
 * `pool` may be NULL. */
void random_fill_run(const struct random_fill *fill, struct pool *pool, void *out, int64_t n);

/* Turn the next block into numbers, for RANDOM_UNIFORM and RANDOM_NORMAL: four of half, bfloat16 or
 * float, two of double. Return how many. */
void random_next_f32(enum random_kind kind, enum dtype dtype, struct philox *generator,
                     float out[4]);
void random_next_f64(enum random_kind kind, struct philox *generator, double out[2]);

#endif
