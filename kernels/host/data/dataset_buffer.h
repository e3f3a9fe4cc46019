/* Keeps the elements that an iterator has collected, as a queue in one block of memory. */
#ifndef MILLRACE_KERNELS_HOST_DATA_DATASET_BUFFER_H
#define MILLRACE_KERNELS_HOST_DATA_DATASET_BUFFER_H

#include "kernels/host/data/dataset.h"

struct element_buffer {
    struct tensor *tensors; /* n_components for each element */
    int n_components;
    int64_t first, n, capacity; /* counted in elements */
};

static inline struct tensor *element_at(const struct element_buffer *buffer, int64_t i) {
    return buffer->tensors + (buffer->first + i) * buffer->n_components;
}
/* Reserves room for one more element at the end and returns its tensors, which hold nothing. The
 * caller fills them and increments `n`. NULL: no memory. */
struct tensor *element_buffer_reserve(struct element_buffer *buffer) MUST_USE;
void element_buffer_clear(struct element_buffer *buffer);
void element_buffer_fini(struct element_buffer *buffer); /* accepts a zeroed one */
/* Drops the first n elements. */
void element_buffer_drop(struct element_buffer *buffer, int64_t n);

/* Adds elements of `input` until there are `target`. DATA_ELEMENT: there are. DATA_END: the input
 * ended before. */
enum data_poll element_buffer_fill(struct element_buffer *buffer, int64_t target,
                                   struct dataset_iter *input, struct data_task *task);

/* Stacks component i of the elements, one row for each. Errors: INVALID_ARGUMENT when shapes
 * differ; RESOURCE_EXHAUSTED. */
struct status *element_buffer_stack(const struct element_buffer *buffer, int i,
                                    struct allocator *allocator, struct tensor *ret) MUST_USE;

#endif
