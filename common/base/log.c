/* Formats a log line completely and writes it with one write(2), so that lines of several threads
 * and processes never mix. */
#include "common/base/log.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/str.h"

enum limit { LIMIT_NEVER, LIMIT_SAME, LIMIT_ANY };

static const struct event_row {
    const char *id;
    enum log_level level;
    enum limit limit;
} events[] = {
#define EVENT(name, id, level, limit, meaning) [EVENT_##name] = {id, LOG_##level, LIMIT_##limit},
#include "common/base/log_events.inc"
#undef EVENT
};

static const struct {
    const char *name;
    char letter;
} levels[] = {
    [LOG_DEBUG] = {"debug", 'D'},
    [LOG_INFO] = {"info", 'I'},
    [LOG_WARNING] = {"warning", 'W'},
    [LOG_ERROR] = {"error", 'E'},
};

/* What was last written of an event, and what was held back since. */
struct repeat {
    int64_t until_ns, n_held;
    enum log_level level;
    struct str text; /* of the last line, written or held back */
};

static _Atomic int least_level = LOG_INFO;
static _Atomic int64_t n_lost_lines, n_pending; /* n_pending: events with n_held > 0 */
static bool is_json;                            /* set before threads start, constant afterwards */
static char task_name[128] = "-";               /* likewise */
static struct repeat repeats[N_LOG_EVENTS];     /* guard: lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void log_set_level(enum log_level level) {
    atomic_store_explicit(&least_level, (int)level, memory_order_relaxed);
}

void log_set_format(enum log_format format) { is_json = format == LOG_JSON; }
void log_set_task(const char *task) { snprintf(task_name, sizeof(task_name), "%s", task); }
bool log_is_json(void) { return is_json; }

/* ---- one line ---- */

static void add_time(struct str *line) {
    struct timespec now;
    struct tm utc;
    char date[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &utc);
    str_addf(line, "%s.%03dZ", date, (int)(now.tv_nsec / 1000000));
}

static void format_text(struct str *line, enum log_level level, const char *task, struct span text,
                        int64_t n_repeats, int64_t n_lost) {
    size_t begin = line->len;
    add_time(line);
    str_addf(line, " %c %s ", levels[level].letter, task);
    str_add_bytes(line, text.data, text.len);
    if (n_repeats == 1)
        str_add(line, " (repeated once)");
    else if (n_repeats > 1)
        str_addf(line, " (repeated %" PRId64 " times)", n_repeats);
    /* Names and messages of strangers must not be able to forge a line of their own. */
    for (size_t i = begin; i < line->len; i++) {
        if ((unsigned char)line->data[i] < 0x20 && line->data[i] != '\t')
            line->data[i] = ' ';
    }
    if (n_lost > 0)
        str_addf(line, " (%" PRId64 " lines before this one were lost, because stderr is not read)",
                 n_lost);
}

static void format_json(struct str *line, enum log_event event, enum log_level level,
                        const char *task, struct span text, int64_t n_repeats, int64_t n_lost) {
    str_add(line, "{\"time\":\"");
    add_time(line);
    str_addf(line, "\",\"level\":\"%s\",\"task\":\"", levels[level].name);
    str_add_json_escaped(line, task, strlen(task));
    str_addf(line, "\",\"event\":\"%s\",\"message\":\"", events[event].id);
    str_add_json_escaped(line, text.data, text.len);
    str_add_char(line, '"');
    if (n_repeats > 0)
        str_addf(line, ",\"repeated\":%" PRId64, n_repeats);
    if (n_lost > 0)
        str_addf(line, ",\"lost_lines\":%" PRId64, n_lost);
    str_add_char(line, '}');
}

static void format_line(struct str *line, enum log_event event, enum log_level level,
                        const char *task, struct span text, int64_t n_repeats, int64_t n_lost) {
    if (is_json)
        format_json(line, event, level, task, text, n_repeats, n_lost);
    else
        format_text(line, level, task, text, n_repeats, n_lost);
    str_add_char(line, '\n');
}

void log_add_line(struct str *out, enum log_event event, const char *task, struct span text) {
    format_line(out, event, events[event].level, task, text, 0, 0);
}

/* A pipe that poll reports as writable takes a whole line of up to PIPE_BUF bytes. Loop threads
 * log, so none may block on a reader that does not read. */
