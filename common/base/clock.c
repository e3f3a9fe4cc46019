/* Draws random numbers for incarnations, handles and hash seeds. */
#include "common/base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/random.h>

/* A forked child must not repeat the numbers of its parent: fork adds one to a generation, and
 * buffers of an older generation are dropped. */
static _Atomic unsigned fork_generation;

static void count_fork(void) {
    atomic_fetch_add_explicit(&fork_generation, 1, memory_order_relaxed);
}

static void watch_forks(void) { CHECK(pthread_atfork(NULL, NULL, count_fork) == 0); }

struct random_buffer {
    uint64_t numbers[32]; /* getrandom(2) returns 256 bytes in one piece */
    unsigned n_left;
    unsigned generation;
};

static void random_buffer_fill(struct random_buffer *buffer) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    ssize_t len;
    do {
        len = getrandom(buffer->numbers, sizeof(buffer->numbers), 0);
    } while (len < 0 && errno == EINTR);
    CHECK(len == (ssize_t)sizeof(buffer->numbers));
    buffer->n_left = ARRAY_LEN(buffer->numbers);
    buffer->generation = atomic_load_explicit(&fork_generation, memory_order_relaxed);
}

uint64_t random_u64(void) {
    static _Thread_local struct random_buffer buffer;
    for (;;) {
        if (buffer.n_left == 0 ||
            buffer.generation != atomic_load_explicit(&fork_generation, memory_order_relaxed))
            random_buffer_fill(&buffer);
        uint64_t number = buffer.numbers[--buffer.n_left];
        /* handles are secrets: used ones are erased */
        buffer.numbers[buffer.n_left] = 0;
        if (number != 0)
            return number;
    }
}
