/* A TensorArray: numbered elements, each written once and read (often just once), in the step's
 * own container.
 *
 * The array of gradients of another one is a TensorArray too, "NAME@source"; writes to the same
 * element of it are summed, and an element that the other one had but nobody wrote to reads as
 * zeros. Any thread; every function takes the lock itself. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_TENSOR_ARRAY_H
#define MILLRACE_KERNELS_HOST_RESOURCES_TENSOR_ARRAY_H

#include <pthread.h>

#include "kernels/host.h"
#include "kernels/kernel.h"
#include "kernels/support/variable_input.h"

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
    /* into how many elements a value was split last, -1: never; of gradients: what it was when
     * they were made */
    int64_t n_split;
};
extern const struct object_type tensor_array_type;

struct tensor_array_options {
    const char *name;
    enum dtype dtype;
    struct shape element_shape; /* copied */
    bool has_identical_shapes, is_dynamic, clears_after_read;
};
/* Errors: RESOURCE_EXHAUSTED. */
struct status *tensor_array_new(const struct tensor_array_options *options, int64_t n,
                                struct tensor_array **ret) MUST_USE;
/* The array of gradients of `of`, as large as that is now; `of` no longer grows. `prepend` goes
 * before every shape. Errors: INVALID_ARGUMENT when `of` is closed or holds gradients itself. */
struct status *tensor_array_new_grad(struct tensor_array *of, const char *name,
                                     struct shape prepend, struct tensor_array **ret) MUST_USE;

/* Writes (or sums) element `index`; takes *value on success. Errors: INVALID_ARGUMENT with
 * TensorFlow's words. */
struct status *tensor_array_write(struct tensor_array *array, struct kernel_ctx *ctx, int64_t index,
                                  struct tensor *value) MUST_USE;
/* Many at once: element indices[i] (i itself without indices) gets values[i]. */
struct status *tensor_array_write_many(struct tensor_array *array, struct kernel_ctx *ctx,
                                       const int32_t *indices, int64_t n,
                                       struct tensor *values) MUST_USE;
/* *ret must hold nothing. */
struct status *tensor_array_read(struct tensor_array *array, struct kernel_ctx *ctx, int64_t index,
                                 struct tensor *ret) MUST_USE;
/* ret[i] is element indices[i] (i itself without indices). After an error ret holds what was
 * read before it. */
struct status *tensor_array_read_many(struct tensor_array *array, struct kernel_ctx *ctx,
                                      const int32_t *indices, int64_t n,
                                      struct tensor *ret) MUST_USE;

/* ret_is_dynamic may be NULL. Errors: INVALID_ARGUMENT when the array is closed. */
struct status *tensor_array_size(struct tensor_array *array, int64_t *ret_n,
                                 bool *ret_is_dynamic) MUST_USE;
/* How many elements a concat joins: all; of gradients of an array that a value was split into,
 * as many as came of that value, because the elements written after it are not part of its
 * gradient. Errors: INVALID_ARGUMENT when the array is closed. */
struct status *tensor_array_n_joined(struct tensor_array *array, int64_t *ret_n) MUST_USE;
/* a value was split into n elements */
void tensor_array_set_split(struct tensor_array *array, int64_t n);
void tensor_array_close(struct tensor_array *array); /* drops all elements */

/* Arrays of tensors for the many-forms: zeroed, so TENSOR_NONE. NULL when memory is out. */
struct tensor *tensors_new(int64_t n);
void tensors_free(struct tensor *tensors, int64_t n);

/* The array of the handle in input 0, with a reference of its own. */
static inline struct status *tensor_array_of_input(struct kernel_ctx *ctx,
                                                   struct tensor_array **ret) {
    const struct resource_handle *handle = NULL;
    struct object *found = NULL;
    TRY(handle_of_input(ctx, 0, &handle));
    TRY(ctx->host->handle_lookup(ctx, handle, &tensor_array_type, &found));
    *ret = (struct tensor_array *)found;
    return NULL;
}
static inline void tensor_array_unref(struct tensor_array *array) {
    if (array)
        object_unref(&array->object);
}
static inline struct status *tensor_array_check_write(const struct tensor_array *array,
                                                      const struct tensor *value) {
    if (likely(value->dtype == array->dtype))
        return NULL;
    return status_invalid("TensorArray dtype is %s but Op is trying to write dtype %s.",
                          dtype_name(array->dtype), dtype_name((enum dtype)value->dtype));
}
static inline struct status *tensor_array_check_read(const struct tensor_array *array,
                                                     enum dtype dtype) {
    if (likely(dtype == array->dtype))
        return NULL;
    return status_invalid("TensorArray dtype is %s but Op requested dtype %s.",
                          dtype_name(array->dtype), dtype_name(dtype));
}

/* What TensorFlow registers for ops that put in, and for those that take out many. */
#define TYPES_ARRAY_WRITE (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPES_OBJECT)
#define TYPES_ARRAY_CONCAT                                                             \
    (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPE_BIT(DT_STRING) | DTYPE_BIT(DT_QINT8) | \
     DTYPE_BIT(DT_QUINT8) | DTYPE_BIT(DT_QINT32))
#define TYPES_ARRAY_GATHER (TYPES_ARRAY_CONCAT | DTYPE_BIT(DT_VARIANT))

#endif
