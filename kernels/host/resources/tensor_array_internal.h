/* What the kernels of TensorArrays share. For the tensor_array_*.c files only. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_TENSOR_ARRAY_INTERNAL_H
#define MILLRACE_KERNELS_HOST_RESOURCES_TENSOR_ARRAY_INTERNAL_H

#include "kernels/support/state_internal.h"
#include "kernels/host/resources/tensor_array.h"

/* The array of the handle in input 0, with a reference of its own. */
static inline struct status *tensor_array_of_input(struct kernel_ctx *ctx, struct tensor_array **ret) {
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
static inline struct status *tensor_array_check_write(const struct tensor_array *array, const struct tensor *value) {
    if (likely(value->dtype == array->dtype))
        return NULL;
    return status_invalid("TensorArray dtype is %s but Op is trying to write dtype %s.", dtype_name(array->dtype),
                          dtype_name((enum dtype)value->dtype));
}
static inline struct status *tensor_array_check_read(const struct tensor_array *array, enum dtype dtype) {
    if (likely(dtype == array->dtype))
        return NULL;
    return status_invalid("TensorArray dtype is %s but Op requested dtype %s.", dtype_name(array->dtype), dtype_name(dtype));
}

/* What TensorFlow registers for ops that put in, and for those that take out many. */
#define TYPES_ARRAY_WRITE (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPES_OBJECT)
#define TYPES_ARRAY_CONCAT \
    (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPE_BIT(DT_STRING) | DTYPE_BIT(DT_QINT8) | DTYPE_BIT(DT_QUINT8) | DTYPE_BIT(DT_QINT32))
#define TYPES_ARRAY_GATHER (TYPES_ARRAY_CONCAT | DTYPE_BIT(DT_VARIANT))

#endif
