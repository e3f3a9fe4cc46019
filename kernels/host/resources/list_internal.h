/* What the kernels of TensorLists share. For the list_*.c files only. */
#ifndef MILLRACE_KERNELS_HOST_RESOURCES_LIST_INTERNAL_H
#define MILLRACE_KERNELS_HOST_RESOURCES_LIST_INTERNAL_H

#include "kernels/host/resources/tensor_list.h"
#include "kernels/kernel.h"

/* What TensorFlow registers for ops that look at elements. */
#define TYPES_LIST                                                                  \
    (DTYPES_NUMBER | DTYPES_QUANTIZED | DTYPE_BIT(DT_BOOL) | DTYPE_BIT(DT_STRING) | \
     DTYPE_BIT(DT_VARIANT))

/* A shape with sizes of its own. */
struct list_shape {
    int64_t dims[SHAPE_MAX_RANK];
    int rank;
};
static inline struct shape shape_of_list_shape(const struct list_shape *shape) {
    return (struct shape){shape->rank, shape->dims};
}

/* From a shape argument: sizes from -1 on, or the scalar -1 for an unknown rank. Errors:
 * INVALID_ARGUMENT. */
struct status *list_shape_read(const struct tensor *t, struct list_shape *ret) MUST_USE;
/* *shape learns what `with` knows. Errors: INVALID_ARGUMENT. */
struct status *list_shape_merge(struct list_shape *shape, struct shape with) MUST_USE;
/* list_shape_read of an input, merged with the list's element_shape. */
struct status *list_shape_of_input(const struct kernel_ctx *ctx, int input,
                                   const struct tensor_list *list, struct list_shape *ret) MUST_USE;

/* The list of a scalar input, whose reference goes to *ret. Errors: INVALID_ARGUMENT when it is
 * none. */
struct status *list_take(struct kernel_ctx *ctx, int input, struct tensor_list **ret) MUST_USE;
/* The list that is element i of a variant tensor, with a reference of its own; NULL when that is
 * none. Errors: what decoding says. */
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
/* An int32 scalar. `what` begins the refusal. */
struct status *list_scalar(const struct tensor *t, const char *what, int64_t *ret) MUST_USE;

/* Row i of a tensor of rank >= 1: shares its elements. *ret must hold nothing. */
struct status *list_row(const struct tensor *t, int64_t i, struct tensor *ret) MUST_USE;
/* list_row into element `to` of one's own list. */
struct status *list_set_row(struct tensor_list *list, int64_t to, const struct tensor *t,
                            int64_t i) MUST_USE;

#endif
