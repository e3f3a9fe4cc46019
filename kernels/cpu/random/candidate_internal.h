/* What the files of the candidate samplers share. */
#ifndef MILLRACE_KERNELS_CPU_RANDOM_CANDIDATE_INTERNAL_H
#define MILLRACE_KERNELS_CPU_RANDOM_CANDIDATE_INTERNAL_H

#include <pthread.h>

#include "kernels/support/philox_words.h"
#include "kernels/cpu/random/random_internal.h"

struct candidate_node;

/* A law by which classes are drawn. Its functions are called with the node locked where the law
 * needs it (lock, unlock). */
struct candidate_law {
    /* Reads the law's own attrs. */
    struct status *(*init)(struct candidate_node *node, const struct kernel_init *init);
    /* NULL: nothing to free. */
    void (*fini)(struct candidate_node *node);
    /* Does the part of init that needs an I/O thread; called while is_ready is false. NULL:
     * nothing. */
    struct status *(*load)(struct candidate_node *node);
    /* Draws one class. NULL: the sample is all classes, in order. */
    int64_t (*draw)(const struct candidate_node *node, struct philox_words *words);
    float (*probability)(const struct candidate_node *node, int64_t value);
    /* Called after each batch with its classes. NULL: the law never changes. */
    void (*learn)(struct candidate_node *node, const int64_t *values, int64_t n);
    /* Returns how many different classes can be drawn. NULL: range_max. */
    int64_t (*n_drawable)(const struct candidate_node *node);
};

/* The state of a node in its session. */
struct candidate_node {
    struct random_state random; /* the first member, because random_state_reserve finds it there */
    const struct candidate_law *law;
    int64_t num_true, num_sampled, range;
    bool is_unique;
    double log_range;      /* log(range_max + 1), for the log-uniform law */
    void *weights;         /* belongs to the law */
    pthread_mutex_t lock;  /* guards `weights` for a law that learns or loads */
    _Atomic bool is_ready; /* set when nothing is left to load */
};

extern const struct candidate_law candidate_learned, candidate_fixed; /* candidate_weights.c */

#endif
