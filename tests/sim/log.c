/* common/base/log.h in the simulation: a log line is an event of the trace, with the process that
 * logged it. */
#include "common/base/log.h"

#include <stdarg.h>
#include <stdio.h>

#include "tests/sim/sim.h"

void log_set_level(enum log_level level) {}
void log_set_task(const char *task) {}

void log_set_format(enum log_format format) {}
bool log_is_json(void) { return false; }
void log_flush_repeats(bool is_end) {}

static const struct {
    const char *id;
    enum log_level level;
} events[] = {
#define EVENT(name, id, level, repeats, meaning) [EVENT_##name] = {id, LOG_##level},
#include "common/base/log_events.inc"
#undef EVENT
};

void log_event(enum log_event event, const char *format, ...) {
    static const char letters[] = "DIWE";
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    sim_trace("log %c %s: %s", letters[events[event].level], events[event].id, line);
}

void log_event_at(enum log_event event, enum log_level level, const char *format, ...) {}
