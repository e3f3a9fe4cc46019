/* Static shapes of whole graphs: known, open and refused ones. An evaluator of the test computes
 * AddV2 of int32; tests/differential/run_shapes.py uses the real kernels. */
#include "common/ops/infer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "common/graph/graph_proto.h"
#include "common/graph/graph_text.h"

enum { PRODUCER = 2000 };

struct fixture {
    struct graph graph;
    struct graph_shapes shapes;
    struct infer_options options;
    int n_asked;
};

static bool add_int32(void *arg, const struct node *node, const struct tensor *inputs,
                      struct tensor *outputs) {
    struct fixture *f = arg;
    f->n_asked++;
    if (!node_is_op(node, "AddV2") || inputs[0].rank != 0)
        return false;
    tensor_init_scalar_i32(
        &outputs[0], (int32_t)(tensor_index_at(&inputs[0], 0) + tensor_index_at(&inputs[1], 0)));
    return true;
}

static int setup(void **state) {
    struct fixture *f = xcalloc(1, sizeof(*f));
    graph_init(&f->graph);
    f->graph.producer = PRODUCER;
    graph_shapes_init(&f->shapes);
    infer_options_default(&f->options);
    f->options.evaluate = add_int32;
    f->options.arg = f;
    *state = f;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    graph_shapes_fini(&f->shapes);
    graph_fini(&f->graph);
    free(f);
    return 0;
}

static void extend(struct fixture *f, const char *text) {
    struct status *st = graph_parse(text, &f->graph);
    if (st)
        fail_msg("%s", status_message(st));
    st = graph_infer_shapes(&f->graph, &f->shapes, &f->options);
    if (st)
        fail_msg("%s", status_message(st));
}

static void assert_shape(struct fixture *f, const char *endpoint, const char *wanted) {
    struct span name;
    struct str text = STR_INIT;
    int index;
    assert_true(endpoint_parse(span_of(endpoint), &name, &index));
    shape_print(graph_shapes_of(&f->shapes, graph_find_span(&f->graph, name), index), &text);
    assert_string_equal(str_text(&text), wanted);
    str_fini(&text);
}

static const struct tensor *value_of(struct fixture *f, const char *name) {
    return graph_shapes_value(&f->shapes, graph_find(&f->graph, name), 0);
}

/* ---- shapes ---- */

static void shapes_flow_along_edges(void **state) {
    extend(*state, "x = Placeholder() {dtype=float, shape=[?,3]}\n"
                   "w = Const() {dtype=float, value=float[3,4]{0, …}}\n"
                   "m = MatMul(x, w) {T=float}\n"
                   "y = Relu(m) {T=float}\n"
                   "out = Softmax(y) {T=float}\n");
    assert_shape(*state, "out", "[?,4]");
    assert_shape(*state, "w", "[3,4]");
}

static void nodes_may_come_before_their_inputs(void **state) {
    extend(*state, "y = Relu(x) {T=float}\nx = Placeholder() {dtype=float, shape=[2]}\n");
    assert_shape(*state, "y", "[2]");
}

static void an_op_without_a_shape_function_says_nothing(void **state) {
    extend(*state, "d = XlaReplicaId()\n"
                   "y = Relu(d) {T=int32}\n");
    assert_shape(*state, "d", "<unknown>");
    assert_shape(*state, "y", "<unknown>");
}

static void calls_say_nothing(void **state) {
    extend(*state, "function f(x: float) -> (y: float) {\n  r = Relu(x) {T=float}\n  return "
                   "y=r:activations:0\n}\n"
                   "x = Const() {dtype=float, value=float[2]{1, …}}\n"
                   "c = PartitionedCall(x) {Tin=[float], Tout=[float], f=&f}\n"
                   "d = f(x) {}\n");
    assert_shape(*state, "c", "<unknown>");
    assert_shape(*state, "d", "<unknown>");
}

static void a_placeholder_of_old_graphs_that_says_scalar_says_nothing(void **state) {
    struct fixture *f = *state;
    f->graph.producer = 21;
    extend(
        f,
        "x = Placeholder() {dtype=float, shape=[]}\ny = Placeholder() {dtype=float, shape=[2]}\n");
    assert_shape(f, "x", "<unknown>");
    assert_shape(f, "y", "[2]");
    f->graph.producer = 22;
    extend(f, "z = Placeholder() {dtype=float, shape=[]}\n");
    assert_shape(f, "z", "[]");
}

