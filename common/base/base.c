/* Ends the process for failed checks and exhausted memory, and wraps malloc so that it never
 * fails. */
#include "common/base/base.h"

#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* A failed check may come from a broken heap or a held stdio lock, so the message is written with
 * write(2) only. */
static void write_stderr(const char *text, size_t len) {
    ssize_t ignored = write(STDERR_FILENO, text, len);
    (void)ignored;
}

_Noreturn void check_failed(const char *file, int line, const char *condition) {
    char text[512];
    int len = snprintf(text, sizeof(text), "%s:%d: broken invariant: %s\n", file, line, condition);
    write_stderr(text, MIN((size_t)MAX(len, 0), sizeof(text) - 1));

    void *frames[64];
    int n_frames = backtrace(frames, (int)ARRAY_LEN(frames));
    backtrace_symbols_fd(frames, n_frames, STDERR_FILENO);
    abort();
}

_Noreturn void out_of_memory(size_t size_bytes) {
    char text[96];
    int len = snprintf(text, sizeof(text), "out of memory: %zu bytes asked for\n", size_bytes);
    write_stderr(text, MIN((size_t)MAX(len, 0), sizeof(text) - 1));
    abort();
}

/* Zero bytes count as one everywhere: NULL is a legal result of malloc(0) and would be taken for
 * exhausted memory. */
void *xmalloc(size_t size_bytes) {
    void *block = malloc(MAX(size_bytes, 1));
    if (unlikely(!block))
        out_of_memory(size_bytes);
    return block;
}

void *xcalloc(size_t count, size_t size_bytes) {
    void *block = calloc(MAX(count, 1), MAX(size_bytes, 1));
    if (unlikely(!block)) {
        size_t total;
        out_of_memory(__builtin_mul_overflow(count, size_bytes, &total) ? SIZE_MAX : total);
    }
    return block;
}

void *xrealloc(void *block, size_t size_bytes) {
    void *moved = realloc(block, MAX(size_bytes, 1));
    if (unlikely(!moved))
        out_of_memory(size_bytes);
    return moved;
}

void *xreallocarray(void *block, size_t count, size_t size_bytes) {
    size_t total;
    if (unlikely(__builtin_mul_overflow(count, size_bytes, &total)))
        out_of_memory(SIZE_MAX);
    return xrealloc(block, total);
}

char *xstrdup(const char *text) { return xstrndup(text, strlen(text)); }

void text_replace(char **text, const char *to) {
    if (*text && strcmp(*text, to) == 0)
        return;
    free(*text);
    *text = xstrdup(to);
}

int text_compare(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

char *xstrndup(const char *text, size_t len) {
    len = strnlen(text, len);
    char *copy = xmalloc(len + 1);
    memcpy(copy, text, len);
    copy[len] = '\0';
    return copy;
}
