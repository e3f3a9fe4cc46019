/* Writes one line of stderr again and again. */
#include "tfctl/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/clock.h"

enum { EVERY_MS = 200 };

void progress_begin(struct progress *progress) {
    *progress = (struct progress){.is_shown = isatty(STDERR_FILENO) == 1,
                                  .next_ns = clock_now_ns() + EVERY_MS * 1000000};
}

void progress_show(struct progress *progress, const char *format, ...) {
    va_list args;
    int64_t now_ns = clock_now_ns();
    if (!progress->is_shown || now_ns < progress->next_ns)
        return;
    progress->next_ns = now_ns + EVERY_MS * 1000000;
    progress->has_line = true;
    fputs("\r\033[K", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fflush(stderr);
}

void progress_clear(struct progress *progress) {
    if (progress->has_line)
        fputs("\r\033[K", stderr);
    progress->has_line = false;
}
