/* UTF-8: characters, and Unicode's case mapping. Any thread. */
#ifndef MILLRACE_KERNELS_HOST_TEXT_UTF8_H
#define MILLRACE_KERNELS_HOST_TEXT_UTF8_H

#include "common/base/str.h"

/* A character starts at every byte that is no continuation byte; bytes before the first start
 * belong to it. */
static inline bool utf8_is_continuation(char c) { return ((unsigned char)c & 0xc0) == 0x80; }
/* The character at text's front, which is not empty; *ret_len bytes. Of ill-formed bytes, the
 * longest beginning of a well-formed character (at least one byte) is one U+FFFD, as the
 * standard recommends. */
uint32_t utf8_decode(struct span text, size_t *ret_len);
/* Case mapping as Unicode has it: one character may become several, and the final sigma has its
 * own form. Ill-formed bytes become U+FFFD. Both end early once nobody wants the result
 * (common/base/pool_cancel.h). */
void utf8_to_lower(struct span text, struct str *out);
void utf8_to_upper(struct span text, struct str *out);

#endif
