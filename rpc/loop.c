/* Runs one libuv loop, with a queue of posted tasks, a queue of deferred ones, timers and
 * signals. */
#include "rpc/loop.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

/* One turn of the loop, as libuv runs it, and where our two queues are emptied:
 *
 *   timers → [prepare: posted, deferred] → poll: sleep, then socket callbacks → [check: posted,
 *   deferred] → closed handles
 *
 * A task that posts or defers another one puts it into the next batch, so that no chain of tasks
 * starves the sockets; while a batch waits, the idle handle keeps the poll from sleeping.
 *
 * Waking: `is_asleep` is true from just before the poll until just after it. A poster pushes
 * first and then looks at it, the loop sets it first and then looks at the queue (both
 * sequentially consistent), so one of the two sees the other. */
struct task_queue {
    struct loop_task *first, **last;
};

enum { N_SIGNALS = 2 };

struct loop {
    uv_loop_t uv;
    uv_async_t async;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_idle_t idle;
    uv_signal_t signals[N_SIGNALS];
    bool has_signals;
    /* loop_run_once: when something ran before the poll, the turn does not sleep in it. */
    bool is_once;
    bool has_run; /* something ran in this turn, before the poll */
    void (*on_signal)(void *arg, int signo);
    void *on_signal_arg;
    struct loop_signal {
        uv_signal_t uv;
        bool is_open;
        void (*on_signal)(void *arg);
        void *arg;
    } hangup, user_signal;
    struct task_queue deferred; /* loop thread */
    char *read_buffer;          /* loop thread */
    _Atomic pthread_t thread;
    _Atomic(struct loop_task *) posted; /* any thread; newest first */
    _Atomic bool is_asleep;             /* any thread */
};

static void task_queue_init(struct task_queue *queue) {
    queue->first = NULL;
    queue->last = &queue->first;
}

/* Runs the tasks that are queued now. Returns true when there was one. */
static bool run_deferred(struct loop *loop) {
    struct loop_task *task = loop->deferred.first;
    bool found = task != NULL;
    task_queue_init(&loop->deferred);
    while (task) {
        struct loop_task *next = task->next;
        task->run(task);
        task = next;
    }
    return found;
}

static bool run_posted(struct loop *loop) {
    if (!atomic_load_explicit(&loop->posted, memory_order_relaxed))
        return false;
    struct loop_task *newest_first = atomic_exchange(&loop->posted, NULL);
    struct loop_task *task = NULL;
    while (newest_first) {
        struct loop_task *next = newest_first->next;
        newest_first->next = task;
        task = newest_first;
        newest_first = next;
    }
    while (task) {
        struct loop_task *next = task->next;
        task->run(task);
        task = next;
    }
    return true;
}

static bool has_tasks(struct loop *loop) {
    return loop->deferred.first || atomic_load(&loop->posted);
}

/* Nothing to do: the wake-up is enough, since on_check runs what was posted. */
static void on_async(uv_async_t *handle) {}
static void on_idle(uv_idle_t *handle) {} /* While it is active, the poll does not sleep. */

static void on_prepare(uv_prepare_t *handle) {
    struct loop *loop = handle->data;
    loop->has_run |= run_posted(loop);
    loop->has_run |= run_deferred(loop);
    atomic_store(&loop->is_asleep, true);
    if (has_tasks(loop) || (loop->is_once && loop->has_run)) {
        atomic_store_explicit(&loop->is_asleep, false, memory_order_relaxed);
        uv_idle_start(&loop->idle, on_idle);
    } else {
        uv_idle_stop(&loop->idle);
    }
}

static void on_check(uv_check_t *handle) {
    struct loop *loop = handle->data;
    atomic_store_explicit(&loop->is_asleep, false, memory_order_relaxed);
    run_posted(loop);
    run_deferred(loop);
}

