/* The arguments of the kernels in random.cu. Plain C, read by both sides. */
#ifndef MILLRACE_KERNELS_CUDA_OPS_RANDOM_ARGS_H
#define MILLRACE_KERNELS_CUDA_OPS_RANDOM_ARGS_H

#include <stdint.h>

struct random_args {
    char *out;
    int64_t n;
    uint64_t key, lo, hi;                /* the generator */
    const uint64_t *key_at, *counter_at; /* where it is on the device; NULL: above */
    uint64_t low, range;                 /* of integers; range 0: all values */
};

/* sums [n_rows, n_classes]: e^(logit - max), summed up to each class. */
struct multinomial_sums_args {
    const char *logits;
    double *sums;
    int64_t n_rows, n_classes;
};

struct multinomial_draw_args {
    const double *sums;
    char *out;
    int64_t n_rows, n_classes, n_samples;
    uint64_t key, lo, hi;
};

/* out [samples, n_parameters], by alpha [n_parameters] */
struct gamma_args {
    struct random_args random; /* out, the generator and n, which counts all outputs */
    const void *alpha;
    int64_t n_parameters, samples;
};

/* out[i], by the parameters of batch i / samples: mean, deviation, lower and upper bound */
struct parameterized_args {
    struct random_args random; /* out, the generator and n */
    const void *parameters[4];
    int64_t is_shared[4]; /* one parameter for all batches */
    int64_t samples, blocks_per_output;
};

struct random_advance_args {
    uint64_t *words, *before; /* counter low, counter high, key; before may be NULL */
    uint64_t n_blocks;
};

#endif
