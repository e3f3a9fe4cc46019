/* Feeds systemd's watchdog, and ends a process that does not end by itself. */
#include "rpc/daemon/watchdog.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/notify.h"
#include "common/base/str.h"

static void feed(struct loop_timer *timer) { notify_send("WATCHDOG=1"); }

void watchdog_start(struct loop *loop, struct watchdog *watchdog) {
    int64_t period_ms = notify_watchdog_ms();
    notify_send_waiting("READY=1");
    if (period_ms == 0)
        return;
    int64_t feed_ms = MAX(period_ms / 2, 1);
    loop_timer_init(loop, &watchdog->timer, feed);
    loop_timer_start(&watchdog->timer, feed_ms, feed_ms);
}

void watchdog_stopping(int64_t within_ms) {
    struct str lines = STR_INIT;
    str_addf(&lines, "STOPPING=1\nEXTEND_TIMEOUT_USEC=%lld", (long long)within_ms * 1000);
    notify_send(str_text(&lines));
    str_fini(&lines);
}

void watchdog_close(struct watchdog *watchdog) {
    if (!watchdog->timer.is_open)
        return;
    loop_timer_stop(&watchdog->timer);
    loop_timer_close(&watchdog->timer, NULL);
}

/* ---- the end of the process ---- */

enum { END_S = WATCHDOG_STOP_MS / 1000 - 5 }; /* systemd waits a little longer */

/* exit() would wait for what hangs: a driver has functions of its own that it calls. */
void watchdog_end_now(int exit_code) {
    log_flush_repeats(true);
    _exit(exit_code);
}

static void *end_late(void *arg) {
    const int *exit_code = arg;
    struct timespec left = {.tv_sec = END_S};
    while (nanosleep(&left, &left) != 0)
        ;
    log_event(EVENT_STOP_TIMEOUT,
              "a thread has not ended %d s after all work was ended: exiting without it", END_S);
    watchdog_end_now(*exit_code);
}

void watchdog_end_in_time(int exit_code) {
    static int code;
    pthread_t thread;
    code = exit_code;
    if (pthread_create(&thread, NULL, end_late, &code) == 0)
        pthread_detach(thread);
}
