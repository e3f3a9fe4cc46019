/* Prints one element of a tensor as TensorFlow's Print, Assert and StringFormat print it. Any
 * thread. */
#ifndef MILLRACE_KERNELS_SUPPORT_ELEMENT_TEXT_H
#define MILLRACE_KERNELS_SUPPORT_ELEMENT_TEXT_H

#include "common/base/str.h"
#include "common/tensor/tensor.h"

/* Appends element `index` to `out`. A number gets the fewest digits that read back as the same
 * number, up to the usual digits of its type, and more digits where those are not enough. A bool is
 * 0 or 1. A string keeps its UTF-8 bytes; control bytes become C's escapes or octal ones. Complex
 * numbers and variants are "?", as in TensorFlow. */
void element_text_add(const struct tensor *t, int64_t index, bool quote_strings, struct str *out);

#endif
