/* Waiting at queues: the order in which waits end, what a cancelled wait leaves behind, and random
 * cancellations from several threads. tests/differential/cases_queue.py compares sequences of ops
 * with TensorFlow. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "kernels/support/wait_room.h"
#include "tests/unit/kernels/kernel_test.h"

enum { TIMEOUT_MS = 20000 };

/* ---- a graph whose nodes are executed one by one ---- */

struct fixture {
    struct test_host *host;
    struct test_graph graph;
};

static void fixture_init(struct fixture *f, const char *text) {
    f->host = test_host_new(0);
    test_graph_init(&f->graph, f->host);
    assert_null(graph_parse(text, &f->graph.graph));
    assert_null(test_graph_prepare(&f->graph));
    for (int i = 0; i < f->graph.graph.n_nodes; i++)
        assert_null(kernel_instance_init(&f->graph.instances[i], f->graph.graph.nodes[i], "CPU",
                                         TEST_DEVICE, allocator_host(), &f->host->host));
}

static void fixture_fini(struct fixture *f) {
    test_graph_fini(&f->graph);
    test_host_free(f->host);
}

/* One execution in a step of its own. */
struct execution {
    struct test_step step;
    struct test_call call;
    struct status *status;
};

static void begin(struct execution *e, struct fixture *f, const char *node,
                  const struct tensor *inputs) {
    test_step_init(&e->step, f->host);
    e->status = NULL;
    test_call_start(&e->call, &e->step, &f->graph.instances[graph_find(&f->graph.graph, node)->id],
                    inputs);
}

static bool is_done(struct execution *e) { return test_call_is_done(&e->call); }
static void cancel(struct execution *e) {
    test_step_cancel(&e->step, status_new(STATUS_ABORTED, "by the test"));
}
static void await(struct execution *e) { e->status = test_call_wait(&e->call, TIMEOUT_MS); }

static void finish(struct execution *e) {
    test_call_fini(&e->call);
    test_step_fini(&e->step);
    status_unref(e->status);
}

static void finish_failed(struct execution *e, enum status_code code, const char *words) {
    await(e);
    if (status_code(e->status) != code || !strstr(status_message(e->status), words))
        fail_msg("expected %s \"%s\", got %s: %s", status_code_name(code), words,
                 status_code_name(status_code(e->status)), status_message(e->status));
    finish(e);
}

static void finish_ok(struct execution *e, const char *expected) {
    struct str text = STR_INIT;
    await(e);
    if (e->status)
        fail_msg("%s", status_message(e->status));
    if (expected)
        tensor_print(&e->call.ctx.outputs[0], INT64_MAX, &text);
    if (expected && strcmp(str_text(&text), expected) != 0)
        fail_msg("expected %s, got %s", expected, str_text(&text));
    str_fini(&text);
    finish(e);
}

/* The handle that a node makes. */
static struct tensor handle_of(struct fixture *f, const char *node) {
    struct execution e;
    struct tensor handle = TENSOR_INIT;
    begin(&e, f, node, NULL);
    await(&e);
    assert_null(e.status);
    tensor_move(&handle, &e.call.ctx.outputs[0]);
    finish(&e);
    return handle;
}

static struct tensor vector(const int32_t *values, int64_t n) {
    struct tensor t = TENSOR_INIT;
    assert_null(tensor_new(allocator_host(), DT_INT32, (struct shape){1, &n}, &t));
    memcpy(tensor_data(&t), values, (size_t)n * sizeof(*values));
    return t;
}

/* ---- queues of int32 scalars ---- */

#define OPS                                                            \
    "h = Placeholder() {dtype=resource}\n"                             \
    "i = Placeholder() {dtype=int32}\n"                                \
    "in = QueueEnqueueV2(h, i) {Tcomponents=[int32]}\n"                \
    "in_many = QueueEnqueueManyV2(h, i) {Tcomponents=[int32]}\n"       \
    "out = QueueDequeueV2(h) {component_types=[int32]}\n"              \
    "out_many = QueueDequeueManyV2(h, i) {component_types=[int32]}\n"  \
    "out_up_to = QueueDequeueUpToV2(h, i) {component_types=[int32]}\n" \
    "close = QueueCloseV2(h) {}\n"                                     \
    "close_cancel = QueueCloseV2(h) {cancel_pending_enqueues=true}\n"  \
    "size = QueueSizeV2(h) {}\n"

