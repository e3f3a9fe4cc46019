/* The event loop: posting, deferring, timers, signals. */
#include "rpc/loop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/clock.h"

/* What happened, in order. */
struct trace {
    struct loop *loop;
    char text[64];
    size_t len;
};

struct traced_task {
    struct loop_task task;
    struct trace *trace;
    char name;
    void (*then)(struct traced_task *self);
};

static void run_traced(struct loop_task *task) {
    struct traced_task *self = CONTAINER_OF(task, struct traced_task, task);
    self->trace->text[self->trace->len++] = self->name;
    if (self->then)
        self->then(self);
}

static struct traced_task traced(struct trace *trace, char name) {
    return (struct traced_task){.task = {.run = run_traced}, .trace = trace, .name = name};
}

static void then_stop(struct traced_task *self) { loop_stop(self->trace->loop); }

static void posted_tasks_run_in_order_and_deferred_ones_after_them(void **state) {
    struct trace trace = {.loop = loop_new()};
    struct traced_task a = traced(&trace, 'a'), b = traced(&trace, 'b'), d = traced(&trace, 'd');
    d.then = then_stop;
    loop_defer(trace.loop, &d.task);
    loop_post(trace.loop, &a.task);
    loop_post(trace.loop, &b.task);
    assert_int_equal(trace.len, 0); /* never inside the call */
    loop_run(trace.loop);
    assert_string_equal(trace.text, "abd");
    loop_free(trace.loop);
}

static void stop_before_run_and_tasks_left_behind_still_run(void **state) {
    struct trace trace = {.loop = loop_new()};
    struct traced_task a = traced(&trace, 'a'), d = traced(&trace, 'd');
    loop_post(trace.loop, &a.task);
    loop_defer(trace.loop, &d.task);
    loop_stop(trace.loop);
    loop_run(trace.loop);
    assert_string_equal(trace.text, "ad");
    loop_free(trace.loop);
}

struct endless {
    struct loop_task task;
    struct loop_timer timer;
    struct loop *loop;
    int n_runs;
    bool is_over;
};

static void run_endless(struct loop_task *task) {
    struct endless *e = CONTAINER_OF(task, struct endless, task);
    e->n_runs++;
    if (!e->is_over)
        loop_defer(e->loop, &e->task);
}

static void end_endless(struct loop_timer *timer) {
    struct endless *e = CONTAINER_OF(timer, struct endless, timer);
    e->is_over = true;
    loop_timer_close(timer, NULL);
    loop_stop(e->loop);
}

static void a_chain_of_deferred_tasks_does_not_starve_timers(void **state) {
    struct endless e = {.task = {.run = run_endless}, .loop = loop_new()};
    loop_timer_init(e.loop, &e.timer, end_endless);
    loop_timer_start(&e.timer, 5, 0);
    loop_defer(e.loop, &e.task);
    loop_run(e.loop);
    assert_true(e.n_runs > 2);
    loop_free(e.loop);
}

enum { N_THREADS = 4, N_POSTS = 20000 };

struct counter {
    struct loop *loop;
    int n_run, n_last[N_THREADS];
};

struct count_task {
    struct loop_task task;
    struct counter *counter;
    int thread, index;
};

struct poster {
    struct counter *counter;
    int thread;
    struct count_task *tasks;
};

static void run_count(struct loop_task *task) {
    struct count_task *t = CONTAINER_OF(task, struct count_task, task);
    struct counter *counter = t->counter;
    assert_true(loop_is_current(counter->loop));
    /* one thread's posts keep their order */
    assert_int_equal(counter->n_last[t->thread], t->index);
    counter->n_last[t->thread]++;
    if (++counter->n_run == N_THREADS * N_POSTS)
        loop_stop(counter->loop);
}

static void *post_many(void *arg) {
    struct poster *poster = arg;
    assert_false(loop_is_current(poster->counter->loop));
    for (int i = 0; i < N_POSTS; i++) {
        struct count_task *t = &poster->tasks[i];
        *t = (struct count_task){.task = {.run = run_count},
                                 .counter = poster->counter,
                                 .thread = poster->thread,
                                 .index = i};
        loop_post(poster->counter->loop, &t->task);
        if (i % 64 == 0)
            sched_yield(); /* lets the loop fall asleep now and then */
    }
    return NULL;
}

static void no_post_of_many_threads_is_lost(void **state) {
    struct counter counter = {.loop = loop_new()};
    struct poster posters[N_THREADS];
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++) {
        posters[i] = (struct poster){
            .counter = &counter, .thread = i, .tasks = calloc(N_POSTS, sizeof(struct count_task))};
        pthread_create(&threads[i], NULL, post_many, &posters[i]);
    }
    loop_run(counter.loop);
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        free(posters[i].tasks);
    }
    assert_int_equal(counter.n_run, N_THREADS * N_POSTS);
    loop_free(counter.loop);
}

