/* Keeps a TensorArray: numbered elements, each written once and read, often just once. The array is
 * a resource of the step.
 *
 * The gradients of an array are another TensorArray, "NAME@source". Writes to the same element of
 * it are summed. An element that the forward array had and nobody wrote reads as zeros. Any thread:
 * every function takes the lock itself. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_TENSOR_ARRAY_H
#define MILLRACE_KERNELS_HOST_RESOURCES_TENSOR_ARRAY_H

#include <pthread.h>

#include "kernels/host.h"
#include "kernels/kernel.h"
#include "kernels/support/variable_input.h"

struct tensor_array_element {
    struct tensor value; /* TENSOR_NONE: never written, cleared after a read, or zeros of `shape` */
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
    void *memory; /* the allocation that holds `elements` */
    int64_t n, capacity;
    /* the number of elements that the last split wrote, -1: there was none; for gradients, the
     * forward array's number when they were made */
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
/* Makes the array of gradients of `of`, with its present size; `of` can no longer grow. `prepend`
 * is put before every shape. Errors: INVALID_ARGUMENT when `of` is closed or holds gradients
 * itself. */
struct status *tensor_array_new_grad(struct tensor_array *of, const char *name,
                                     struct shape prepend, struct tensor_array **ret) MUST_USE;

/* Writes element `index`, or adds to it in an array of gradients. Takes *value on success. Errors:
 * INVALID_ARGUMENT with TensorFlow's words. */
struct status *tensor_array_write(struct tensor_array *array, struct kernel_ctx *ctx, int64_t index,
                                  struct tensor *value) MUST_USE;
/* Sets *ret, which holds nothing, to the value of element `index`; leaves it alone if there is
 * none. */
void tensor_array_look(struct tensor_array *array, int64_t index, struct tensor *ret);
/* Takes *by, the same value in other memory, unless the value of element `index` is no longer
 * `from`, to which the caller has a reference. */
void tensor_array_replace(struct tensor_array *array, int64_t index, const struct tensor *from,
                          struct tensor *by);
/* Writes n elements: values[i] into element indices[i], or into element i without indices. */
struct status *tensor_array_write_many(struct tensor_array *array, struct kernel_ctx *ctx,
                                       const int32_t *indices, int64_t n,
                                       struct tensor *values) MUST_USE;
/* *ret must hold nothing. It may get a value that was moved to the host's memory
 * (kernels/support/swap.h). */
struct status *tensor_array_read(struct tensor_array *array, struct kernel_ctx *ctx, int64_t index,
                                 struct tensor *ret) MUST_USE;
/* Reads n elements: ret[i] is element indices[i], or element i without indices. After an error ret
 * holds the elements read so far. On a device, values that were moved to the host's memory are
 * brought back. */
struct status *tensor_array_read_many(struct tensor_array *array, struct kernel_ctx *ctx,
                                      const int32_t *indices, int64_t n,
                                      struct tensor *ret) MUST_USE;

/* ret_is_dynamic may be NULL. Errors: INVALID_ARGUMENT when the array is closed. */
struct status *tensor_array_size(struct tensor_array *array, int64_t *ret_n,
                                 bool *ret_is_dynamic) MUST_USE;
/* The number of elements that a concat joins. That is all of them, but for the gradients of an
 * array into which a value was split: there it is the number that the split wrote, because elements
 * written later are not part of the value's gradient. Errors: INVALID_ARGUMENT when the array is
 * closed. */
struct status *tensor_array_n_joined(struct tensor_array *array, int64_t *ret_n) MUST_USE;
/* Notes that a value was split into n elements. */
void tensor_array_set_split(struct tensor_array *array, int64_t n);
void tensor_array_close(struct tensor_array *array); /* drops all elements */

/* Arrays of tensors for read_many and write_many: zeroed, so that each is TENSOR_NONE. NULL when
 * there is no memory. */
struct tensor *tensors_new(int64_t n);
void tensors_free(struct tensor *tensors, int64_t n);

/* Finds the array that a handle of an op's first two versions names: two strings, of which the
 * second is the array's name, in a reference or a value. Adds a reference for the caller. */
struct status *tensor_array_of_strings(struct kernel_ctx *ctx, struct tensor_array **ret) MUST_USE;
/* Finds the array that the handle in input 0 names, and adds a reference for the caller. */
static inline struct status *tensor_array_of_input(struct kernel_ctx *ctx,
                                                   struct tensor_array **ret) {
    const struct resource_handle *handle = NULL;
    struct object *found = NULL;
    if (ctx->instance->in_types[0] != DT_RESOURCE)
        return tensor_array_of_strings(ctx, ret);
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

/* The types for which TensorFlow registers the ops that write, and those that read many
 * elements. */
#define TYPES_ARRAY_WRITE (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPES_OBJECT)
#define TYPES_ARRAY_CONCAT                                                             \
    (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPE_BIT(DT_STRING) | DTYPE_BIT(DT_QINT8) | \
     DTYPE_BIT(DT_QUINT8) | DTYPE_BIT(DT_QINT32))
#define TYPES_ARRAY_GATHER (TYPES_ARRAY_CONCAT | DTYPE_BIT(DT_VARIANT))

/* The rows of an op's three versions, which one kernel serves. */
// clang-format off
#define TENSOR_ARRAY_VERSIONS(name, ...) \
    {.op = name, __VA_ARGS__}, {.op = name "V2", __VA_ARGS__}, {.op = name "V3", __VA_ARGS__}
// clang-format on

#endif
