/* Runs a loop, one iteration at a time, until a condition holds. */
#ifndef MILLRACE_TESTS_UNIT_RPC_LOOP_UNTIL_H
#define MILLRACE_TESTS_UNIT_RPC_LOOP_UNTIL_H

#include <poll.h>
#include <unistd.h>

#include "rpc/loop.h"

/* Runs one iteration. It waits at most a millisecond for an event, because a task that another
 * thread posts between iterations does not wake the loop. */
static inline void loop_iterate(struct loop *loop) {
    struct pollfd events = {.fd = uv_backend_fd(loop_uv(loop)), .events = POLLIN};
    uv_run(loop_uv(loop), UV_RUN_NOWAIT);
    (void)poll(&events, 1, 1);
}

/* Runs the remaining tasks of a loop that has no more users, and frees it. */
static inline void loop_end(struct loop *loop) {
    loop_stop(loop);
    loop_run(loop);
    loop_free(loop);
}

/* SIGALRM kills the process after a minute. */
#define LOOP_UNTIL(loop, condition) \
    do {                            \
        alarm(60);                  \
        while (!(condition))        \
            loop_iterate(loop);     \
        alarm(0);                   \
    } while (0)

#endif
