/* Log lines to stderr: `2026-01-31T10:00:00.123Z I /job:ps/task:0 text`. One write per line.
 *
 * Only main.c, service.c and what has nobody to return a status to may log. Any thread. */
#ifndef MILLRACE_COMMON_BASE_LOG_H
#define MILLRACE_COMMON_BASE_LOG_H

#include <stdatomic.h>

#include "common/base/base.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };

void log_set_level(enum log_level level); /* default LOG_INFO */
/* shown on every line; copied (at most 127 bytes); call before threads start */
void log_set_task(const char *task);
void log_write(enum log_level level, const char *format, ...) PRINTF_LIKE(2, 3);

/* A reader that does not keep up (a full pipe) costs a line at most LOG_PATIENCE_MS; lines that
 * find no room are lost, and the next one that is written says how many. */
enum { LOG_PATIENCE_MS = 10 };

/* For what a stranger can bring about as often as it likes: one line a second for each limit.
 * False: not now. `ret_n_silent` is how many were not written since the last that was. Static
 * memory, zero at the start. */
struct log_limit {
    _Atomic int64_t next_ms, n_silent;
};
bool log_limit_pass(struct log_limit *limit, int64_t *ret_n_silent);

#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_warning(...) log_write(LOG_WARNING, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)

#endif
