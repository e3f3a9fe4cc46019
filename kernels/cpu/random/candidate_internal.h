/* What the files of the candidate samplers share. */
#ifndef MILLRACE_KERNELS_CPU_RANDOM_CANDIDATE_INTERNAL_H
#define MILLRACE_KERNELS_CPU_RANDOM_CANDIDATE_INTERNAL_H

#include <pthread.h>

#include "kernels/support/philox_words.h"
#include "kernels/cpu/random/random_internal.h"

struct candidate_node;

/* A law that classes are drawn by. Called with what the law needs locked (lock, unlock). */
struct candidate_law {
    /* reads its own attrs */
    struct status *(*init)(struct candidate_node *node, const struct kernel_init *init);
    /* NULL: nothing to free */
    void (*fini)(struct candidate_node *node);
    /* What init left for an I/O thread; asked for while is_ready is unset. NULL: nothing. */
    struct status *(*load)(struct candidate_node *node);
    /* NULL: all classes, in order */
    int64_t (*draw)(const struct candidate_node *node, struct philox_words *words);
    float (*probability)(const struct candidate_node *node, int64_t value);
    /* after a batch; NULL: it never changes */
    void (*learn)(struct candidate_node *node, const int64_t *values, int64_t n);
    /* How many classes can come at all; NULL: the range. */
    int64_t (*n_drawable)(const struct candidate_node *node);
};

/* The state of a node in its session. */
struct candidate_node {
    struct random_state random; /* first: random_state_reserve finds it there */
    const struct candidate_law *law;
    int64_t num_true, num_sampled, range;
    bool is_unique;
    double log_range;      /* log-uniform */
    void *weights;         /* the law's own */
    pthread_mutex_t lock;  /* guards weights of a law that learns or loads */
    _Atomic bool is_ready; /* there is nothing to load (any more) */
};

extern const struct candidate_law candidate_learned, candidate_fixed; /* candidate_weights.c */

#endif
