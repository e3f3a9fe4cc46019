/* Loops in the executor: their results, their frames and iterations, and the memory that these
 * take. */
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/worker/odd_kernels.h"
#include "tests/unit/worker/text_loop.h"
#include "tests/unit/worker/text_run.h"

/* In addition to the CPU's kernels: kernels that wait or fail. */
// clang-format off
static const struct kernel_def test_rows[] = {
    {.op = "Neg", .compute = neg_later, .flags = KERNEL_ASYNC},
    {.op = "Square", .compute = wait_for_cancel, .flags = KERNEL_ASYNC},
    {.op = "Abs", .compute = always_fail},
};
// clang-format on
static const struct kernel_list test_list = {test_rows, ARRAY_LEN(test_rows)};
static const struct cost_list no_costs = {NULL, 0};

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

static void a_failure_inside_a_loop_frees_its_frames(void **state) {
    expect_failure(INT("z", "0") INT("n", "10")
                       LOOP("w", "z", "n", "10",
                            "f = Const(^w_b) {dtype=float, value=float[]{1}}\n"
                            "bad = Abs(f) {T=float}\n" COUNT_BODY(
                                "w")) "out = _MrFetch(w_x) {T=int32, index=0}\n",
                   STATUS_OUT_OF_RANGE, "[[{{node bad}}]]");
}

/* Frames may nest to any depth, because they are not on the thread's stack. */
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

/* "often" is the Exit of the loop variable itself, not of a Switch's output. Without an error the
 * sum would have two values of one input and none of the other. */
static void a_loop_is_left_once(void **state) {
    expect_failure(
        INT("z", "0") INT("n", "10")
            LOOP("w", "z", "n", "10", COUNT_BODY("w")) "often = Exit(w_m) {T=int32}\n"
                                                       "late = AddV2(w_x, w_x) {T=int32}\n"
                                                       "sum = AddV2(often, late) {T=int32}\n"
                                                       "out = _MrFetch(sum) {T=int32, index=0}\n",
        STATUS_INVALID_ARGUMENT, "two iterations of its loop\n\t [[{{node often}}]]");
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

static int setup(void **state) {
    text_runs_begin(&test_list, &no_costs);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loop_counts),
        cmocka_unit_test(a_loop_of_a_million_iterations_takes_the_memory_of_a_hundred),
        cmocka_unit_test(loops_nest),
        cmocka_unit_test(loops_stand_beside_and_inside_each_other),
        cmocka_unit_test(a_dead_loop_ends_dead),
        cmocka_unit_test(a_cond_inside_a_loop),
        cmocka_unit_test(a_failure_inside_a_loop_frees_its_frames),
        cmocka_unit_test(a_failure_deep_inside_frees_all_frames),
        cmocka_unit_test(a_loop_is_left_once),
        cmocka_unit_test(what_overlapping_iterations_took_is_given_back),
    };
    return cmocka_run_group_tests(tests, setup, text_runs_end);
}
