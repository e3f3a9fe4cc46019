/* Alarms: what is to happen at a time, for any thread.
 *
 * A clock keeps its alarms in one heap and is driven by somebody who can sleep (a loop's timer
 * in a worker, a test by hand):
 *
 *   any thread ── alarm_set ──► heap ── the earliest changed: wake() ──► driver sleeps until alarm_clock_run says
 *                                 └───────── due ──────────────────────► ring(), on the driver's thread
 *
 * Time is the clock's, not the system's, so that tests turn it by hand. Threads: any, but for
 * run and close: the driver's. */
#ifndef MILLRACE_COMMON_BASE_ALARM_H
#define MILLRACE_COMMON_BASE_ALARM_H

#include "common/base/base.h"

struct alarm_clock;

/* Embedded in who wants to be rung; all zero at first. It stays until it has been cleared or has
 * rung. */
struct alarm {
    /* the setter's; no lock is held, and nothing may block. It may set the alarm again */
    void (*ring)(struct alarm *alarm);
    int64_t at_ns; /* the clock's */
    size_t place;  /* the clock's: 0 when it is not set */
};

struct alarm_clock_options {
    int64_t (*now_ns)(void *arg);
    /* there is an earlier alarm than before: alarm_clock_run wants to be called then. Any
     * thread, no lock held */
    void (*wake)(void *arg);
    void *arg;
};

struct alarm_clock *alarm_clock_new(const struct alarm_clock_options *options);
/* Rings all that are set, whatever the time, which has come to its end: their owners let go of
 * what they hold. Other threads do not set any now. Accepts NULL. */
void alarm_clock_free(struct alarm_clock *clock);
/* Rings what is due. When the next one is: INT64_MAX for none. */
int64_t alarm_clock_run(struct alarm_clock *clock);
int64_t alarm_clock_now_ns(const struct alarm_clock *clock);

/* Rings once, not before after_us have gone by, never inside this call. It is not set. */
void alarm_set(struct alarm_clock *clock, struct alarm *alarm, int64_t after_us);
/* True: it was set, and does not ring. False: it was not, or it rings just now: who sets one and
 * may go away keeps a reference for it. */
bool alarm_clear(struct alarm_clock *clock, struct alarm *alarm);

#endif
