/* The executor: plans from text graphs, run with the CPU kernels and a few kernels of this file
 * that wait, fail or take a pool thread. */
#include <malloc.h>
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

// clang-format off
static const struct kernel_def test_rows[] = {
    {.op = "Neg", .compute = neg_later, .flags = KERNEL_ASYNC},
    {.op = "Square", .compute = wait_for_cancel, .flags = KERNEL_ASYNC},
    {.op = "Abs", .compute = always_fail},
    {.op = "Sign", .compute = note_thread},
    {.op = "Exp", .compute = expensive_copy},
};
// clang-format on
static const struct kernel_list test_list = {test_rows, ARRAY_LEN(test_rows)};
static const struct cost_row test_cost_rows[] = {{.op = "Exp", .ns_per_call = 2 * COST_HEAVY_NS}};
static const struct cost_list test_costs = {test_cost_rows, ARRAY_LEN(test_cost_rows)};

static void expect_fetch(const struct fixture *f, int i, const char *text) {
    struct str printed = STR_INIT;
    if (f->end.status)
        fail_msg("%s", status_message(f->end.status));
    if (f->fetches[i].storage == TENSOR_DEAD)
        str_add(&printed, "dead");
    else
        tensor_print(&f->fetches[i], 16, &printed);
    assert_string_equal(str_text(&printed), text);
    str_fini(&printed);
}

/* Runs the text several times on one plan (recycled steps must behave like new ones) and
 * compares fetch 0. */
static void expect_result(const char *text, const char *result) {
    struct fixture f;
    open_fixture(&f, text);
    for (int i = 0; i < 3; i++) {
        start(&f);
        await(&f);
        expect_fetch(&f, 0, result);
        tensor_clear(&f.fetches[0]);
    }
    close_fixture(&f);
}

static void expect_failure(const char *text, enum status_code code, const char *words) {
    struct fixture f;
    open_fixture(&f, text);
    for (int i = 0; i < 3; i++) {
        start(&f);
        await(&f);
        assert_int_equal(status_code(f.end.status), code);
        if (!strstr(status_message(f.end.status), words))
            fail_msg("'%s' lacks '%s'", status_message(f.end.status), words);
        assert_int_equal(f.fetches[0].storage, TENSOR_NONE);
        status_unref(f.end.status);
        f.end.status = NULL;
    }
    close_fixture(&f);
}

#define FETCH "out = _MrFetch(%s) {T=%s, index=0}\n"

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

/* while i < limit: i += step — eight nodes an iteration, as a client builds it. */
#define LOOP(name, from, limit, parallel, body)                                                    \
    name "_e = Enter(" from ") {T=int32, frame_name=\"" name "\", parallel_iterations=" parallel   \
         "}\n" name "_l = Enter(" limit ") {T=int32, frame_name=\"" name                           \
         "\", is_constant=true, parallel_iterations=" parallel "}\n" name "_m = Merge(" name       \
         "_e, " name "_n) {T=int32, N=2}\n" name "_c = Less(" name "_m, " name                     \
         "_l) {T=int32}\n" name "_p = LoopCond(" name "_c)\n" name "_s = Switch(" name "_m, " name \
         "_p) {T=int32}\n" name "_b = Identity(" name "_s:1) {T=int32}\n" body name                \
         "_x = Exit(" name "_s) {T=int32}\n"
#define COUNT_BODY(name)                                                                     \
    name "_1 = Const(^" name "_b) {dtype=int32, value=int32[]{1}}\n" name "_a = AddV2(" name \
         "_b, " name "_1) {T=int32}\n" name "_n = NextIteration(" name "_a) {T=int32}\n"
#define INT(name, value) name " = Const() {dtype=int32, value=int32[]{" value "}}\n"

static void a_loop_counts(void **state) {
    expect_result(
        INT("z", "0") INT("ten", "10")
            LOOP("w", "z", "ten", "10", COUNT_BODY("w")) "out = _MrFetch(w_x) {T=int32, index=0}\n",
        "int32[]{10}");
    expect_result(
        INT("z", "0") INT("n", "100000")
            LOOP("w", "z", "n", "1", COUNT_BODY("w")) "out = _MrFetch(w_x) {T=int32, index=0}\n",
        "int32[]{100000}");
    expect_result(
        INT("z", "5") INT("n", "3")
            LOOP("w", "z", "n", "32", COUNT_BODY("w")) "out = _MrFetch(w_x) {T=int32, index=0}\n",
        "int32[]{5}");
}

