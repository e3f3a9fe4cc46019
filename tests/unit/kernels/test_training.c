/* Optimizers. Values are tests/differential/cases_training.py's business; here: a step on shared
 * memory, doubled variables, locks in one order, and large dense steps in parallel. */
#include "tests/unit/kernels/kernel_test.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"

static void test_momentum_on_ref_variables(void **state) {
    static const struct kernel_test_step steps[] = {
        {.target = "init"},
        {.target = "init_a"},
        {.endpoint = "step", .expected = "float[2]{-0.5, 0}"},
        {.endpoint = "a", .expected = "float[2]{3, 4}"},
        {.endpoint = "step", .expected = "float[2]{-1.75, -1.5}"},
    };
    kernel_test_steps("v = VariableV2() {dtype=float, shape=[2]}\n"
                      "a = VariableV2() {dtype=float, shape=[2]}\n"
                      "x = Const() {dtype=float, value=float[2]{1, 2}}\n"
                      "y = Const() {dtype=float, value=float[2]{4, 6}}\n"
                      "g = Const() {dtype=float, value=float[2]{1, 1}}\n"
                      "half = Const() {dtype=float, value=float[]{0.5}}\n"
                      "init = Assign(v, x) {T=float}\n"
                      "init_a = Assign(a, y) {T=float}\n"
                      "step = ApplyMomentum(v, a, half, g, half) {T=float}\n",
                      steps, ARRAY_LEN(steps));
}

// clang-format off
#define TWO "v = VarHandleOp() {dtype=float, shape=[?], shared_name=\"v\"}\n" \
            "a = VarHandleOp() {dtype=float, shape=[?], shared_name=\"a\"}\n" \
            "n = Const() {dtype=int32, value=int32[1]{100003}}\n" \
            "one = Const() {dtype=float, value=float[]{1}}\n" \
            "ones = Fill(n, one) {T=float, index_type=int32}\n" \
            "init_v = AssignVariableOp(v, ones) {dtype=float}\n" \
            "init_a = AssignVariableOp(a, ones) {dtype=float}\n" \
            "rate = Const() {dtype=float, value=float[]{0.5}}\n" \
            "step = ResourceApplyMomentum(v, a, rate, ones, rate) {T=float}\n" \
            "back = ResourceApplyMomentum(a, v, rate, ones, rate) {T=float}\n" \
            "same = ResourceApplyMomentum(v, v, rate, ones, rate) {T=float}\n" \
            "rv = ReadVariableOp(v) {dtype=float}\n" \
            "ra = ReadVariableOp(a) {dtype=float}\n"
// clang-format on

struct fixture {
    struct test_host *host;
    struct test_graph graph;
};

static void fixture_init(struct fixture *f, const char *text, int n_threads) {
    f->host = test_host_new(n_threads);
    test_graph_init(&f->graph, f->host);
    assert_null(graph_parse(text, &f->graph.graph));
    assert_null(test_graph_prepare(&f->graph));
}

static void fixture_fini(struct fixture *f) {
    test_graph_fini(&f->graph);
    test_host_free(f->host);
}

static struct tensor fixture_run(struct fixture *f, const char *fetch, const char *target) {
    struct tensor value = TENSOR_INIT;
    struct status *st =
        test_graph_run(&f->graph, NULL, 0, &fetch, fetch != NULL, &target, target != NULL, &value);
    if (st)
        fail_msg("%s: %s", fetch ? fetch : target, status_message(st));
    return value;
}

static void expect_all(const struct tensor *value, float expected) {
    for (int64_t i = 0; i < value->n_elements; i++)
        assert_true(((const float *)tensor_cdata(value))[i] == expected);
}

static void expect_run(struct fixture *f, const char *fetch, float expected) {
    struct tensor value = fixture_run(f, fetch, NULL);
    expect_all(&value, expected);
    tensor_clear(&value);
}

/* The first step meets memory that the graph's constant holds too, the second steps in place;
 * both in parallel shares. */
static void test_large_steps_leave_other_holders_alone(void **state) {
    struct fixture f;
    fixture_init(&f, TWO, 2);
    fixture_run(&f, NULL, "init_v");
    fixture_run(&f, NULL, "init_a");
    struct tensor before = fixture_run(&f, "rv", NULL);
    fixture_run(&f, NULL, "step"); /* a = 1.5, v = 1 - 0.75 */
    expect_run(&f, "rv", 0.25f);
    expect_run(&f, "ra", 1.5f);
    fixture_run(&f, NULL, "step"); /* a = 1.75, v = 0.25 - 0.875 */
    expect_run(&f, "rv", -0.625f);
    expect_all(&before, 1);
    tensor_clear(&before);
    fixture_fini(&f);
}

