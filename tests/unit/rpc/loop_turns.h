/* Turning a loop by hand until something has happened. */
#ifndef MILLRACE_TESTS_UNIT_RPC_LOOP_TURNS_H
#define MILLRACE_TESTS_UNIT_RPC_LOOP_TURNS_H

#include <poll.h>
#include <unistd.h>

#include "rpc/loop.h"

/* One turn; waits for an event a millisecond at most, since a task that another thread posts
 * between turns wakes nobody. */
static inline void loop_turn(struct loop *loop) {
    struct pollfd events = {.fd = uv_backend_fd(loop_uv(loop)), .events = POLLIN};
    uv_run(loop_uv(loop), UV_RUN_NOWAIT);
    (void)poll(&events, 1, 1);
}

/* Whose users have gone: runs what they left behind, and ends it. */
static inline void loop_end(struct loop *loop) {
    loop_stop(loop);
    loop_run(loop);
    loop_free(loop);
}

/* The process ends by SIGALRM when it takes a minute. */
#define TURN_UNTIL(loop, condition) \
    do {                            \
        alarm(60);                  \
        while (!(condition))        \
            loop_turn(loop);        \
        alarm(0);                   \
    } while (0)

#endif
