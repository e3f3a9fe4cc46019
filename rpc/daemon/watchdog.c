/* Feeds systemd's watchdog. */
#include "rpc/daemon/watchdog.h"

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