struct loop *loop_new(void) {
    struct loop *loop = xcalloc(1, sizeof(*loop));
    CHECK(uv_loop_init(&loop->uv) == 0);
    loop->uv.data = loop;
    CHECK(uv_async_init(&loop->uv, &loop->async, on_async) == 0);
    uv_prepare_init(&loop->uv, &loop->prepare);
    uv_check_init(&loop->uv, &loop->check);
    uv_idle_init(&loop->uv, &loop->idle);
    loop->prepare.data = loop->check.data = loop;
    uv_prepare_start(&loop->prepare, on_prepare);
    uv_check_start(&loop->check, on_check);
    uv_unref((uv_handle_t *)&loop->prepare);
    uv_unref((uv_handle_t *)&loop->check);
    task_queue_init(&loop->deferred);
    atomic_init(&loop->thread, pthread_self());
    return loop;
}

void loop_free(struct loop *loop) {
    if (!loop)
        return;
    uv_close((uv_handle_t *)&loop->async, NULL);
    uv_close((uv_handle_t *)&loop->prepare, NULL);
    uv_close((uv_handle_t *)&loop->check, NULL);
    uv_close((uv_handle_t *)&loop->idle, NULL);
    for (int i = 0; loop->has_signals && i < N_SIGNALS; i++)
        uv_close((uv_handle_t *)&loop->signals[i], NULL);
    if (loop->hangup.is_open)
        uv_close((uv_handle_t *)&loop->hangup.uv, NULL);
    if (loop->user_signal.is_open)
        uv_close((uv_handle_t *)&loop->user_signal.uv, NULL);
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&loop->uv) == 0); /* otherwise some handle is still open */
    free(loop->read_buffer);
    free(loop);
}

void loop_run_once(struct loop *loop) {
    atomic_store(&loop->thread, pthread_self());
    loop->is_once = true;
    loop->has_run = false;
    uv_run(&loop->uv, UV_RUN_ONCE);
    loop->is_once = false;
}

void loop_run(struct loop *loop) {
    atomic_store(&loop->thread, pthread_self());
    bool found;
    do {
        uv_run(&loop->uv, UV_RUN_DEFAULT);
        found = run_posted(loop);
        found |= run_deferred(loop);
    } while (found || has_tasks(loop) || uv_loop_alive(&loop->uv));
    uv_ref((uv_handle_t *)&loop->async);
}

void loop_stop(struct loop *loop) { uv_unref((uv_handle_t *)&loop->async); }

uv_loop_t *loop_uv(struct loop *loop) { return &loop->uv; }

bool loop_is_current(const struct loop *loop) {
    return pthread_equal(atomic_load_explicit(&((struct loop *)loop)->thread, memory_order_relaxed),
                         pthread_self());
}

/* No thread has the id 0: glibc's are addresses. */
void loop_release(struct loop *loop) { atomic_store(&loop->thread, (pthread_t)0); }
void loop_claim(struct loop *loop) { atomic_store(&loop->thread, pthread_self()); }

/* No wake-up is lost, because the check, which empties the queue, always follows the callbacks of
 * sockets. */
void loop_awake(struct loop *loop) {
    if (atomic_load_explicit(&loop->is_asleep, memory_order_relaxed))
        atomic_store_explicit(&loop->is_asleep, false, memory_order_relaxed);
}

char *loop_read_buffer(struct loop *loop) {
    if (!loop->read_buffer)
        loop->read_buffer = xmalloc(LOOP_READ_BUFFER_BYTES);
    return loop->read_buffer;
}

void loop_post(struct loop *loop, struct loop_task *task) {
    struct loop_task *newest = atomic_load_explicit(&loop->posted, memory_order_relaxed);
    do
        task->next = newest;
    while (!atomic_compare_exchange_weak(&loop->posted, &newest, task));
    /* The loop's own callbacks run before its check, which empties the queue, so no wake-up is
     * needed. */
    if (atomic_load(&loop->is_asleep) && !loop_is_current(loop) &&
        atomic_exchange(&loop->is_asleep, false))
        uv_async_send(&loop->async);
}