static bool has_room(int patience_ms) {
    struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&fd, 1, patience_ms) == 1 && (fd.revents & POLLOUT);
}

static void write_line(enum log_event event, enum log_level level, const struct str *text,
                       int64_t n_repeats) {
    struct str line = STR_INIT;
    int64_t n_lost = atomic_exchange_explicit(&n_lost_lines, 0, memory_order_relaxed);
    str_reserve(&line, 255);
    format_line(&line, event, level, task_name, (struct span){text->data, text->len}, n_repeats,
                n_lost);
    bool is_written = has_room(n_lost > 0 ? 0 : LOG_PATIENCE_MS) &&
                      write(STDERR_FILENO, line.data, line.len) >= 0;
    if (!is_written)
        atomic_fetch_add_explicit(&n_lost_lines, n_lost + 1, memory_order_relaxed);
    str_fini(&line);
}

/* ---- repeats ---- */

static bool is_same(const struct str *a, const struct str *b) {
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

static void keep_text(struct repeat *repeat, const struct str *text) {
    str_clear(&repeat->text);
    str_add_bytes(&repeat->text, text->data, text->len);
}

/* Takes what was held back: *ret_text is its last line. Lock held. */
static int64_t take_held(struct repeat *repeat, struct str *ret_text) {
    int64_t n = repeat->n_held;
    if (n > 0) {
        str_add_bytes(ret_text, repeat->text.data, repeat->text.len);
        repeat->n_held = 0;
        atomic_fetch_sub_explicit(&n_pending, 1, memory_order_relaxed);
    }
    return n;
}

static void log_line(enum log_event event, enum log_level level, const struct str *text) {
    struct repeat *repeat = &repeats[event];
    struct str held = STR_INIT;
    enum log_level held_level = level;
    int64_t n_held = 0, now_ns = clock_now_ns();
    bool is_held = false;
    if (events[event].limit != LIMIT_NEVER) {
        pthread_mutex_lock(&lock);
        bool is_repeat = repeat->until_ns > 0 &&
                         (events[event].limit == LIMIT_ANY || is_same(&repeat->text, text));
        is_held = is_repeat && now_ns < repeat->until_ns;
        if (is_held) {
            if (repeat->n_held++ == 0)
                atomic_fetch_add_explicit(&n_pending, 1, memory_order_relaxed);
        } else {
            held_level = repeat->level;
            n_held = take_held(repeat, &held);
            repeat->until_ns = now_ns + LOG_REPEAT_MS * 1000000ll;
        }
        repeat->level = level;
        keep_text(repeat, text);
        pthread_mutex_unlock(&lock);
    }
    if (n_held > 0)
        write_line(event, held_level, &held, n_held);
    if (!is_held)
        write_line(event, level, text, 0);
    str_fini(&held);
}

void log_flush_repeats(bool is_end) {
    if (atomic_load_explicit(&n_pending, memory_order_relaxed) == 0)
        return;
    int64_t now_ns = clock_now_ns();
    for (int i = 0; i < N_LOG_EVENTS; i++) {
        struct str held = STR_INIT;
        int64_t n = 0;
        pthread_mutex_lock(&lock);
        enum log_level level = repeats[i].level;
        if (is_end || repeats[i].until_ns <= now_ns)
            n = take_held(&repeats[i], &held);
        if (n > 0)
            repeats[i].until_ns = now_ns + LOG_REPEAT_MS * 1000000ll;
        pthread_mutex_unlock(&lock);
        if (n > 0)
            write_line((enum log_event)i, level, &held, n);
        str_fini(&held);
    }
}

/* ---- what others call ---- */

static void log_args(enum log_event event, enum log_level level, const char *format, va_list args) {
    struct str text = STR_INIT;
    if ((int)level < atomic_load_explicit(&least_level, memory_order_relaxed))
        return;
    str_addv(&text, format, args);
    log_line(event, level, &text);
    str_fini(&text);
}

void log_event(enum log_event event, const char *format, ...) {
    va_list args;
    va_start(args, format);
    log_args(event, events[event].level, format, args);
    va_end(args);
}

void log_event_at(enum log_event event, enum log_level level, const char *format, ...) {
    va_list args;
    va_start(args, format);
    log_args(event, level, format, args);
    va_end(args);
}