/* Bytes that a first run of the text takes and keeps: iterations are recycled, so what was ever
 * needed at one time is there at the end. */
static int64_t bytes_of_a_run(const char *text) {
    struct fixture f;
    open_fixture(&f, text);
    int64_t before = (int64_t)mallinfo2().uordblks;
    start(&f);
    await(&f);
    int64_t taken = (int64_t)mallinfo2().uordblks - before;
    assert_null(f.end.status);
    close_fixture(&f);
    return taken;
}

static void a_loop_of_a_million_iterations_takes_the_memory_of_a_hundred(void **state) {
    static const char few[] = INT("z", "0") INT("n", "100")
        LOOP("w", "z", "n", "32", COUNT_BODY("w")) "out = _MrFetch(w_x) {T=int32, index=0}\n";
    static const char many[] = INT("z", "0") INT("n", "1000000")
        LOOP("w", "z", "n", "32", COUNT_BODY("w")) "out = _MrFetch(w_x) {T=int32, index=0}\n";
    int64_t few_bytes = bytes_of_a_run(few), many_bytes = bytes_of_a_run(many);
    if (many_bytes > few_bytes + 4096)
        fail_msg("%lld bytes for a million iterations, %lld for a hundred", (long long)many_bytes,
                 (long long)few_bytes);
}

/* The body of the outer loop runs an inner loop that counts from i to 7, and goes on with its
 * result. */
static void loops_nest(void **state) {
    expect_result(
        INT("z", "0") INT("outer", "20") INT("inner", "7") LOOP(
            "w", "z", "outer", "4",
            "w_in = Enter(inner) {T=int32, frame_name=\"w\", is_constant=true, "
            "parallel_iterations=4}\n" LOOP(
                "v", "w_b", "w_in", "3",
                COUNT_BODY("v")) "w_1 = Const(^w_b) {dtype=int32, value=int32[]{1}}\n"
                                 "w_a = AddV2(v_x, w_1) {T=int32}\n"
                                 "w_n = NextIteration(w_a) {T=int32}\n") "out = _MrFetch(w_x) "
                                                                         "{T=int32, index=0}\n",
        "int32[]{20}");
}

/* Each outer loop has two inner ones side by side; @ stands for its number. */
static const char two_in_one[] =
    LOOP("w@", "z", "outer", "4",
         "w@_in = Enter(inner) {T=int32, frame_name=\"w@\", is_constant=true, "
         "parallel_iterations=4}\n" LOOP("v@", "w@_b", "w@_in", "3", COUNT_BODY("v@"))
             LOOP("u@", "w@_b", "w@_in", "3",
                  COUNT_BODY("u@")) "w@_1 = Const(^w@_b) {dtype=int32, value=int32[]{1}}\n"
                                    "w@_d = Sub(u@_x, v@_x) {T=int32}\n"
                                    "w@_v = AddV2(v@_x, w@_1) {T=int32}\n"
                                    "w@_a = AddV2(w@_v, w@_d) {T=int32}\n"
                                    "w@_n = NextIteration(w@_a) {T=int32}\n");

static void loops_stand_beside_and_inside_each_other(void **state) {
    struct str text = STR_INIT;
    str_add(&text, INT("z", "0") INT("outer", "20") INT("inner", "7"));
    for (int i = 0; i < 50; i++) {
        for (const char *at = two_in_one; *at; at++)
            if (*at == '@')
                str_addf(&text, "%d", i);
            else
                str_add_char(&text, *at);
        if (i == 0)
            str_add(&text, "sum0 = Identity(w0_x) {T=int32}\n");
        else
            str_addf(&text, "sum%d = AddV2(sum%d, w%d_x) {T=int32}\n", i, i - 1, i);
    }
    str_add(&text, "out = _MrFetch(sum49) {T=int32, index=0}\n");
    expect_result(str_text(&text), "int32[]{1000}");
    str_fini(&text);
}