static void hints_of_the_client_are_not_read(void **state) {
    extend(*state, "x = Placeholder() {dtype=float, shape=<unknown>, _output_shapes=[[7]]}\ny = "
                   "Relu(x) {T=float, _output_shapes=[[7]]}\n");
    assert_shape(*state, "x", "<unknown>");
    assert_shape(*state, "y", "<unknown>");
}

static void handles_tell_the_shape_of_what_they_name(void **state) {
    struct fixture *f = *state;
    extend(f, "v = VarHandleOp() {dtype=float, shape=[2,3]}\n"
              "r = ReadVariableOp(v) {dtype=float}\n"
              "s = VariableShape(v) {out_type=int32}\n");
    assert_shape(f, "r", "[2,3]");
    const struct inferred_handle *handle =
        graph_shapes_handle(&f->shapes, graph_find(&f->graph, "v"), 0);
    assert_int_equal(handle->dtype, DT_FLOAT);
    assert_int_equal(tensor_index_at(value_of(f, "s"), 1), 3);
    assert_int_equal(graph_shapes_bytes(&f->shapes, graph_find(&f->graph, "r"), 0), 24);
    assert_int_equal(graph_shapes_bytes(&f->shapes, graph_find(&f->graph, "v"), 0), -1);
}

/* ---- loops ---- */

static const char loop[] = "start = Const() {dtype=float, value=float[1]{1}}\n"
                           "again = Const() {dtype=bool, value=bool[]{true}}\n"
                           "enter = Enter(start) {T=float, frame_name=\"f\"}\n"
                           "merge = Merge(enter, next) {N=2, T=float}\n"
                           "cond = LoopCond(go)\n"
                           "go = Enter(again) {T=bool, frame_name=\"f\", is_constant=true}\n"
                           "switch = Switch(merge, cond) {T=float}\n"
                           "zero = Const(^switch) {dtype=int32, value=int32[]{0}}\n"
                           "body = ConcatV2(switch:1, switch:1, zero) {N=2, T=float, Tidx=int32}\n"
                           "next = NextIteration(body) {T=float}\n"
                           "exit = Exit(switch) {T=float}\n";

static void what_a_loop_changes_is_not_known(void **state) {
    extend(*state, loop);
    assert_shape(*state, "merge", "<unknown>");
    assert_shape(*state, "merge:1", "[]");
    assert_shape(*state, "exit", "<unknown>");
    assert_shape(*state, "go", "[]");
}

static void a_cycle_that_is_no_loop_is_refused(void **state) {
    struct fixture *f = *state;
    struct status *st = graph_parse("x = Placeholder() {dtype=float, shape=[2]}\ny = Relu(x) "
                                    "{T=float}\nz = Relu(y) {T=float}\n",
                                    &f->graph);
    assert_null(st);
    node_set_input(graph_find(&f->graph, "y"), 0, graph_find(&f->graph, "z"), 0);
    st = graph_infer_shapes(&f->graph, &f->shapes, &f->options);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    status_unref(st);
    assert_int_equal(f->shapes.n_nodes, 0);
}

/* ---- values ---- */

#define INDEX(name, n) name " = Const() {dtype=int32, value=int32[1]{" n "}}\n"

static void parts_of_shapes_become_shapes(void **state) {
    struct fixture *f = *state;
    extend(
        f,
        "x = Placeholder() {dtype=float, shape=[?,3,5]}\n"
        "s = Shape(x) {T=float, out_type=int32}\n" INDEX("i0", "0") INDEX("i1", "1") INDEX(
            "i2",
            "2") "four = Const() {dtype=int32, value=int32[]{4}}\n"
                 "batch = StridedSlice(s, i0, i1, i1) {Index=int32, T=int32, shrink_axis_mask=1}\n"
                 "rows = StridedSlice(s, i1, i2, i1) {Index=int32, T=int32, shrink_axis_mask=1}\n"
                 "head = StridedSlice(s, i0, i2, i1) {Index=int32, T=int32}\n"
                 "pair = Pack(batch, four) {N=2, T=int32}\n"
                 "known = Pack(rows, four) {N=2, T=int32}\n"
                 "zero = Const() {dtype=int32, value=int32[]{0}}\n"
                 "joined = ConcatV2(head, pair, zero) {N=2, T=int32, Tidx=int32}\n"
                 "wide = Cast(joined) {DstT=int64, SrcT=int32}\n"
                 "y = Reshape(x, pair) {T=float, Tshape=int32}\n"
                 "one = Const() {dtype=float, value=float[]{1}}\n"
                 "f1 = Fill(joined, one) {T=float, index_type=int32}\n"
                 "f2 = Fill(known, one) {T=float, index_type=int32}\n"
                 "f3 = Fill(wide, one) {T=float, index_type=int64}\n");
    assert_shape(f, "y", "[?,4]");
    assert_shape(f, "f1", "[?,3,?,4]");
    assert_shape(f, "f2", "[3,4]");
    assert_shape(f, "f3", "[?,3,?,4]");
    assert_null(value_of(f, "batch"));
    assert_int_equal(tensor_index_at(value_of(f, "rows"), 0), 3);
    assert_null(value_of(f, "pair"));
}

