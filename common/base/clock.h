/* Reads the clocks and the random generator of the system. Any thread. */
#ifndef MILLRACE_COMMON_BASE_CLOCK_H
#define MILLRACE_COMMON_BASE_CLOCK_H

#include <time.h>

#include "common/base/base.h"

/* Nanoseconds since an arbitrary start; never runs backwards. */
static inline int64_t clock_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Nanoseconds for which the calling thread has had a core. Costs a system call, some 0.2 us. */
static inline int64_t clock_thread_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Microseconds since 1970, as in step statistics. */
static inline int64_t clock_wall_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

uint64_t random_u64(void); /* from the kernel's generator, buffered per thread; never 0 */

#endif
