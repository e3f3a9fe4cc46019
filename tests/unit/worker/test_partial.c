/* Partial runs of the executor: feeds that arrive late, in any order, from other threads; fetches
 * that are returned while the step runs; a step that is cancelled while it waits for a feed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "worker/container.h"
#include "worker/executor/executor.h"

#define DEVICE "/job:worker/replica:0/task:0/device:CPU:0"

enum { N_POSITIONS = 4 };

struct fixture {
    struct execution run;
    struct plan *plan;
    struct pool *pool;
    struct tensor feeds[N_POSITIONS], fetches[N_POSITIONS] __attribute__((aligned(64)));
    pthread_mutex_t lock;
    pthread_cond_t changed;
    float got[N_POSITIONS]; /* guarded by lock, as all that follows */
    bool has_got[N_POSITIONS], was_dead[N_POSITIONS], is_done;
    struct status *status;
};

static void on_fetch(struct execution *run, uint32_t position, struct tensor *value) {
    struct fixture *f = CONTAINER_OF(run, struct fixture, run);
    pthread_mutex_lock(&f->lock);
    assert_false(f->has_got[position]);
    f->has_got[position] = true;
    f->was_dead[position] = value->storage == TENSOR_DEAD;
    if (!f->was_dead[position])
        f->got[position] = *(const float *)tensor_cdata(value);
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    tensor_clear(value);
}

