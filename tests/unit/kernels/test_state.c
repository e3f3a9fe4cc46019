/* Variables of both kinds: a buffer with another holder is never written; updates in place;
 * threads; error messages. tests/differential/cases_state.py compares the values with TensorFlow.
 * */
#include "kernels/kernel.h"
#include "kernels/support/update.h"
#include "tests/unit/kernels/kernel_test.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"

// clang-format off
#define REF "v = VariableV2() {dtype=float, shape=[3]}\n" \
            "x = Const() {dtype=float, value=float[3]{1, 2, 3}}\n" \
            "init = Assign(v, x) {T=float}\n"
#define RESOURCE "h = VarHandleOp() {dtype=float, shape=[3], shared_name=\"v\"}\n" \
                 "x = Const() {dtype=float, value=float[3]{1, 2, 3}}\n" \
                 "init = AssignVariableOp(h, x) {dtype=float}\n" \
                 "r = ReadVariableOp(h) {dtype=float}\n"
// clang-format on

static void test_ref_variable_keeps_its_value_between_steps(void **state) {
    static const struct kernel_test_step steps[] = {
        {.endpoint = "is", .expected = "bool[]{false}"},
        {.endpoint = "init", .expected = "float[3]{1, 2, 3}"},
        {.endpoint = "is", .expected = "bool[]{true}"},
        {.endpoint = "add", .expected = "float[3]{2, 4, 6}"},
        {.endpoint = "v", .expected = "float[3]{2, 4, 6}"},
        {.endpoint = "scatter", .expected = "float[3]{12, 4, 26}"},
        {.endpoint = "v", .expected = "float[3]{12, 4, 26}"},
    };
    kernel_test_steps(REF "is = IsVariableInitialized(v) {dtype=float}\n"
                          "add = AssignAdd(v, x) {T=float}\n"
                          "at = Const() {dtype=int32, value=int32[2]{0, 2}}\n"
                          "u = Const() {dtype=float, value=float[2]{10, 20}}\n"
                          "scatter = ScatterAdd(v, at, u) {T=float, Tindices=int32}\n",
                      steps, ARRAY_LEN(steps));
}

static void test_resource_variable_keeps_its_value_between_steps(void **state) {
    static const struct kernel_test_step steps[] = {
        {.endpoint = "is", .expected = "bool[]{false}"},
        {.target = "init"},
        {.endpoint = "is", .expected = "bool[]{true}"},
        {.target = "add"},
        {.endpoint = "r", .expected = "float[3]{2, 4, 6}"},
        {.endpoint = "shape", .expected = "int64[1]{3}"},
        {.target = "destroy"},
        {.endpoint = "is", .expected = "bool[]{false}"},
    };
    kernel_test_steps(RESOURCE "is = VarIsInitializedOp(h)\n"
                               "add = AssignAddVariableOp(h, x) {dtype=float}\n"
                               "shape = VariableShape(h) {out_type=int64}\n"
                               "destroy = DestroyResourceOp(h)\n",
                      steps, ARRAY_LEN(steps));
}

static void test_use_before_initialization_is_refused(void **state) {
    kernel_test_fails(REF "y = Identity(v) {T=float}\n", "y", STATUS_FAILED_PRECONDITION,
                      "Attempting to use uninitialized value v");
    kernel_test_fails(REF "y = AssignAdd(v, x) {T=float}\n", "y", STATUS_FAILED_PRECONDITION,
                      "Attempting to use uninitialized value v");
    kernel_test_fails(RESOURCE, "r", STATUS_FAILED_PRECONDITION,
                      "Could not find variable v. This could mean that the variable has been "
                      "deleted. In TF1, it can also mean the variable is "
                      "uninitialized. Debug info: container=localhost");
}

static void test_wrong_shapes_are_refused(void **state) {
    kernel_test_fails(
        "v = VariableV2() {dtype=float, shape=[2]}\n"
        "x = Const() {dtype=float, value=float[3]{1, 2, 3}}\n"
        "init = Assign(v, x) {T=float}\n",
        "init", STATUS_INVALID_ARGUMENT,
        "Assign requires shapes of both tensors to match. lhs shape= [2] rhs shape= [3]");
    kernel_test_fails("v = VariableV2() {dtype=float, shape=[?]}\n", "v", STATUS_INVALID_ARGUMENT,
                      "Shape [?] is not fully defined");
}