struct queue_fixture {
    struct fixture f;
    struct tensor handle;
};

/* Placeholders stand for inputs only: their instances are not made. */
static void queue_fixture_init(struct queue_fixture *q, const char *op, int capacity) {
    char text[4096];
    snprintf(text, sizeof(text),
             "q = %s() {component_types=[int32], shapes=[[]], capacity=%d%s}\n" OPS, op, capacity,
             strstr(op, "Random") ? ", seed=1, seed2=2" : "");
    struct fixture *f = &q->f;
    f->host = test_host_new(0);
    test_graph_init(&f->graph, f->host);
    struct status *st = graph_parse(text, &f->graph.graph);
    if (st)
        fail_msg("%s", status_message(st));
    assert_null(test_graph_prepare(&f->graph));
    for (int i = 0; i < f->graph.graph.n_nodes; i++)
        if (!node_is_op(f->graph.graph.nodes[i], "Placeholder"))
            assert_null(kernel_instance_init(&f->graph.instances[i], f->graph.graph.nodes[i], "CPU",
                                             TEST_DEVICE, allocator_host(), &f->host->host));
    q->handle = handle_of(f, "q");
}

static void queue_fixture_fini(struct queue_fixture *q) {
    tensor_clear(&q->handle);
    fixture_fini(&q->f);
}

static void begin_op(struct execution *e, struct queue_fixture *q, const char *node) {
    begin(e, &q->f, node, &q->handle);
}

static void begin_with(struct execution *e, struct queue_fixture *q, const char *node,
                       const struct tensor *value) {
    struct tensor inputs[2] = {q->handle, *value}; /* borrowed */
    begin(e, &q->f, node, inputs);
}

static void begin_number(struct execution *e, struct queue_fixture *q, const char *node,
                         int32_t number) {
    struct tensor t = TENSOR_INIT;
    tensor_init_scalar_i32(&t, number);
    begin_with(e, q, node, &t);
}

static void begin_numbers(struct execution *e, struct queue_fixture *q, const char *node,
                          const int32_t *numbers, int64_t n) {
    struct tensor t = vector(numbers, n);
    begin_with(e, q, node, &t);
    tensor_clear(&t);
}

static void put(struct queue_fixture *q, int32_t number) {
    struct execution e;
    begin_number(&e, q, "in", number);
    finish_ok(&e, NULL);
}

static void expect_out(struct queue_fixture *q, const char *expected) {
    struct execution e;
    begin_op(&e, q, "out");
    finish_ok(&e, expected);
}

static void expect_size(struct queue_fixture *q, const char *expected) {
    struct execution e;
    begin_op(&e, q, "size");
    finish_ok(&e, expected);
}

static void test_waiting_dequeues_are_served_in_order(void **state) {
    struct queue_fixture q;
    struct execution outs[3];
    queue_fixture_init(&q, "FIFOQueueV2", -1);
    for (int i = 0; i < 3; i++)
        begin_op(&outs[i], &q, "out");
    put(&q, 1);
    assert_true(is_done(&outs[0]) && !is_done(&outs[1]));
    put(&q, 2);
    assert_true(is_done(&outs[1]) && !is_done(&outs[2]));
    put(&q, 3);
    finish_ok(&outs[0], "int32[]{1}");
    finish_ok(&outs[1], "int32[]{2}");
    finish_ok(&outs[2], "int32[]{3}");
    queue_fixture_fini(&q);
}