/* A loop in an untaken branch: its Exit is dead, and the Merge after it takes the other side. */
static void a_dead_loop_ends_dead(void **state) {
    expect_result(
        "p = Const() {dtype=bool, value=bool[]{false}}\n" INT("z", "0")
            INT("n", "10") "s = Switch(z, p) {T=int32}\n" LOOP(
                "w", "s:1", "n", "10", COUNT_BODY("w")) "other = Identity(s) {T=int32}\n"
                                                        "m = Merge(w_x, other) {T=int32, N=2}\n"
                                                        "out = _MrFetch(m:1) {T=int32, index=0}\n",
        "int32[]{1}");
}

static void a_cond_inside_a_loop(void **state) {
    /* i += i < 5 ? 1 : 10 */
    expect_result(
        INT("z", "0") INT("n", "30")
            LOOP("w", "z", "n", "10",
                 "five = Const(^w_b) {dtype=int32, value=int32[]{5}}\n"
                 "q = Less(w_b, five) {T=int32}\n"
                 "s = Switch(w_b, q) {T=int32}\n"
                 "ten = Const(^s) {dtype=int32, value=int32[]{10}}\n"
                 "one = Const(^w_b) {dtype=int32, value=int32[]{1}}\n"
                 "big = AddV2(s, ten) {T=int32}\n"
                 "small = AddV2(s:1, one) {T=int32}\n"
                 "w_a = Merge(big, small) {T=int32, N=2}\n"
                 "w_n = NextIteration(w_a) {T=int32}\n") "out = _MrFetch(w_x) {T=int32, index=0}\n",
        "int32[]{35}");
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

static void a_failure_inside_a_loop_frees_its_frames(void **state) {
    expect_failure(INT("z", "0") INT("n", "10")
                       LOOP("w", "z", "n", "10",
                            "f = Const(^w_b) {dtype=float, value=float[]{1}}\n"
                            "bad = Abs(f) {T=float}\n" COUNT_BODY(
                                "w")) "out = _MrFetch(w_x) {T=int32, index=0}\n",
                   STATUS_OUT_OF_RANGE, "[[{{node bad}}]]");
}

/* Its Exit takes the loop variable itself, not a Switch's output: the sum would run on two
 * values of one edge, and none of the other. */
/* Frames nest as deep as a graph likes; the thread's stack is not what holds them. */
static void a_failure_deep_inside_frees_all_frames(void **state) {
    enum { DEPTH = 30000 };
    struct fixture f;
    struct str text = STR_INIT;
    str_add(&text, "e0 = Const() {dtype=float, value=float[]{1}}\n");
    for (int i = 1; i <= DEPTH; i++)
        str_addf(&text, "e%d = Enter(e%d) {T=float, frame_name=\"f%d\", parallel_iterations=1}\n",
                 i, i - 1, i);
    str_addf(&text, "late = Neg(e%d) {T=float}\nfails = Abs(late) {T=float}\n", DEPTH);
    open_fixture(&f, str_text(&text));
    str_fini(&text);
    for (int i = 0; i < 2; i++) {
        start(&f);
        await(&f);
        assert_int_not_equal(status_code(f.end.status), STATUS_OK);
        status_unref(f.end.status);
        f.end.status = NULL;
    }
    close_fixture(&f);
}

static void a_loop_is_left_once(void **state) {
    expect_failure(
        INT("z", "0") INT("n", "10")
            LOOP("w", "z", "n", "10", COUNT_BODY("w")) "often = Exit(w_m) {T=int32}\n"
                                                       "late = AddV2(w_x, w_x) {T=int32}\n"
                                                       "sum = AddV2(often, late) {T=int32}\n"
                                                       "out = _MrFetch(sum) {T=int32, index=0}\n",
        STATUS_INVALID_ARGUMENT, "two iterations of its loop\n\t [[{{node often}}]]");
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
    f.run.collect_stats = true;
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
    f.run.collect_stats = true;
    execution_start(&f.run);
    await(&f);
    assert_int_equal(f.run.stats->n_nodes, 1 << 18); /* and no more: a loop may be endless */
    step_stats_free(f.run.stats);
    close_fixture(&f);
}

#define REF_VARIABLE(name) \
    name " = VariableV2() {dtype=float, shape=[], shared_name=\"" name "\"}\n"

/* As clients write it: v/read has no control input, and who uses it after an update means the
 * new value. */
static void an_update_shows_in_what_uses_a_reference_after_it(void **state) {
    expect_result(REF_VARIABLE("late") "one = Const() {dtype=float, value=float[]{1}}\n"
                                       "init = Assign(late, one) {T=float}\n"
                                       "read = Identity(late, ^init) {T=float}\n"
                                       "before = AddV2(read, one) {T=float}\n"
                                       "update = AssignAdd(late, one, ^before) {T=float}\n"
                                       "after = Mul(read, one, ^update) {T=float}\n"
                                       "copy = Identity(read, ^update) {T=float}\n"
                                       "both = Mul(after, copy) {T=float}\n"
                                       "sum = AddV2(both, before) {T=float}\n"
                                       "out = _MrFetch(sum) {T=float, index=0}\n",
                  "float[]{6}");
    expect_failure(
        REF_VARIABLE("unset") "read = Identity(unset) {T=float}\nuse = Neg(read) {T=float}\n",
        STATUS_FAILED_PRECONDITION, "[[{{node read}}]]");
}

/* Each op makes an output that shares the variable's buffer in TensorFlow, so what reads the output
 * after the update sees the update. */
static void an_update_shows_behind_every_op_that_forwards_a_reference(void **state) {
    static const char *const ops[] = {
        "Identity(read) {T=float}",
        "IdentityN(read) {T=[float]}",
        "StopGradient(read) {T=float}",
        "PreventGradient(read) {T=float}",
        "GuaranteeConst(read) {T=float}",
        "PlaceholderWithDefault(read) {dtype=float, shape=[]}",
        "EnsureShape(read) {T=float, shape=[]}",
        "CheckNumerics(read) {T=float, message=\"m\"}",
        "Reshape(read, none) {T=float, Tshape=int32}",
        "Squeeze(read) {T=float}",
        "Identity(late) {T=float}",
        "Reshape(late, none) {T=float, Tshape=int32}",
    };
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        struct str text = STR_INIT;
        str_addf(&text,
                 REF_VARIABLE("late") "one = Const() {dtype=float, value=float[]{1}}\n"
                                      "none = Const() {dtype=int32, value=int32[0]{}}\n"
                                      "init = Assign(late, one) {T=float}\n"
                                      "read = Identity(late, ^init) {T=float}\n"
                                      "first = %.*s, ^init) %s\n"
                                      "again = Identity(first) {T=float}\n"
                                      "before = AddV2(again, one) {T=float}\n"
                                      "update = AssignAdd(late, one, ^before) {T=float}\n"
                                      "after = AddV2(again, one, ^update) {T=float}\n"
                                      "out = _MrFetch(after) {T=float, index=0}\n",
                 (int)(strchr(ops[i], ')') - ops[i]), ops[i], strchr(ops[i], ')') + 2);
        expect_result(str_text(&text), "float[]{3}");
        str_fini(&text);
    }
}

