/* Writes log lines to stderr: `2026-01-31T10:00:00.123Z I /job:ps/task:0 text`. One write(2) per
 * line.
 *
 * Code that can return a status returns it and does not log. Any thread. */
#ifndef MILLRACE_COMMON_BASE_LOG_H
#define MILLRACE_COMMON_BASE_LOG_H

#include <stdatomic.h>

#include "common/base/base.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };

void log_set_level(enum log_level level); /* default LOG_INFO */
/* shown on every line; copied (at most 127 bytes); call before threads start */
void log_set_task(const char *task);
void log_write(enum log_level level, const char *format, ...) PRINTF_LIKE(2, 3);

/* A line waits at most LOG_PATIENCE_MS for a slow reader (a full pipe). Then the line is lost, and
 * the next line that is written says how many were lost. */
enum { LOG_PATIENCE_MS = 10 };

/* Limits a line that a stranger can provoke at will to one a second. The limit is a static
 * variable, zero at the start. log_limit_pass returns false when the line must not be written; when
 * it returns true, *ret_n_silent is the number of lines that were held back since the last one. */
struct log_limit {
    _Atomic int64_t next_ms, n_silent;
};
bool log_limit_pass(struct log_limit *limit, int64_t *ret_n_silent);

#define log_debug(...) log_write(LOG_DEBUG, __VA_ARGS__)
#define log_info(...) log_write(LOG_INFO, __VA_ARGS__)
#define log_warning(...) log_write(LOG_WARNING, __VA_ARGS__)
#define log_error(...) log_write(LOG_ERROR, __VA_ARGS__)

#endif