static void test_waiting_enqueues_are_served_in_order(void **state) {
    struct queue_fixture q;
    struct execution in[2], many;
    queue_fixture_init(&q, "FIFOQueueV2", 2);
    put(&q, 1);
    begin_numbers(&many, &q, "in_many", (int32_t[]){2, 3, 4, 5}, 4);
    begin_number(&in[0], &q, "in", 6);
    begin_number(&in[1], &q, "in", 7);
    expect_size(&q, "int32[]{2}");
    for (int i = 1; i <= 3; i++) {
        char expected[32];
        snprintf(expected, sizeof(expected), "int32[]{%d}", i);
        assert_false(is_done(&many));
        expect_out(&q, expected);
    }
    finish_ok(&many, NULL);
    assert_false(is_done(&in[0]));
    expect_out(&q, "int32[]{4}");
    finish_ok(&in[0], NULL);
    expect_out(&q, "int32[]{5}");
    finish_ok(&in[1], NULL);
    expect_out(&q, "int32[]{6}");
    expect_out(&q, "int32[]{7}");
    queue_fixture_fini(&q);
}

static void test_a_batch_may_be_larger_than_the_capacity(void **state) {
    struct queue_fixture q;
    struct execution in, out;
    queue_fixture_init(&q, "FIFOQueueV2", 2);
    begin_number(&out, &q, "out_many", 5);
    begin_numbers(&in, &q, "in_many", (int32_t[]){1, 2, 3, 4, 5, 6, 7}, 7);
    finish_ok(&in, NULL);
    finish_ok(&out, "int32[5]{1, 2, 3, 4, 5}");
    expect_size(&q, "int32[]{2}");
    queue_fixture_fini(&q);
}

static void test_a_cancelled_batch_gives_back_what_it_took(void **state) {
    struct queue_fixture q;
    struct execution batch, next;
    queue_fixture_init(&q, "FIFOQueueV2", 2);
    begin_number(&batch, &q, "out_many", 4);
    put(&q, 1);
    put(&q, 2);
    put(&q, 3); /* the batch holds three: more than fits */
    expect_size(&q, "int32[]{0}");
    begin_op(&next, &q, "out");
    assert_false(is_done(&next));
    cancel(&batch);
    finish_failed(&batch, STATUS_CANCELLED, "Dequeue operation was cancelled");
    finish_ok(&next, "int32[]{1}");
    expect_size(&q, "int32[]{2}");
    expect_out(&q, "int32[]{2}");
    expect_out(&q, "int32[]{3}");
    queue_fixture_fini(&q);
}

static void test_a_cancelled_enqueue_lets_the_next_pass(void **state) {
    struct queue_fixture q;
    struct execution many, one, close;
    queue_fixture_init(&q, "FIFOQueueV2", 1);
    begin_numbers(&many, &q, "in_many", (int32_t[]){1, 2, 3}, 3);
    begin_number(&one, &q, "in", 9);
    begin_op(&close, &q, "close");
    assert_false(is_done(&many) || is_done(&close));
    cancel(&many);
    finish_failed(&many, STATUS_CANCELLED, "Enqueue operation was cancelled");
    expect_out(&q, "int32[]{1}");
    finish_ok(&one, NULL);
    finish_ok(&close, NULL);
    expect_out(&q, "int32[]{9}");
    begin_op(&one, &q, "out");
    finish_failed(&one, STATUS_OUT_OF_RANGE,
                  "is closed and has insufficient elements (requested 1, current size 0)");
    queue_fixture_fini(&q);
}

static void test_closing_ends_waits(void **state) {
    struct queue_fixture q;
    struct execution batch, small, one, in, close;
    queue_fixture_init(&q, "FIFOQueueV2", 8);
    begin_number(&batch, &q, "out_many", 4);
    begin_number(&small, &q, "out_up_to", 4);
    begin_op(&one, &q, "out");
    put(&q, 1);
    put(&q, 2);
    begin_op(&close, &q, "close");
    finish_ok(&close, NULL);
    finish_failed(&batch, STATUS_OUT_OF_RANGE, "(requested 4, current size 2)");
    finish_ok(&small, "int32[2]{1, 2}");
    finish_failed(&one, STATUS_OUT_OF_RANGE, "insufficient elements");
    begin_number(&in, &q, "in", 1);
    finish_failed(&in, STATUS_CANCELLED, "is closed.");
    queue_fixture_fini(&q);
}

