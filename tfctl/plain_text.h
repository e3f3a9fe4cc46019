/* Text of strangers, for a terminal. */
#ifndef MILLRACE_TFCTL_PLAIN_TEXT_H
#define MILLRACE_TFCTL_PLAIN_TEXT_H

#include "common/base/str.h"

/* Appends the text up to its first line break, at most max_bytes of it. Control characters, which
 * could move the cursor or rename a terminal, become "?", as does what is no UTF-8. */
void plain_text_add(struct str *out, const char *text, size_t max_bytes);

#endif
