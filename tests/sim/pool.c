/* common/base/pool.h in the simulation: a job is an event of its process, on one of the pool's
 * threads. */
#include "common/base/pool.h"
#include "common/base/pool_cancel.h"
#include "common/base/pool_load.h"

#include <stdlib.h>

#include "tests/sim/sim.h"

struct pool {
    struct sim_process *process;
    int first_thread, n_threads;
    unsigned busy; /* threads that have a job, by bit */
    bool is_io;
    struct pool_task *first, **last; /* waiting */
};

enum { DEFAULT_THREADS = 2, IO_FIRST_THREAD = 10, MIN_SHARE_NS = 20000 };

struct job {
    struct pool *pool;
    struct pool_task *task;
    int thread;
};

static struct pool *pool_make(int n_threads, int first_thread, bool is_io) {
    struct pool *pool = xcalloc(1, sizeof(*pool));
    *pool = (struct pool){.process = sim_current, .first_thread = first_thread, .is_io = is_io};
    pool->n_threads =
        MIN(n_threads > 0 ? n_threads : DEFAULT_THREADS, SIM_MAX_THREADS - first_thread);
    pool->last = &pool->first;
    return pool;
}

struct pool *pool_new(int n_threads) {
    return pool_make(MIN(n_threads, IO_FIRST_THREAD - 1), 1, false);
}
struct pool *pool_new_io(int n_threads) {
    return pool_make(n_threads, IO_FIRST_THREAD, true);
}
int pool_n_threads(const struct pool *pool) { return pool->n_threads; }
bool pool_is_current(void) { return sim_thread > 0 && sim_thread < IO_FIRST_THREAD; }

static void start_waiting(struct pool *pool);

static void run_job(void *arg) {
    struct job *job = arg;
    struct pool *pool = job->pool;
    struct pool_task *task = job->task;
    int thread = job->thread;
    free(job);
    task->run(task);
    pool->busy &= ~(1u << thread);
    start_waiting(pool);
}

static void on_job(void *arg, uint64_t number) {
    struct job *job = arg;
    sim_process_run(job->pool->process, job->thread, run_job, job);
}

/* Each free thread takes the first that waits; how soon it runs is drawn, so jobs on two threads
 * may change places. */
static void start_waiting(struct pool *pool) {
    for (int i = 0; i < pool->n_threads && pool->first; i++) {
        int thread = pool->first_thread + i;
        if (pool->busy & (1u << thread))
            continue;
        struct job *job = xcalloc(1, sizeof(*job));
        *job = (struct job){.pool = pool, .task = pool->first, .thread = thread};
        pool->first = pool->first->next;
        if (!pool->first)
            pool->last = &pool->first;
        pool->busy |= 1u << thread;
        sim_at(sim_now_ns() + (sim_chance(30) ? sim_between(0, 20 * SIM_MS)
                                              : sim_between(SIM_US, 200 * SIM_US)),
               on_job, job, 0);
    }
}

void pool_submit(struct pool *pool, struct pool_task *task) {
    task->next = NULL;
    *pool->last = task;
    pool->last = &task->next;
    start_waiting(pool);
}

bool pool_is_busy(struct pool *pool) {
    int n_free = pool->n_threads - __builtin_popcount(pool->busy) + pool_is_current();
    int n_queued = 0;
    for (const struct pool_task *task = pool->first; task; task = task->next)
        n_queued++;
    return n_queued >= n_free;
}

/* Sleeps until the threads have done what is queued, as joining them does. */
void pool_free(struct pool *pool) {
    if (!pool)
        return;
    while (pool->busy)
        sim_sleep(SIM_MS);
    free(pool);
}

const struct pool_cancel *pool_set_cancel(const struct pool_cancel *cancel) {
    (void)cancel; /* loops take no virtual time */
    return NULL;
}

bool pool_is_unwanted(void) { return false; }

int64_t pool_waited_ns(void) { return 0; }

/* Shares in an order that is drawn; all on the caller's stack, as its own thread may do them
 * all. */
void pool_parallel_for(struct pool *pool, int64_t n, double cost_ns,
                       void (*fn)(void *arg, int64_t begin, int64_t end), void *arg) {
    int64_t share = (int64_t)((double)MIN_SHARE_NS / (cost_ns > 0 ? cost_ns : 1)) + 1;
    int64_t n_shares = pool ? MIN((n + share - 1) / share, (int64_t)(2 * pool->n_threads)) : 1;
    if (n <= 0)
        return;
    if (n_shares <= 1) {
        fn(arg, 0, n);
        return;
    }
    int64_t first = (int64_t)sim_below((uint64_t)n_shares), size = (n + n_shares - 1) / n_shares;
    for (int64_t i = 0; i < n_shares; i++) {
        int64_t begin = (first + i) % n_shares * size;
        if (begin < n)
            fn(arg, begin, MIN(begin + size, n));
    }
}