void loop_defer(struct loop *loop, struct loop_task *task) {
    task->next = NULL;
    *loop->deferred.last = task;
    loop->deferred.last = &task->next;
}

/* ---- timers ---- */

static void on_timer(uv_timer_t *uv) {
    struct loop_timer *timer = CONTAINER_OF(uv, struct loop_timer, uv);
    struct loop *loop = uv->loop->data;
    loop->has_run = true;
    timer->on_fire(timer);
}

void loop_timer_init(struct loop *loop, struct loop_timer *timer,
                     void (*on_fire)(struct loop_timer *timer)) {
    uv_timer_init(&loop->uv, &timer->uv);
    timer->on_fire = on_fire;
    timer->on_closed = NULL;
    timer->is_open = true;
}

void loop_timer_start(struct loop_timer *timer, int64_t timeout_ms, int64_t repeat_ms) {
    /* The loop's notion of now may be as old as the callback that runs. */
    uv_update_time(timer->uv.loop);
    uv_timer_start(&timer->uv, on_timer, (uint64_t)MAX(timeout_ms, 0), (uint64_t)MAX(repeat_ms, 0));
}

void loop_timer_stop(struct loop_timer *timer) { uv_timer_stop(&timer->uv); }

static void on_timer_closed(uv_handle_t *handle) {
    struct loop_timer *timer = CONTAINER_OF((uv_timer_t *)handle, struct loop_timer, uv);
    if (timer->on_closed)
        timer->on_closed(timer);
}

void loop_timer_close(struct loop_timer *timer, void (*on_closed)(struct loop_timer *timer)) {
    if (!timer->is_open)
        return;
    timer->is_open = false;
    timer->on_closed = on_closed;
    uv_close((uv_handle_t *)&timer->uv, on_timer_closed);
}

/* ---- signals ---- */

static void on_uv_signal(uv_signal_t *handle, int signo) {
    struct loop *loop = handle->data;
    loop->on_signal(loop->on_signal_arg, signo);
}

void loop_on_signals(struct loop *loop, void (*on_signal)(void *arg, int signo), void *arg) {
    static const int numbers[N_SIGNALS] = {SIGTERM, SIGINT};
    signal(SIGPIPE, SIG_IGN);
    loop->on_signal = on_signal;
    loop->on_signal_arg = arg;
    if (loop->has_signals)
        return;
    loop->has_signals = true;
    for (int i = 0; i < N_SIGNALS; i++) {
        uv_signal_init(&loop->uv, &loop->signals[i]);
        loop->signals[i].data = loop;
        uv_signal_start(&loop->signals[i], on_uv_signal, numbers[i]);
        uv_unref((uv_handle_t *)&loop->signals[i]);
    }
}

static void on_uv_plain_signal(uv_signal_t *handle, int signo) {
    struct loop_signal *one = handle->data;
    one->on_signal(one->arg);
}

static void listen_to(struct loop *loop, struct loop_signal *one, int signo,
                      void (*on_signal)(void *arg), void *arg) {
    CHECK(!one->is_open);
    one->is_open = true;
    one->on_signal = on_signal;
    one->arg = arg;
    uv_signal_init(&loop->uv, &one->uv);
    one->uv.data = one;
    uv_signal_start(&one->uv, on_uv_plain_signal, signo);
    uv_unref((uv_handle_t *)&one->uv);
}

void loop_on_hangup(struct loop *loop, void (*on_hangup)(void *arg), void *arg) {
    listen_to(loop, &loop->hangup, SIGHUP, on_hangup, arg);
}

void loop_on_user_signal(struct loop *loop, void (*on_user_signal)(void *arg), void *arg) {
    listen_to(loop, &loop->user_signal, SIGUSR1, on_user_signal, arg);
}
