/* Runs tasks, and loops split into ranges, on a process's compute threads.
 *
 * Work reaches another thread by two calls only: loop_post (rpc/loop.h) and pool_submit. Work must
 * not block on a compute thread. */
#ifndef MILLRACE_COMMON_BASE_POOL_H
#define MILLRACE_COMMON_BASE_POOL_H

#include "common/base/base.h"

struct pool;

/* Embedded in an object of the submitter, so that submitting allocates nothing. The pool owns the
 * task from pool_submit until it calls `run`; `run` may free or resubmit it. */
struct pool_task {
    void (*run)(struct pool_task *task);
    struct pool_task *next; /* used by the pool */
};

/* n_threads <= 0: one for each core that the process may use. Threads start at the first submit. */
struct pool *pool_new(int n_threads);
/* A pool for work that blocks (files). Its threads are named io/N, and pool_is_current is false on
 * them. */
struct pool *pool_new_io(int n_threads);
void pool_free(struct pool *pool); /* runs what is queued, then joins the threads */
int pool_n_threads(const struct pool *pool);

/* First in, first out. `run` is called exactly once, on a pool thread, never inside this call.
 * Any thread. */
void pool_submit(struct pool *pool, struct pool_task *task);

/* Calls fn(arg, begin, end) for disjoint ranges that cover [0, n), in parallel where that pays, and
 * returns when all have ended. The caller runs ranges as well and waits only for ranges that a
 * thread has started, so that nested calls cannot deadlock.
 *   cost_ns  the estimated cost of one of the n units; ranges below about 20 µs are not split
 * With a NULL pool the caller runs everything. Any thread. */
void pool_parallel_for(struct pool *pool, int64_t n, double cost_ns,
                       void (*fn)(void *arg, int64_t begin, int64_t end), void *arg);

/* For how long the calling thread has slept in pool_parallel_for so far, until other threads had
 * ended their ranges. */
int64_t pool_waited_ns(void);

/* Is the caller a compute thread of any pool? */
bool pool_is_current(void);

#endif