/* Of no use to anybody, but it must neither hang nor write where it should not. */
static void test_one_variable_in_two_places(void **state) {
    struct fixture f;
    fixture_init(&f, TWO, 2);
    fixture_run(&f, NULL, "init_v");
    struct tensor before = fixture_run(&f, "rv", NULL);
    fixture_run(&f, NULL, "same");
    expect_all(&before, 1);
    tensor_clear(&before);
    struct tensor after = fixture_run(&f, "rv", NULL);
    assert_true(isfinite(((const float *)tensor_cdata(&after))[0]));
    tensor_clear(&after);
    fixture_fini(&f);
}

struct stepper {
    struct fixture *f;
    const char *node;
    struct tensor inputs[5];
    pthread_t thread;
};

static void *stepper_main(void *arg) {
    struct stepper *stepper = arg;
    struct test_step step;
    test_step_init(&step, stepper->f->host);
    for (int i = 0; i < 50; i++) {
        struct test_call call;
        test_call_start(
            &call, &step,
            &stepper->f->graph.instances[graph_find(&stepper->f->graph.graph, stepper->node)->id],
            stepper->inputs);
        CHECK(!call.ctx.status);
        test_call_fini(&call);
    }
    test_step_fini(&step);
    return NULL;
}

/* (v, a) and (a, v): each thread's first lock is the other's second unless all lock in one
 * order. */
static void test_crossed_variables_do_not_deadlock(void **state) {
    struct fixture f;
    fixture_init(&f, TWO, 2);
    fixture_run(&f, NULL, "init_v");
    fixture_run(&f, NULL, "init_a");
    fixture_run(&f, NULL, "step");
    fixture_run(&f, NULL, "back");
    struct tensor v = fixture_run(&f, "v", NULL), a = fixture_run(&f, "a", NULL);
    struct tensor rate = fixture_run(&f, "rate", NULL), ones = fixture_run(&f, "ones", NULL);
    struct stepper steppers[4];
    for (int i = 0; i < 4; i++) {
        steppers[i] = (struct stepper){.f = &f, .node = i % 2 ? "back" : "step"};
        const struct tensor inputs[5] = {i % 2 ? a : v, i % 2 ? v : a, rate, ones, rate};
        memcpy(steppers[i].inputs, inputs, sizeof(inputs));
        assert_int_equal(pthread_create(&steppers[i].thread, NULL, stepper_main, &steppers[i]), 0);
    }
    for (int i = 0; i < 4; i++)
        pthread_join(steppers[i].thread, NULL);
    tensor_clear(&v);
    tensor_clear(&a);
    tensor_clear(&rate);
    tensor_clear(&ones);
    fixture_fini(&f);
}

static void test_refusals_name_the_culprit(void **state) {
    const char *base = "v = VarHandleOp() {dtype=float, shape=[2], shared_name=\"v\"}\n"
                       "x = Const() {dtype=float, value=float[2]{1, 2}}\n"
                       "init = AssignVariableOp(v, x) {dtype=float}\n"
                       "one = Const() {dtype=float, value=float[]{1}}\n"
                       "three = Const(^init) {dtype=float, value=float[3]{1, 2, 3}}\n";
    struct str text = STR_INIT;
    str_addf(&text,
             "%sstep = ResourceApplyGradientDescent(v, one, three) {T=float}\nr = "
             "ReadVariableOp(v, ^step) {dtype=float}\n",
             base);
    kernel_test_fails(str_text(&text), "r", STATUS_INVALID_ARGUMENT,
                      "var and delta do not have the same shape[2] [3]");
    str_clear(&text);
    str_addf(&text,
             "%sstep = ResourceApplyGradientDescent(v, three, x) {T=float}\nr = ReadVariableOp(v, "
             "^step) {dtype=float}\n",
             base);
    kernel_test_fails(str_text(&text), "r", STATUS_INVALID_ARGUMENT, "alpha is not a scalar: [3]");
    str_clear(&text);
    str_addf(&text,
             "%sstep = ResourceApplyGradientDescent(v, one, x) {T=float}\nr = ReadVariableOp(v, "
             "^step) {dtype=float}\n",
             base);
    kernel_test_fails(str_text(&text), "r", STATUS_FAILED_PRECONDITION,
                      "Invalid variable reference.");
    str_fini(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_momentum_on_ref_variables),
        cmocka_unit_test(test_large_steps_leave_other_holders_alone),
        cmocka_unit_test(test_one_variable_in_two_places),
        cmocka_unit_test(test_crossed_variables_do_not_deadlock),
        cmocka_unit_test(test_refusals_name_the_culprit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
