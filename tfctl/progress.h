/* Shows on a terminal how far long work is. Elsewhere, and for work that is quick, nothing is
 * shown. One thread. */
#ifndef MILLRACE_TFCTL_PROGRESS_H
#define MILLRACE_TFCTL_PROGRESS_H

#include "common/base/base.h"

struct progress {
    bool is_shown; /* stderr is a terminal */
    bool has_line;
    int64_t next_ns; /* when the line is written next */
};

void progress_begin(struct progress *progress);
/* Replaces the line, at most five times a second. */
void progress_show(struct progress *progress, const char *format, ...) PRINTF_LIKE(2, 3);
/* Erases the line, before something else is printed and at the end. */
void progress_clear(struct progress *progress);

#endif
