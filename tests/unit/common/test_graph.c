/* Graphs by hand: adding, attrs, edges, checks, walks, copies. */
#include "common/graph/graph.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"

static struct graph parse(const char *text) {
    struct graph graph;
    graph_init(&graph);
    struct status *st = graph_parse(text, &graph);
    if (st)
        fail_msg("%s", status_message(st));
    return graph;
}

static void assert_fails(struct status *st, enum status_code code, const char *words) {
    if (status_code(st) != code || !strstr(status_message(st), words))
        fail_msg("%s: '%s' lacks '%s'", status_code_name(status_code(st)), status_message(st),
                 words);
    status_unref(st);
}

static void nodes_start_with_defaults(void **state) {
    struct graph graph = {0};
    struct node *node, *twin;
    graph_init(&graph);
    assert_null(graph_add_node(&graph, "m", "MatMul", "/cpu:0", &node));
    bool transpose = true;
    assert_null(node_get_b(node, "transpose_a", &transpose));
    assert_false(transpose);
    assert_null(node_attr(node, "T"));
    assert_fails(node_finish(&graph, node), STATUS_INVALID_ARGUMENT,
                 "NodeDef missing attr 'T' from Op<name=MatMul;");
    assert_fails(graph_add_node(&graph, "m", "NoOp", "", &twin), STATUS_INVALID_ARGUMENT,
                 "Node 'm' is not unique");
    assert_fails(graph_add_node(&graph, "n", "Nope", "", &twin), STATUS_NOT_FOUND,
                 "Op type not registered 'Nope' in binary running on");
    assert_fails(graph_add_node(&graph, "a b", "NoOp", "", &twin), STATUS_INVALID_ARGUMENT,
                 "Illegal op name 'a b'");
    assert_null(graph_add_node(&graph, "_ours", "NoOp", "", &twin));
    assert_string_equal(node->device, "/cpu:0");
    assert_int_equal(node->placed, -1);
    assert_ptr_equal(graph_find(&graph, "m"), node);
    assert_null(graph_find(&graph, "x"));
    graph_fini(&graph);
    graph_fini(&graph);
    graph_fini(NULL);
}

static void attrs_are_set_replaced_and_read(void **state) {
    struct graph graph;
    struct node *node;
    struct tensor t;
    graph_init(&graph);
    assert_null(graph_add_node(&graph, "a", "Const", "", &node));
    const int64_t dims[] = {5};
    assert_null(tensor_new_zeroed(allocator_host(), DT_FLOAT, (struct shape){1, dims}, &t));
    node_set_attr_tensor(&graph, node, "value", &t);
    node_set_attr_type(&graph, node, "dtype", DT_FLOAT);
    assert_null(node_finish(&graph, node));
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof(name), "_x%d", i * 7 % 20);
        node_set_attr_i(&graph, node, name, i * 7 % 20);
    }
    node_set_attr_i(&graph, node, "_x3", 33);
    node_set_attr_s(&graph, node, "_s", "text");
    node_set_attr_b(&graph, node, "_b", true);
    node_set_attr_shape(&graph, node, "_shape", (struct shape){1, dims});
    for (int i = 1; i < node->n_attrs; i++)
        assert_true(strcmp(node->attrs[i - 1].name, node->attrs[i].name) < 0);
    int64_t number;
    struct span text;
    enum dtype dtype;
    struct shape shape;
    const struct tensor *tensor;
    float f;
    bool flag;
    const struct attr_value *list;
    int n;
    assert_null(node_get_i(node, "_x3", &number));
    assert_int_equal(number, 33);
    assert_null(node_get_i(node, "_x19", &number));
    assert_int_equal(number, 19);
    assert_null(node_get_s(node, "_s", &text));
    assert_true(span_is(text, "text"));
    assert_null(node_get_type(node, "dtype", &dtype));
    assert_int_equal(dtype, DT_FLOAT);
    assert_null(node_get_shape(node, "_shape", &shape));
    assert_int_equal(shape.dims[0], 5);
    assert_null(node_get_b(node, "_b", &flag));
    assert_null(node_get_tensor(node, "value", &tensor));
    assert_true(tensor_equal(tensor, &t));
    assert_false(tensor_is_sole(&t));
    assert_fails(node_get_f(node, "_b", &f), STATUS_INVALID_ARGUMENT,
                 "AttrValue had value with type 'bool' when 'float' expected");
    assert_fails(node_get_i(node, "_none", &number), STATUS_INVALID_ARGUMENT,
                 "No attr named '_none' in node 'a'");
    assert_fails(node_get_list(node, "_b", &list, &n), STATUS_INVALID_ARGUMENT, "'list' expected");
    graph_fini(&graph);
    assert_true(tensor_is_sole(&t));
    tensor_clear(&t);
}

