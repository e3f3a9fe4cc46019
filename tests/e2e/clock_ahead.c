/* A library for LD_PRELOAD: the wall clock of the process is ahead by MILLRACE_TEST_CLOCK_AHEAD_MS.
 */
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static long ahead_ms = -1;
    if (ahead_ms < 0)
        ahead_ms = strtol(getenv("MILLRACE_TEST_CLOCK_AHEAD_MS"), NULL, 10);
    int rc = (int)syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME)
        now->tv_sec += ahead_ms / 1000;
    return rc;
}
