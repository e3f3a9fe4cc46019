/* Declares what the kernels of TensorLists share: shapes as arguments, lists as inputs and outputs,
 * rows as elements. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_LIST_INTERNAL_H
#define MILLRACE_KERNELS_HOST_RESOURCES_LIST_INTERNAL_H

#include "kernels/host/resources/tensor_list.h"
#include "kernels/kernel.h"

/* The types for which TensorFlow registers the ops that read elements. */
#define TYPES_LIST                                                                  \
    (DTYPES_NUMBER | DTYPES_QUANTIZED | DTYPE_BIT(DT_BOOL) | DTYPE_BIT(DT_STRING) | \
     DTYPE_BIT(DT_VARIANT))

/* A shape that holds its sizes itself. */
struct list_shape {
    int64_t dims[SHAPE_MAX_RANK];
    int rank;
};
static inline struct shape shape_of_list_shape(const struct list_shape *shape) {
    return (struct shape){shape->rank, shape->dims};
}

/* Reads a shape argument: a vector of sizes, each -1 or more, or the scalar -1 for an unknown rank.
 * Errors: INVALID_ARGUMENT. */
struct status *list_shape_read(const struct tensor *t, struct list_shape *ret) MUST_USE;
/* Adds to *shape the sizes that only `with` knows. Errors: INVALID_ARGUMENT when the two
 * contradict each other. */
struct status *list_shape_merge(struct list_shape *shape, struct shape with) MUST_USE;
/* Reads the shape argument in an input and merges it with the list's element_shape. */
struct status *list_shape_of_input(const struct kernel_ctx *ctx, int input,
                                   const struct tensor_list *list, struct list_shape *ret) MUST_USE;

/* Takes the list out of a scalar input: the input's reference becomes the caller's. Errors:
 * INVALID_ARGUMENT when the input holds no list. */
struct status *list_take(struct kernel_ctx *ctx, int input, struct tensor_list **ret) MUST_USE;
/* Finds the list that is element i of a variant tensor, and adds a reference for the caller. *ret
 * is NULL when the element is no list. Errors: those of decoding a list that was sent. */
struct status *list_at(const struct tensor *t, int64_t i, struct allocator *allocator,
                       struct tensor_list **ret) MUST_USE;
static inline void list_output(struct kernel_ctx *ctx, int output, struct tensor_list *list_take_) {
    tensor_init_scalar_object(&ctx->outputs[output], DT_VARIANT, &list_take_->object);
}

static inline struct status *list_check_dtype(const struct tensor_list *list, enum dtype dtype) {
    if (likely(list->dtype == dtype))
        return NULL;
    return status_invalid("Invalid data types; op elements %s but list elements %s",
                          dtype_name(dtype), dtype_name(list->dtype));
}
/* Reads an int32 scalar. The error message begins with `what`. */
struct status *list_scalar(const struct tensor *t, const char *what, int64_t *ret) MUST_USE;

/* On a device, brings back the elements that were moved to the host's memory (kernels/support/
 * swap.h), for a kernel that reads them all. Replaces *list if others hold it, too. */
struct status *list_bring_back(struct kernel_ctx *ctx, struct tensor_list **list) MUST_USE;

/* Sets element `to` of a list that only the caller holds to row i of `t`, as a view that shares
 * the elements of `t`, whose rank is 1 or more. */
struct status *list_set_row(struct tensor_list *list, int64_t to, const struct tensor *t,
                            int64_t i) MUST_USE;

#endif
