/* Reads what children print, and writes it line by line after the task's name. */
#include "tfctl/relay.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include "common/base/log.h"

enum { LINE_MAX_BYTES = 8192, TAIL_BYTES = 4096, READ_BYTES = 16384 };

void relay_init(struct relay *relay, int name_width) {
    *relay = (struct relay){.name_width = name_width};
}

void relay_fini(struct relay *relay) { str_fini(&relay->pending); }

void relay_source_init(struct relay_source *source, const char *name, bool is_quiet) {
    *source = (struct relay_source){.name = name, .is_quiet = is_quiet};
}

void relay_source_fini(struct relay_source *source) {
    str_fini(&source->line);
    str_fini(&source->tail);
}

/* ---- lines ---- */

static void add_line(const struct relay *relay, const char *name, struct span line,
                     struct str *out) {
    if (log_is_json() && (line.len == 0 || line.data[0] != '{')) {
        log_add_line(out, EVENT_LOCAL_OUTPUT, name, line);
        return;
    }
    if (!log_is_json())
        str_addf(out, "%-*s | ", relay->name_width, name);
    str_add_bytes(out, line.data, line.len);
    str_add_char(out, '\n');
}

/* Keeps the last whole lines of a text. */
static void keep_end(struct str *text, size_t max) {
    if (text->len <= max)
        return;
    const char *cut = memchr(text->data + text->len - max, '\n', max);
    size_t from = cut ? (size_t)(cut + 1 - text->data) : text->len;
    memmove(text->data, text->data + from, text->len - from + 1);
    text->len -= from;
}

static void end_line(struct relay *relay, struct relay_source *source) {
    struct span line = {str_text(&source->line), source->line.len};
    add_line(relay, source->name, line, source->is_quiet ? &source->tail : &relay->pending);
    keep_end(&source->tail, TAIL_BYTES);
    str_clear(&source->line);
}

enum relay_outcome relay_read(struct relay *relay, struct relay_source *source, int fd) {
    char bytes[READ_BYTES];
    ssize_t n = read(fd, bytes, sizeof(bytes));
    if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EINTR) ? RELAY_NOTHING_NOW : RELAY_END;
    for (ssize_t i = 0; i < n; i++) {
        if (bytes[i] != '\n')
            str_add_char(&source->line, bytes[i]);
        if (bytes[i] == '\n' || source->line.len >= LINE_MAX_BYTES)
            end_line(relay, source);
    }
    relay_flush(relay);
    return RELAY_MORE;
}

void relay_end(struct relay *relay, struct relay_source *source) {
    if (source->line.len > 0)
        end_line(relay, source);
    relay_flush(relay);
}

void relay_show_tail(struct relay *relay, struct relay_source *source) {
    str_add_bytes(&relay->pending, str_text(&source->tail), source->tail.len);
    str_clear(&source->tail);
    relay_flush(relay);
}

void relay_say(struct relay *relay, const char *format, ...) {
    struct str text = STR_INIT;
    va_list args;
    va_start(args, format);
    str_addv(&text, format, args);
    va_end(args);
    if (log_is_json())
        log_add_line(&relay->pending, EVENT_LOCAL, "tfctl",
                     (struct span){str_text(&text), text.len});
    else
        str_addf(&relay->pending, "tfctl: %s\n", str_text(&text));
    str_fini(&text);
    relay_flush(relay);
}

/* ---- stderr ---- */

/* A pipe or terminal that polls writable takes PIPE_BUF bytes without blocking, although stderr
 * is a blocking descriptor that others share.
 */
static bool is_writable(int timeout_ms) {
    struct pollfd fd = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&fd, 1, timeout_ms) == 1;
}

static bool write_some(struct relay *relay) {
    ssize_t n =
        write(STDERR_FILENO, relay->pending.data, MIN(relay->pending.len, (size_t)PIPE_BUF));
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return false;
    if (n <= 0) {
        relay->is_broken = true;
        return false;
    }
    memmove(relay->pending.data, relay->pending.data + n, relay->pending.len - (size_t)n + 1);
    relay->pending.len -= (size_t)n;
    return true;
}

static void flush(struct relay *relay, int timeout_ms) {
    while (relay->pending.len > 0 && !relay->is_broken && is_writable(timeout_ms) &&
           write_some(relay))
        ;
    if (relay->is_broken)
        str_clear(&relay->pending);
}

void relay_flush(struct relay *relay) { flush(relay, 0); }
void relay_flush_until(struct relay *relay, int timeout_ms) { flush(relay, timeout_ms); }
