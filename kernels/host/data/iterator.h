/* Keeps iterators as resources: a dataset and a position in it, which steps, sessions and string
 * handles share.
 *
 *   IteratorV2 ─ MakeIterator(dataset) ─► state: the pipeline of iterators;
 *                                         another MakeIterator replaces it
 *   GetNext ─► request: a task that polls the state's pipeline; one runs at a time,
 *              the others wait in order without a thread
 *
 * A request keeps its state, so a request that is running ends with the dataset with which it
 * began. */
#ifndef MILLRACE_KERNELS_HOST_DATA_ITERATOR_H
#define MILLRACE_KERNELS_HOST_DATA_ITERATOR_H

#include "kernels/host/data/dataset.h"
#include "kernels/support/named_resource.h"

struct iterator_state;

struct iterator {
    struct object object;
    uint8_t *types; /* as its node declares them */
    struct shape *shapes;
    int n_components;
    pthread_mutex_t lock;
    struct iterator_state *state; /* guarded by lock; NULL until MakeIterator */
};
extern const struct object_type iterator_type;

/* Makes an iterator from the attrs output_types and output_shapes, with one reference. Errors:
 * INVALID_ARGUMENT. */
struct status *iterator_new(struct kernel_ctx *ctx, struct iterator **ret) MUST_USE;
/* Starts the iterator at the begin of the dataset. Errors: INVALID_ARGUMENT when the types or
 * shapes do not fit. */
struct status *iterator_make(struct kernel_ctx *ctx, struct iterator *iterator,
                             struct dataset *dataset) MUST_USE;
bool iterator_is_made(struct iterator *iterator);
void iterator_clear(struct iterator *iterator); /* drops the state */
/* Checks that types and shapes are those of the iterator. Errors: INVALID_ARGUMENT with
 * TensorFlow's words. */
struct status *iterator_check(const struct iterator *iterator, const uint8_t *types,
                              const struct shape *shapes, int n) MUST_USE;

enum kernel_result iterator_get_next(struct kernel_ctx *ctx, struct iterator *iterator,
                                     bool as_optional);
/* Runs a pipeline of its own over a whole dataset: calls `poll` until the result is not
 * DATA_PENDING, then `fini`. The poll sets ctx's outputs and returns DATA_ELEMENT on success. */
struct pipeline_run {
    /* DATA_ELEMENT: the kernel is done */
    enum data_poll (*poll)(struct pipeline_run *run, struct data_task *task);
    void (*fini)(struct pipeline_run *run); /* frees the struct */
    struct kernel_ctx *ctx;
    struct dataset_env *env;
};
enum kernel_result pipeline_start(struct kernel_ctx *ctx, struct pipeline_run *run_take);

#endif