static void test_closing_with_cancel_ends_enqueues(void **state) {
    struct queue_fixture q;
    struct execution in[2], close, second;
    queue_fixture_init(&q, "FIFOQueueV2", 1);
    put(&q, 1);
    begin_number(&in[0], &q, "in", 2);
    begin_numbers(&in[1], &q, "in_many", (int32_t[]){3, 4}, 2);
    begin_op(&second, &q, "close");
    begin_op(&close, &q, "close_cancel");
    finish_ok(&close, NULL);
    finish_failed(&in[0], STATUS_CANCELLED, "Enqueue operation was cancelled");
    finish_failed(&in[1], STATUS_CANCELLED, "Enqueue operation was cancelled");
    finish_failed(&second, STATUS_CANCELLED, "Enqueue operation was cancelled");
    expect_out(&q, "int32[]{1}");
    queue_fixture_fini(&q);
}

static void test_a_step_that_is_cancelled_already_does_not_wait(void **state) {
    struct queue_fixture q;
    struct execution e;
    queue_fixture_init(&q, "FIFOQueueV2", 1);
    test_step_init(&e.step, q.f.host);
    cancel(&e);
    test_call_start(&e.call, &e.step, &q.f.graph.instances[graph_find(&q.f.graph.graph, "out")->id],
                    &q.handle);
    assert_true(is_done(&e));
    await(&e);
    assert_int_equal(status_code(e.status), STATUS_ABORTED);
    finish(&e);
    put(&q, 1);
    expect_out(&q, "int32[]{1}");
    queue_fixture_fini(&q);
}

static void test_a_shuffled_batch_waits_above_the_minimum(void **state) {
    struct fixture f;
    struct execution out, in;
    fixture_init(&f, "q = RandomShuffleQueue() {component_types=[int32], shapes=[[]], capacity=10, "
                     "min_after_dequeue=3}\n"
                     "c = Const() {dtype=int32, value=int32[4]{1, 2, 3, 4}}\n"
                     "n = Const() {dtype=int32, value=int32[]{2}}\n"
                     "in = QueueEnqueueMany(q, c) {Tcomponents=[int32]}\n"
                     "out = QueueDequeueMany(q, n) {component_types=[int32]}\n"
                     "close = QueueClose(q) {}\n");
    struct tensor handle = handle_of(&f, "q"), n = TENSOR_INIT,
                  values = vector((int32_t[]){1, 2, 3, 4}, 4);
    tensor_init_scalar_i32(&n, 2);
    struct tensor in_inputs[2] = {handle, values}, out_inputs[2] = {handle, n};
    begin(&in, &f, "in", in_inputs);
    finish_ok(&in, NULL);
    begin(&out, &f, "out", out_inputs);
    assert_false(is_done(&out)); /* one of two is above the minimum */
    begin(&in, &f, "close", &handle);
    finish_ok(&in, NULL);
    finish_ok(&out, NULL);
    tensor_clear(&handle);
    tensor_clear(&values);
    fixture_fini(&f);
}

/* ---- mutexes, barriers, accumulators, staging areas ---- */

static void test_a_mutex_goes_from_hand_to_hand(void **state) {
    struct fixture f;
    struct execution e[4];
    fixture_init(&f,
                 "m = MutexV2() {}\nlock = MutexLock(m) {}\nunlock = ConsumeMutexLock(lock) {}\n");
    struct tensor handle = handle_of(&f, "m");
    for (int i = 0; i < 4; i++)
        begin(&e[i], &f, "lock", &handle);
    assert_true(is_done(&e[0]) && !is_done(&e[1]));
    cancel(&e[1]);
    finish_failed(&e[1], STATUS_CANCELLED, "was cancelled");
    finish_ok(&e[0], NULL); /* the last copy of the lock goes */
    assert_true(is_done(&e[2]) && !is_done(&e[3]));
    finish_ok(&e[2], NULL);
    finish_ok(&e[3], NULL);
    begin(&e[0], &f, "lock", &handle);
    finish_ok(&e[0], NULL);
    tensor_clear(&handle);
    fixture_fini(&f);
}

