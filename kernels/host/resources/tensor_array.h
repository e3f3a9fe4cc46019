/* A TensorArray: numbered elements, each written once and read (often just once), in the step's own container.
 *
 * The array of gradients of another one is a TensorArray too, "NAME@source"; writes to the same element of it are summed, and an
 * element that the other one had but nobody wrote to reads as zeros. Any thread; every function takes the lock itself. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_TENSOR_ARRAY_H
#define MILLRACE_KERNELS_HOST_RESOURCES_TENSOR_ARRAY_H

#include <pthread.h>

#include "kernels/kernel.h"

struct tensor_array_element {
    struct tensor value; /* TENSOR_NONE: never written, read and let go, or zeros of `shape` */
    int64_t dims[TENSOR_INLINE_RANK];
    int64_t *long_dims; /* rank > 4: owned */
    int16_t rank;       /* -1: the shape is not known */
    bool is_written, is_read, is_cleared;
};

struct tensor_array {
    struct object object;
    pthread_mutex_t lock;
    char *name;
    enum dtype dtype;
    bool has_identical_shapes, clears_after_read, is_grad;
    /* guarded by lock */
    bool is_dynamic, is_closed;
    struct shape element_shape; /* owns its sizes; may be partial */
    struct tensor_array_element *elements;
    void *memory; /* what elements lies in */
    int64_t n, capacity;
    int64_t n_split; /* into how many elements a value was split last, -1: never; of gradients: what it was when they were made */
};
extern const struct object_type tensor_array_type;

struct tensor_array_options {
    const char *name;
    enum dtype dtype;
    struct shape element_shape; /* copied */
    bool has_identical_shapes, is_dynamic, clears_after_read;
};
/* Errors: RESOURCE_EXHAUSTED. */
struct status *tensor_array_new(const struct tensor_array_options *options, int64_t n, struct tensor_array **ret) MUST_USE;
/* The array of gradients of `of`, as large as that is now; `of` no longer grows. `prepend` goes before every shape.
 * Errors: INVALID_ARGUMENT when `of` is closed or holds gradients itself. */
struct status *tensor_array_new_grad(struct tensor_array *of, const char *name, struct shape prepend, struct tensor_array **ret) MUST_USE;

/* Writes (or sums) element `index`; takes *value on success. Errors: INVALID_ARGUMENT with TensorFlow's words. */
struct status *tensor_array_write(struct tensor_array *array, struct kernel_ctx *ctx, int64_t index, struct tensor *value) MUST_USE;
/* Many at once: element indices[i] (i itself without indices) gets values[i]. */
struct status *tensor_array_write_many(struct tensor_array *array, struct kernel_ctx *ctx, const int32_t *indices, int64_t n,
                                       struct tensor *values) MUST_USE;
/* *ret must hold nothing. */
struct status *tensor_array_read(struct tensor_array *array, struct kernel_ctx *ctx, int64_t index, struct tensor *ret) MUST_USE;
/* ret[i] is element indices[i] (i itself without indices). After an error ret holds what was read before it. */
struct status *tensor_array_read_many(struct tensor_array *array, struct kernel_ctx *ctx, const int32_t *indices, int64_t n,
                                      struct tensor *ret) MUST_USE;

/* ret_is_dynamic may be NULL. Errors: INVALID_ARGUMENT when the array is closed. */
struct status *tensor_array_size(struct tensor_array *array, int64_t *ret_n, bool *ret_is_dynamic) MUST_USE;
/* How many elements a concat joins: all; of gradients of an array that a value was split into, as many as came of that value, because the
 * elements written after it are not part of its gradient. Errors: INVALID_ARGUMENT when the array is closed. */
struct status *tensor_array_n_joined(struct tensor_array *array, int64_t *ret_n) MUST_USE;
void tensor_array_set_split(struct tensor_array *array, int64_t n); /* a value was split into n elements */
void tensor_array_close(struct tensor_array *array);                /* drops all elements */

/* Arrays of tensors for the many-forms: zeroed, so TENSOR_NONE. NULL when memory is out. */
struct tensor *tensors_new(int64_t n);
void tensors_free(struct tensor *tensors, int64_t n);

#endif
