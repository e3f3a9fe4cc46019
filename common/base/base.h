/* Defines what every file may use: attributes, sizes of arrays, spans, checks of invariants.
 *
 * CHECK is for invariants of our own code only. Wrong bytes from a connection, a file, a flag or
 * etcd end in a status. */
#ifndef MILLRACE_COMMON_BASE_BASE_H
#define MILLRACE_COMMON_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define MUST_USE __attribute__((warn_unused_result))
#define PRINTF_LIKE(format_index, first_arg) \
    __attribute__((format(printf, format_index, first_arg)))
#define NEVER_NULL __attribute__((returns_nonnull))
#define COLD __attribute__((cold, noinline))
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* A function whose loops the compiler also builds for AVX2 and AVX-512. The loader chooses the best
 * form that the machine can run. ThreadSanitizer gets the default form only, since its run-time
 * library starts after that choice. */
#if defined(__SANITIZE_THREAD__) || defined(__clang__)
#define VECTOR_CLONES
#else
#define VECTOR_CLONES __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#endif

/* Ends the process with a message and a backtrace on stderr (exit by SIGABRT). */
COLD _Noreturn void check_failed(const char *file, int line, const char *condition);
/* Ends the process because a small structure of ours could not be allocated. A tensor that cannot
 * be allocated is a RESOURCE_EXHAUSTED status instead. */
COLD _Noreturn void out_of_memory(size_t size_bytes);

#define CHECK(condition)                                  \
    do {                                                  \
        if (unlikely(!(condition)))                       \
            check_failed(__FILE__, __LINE__, #condition); \
    } while (0)

/* The malloc family for small structures. They never return NULL: without memory the process
 * ends. */
void *xmalloc(size_t size_bytes);
void *xcalloc(size_t count, size_t size_bytes);
void *xrealloc(void *block, size_t size_bytes);
void *xreallocarray(void *block, size_t count, size_t size_bytes);
char *xstrdup(const char *text);
/* Sets *text to a copy of `to`, unless it is equal already. */
void text_replace(char **text, const char *to);
int text_compare(const void *a, const void *b); /* for qsort of an array of char * */
char *xstrndup(const char *text, size_t len);

/* Sums and products of numbers that a client or a peer chose. True when the result does not fit. */
static inline bool mul_overflows_i64(int64_t a, int64_t b, int64_t *ret_product) {
    return __builtin_mul_overflow(a, b, ret_product);
}
static inline bool add_overflows_i64(int64_t a, int64_t b, int64_t *ret_sum) {
    return __builtin_add_overflow(a, b, ret_sum);
}

/* A borrowed run of bytes, which need not end with a NUL. */
struct span {
    const char *data;
    size_t len;
};

static inline struct span span_of(const char *text) {
    return (struct span){text, text ? strlen(text) : 0};
}
static inline bool span_equal(struct span a, struct span b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}
static inline bool span_is(struct span a, const char *text) { return span_equal(a, span_of(text)); }

#endif