static void edges_are_added_changed_and_removed(void **state) {
    struct graph graph =
        parse("a = Placeholder() {dtype=float}\nb = Placeholder() {dtype=float}\nc = NoOp()\n");
    struct node *a = graph_find(&graph, "a"), *b = graph_find(&graph, "b"),
                *c = graph_find(&graph, "c"), *sum;
    assert_null(graph_add_node(&graph, "sum", "AddN", "", &sum));
    node_set_attr_type(&graph, sum, "T", DT_FLOAT);
    node_set_attr_i(&graph, sum, "N", 3);
    node_add_input(&graph, sum, a, 0);
    node_add_input(&graph, sum, b, 0);
    assert_fails(node_finish(&graph, sum), STATUS_INVALID_ARGUMENT,
                 "NodeDef expected inputs 'float, float, float' do not match 2 inputs");
    node_add_input(&graph, sum, a, 0);
    node_add_control(&graph, sum, c);
    node_add_control(&graph, sum, a);
    node_add_control(&graph, sum, c);
    assert_int_equal(sum->n_inputs, 5);
    assert_null(node_finish(&graph, sum));
    assert_int_equal(sum->n_outputs, 1);
    node_set_input(sum, 1, a, 1);
    assert_fails(node_finish(&graph, sum), STATUS_INVALID_ARGUMENT,
                 "Connecting to invalid output 1 of source node a which has 1 outputs.");
    node_remove_input(sum, 1);
    node_set_attr_i(&graph, sum, "N", 2);
    assert_null(node_finish(&graph, sum));
    assert_int_equal(sum->n_data, 2);
    assert_ptr_equal(sum->inputs[2].src, c);
    node_remove_input(sum, 2);
    assert_int_equal(sum->n_inputs, 3);
    assert_int_equal(sum->inputs[2].index, CONTROL_EDGE);
    graph_fini(&graph);
}

static void names_are_made_unique(void **state) {
    struct graph graph = parse("a = NoOp()\na_1 = NoOp()\n");
    struct node *node;
    assert_string_equal(graph_unique_name(&graph, "b"), "b");
    const char *name = graph_unique_name(&graph, "a");
    assert_string_equal(name, "a_2");
    assert_null(graph_add_node(&graph, name, "NoOp", "", &node));
    assert_string_equal(graph_unique_name(&graph, "a"), "a_3");
    graph_fini(&graph);
}

static void a_removed_node_keeps_its_id(void **state) {
    struct graph graph = parse("a = NoOp()\nb = NoOp()\nc = NoOp(^b)\n");
    graph_remove_node(&graph, graph_find(&graph, "a"));
    assert_int_equal(graph.n_live, 2);
    assert_int_equal(graph_find(&graph, "b")->id, 1);
    assert_null(graph_find(&graph, "a"));
    struct node *again;
    assert_null(graph_add_node(&graph, "a", "NoOp", "", &again));
    assert_int_equal(again->id, 3);
    struct graph copy;
    struct node **map;
    graph_copy(&graph, NULL, &copy, &map);
    assert_int_equal(copy.n_nodes, 3);
    assert_null(map[0]);
    assert_string_equal(map[2]->inputs[0].src->name, "b");
    assert_ptr_equal(map[2]->inputs[0].src, map[1]);
    free(map);
    graph_fini(&copy);
    graph_fini(&graph);
}