static void on_done(struct execution *run, struct status *status_take) {
    struct fixture *f = CONTAINER_OF(run, struct fixture, run);
    pthread_mutex_lock(&f->lock);
    f->status = status_take;
    f->is_done = true;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static void open_fixture(struct fixture *f, const char *text) {
    struct allocator *allocator = allocator_host();
    struct device device = {.full_name = (char *)DEVICE, .type = "CPU", .allocator = allocator};
    struct plan_options options = {.devices = &device, .n_devices = 1, .host = &executor_host};
    struct graph graph;
    memset(f, 0, sizeof *f);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    f->pool = pool_new(2);
    graph_init(&graph);
    struct status *st = graph_parse(text, &graph);
    for (int i = 0; !st && i < graph.n_nodes; i++)
        graph.nodes[i]->device = DEVICE;
    if (!st)
        st = plan_new(&graph, &options, &f->plan);
    graph_fini(&graph);
    if (st)
        fail_msg("%s", status_message(st));
}

static void start(struct fixture *f) {
    execution_init(&f->run);
    f->run.plan = f->plan;
    f->run.feeds = f->feeds;
    f->run.fetches = f->fetches;
    f->run.pool = f->pool;
    f->run.is_partial = true;
    f->run.on_fetch = on_fetch;
    f->run.on_done = on_done;
    execution_start(&f->run);
}

static void feed(struct fixture *f, uint32_t position, float value) {
    struct tensor tensor = TENSOR_INIT;
    tensor_init_scalar_f32(&tensor, value);
    execution_feed(&f->run, position, &tensor);
}

static float await_fetch(struct fixture *f, int position) {
    pthread_mutex_lock(&f->lock);
    while (!f->has_got[position] && !f->is_done)
        pthread_cond_wait(&f->changed, &f->lock);
    assert_true(f->has_got[position]);
    float value = f->got[position];
    pthread_mutex_unlock(&f->lock);
    return value;
}

static void await_end(struct fixture *f) {
    pthread_mutex_lock(&f->lock);
    while (!f->is_done)
        pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

static void close_fixture(struct fixture *f) {
    execution_fini(&f->run);
    for (int i = 0; i < N_POSITIONS; i++) {
        tensor_clear(&f->feeds[i]);
        tensor_clear(&f->fetches[i]);
    }
    status_unref(f->status);
    plan_unref(f->plan);
    pool_free(f->pool);
    pthread_cond_destroy(&f->changed);
    pthread_mutex_destroy(&f->lock);
}

#define TWO_SUMS                                                                                   \
    "a = _MrFeed() {T=float, index=0}\nb = _MrFeed() {T=float, index=1}\nc = _MrFeed() {T=float, " \
    "index=2}\n"                                                                                   \
    "ab = AddV2(a, b) {T=float}\nabc = Mul(ab, c) {T=float}\n"                                     \
    "f0 = _MrFetch(ab) {T=float, index=0}\nf1 = _MrFetch(abc) {T=float, index=1}\n"

static void fetches_leave_as_their_feeds_come(void **state) {
    struct fixture f;
    open_fixture(&f, TWO_SUMS);
    start(&f);
    feed(&f, 1, 2);
    feed(&f, 0, 1);
    assert_true(await_fetch(&f, 0) == 3);
    assert_false(f.has_got[1]);
    assert_false(f.is_done);
    feed(&f, 2, 5);
    assert_true(await_fetch(&f, 1) == 15);
    await_end(&f);
    assert_null(f.status);
    close_fixture(&f);
}

/* Of a node's inputs one is a constant, one a feed and one computed: each way of arriving counts
 * once. */
static void a_feed_joins_constants_and_values(void **state) {
    struct fixture f;
    open_fixture(&f,
                 "a = _MrFeed() {T=float, index=0}\nb = _MrFeed() {T=float, index=1}\ntwo = "
                 "Const() {dtype=float, value=float[]{2}}\n"
                 "a2 = Mul(a, two) {T=float}\nsum = AddN(a, two, a2, b) {T=float, N=4}\n"
                 "f0 = _MrFetch(a2) {T=float, index=0}\nf1 = _MrFetch(sum) {T=float, index=1}\n");
    start(&f);
    feed(&f, 0, 3);
    assert_true(await_fetch(&f, 0) == 6);
    assert_false(f.has_got[1]);
    feed(&f, 1, 10);
    assert_true(await_fetch(&f, 1) == 21);
    await_end(&f);
    assert_null(f.status);
    close_fixture(&f);
}

static void a_feed_comes_once(void **state) {
    struct fixture f;
    open_fixture(&f, TWO_SUMS);
    start(&f);
    feed(&f, 0, 1);
    feed(&f, 0, 100); /* dropped */
    feed(&f, 1, 2);
    assert_true(await_fetch(&f, 0) == 3);
    feed(&f, 2, 1);
    await_end(&f);
    feed(&f, 2, 7); /* after the end: dropped */
    close_fixture(&f);
}

static void a_dead_fetch_leaves_as_dead(void **state) {
    struct fixture f;
    open_fixture(&f,
                 "p = Const() {dtype=bool, value=bool[]{true}}\nx = _MrFeed() {T=float, "
                 "index=0}\ns = Switch(x, p) {T=float}\n"
                 "f0 = _MrFetch(s) {T=float, index=0}\nf1 = _MrFetch(s:1) {T=float, index=1}\n");
    start(&f);
    feed(&f, 0, 4);
    await_fetch(&f, 0);
    assert_true(await_fetch(&f, 1) == 4);
    await_end(&f);
    assert_true(f.was_dead[0]);
    assert_false(f.was_dead[1]);
    close_fixture(&f);
}

static void cancelling_ends_the_wait_for_feeds(void **state) {
    for (int i = 0; i < 50; i++) {
        struct fixture f;
        open_fixture(&f, TWO_SUMS);
        start(&f);
        if (i % 2)
            feed(&f, 0, 1);
        struct status *why = status_new(STATUS_CANCELLED, "enough");
        execution_cancel(&f.run, why);
        status_unref(why);
        feed(&f, 1, 2);
        await_end(&f);
        assert_int_equal(status_code(f.status), STATUS_CANCELLED);
        close_fixture(&f);
    }
}

static void a_failure_ends_the_wait_for_feeds(void **state) {
    struct fixture f;
    open_fixture(&f, "a = _MrFeed() {T=float, index=0}\nb = _MrFeed() {T=float, index=1}\n"
                     "p = Placeholder(^a) {dtype=float}\nf0 = _MrFetch(p) {T=float, index=0}\nf1 = "
                     "_MrFetch(b) {T=float, index=1}\n");
    start(&f);
    feed(&f, 0, 1);
    await_end(&f);
    assert_int_equal(status_code(f.status), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(status_message(f.status), "{{node p}}"));
    close_fixture(&f);
}

struct feeder {
    struct fixture *f;
    uint32_t position;
};

static void *feed_from_thread(void *arg) {
    struct feeder *feeder = arg;
    feed(feeder->f, feeder->position, (float)(feeder->position + 1));
    return NULL;
}

static void feeds_come_from_any_thread(void **state) {
    for (int i = 0; i < 200; i++) {
        struct fixture f;
        pthread_t threads[3];
        struct feeder feeders[3];
        open_fixture(&f, TWO_SUMS);
        start(&f);
        for (uint32_t k = 0; k < 3; k++) {
            feeders[k] = (struct feeder){&f, k};
            assert_int_equal(pthread_create(&threads[k], NULL, feed_from_thread, &feeders[k]), 0);
        }
        assert_true(await_fetch(&f, 1) == 9);
        await_end(&f);
        for (int k = 0; k < 3; k++)
            pthread_join(threads[k], NULL);
        close_fixture(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fetches_leave_as_their_feeds_come),
        cmocka_unit_test(a_feed_joins_constants_and_values),
        cmocka_unit_test(a_feed_comes_once),
        cmocka_unit_test(a_dead_fetch_leaves_as_dead),
        cmocka_unit_test(cancelling_ends_the_wait_for_feeds),
        cmocka_unit_test(a_failure_ends_the_wait_for_feeds),
        cmocka_unit_test(feeds_come_from_any_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