static void test_a_barrier_take_waits_for_complete_tuples(void **state) {
    struct fixture f;
    struct execution take, other, e;
    fixture_init(&f, "b = Barrier() {component_types=[int32, int32], shapes=[[], []]}\n"
                     "k = Const() {dtype=string, value=string[2]{\"a\", \"b\"}}\n"
                     "v = Const() {dtype=int32, value=int32[2]{1, 2}}\n"
                     "n = Const() {dtype=int32, value=int32[]{2}}\n"
                     "in0 = BarrierInsertMany(b, k, v) {T=int32, component_index=0}\n"
                     "in1 = BarrierInsertMany(b, k, v) {T=int32, component_index=1}\n"
                     "take = BarrierTakeMany(b, n) {component_types=[int32, int32]}\n"
                     "close = BarrierClose(b) {cancel_pending_enqueues=true}\n");
    struct tensor keys = handle_of(&f, "k"), values = handle_of(&f, "v"), n = handle_of(&f, "n"),
                  b = handle_of(&f, "b");
    struct tensor in[3] = {b, keys, values}, out[2] = {b, n};
    begin(&take, &f, "take", out);
    begin(&other, &f, "take", out);
    begin(&e, &f, "in0", in);
    finish_ok(&e, NULL);
    assert_false(is_done(&take));
    cancel(&take);
    finish_failed(&take, STATUS_CANCELLED, "was cancelled");
    begin(&e, &f, "in1", in);
    finish_ok(&e, NULL);
    finish_ok(&other, "int64[2]{-9223372036854775808, -9223372036854775808}");
    begin(&take, &f, "take", out);
    begin(&e, &f, "close", &b);
    finish_ok(&e, NULL);
    finish_failed(&take, STATUS_OUT_OF_RANGE, "is closed and has insufficient elements");
    tensor_clear(&b);
    tensor_clear(&keys);
    tensor_clear(&values);
    fixture_fini(&f);
}

static void test_accumulated_gradients_are_taken_in_order(void **state) {
    struct fixture f;
    struct execution take[3], e;
    fixture_init(&f, "a = ResourceConditionalAccumulator() {dtype=float, shape=[]}\n"
                     "s = Const() {dtype=int64, value=int64[]{7}}\n"
                     "g = Const() {dtype=float, value=float[]{3}}\n"
                     "n = Const() {dtype=int32, value=int32[]{2}}\n"
                     "apply = ResourceAccumulatorApplyGradient(a, s, g) {dtype=float}\n"
                     "take = ResourceAccumulatorTakeGradient(a, n) {dtype=float}\n");
    struct tensor s = handle_of(&f, "s"), g = handle_of(&f, "g"), n = handle_of(&f, "n"),
                  a = handle_of(&f, "a");
    struct tensor in[3] = {a, s, g}, out[2] = {a, n};
    for (int i = 0; i < 3; i++)
        begin(&take[i], &f, "take", out);
    cancel(&take[0]);
    finish_failed(&take[0], STATUS_CANCELLED, "was cancelled");
    for (int i = 1; i <= 4; i++) {
        begin(&e, &f, "apply", in);
        finish_ok(&e, NULL);
        assert_int_equal(is_done(&take[1]), i >= 2);
        assert_int_equal(is_done(&take[2]), i >= 4);
    }
    finish_ok(&take[1], "float[]{3}");
    finish_ok(&take[2], "float[]{3}");
    tensor_clear(&a);
    fixture_fini(&f);
}