static void consumers_and_order_follow_the_edges(void **state) {
    struct graph graph = parse(
        "d = AddV2(b, c) {T=float}\nb = Identity(a) {T=float}\nc = Identity(a, ^b) {T=float}\n"
        "a = Placeholder() {dtype=float}\ne = NoOp(^d, ^a)\n");
    struct graph_consumers consumers;
    graph_consumers_init(&consumers, &graph);
    int a = graph_find(&graph, "a")->id;
    assert_int_equal(consumers.first[a + 1] - consumers.first[a], 3);
    assert_string_equal(consumers.edges[consumers.first[a]].dst->name, "b");
    assert_int_equal(consumers.edges[consumers.first[a + 1] - 1].index, CONTROL_EDGE);
    int e = graph_find(&graph, "e")->id;
    assert_int_equal(consumers.first[e], consumers.first[e + 1]);
    graph_consumers_fini(&consumers);
    struct node **order;
    assert_null(graph_topological_order(&graph, &order));
    const char *const expected[] = {"a", "b", "c", "d", "e"};
    for (int i = 0; i < 5; i++)
        assert_string_equal(order[i]->name, expected[i]);
    free(order);
    node_add_control(&graph, graph_find(&graph, "a"), graph_find(&graph, "d"));
    assert_fails(graph_topological_order(&graph, &order), STATUS_INVALID_ARGUMENT,
                 "nodes in a cycle");
    graph_fini(&graph);
}

static void consumers_are_sorted_by_output(void **state) {
    struct graph graph =
        parse("x = Placeholder() {dtype=float}\n"
              "dim = Placeholder() {dtype=int32}\n"
              "s = Split(dim, x) {T=float, num_split=3}\n"
              "late = NoOp(^s)\na = Identity(s:2) {T=float}\n"
              "b = AddV2(s:0, s:2) {T=float}\nc = Identity(s:0, ^late) {T=float}\n");
    struct graph_consumers consumers;
    graph_consumers_init(&consumers, &graph);
    graph_consumers_sort(&consumers, &graph);
    static const struct {
        const char *name;
        int output;
    } expected[] = {{"late", CONTROL_EDGE}, {"b", 0}, {"c", 0}, {"a", 2}, {"b", 2}};
    int s = graph_find(&graph, "s")->id;
    assert_int_equal(consumers.first[s + 1] - consumers.first[s], ARRAY_LEN(expected));
    for (size_t i = 0; i < ARRAY_LEN(expected); i++) {
        const struct node_output_edge *edge = &consumers.edges[(size_t)consumers.first[s] + i];
        assert_string_equal(edge->dst->name, expected[i].name);
        assert_int_equal(edge->index, expected[i].output);
    }
    graph_consumers_fini(&consumers);
    graph_fini(&graph);
}

static void a_cycle_is_named_by_a_node_on_it(void **state) {
    struct graph graph = parse("behind = NoOp(^b)\na = NoOp()\nb = NoOp(^a)\nother = NoOp()\n");
    node_add_control(&graph, graph_find(&graph, "a"), graph_find(&graph, "b"));
    struct node **order;
    struct status *st = graph_topological_order(&graph, &order);
    assert_true(strstr(status_message(st), "{{node a}}") ||
                strstr(status_message(st), "{{node b}}"));
    status_unref(st);
    graph_fini(&graph);
}

