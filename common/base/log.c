/* Formats a log line completely and writes it with one write(2), so that lines of several threads
 * and processes never mix. */
#include "common/base/log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/str.h"

static _Atomic int least_level = LOG_INFO;
static _Atomic int64_t n_lost_lines;
static char task_name[128] = "-"; /* set before threads start, constant afterwards */

static const struct {
    const char *name;
    char letter;
} levels[] = {
    [LOG_DEBUG] = {"debug", 'D'},
    [LOG_INFO] = {"info", 'I'},
    [LOG_WARNING] = {"warning", 'W'},
    [LOG_ERROR] = {"error", 'E'},
};

void log_set_level(enum log_level level) {
    atomic_store_explicit(&least_level, (int)level, memory_order_relaxed);
}

void log_set_task(const char *task) { snprintf(task_name, sizeof(task_name), "%s", task); }

static void add_head(struct str *line, enum log_level level) {
    struct timespec now;
    struct tm utc;
    char date[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &utc);
    str_addf(line, "%s.%03dZ %c %s ", date, (int)(now.tv_nsec / 1000000), levels[level].letter,
             task_name);
}

/* A pipe that poll reports as writable takes a whole line of up to PIPE_BUF bytes. Loop threads
 * log, so none may block on a reader that does not read. */
static bool has_room(int patience_ms) {
    struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&fd, 1, patience_ms) == 1 && (fd.revents & POLLOUT);
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
    int64_t n_lost = atomic_exchange_explicit(&n_lost_lines, 0, memory_order_relaxed);
    if (n_lost > 0)
        str_addf(&line, " (%lld lines before this one were lost, because stderr is not read)",
                 (long long)n_lost);
    str_add_char(&line, '\n');
    bool is_written = has_room(n_lost > 0 ? 0 : LOG_PATIENCE_MS) &&
                      write(STDERR_FILENO, line.data, line.len) >= 0;
    if (!is_written)
        atomic_fetch_add_explicit(&n_lost_lines, n_lost + 1, memory_order_relaxed);
    str_fini(&line);
}

bool log_limit_pass(struct log_limit *limit, int64_t *ret_n_silent) {
    enum { EVERY_MS = 1000 };
    int64_t now_ms = clock_now_ns() / 1000000, next_ms = atomic_load(&limit->next_ms);
    if (now_ms < next_ms ||
        !atomic_compare_exchange_strong(&limit->next_ms, &next_ms, now_ms + EVERY_MS)) {
        atomic_fetch_add(&limit->n_silent, 1);
        return false;
    }
    *ret_n_silent = atomic_exchange(&limit->n_silent, 0);
    return true;
}
