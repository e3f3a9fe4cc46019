/* Collects elements for iterators and stacks them (kernels/host/data/dataset_buffer.h). */
#include "kernels/host/data/dataset_buffer.h"

#include <stdlib.h>

enum { FIRST_CAPACITY = 16 };

struct tensor *element_buffer_reserve(struct element_buffer *buffer) {
    /* elements that were taken have left room at the front */
    if (buffer->first > 0 && buffer->first + buffer->n == buffer->capacity) {
        memmove(buffer->tensors, element_at(buffer, 0),
                (size_t)(buffer->n * buffer->n_components) * sizeof(struct tensor));
        memset(buffer->tensors + buffer->n * buffer->n_components, 0,
               (size_t)(buffer->first * buffer->n_components) * sizeof(struct tensor));
        buffer->first = 0;
    }
    if (buffer->n == buffer->capacity || !buffer->tensors) {
        int64_t capacity = MAX(2 * buffer->capacity, FIRST_CAPACITY), n_tensors, size;
        if (mul_overflows_i64(capacity, buffer->n_components, &n_tensors) ||
            mul_overflows_i64(n_tensors + 1, sizeof(struct tensor), &size))
            return NULL;
        struct tensor *tensors = aligned_alloc(_Alignof(struct tensor), (size_t)size);
        if (!tensors)
            return NULL;
        memset(tensors, 0, (size_t)size);
        if (buffer->n > 0)
            memcpy(tensors, buffer->tensors,
                   (size_t)(buffer->n * buffer->n_components) * sizeof(struct tensor));
        free(buffer->tensors);
        buffer->tensors = tensors;
        buffer->capacity = capacity;
    }
    return element_at(buffer, buffer->n);
}

void element_buffer_drop(struct element_buffer *buffer, int64_t n) {
    element_clear(element_at(buffer, 0), (int)(n * buffer->n_components));
    buffer->first += n;
    buffer->n -= n;
    if (buffer->n == 0)
        buffer->first = 0;
}

void element_buffer_clear(struct element_buffer *buffer) {
    for (int64_t i = 0; i < buffer->n; i++)
        element_clear(element_at(buffer, i), buffer->n_components);
    buffer->first = buffer->n = 0;
}

void element_buffer_fini(struct element_buffer *buffer) {
    element_buffer_clear(buffer);
    free(buffer->tensors);
    buffer->tensors = NULL;
}

enum data_poll element_buffer_fill(struct element_buffer *buffer, int64_t target,
                                   struct dataset_iter *input, struct data_task *task) {
    while (buffer->n < target) {
        struct tensor *room = element_buffer_reserve(buffer);
        if (!room)
            return data_task_fail(
                task, status_exhausted("Out of memory for %lld elements", (long long)buffer->n));
        enum data_poll result = dataset_iter_next(input, task, room);
        if (result != DATA_ELEMENT)
            return result;
        buffer->n++;
    }
    return DATA_ELEMENT;
}

struct status *element_buffer_stack(const struct element_buffer *buffer, int i,
                                    struct allocator *allocator, struct tensor *ret) {
    const struct tensor *first = &element_at(buffer, 0)[i];
    enum dtype dtype = (enum dtype)first->dtype;
    int64_t dims[SHAPE_MAX_RANK + 1] = {buffer->n};
    if (first->rank >= SHAPE_MAX_RANK)
        return status_invalid("Cannot batch tensors of rank %d", first->rank);
    for (int64_t e = 1; e < buffer->n; e++) {
        const struct tensor *t = &element_at(buffer, e)[i];
        if (!shape_equal(tensor_shape(first), tensor_shape(t)))
            return status_invalid("Cannot batch tensors with different shapes in component %d. "
                                  "First element had shape %s and element %lld "
                                  "had shape %s.",
                                  i, TENSOR_SHAPE_TEXT(first), (long long)e, TENSOR_SHAPE_TEXT(t));
    }
    memcpy(dims + 1, tensor_dims(first), first->rank * sizeof(*dims));
    TRY(tensor_new(allocator, dtype, (struct shape){first->rank + 1, dims}, ret));
    size_t size = tensor_size_bytes(first);
    char *to = tensor_data(ret);
    for (int64_t e = 0; e < buffer->n; e++)
        elements_copy(dtype, to + (size_t)e * size, tensor_cdata(&element_at(buffer, e)[i]),
                      first->n_elements);
    return NULL;
}
