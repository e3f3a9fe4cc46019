/* What benchmarks that are clients share: an error ends the program, a step is timed, times are
 * sorted. PROGRAM is defined before: the name in messages. */
#ifndef MILLRACE_BENCH_CLIENT_STEP_H
#define MILLRACE_BENCH_CLIENT_STEP_H

#include <stdio.h>
#include <stdlib.h>

#include "client/c_api.h"
#include "common/base/clock.h"
#include "common/base/options.h"
#include "common/base/str.h"

static inline void die_on_error(const TF_Status *status) {
    if (TF_GetCode(status) == TF_OK)
        return;
    fprintf(stderr, PROGRAM ": %s\n", TF_Message(status));
    exit(EXIT_INTERNAL);
}

/* A step of one target; how long it took, in ns. */
static inline int64_t timed_step(TF_DeprecatedSession *session, const char *node,
                                 TF_Status *status) {
    int64_t begin_ns = clock_now_ns();
    TF_Run(session, NULL, NULL, NULL, 0, NULL, NULL, 0, &node, 1, NULL, status);
    int64_t took_ns = clock_now_ns() - begin_ns;
    die_on_error(status);
    return took_ns;
}

static inline int compare_i64(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static inline void sort_times(int64_t *took_ns, size_t n) {
    qsort(took_ns, n, sizeof(*took_ns), compare_i64);
}

#endif
