/* Finds one element of a tensor, and reads it as a number whatever its dtype. Any thread. */
#ifndef MILLRACE_COMMON_TENSOR_ELEMENT_H
#define MILLRACE_COMMON_TENSOR_ELEMENT_H

#include "common/tensor/tensor.h"

static inline enum dtype tensor_dtype(const struct tensor *t) { return (enum dtype)t->dtype; }
/* Return the address of the element at a row-major index, which must be within the tensor or one
 * past its end. tensor_data says when the element of tensor_at may be written. */
static inline void *tensor_at(struct tensor *t, int64_t index) {
    return (char *)tensor_data(t) + index * (int64_t)dtype_size(tensor_dtype(t));
}
static inline const void *tensor_cat(const struct tensor *t, int64_t index) {
    return (const char *)tensor_cdata(t) + index * (int64_t)dtype_size(tensor_dtype(t));
}

/* An element of any integer dtype; uint64 beyond 2^63 wraps. 0 for other dtypes. tensor_index_at
 * (tensor.h) is the fast form for int32 and int64. */
int64_t tensor_int_at(const struct tensor *t, int64_t index);
/* An element of any integer or real dtype, rounded to double. 0 for other dtypes. */
double tensor_real_at(const struct tensor *t, int64_t index);

/* Writes the value 1 (true for bool) of a dtype of numbers or bool to the beginning of 16 bytes,
 * and zeros to the rest. */
void element_set_one(enum dtype dtype, void *value);

#endif
