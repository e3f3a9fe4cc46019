/* Values as text that reads back to the same bits: what tensors, attrs and graphs print alike.
 * Any thread. */
#ifndef MILLRACE_COMMON_TENSOR_TEXT_H
#define MILLRACE_COMMON_TENSOR_TEXT_H

#include "common/base/str.h"

/* The fewest digits that read back to the same value; "nan", "inf", "-inf". */
void text_add_float(struct str *out, float v);
void text_add_double(struct str *out, double v);
/* In double quotes; quotes, backslashes, newlines and control bytes escaped (\", \\, \n, \x07). */
void text_add_quoted(struct str *out, struct span text);

/* ---- reading: each skips blanks before what it reads, and leaves `in` alone when it does not
 * find it ---- */
void text_skip_blanks(struct span *in);
bool text_take(struct span *in, const char *token);
/* Letters, digits and the characters of `extra`; an empty span when there are none. */
struct span text_take_word(struct span *in, const char *extra);
/* The quoted form; appends the bytes. False when malformed. */
bool text_take_quoted(struct span *in, struct str *ret);
bool text_take_double(struct span *in, double *ret);
/* from -2^63 to 2^64 - 1, the upper half wrapped */
bool text_take_int(struct span *in, int64_t *ret);
/* "[2,?,3]" into dims (SHAPE_MAX_RANK of them), or "<unknown>" with rank -1. */
bool text_take_shape(struct span *in, int64_t *dims, int *ret_rank);

#endif
