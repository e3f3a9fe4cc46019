/* Calls a function at a given time, for any thread.
 *
 * A clock keeps its alarms in one heap. Its driver sleeps until the earliest alarm is due and then
 * calls alarm_clock_run: in a worker the driver is a loop's timer, in a test it is the test:
 *
 *   any thread ── alarm_set ──► heap ── the earliest changed: wake() ──► driver
 *                                 └───────── due ──► ring(), on the driver's thread
 *
 * The clock asks options.now_ns for the time, so that tests can set it. Threads: any; but
 * alarm_clock_run and alarm_clock_free are called on the driver's thread only. */
#ifndef MILLRACE_COMMON_BASE_ALARM_H
#define MILLRACE_COMMON_BASE_ALARM_H

#include "common/base/base.h"

struct alarm_clock;

/* Embedded in an object of the caller; all zero at first. The memory must stay valid until the
 * alarm has been cleared or has rung. */
struct alarm {
    /* Set by the owner before alarm_set. Called without a lock held; must not block; may set the
     * alarm again. */
    void (*ring)(struct alarm *alarm);
    int64_t at_ns; /* used by the clock */
    size_t place;  /* used by the clock: position in its heap, 0 while the alarm is not set */
};

struct alarm_clock_options {
    int64_t (*now_ns)(void *arg);
    /* The earliest alarm has become earlier: the driver must call alarm_clock_run again. Called on
     * any thread, without a lock held. */
    void (*wake)(void *arg);
    void *arg;
};

struct alarm_clock *alarm_clock_new(const struct alarm_clock_options *options);
/* Rings all alarms that are set, whatever the time, so that their owners can release what they
 * hold. No other thread may set an alarm during the call. Accepts NULL. */
void alarm_clock_free(struct alarm_clock *clock);
/* Rings the alarms that are due. Returns the time of the next one; INT64_MAX where none is set. */
int64_t alarm_clock_run(struct alarm_clock *clock);
int64_t alarm_clock_now_ns(const struct alarm_clock *clock);

/* Rings the alarm once, after at least after_us, never inside this call. The alarm must not be set
 * already. */
void alarm_set(struct alarm_clock *clock, struct alarm *alarm, int64_t after_us);
/* True: the alarm was set, and will not ring. False: it was not set, or another thread is inside
 * its ring() now. So an owner that may be freed needs a reference that ring() releases. */
bool alarm_clear(struct alarm_clock *clock, struct alarm *alarm);

#endif
