/* What the files of the random kernels share. */
#ifndef MILLRACE_KERNELS_CPU_RANDOM_RANDOM_INTERNAL_H
#define MILLRACE_KERNELS_CPU_RANDOM_RANDOM_INTERNAL_H

#include "kernels/cpu/random/random_fill.h"
#include "kernels/cpu/random/random_state.h"
#include "kernels/kernel.h"
#include "kernels/support/device_engine.h"

kernel_fn random_uniform, random_normal, random_truncated_normal, random_uniform_int;

/* ---- random_stateless.c ---- */

/* Makes a generator from key [1], counter [>= 2] and an algorithm: Philox, or "automatic", which is
 * Philox. Errors: INVALID_ARGUMENT. */
struct status *random_from_key(const struct tensor *key, const struct tensor *counter,
                               const struct tensor *alg, struct philox *ret) MUST_USE;
/* Finds key (input 1) and counter (input 2) where they are, after random_from_key: on a device, or,
 * what is in host memory, in *generator. */
void random_generator_at(const struct kernel_ctx *ctx, struct philox *generator,
                         struct device_generator *ret);
struct status *random_stateless_init(struct kernel_init *init);
kernel_fn random_stateless, random_stateless_v2, random_get_key_counter, random_get_alg;

/* ---- random_resource.c: a generator in a resource variable ---- */
/* Takes as many words as `n` outputs may need from the generator in input 0's variable. Errors:
 * those of the lookup, and INVALID_ARGUMENT when the variable holds no generator. */
struct status *random_take(struct kernel_ctx *ctx, uint64_t n, struct philox *ret) MUST_USE;
kernel_fn random_resource_fill, random_skip, random_non_deterministic;

/* ---- random_discrete.c ---- */
kernel_fn random_shuffle, random_stateless_shuffle, random_multinomial,
    random_stateless_multinomial;

/* ---- random_gamma.c ---- */
kernel_fn random_gamma, random_stateless_gamma, random_poisson, random_stateless_poisson;
/* Stores v as element i of `data`, of a dtype of real numbers or of int32 or int64. An integer that
 * v does not fit gets its least value, as x86 converts. */
void random_put(enum dtype dtype, void *data, int64_t i, double v);

/* ---- random_binomial.c ---- */
kernel_fn random_stateless_binomial, random_resource_binomial;

/* ---- random_parameterized.c ---- */
kernel_fn random_parameterized;

/* Fills output 0, which has elements. `generator`: where a device finds the generator; NULL: it is
 * in *fill. Only a device can fail. */
struct status *random_fill_output(struct kernel_ctx *ctx, const struct random_fill *fill,
                                  const struct device_generator *generator) MUST_USE;

/* ---- shared checks ---- */

/* Reads a shape from a vector of int32 or int64; the sizes are stored in `dims`. Errors:
 * INVALID_ARGUMENT for another rank or dtype, a negative size, or too many sizes. */
struct status *random_shape(const struct tensor *shape, int64_t dims[SHAPE_MAX_RANK],
                            struct shape *ret) MUST_USE;
/* Reads minval and maxval, which are scalars. Unless the output is empty, minval must be below
 * maxval. Errors: INVALID_ARGUMENT. */
struct status *random_range(const struct tensor *minval, const struct tensor *maxval, bool is_empty,
                            struct random_fill *fill) MUST_USE;

#endif