static void shapes_that_are_known_are_values(void **state) {
    struct fixture *f = *state;
    extend(f, "x = Placeholder() {dtype=float, shape=[2,3]}\n"
              "s = Shape(x) {T=float, out_type=int64}\nr = Rank(x) {T=float}\nn = Size(x) "
              "{T=float, out_type=int32}\n"
              "sum = AddV2(r, n) {T=int32}\nmore = AddV2(sum, n) {T=int32}\n");
    assert_int_equal(value_of(f, "s")->dtype, DT_INT64);
    assert_int_equal(tensor_index_at(value_of(f, "s"), 1), 3);
    assert_int_equal(tensor_index_at(value_of(f, "more"), 0), 14);
    assert_int_equal(f->n_asked, 2);
}

static void a_size_that_no_int32_holds_is_no_value(void **state) {
    struct fixture *f = *state;
    extend(f, "x = Placeholder() {dtype=float, shape=[3000000000,4000000000]}\n"
              "s = Shape(x) {T=float, out_type=int32}\nn = Size(x) {T=float, out_type=int64}\n");
    assert_null(value_of(f, "s"));
    assert_null(value_of(f, "n"));
    assert_int_equal(graph_shapes_bytes(&f->shapes, graph_find(&f->graph, "x"), 0), -1);
}

static void values_have_a_budget(void **state) {
    struct fixture *f = *state;
    f->options.max_evaluations = 1;
    extend(f, "one = Const() {dtype=int32, value=int32[]{1}}\n"
              "two = AddV2(one, one) {T=int32}\nthree = AddV2(two, one) {T=int32}\nfour = "
              "AddV2(one, one) {T=int32}\n");
    assert_non_null(value_of(f, "two"));
    assert_null(value_of(f, "three"));
    assert_null(value_of(f, "four"));
    f->options.max_elements = 2;
    extend(
        f,
        "long = Const() {dtype=int32, value=int32[3]{1, …}}\nsum = AddV2(long, long) {T=int32}\n");
    assert_int_equal(f->n_asked, 1);
    assert_shape(f, "sum", "[3]");
}

static void memory_has_a_budget(void **state) {
    struct fixture *f = *state;
    f->options.max_bytes = 0;
    extend(f, "x = Placeholder() {dtype=float, shape=[2]}\n");
    extend(f, "y = Relu(x) {T=float}\n");
    assert_shape(f, "y", "<unknown>");
}

static void what_has_state_is_no_constant(void **state) {
    struct fixture *f = *state;
    extend(f, "one = Const() {dtype=int32, value=int32[]{1}}\n"
              "open = PlaceholderWithDefault(one) {dtype=int32, shape=[]}\n"
              "sum = AddV2(open, one) {T=int32}\n"
              "v = VariableV2() {dtype=int32, shape=[]}\n"
              "a = Assign(v, one) {T=int32}\n");
    assert_null(value_of(f, "open"));
    assert_null(value_of(f, "sum"));
    assert_null(value_of(f, "a"));
    assert_int_equal(f->n_asked, 0);
}

/* ---- growing, refusing ---- */

static void an_extend_infers_only_what_is_new(void **state) {
    struct fixture *f = *state;
    extend(f, "x = Placeholder() {dtype=float, shape=[2]}\none = Const() {dtype=int32, "
              "value=int32[]{1}}\ntwo = AddV2(one, one) {T=int32}\n");
    extend(f, "y = Relu(x) {T=float}\nthree = AddV2(two, one) {T=int32}\n");
    assert_shape(f, "y", "[2]");
    assert_int_equal(tensor_index_at(value_of(f, "three"), 0), 3);
    assert_int_equal(f->n_asked, 2);
    assert_int_equal(f->shapes.n_outputs, 5);
    assert_int_equal(f->shapes.n_full, 5);
    graph_remove_node(&f->graph, graph_find(&f->graph, "y"));
    extend(f, "z = Relu(x) {T=float}\n");
    assert_shape(f, "z", "[2]");
}