/* The view keeps its shape, the variable its own. */
static void a_reshaped_reference_is_read_late_under_its_shape(void **state) {
    expect_result("v = VariableV2() {dtype=float, shape=[2,3], shared_name=\"shaped\"}\n"
                  "x = Const() {dtype=float, value=float[2,3]{1, 2, 3, 4, 5, 6}}\n"
                  "flat = Const() {dtype=int32, value=int32[1]{-1}}\n"
                  "last = Const() {dtype=int32, value=int32[]{1}}\n"
                  "init = Assign(v, x) {T=float}\n"
                  "read = Identity(v, ^init) {T=float}\n"
                  "r = Reshape(read, flat) {T=float, Tshape=int32}\n"
                  "e = ExpandDims(r, last) {T=float, Tdim=int32}\n"
                  "s = Squeeze(e) {T=float, squeeze_dims=[1]}\n"
                  "update = AssignAdd(v, x, ^s) {T=float}\n"
                  "copy = Mul(s, s, ^update) {T=float}\n"
                  "out = _MrFetch(copy) {T=float, index=0}\n",
                  "float[6]{4, 16, 36, 64, 100, 144}");
    expect_failure("v = VariableV2() {dtype=float, shape=[], shared_name=\"nan\"}\n"
                   "x = Const() {dtype=float, value=float[]{nan}}\n"
                   "init = Assign(v, x) {T=float}\n"
                   "check = CheckNumerics(v, ^init) {T=float, message=\"here\"}\n"
                   "out = _MrFetch(check) {T=float, index=0}\n",
                   STATUS_INVALID_ARGUMENT, "here : Tensor had NaN");
}

