/* Lets the threads of a program that are in calls run the loop of their session themselves, so that
 * a call costs no change of thread. One of them, the driver, runs the loop; the others wait until
 * their calls have ended, or until the driver has ended its own and hands the loop to one of them.
 *
 *   thread 1   ──begin──── drives ────────────done─┐
 *   thread 2        ──begin── waits ───────────────┴─ drives ───done
 *   thread 3           ──begin── waits ───done
 *
 * Calls therefore overlap: a step that waits for a queue does not keep another thread's step from
 * filling it. What must go on although no thread is in a call (an asynchronous step, the master of
 * a local session) needs a keeper: a thread of the library that drives when nobody else does. */
#ifndef MILLRACE_CLIENT_CALL_LOOP_H
#define MILLRACE_CLIENT_CALL_LOOP_H

#include <pthread.h>
#include <stdbool.h>

#include "rpc/loop.h"

struct call_loop {
    struct loop *loop;
    pthread_mutex_t lock; /* guards what follows */
    struct list waiting;  /* threads that do not drive: struct loop_call.link */
    bool is_driven;
    pthread_cond_t keeper_cond;
    pthread_t keeper;
    bool has_keeper, is_keeper_waiting, is_keeper_stopping;
    bool is_kept_always; /* not only while n_async > 0 */
    int n_async;         /* how many asynchronous calls have begun and not ended */
};

/* One call; on the stack of the thread that makes it. */
struct loop_call {
    void (*begin)(struct loop_call *call); /* on the loop; ends in loop_call_done, now or later */
    struct call_loop *owner;
    struct loop_task task;
    struct list link;
    pthread_cond_t cond;
    bool is_done, is_driver;
};

void call_loop_init(struct call_loop *calls);
/* Makes `begin` run on the loop, and returns when loop_call_done has been called. Any thread. */
void call_loop_run(struct call_loop *calls, struct loop_call *call,
                   void (*begin)(struct loop_call *call));
/* The call has ended. Loop thread, which is whichever drives. */
void loop_call_done(struct loop_call *call);
/* From now on the loop runs also when no thread is in a call: always, or only while asynchronous
 * calls are in progress. Any thread; later calls may only add. Errors: RESOURCE_EXHAUSTED, the
 * system has no thread left. */
struct status *call_loop_keep(struct call_loop *calls, bool always) MUST_USE;
/* An asynchronous call begins with this task on the loop; call_loop_keep has succeeded. Any
 * thread. */
void call_loop_begin_async(struct call_loop *calls, struct loop_task *task);
/* It has ended. Any thread. */
void call_loop_end_async(struct call_loop *calls);
/* Ends the keeper. No other thread uses the loop any more. */
void call_loop_end_keeper(struct call_loop *calls);
/* Frees the loop, which must have no more handles and no keeper. */
void call_loop_fini(struct call_loop *calls);

#endif
