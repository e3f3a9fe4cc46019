/* Texts that spell numbers. */
#ifndef MILLRACE_KERNELS_HOST_TEXT_STRING_NUMBER_H
#define MILLRACE_KERNELS_HOST_TEXT_STRING_NUMBER_H

#include "common/base/str.h"
#include "common/tensor/dtype.h"

/* The number that a text spells, spaces around it allowed, as StringToNumber reads it. A NUL
 * follows the text. */
bool string_parse_number(enum dtype dtype, struct span text, void *to);

#endif