static void copies_change_apart(void **state) {
    struct graph graph = parse("a = Const() {dtype=float, value=float[5]{1, …}}\nb = Identity(a) "
                               "{T=float} -> 3\nc = Neg(a) {T=float}\n"),
                 copy;
    const bool keep[] = {true, true, false};
    struct node *node;
    graph_copy(&graph, keep, &copy, NULL);
    assert_int_equal(copy.n_nodes, 2);
    struct node *b = graph_find(&copy, "b");
    assert_int_equal(b->placed, 3);
    node_set_attr_i(&copy, b, "_mark", 1);
    node_set_attr_type(&copy, b, "T", DT_INT32);
    node_add_control(&copy, b, graph_find(&copy, "a"));
    assert_null(graph_add_node(&copy, "c", "NoOp", "", &node));
    struct str out = STR_INIT;
    graph_print(&graph, &out);
    assert_string_equal(str_text(&out),
                        "a = Const() {dtype=float, value=float[5]{1, 1, 1, 1, 1}}\nb = Identity(a) "
                        "{T=float} -> 3\nc = Neg(a) {T=float}\n");
    str_clear(&out);
    graph_print(&copy, &out);
    assert_string_equal(str_text(&out),
                        "a = Const() {dtype=float, value=float[5]{1, 1, 1, 1, 1}}\nb = Identity(a, "
                        "^a) {T=int32, _mark=1} -> 3\nc = NoOp()\n");
    str_fini(&out);
    graph_fini(&copy);
    graph_fini(&graph);
}

static void reference_outputs_feed_values_but_not_the_other_way(void **state) {
    struct graph graph = parse("v = VariableV2() {dtype=float, shape=[]}\nread = Identity(v) "
                               "{T=float}\nadd = AssignAdd(v, read) {T=float}\n");
    assert_int_equal(graph_find(&graph, "add")->in_types[0], DT_FLOAT + DT_REF_OFFSET);
    struct status *st = graph_parse("bad = AssignAdd(read, read) {T=float}", &graph);
    assert_fails(
        st, STATUS_INVALID_ARGUMENT,
        "Input 0 of node bad was passed float from read:0 incompatible with expected float_ref.");
    graph_fini(&graph);
}

static void endpoints_are_parsed(void **state) {
    static const struct {
        const char *text, *name;
        int index;
    } good[] = {{"a", "a", 0},
                {"a:0", "a", 0},
                {"scope/a:12", "scope/a", 12},
                {"^a", "a", CONTROL_EDGE},
                {"a:99999999999999999999", "a", INT_MAX}};
    struct span name;
    int index;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_true(endpoint_parse(span_of(good[i].text), &name, &index));
        assert_true(span_is(name, good[i].name));
        assert_int_equal(index, good[i].index);
    }
    const char *const bad[] = {"", "^", ":0", "a:", "a:-1", "a:b", "a:1:0", "^a:0"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(endpoint_parse(span_of(bad[i]), &name, &index));
    assert_false(endpoint_parse((struct span){NULL, 0}, &name, &index));
}

static void every_op_of_the_table_can_be_added(void **state) {
    struct graph graph;
    graph_init(&graph);
    for (size_t i = 0; i < op_signature_count(); i++) {
        const struct op_signature *op = op_signature_at(i);
        struct node *node;
        assert_null(graph_add_node(&graph, graph_unique_name(&graph, "n"), op->name, "", &node));
        assert_ptr_equal(node->op, op);
        for (int k = 0; k < op->n_attrs; k++)
            assert_int_equal(node_attr(node, op->attrs[k].name) != NULL, op->attrs[k].has_default);
    }
    graph_fini(&graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nodes_start_with_defaults),
        cmocka_unit_test(attrs_are_set_replaced_and_read),
        cmocka_unit_test(edges_are_added_changed_and_removed),
        cmocka_unit_test(names_are_made_unique),
        cmocka_unit_test(a_removed_node_keeps_its_id),
        cmocka_unit_test(consumers_and_order_follow_the_edges),
        cmocka_unit_test(consumers_are_sorted_by_output),
        cmocka_unit_test(a_cycle_is_named_by_a_node_on_it),
        cmocka_unit_test(copies_change_apart),
        cmocka_unit_test(reference_outputs_feed_values_but_not_the_other_way),
        cmocka_unit_test(endpoints_are_parsed),
        cmocka_unit_test(every_op_of_the_table_can_be_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