static void test_a_staging_area_waits_both_ways(void **state) {
    struct fixture f;
    struct execution get, peek, put_first, put_second;
    fixture_init(&f, "v = Const() {dtype=int32, value=int32[]{1}}\n"
                     "in = Stage(v) {dtypes=[int32], capacity=1, shared_name=\"s\"}\n"
                     "out = Unstage() {dtypes=[int32], capacity=1, shared_name=\"s\"}\n"
                     "peek = StagePeek(v) {dtypes=[int32], capacity=1, shared_name=\"s\"}\n");
    struct tensor v = TENSOR_INIT;
    tensor_init_scalar_i32(&v, 1);
    begin(&peek, &f, "peek", &v); /* at what never comes: capacity 1 */
    begin(&get, &f, "out", NULL); /* passes it */
    begin(&put_first, &f, "in", &v);
    finish_ok(&put_first, NULL);
    finish_ok(&get, "int32[]{1}");
    begin(&put_first, &f, "in", &v);
    begin(&put_second, &f, "in", &v);
    assert_true(is_done(&put_first) && !is_done(&put_second));
    finish_ok(&put_first, NULL);
    begin(&get, &f, "out", NULL);
    finish_ok(&get, "int32[]{1}");
    finish_ok(&put_second, NULL);
    cancel(&peek);
    finish_failed(&peek, STATUS_CANCELLED, "was cancelled");
    fixture_fini(&f);
}

/* ---- random cancellations ---- */

enum { N_WORKERS = 3, N_OPS = 6000, MAX_BATCH = 4, N_VALUES = N_WORKERS * N_OPS * MAX_BATCH };

struct slot {
    pthread_mutex_t lock; /* while it is held, the step does not go */
    bool is_live;         /* guarded by lock */
    struct execution e;
};

struct storm {
    struct queue_fixture q;
    struct slot slots[N_WORKERS];
    _Atomic int next_worker, n_running, n_cancelled;
    _Atomic bool must_be_there[N_VALUES]; /* its enqueue succeeded */
    _Atomic int n_seen[N_VALUES];
};

static uint32_t next_random(uint32_t *random) {
    *random = *random * 1664525 + 1013904223;
    return *random >> 16;
}

static void see(struct storm *storm, const struct tensor *out) {
    for (int64_t i = 0; i < out->n_elements; i++)
        storm->n_seen[((const int32_t *)tensor_cdata(out))[i]]++;
}

static void storm_op(struct storm *storm, struct slot *slot, uint32_t random, int32_t *next_value) {
    static const char *const outs[] = {"out", "out_many", "out_up_to"};
    bool is_in = random & 1, is_one = random >> 1 & 1;
    int n = is_one ? 1 : 1 + (int)(random >> 2) % MAX_BATCH;
    int32_t values[MAX_BATCH];
    const char *out = is_one ? outs[0] : outs[1 + (random >> 5 & 1)];
    pthread_mutex_lock(&slot->lock);
    for (int i = 0; i < n; i++)
        values[i] = is_in ? (*next_value)++ : 0;
    if (is_in && is_one)
        begin_number(&slot->e, &storm->q, "in", values[0]);
    else if (is_in)
        begin_numbers(&slot->e, &storm->q, "in_many", values, n);
    else if (is_one)
        begin_op(&slot->e, &storm->q, out);
    else
        begin_number(&slot->e, &storm->q, out, n);
    slot->is_live = true;
    pthread_mutex_unlock(&slot->lock);
    await(&slot->e);
    for (int i = 0; i < n && is_in && !slot->e.status; i++)
        storm->must_be_there[values[i]] = true;
    if (!is_in && !slot->e.status)
        see(storm, &slot->e.call.ctx.outputs[0]);
    storm->n_cancelled += status_code(slot->e.status) == STATUS_CANCELLED;
    pthread_mutex_lock(&slot->lock);
    slot->is_live = false;
    finish(&slot->e);
    pthread_mutex_unlock(&slot->lock);
}

