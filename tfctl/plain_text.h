/* Text of strangers, for a terminal. */
#ifndef MILLRACE_TFCTL_PLAIN_TEXT_H
#define MILLRACE_TFCTL_PLAIN_TEXT_H

#include "common/base/str.h"

/* Appends the text up to its first line break, at most max_bytes of it. Control characters, which
 * could move the cursor or rename a terminal, become "?", as does what is no UTF-8. */
void plain_text_add(struct str *out, const char *text, size_t max_bytes);
/* The same for all lines, of which those after the first are indented. After max_lines, "…". */
void plain_text_add_lines(struct str *out, const char *text, int indent, size_t max_line_bytes,
                          int max_lines);

#endif