static const char misfit[] = "a = Placeholder() {dtype=float, shape=[3,4]}\n"
                             "b = Placeholder() {dtype=float, shape=<unknown>}\n"
                             "s = Split(axis, a) {T=float, num_split=2}\n"
                             "axis = Const() {dtype=int32, value=int32[]{1}}\n"
                             "m = MatMul(a, s:1, ^b) {T=float} @/job:ps\n";

static void a_misfit_is_refused_in_the_client_libraries_words(void **state) {
    struct fixture *f = *state;
    extend(f, "first = Placeholder() {dtype=float, shape=[9]}\none = Const() {dtype=int32, "
              "value=int32[]{1}}\n");
    f->options.refuses = true;
    assert_null(graph_parse("two = AddV2(one, one) {T=int32}\n", &f->graph));
    assert_null(graph_parse(misfit, &f->graph));
    struct status *st = graph_infer_shapes(&f->graph, &f->shapes, &f->options);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    assert_string_equal(status_message(st),
                        "Dimensions must be equal, but are 4 and 3 for '{{node m}} = "
                        "MatMul[T=DT_FLOAT, grad_a=false, grad_b=false, "
                        "transpose_a=false, transpose_b=false, _device=\"/job:ps\"](a, s:1, ^b)' "
                        "with input shapes: [3,4], [3,2].\n"
                        "\t [[{{node m}}]]");
    status_unref(st);
    assert_int_equal(f->shapes.n_nodes, 2);
    assert_int_equal(f->shapes.n_values, 0);
    assert_shape(f, "first", "[9]");
    assert_shape(f, "a", "<unknown>");
}

static void a_misfit_that_is_taken_is_unknown_and_counted(void **state) {
    struct fixture *f = *state;
    extend(f, misfit);
    assert_shape(f, "m", "<unknown>");
    assert_shape(f, "a", "[3,4]");
    assert_int_equal(f->shapes.n_refused, 1);
    assert_non_null(strstr(status_message(f->shapes.first_refusal), "[[{{node m}}]]"));
}

static void reading_a_variable_of_another_type_is_a_misfit(void **state) {
    extend(*state,
           "v = VarHandleOp() {dtype=float, shape=[2]}\nr = ReadVariableOp(v) {dtype=int32}\n");
    assert_int_equal(((struct fixture *)*state)->shapes.n_refused, 1);
}

/* ---- cost ---- */

static double thread_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static void a_hundred_thousand_nodes_take_a_moment(void **state) {
    enum { N = 100000 };
    struct fixture *f = *state;
    struct str text = STR_INIT;
    str_add(&text, "n0 = Const() {dtype=float, value=float[4,4]{1, …}}\n");
    for (int i = 1; i < N; i++)
        str_addf(&text,
                 i % 2 ? "n%d = MatMul(n%d, n0) {T=float}\n" : "n%d = AddV2(n%d, n0) {T=float}\n",
                 i, i - 1);
    assert_null(graph_parse(str_text(&text), &f->graph));
    str_fini(&text);
    double began = thread_ms();
    assert_null(graph_infer_shapes(&f->graph, &f->shapes, &f->options));
    print_message("%d nodes: %.1f ms of CPU, %zu KiB\n", N, thread_ms() - began,
                  f->shapes.arena.size_bytes >> 10);
    assert_shape(f, "n99999", "[4,4]");
    began = thread_ms();
    extend(f, "last = Relu(n99999) {T=float}\n");
    print_message("one more: %.3f ms\n", thread_ms() - began);
    assert_shape(f, "last", "[4,4]");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(shapes_flow_along_edges),
        TEST(nodes_may_come_before_their_inputs),
        TEST(an_op_without_a_shape_function_says_nothing),
        TEST(calls_say_nothing),
        TEST(a_placeholder_of_old_graphs_that_says_scalar_says_nothing),
        TEST(hints_of_the_client_are_not_read),
        TEST(handles_tell_the_shape_of_what_they_name),
        TEST(what_a_loop_changes_is_not_known),
        TEST(a_cycle_that_is_no_loop_is_refused),
        TEST(parts_of_shapes_become_shapes),
        TEST(shapes_that_are_known_are_values),
        TEST(a_size_that_no_int32_holds_is_no_value),
        TEST(values_have_a_budget),
        TEST(memory_has_a_budget),
        TEST(what_has_state_is_no_constant),
        TEST(an_extend_infers_only_what_is_new),
        TEST(a_misfit_is_refused_in_the_client_libraries_words),
        TEST(a_misfit_that_is_taken_is_unknown_and_counted),
        TEST(reading_a_variable_of_another_type_is_a_misfit),
        TEST(a_hundred_thousand_nodes_take_a_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
