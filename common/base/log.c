/* Log lines: formatted whole, then written with one write(2), so lines of several threads and processes never mix. */
#include "common/base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "common/base/str.h"

static _Atomic int least_level = LOG_INFO;
static char task_name[128] = "-"; /* set before threads start, read-only after */

static const struct {
    const char *name;
    char letter;
} levels[] = {
    [LOG_DEBUG] = {"debug", 'D'},
    [LOG_INFO] = {"info", 'I'},
    [LOG_WARNING] = {"warning", 'W'},
    [LOG_ERROR] = {"error", 'E'},
};

void log_set_level(enum log_level level) { atomic_store_explicit(&least_level, (int)level, memory_order_relaxed); }

void log_set_task(const char *task) { snprintf(task_name, sizeof(task_name), "%s", task); }

static void add_head(struct str *line, enum log_level level) {
    struct timespec now;
    struct tm utc;
    char date[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &utc);
    str_addf(line, "%s.%03dZ %c %s ", date, (int)(now.tv_nsec / 1000000), levels[level].letter, task_name);
}

void log_write(enum log_level level, const char *format, ...) {
    if ((int)level < atomic_load_explicit(&least_level, memory_order_relaxed))
        return;
    struct str line = STR_INIT;
    str_reserve(&line, 255);
    add_head(&line, level);
    va_list args;
    va_start(args, format);
    str_addv(&line, format, args);
    va_end(args);
    /* Names and messages of strangers must not be able to forge a line of their own. */
    for (size_t i = 0; i < line.len; i++) {
        if ((unsigned char)line.data[i] < 0x20 && line.data[i] != '\t')
            line.data[i] = ' ';
    }
    str_add_char(&line, '\n');
    ssize_t ignored = write(STDERR_FILENO, line.data, line.len); /* a log that cannot be written has nobody to tell */
    (void)ignored;
    str_fini(&line);
}
