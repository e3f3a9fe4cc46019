/* One element of a tensor as TensorFlow's Print, Assert and StringFormat write it. */
#ifndef MILLRACE_KERNELS_SUPPORT_ELEMENT_TEXT_H
#define MILLRACE_KERNELS_SUPPORT_ELEMENT_TEXT_H

#include "common/base/str.h"
#include "common/tensor/tensor.h"

/* Numbers with the fewest of their type's usual digits that read back as the same number, else
 * with enough; bool as 0 and 1; strings with C's escapes, octal for other control bytes, and
 * bytes of UTF-8 as they are. Complex numbers and variants are "?", as in TensorFlow. */
void element_text_add(const struct tensor *t, int64_t index, bool quote_strings, struct str *out);

#endif
