/* Runs the event loop of a daemon, over libuv.
 *
 * One thread at a time runs a loop. The connections and timers of a loop are used on that thread
 * only; other threads reach it by loop_post. A callback runs exactly once, never inside the call
 * that registered it. */
#ifndef MILLRACE_RPC_LOOP_H
#define MILLRACE_RPC_LOOP_H

#include "common/base/list.h"
#include "common/base/status.h"

/* After base.h, because it includes sys/param.h, which defines MIN and MAX, too. */
#include <uv.h>

struct loop;

/* Is part of the poster's own object, so posting allocates nothing. The object must live until
 * `run` is called, and the task may be posted again only then. */
struct loop_task {
    void (*run)(struct loop_task *task);
    struct loop_task *next; /* the loop's */
};

struct loop *loop_new(void);
void loop_free(struct loop *loop); /* after loop_run returned */
void loop_run(struct loop *loop);  /* until loop_stop and until all handles are closed */
/* Runs one iteration: sleeps until an event, a task or a timer is due, and handles it. For a thread
 * that waits for one reply (the C client): `while (!is_done) loop_run_once(loop)`. */
void loop_run_once(struct loop *loop);
void loop_stop(struct loop *loop); /* loop thread */
uv_loop_t *loop_uv(struct loop *loop);
/* Is the caller on the loop's thread? That is the one that made the loop, runs it, or has claimed
 * it. */
bool loop_is_current(const struct loop *loop);
/* For loops that threads take turns to run (client/call_loop.h): nobody runs the loop now, or the
 * caller will. Running it claims it. */
void loop_release(struct loop *loop);
void loop_claim(struct loop *loop);

/* Says that the loop is awake. A callback of a socket may call this first: then other threads that
 * post while it runs need no system call to wake the loop. Optional. Loop thread, in a callback of
 * a socket only. */
void loop_awake(struct loop *loop);

/* Returns the receive buffer that all connections of the loop share. A read callback fills it and
 * must have used its contents when it returns. Loop thread. */
enum { LOOP_READ_BUFFER_BYTES = 256 * 1024 };
char *loop_read_buffer(struct loop *loop);

/* Runs the task on the loop thread soon, in the order of posting. Wakes the loop only when it
 * sleeps. Any thread. */
void loop_post(struct loop *loop, struct loop_task *task);
/* Runs the task on the loop thread after all events that are ready now have been handled, and
 * before the loop sleeps. Whoever has something to send defers it, so that all of it leaves in
 * one write. Loop thread. */
void loop_defer(struct loop *loop, struct loop_task *task);

/* A timer that fires once or repeatedly. It is part of its owner, whose memory may be freed once
 * `on_closed` has run. Loop thread. */
struct loop_timer {
    uv_timer_t uv;
    void (*on_fire)(struct loop_timer *timer);
    void (*on_closed)(struct loop_timer *timer);
    bool is_open;
};
void loop_timer_init(struct loop *loop, struct loop_timer *timer,
                     void (*on_fire)(struct loop_timer *timer));
/* restarts a running one */
void loop_timer_start(struct loop_timer *timer, int64_t timeout_ms, int64_t repeat_ms);
void loop_timer_stop(struct loop_timer *timer);
/* on_closed may be NULL */
void loop_timer_close(struct loop_timer *timer, void (*on_closed)(struct loop_timer *timer));

/* SIGTERM and SIGINT call on_signal(arg, signo) on the loop thread; a second one of the same
 * kind too. SIGPIPE is ignored. */
void loop_on_signals(struct loop *loop, void (*on_signal)(void *arg, int signo), void *arg);
/* The same for SIGHUP, which else ends the process. */
void loop_on_hangup(struct loop *loop, void (*on_hangup)(void *arg), void *arg);
/* The same for SIGUSR1. */
void loop_on_user_signal(struct loop *loop, void (*on_user_signal)(void *arg), void *arg);

#endif
