/* The compute threads: a first-in first-out queue under one mutex, and loops split in shares on
 * top of it.
 *
 * Waking a thread is a system call of some microseconds. So no more threads are woken than tasks
 * wait, and no thread wakes many: a submitter wakes at most WAKES_AT_ONCE, and each thread that
 * takes a task while more wait does the same. Sixteen threads are awake after four rounds, and the
 * submitter continues early. A thread that was woken or started is "coming" until it looks at the
 * queue. The thread that fell asleep last is woken first, because its caches are warm, and the
 * other cores can stay idle. */
#include "common/base/pool.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/thread.h"
#include "common/base/denormals.h"
#include "common/base/pool_cancel.h"
#include "common/base/pool_load.h"

enum { POOL_STACK_BYTES = 2 * 1024 * 1024, WAKES_AT_ONCE = 2 };

struct pool_thread {
    pthread_t id;
    pthread_cond_t woken;
    bool is_granted; /* a wake-up */
    /* next in the list of sleepers: the thread that fell asleep before this one */
    struct pool_thread *next;
    struct pool *pool;
};

struct pool {
    int n_threads; /* the maximum number of threads; constant */
    bool is_io;    /* constant */

    pthread_mutex_t mutex; /* guards all fields below */
    struct pool_task *head, **tail;
    _Atomic int64_t n_queued;     /* helpers of loops read it without the mutex */
    int n_started;                /* threads[0 .. n_started) exist */
    int n_starting;               /* started threads that have not reached the queue yet */
    int n_granted;                /* woken threads that have not reached the queue yet */
    struct pool_thread *sleepers; /* sleeping threads that were not woken */
    bool is_stopping;
    _Atomic int n_signalling; /* threads that have unlocked, and wake others */
    struct pool_thread threads[];
};

static _Thread_local bool is_pool_thread;
static _Thread_local const struct pool_cancel *current_cancel;

bool pool_is_current(void) { return is_pool_thread; }

const struct pool_cancel *pool_set_cancel(const struct pool_cancel *cancel) {
    const struct pool_cancel *before = current_cancel;
    current_cancel = cancel;
    return before;
}

/* ---- threads ---- */

static int count_usable_cores(void) {
    /* The kernel refuses a set smaller than its own; 1024 is the fixed size that old hosts and
     * containers have. */
    for (int n_cpus = 1024; n_cpus <= 1024 * 64; n_cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(n_cpus);
        size_t size_bytes = CPU_ALLOC_SIZE(n_cpus);
        if (!set)
            break;
        int n_usable =
            sched_getaffinity(0, size_bytes, set) == 0 ? CPU_COUNT_S(size_bytes, set) : 0;
        CPU_FREE(set);
        if (n_usable > 0)
            return n_usable;
    }
    return 1;
}

static struct pool_task *take_task(struct pool *pool) {
    struct pool_task *task = pool->head;
    if (!task)
        return NULL;
    pool->head = task->next;
    if (!pool->head)
        pool->tail = &pool->head;
    atomic_fetch_sub_explicit(&pool->n_queued, 1, memory_order_relaxed);
    return task;
}

static void *pool_thread_main(void *arg);

/* Mutex held, so that the threads array is complete whenever pool_free reads it. */
static bool start_thread(struct pool *pool) {
    pthread_attr_t attr;
    struct pool_thread *thread = &pool->threads[pool->n_started];
    CHECK(pthread_attr_init(&attr) == 0);
    CHECK(pthread_attr_setstacksize(&attr, POOL_STACK_BYTES) == 0);
    int error = thread_start(&thread->id, &attr, pool_thread_main, thread);
    pthread_attr_destroy(&attr);
    if (error != 0) {
        /* With one thread the tasks still run; with none they never would. */
        CHECK(pool->n_started > 0);
        return false;
    }
    char name[16];
    snprintf(name, sizeof(name), "%s/%d", pool->is_io ? "io" : "pool", pool->n_started);
    pthread_setname_np(thread->id, name);
    pool->n_started++;
    pool->n_starting++;
    return true;
}

/* Wakes the thread that fell asleep last. The mutex is held; the caller signals after it has
 * unlocked. */
static struct pool_thread *grant_wake_up(struct pool *pool) {
    struct pool_thread *thread = pool->sleepers;
    pool->sleepers = thread->next;
    pool->n_granted++;
    thread->is_granted = true;
    return thread;
}

/* Unlocks the mutex, after waking or starting more threads if more tasks are queued than threads
 * are on their way to the queue. */
