/* The process's one pool of compute threads: whole tasks, and loops split in shares.
 *
 * Threads meet in two calls only: post to a loop (rpc/loop.h) and submit to a pool. Work never
 * blocks in the pool. */
#ifndef MILLRACE_COMMON_BASE_POOL_H
#define MILLRACE_COMMON_BASE_POOL_H

#include "common/base/base.h"

struct pool;

/* Embedded in the submitter's object: submitting allocates nothing. Owned by the pool from
 * submit until `run` is called; `run` may free or resubmit it. */
struct pool_task {
    void (*run)(struct pool_task *task);
    struct pool_task *next; /* the pool's */
};

/* n_threads <= 0: as many as the process may use cores; threads start at first submit */
struct pool *pool_new(int n_threads);
/* A group for work that blocks (files): its threads are named io/N, and pool_is_current is false
 * on them. */
struct pool *pool_new_io(int n_threads);
void pool_free(struct pool *pool); /* runs what is queued, then joins the threads */
int pool_n_threads(const struct pool *pool);

/* First in, first out. `run` is called exactly once, on a pool thread, never inside this call.
 * Any thread. */
void pool_submit(struct pool *pool, struct pool_task *task);

/* Calls fn(arg, begin, end) for disjoint ranges that cover [0, n), in parallel where it pays,
 * and returns when all are done. The caller works too, and never waits for a range that nobody
 * has started, so nested use cannot deadlock.
 *   cost_ns  one unit's estimated cost; ranges below about 20 µs are not split
 * A NULL pool runs everything in the caller. Any thread. */
void pool_parallel_for(struct pool *pool, int64_t n, double cost_ns,
                       void (*fn)(void *arg, int64_t begin, int64_t end), void *arg);

/* True on a compute thread, of any pool. */
bool pool_is_current(void);

#endif
