/* Estimates of an execution's time, for ops whose inputs' sizes do not tell. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "kernels/work.h"

/* ---- an estimate from a node's text and its inputs ---- */

static double estimate(const char *node_text, struct tensor *inputs) {
    struct graph graph;
    struct kernel_instance instance;
    graph_init(&graph);
    struct status *st = graph_parse(node_text, &graph);
    if (st)
        fail_msg("%s", status_message(st));
    struct node *node = graph.nodes[graph.n_nodes - 1];
    st = kernel_instance_init(&instance, node, "CPU", "/job:a/replica:0/task:0/device:CPU:0",
                              allocator_host(), NULL);
    if (st)
        fail_msg("%s", status_message(st));
    assert_non_null(instance.work);
    struct kernel_ctx ctx = {.inputs = inputs, .instance = &instance};
    double ns = instance.work->ns(&ctx);
    for (int i = 0; i < instance.n_inputs; i++)
        tensor_clear(&inputs[i]);
    kernel_instance_fini(&instance);
    graph_fini(&graph);
    return ns;
}

static void make(struct tensor *t, enum dtype dtype, int rank, int64_t a, int64_t b) {
    int64_t dims[] = {a, b};
    *t = (struct tensor)TENSOR_INIT;
    struct status *st = tensor_new_zeroed(allocator_host(), dtype, (struct shape){rank, dims}, t);
    if (st)
        fail_msg("%s", status_message(st));
}

static void sizes(struct tensor *t, int32_t a, int32_t b) {
    make(t, DT_INT32, 1, 2, 0);
    ((int32_t *)tensor_data(t))[0] = a;
    ((int32_t *)tensor_data(t))[1] = b;
}

#define FEED(name, type) name " = Placeholder() {dtype=" type ", shape=[]}\n"

/* ---- tests ---- */

static struct tensor in[5] __attribute__((aligned(64)));

static void a_gather_costs_what_it_takes_not_what_it_takes_from(void **state) {
    const char *text = FEED("t", "float") FEED("i", "int32") FEED(
        "axis", "int32") "x = GatherV2(t, i, axis) {Tparams=float, Tindices=int32, Taxis=int32}\n";
    make(&in[0], DT_FLOAT, 2, 100000, 8);
    make(&in[1], DT_INT32, 1, 2, 0);
    tensor_init_scalar_i32(&in[2], 0);
    double little = estimate(text, in);
    make(&in[0], DT_FLOAT, 2, 100000, 8);
    make(&in[1], DT_INT32, 1, 100000, 0);
    tensor_init_scalar_i32(&in[2], 0);
    double all = estimate(text, in);
    assert_true(little < 1000);
    assert_true(all > 100 * little);
}

static void broadcasting_multiplies(void **state) {
    const char *text = FEED("a", "float") FEED("b", "float") "x = Mul(a, b) {T=float}\n";
    make(&in[0], DT_FLOAT, 2, 5000, 1);
    make(&in[1], DT_FLOAT, 1, 5000, 0);
    double outer = estimate(text, in);
    make(&in[0], DT_FLOAT, 2, 5000, 1);
    make(&in[1], DT_FLOAT, 2, 5000, 1);
    double inner = estimate(text, in);
    assert_true(outer > 1000 * inner);
}

static void long_strings_take_long(void **state) {
    const char *text = FEED("s", "string") "x = DecodeRaw(s) {out_type=uint8}\n";
    char *bytes = xcalloc(1, 1 << 20);
    make(&in[0], DT_STRING, 0, 0, 0);
    tensor_set_string(&in[0], 0, "four", 4);
    assert_true(estimate(text, in) < 1000);
    make(&in[0], DT_STRING, 0, 0, 0);
    tensor_set_string(&in[0], 0, bytes, 1 << 20);
    assert_true(estimate(text, in) > 1e6);
    free(bytes);
}

/* What is put into a small output counts, too. */
static void much_into_little_is_much(void **state) {
    const char *count = FEED("v", "int32") FEED("n", "int32")
        FEED("w", "float") "x = Bincount(v, n, w) {T=float}\n";
    make(&in[0], DT_INT32, 1, 4000000, 0);
    tensor_init_scalar_i32(&in[1], 10);
    make(&in[2], DT_FLOAT, 1, 0, 0);
    assert_true(estimate(count, in) > KERNEL_CHEAP_NS);
    make(&in[0], DT_INT32, 1, 4, 0);
    tensor_init_scalar_i32(&in[1], 10);
    make(&in[2], DT_FLOAT, 1, 0, 0);
    assert_true(estimate(count, in) < KERNEL_CHEAP_NS);
}

/* Estimates come before the kernel has looked at its inputs. */
static void bad_inputs_are_estimated_at_nothing(void **state) {
    const char *fill =
        FEED("d", "int32") FEED("v", "float") "x = Fill(d, v) {T=float, index_type=int32}\n";
    const char *pad =
        FEED("t", "float") FEED("p", "int32") "x = Pad(t, p) {T=float, Tpaddings=int32}\n";
    const char *range = FEED("a", "float") FEED("b", "float")
        FEED("c", "float") "x = Range(a, b, c) {Tidx=float}\n";
    const char *product = FEED("a", "float") FEED("b", "float") "x = MatMul(a, b) {T=float}\n";
    sizes(&in[0], -5, 7);
    tensor_init_scalar_f32(&in[1], 1);
    assert_true(estimate(fill, in) == 0);
    sizes(&in[0], INT32_MAX, INT32_MAX);
    tensor_init_scalar_f32(&in[1], 1);
    assert_true(estimate(fill, in) > 1e15);
    make(&in[0], DT_FLOAT, 2, 3, 3);
    sizes(&in[1], 1, 1); /* pads of one dimension only */
    assert_true(estimate(pad, in) == 0);
    for (int i = 0; i < 3; i++)
        tensor_init_scalar_f32(&in[i], 0); /* a step of zero */
    assert_true(estimate(range, in) == 0);
    tensor_init_scalar_f32(&in[0], 1);
    make(&in[1], DT_FLOAT, 2, 0, 5);
    assert_true(estimate(product, in) == 0);
}

static void every_row_names_an_op(void **state) {
    size_t i = 0;
    for (const struct kernel_work *work; (work = kernel_work_at(i)) != NULL; i++) {
        assert_ptr_equal(kernel_work_find(work->op), work);
        if (!kernel_op_is_supported(work->op, "CPU"))
            fail_msg("%s has an estimate and no kernel", work->op);
    }
    assert_true(i > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gather_costs_what_it_takes_not_what_it_takes_from),
        cmocka_unit_test(broadcasting_multiplies),
        cmocka_unit_test(long_strings_take_long),
        cmocka_unit_test(much_into_little_is_much),
        cmocka_unit_test(bad_inputs_are_estimated_at_nothing),
        cmocka_unit_test(every_row_names_an_op),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
