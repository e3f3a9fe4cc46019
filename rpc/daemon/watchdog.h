/* Feeds systemd's watchdog from the event loop, so that systemd restarts a daemon whose loop has
 * stopped. Loop thread. */
#ifndef MILLRACE_RPC_DAEMON_WATCHDOG_H
#define MILLRACE_RPC_DAEMON_WATCHDOG_H

#include "rpc/loop.h"

struct watchdog {
    struct loop_timer timer;
};

/* Says that the daemon is ready, and from now on twice in each period that it is alive. Does
 * nothing where no systemd listens; where one is slow, waits some seconds. `watchdog` must be
 * zeroed. It must live until the loop has
 * ended. */
void watchdog_start(struct loop *loop, struct watchdog *watchdog);
/* Says that the daemon will end within that time, so that systemd waits for it, however short its
 * own limit is. May be said again. */
void watchdog_stopping(int64_t within_ms);
/* What ending takes once no step runs any more. */
enum { WATCHDOG_STOP_MS = 15000 };
/* From now on the process ends in time, with exit_code, also if one of its threads never does: a
 * call of a GPU's driver may not return. Called when the loop has ended. Any thread. */
void watchdog_end_in_time(int exit_code);
/* Ends the process at once, whatever its threads do. Any thread. */
_Noreturn void watchdog_end_now(int exit_code);
/* Ends the feeding, so that the loop can end. A watchdog that was never started may be closed. */
void watchdog_close(struct watchdog *watchdog);

#endif