static void unlock_and_wake(struct pool *pool) {
    struct pool_thread *woken[WAKES_AT_ONCE];
    int n_woken = 0;
    for (int i = 0; i < WAKES_AT_ONCE && pool->n_queued > pool->n_granted + pool->n_starting; i++) {
        if (pool->sleepers)
            woken[n_woken++] = grant_wake_up(pool);
        else if (pool->n_started == pool->n_threads || !start_thread(pool))
            break;
    }
    if (n_woken > 0)
        atomic_fetch_add_explicit(&pool->n_signalling, 1, memory_order_relaxed);
    pthread_mutex_unlock(&pool->mutex);
    if (n_woken == 0)
        return;
    for (int i = 0; i < n_woken; i++)
        pthread_cond_signal(&woken[i]->woken);
    atomic_fetch_sub_explicit(&pool->n_signalling, 1, memory_order_release);
}

/* Mutex held. */
static void sleep_until_granted(struct pool_thread *thread) {
    struct pool *pool = thread->pool;
    thread->is_granted = false;
    thread->next = pool->sleepers;
    pool->sleepers = thread;
    while (!thread->is_granted)
        pthread_cond_wait(&thread->woken, &pool->mutex);
    pool->n_granted--;
}

static void *pool_thread_main(void *arg) {
    struct pool_thread *thread = arg;
    struct pool *pool = thread->pool;
    is_pool_thread = !pool->is_io;
    denormals_flush_to_zero();
    pthread_mutex_lock(&pool->mutex);
    pool->n_starting--;
    for (;;) {
        struct pool_task *task = take_task(pool);
        if (task) {
            unlock_and_wake(pool);
            task->run(task);
            pthread_mutex_lock(&pool->mutex);
        } else if (pool->is_stopping) {
            break;
        } else {
            sleep_until_granted(thread);
        }
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

struct pool *pool_new(int n_threads) {
    if (n_threads <= 0)
        n_threads = count_usable_cores();
    struct pool *pool = xcalloc(1, sizeof(*pool) + (size_t)n_threads * sizeof(pool->threads[0]));
    pool->n_threads = n_threads;
    pool->tail = &pool->head;
    CHECK(pthread_mutex_init(&pool->mutex, NULL) == 0);
    for (int i = 0; i < n_threads; i++) {
        pool->threads[i].pool = pool;
        CHECK(pthread_cond_init(&pool->threads[i].woken, NULL) == 0);
    }
    return pool;
}

struct pool *pool_new_io(int n_threads) {
    struct pool *pool = pool_new(n_threads);
    pool->is_io = true; /* no thread has started yet */
    return pool;
}

void pool_free(struct pool *pool) {
    if (!pool)
        return;
    pthread_mutex_lock(&pool->mutex);
    pool->is_stopping = true;
    while (pool->sleepers)
        pthread_cond_signal(&grant_wake_up(pool)->woken);
    /* The last tasks may submit more, and that may start a thread, so the number is read again
     * after each join. */
    for (int i = 0; i < pool->n_started; i++) {
        pthread_mutex_unlock(&pool->mutex);
        pthread_join(pool->threads[i].id, NULL);
        pthread_mutex_lock(&pool->mutex);
    }
    CHECK(!pool->head);
    pthread_mutex_unlock(&pool->mutex);
    /* The task of a thread that is not the pool's may have run before that thread has left. */
    while (atomic_load_explicit(&pool->n_signalling, memory_order_acquire) > 0)
        sched_yield();
    for (int i = 0; i < pool->n_threads; i++)
        pthread_cond_destroy(&pool->threads[i].woken);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

int pool_n_threads(const struct pool *pool) { return pool->n_threads; }

/* Mutex held. */
static void push_task(struct pool *pool, struct pool_task *task) {
    task->next = NULL;
    *pool->tail = task;
    pool->tail = &task->next;
    atomic_fetch_add_explicit(&pool->n_queued, 1, memory_order_relaxed);
}

void pool_submit(struct pool *pool, struct pool_task *task) {
    pthread_mutex_lock(&pool->mutex);
    push_task(pool, task);
    unlock_and_wake(pool);
}

bool pool_is_busy(struct pool *pool) {
    pthread_mutex_lock(&pool->mutex);
    int64_t n_free =
        pool->n_threads - pool->n_started + pool->n_starting + pool->n_granted + pool_is_current();
    for (const struct pool_thread *thread = pool->sleepers; thread; thread = thread->next)
        n_free++;
    bool is_busy = pool->n_queued >= n_free;
    pthread_mutex_unlock(&pool->mutex);
    return is_busy;
}

/* ---- loops ---- */

enum {
    /* below this, handing a range to another thread costs as much as it saves */
    RANGE_MIN_NS = 20 * 1000,
    RANGE_ROUND = 64,
    /* so that one slow core delays the end by at most a quarter of its share */
    RANGES_PER_THREAD = 4,
    /* A few microseconds. The other ranges are as long as this one, so they end at about this
     * time. */
    SPINS_BEFORE_SLEEP = 200,
    /* of a range whose result may become unwanted: estimates are wrong by some factor */
    RANGE_MAX_NS = 10 * 1000 * 1000,
    /* after a range of this length another task may take the helper's thread */
    RANGE_YIELD_NS = 500 * 1000,
    /* Of a range of cheap units: the estimate of an element's cost may be wrong by a factor of a
     * hundred (special functions), so such a range begins with a small piece, whose time says how
     * long the others may be. */
    PIECE_NS = 5 * 1000 * 1000,
    PIECES_AT_FIRST = 64,
    PIECE_GROWTH = 8,
    PIECE_UNIT_MAX_NS =
        1000, /* a dearer unit is a row of a product, which small pieces slow down */
};

struct loop_helper {
    struct pool_task task;
    struct loop *loop;
};

/* One parallel loop. Helper tasks share it; those that run only after it has ended find no range,
 * use neither fn nor arg, and release their reference. */
struct loop {
    void (*fn)(void *arg, int64_t begin, int64_t end);
    void *arg;
    struct pool *pool;
    const struct pool_cancel *cancel;
    int64_t n, range; /* constant */
    double cost_ns;   /* constant */
    bool yields;
    _Atomic int refs;
    _Atomic int64_t next_range; /* claimed by fetch_add */
    _Atomic int64_t n_done;     /* units whose fn has returned */
    pthread_mutex_t mutex;      /* with `ended`, for the caller's sleep on n_done == n */
    pthread_cond_t ended;
    struct loop_helper helpers[];
};

static void loop_unref(struct loop *loop) {
    if (atomic_fetch_sub_explicit(&loop->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_cond_destroy(&loop->ended);
    pthread_mutex_destroy(&loop->mutex);
    free(loop);
}

static bool is_unwanted(const struct pool_cancel *cancel) {
    return cancel && unlikely(cancel->is_unwanted(cancel->arg));
}

bool pool_is_unwanted(void) { return is_unwanted(current_cancel); }

/* Runs a range, and leaves out what has not begun once the result is unwanted. */
static void run_range(void (*fn)(void *arg, int64_t begin, int64_t end), void *arg, int64_t begin,
                      int64_t end, double cost_ns, const struct pool_cancel *cancel) {
    bool has_pieces = cancel && cost_ns < PIECE_UNIT_MAX_NS &&
                      (double)(end - begin) * cost_ns > (double)PIECE_NS / PIECES_AT_FIRST;
    int64_t piece = has_pieces ? MAX((end - begin) / PIECES_AT_FIRST, 1) : end - begin;
    while (begin < end && !is_unwanted(cancel)) {
        int64_t next = MIN(begin + piece, end), start_ns = next < end ? clock_now_ns() : 0;
        fn(arg, begin, next);
        begin = next;
        if (begin == end)
            break;
        int64_t took_ns = MAX(clock_now_ns() - start_ns, (int64_t)1);
        double growth = MIN((double)PIECE_NS / (double)took_ns, (double)PIECE_GROWTH);
        piece = MAX((int64_t)((double)piece * growth), 1);
    }
}

enum loop_result { LOOP_OVER, LOOP_ENDED_HERE, LOOP_YIELDED };

/* Runs ranges until none is left, or until a helper has something else to do. LOOP_ENDED_HERE: the
 * last unit of the loop ended on this thread. */
static enum loop_result loop_work(struct loop *loop, bool is_helper) {
    const struct pool_cancel *before = pool_set_cancel(loop->cancel);
    int64_t n_ranges = (loop->n - 1) / loop->range + 1;
    int64_t n_mine = 0, i;
    bool yields = false;
    while (!yields &&
           (i = atomic_fetch_add_explicit(&loop->next_range, 1, memory_order_relaxed)) < n_ranges) {
        int64_t begin = i * loop->range, end = i == n_ranges - 1 ? loop->n : begin + loop->range;
        run_range(loop->fn, loop->arg, begin, end, loop->cost_ns, loop->cancel);
        n_mine += end - begin;
        yields = is_helper && loop->yields &&
                 atomic_load_explicit(&loop->pool->n_queued, memory_order_relaxed) > 0;
    }
    pool_set_cancel(before);
    if (n_mine > 0 &&
        atomic_fetch_add_explicit(&loop->n_done, n_mine, memory_order_acq_rel) + n_mine == loop->n)
        return LOOP_ENDED_HERE;
    return yields ? LOOP_YIELDED : LOOP_OVER;
}

static void loop_helper_run(struct pool_task *task) {
    struct loop *loop = CONTAINER_OF(task, struct loop_helper, task)->loop;
    enum loop_result result = loop_work(loop, true);
    if (result == LOOP_YIELDED) { /* behind the tasks that wait */
        pool_submit(loop->pool, task);
        return;
    }
    if (result == LOOP_ENDED_HERE) {
        pthread_mutex_lock(&loop->mutex);
        pthread_cond_signal(&loop->ended);
        pthread_mutex_unlock(&loop->mutex);
    }
    loop_unref(loop);
}

static bool loop_is_done(struct loop *loop) {
    return atomic_load_explicit(&loop->n_done, memory_order_acquire) == loop->n;
}

static _Thread_local int64_t waited_ns; /* of pool_waited_ns */

int64_t pool_waited_ns(void) { return waited_ns; }

static void loop_wait(struct loop *loop) {
    for (int i = 0; i < SPINS_BEFORE_SLEEP; i++) {
        if (loop_is_done(loop))
            return;
#if defined(__x86_64__) || defined(__i386__)
        __builtin_ia32_pause();
#endif
    }
    int64_t start_ns = clock_now_ns();
    pthread_mutex_lock(&loop->mutex);
    while (!loop_is_done(loop))
        pthread_cond_wait(&loop->ended, &loop->mutex);
    pthread_mutex_unlock(&loop->mutex);
    waited_ns += clock_now_ns() - start_ns;
}

static struct loop *loop_new(struct pool *pool, int64_t n, int64_t range, double cost_ns,
                             int n_helpers, void (*fn)(void *arg, int64_t begin, int64_t end),
                             void *arg) {
    struct loop *loop = xmalloc(sizeof(*loop) + (size_t)n_helpers * sizeof(loop->helpers[0]));
    loop->pool = pool;
    loop->cancel = current_cancel;
    loop->fn = fn;
    loop->arg = arg;
    loop->n = n;
    loop->range = range;
    loop->cost_ns = cost_ns;
    atomic_init(&loop->refs, n_helpers + 1);
    atomic_init(&loop->next_range, 0);
    atomic_init(&loop->n_done, 0);
    pthread_mutex_init(&loop->mutex, NULL);
    pthread_cond_init(&loop->ended, NULL);
    for (int i = 0; i < n_helpers; i++)
        loop->helpers[i] = (struct loop_helper){{.run = loop_helper_run}, loop};
    return loop;
}

/* The number of units that make a range. A cost that is NaN or not positive counts as a
 * nanosecond. */
static int64_t least_range(int64_t n, double cost_ns) {
    if (!(cost_ns >= 1e-3))
        cost_ns = 1;
    double units = ceil(RANGE_MIN_NS / cost_ns);
    return units >= (double)n ? n : MAX((int64_t)units, 1);
}

/* The most units of a range whose result may become unwanted. */
static int64_t most_units(double cost_ns) {
    double units = RANGE_MAX_NS / (cost_ns >= 1e-3 ? cost_ns : 1);
    return units >= (double)(INT64_MAX / 2) ? INT64_MAX / 2 : MAX((int64_t)units, 1);
}

static void run_alone(int64_t n, double cost_ns, void (*fn)(void *arg, int64_t begin, int64_t end),
                      void *arg) {
    int64_t step = current_cancel ? most_units(cost_ns) : n;
    for (int64_t begin = 0; begin < n && !is_unwanted(current_cancel); begin += step)
        run_range(fn, arg, begin, MIN(begin + step, n), cost_ns, current_cancel);
}

void pool_parallel_for(struct pool *pool, int64_t n, double cost_ns,
                       void (*fn)(void *arg, int64_t begin, int64_t end), void *arg) {
    if (n <= 0)
        return;
    int64_t least = least_range(n, cost_ns);
    /* The caller is one of the workers, so the pool's other threads are the helpers. */
    int64_t n_workers = pool ? MIN((int64_t)pool->n_threads, n / least) : 1;
    if (n_workers <= 1) {
        run_alone(n, cost_ns, fn, arg);
        return;
    }
    int64_t range = MAX(least, (n - 1) / (n_workers * RANGES_PER_THREAD) + 1);
    if (current_cancel)
        range = MIN(range, most_units(cost_ns));
    /* Long ranges of small units begin at whole cache lines of a tensor, so that no two threads
     * write to one line. */
    if (range >= RANGE_ROUND * 16)
        range = (range + RANGE_ROUND - 1) / RANGE_ROUND * RANGE_ROUND;
    int n_helpers = (int)n_workers - 1;
    struct loop *loop = loop_new(pool, n, range, cost_ns, n_helpers, fn, arg);
    loop->yields = (double)range * cost_ns >= RANGE_YIELD_NS;
    pthread_mutex_lock(&pool->mutex);
    for (int i = 0; i < n_helpers; i++)
        push_task(pool, &loop->helpers[i].task);
    unlock_and_wake(pool);
    if (loop_work(loop, false) != LOOP_ENDED_HERE)
        loop_wait(loop);
    loop_unref(loop);
}
