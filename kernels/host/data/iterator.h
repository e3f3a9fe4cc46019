/* Iterators as resources: a dataset on its way, which steps, sessions and string handles share.
 *
 *   IteratorV2 ─ MakeIterator(dataset) ─► state: the pipeline of iterators; another MakeIterator puts a new one in its place
 *   GetNext ─► request: a task that polls the state's pipeline; one at a time, the others wait in order, without a thread
 *
 * A request keeps its state, so that one which is under way ends with the dataset it began with. */
#ifndef MILLRACE_KERNELS_HOST_DATA_ITERATOR_H
#define MILLRACE_KERNELS_HOST_DATA_ITERATOR_H

#include "kernels/host/data/dataset.h"
#include "kernels/support/named_resource.h"

struct iterator_state;

struct iterator {
    struct object object;
    uint8_t *types; /* what its node declares */
    struct shape *shapes;
    int n_components;
    pthread_mutex_t lock;
    struct iterator_state *state; /* guarded by lock; NULL until it is made */
};
extern const struct object_type iterator_type;

/* From the attrs output_types and output_shapes. Errors: INVALID_ARGUMENT. */
struct status *iterator_new(struct kernel_ctx *ctx, struct iterator **ret) MUST_USE;
/* The iterator begins anew with the dataset. Errors: INVALID_ARGUMENT when it does not fit. */
struct status *iterator_make(struct kernel_ctx *ctx, struct iterator *iterator,
                             struct dataset *dataset) MUST_USE;
bool iterator_is_made(struct iterator *iterator);
void iterator_clear(struct iterator *iterator); /* as if it had never been made */
/* Errors: INVALID_ARGUMENT when types or shapes are not those of the iterator, with TensorFlow's
 * words. */
struct status *iterator_check(const struct iterator *iterator, const uint8_t *types,
                              const struct shape *shapes, int n) MUST_USE;

enum kernel_result iterator_get_next(struct kernel_ctx *ctx, struct iterator *iterator,
                                     bool as_optional);
/* The whole of a dataset by a pipeline of its own: `poll` is called until it does not answer
 * PENDING, with `arg`, which ends with `fini`.
 */
struct pipeline_run {
    /* DATA_ELEMENT: done */
    enum data_poll (*poll)(struct pipeline_run *run, struct data_task *task);
    void (*fini)(struct pipeline_run *run); /* frees the struct */
    struct kernel_ctx *ctx;
    struct dataset_env *env;
};
enum kernel_result pipeline_start(struct kernel_ctx *ctx, struct pipeline_run *run_take);

#endif
