/* A byte string that grows. A NUL follows the bytes after the first append. Threads: one at a
 * time. */
#ifndef MILLRACE_COMMON_BASE_STR_H
#define MILLRACE_COMMON_BASE_STR_H

#include <stdarg.h>

#include "common/base/base.h"

struct str {
    char *data; /* NULL before the first append */
    size_t len, capacity;
};
#define STR_INIT ((struct str){NULL, 0, 0})

void str_fini(struct str *s);
void str_clear(struct str *s); /* length 0, memory kept */
void str_reserve(struct str *s, size_t extra);
void str_add(struct str *s, const char *text);
void str_add_bytes(struct str *s, const void *data, size_t len);
void str_add_char(struct str *s, char c);
/* Adds the low n_bytes of a number, the lowest first. */
void str_add_little_endian(struct str *s, uint64_t value, int n_bytes);
void str_addf(struct str *s, const char *format, ...) PRINTF_LIKE(2, 3);
void str_addv(struct str *s, const char *format, va_list args);
/* The length of the well-formed UTF-8 sequence at `text` (RFC 3629: no overlong forms, no
 * surrogates); 0 where the bytes are malformed. `len` must be positive. */
size_t utf8_well_formed_len(const char *text, size_t len);
/* Appends a code point in UTF-8. It must not be a surrogate and must be at most 0x10ffff. */
void str_add_utf8(struct str *s, uint32_t code);
/* The value of a base64 digit in either alphabet ("+/" or "-_"); -1 for any other character. */
int base64_digit(char c);
/* Appends the text with JSON's escapes, without quotes. */
void str_add_json_escaped(struct str *s, const char *text, size_t len);
const char *str_text(const struct str *s); /* "" when empty */
char *str_detach(struct str *s);           /* the caller frees the result; s is empty then */

#endif