static void *storm_worker(void *arg) {
    struct storm *storm = arg;
    int worker = storm->next_worker++;
    uint32_t random = 12345u + 777u * (uint32_t)worker;
    int32_t next_value = worker * N_OPS * MAX_BATCH;
    for (int i = 0; i < N_OPS; i++)
        storm_op(storm, &storm->slots[worker], next_random(&random), &next_value);
    storm->n_running--;
    return NULL;
}

static void *storm_canceller(void *arg) {
    struct storm *storm = arg;
    uint32_t random = 99;
    while (storm->n_running > 0) {
        struct slot *slot = &storm->slots[next_random(&random) % N_WORKERS];
        for (uint32_t pause = next_random(&random) % 16; pause > 0; pause--)
            sched_yield();
        pthread_mutex_lock(&slot->lock);
        if (slot->is_live)
            cancel(&slot->e);
        pthread_mutex_unlock(&slot->lock);
    }
    return NULL;
}

static void storm_drain(struct storm *storm) {
    struct execution e;
    begin_op(&e, &storm->q, "close");
    finish_ok(&e, NULL);
    begin_number(&e, &storm->q, "out_up_to", N_VALUES);
    await(&e);
    if (!e.status)
        see(storm, &e.call.ctx.outputs[0]);
    finish(&e);
}

/* Every value whose enqueue succeeded comes out once; one whose enqueue was cancelled at most
 * once. */
static void storm_on(const char *op) {
    struct storm *storm = aligned_alloc(64, (sizeof(*storm) + 63) / 64 * 64);
    pthread_t threads[N_WORKERS + 1];
    assert_non_null(storm);
    memset((void *)storm, 0, sizeof(*storm));
    storm->n_running = N_WORKERS;
    queue_fixture_init(&storm->q, op, 3);
    for (int i = 0; i < N_WORKERS; i++)
        pthread_mutex_init(&storm->slots[i].lock, NULL);
    for (int i = 0; i <= N_WORKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL,
                                        i < N_WORKERS ? storm_worker : storm_canceller, storm),
                         0);
    for (int i = 0; i <= N_WORKERS; i++)
        pthread_join(threads[i], NULL);
    storm_drain(storm);
    for (int v = 0; v < N_VALUES; v++) {
        int n = storm->n_seen[v];
        if (n > 1 || (storm->must_be_there[v] && n != 1))
            fail_msg("value %d came out %d times; its enqueue %s", v, n,
                     storm->must_be_there[v] ? "succeeded" : "did not succeed");
    }
    print_message("%s: %d operations, %d cancelled\n", op, N_WORKERS * N_OPS, storm->n_cancelled);
    assert_true(storm->n_cancelled > 0);
    for (int i = 0; i < N_WORKERS; i++)
        pthread_mutex_destroy(&storm->slots[i].lock);
    queue_fixture_fini(&storm->q);
    free(storm);
}

static void test_random_cancellations_lose_nothing(void **state) {
    storm_on("FIFOQueueV2");
    storm_on("PaddingFIFOQueueV2");
    storm_on("RandomShuffleQueueV2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waiting_dequeues_are_served_in_order),
        cmocka_unit_test(test_waiting_enqueues_are_served_in_order),
        cmocka_unit_test(test_a_batch_may_be_larger_than_the_capacity),
        cmocka_unit_test(test_a_cancelled_batch_gives_back_what_it_took),
        cmocka_unit_test(test_a_cancelled_enqueue_lets_the_next_pass),
        cmocka_unit_test(test_closing_ends_waits),
        cmocka_unit_test(test_closing_with_cancel_ends_enqueues),
        cmocka_unit_test(test_a_step_that_is_cancelled_already_does_not_wait),
        cmocka_unit_test(test_a_shuffled_batch_waits_above_the_minimum),
        cmocka_unit_test(test_a_mutex_goes_from_hand_to_hand),
        cmocka_unit_test(test_a_barrier_take_waits_for_complete_tuples),
        cmocka_unit_test(test_accumulated_gradients_are_taken_in_order),
        cmocka_unit_test(test_a_staging_area_waits_both_ways),
        cmocka_unit_test(test_random_cancellations_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
