/* Parses texts as numbers. */
#ifndef MILLRACE_KERNELS_HOST_TEXT_STRING_NUMBER_H
#define MILLRACE_KERNELS_HOST_TEXT_STRING_NUMBER_H

#include "common/base/str.h"
#include "common/tensor/dtype.h"

/* Writes the number that a text spells to `to`, as StringToNumber does: spaces around the number
 * are allowed. False when the text spells none, or one beyond the dtype. A NUL must follow the
 * text. */
bool string_parse_number(enum dtype dtype, struct span text, void *to);

#endif