struct timed {
    struct loop_timer once, repeating, stopped;
    struct loop *loop;
    int64_t started_ns, once_after_ns;
    int n_repeats, n_closed;
};

static void on_once(struct loop_timer *timer) {
    struct timed *t = CONTAINER_OF(timer, struct timed, once);
    t->once_after_ns = clock_now_ns() - t->started_ns;
}
static void on_timer_closed(struct loop_timer *timer) {
    struct timed *t = timer->uv.data;
    t->n_closed++;
}
static void on_repeat(struct loop_timer *timer) {
    struct timed *t = CONTAINER_OF(timer, struct timed, repeating);
    if (++t->n_repeats < 3 || t->once_after_ns == 0)
        return;
    loop_timer_close(&t->once, on_timer_closed);
    loop_timer_close(&t->once, on_timer_closed); /* twice is harmless */
    loop_timer_close(&t->repeating, on_timer_closed);
    loop_timer_close(&t->stopped, on_timer_closed);
    loop_stop(t->loop);
}
static void on_never(struct loop_timer *timer) { fail(); }

static void timers_fire_repeat_stop_and_close(void **state) {
    struct timed t = {.loop = loop_new()};
    loop_timer_init(t.loop, &t.once, on_once);
    loop_timer_init(t.loop, &t.repeating, on_repeat);
    loop_timer_init(t.loop, &t.stopped, on_never);
    t.once.uv.data = t.repeating.uv.data = t.stopped.uv.data = &t;
    t.started_ns = clock_now_ns();
    loop_timer_start(&t.once, 1, 0);
    loop_timer_start(&t.once, 10, 0); /* restarts */
    loop_timer_start(&t.repeating, 0, 2);
    loop_timer_start(&t.stopped, 1, 0);
    loop_timer_stop(&t.stopped);
    loop_run(t.loop);
    assert_true(t.once_after_ns >= 9000000);
    assert_int_equal(t.n_closed, 3);
    loop_free(t.loop);
}

struct waiter {
    struct loop *loop;
    struct loop_task first, second;
    struct loop_timer timer;
    bool is_done;
};

static void run_second(struct loop_task *task) {
    CONTAINER_OF(task, struct waiter, second)->is_done = true;
}
static void run_first(struct loop_task *task) {
    struct waiter *w = CONTAINER_OF(task, struct waiter, first);
    loop_defer(w->loop, &w->second);
}
static void on_waiter_timer(struct loop_timer *timer) {
    CONTAINER_OF(timer, struct waiter, timer)->is_done = true;
}

/* The answer may come before the poll; the turn must not sleep on it then. */
static void single_turns_never_sleep_through_an_answer(void **state) {
    struct waiter w = {
        .loop = loop_new(), .first = {.run = run_first}, .second = {.run = run_second}};
    loop_defer(w.loop, &w.first);
    while (!w.is_done)
        loop_run_once(w.loop);
    w.is_done = false;
    loop_timer_init(w.loop, &w.timer, on_waiter_timer);
    loop_timer_start(&w.timer, 2, 0);
    while (!w.is_done)
        loop_run_once(w.loop);
    loop_timer_close(&w.timer, NULL);
    loop_stop(w.loop);
    loop_run(w.loop);
    loop_free(w.loop);
}

struct signals {
    struct loop *loop;
    int seen[3], n_seen;
};

static void on_signal(void *arg, int signo) {
    struct signals *s = arg;
    s->seen[s->n_seen++] = signo;
    if (s->n_seen == 1)
        raise(SIGTERM); /* a second one of the same kind counts too */
    else if (s->n_seen == 2)
        raise(SIGINT);
    else
        loop_stop(s->loop);
}

static void signals_arrive_on_the_loop(void **state) {
    struct signals s = {.loop = loop_new()};
    loop_on_signals(s.loop, on_signal, &s);
    raise(SIGTERM);
    raise(SIGPIPE); /* ignored */
    loop_run(s.loop);
    assert_int_equal(s.seen[0], SIGTERM);
    assert_int_equal(s.seen[1], SIGTERM);
    assert_int_equal(s.seen[2], SIGINT);
    loop_free(s.loop);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(posted_tasks_run_in_order_and_deferred_ones_after_them),
        cmocka_unit_test(stop_before_run_and_tasks_left_behind_still_run),
        cmocka_unit_test(a_chain_of_deferred_tasks_does_not_starve_timers),
        cmocka_unit_test(no_post_of_many_threads_is_lost),
        cmocka_unit_test(timers_fire_repeat_stop_and_close),
        cmocka_unit_test(single_turns_never_sleep_through_an_answer),
        cmocka_unit_test(signals_arrive_on_the_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
