/* Tensors of independent random numbers. */
#ifndef MILLRACE_KERNELS_CPU_RANDOM_RANDOM_FILL_H
#define MILLRACE_KERNELS_CPU_RANDOM_RANDOM_FILL_H

#include "kernels/kernel.h"
#include "kernels/support/philox.h"

enum random_kind {
    RANDOM_UNIFORM,   /* half, bfloat16, float, double in [0, 1) */
    RANDOM_NORMAL,    /* the same types: mean 0, deviation 1 */
    RANDOM_TRUNCATED, /* normal within (-2, 2) */
    RANDOM_RANGE,     /* integers from `low`, `range` of them */
    RANDOM_BITS,      /* integers of all values */
};

struct random_fill {
    enum random_kind kind;
    enum dtype dtype;
    struct philox generator;
    uint64_t low, range; /* RANDOM_RANGE; range 2^32 (2^64) is not asked for */
};
/* Fills n elements at `out`, in parallel where it pays. The numbers depend on the generator
 * alone. */
void random_fill_run(const struct random_fill *fill, struct pool *pool, void *out, int64_t n);

/* The next block as numbers, RANDOM_UNIFORM or RANDOM_NORMAL: four of half, bfloat16 or float,
 * two of double. */
void random_next_f32(enum random_kind kind, enum dtype dtype, struct philox *generator,
                     float out[4]);
void random_next_f64(enum random_kind kind, struct philox *generator, double out[2]);

#endif
