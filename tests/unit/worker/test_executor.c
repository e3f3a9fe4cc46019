/* The executor: plans from text graphs, run with the CPU kernels and a few kernels of this file
 * that wait, fail or take a pool thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/graph/graph_text.h"
#include "tests/unit/worker/ending.h"
#include "tests/unit/worker/odd_kernels.h"
#include "tests/unit/worker/text_loop.h"
#include "tests/unit/worker/text_run.h"
#include "worker/container.h"
#include "worker/executor/executor.h"
#include "worker/exchange/rendezvous.h"

/* ---- kernels of the TEST device ---- */

static enum kernel_result expensive_copy(struct kernel_ctx *ctx) {
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

/* Sign: tells where it ran. */
static _Atomic bool ran_on_pool;

static enum kernel_result note_thread(struct kernel_ctx *ctx) {
    ran_on_pool = pool_is_current();
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

/* Tan: computes until its execution is cancelled, and says so itself. */
static _Atomic bool is_computing;

static enum kernel_result compute_until_cancelled(struct kernel_ctx *ctx) {
    is_computing = true;
    while (!ctx->host->is_cancelled(ctx))
        sched_yield();
    return kernel_fail(ctx, status_new(STATUS_CANCELLED, "stopped"));
}

/* Cos, and Tanh, which is heavy: take their thread KERNEL_MS. */
enum { KERNEL_MS = 2 };
static _Atomic bool has_started;

static enum kernel_result compute_for_a_while(struct kernel_ctx *ctx) {
    int64_t until_ns = clock_thread_ns() + KERNEL_MS * 1000000;
    has_started = true;
    while (clock_thread_ns() < until_ns)
        sched_yield();
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

/* Sin: its thread has no core for AWAY_MS, as if other work had it. */
enum { AWAY_MS = 20 };
static enum kernel_result be_away(struct kernel_ctx *ctx) {
    nanosleep(&(struct timespec){.tv_nsec = AWAY_MS * 1000000}, NULL);
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def test_rows[] = {
    {.op = "Cos", .compute = compute_for_a_while},
    {.op = "Tanh", .compute = compute_for_a_while},
    {.op = "Sin", .compute = be_away},
    {.op = "Tan", .compute = compute_until_cancelled},
    {.op = "Neg", .compute = neg_later, .flags = KERNEL_ASYNC},
    {.op = "Square", .compute = wait_for_cancel, .flags = KERNEL_ASYNC},
    {.op = "Abs", .compute = always_fail},
    {.op = "Sign", .compute = note_thread},
    {.op = "Exp", .compute = expensive_copy},
};
// clang-format on
static const struct kernel_list test_list = {test_rows, ARRAY_LEN(test_rows)};
static const struct cost_row test_cost_rows[] = {{.op = "Exp", .ns_per_call = 2 * COST_HEAVY_NS},
                                                 {.op = "Tanh", .ns_per_call = 2 * COST_HEAVY_NS}};
static const struct cost_list test_costs = {test_cost_rows, ARRAY_LEN(test_cost_rows)};

/* ---- tests ---- */

static void values_flow_along_data_edges(void **state) {
    expect_result("a = Const() {dtype=float, value=float[]{2}}\n"
                  "b = AddV2(a, a) {T=float}\n"
                  "c = Mul(b, a) {T=float}\n"
                  "out = _MrFetch(c) {T=float, index=0}\n",
                  "float[]{8}");
}

static void feeds_reach_their_consumers(void **state) {
    struct fixture f;
    open_fixture(&f, "x = _MrFeed() {T=float, index=0}\n"
                     "y = AddV2(x, x) {T=float}\n"
                     "out = _MrFetch(y) {T=float, index=0}\n");
    tensor_init_scalar_f32(&f.feeds[0], 21);
    start(&f);
    await(&f);
    expect_fetch(&f, 0, "float[]{42}");
    close_fixture(&f);
}

#define COND(pred)                                       \
    "p = Const() {dtype=bool, value=bool[]{" pred "}}\n" \
    "x = Const() {dtype=float, value=float[]{3}}\n"      \
    "s = Switch(x, p) {T=float}\n"                       \
    "one = Const() {dtype=float, value=float[]{1}}\n"    \
    "no = AddV2(s, one) {T=float}\n"                     \
    "yes = Mul(s:1, s:1) {T=float}\n"                    \
    "m = Merge(no, yes) {T=float, N=2}\n"

static void a_cond_takes_one_branch(void **state) {
    expect_result(COND("true") "out = _MrFetch(m) {T=float, index=0}\n", "float[]{9}");
    expect_result(COND("false") "out = _MrFetch(m) {T=float, index=0}\n", "float[]{4}");
    expect_result(COND("true") "out = _MrFetch(m:1) {T=int32, index=0}\n", "int32[]{1}");
}

/* Both inputs of "d" are there from the start; what it waits for, by a control edge, decides
 * whether it runs. */
static void preset_inputs_do_not_revive_a_dead_node(void **state) {
    expect_result(COND("true") "gate = Identity(no) {T=float}\n"
                               "d = AddV2(x, one, ^gate) {T=float}\n"
                               "out = _MrFetch(d) {T=float, index=0}\n",
                  "dead");
    expect_result(COND("false") "gate = Identity(no) {T=float}\n"
                                "d = AddV2(x, one, ^gate) {T=float}\n"
                                "out = _MrFetch(d) {T=float, index=0}\n",
                  "float[]{4}");
}

/* Kernels with equal states share one; an attribute that makes another state keeps its own. */
static void kernels_share_states_that_are_equal(void **state) {
    expect_result("a = Const() {dtype=float, value=float[2]{1, 2}}\nb = Const() {dtype=float, "
                  "value=float[3]{1, 2, 3}}\n"
                  "x = AddV2(a, a) {T=float}\ny = AddV2(x, x) {T=float}\nsame = NotEqual(y, y) "
                  "{T=float, incompatible_shape_error=true}\n"
                  "differ = NotEqual(y, b) {T=float, incompatible_shape_error=false}\n"
                  "both = LogicalOr(same, differ)\nout = _MrFetch(both) {T=bool, index=0}\n",
                  "bool[2]{true, true}");
    expect_failure("a = Const() {dtype=float, value=float[2]{1, 2}}\nb = Const() {dtype=float, "
                   "value=float[3]{1, 2, 3}}\n"
                   "lax = NotEqual(a, b) {T=float, incompatible_shape_error=false}\n"
                   "strict = NotEqual(a, b, ^lax) {T=float, incompatible_shape_error=true}\nout = "
                   "_MrFetch(strict) {T=bool, index=0}\n",
                   STATUS_INVALID_ARGUMENT, "strict");
}

/* Constants and feeds are shared with the plan and the caller: a kernel that works in place must
 * not write into them. */
static void preset_inputs_keep_their_values(void **state) {
    struct fixture f;
    open_fixture(&f, "big = Const() {dtype=float, value=float[5]{1, 2, 3, 4, 5}}\n"
                     "x = _MrFeed() {T=float, index=0}\n"
                     "y = AddV2(big, x) {T=float}\n"
                     "z = Mul(big, y) {T=float}\n"
                     "out = _MrFetch(z) {T=float, index=0}\n");
    for (int i = 0; i < 3; i++) {
        tensor_clear(&f.feeds[0]);
        tensor_init_scalar_f32(&f.feeds[0], (float)i);
        start(&f);
        await(&f);
        expect_fetch(&f, 0,
                     i == 0   ? "float[5]{1, 4, 9, 16, 25}"
                     : i == 1 ? "float[5]{2, 6, 12, 20, 30}"
                              : "float[5]{3, 8, 15, 24, 35}");
        tensor_clear(&f.fetches[0]);
    }
    close_fixture(&f);
}

static void an_untaken_branch_is_fetched_dead(void **state) {
    expect_result(COND("true") "out = _MrFetch(no) {T=float, index=0}\n", "dead");
}

static void a_control_trigger_is_live_under_dead_inputs(void **state) {
    expect_result(COND("true") "t = ControlTrigger(^no)\n"
                               "c = Const(^t) {dtype=float, value=float[]{5}}\n"
                               "out = _MrFetch(c) {T=float, index=0}\n",
                  "float[]{5}");
}

static void asynchronous_kernels_complete(void **state) {
    expect_result("a = Const() {dtype=float, value=float[]{2}}\n"
                  "b = Neg(a) {T=float}\n"
                  "c = Neg(b) {T=float}\n"
                  "d = Neg(a) {T=float}\n"
                  "e = AddV2(c, c) {T=float}\n"
                  "f = AddV2(e, d) {T=float}\n"
                  "out = _MrFetch(f) {T=float, index=0}\n",
                  "float[]{2}");
}

static void expensive_kernels_run_beside_others(void **state) {
    expect_result("a = Const() {dtype=float, value=float[]{2}}\n"
                  "b = Exp(a) {T=float}\n"
                  "c = Exp(a) {T=float}\n"
                  "d = Exp(a) {T=float}\n"
                  "e = AddV2(b, c) {T=float}\n"
                  "f = AddV2(e, d) {T=float}\n"
                  "out = _MrFetch(f) {T=float, index=0}\n",
                  "float[]{6}");
}

static void the_first_failure_ends_the_step(void **state) {
    expect_failure("a = Const() {dtype=float, value=float[]{2}}\n"
                   "bad = Abs(a) {T=float}\n"
                   "wait = Square(a) {T=float}\n"
                   "c = AddV2(bad, wait) {T=float}\n"
                   "out = _MrFetch(c) {T=float, index=0}\n",
                   STATUS_OUT_OF_RANGE, "this kernel always fails\n\t [[{{node bad}}]]");
    assert_int_equal(atomic_load(&n_waiting), 0);
}

static void cancelling_wakes_what_waits(void **state) {
    struct fixture f;
    open_fixture(&f, "a = Const() {dtype=float, value=float[]{2}}\n"
                     "wait = Square(a) {T=float}\n"
                     "out = _MrFetch(wait) {T=float, index=0}\n");
    for (int i = 0; i < 3; i++) {
        struct status *why = status_new(STATUS_CANCELLED, "the test says so");
        struct str waits = STR_INIT;
        start(&f);
        execution_describe_waits(&f.run, 1 << 20, &waits);
        assert_non_null(strstr(str_text(&waits), "wait (Square)"));
        str_fini(&waits);
        execution_cancel(&f.run, why);
        status_unref(why);
        await(&f);
        assert_int_equal(status_code(f.end.status), STATUS_CANCELLED);
        status_unref(f.end.status);
        f.end.status = NULL;
    }
    assert_int_equal(atomic_load(&n_waiting), 0);
    close_fixture(&f);
}

static void a_cancel_before_the_start_counts(void **state) {
    struct fixture f;
    open_fixture(&f, INT("z", "0") "out = _MrFetch(z) {T=int32, index=0}\n");
    struct status *why = status_new(STATUS_CANCELLED, "too late");
    ending_reset(&f.end);
    execution_init(&f.run);
    f.run.plan = f.plan;
    f.run.fetches = f.fetches;
    f.run.containers = containers;
    f.run.on_done = on_done;
    execution_cancel(&f.run, why);
    execution_start(&f.run);
    await(&f);
    assert_int_equal(status_code(f.end.status), STATUS_CANCELLED);
    status_unref(why);
    close_fixture(&f);
}

/* Cancels a loop of asynchronous kernels at random moments from another thread; every step ends
 * exactly once. */
static void random_cancels_leave_nothing(void **state) {
    struct fixture f;
    open_fixture(
        &f, INT("z", "0") INT("n", "1000000") LOOP(
                "w", "z", "n", "10",
                "f = Const(^w_b) {dtype=float, value=float[]{1}}\n"
                "g = Neg(f) {T=float}\n"
                "w_1 = Const(^g) {dtype=int32, value=int32[]{1}}\n"
                "w_a = AddV2(w_b, w_1) {T=int32}\n"
                "w_n = NextIteration(w_a) {T=int32}\n") "out = _MrFetch(w_x) {T=int32, index=0}\n");
    uint64_t seed = 7;
    for (int i = 0; i < 300; i++) {
        struct status *why = status_new(STATUS_CANCELLED, "at random");
        start(&f);
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        for (volatile unsigned spin = 0; spin < (seed >> 48) % 4096; spin++)
            ;
        execution_cancel(&f.run, why);
        status_unref(why);
        await(&f);
        assert_int_equal(status_code(f.end.status), STATUS_CANCELLED);
        status_unref(f.end.status);
        f.end.status = NULL;
    }
    close_fixture(&f);
}

static void a_budget_moves_a_long_step_to_the_pool(void **state) {
    struct fixture f;
    open_fixture(&f, INT("z", "0") INT("n", "200000")
                         LOOP("w", "z", "n", "10",
                              COUNT_BODY("w")) "out = _MrFetch(w_x) {T=int32, index=0}\n");
    execution_init(&f.run);
    f.run.plan = f.plan;
    f.run.fetches = f.fetches;
    f.run.containers = containers;
    f.run.pool = pool;
    f.run.on_done = on_done;
    f.run.inline_budget_ns = 50000;
    int64_t start_ns = clock_now_ns();
    execution_start(&f.run);
    bool came_back_early = !f.end.is_done;
    await(&f);
    expect_fetch(&f, 0, "int32[]{200000}");
    assert_true(came_back_early || clock_now_ns() - start_ns < 50000);
    close_fixture(&f);
}

/* It would be moved there in the middle of its work. */
static const char SLOW_GRAPH[] = "x = _MrFeed() {T=float, index=0}\n"
                                 "y = Cos(x) {T=float}\n"
                                 "out = _MrFetch(y) {T=float, index=0}\n";

static void open_timed(struct fixture *f, const char *graph, double scale) {
    open_fixture(f, graph);
    tensor_init_scalar_f32(&f->feeds[0], 21);
    has_started = false;
    ending_reset(&f->end);
    execution_init(&f->run);
    f->run = (struct execution){.plan = f->plan,
                                .feeds = f->feeds,
                                .fetches = f->fetches,
                                .containers = containers,
                                .pool = pool,
                                .stats_level = EXECUTION_STATS_ALL,
                                .scale = scale,
                                .inline_budget_ns = INT64_MAX / 2,
                                .lock = f->run.lock,
                                .on_done = on_done};
    execution_start(&f->run);
}

static const struct node_stats *longest_row(const struct fixture *f) {
    const struct node_stats *longest = f->run.stats->nodes;
    for (size_t i = 1; i < f->run.stats->n_nodes; i++) {
        const struct node_stats *row = &f->run.stats->nodes[i];
        if (row->end_ns - row->start_ns > longest->end_ns - longest->start_ns)
            longest = row;
    }
    return longest;
}

static void a_scale_makes_kernels_slower(void **state) {
    struct fixture f;
    open_timed(&f, SLOW_GRAPH, 5);
    await(&f);
    expect_fetch(&f, 0, "float[]{21}");
    const struct node_stats *row = longest_row(&f);
    assert_true(row->end_ns - row->start_ns >= 5 * KERNEL_MS * 1000000ll);
    assert_true(row->busy_ns >= 5 * KERNEL_MS * 1000000ll);
    assert_true(row->busy_ns <= row->end_ns - row->start_ns);
    step_stats_free(f.run.stats);
    close_fixture(&f);
}

/* The scale does not multiply that time either. */
static void busy_times_leave_out_what_other_work_takes(void **state) {
    struct fixture f;
    open_timed(&f,
               "x = _MrFeed() {T=float, index=0}\ny = Sin(x) {T=float}\n"
               "out = _MrFetch(y) {T=float, index=0}\n",
               2);
    await(&f);
    const struct node_stats *row = longest_row(&f);
    assert_true(row->end_ns - row->start_ns >= AWAY_MS * 1000000ll);
    assert_in_range(row->busy_ns, 1, AWAY_MS * 1000000ll / 4);
    step_stats_free(f.run.stats);
    close_fixture(&f);
}

/* Without the cancel it would take half an hour. */
static void a_cancel_ends_what_a_scale_adds(void **state) {
    struct fixture f;
    open_timed(&f, SLOW_GRAPH, 1e6);
    while (!has_started)
        sched_yield();
    struct status *why = status_new(STATUS_CANCELLED, "enough");
    execution_cancel(&f.run, why);
    status_unref(why);
    await(&f);
    assert_int_equal(status_code(f.end.status), STATUS_CANCELLED);
    step_stats_free(f.run.stats);
    close_fixture(&f);
}

/* The sixteen kernels share two threads and the caller's. */
static void a_trace_tells_the_wait_for_a_thread_apart(void **state) {
    enum { N = 16 };
    struct fixture f;
    struct str text = STR_INIT;
    str_add(&text, "x = _MrFeed() {T=float, index=0}\n");
    for (int i = 0; i < N; i++)
        str_addf(&text, "y%d = Tanh(x) {T=float}\n", i);
    str_add(&text, "sum = AddN(y0");
    for (int i = 1; i < N; i++)
        str_addf(&text, ", y%d", i);
    str_addf(&text, ") {N=%d, T=float}\nout = _MrFetch(sum) {T=float, index=0}\n", N);
    open_fixture(&f, str_text(&text));
    tensor_init_scalar_f32(&f.feeds[0], 1);
    ending_reset(&f.end);
    execution_init(&f.run);
    f.run.plan = f.plan;
    f.run.feeds = f.feeds;
    f.run.fetches = f.fetches;
    f.run.containers = containers;
    f.run.pool = pool;
    f.run.stats_level = EXECUTION_STATS_ALL;
    f.run.on_done = on_done;
    execution_start(&f.run);
    await(&f);
    int64_t longest_wait_ns = 0;
    for (size_t i = 0; i < f.run.stats->n_nodes; i++) {
        const struct node_stats *row = &f.run.stats->nodes[i];
        assert_true(row->scheduled_ns <= row->start_ns && row->start_ns <= row->end_ns);
        longest_wait_ns = MAX(longest_wait_ns, row->start_ns - row->scheduled_ns);
    }
    assert_true(longest_wait_ns >= KERNEL_MS * 1000000ll / 2);
    step_stats_free(f.run.stats);
    close_fixture(&f);
    str_fini(&text);
}

static void a_large_plan_begins_on_the_pool(void **state) {
    for (int n = 10; n <= 5000; n += 4990) {
        struct fixture f;
        struct str text = STR_INIT;
        str_add(&text, "n0 = _MrFeed() {T=float, index=0}\nfirst = Sign(n0) {T=float}\n");
        for (int i = 1; i < n; i++)
            str_addf(&text, "n%d = Identity(n%d) {T=float}\n", i, i - 1);
        str_addf(
            &text,
            "out = _MrFetch(n%d) {T=float, index=0}\nseen = _MrFetch(first) {T=float, index=1}\n",
            n - 1);
        open_fixture(&f, str_text(&text));
        str_fini(&text);
        execution_init(&f.run);
        f.run.plan = f.plan;
        f.run.feeds = f.feeds;
        f.run.fetches = f.fetches;
        f.run.containers = containers;
        f.run.pool = pool;
        f.run.on_done = on_done;
        f.run.inline_budget_ns = INT64_MAX / 2;
        tensor_init_scalar_f32(&f.feeds[0], 7);
        execution_start(&f.run);
        await(&f);
        expect_fetch(&f, 0, "float[]{7}");
        assert_int_equal(ran_on_pool, n > 4096);
        close_fixture(&f);
    }
}

static void tracing_records_every_node(void **state) {
    struct fixture f;
    open_fixture(&f,
                 INT("a", "1") "b = AddV2(a, a) {T=int32}\nout = _MrFetch(b) {T=int32, index=0}\n");
    execution_init(&f.run);
    f.run.plan = f.plan;
    f.run.fetches = f.fetches;
    f.run.containers = containers;
    f.run.on_done = on_done;
    f.run.stats_level = EXECUTION_STATS_ALL;
    execution_start(&f.run);
    await(&f);
    assert_non_null(f.run.stats);
    assert_int_equal(f.run.stats->n_nodes, 3);
    for (size_t i = 0; i < f.run.stats->n_nodes; i++)
        assert_true(f.run.stats->nodes[i].end_ns >= f.run.stats->nodes[i].start_ns);
    step_stats_free(f.run.stats);
    close_fixture(&f);
    open_fixture(&f, INT("z", "0") INT("n", "100000")
                         LOOP("w", "z", "n", "10",
                              COUNT_BODY("w")) "out = _MrFetch(w_x) {T=int32, index=0}\n");
    execution_init(&f.run);
    f.run.plan = f.plan;
    f.run.fetches = f.fetches;
    f.run.containers = containers;
    f.run.on_done = on_done;
    f.run.stats_level = EXECUTION_STATS_ALL;
    execution_start(&f.run);
    await(&f);
    assert_int_equal(f.run.stats->n_nodes, 1 << 18); /* and no more: a loop may be endless */
    assert_true(f.run.stats->n_left_out > 500 * 1000);
    step_stats_free(f.run.stats);
    close_fixture(&f);
}

static void bad_plans_name_the_culprit(void **state) {
    // clang-format off
    static const struct { const char *text; enum status_code code; const char *words; } cases[] = {
        {"b = XlaReplicaId()\n", STATUS_UNIMPLEMENTED, "b"},
        {INT("z", "0") "e = Enter(z) {T=int32, frame_name=\"f\"}\nx = AddV2(e, z) {T=int32}\n",
         STATUS_INVALID_ARGUMENT, "{{node x}} has inputs from different frames"},
        {INT("z", "0") "x = Exit(z) {T=int32}\n", STATUS_INVALID_ARGUMENT,
         "{{node x}} is an Exit outside of any loop frame\n\t [[{{node x}}]]"},
        {INT("z", "0") "e = Enter(z) {T=int32, frame_name=\"f\", parallel_iterations=0}\n",
         STATUS_INVALID_ARGUMENT, "parallel_iterations"},
        {INT("z", "0") "e = Enter(z) {T=int32, frame_name=\"f\\x00\"}\n", STATUS_INVALID_ARGUMENT,
         "{{node e}} has a NUL byte"},
        {INT("z",
         "0") "e = Enter(z) {T=int32, frame_name=\"f\"}\no = _MrFetch(e) {T=int32, index=0}\n",
         STATUS_INVALID_ARGUMENT, "{{node e}} cannot be fetched"},
        {INT("z", "0") "x = NextIteration(z) {T=int32}\n", STATUS_INVALID_ARGUMENT,
         "{{node x}} is a NextIteration outside"},
        {"a = Const() {dtype=string, value=float[]{1}}\n", STATUS_INVALID_ARGUMENT,
         "Inconsistent values for attr 'dtype' string vs. float of the value\n\t [[{{node a}}]]"},
    };
    // clang-format on
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct plan *plan = NULL;
        struct status *st = make_plan(cases[i].text, &plan);
        assert_non_null(st);
        assert_int_equal(status_code(st), cases[i].code);
        if (!strstr(status_message(st), cases[i].words))
            fail_msg("'%s' lacks '%s'", status_message(st), cases[i].words);
        status_unref(st);
    }
}

static int setup(void **state) {
    text_runs_begin(&test_list, &test_costs);
    return 0;
}

static void *cancel_when_it_computes(void *arg) {
    struct fixture *f = arg;
    struct status *why = status_unavailable("a task is lost");
    while (!is_computing)
        sched_yield();
    execution_cancel(&f->run, why);
    status_unref(why);
    return NULL;
}

/* The kernel fails before the executor has taken the cancel message. */
static void a_cancelled_kernel_does_not_hide_why(void **state) {
    for (int i = 0; i < 20; i++) {
        struct fixture f;
        pthread_t canceller;
        is_computing = false;
        open_fixture(&f, "a = Const() {dtype=float, value=float[]{1}}\n"
                         "b = Tan(a) {T=float}\n"
                         "y = _MrFetch(b) {T=float, index=0}\n");
        assert_int_equal(pthread_create(&canceller, NULL, cancel_when_it_computes, &f), 0);
        start(&f);
        pthread_join(canceller, NULL);
        await(&f);
        assert_int_equal(status_code(f.end.status), STATUS_UNAVAILABLE);
        assert_string_equal(status_message(f.end.status), "a task is lost");
        close_fixture(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cancelled_kernel_does_not_hide_why),
        cmocka_unit_test(values_flow_along_data_edges),
        cmocka_unit_test(feeds_reach_their_consumers),
        cmocka_unit_test(a_cond_takes_one_branch),
        cmocka_unit_test(preset_inputs_do_not_revive_a_dead_node),
        cmocka_unit_test(preset_inputs_keep_their_values),
        cmocka_unit_test(kernels_share_states_that_are_equal),
        cmocka_unit_test(an_untaken_branch_is_fetched_dead),
        cmocka_unit_test(a_control_trigger_is_live_under_dead_inputs),
        cmocka_unit_test(asynchronous_kernels_complete),
        cmocka_unit_test(expensive_kernels_run_beside_others),
        cmocka_unit_test(the_first_failure_ends_the_step),
        cmocka_unit_test(cancelling_wakes_what_waits),
        cmocka_unit_test(a_cancel_before_the_start_counts),
        cmocka_unit_test(random_cancels_leave_nothing),
        cmocka_unit_test(a_budget_moves_a_long_step_to_the_pool),
        cmocka_unit_test(a_scale_makes_kernels_slower),
        cmocka_unit_test(busy_times_leave_out_what_other_work_takes),
        cmocka_unit_test(a_cancel_ends_what_a_scale_adds),
        cmocka_unit_test(a_trace_tells_the_wait_for_a_thread_apart),
        cmocka_unit_test(a_large_plan_begins_on_the_pool),
        cmocka_unit_test(tracing_records_every_node),
        cmocka_unit_test(bad_plans_name_the_culprit),
    };
    return cmocka_run_group_tests(tests, setup, text_runs_end);
}
