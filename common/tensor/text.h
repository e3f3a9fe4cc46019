/* Prints and reads values as text without losing a bit: the common part of the text forms of
 * tensors, attrs and graphs. Any thread. */
#ifndef MILLRACE_COMMON_TENSOR_TEXT_H
#define MILLRACE_COMMON_TENSOR_TEXT_H

#include <locale.h>

#include "common/base/str.h"

/* The locale "C", in which numbers are printed and read whatever locale the program has set. */
locale_t text_locale(void);
/* The fewest digits that read back to the same value; "nan", "inf", "-inf". */
void text_add_float(struct str *out, float v);
void text_add_double(struct str *out, double v);
/* In double quotes; quotes, backslashes, newlines and control bytes escaped (\", \\, \n, \x07). */
void text_add_quoted(struct str *out, struct span text);

/* ---- reading: each function skips blanks first, and does not change `in` when it does not find
 * what it reads ---- */
void text_skip_blanks(struct span *in);
bool text_take(struct span *in, const char *token);
/* Letters, digits and the characters of `extra`; an empty span where there are none. */
struct span text_take_word(struct span *in, const char *extra);
/* Reads text in quotes and appends its bytes. False when malformed. */
bool text_take_quoted(struct span *in, struct str *ret);
bool text_take_double(struct span *in, double *ret);
/* False also for numbers beyond int64. */
bool text_take_int(struct span *in, int64_t *ret);
/* Reads "[2,?,3]" into `dims`, which has room for SHAPE_MAX_RANK sizes; "<unknown>" gives rank
 * -1. */
bool text_take_shape(struct span *in, int64_t *dims, int *ret_rank);

#endif