/* w = identity(v.read()) outside; v.assign_add(1) in five iterations; then w + 0. */
static void an_update_in_a_loop_shows_in_what_was_read_outside(void **state) {
    expect_result(
        REF_VARIABLE("looped") INT("z", "0") INT(
            "n", "5") "zero = Const() {dtype=float, value=float[]{0}}\n"
                      "init = Assign(looped, zero) {T=float}\n"
                      "read = Identity(looped, ^init) {T=float}\n"
                      "w0 = Identity(read) {T=float}\n"
                      "start = Identity(z, ^w0) {T=int32}\n"
                      "v_in = RefEnter(looped) {T=float, frame_name=\"w\", is_constant=true}\n"
                      "f_1 = Const() {dtype=float, value=float[]{1}}\n"
                      "step_in = Enter(f_1) {T=float, frame_name=\"w\", is_constant=true}\n" LOOP(
                          "w", "start", "n", "1",
                          "add = AssignAdd(v_in, step_in, ^w_b) {T=float}\n"
                          "w_1 = Const(^add) {dtype=int32, value=int32[]{1}}\n"
                          "w_a = AddV2(w_b, w_1) {T=int32}\n"
                          "w_n = NextIteration(w_a) {T=int32}\n") "sum = AddV2(w0, zero, ^w_x) "
                                                                  "{T=float}\n"
                                                                  "out = _MrFetch(sum) {T=float, "
                                                                  "index=0}\n",
        "float[]{5}");
}

/* sess.run([train_op, global_step]): the fetch runs first, and shows the update all the same. */
static void a_fetched_reference_shows_the_updates_of_its_step(void **state) {
    static const char *const fetched[] = {"global", "read", "again", "reshaped"};
    for (size_t i = 0; i < ARRAY_LEN(fetched); i++) {
        struct str text = STR_INIT;
        str_addf(&text,
                 REF_VARIABLE("global") "one = Const() {dtype=float, value=float[]{1}}\n"
                                        "none = Const() {dtype=int32, value=int32[0]{}}\n"
                                        "init = Assign(global, one) {T=float}\n"
                                        "read = Identity(global, ^init) {T=float}\n"
                                        "again = Identity(read) {T=float}\n"
                                        "reshaped = Reshape(read, none) {T=float, Tshape=int32}\n"
                                        "out = _MrFetch(%s, ^init) {T=float, index=0}\n"
                                        "wait = Neg(one, ^out) {T=float}\n"
                                        "train = AssignAdd(global, one, ^wait) {T=float}\n",
                 fetched[i]);
        expect_result(str_text(&text), "float[]{2}");
        str_fini(&text);
    }
}

/* Ten thousand iterations wait at a time. Their memory does not stay with the plan, times the
 * executors that it keeps. */
static void what_overlapping_iterations_took_is_given_back(void **state) {
    struct fixture f;
    open_fixture(&f,
                 INT("z", "0") INT("n", "10000")
                     LOOP("w", "z", "n", "10000",
                          "w_f = Cast(w_b) {SrcT=int32, DstT=float}\n"
                          "wait = Square(w_f) {T=float}\n" COUNT_BODY("w")) "out = _MrFetch(w_x) "
                                                                            "{T=int32, index=0}\n");
    struct status *why = status_new(STATUS_CANCELLED, "the test says so");
    start(&f);
    struct str waits = STR_INIT;
    execution_describe_waits(&f.run, 1000, &waits);
    assert_true(waits.len < 2000);
    assert_non_null(strstr(str_text(&waits), " more\n"));
    str_fini(&waits);
    execution_cancel(&f.run, why);
    status_unref(why);
    await(&f);
    assert_int_equal(f.plan->n_free_executors, 1);
    assert_true(f.plan->free_executor_bytes > 0);
    assert_true(f.plan->free_executor_bytes <= 4 << 20);
    close_fixture(&f);
}

