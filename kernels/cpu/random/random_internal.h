/* What the files of the random family share. */
#ifndef MILLRACE_KERNELS_CPU_RANDOM_RANDOM_INTERNAL_H
#define MILLRACE_KERNELS_CPU_RANDOM_RANDOM_INTERNAL_H

#include <stdatomic.h>

#include "kernels/support/philox.h"
#include "kernels/kernel.h"

/* ---- random_fill.c: tensors of independent numbers ---- */

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
/* Fills n elements at `out`, in parallel where it pays. The numbers depend on the generator alone. */
void random_fill_run(const struct random_fill *fill, struct pool *pool, void *out, int64_t n);

/* The next block as numbers, RANDOM_UNIFORM or RANDOM_NORMAL: four of half, bfloat16 or float, two of double. */
void random_next_f32(enum random_kind kind, enum dtype dtype, struct philox *generator, float out[4]);
void random_next_f64(enum random_kind kind, struct philox *generator, double out[2]);

/* ---- random_stateful.c: a generator that each execution moves on ---- */

struct random_state {
    struct philox start;
    _Atomic uint64_t n_used; /* blocks given out */
};
/* Reads attrs seed and seed2; both 0: seeds from the machine. */
struct status *random_state_seed(struct random_state *state, const struct node *node) MUST_USE;
struct status *random_state_init(struct kernel_init *init); /* the whole state of a node */
/* Takes `n_blocks` of the stream of the node, whose state begins with a random_state; beyond 2^64 blocks it repeats. */
struct philox random_state_reserve(struct kernel_ctx *ctx, uint64_t n_blocks);
/* What TensorFlow takes for n outputs that may need many blocks each: 256 apiece. */
enum { RANDOM_BLOCKS_PER_OUTPUT = 256 };

kernel_fn random_uniform, random_normal, random_truncated_normal, random_uniform_int;

/* ---- random_stateless.c ---- */

/* A generator from a seed of shape [2] (int32, int64). Errors: INVALID_ARGUMENT. */
struct status *random_from_seed(const struct tensor *seed, struct philox *ret) MUST_USE;
/* From key [1], counter [>= 2] and an algorithm: Philox, or "automatic", which is Philox too. Errors: INVALID_ARGUMENT. */
struct status *random_from_key(const struct tensor *key, const struct tensor *counter, const struct tensor *alg,
                               struct philox *ret) MUST_USE;
struct status *random_stateless_init(struct kernel_init *init);
kernel_fn random_stateless, random_stateless_v2, random_get_key_counter, random_get_alg;

/* ---- random_resource.c: a generator in a resource variable ---- */
/* Takes what `n` outputs may need from the generator of input 0. Errors: no such variable, or no generator in it. */
struct status *random_take(struct kernel_ctx *ctx, uint64_t n, struct philox *ret) MUST_USE;
kernel_fn random_resource_fill, random_skip, random_non_deterministic;

/* ---- random_discrete.c ---- */
kernel_fn random_shuffle, random_stateless_shuffle, random_multinomial, random_stateless_multinomial;

/* ---- random_gamma.c ---- */
kernel_fn random_gamma, random_stateless_gamma, random_poisson, random_stateless_poisson;

/* ---- random_binomial.c ---- */
kernel_fn random_stateless_binomial, random_resource_binomial;

/* ---- random_parameterized.c ---- */
kernel_fn random_parameterized;

/* ---- shared checks ---- */

/* The shape that an int32 or int64 vector says; sizes live in `dims`. Errors: INVALID_ARGUMENT. */
struct status *random_shape(const struct tensor *shape, int64_t dims[SHAPE_MAX_RANK], struct shape *ret) MUST_USE;
/* minval and maxval of a range: scalars; minval < maxval where any number is made. Errors: INVALID_ARGUMENT. */
struct status *random_range(const struct tensor *minval, const struct tensor *maxval, bool is_empty, struct random_fill *fill) MUST_USE;
char *random_shape_text(const struct tensor *t); /* for messages; the caller frees it */

#endif
