/* Tests kernels/cost.h: estimates of an execution's time, and costs from shapes alone. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "kernels/cost.h"
#include "kernels/support/isa.h"

/* ---- an estimate from a node's text and its inputs ---- */

static double estimate(const char *node_text, struct tensor *values) {
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
    assert_non_null(instance.cost->ns);
    struct kernel_ctx ctx = {.inputs = values, .instance = &instance};
    double ns = cost_ns_of_execution(&ctx);
    for (int i = 0; i < instance.n_inputs; i++)
        tensor_clear(&values[i]);
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

static struct tensor inputs[5] __attribute__((aligned(64)));

static void a_gather_costs_what_it_takes_not_what_it_takes_from(void **state) {
    const char *text = FEED("t", "float") FEED("i", "int32") FEED(
        "axis", "int32") "x = GatherV2(t, i, axis) {Tparams=float, Tindices=int32, Taxis=int32}\n";
    make(&inputs[0], DT_FLOAT, 2, 100000, 8);
    make(&inputs[1], DT_INT32, 1, 2, 0);
    tensor_init_scalar_i32(&inputs[2], 0);
    double little = estimate(text, inputs);
    make(&inputs[0], DT_FLOAT, 2, 100000, 8);
    make(&inputs[1], DT_INT32, 1, 100000, 0);
    tensor_init_scalar_i32(&inputs[2], 0);
    double all = estimate(text, inputs);
    assert_true(little < 1000);
    assert_true(all > 100 * little);
}

static void broadcasting_multiplies(void **state) {
    const char *text = FEED("a", "float") FEED("b", "float") "x = Mul(a, b) {T=float}\n";
    make(&inputs[0], DT_FLOAT, 2, 5000, 1);
    make(&inputs[1], DT_FLOAT, 1, 5000, 0);
    double outer = estimate(text, inputs);
    make(&inputs[0], DT_FLOAT, 2, 5000, 1);
    make(&inputs[1], DT_FLOAT, 2, 5000, 1);
    double inner = estimate(text, inputs);
    assert_true(outer > 1000 * inner);
}

static void long_strings_take_long(void **state) {
    const char *text = FEED("s", "string") "x = DecodeRaw(s) {out_type=uint8}\n";
    char *bytes = xcalloc(1, 1 << 20);
    make(&inputs[0], DT_STRING, 0, 0, 0);
    tensor_set_string(&inputs[0], 0, "four", 4);
    assert_true(estimate(text, inputs) < 1000);
    make(&inputs[0], DT_STRING, 0, 0, 0);
    tensor_set_string(&inputs[0], 0, bytes, 1 << 20);
    assert_true(estimate(text, inputs) > 1e6);
    free(bytes);
}

/* What is put into a small output counts, too. */
static void much_into_little_is_much(void **state) {
    const char *count = FEED("v", "int32") FEED("n", "int32")
        FEED("w", "float") "x = Bincount(v, n, w) {T=float}\n";
    make(&inputs[0], DT_INT32, 1, 4000000, 0);
    tensor_init_scalar_i32(&inputs[1], 10);
    make(&inputs[2], DT_FLOAT, 1, 0, 0);
    assert_true(estimate(count, inputs) > COST_HEAVY_NS);
    make(&inputs[0], DT_INT32, 1, 4, 0);
    tensor_init_scalar_i32(&inputs[1], 10);
    make(&inputs[2], DT_FLOAT, 1, 0, 0);
    assert_true(estimate(count, inputs) < COST_HEAVY_NS);
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
    sizes(&inputs[0], -5, 7);
    tensor_init_scalar_f32(&inputs[1], 1);
    assert_true(estimate(fill, inputs) == 0);
    sizes(&inputs[0], INT32_MAX, INT32_MAX);
    tensor_init_scalar_f32(&inputs[1], 1);
    assert_true(estimate(fill, inputs) > 1e15);
    make(&inputs[0], DT_FLOAT, 2, 3, 3);
    sizes(&inputs[1], 1, 1); /* pads of one dimension only */
    assert_true(estimate(pad, inputs) == 0);
    for (int i = 0; i < 3; i++)
        tensor_init_scalar_f32(&inputs[i], 0); /* a step of zero */
    assert_true(estimate(range, inputs) == 0);
    tensor_init_scalar_f32(&inputs[0], 1);
    make(&inputs[1], DT_FLOAT, 2, 0, 5);
    assert_true(estimate(product, inputs) == 0);
}

static void every_row_names_an_op_once_for_each_type(void **state) {
    for (size_t i = 0; i < cpu_costs.n_rows; i++) {
        const struct cost_row *row = &cpu_costs.rows[i];
        if (!kernel_op_is_supported(row->op, "CPU"))
            fail_msg("%s has a cost and no kernel", row->op);
        /* rows of one op stand together, and one that takes all types is the last */
        for (size_t k = i + 1; k < cpu_costs.n_rows; k++)
            if (strcmp(cpu_costs.rows[k].op, row->op) == 0 &&
                (!row->types || strcmp(cpu_costs.rows[k - 1].op, row->op) != 0))
                fail_msg("%s has a row that is never found", row->op);
    }
    assert_true(cpu_costs.n_rows > 500);
}

static const struct cost_row *row_of(const char *op) {
    for (size_t i = 0; i < cpu_costs.n_rows; i++)
        if (strcmp(cpu_costs.rows[i].op, op) == 0)
            return &cpu_costs.rows[i];
    return NULL;
}

/* An asynchronous kernel with such a name runs a dataset. The others only describe one. */
static void a_dataset_costs_the_same_whatever_its_inputs(void **state) {
    int n_datasets = 0;
    const struct kernel_def *kernel;
    for (size_t i = 0; (kernel = kernel_at("CPU", i)) != NULL; i++) {
        const char *name = strstr(kernel->op, "Dataset");
        bool is_dataset =
            name && (strcmp(name, "Dataset") == 0 || strncmp(name, "DatasetV", 8) == 0);
        if (!is_dataset || kernel->flags & KERNEL_ASYNC)
            continue;
        const struct cost_row *row = row_of(kernel->op);
        if (!row || !cost_is_constant(row))
            fail_msg("%s costs more for larger inputs", kernel->op);
        n_datasets++;
    }
    assert_true(n_datasets > 80);
}

/* ---- from shapes only ---- */

static struct cost cost_on(const char *device_type, const char *node_text, const struct shape *in,
                           const struct shape *out) {
    struct graph graph;
    graph_init(&graph);
    struct status *st = graph_parse(node_text, &graph);
    if (st)
        fail_msg("%s", status_message(st));
    struct cost cost = cost_of_shapes(device_type, graph.nodes[graph.n_nodes - 1], in, out);
    graph_fini(&graph);
    return cost;
}

static struct cost cost_of(const char *node_text, const struct shape *in, const struct shape *out) {
    return cost_on("CPU", node_text, in, out);
}

#define SHAPE(...) ((struct shape){ARRAY_LEN(((int64_t[]){__VA_ARGS__})), (int64_t[]){__VA_ARGS__}})

static void a_product_costs_its_inner_dimension(void **state) {
    const char *text =
        FEED("a", "float") FEED("b", "float") "x = MatMul(a, b) {T=float, transpose_a=true}\n";
    struct cost cost = cost_of(text, (struct shape[]){SHAPE(300, 200), SHAPE(300, 400)},
                               (struct shape[]){SHAPE(200, 400)});
    assert_true(cost.flops == 2.0 * 200 * 300 * 400);
    assert_true(cost.bytes == 4.0 * (300 * 200 + 300 * 400 + 200 * 400));
    assert_true(cost.ns >= cost.flops / 120 && cost.ns < cost.flops / 40);
}

static void a_convolution_costs_the_same_in_each_direction(void **state) {
    const char *forward = FEED("x", "float")
        FEED("f", "float") "y = Conv2D(x, f) {T=float, strides=[1, 1, 1, 1], padding=\"SAME\"}\n";
    const char *backward = FEED("s", "int32") FEED("f", "float")
        FEED("g", "float") "y = Conv2DBackpropInput(s, f, g) {T=float, strides=[1, 1, 1, 1], "
                           "padding=\"SAME\"}\n";
    struct shape image = SHAPE(8, 28, 28, 16), filter = SHAPE(3, 3, 16, 32),
                 result = SHAPE(8, 28, 28, 32);
    struct cost there = cost_of(forward, (struct shape[]){image, filter}, &result);
    struct cost back = cost_of(backward, (struct shape[]){SHAPE(4), filter, result}, &image);
    assert_true(there.flops == 2.0 * 8 * 28 * 28 * 32 * 3 * 3 * 16);
    assert_true(back.flops == there.flops);
    assert_true(there.ns > COST_HEAVY_NS);
}

static void a_view_costs_the_same_whatever_its_size(void **state) {
    const char *text =
        FEED("t", "float") FEED("s", "int32") "x = Reshape(t, s) {T=float, Tshape=int32}\n";
    struct cost cost = cost_of(text, (struct shape[]){SHAPE(1000, 1000), SHAPE(1)},
                               (struct shape[]){SHAPE(1000000)});
    assert_true(cost.ns < 1000 && cost.flops == 0 && cost.bytes == 0);
}

/* A shape that is an input tells nothing where only its own shape is known. */
static void without_values_the_outputs_shape_counts(void **state) {
    const char *fill =
        FEED("d", "int32") FEED("v", "float") "x = Fill(d, v) {T=float, index_type=int32}\n";
    const char *gather = FEED("t", "float") FEED("i", "int32") FEED(
        "axis", "int32") "x = GatherV2(t, i, axis) {Tparams=float, Tindices=int32, Taxis=int32}\n";
    struct shape scalar = {0, NULL};
    sizes(&inputs[0], 1000, 2000);
    tensor_init_scalar_f32(&inputs[1], 1);
    double by_values = estimate(fill, inputs);
    struct cost cost =
        cost_of(fill, (struct shape[]){SHAPE(2), scalar}, (struct shape[]){SHAPE(1000, 2000)});
    assert_true(cost.ns == by_values);
    cost = cost_of(gather, (struct shape[]){SHAPE(100000, 8), SHAPE(2), scalar},
                   (struct shape[]){SHAPE(2, 8)});
    assert_true(cost.ns < 1000 && cost.bytes == 4.0 * 2 + 2 * 4.0 * 16);
}

/* The flops of a product count on a GPU, too, and not only the elements of its inputs; a small node
 * costs a launch; memory bounds elementwise nodes; the host does what touches no element. */
static void a_gpu_does_the_work_of_the_rows_at_its_own_rates(void **state) {
    const char *product = FEED("a", "float") FEED("b", "float") "x = MatMul(a, b) {T=float}\n";
    const char *sum = FEED("a", "float") FEED("b", "float") "x = AddV2(a, b) {T=float}\n";
    const char *view =
        FEED("t", "float") FEED("s", "int32") "x = Reshape(t, s) {T=float, Tshape=int32}\n";
    struct shape large[] = {SHAPE(2048, 2048), SHAPE(2048, 2048)}, small[] = {SHAPE(2), SHAPE(2)};
    struct cost by_cpu = cost_of(product, large, large),
                by_gpu = cost_on("GPU", product, large, large);
    assert_true(by_gpu.flops == by_cpu.flops && by_gpu.bytes == by_cpu.bytes);
    assert_true(by_gpu.ns > by_cpu.ns / 1000 && by_gpu.ns < by_cpu.ns / 100);
    by_gpu = cost_on("GPU", sum, large, large);
    assert_true(by_gpu.ns < cost_of(sum, large, large).ns / 50 && by_gpu.ns < by_gpu.bytes / 1000);
    assert_true(cost_on("GPU", sum, small, small).ns > cost_of(sum, small, small).ns + 1000);
    assert_true(cost_on("GPU", view, large, large).ns == cost_of(view, large, large).ns);
}

/* A device type without rows is asked about, too. */
static void an_unknown_device_type_has_linear_costs(void **state) {
    struct graph graph;
    graph_init(&graph);
    struct status *st = graph_parse(FEED("t", "float") "x = Exp(t) {T=float}\n", &graph);
    assert_null(st);
    struct shape shape = SHAPE(1000, 10);
    struct cost cost = cost_of_shapes("NO SUCH TYPE", graph.nodes[1], &shape, &shape);
    assert_true(cost.flops == 10000 && cost.bytes == 80000 && cost.ns == 5000);
    graph_fini(&graph);
}

/* Both readers are told the same where the host is like the machine of the rows. */
static void a_product_costs_an_execution_what_it_costs_a_placer(void **state) {
    const char *text = FEED("a", "float") FEED("b", "float") "x = MatMul(a, b) {T=float}\n";
    const int64_t dims[] = {128, 128};
    struct shape shapes[] = {{2, dims}, {2, dims}};
    struct graph graph;
    graph_init(&graph);
    assert_null(graph_parse(text, &graph));
    double placer_ns = cost_of_shapes("CPU", graph.nodes[graph.n_nodes - 1], shapes, shapes).ns;
    graph_fini(&graph);
    make(&inputs[0], DT_FLOAT, 2, 128, 128);
    make(&inputs[1], DT_FLOAT, 2, 128, 128);
    double execution_ns = estimate(text, inputs);
    assert_true(execution_ns >= placer_ns);
    if (cpu_has_avx512())
        assert_true(execution_ns == placer_ns);
    assert_true(placer_ns > COST_HEAVY_NS / 2 && placer_ns < 2 * COST_HEAVY_NS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_gather_costs_what_it_takes_not_what_it_takes_from),
        cmocka_unit_test(broadcasting_multiplies),
        cmocka_unit_test(long_strings_take_long),
        cmocka_unit_test(much_into_little_is_much),
        cmocka_unit_test(bad_inputs_are_estimated_at_nothing),
        cmocka_unit_test(every_row_names_an_op_once_for_each_type),
        cmocka_unit_test(a_dataset_costs_the_same_whatever_its_inputs),
        cmocka_unit_test(a_product_costs_its_inner_dimension),
        cmocka_unit_test(a_product_costs_an_execution_what_it_costs_a_placer),
        cmocka_unit_test(a_convolution_costs_the_same_in_each_direction),
        cmocka_unit_test(a_view_costs_the_same_whatever_its_size),
        cmocka_unit_test(without_values_the_outputs_shape_counts),
        cmocka_unit_test(a_gpu_does_the_work_of_the_rows_at_its_own_rates),
        cmocka_unit_test(an_unknown_device_type_has_linear_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
