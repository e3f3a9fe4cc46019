/* Builds the sizes of an output, and holds small accessors and init functions that several kernel
 * rooms share. */
#ifndef MILLRACE_KERNELS_SUPPORT_DIMS_H
#define MILLRACE_KERNELS_SUPPORT_DIMS_H

#include "kernels/kernel.h"

/* The sizes of an output while a kernel computes them. The rank goes up to SHAPE_MAX_RANK. */
struct dims {
    int rank;
    int64_t at[SHAPE_MAX_RANK + 2];
};

static inline void dims_set(struct dims *dims, struct shape shape) {
    dims->rank = shape.rank;
    for (int i = 0; i < shape.rank; i++)
        dims->at[i] = shape.dims[i];
}
static inline struct shape dims_shape(const struct dims *dims) {
    return (struct shape){dims->rank, dims->at};
}
/* Appends a size. Returns true when SHAPE_MAX_RANK sizes are there already; the caller then fails
 * with a message that names the rank. */
static inline bool dims_add(struct dims *dims, int64_t size) {
    if (dims->rank >= SHAPE_MAX_RANK)
        return false;
    dims->at[dims->rank++] = size;
    return true;
}

/* Returns the product of sizes [begin, end). The product of all sizes must fit an int64, as it does
 * for the sizes of an existing tensor. */
static inline int64_t dims_product(const int64_t *dims, int begin, int end) {
    int64_t n = 1;
    for (int i = begin; i < end; i++)
        n *= dims[i];
    return n;
}

/* Reads the sizes in a tensor of int32 or int64 in host memory; `what` is its name for messages.
 * Errors: INVALID_ARGUMENT for a rank above 1, too many sizes, or one below 0. */
struct status *dims_read(const struct tensor *t, const char *what, struct dims *ret) MUST_USE;
/* Fill's sizes. `value` may be in any memory. Errors: as dims_read; a value that is no scalar. */
struct status *dims_of_fill(const struct tensor *sizes, const struct tensor *value,
                            struct dims *ret) MUST_USE;

/* Returns the dtype of an output of the node. A reference type counts as its base type. */
static inline enum dtype kernel_out_dtype(const struct kernel_ctx *ctx, int output) {
    return dtype_base((enum dtype)ctx->instance->out_types[output]);
}

/* An init function's body for a kernel whose state is one int64 attr. */
static inline struct status *kernel_init_int_attr(struct kernel_init *init, const char *name) {
    int64_t value;
    TRY(node_get_i(init->node, name, &value));
    init->state = xmalloc(sizeof(value));
    *(int64_t *)init->state = value;
    return NULL;
}
/* An init function's body for a kernel whose state is one bool attr. */
static inline struct status *kernel_init_bool_attr(struct kernel_init *init, const char *name) {
    bool *value = init->state = xcalloc(1, sizeof(*value));
    return node_get_b(init->node, name, value);
}
/* An init function's body for a kernel whose state is one type attr. */
static inline struct status *kernel_init_type_attr(struct kernel_init *init, const char *name) {
    enum dtype *value = init->state = xcalloc(1, sizeof(*value));
    return node_get_type(init->node, name, value);
}

#endif