static void test_division_by_an_integer_zero_is_refused(void **state) {
    kernel_test_fails("v = VariableV2() {dtype=int32, shape=[0]}\n"
                      "x = Const() {dtype=int32, value=int32[2]{1, 2}}\n"
                      "init = Assign(v, x) {T=int32, validate_shape=false}\n"
                      "at = Const() {dtype=int32, value=int32[1]{1}}\n"
                      "zero = Const() {dtype=int32, value=int32[]{0}}\n"
                      "y = ScatterDiv(init, at, zero) {T=int32, Tindices=int32}\n",
                      "y", STATUS_INVALID_ARGUMENT, "division by zero");
}

/* ---- the loops ---- */

static void test_integers_wrap(void **state) {
    int32_t least = INT32_MIN, minus_one = -1, most = INT32_MAX, out;
    assert_true(update_find(UPDATE_ADD, DT_INT32)(&out, &most, &most, 1, 1));
    assert_int_equal(out, -2);
    assert_true(update_find(UPDATE_MUL, DT_INT32)(&out, &least, &minus_one, 1, 1));
    assert_int_equal(out, INT32_MIN);
    assert_true(update_find(UPDATE_DIV, DT_INT32)(&out, &least, &minus_one, 1, 1));
    assert_int_equal(out, INT32_MIN);
    uint16_t wide = 65535, product;
    assert_true(update_find(UPDATE_MUL, DT_UINT16)(&product, &wide, &wide, 1, 1));
    assert_int_equal(product, 1);
}

/* ---- who may see what ---- */

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

/* 1,000 elements: in a buffer, not inside the tensor. */
// clang-format off
#define LARGE "h = VarHandleOp() {dtype=float, shape=[1000], shared_name=\"v\"}\n" \
              "n = Const() {dtype=int32, value=int32[1]{1000}}\n" \
              "one = Const() {dtype=float, value=float[]{1}}\n" \
              "ones = Fill(n, one) {T=float, index_type=int32}\n" \
              "init = AssignVariableOp(h, ones) {dtype=float}\n" \
              "r = ReadVariableOp(h) {dtype=float}\n" \
              "add = AssignAddVariableOp(h, ones) {dtype=float}\n" \
              "step = ResourceApplyGradientDescent(h, one, ones) {T=float}\n" \
              "at = Const() {dtype=int32, value=int32[1]{7}}\n" \
              "scatter = ResourceScatterAdd(h, at, one) {dtype=float, Tindices=int32}\n"
// clang-format on

static void expect_all(const struct tensor *t, float expected) {
    for (int64_t i = 0; i < t->n_elements; i++)
        assert_true(((const float *)tensor_cdata(t))[i] == expected);
}

static void test_an_update_is_invisible_to_earlier_readers(void **state) {
    static const char *const updates[] = {"add", "step", "scatter"};
    for (size_t i = 0; i < ARRAY_LEN(updates); i++) {
        struct fixture f;
        fixture_init(&f, LARGE, 0);
        fixture_run(&f, NULL, "init");
        struct tensor before = fixture_run(&f, "r", NULL);
        fixture_run(&f, NULL, updates[i]);
        expect_all(&before, 1);
        struct tensor after = fixture_run(&f, "r", NULL);
        assert_false(tensor_equal(&before, &after));
        tensor_clear(&before);
        tensor_clear(&after);
        fixture_fini(&f);
    }
}

static void test_a_sole_holder_is_updated_in_place(void **state) {
    static const char *const updates[] = {"add", "step", "scatter"};
    for (size_t i = 0; i < ARRAY_LEN(updates); i++) {
        struct fixture f;
        fixture_init(&f, LARGE, 0);
        fixture_run(&f, NULL, "init");
        fixture_run(&f, NULL, updates[i]); /* lets go of what the graph's constant may hold */
        struct tensor value = fixture_run(&f, "r", NULL);
        const void *data = tensor_cdata(&value);
        tensor_clear(&value);
        fixture_run(&f, NULL, updates[i]);
        value = fixture_run(&f, "r", NULL);
        assert_ptr_equal(tensor_cdata(&value), data);
        tensor_clear(&value);
        fixture_fini(&f);
    }
}

static struct kernel_instance *instance_of(struct fixture *f, const char *name) {
    return &f->graph.instances[graph_find(&f->graph.graph, name)->id];
}

