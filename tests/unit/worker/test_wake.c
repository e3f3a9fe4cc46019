/* Steps that wake each other through queues: when the woken one runs, and on which thread. */
#include "kernels/host.h"
#include "tests/unit/worker/text_run.h"

/* ---- kernels of the TEST device ---- */

/* Sign: tells that it ran, in which order, and how deep the stack is. */
enum { MAX_NOTES = 8192 };
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n;
    int values[MAX_NOTES];
    uintptr_t lowest, highest; /* stack addresses */
} notes = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void forget_notes(void) {
    notes.n = 0;
    notes.lowest = UINTPTR_MAX;
    notes.highest = 0;
}

static enum kernel_result note(struct kernel_ctx *ctx) {
    uintptr_t here = (uintptr_t)__builtin_frame_address(0);
    pthread_mutex_lock(&notes.lock);
    notes.values[notes.n++] = *(const int32_t *)tensor_cdata(&ctx->inputs[0]);
    notes.lowest = MIN(notes.lowest, here);
    notes.highest = MAX(notes.highest, here);
    pthread_cond_broadcast(&notes.changed);
    pthread_mutex_unlock(&notes.lock);
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

/* Square: busy until somebody else's note 2 is there. */
static enum kernel_result await_note(struct kernel_ctx *ctx) {
    pthread_mutex_lock(&notes.lock);
    while (notes.n == 0 || notes.values[notes.n - 1] != 2)
        pthread_cond_wait(&notes.changed, &notes.lock);
    pthread_mutex_unlock(&notes.lock);
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def test_rows[] = {
    {.op = "Sign", .compute = note},
    {.op = "Square", .compute = await_note},
};
// clang-format on
static const struct kernel_list test_list = {test_rows, ARRAY_LEN(test_rows)};
static const struct cost_row test_cost_rows[] = {
    {.op = "Square", .ns_per_call = 2 * COST_HEAVY_NS}};
static const struct cost_list test_costs = {test_cost_rows, ARRAY_LEN(test_cost_rows)};

/* ---- steps ---- */

#define INT(name, value) name " = Const() {dtype=int32, value=int32[]{" value "}}\n"
#define QUEUE(name, capacity)                                                         \
    name " = FIFOQueueV2() {component_types=[int32], shapes=[[]], capacity=" capacity \
         ", shared_name=\"" name "\"}\n"

/* Takes a number from a queue, and notes another. */
static const char woken_text[] =
    QUEUE("q", "4") INT("two", "2") "taken = QueueDequeueV2(q) {component_types=[int32]}\n"
                                    "noted = Sign(two, ^taken) {T=int32}\n"
                                    "out = _MrFetch(noted) {T=int32, index=0}\n";

static void start_without_pool(struct fixture *f) {
    struct pool *none = pool;
    pool = NULL;
    start(f);
    pool = none;
}

static void expect_ok(struct fixture *f) {
    await(f);
    if (f->end.status)
        fail_msg("%s", status_message(f->end.status));
    tensor_clear(&f->fetches[0]);
}

static void a_waker_goes_on_before_what_it_woke(void **state) {
    struct fixture woken, waker;
    forget_notes();
    open_fixture(&woken, woken_text);
    open_fixture(&waker, QUEUE("q", "4")
                             INT("one", "1") "put = QueueEnqueueV2(q, one) {Tcomponents=[int32]}\n"
                                             "noted = Sign(one, ^put) {T=int32}\n"
                                             "out = _MrFetch(noted) {T=int32, index=0}\n");
    start_without_pool(&woken);
    assert_false(woken.end.is_done);
    start_without_pool(&waker);
    assert_true(woken.end.is_done && waker.end.is_done); /* the waker's thread ran both */
    expect_ok(&waker);
    expect_ok(&woken);
    assert_int_equal(notes.n, 2);
    assert_int_equal(notes.values[0], 1);
    close_fixture(&waker);
    close_fixture(&woken);
}

static void what_was_woken_does_not_wait_for_a_heavy_node(void **state) {
    struct fixture woken, waker;
    forget_notes();
    open_fixture(&woken, woken_text);
    open_fixture(&waker, QUEUE("q", "4")
                             INT("one", "1") "put = QueueEnqueueV2(q, one) {Tcomponents=[int32]}\n"
                                             "busy = Square(one, ^put) {T=int32}\n"
                                             "out = _MrFetch(busy) {T=int32, index=0}\n");
    start(&woken);
    start(&waker); /* the heavy node ends when the woken step has run */
    expect_ok(&waker);
    expect_ok(&woken);
    close_fixture(&waker);
    close_fixture(&woken);
}

/* Each step waits for the one before it. */
static void a_long_chain_of_wakes_is_not_deep(void **state) {
    enum { CHAIN = 4000, DEPTH_BYTES = 16 << 10 };
    struct fixture *links = aligned_alloc(64, CHAIN * sizeof *links), first;
    assert_non_null(links);
    forget_notes();
    for (int i = 0; i < CHAIN; i++) {
        struct str text = STR_INIT;
        str_addf(&text,
                 "from = FIFOQueueV2() {component_types=[int32], shapes=[[]], capacity=1, "
                 "shared_name=\"link%d\"}\n"
                 "to = FIFOQueueV2() {component_types=[int32], shapes=[[]], capacity=1, "
                 "shared_name=\"link%d\"}\n"
                 "taken = QueueDequeueV2(from) {component_types=[int32]}\n"
                 "noted = Sign(taken) {T=int32}\n"
                 "put = QueueEnqueueV2(to, noted) {Tcomponents=[int32]}\n"
                 "out = _MrFetch(noted, ^put) {T=int32, index=0}\n",
                 i, i + 1);
        open_fixture(&links[i], str_text(&text));
        str_fini(&text);
        start_without_pool(&links[i]);
        assert_false(links[i].end.is_done);
    }
    open_fixture(&first,
                 QUEUE("link0", "1")
                     INT("one", "1") "put = QueueEnqueueV2(link0, one) {Tcomponents=[int32]}\n"
                                     "out = _MrFetch(one, ^put) {T=int32, index=0}\n");
    start_without_pool(&first);
    expect_ok(&first);
    for (int i = 0; i < CHAIN; i++) {
        assert_true(links[i].end.is_done);
        expect_ok(&links[i]);
        close_fixture(&links[i]);
    }
    assert_int_equal(notes.n, CHAIN);
    assert_true(notes.highest - notes.lowest < DEPTH_BYTES);
    close_fixture(&first);
    free(links);
}

/* ---- a pool whose one thread is held ---- */

static struct holder {
    struct pool_task task;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_holding, is_free;
} holder = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void hold(struct pool_task *task) {
    pthread_mutex_lock(&holder.lock);
    holder.is_holding = true;
    pthread_cond_broadcast(&holder.changed);
    while (!holder.is_free)
        pthread_cond_wait(&holder.changed, &holder.lock);
    pthread_mutex_unlock(&holder.lock);
}

static struct pool *pool_new_held(void) {
    struct pool *held = pool_new(1);
    holder.is_holding = holder.is_free = false;
    holder.task.run = hold;
    pool_submit(held, &holder.task);
    pthread_mutex_lock(&holder.lock);
    while (!holder.is_holding)
        pthread_cond_wait(&holder.changed, &holder.lock);
    pthread_mutex_unlock(&holder.lock);
    return held;
}

static void pool_let_go(void) {
    pthread_mutex_lock(&holder.lock);
    holder.is_free = true;
    pthread_cond_broadcast(&holder.changed);
    pthread_mutex_unlock(&holder.lock);
}

/* As on a loop thread: what is light runs here. */
static void start_with_budget(struct fixture *f) {
    execution_init(&f->run);
    ending_reset(&f->end);
    f->run.plan = f->plan;
    f->run.fetches = f->fetches;
    f->run.containers = containers;
    f->run.pool = pool;
    f->run.inline_budget_ns = 50000;
    f->run.on_done = on_done;
    execution_start(&f->run);
}

/* ---- two steps that wake each other without end ---- */

#define HAND_LOOP                                              \
    "m = Merge(e, n) {T=int32, N=2}\n"                         \
    "less = Less(m, limit) {T=int32}\n"                        \
    "p = LoopCond(less)\n"                                     \
    "s = Switch(m, p) {T=int32}\n"                             \
    "b = Identity(s:1) {T=int32}\n"                            \
    "got = QueueDequeueV2(in, ^b) {component_types=[int32]}\n" \
    "put = QueueEnqueueV2(to, got) {Tcomponents=[int32]}\n"    \
    "pass = Identity(got, ^put) {T=int32}\n"                   \
    "n = NextIteration(pass) {T=int32}\n"                      \
    "x = Exit(s) {T=int32}\n"                                  \
    "out = _MrFetch(x) {T=int32, index=0}\n"
#define HAND_TO_HAND(from, to)                                                                    \
    QUEUE(from, "4")                                                                              \
    QUEUE(to, "4")                                                                                \
    INT("zero", "0")                                                                              \
    INT("never", "2000000000")                                                                    \
    "e = Enter(zero) {T=int32, frame_name=\"w\", parallel_iterations=1}\n"                        \
    "limit = Enter(never) {T=int32, frame_name=\"w\", is_constant=true, parallel_iterations=1}\n" \
    "in = Enter(" from                                                                            \
    ") {T=resource, frame_name=\"w\", is_constant=true, parallel_iterations=1}\n"                 \
    "to = Enter(" to                                                                              \
    ") {T=resource, frame_name=\"w\", is_constant=true, parallel_iterations=1}\n" HAND_LOOP

static void steps_that_wake_each_other_leave_a_thread_to_others(void **state) {
    struct fixture there, back, begin;
    struct pool *free_pool = pool;
    open_fixture(&there, HAND_TO_HAND("ping", "pong"));
    open_fixture(&back, HAND_TO_HAND("pong", "ping"));
    open_fixture(&begin,
                 QUEUE("ping", "4")
                     INT("one", "1") "put = QueueEnqueueV2(ping, one) {Tcomponents=[int32]}\n"
                                     "out = _MrFetch(one, ^put) {T=int32, index=0}\n");
    pool = pool_new_held();
    start_with_budget(&there);
    start_with_budget(&back);
    start_with_budget(&begin);
    pool_let_go();
    expect_ok(&begin);
    for (int i = 0; i < 3; i++) { /* each goes through the pool's only thread */
        struct fixture other;
        open_fixture(
            &other,
            INT("one",
                "1") "busy = Square(one) {T=int32}\nout = _MrFetch(busy) {T=int32, index=0}\n");
        forget_notes();
        notes.values[notes.n++] = 2; /* so that it is not busy for long */
        start_with_budget(&other);
        expect_ok(&other);
        close_fixture(&other);
    }
    struct status *why = status_new(STATUS_CANCELLED, "enough");
    execution_cancel(&there.run, why);
    execution_cancel(&back.run, why);
    status_unref(why);
    await(&there);
    await(&back);
    assert_int_equal(status_code(there.end.status), STATUS_CANCELLED);
    assert_int_equal(status_code(back.end.status), STATUS_CANCELLED);
    pool_free(pool);
    pool = free_pool;
    close_fixture(&there);
    close_fixture(&back);
    close_fixture(&begin);
}

/* ---- what is not run on a thread that must not be held ---- */

/* Runs the text on this thread, which belongs to no pool, with a budget: did the step end here?
 * The pool is held meanwhile. */
static bool ends_here(const char *text) {
    struct fixture f;
    struct pool *free_pool = pool;
    open_fixture(&f, text);
    pool = pool_new_held();
    start_with_budget(&f);
    pthread_mutex_lock(&f.end.lock);
    bool is_done = f.end.is_done;
    pthread_mutex_unlock(&f.end.lock);
    pool_let_go();
    await(&f);
    pool_free(pool);
    pool = free_pool;
    if (f.end.status)
        fail_msg("%s", status_message(f.end.status));
    close_fixture(&f);
    return is_done;
}

#define OUT(type) "out = _MrFetch(x) {T=" type ", index=0}\n"
#define FLOAT(name, value) name " = Const() {dtype=float, value=float[]{" value "}}\n"
#define VECTOR(name, value) name " = Const() {dtype=int32, value=int32[2]{" value "}}\n"

static const struct {
    const char *name, *small, *large;
} works[] = {
    {"Fill",
     FLOAT("v", "1")
         VECTOR("d", "3, 3") "x = Fill(d, v) {T=float, index_type=int32}\n" OUT("float"),
     FLOAT("v", "1")
         VECTOR("d", "3000, 3000") "x = Fill(d, v) {T=float, index_type=int32}\n" OUT("float")},
    {"RandomUniform",
     VECTOR("d", "3, 3") "x = RandomUniform(d) {T=int32, dtype=float}\n" OUT("float"),
     VECTOR("d", "3000, 3000") "x = RandomUniform(d) {T=int32, dtype=float}\n" OUT("float")},
    {"Range",
     INT("a", "0") INT("b", "9") INT("c", "1") "x = Range(a, b, c) {Tidx=int32}\n" OUT("int32"),
     INT("a", "0") INT("b", "9000000")
         INT("c", "1") "x = Range(a, b, c) {Tidx=int32}\n" OUT("int32")},
    {"Tile",
     VECTOR("v", "1, 2") INT("n", "4") "one = ExpandDims(n, zero) {T=int32, Tdim=int32}\n" INT(
         "zero", "0") "x = Tile(v, one) {T=int32, Tmultiples=int32}\n" OUT("int32"),
     VECTOR("v", "1, 2")
         INT("n", "4000000") "one = ExpandDims(n, zero) {T=int32, Tdim=int32}\n" INT(
             "zero", "0") "x = Tile(v, one) {T=int32, Tmultiples=int32}\n" OUT("int32")},
    {"broadcasting",
     INT("a", "0") INT("b", "9") INT("c", "1")
         INT("zero", "0") "r = Range(a, b, c) {Tidx=int32}\n"
                          "column = ExpandDims(r, c) {T=int32, Tdim=int32}\n"
                          "x = AddV2(r, column) {T=int32}\n" OUT("int32"),
     INT("a", "0") INT("b", "3000") INT("c", "1")
         INT("zero", "0") "r = Range(a, b, c) {Tidx=int32}\n"
                          "column = ExpandDims(r, c) {T=int32, Tdim=int32}\n"
                          "x = AddV2(r, column) {T=int32}\n" OUT("int32")},
};

static void outputs_that_inputs_do_not_show_are_made_by_the_pool(void **state) {
    for (size_t i = 0; i < ARRAY_LEN(works); i++) {
        if (!ends_here(works[i].small))
            fail_msg("%s: a small one went to the pool", works[i].name);
        if (ends_here(works[i].large))
            fail_msg("%s: a large one ran here", works[i].name);
    }
}

/* Rows of a batch are put side by side by the pool when they are large, where the step runs when
 * not. */
static void expect_batch(bool is_large) {
    struct fixture put, take;
    struct str text = STR_INIT, taking = STR_INIT;
    const char *size = is_large ? "65536" : "16";
    str_addf(&text,
             "q = FIFOQueueV2() {component_types=[float], shapes=[[%s]], capacity=8, "
             "shared_name=\"rows%s\"}\n"
             "size = Const() {dtype=int32, value=int32[1]{%s}}\n"
             "four = Const() {dtype=int32, value=int32[]{4}}\n",
             size, size, size);
    str_add(&taking, str_text(&text));
    str_add(&text, "zero = Const() {dtype=float, value=float[]{0}}\n"
                   "row = Fill(size, zero) {T=float, index_type=int32}\n"
                   "out = _MrFetch(four, ^put0, ^put1, ^put2, ^put3) {T=int32, index=0}\n");
    for (int i = 0; i < 4; i++)
        str_addf(&text, "put%d = QueueEnqueueV2(q, row) {Tcomponents=[float]}\n", i);
    str_add(&taking, "rows = QueueDequeueManyV2(q, four) {component_types=[float]}\n"
                     "out = _MrFetch(rows) {T=float, index=0}\n");
    open_fixture(&put, str_text(&text));
    open_fixture(&take, str_text(&taking));
    str_fini(&text);
    str_fini(&taking);
    start(&put);
    expect_ok(&put);
    struct pool *free_pool = pool;
    pool = pool_new_held();
    start(&take);
    pthread_mutex_lock(&take.end.lock);
    assert_int_equal(take.end.is_done, !is_large);
    pthread_mutex_unlock(&take.end.lock);
    pool_let_go();
    await(&take);
    pool_free(pool);
    pool = free_pool;
    assert_null(take.end.status);
    assert_int_equal(take.fetches[0].n_elements, is_large ? 4 * 65536 : 4 * 16);
    close_fixture(&put);
    close_fixture(&take);
}

static void large_batches_are_made_by_the_pool(void **state) {
    expect_batch(false);
    expect_batch(true);
}

static int setup(void **state) {
    text_runs_begin(&test_list, &test_costs);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_waker_goes_on_before_what_it_woke),
        cmocka_unit_test(what_was_woken_does_not_wait_for_a_heavy_node),
        cmocka_unit_test(a_long_chain_of_wakes_is_not_deep),
        cmocka_unit_test(outputs_that_inputs_do_not_show_are_made_by_the_pool),
        cmocka_unit_test(steps_that_wake_each_other_leave_a_thread_to_others),
        cmocka_unit_test(large_batches_are_made_by_the_pool),
    };
    return cmocka_run_group_tests(tests, setup, text_runs_end);
}
