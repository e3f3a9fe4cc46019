/* Makes kernels slower, for tests and experiments on clusters of unequal tasks
 * (tf-worker --device-scale). */
#include <time.h>

#include "common/base/clock.h"
#include "worker/executor/executor_internal.h"

enum {
    SLEEP_NS = 200 * 1000,          /* a sleep is some 60 us too long, so shorter waits spin */
    MAX_SLEEP_NS = 5 * 1000 * 1000, /* then the thread looks whether the step is cancelled */
};

void executor_slow_down(const struct executor *executor, int64_t start_ns) {
    double scale = executor->execution->scale;
    int64_t now_ns = clock_now_ns();
    if (scale <= 1)
        return;
    int64_t until_ns = start_ns + (int64_t)((double)(now_ns - start_ns) * scale);
    for (; now_ns < until_ns && !executor_is_unwanted(executor); now_ns = clock_now_ns()) {
        struct timespec sleep = {.tv_nsec = MIN(until_ns - now_ns - SLEEP_NS / 2, MAX_SLEEP_NS)};
        if (until_ns - now_ns > SLEEP_NS)
            nanosleep(&sleep, NULL);
    }
}
