/* The event loop of a daemon: libuv, with the few calls that the rest of the house needs.
 *
 * One thread runs a loop; everything of rpc/ that belongs to it (connections, timers) is touched
 * on that thread only. Other threads reach it by loop_post. A callback runs exactly once, never
 * inside the call that registered it. */
#ifndef MILLRACE_RPC_LOOP_H
#define MILLRACE_RPC_LOOP_H

#include "common/base/list.h"
#include "common/base/status.h"

#include <uv.h> /* after base.h: it drags in sys/param.h, whose MIN and MAX clash the other way round */

struct loop;

/* Embedded in the poster's object: posting allocates nothing. */
struct loop_task {
    void (*run)(struct loop_task *task);
    struct loop_task *next; /* the loop's */
};

struct loop *loop_new(void);
void loop_free(struct loop *loop); /* after loop_run returned */
void loop_run(struct loop *loop);  /* until loop_stop and until all handles are closed */
/* One turn: sleeps until something happens and handles it. For a thread that waits for one
 * answer (the C client): a task or timer that ran counts, so `while (!is_done)
 * loop_run_once(loop)` never sleeps through what it waits for. */
void loop_run_once(struct loop *loop);
void loop_stop(struct loop *loop); /* loop thread */
uv_loop_t *loop_uv(struct loop *loop);
/* on the loop's thread? (before loop_run: the thread that made it) */
bool loop_is_current(const struct loop *loop);

/* A socket's callback may say first that the loop is awake: what other threads post while it
 * runs then costs them no wake-up. Not needed otherwise. Loop thread, in a callback of a socket
 * only. */
void loop_awake(struct loop *loop);

/* One receive buffer for all connections of the loop: a read callback fills it and has used up
 * its contents when it returns. Loop thread. */
enum { LOOP_READ_BUFFER_BYTES = 256 * 1024 };
char *loop_read_buffer(struct loop *loop);

/* Runs the task on the loop thread soon. Any thread. Wakes the loop only when it sleeps. FIFO. */
void loop_post(struct loop *loop, struct loop_task *task);
/* Runs the task on the loop thread after all events that are ready now have been handled, before
 * the loop sleeps: where what a quiescent point has to send leaves in one write. Loop thread. */
void loop_defer(struct loop *loop, struct loop_task *task);

/* One-shot and repeating timers, embedded in their owner. Loop thread. The owner's memory may go
 * once `on_closed` ran. */
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

#endif
