/* Writes log lines to stderr, each with one write(2). A line is text,
 * `2026-01-31T10:00:00.123Z I /job:ps/task:0 text`, or a JSON object:
 *
 *   {"time":"2026-01-31T10:00:00.123Z","level":"warning","task":"/job:ps/task:0",
 *    "event":"task.lost","message":"…","repeated":120}
 *
 * Each line belongs to an event, a row of log_events.inc, which has its level. Repeats of an event
 * are held back for LOG_REPEAT_MS and then counted in one line. Which lines are repeats depends on
 * the row: those of the same text (SAME), all of the event (ANY: a stranger can provoke the event
 * at will), or none (NEVER).
 *
 * Code that can return a status returns it and does not log. Any thread. */
#ifndef MILLRACE_COMMON_BASE_LOG_H
#define MILLRACE_COMMON_BASE_LOG_H

#include <stdatomic.h>

#include "common/base/base.h"

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARNING, LOG_ERROR };
enum log_format { LOG_TEXT, LOG_JSON };

enum log_event {
#define EVENT(name, id, level, repeats, meaning) EVENT_##name,
#include "common/base/log_events.inc"
#undef EVENT
    N_LOG_EVENTS
};

/* Call these before threads start. */
void log_set_level(enum log_level level);    /* default LOG_INFO */
void log_set_format(enum log_format format); /* default LOG_TEXT */
void log_set_task(const char *task);         /* on every line; copied (at most 127 bytes) */
bool log_is_json(void);

void log_event(enum log_event event, const char *format, ...) PRINTF_LIKE(2, 3);
/* Does the same with another level than the row's. */
void log_event_at(enum log_event event, enum log_level level, const char *format, ...)
    PRINTF_LIKE(3, 4);

struct str;
/* Appends a line of the log, with its newline, for a caller that writes stderr itself. */
void log_add_line(struct str *out, enum log_event event, const char *task, struct span text);

/* Writes "… (repeated 120 times)" for events whose repeats were held back for long enough. A loop
 * calls it now and then, and `is_end` is for the end of the process: then it writes all of them. */
void log_flush_repeats(bool is_end);

enum {
    LOG_REPEAT_MS = 1000,
    /* A line waits at most this long for a slow reader (a full pipe). Then the line is lost, and
     * the next line that is written says how many were lost. */
    LOG_PATIENCE_MS = 10
};

#endif
