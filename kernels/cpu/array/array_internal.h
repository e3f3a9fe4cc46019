/* What the files of the array family share: reading index arguments, shapes in the making, passing inputs on. */
#ifndef MILLRACE_KERNELS_CPU_ARRAY_ARRAY_INTERNAL_H
#define MILLRACE_KERNELS_CPU_ARRAY_ARRAY_INTERNAL_H

#include "kernels/support/strided.h"
#include "kernels/kernel.h"

/* Sizes of an output in the making. Ranks up to SHAPE_MAX_RANK. */
struct dims {
    int rank;
    int64_t at[SHAPE_MAX_RANK + 2];
};

static inline void dims_set(struct dims *dims, struct shape shape) {
    dims->rank = shape.rank;
    for (int i = 0; i < shape.rank; i++)
        dims->at[i] = shape.dims[i];
}
static inline struct shape dims_shape(const struct dims *dims) { return (struct shape){dims->rank, dims->at}; }
/* True when full: the caller's status names the rank. */
static inline bool dims_add(struct dims *dims, int64_t size) {
    if (dims->rank >= SHAPE_MAX_RANK)
        return false;
    dims->at[dims->rank++] = size;
    return true;
}

/* An element of a tensor of any integer dtype. */
int64_t array_int_at(const struct tensor *t, int64_t i);
/* The same of any real dtype. */
double array_real_at(const struct tensor *t, int64_t i);
/* "[2,3]" of a tensor's shape for messages. */
struct shape_name {
    char text[256];
};
struct shape_name array_shape_name(struct shape shape);
#define SHAPE_NAME(shape) (array_shape_name(shape).text)
#define TENSOR_SHAPE_NAME(t) (array_shape_name(tensor_shape(t)).text)

/* Product of sizes [begin, end) of a full shape whose product is known to fit (a tensor's own). */
static inline int64_t dims_product(const int64_t *dims, int begin, int end) {
    int64_t n = 1;
    for (int i = begin; i < end; i++)
        n *= dims[i];
    return n;
}

/* Output `output` becomes input `input` under another shape of as many elements; moved, so no atomic is touched. */
void array_pass_as(struct kernel_ctx *ctx, int input, int output, struct shape shape);
kernel_fn array_reshape; /* Reshape: output 0 is input 0 under the shape that input 1 holds */

static inline void *array_at(struct tensor *t, int64_t index) {
    return (char *)tensor_data(t) + index * (int64_t)dtype_size((enum dtype)t->dtype);
}
static inline const void *array_cat(const struct tensor *t, int64_t index) {
    return (const char *)tensor_cdata(t) + index * (int64_t)dtype_size((enum dtype)t->dtype);
}
static inline enum dtype array_dtype(const struct tensor *t) { return (enum dtype)t->dtype; }

/* The dtype of an output of the node. */
static inline enum dtype array_out_dtype(const struct kernel_ctx *ctx, int output) {
    return dtype_base((enum dtype)ctx->instance->out_types[output]);
}

/* to[i] += from[i]; integers wrap, bools or. NULL for dtypes without a sum. */
typedef void array_slice_fn(void *to, const void *from, int64_t n);
array_slice_fn *array_add_fn(enum dtype dtype);

/* A 64-bit attr in the kernel's state: init functions for families of one number. */
struct status *array_init_int_attr(struct kernel_init *init, const char *name);

#endif
