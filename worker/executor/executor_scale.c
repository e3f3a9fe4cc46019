/* Times kernels, and makes them slower for tests and experiments on clusters of unequal tasks
 * (tf-worker --device-scale). */
#include <time.h>

#include "common/base/clock.h"
#include "common/base/pool.h"
#include "worker/executor/executor_internal.h"

enum {
    SLEEP_NS = 200 * 1000,          /* a sleep is some 60 us too long, so shorter waits spin */
    MAX_SLEEP_NS = 5 * 1000 * 1000, /* then the thread looks whether the step is cancelled */
};

struct kernel_start kernel_start_now(void) {
    return (struct kernel_start){.at_ns = clock_now_ns(),
                                 .busy_ns = clock_thread_ns() + pool_waited_ns()};
}

int64_t executor_slow_down(const struct executor *executor, struct kernel_start start) {
    double scale = executor->execution->scale;
    struct kernel_start now = kernel_start_now();
    int64_t busy_ns = now.busy_ns - start.busy_ns;
    if (scale <= 1)
        return busy_ns;
    int64_t until_ns = now.at_ns + (int64_t)((double)busy_ns * (scale - 1));
    for (int64_t at_ns = now.at_ns; at_ns < until_ns && !executor_is_unwanted(executor);
         at_ns = clock_now_ns()) {
        struct timespec sleep = {.tv_nsec = MIN(until_ns - at_ns - SLEEP_NS / 2, MAX_SLEEP_NS)};
        if (until_ns - at_ns > SLEEP_NS)
            nanosleep(&sleep, NULL);
    }
    return (int64_t)((double)busy_ns * scale);
}