/* A branch hands the variable on as it is; only the predicate is read. */
static void a_switch_by_a_variable_hands_its_data_on_unread(void **state) {
    expect_result(
        REF_VARIABLE("data") "way = VariableV2() {dtype=bool, shape=[], shared_name=\"way\"}\n"
                             "one = Const() {dtype=float, value=float[]{1}}\n"
                             "two = Const() {dtype=float, value=float[]{2}}\n"
                             "yes = Const() {dtype=bool, value=bool[]{true}}\n"
                             "init = Assign(data, one) {T=float}\n"
                             "init_way = Assign(way, yes) {T=bool}\n"
                             "read = Identity(data, ^init) {T=float}\n"
                             "read_way = Identity(way, ^init_way) {T=bool}\n"
                             "s = Switch(read, read_way) {T=float}\n"
                             "t = Identity(s:1, ^update) {T=float}\n"
                             "update = Assign(data, two, ^init, ^after) {T=float}\n"
                             "after = Identity(read_way) {T=bool}\n"
                             "out = _MrFetch(t) {T=float, index=0}\n",
        "float[]{2}");
}

static void a_handle_is_looked_up_as_what_it_names(void **state) {
    expect_failure(
        "v = VarHandleOp() {dtype=float, shape=[], shared_name=\"v\"}\nn = LookupTableSizeV2(v)\n",
        STATUS_INVALID_ARGUMENT,
        "using the wrong type. The handle points to a resource (name 'v') of type 'Var'");
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_flow_along_data_edges),
        cmocka_unit_test(feeds_reach_their_consumers),
        cmocka_unit_test(a_cond_takes_one_branch),
        cmocka_unit_test(preset_inputs_do_not_revive_a_dead_node),
        cmocka_unit_test(preset_inputs_keep_their_values),
        cmocka_unit_test(kernels_share_states_that_are_equal),
        cmocka_unit_test(an_untaken_branch_is_fetched_dead),
        cmocka_unit_test(a_control_trigger_is_live_under_dead_inputs),
        cmocka_unit_test(a_loop_counts),
        cmocka_unit_test(a_loop_of_a_million_iterations_takes_the_memory_of_a_hundred),
        cmocka_unit_test(loops_nest),
        cmocka_unit_test(loops_stand_beside_and_inside_each_other),
        cmocka_unit_test(a_dead_loop_ends_dead),
        cmocka_unit_test(a_cond_inside_a_loop),
        cmocka_unit_test(asynchronous_kernels_complete),
        cmocka_unit_test(expensive_kernels_run_beside_others),
        cmocka_unit_test(the_first_failure_ends_the_step),
        cmocka_unit_test(a_failure_inside_a_loop_frees_its_frames),
        cmocka_unit_test(a_failure_deep_inside_frees_all_frames),
        cmocka_unit_test(a_loop_is_left_once),
        cmocka_unit_test(cancelling_wakes_what_waits),
        cmocka_unit_test(a_cancel_before_the_start_counts),
        cmocka_unit_test(random_cancels_leave_nothing),
        cmocka_unit_test(a_budget_moves_a_long_step_to_the_pool),
        cmocka_unit_test(a_large_plan_begins_on_the_pool),
        cmocka_unit_test(tracing_records_every_node),
        cmocka_unit_test(an_update_shows_in_what_uses_a_reference_after_it),
        cmocka_unit_test(an_update_shows_behind_every_op_that_forwards_a_reference),
        cmocka_unit_test(a_reshaped_reference_is_read_late_under_its_shape),
        cmocka_unit_test(an_update_in_a_loop_shows_in_what_was_read_outside),
        cmocka_unit_test(a_fetched_reference_shows_the_updates_of_its_step),
        cmocka_unit_test(what_overlapping_iterations_took_is_given_back),
        cmocka_unit_test(a_switch_by_a_variable_hands_its_data_on_unread),
        cmocka_unit_test(a_handle_is_looked_up_as_what_it_names),
        cmocka_unit_test(bad_plans_name_the_culprit),
    };
    return cmocka_run_group_tests(tests, setup, text_runs_end);
}