enum { N_THREADS = 4, N_ROUNDS = 300 };

struct worker {
    struct fixture *f;
    struct tensor handle, ones;
    bool reads;
    pthread_t thread;
};

/* Every reader sees a whole number of whole additions. */
static void *worker_main(void *arg) {
    struct worker *worker = arg;
    struct test_step step;
    test_step_init(&step, worker->f->host);
    const struct tensor inputs[] = {worker->handle, worker->ones};
    for (int i = 0; i < N_ROUNDS; i++) {
        struct test_call call;
        test_call_start(&call, &step, instance_of(worker->f, worker->reads ? "r" : "add"), inputs);
        CHECK(!call.ctx.status);
        const float *seen = worker->reads ? tensor_cdata(&call.ctx.outputs[0]) : NULL;
        for (int k = 0; seen && k < 1000; k++)
            CHECK(seen[k] == seen[0]);
        test_call_fini(&call);
    }
    test_step_fini(&step);
    return NULL;
}

static void test_threads_see_no_torn_value(void **state) {
    struct fixture f;
    fixture_init(&f, LARGE, 2);
    fixture_run(&f, NULL, "init");
    fixture_run(&f, NULL, "add");
    struct tensor value = fixture_run(&f, "r", NULL); /* makes r's instance */
    tensor_clear(&value);
    struct tensor handle = fixture_run(&f, "h", NULL), ones = fixture_run(&f, "ones", NULL);
    struct worker workers[2 * N_THREADS];
    for (int i = 0; i < 2 * N_THREADS; i++) {
        workers[i] = (struct worker){.f = &f, .handle = handle, .ones = ones, .reads = i % 2};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
    }
    for (int i = 0; i < 2 * N_THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    value = fixture_run(&f, "r", NULL);
    expect_all(&value, 2 + N_THREADS * N_ROUNDS);
    tensor_clear(&value);
    tensor_clear(&handle);
    tensor_clear(&ones);
    fixture_fini(&f);
}

static void test_anonymous_handles_are_all_different(void **state) {
    struct fixture f;
    fixture_init(&f,
                 "h = VarHandleOp() {dtype=float, shape=[], "
                 "shared_name=\"cd2c89b7-88b7-44c8-ad83-06c2a9158347\"}\n",
                 0);
    struct tensor a = fixture_run(&f, "h", NULL), b = fixture_run(&f, "h", NULL);
    const struct resource_handle *first = *(struct resource_handle *const *)tensor_cdata(&a);
    const struct resource_handle *second = *(struct resource_handle *const *)tensor_cdata(&b);
    assert_string_not_equal(first->name, second->name);
    tensor_clear(&a);
    tensor_clear(&b);
    fixture_fini(&f);
}

static void test_a_temporary_variable_ends_with_its_step(void **state) {
    struct fixture f;
    fixture_init(&f,
                 "t = TemporaryVariable() {dtype=float, shape=[2], var_name=\"tmp\"}\n"
                 "x = Const() {dtype=float, value=float[2]{1, 2}}\n"
                 "a = Assign(t, x) {T=float}\n"
                 "y = DestroyTemporaryVariable(a) {T=float, var_name=\"tmp\"}\n",
                 0);
    for (int i = 0; i < 3; i++) {
        struct tensor y = fixture_run(&f, "y", NULL);
        assert_int_equal(y.n_elements, 2);
        tensor_clear(&y);
        assert_int_equal(test_host_n_resources(f.host), 0);
        fixture_run(&f, NULL, "a"); /* nobody destroys it: the step does */
        assert_int_equal(test_host_n_resources(f.host), 0);
    }
    fixture_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ref_variable_keeps_its_value_between_steps),
        cmocka_unit_test(test_resource_variable_keeps_its_value_between_steps),
        cmocka_unit_test(test_use_before_initialization_is_refused),
        cmocka_unit_test(test_wrong_shapes_are_refused),
        cmocka_unit_test(test_division_by_an_integer_zero_is_refused),
        cmocka_unit_test(test_integers_wrap),
        cmocka_unit_test(test_an_update_is_invisible_to_earlier_readers),
        cmocka_unit_test(test_a_sole_holder_is_updated_in_place),
        cmocka_unit_test(test_threads_see_no_torn_value),
        cmocka_unit_test(test_anonymous_handles_are_all_different),
        cmocka_unit_test(test_a_temporary_variable_ends_with_its_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
