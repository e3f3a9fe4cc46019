/* Writes tensors as members of a JSON object, for programs. Any thread. */
#ifndef MILLRACE_TFCTL_TENSOR_JSON_H
#define MILLRACE_TFCTL_TENSOR_JSON_H

#include "common/tensor/tensor.h"

/* Appends "dtype":"float","shape":[2,3]. */
void tensor_json_add_type(const struct tensor *t, struct str *out);
void tensor_json_add_shape(struct shape shape, struct str *out);
/* Appends "values":[...] with the elements in row-major order, at most max_elements of them, and
 * then "values_left_out":N. Numbers that are not finite are "NaN", "Infinity" and "-Infinity", a
 * complex number is a list of two. A string is text: bytes that are no UTF-8 become U+FFFD. */
void tensor_json_add_values(const struct tensor *t, int64_t max_elements, struct str *out);

#endif
