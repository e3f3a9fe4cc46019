/* Declares the state of an iterator: a pipeline, its position and the requests that wait for it. */
#ifndef MILLRACE_KERNELS_HOST_DATA_ITERATOR_INTERNAL_H
#define MILLRACE_KERNELS_HOST_DATA_ITERATOR_INTERNAL_H

#include "kernels/host/data/dataset_random.h"
#include "kernels/host/data/iterator.h"

struct iterator_state {
    _Atomic uint32_t n_refs;
    struct dataset_iter *iter; /* used by the request that is_busy stands for */
    struct dataset_env *env;
    pthread_mutex_t lock;
    bool is_busy;        /* guarded by lock */
    int64_t n_done;      /* requests that got an element, a failure or the end; guarded by lock */
    struct list waiting; /* struct request.link; guarded by lock */
};

/* A state at the begin of the dataset, with one reference. Takes the log of seeds, on failure too;
 * what it holds is drawn first. */
struct status *iterator_state_new(struct kernel_ctx *ctx, struct dataset *dataset,
                                  struct seed_log *seeds_take,
                                  struct iterator_state **ret) MUST_USE;
struct iterator_state *iterator_state_ref(struct iterator_state *state);
void iterator_state_unref(struct iterator_state *state); /* accepts NULL */

/* The iterator's state with a reference for the caller; NULL before MakeIterator. */
struct iterator_state *iterator_get_state(struct iterator *iterator);
/* Replaces the iterator's state; NULL: as before MakeIterator. */
void iterator_set_state(struct iterator *iterator, struct iterator_state *state_take);

#endif
