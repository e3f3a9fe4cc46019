/* GraphDef in and out: TensorFlow's own graphs and its answers to broken ones
 * (tests/data/graphdefs.bin), limits, damage, size. */
#include "common/graph/graph_proto.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/graph/graph_text.h"
#include "common/tensor/tensor_proto.h"
#include "tests/unit/common/fixture.h"

static struct graph_limits limits;

static struct span span_of_str(const struct str *s) { return (struct span){str_text(s), s->len}; }

static struct graph parse(const char *text) {
    struct graph graph;
    graph_init(&graph);
    struct status *st = graph_parse(text, &graph);
    if (st)
        fail_msg("%s", status_message(st));
    return graph;
}

static struct str graphdef_of(const char *text) {
    struct graph graph = parse(text);
    struct str out = STR_INIT;
    graph_to_graphdef(&graph, NULL, &out);
    graph_fini(&graph);
    return out;
}

static struct str text_of(const struct graph *graph) {
    struct str out = STR_INIT;
    graph_print(graph, &out);
    return out;
}

/* Writing and reading again gives the same graph. */
static void assert_makes_the_round_trip(const char *name, const struct graph *graph) {
    struct graph again;
    struct str bytes = STR_INIT, text = text_of(graph);
    graph_to_graphdef(graph, NULL, &bytes);
    graph_init(&again);
    struct status *st = graph_add_graphdef(&again, span_of_str(&bytes), &limits);
    if (st)
        fail_msg("%s: again: %s", name, status_message(st));
    struct str text_again = text_of(&again);
    assert_string_equal(str_text(&text), str_text(&text_again));
    assert_int_equal(again.functions.n_entries, graph->functions.n_entries);
    assert_int_equal(again.n_gradient_defs, graph->n_gradient_defs);
    assert_int_equal(again.producer, graph->producer);
    str_fini(&bytes);
    str_fini(&text);
    str_fini(&text_again);
    graph_fini(&again);
}

static void tensorflows_graphs_get_tensorflows_answers(void **state) {
    struct str file = STR_INIT;
    fixture_read("graphdefs.bin", &file);
    int n_cases = 0;
    for (struct span in = {file.data, file.len}; in.len > 0; n_cases++) {
        struct span text = fixture_bytes(&in), code = fixture_bytes(&in),
                    words_text = fixture_bytes(&in), def = fixture_bytes(&in);
        char *name = xstrndup(text.data, text.len),
             *words = xstrndup(words_text.data, words_text.len);
        uint32_t expected;
        memcpy(&expected, code.data, sizeof(expected));
        struct graph graph;
        graph_init(&graph);
        struct status *st = graph_add_graphdef(&graph, def, &limits);
        if (status_code(st) != expected || !strstr(status_message(st), words))
            fail_msg("%s: %s '%s', not '%s'", name, status_code_name(status_code(st)),
                     status_message(st), words);
        if (st)
            assert_true(graph.n_live == 0 && graph.by_name.n_entries == 0 &&
                        graph.functions.n_entries == 0 && graph.producer == 0);
        else
            assert_makes_the_round_trip(name, &graph);
        status_unref(st);
        graph_fini(&graph);
        free(name);
        free(words);
    }
    assert_true(n_cases >= 40);
    str_fini(&file);
}

static void a_later_graph_may_use_earlier_nodes(void **state) {
    struct graph graph = parse("a = Placeholder() {dtype=float}\n");
    /* n's input is not in its own message */
    struct str whole = graphdef_of("a = Placeholder() {dtype=float}\nn = Neg(a) {T=float}\n"),
               extend = STR_INIT;
    struct span in = span_of_str(&whole);
    struct proto_field field;
    assert_int_equal(proto_next(&in, &field), 1);
    str_add_bytes(&extend, in.data, in.len);
    assert_null(graph_add_graphdef(&graph, span_of_str(&extend), &limits));
    assert_string_equal(graph_find(&graph, "n")->inputs[0].src->name, "a");
    /* the same once more */
    struct status *st = graph_add_graphdef(&graph, span_of_str(&extend), &limits);
    assert_non_null(strstr(status_message(st), "includes node 'n', which was created by a previous "
                                               "call to Create or Extend in this session."));
    status_unref(st);
    assert_int_equal(graph.n_live, 2);
    assert_null(graph_add_graphdef(&graph, (struct span){"", 0}, &limits));
    str_fini(&whole);
    str_fini(&extend);
    graph_fini(&graph);
}

static void placed_nodes_carry_their_device(void **state) {
    struct graph graph = parse("a = NoOp() @/cpu:0 -> 1\nb = NoOp() @/cpu:1\n"), back;
    const char *const devices[] = {"/job:a/task:0/device:CPU:0", "/job:a/task:1/device:CPU:0"};
    struct str bytes = STR_INIT;
    graph_to_graphdef(&graph, devices, &bytes);
    graph_init(&back);
    assert_null(graph_add_graphdef(&back, span_of_str(&bytes), &limits));
    assert_string_equal(graph_find(&back, "a")->device, devices[1]);
    assert_string_equal(graph_find(&back, "b")->device, "/cpu:1");
    str_fini(&bytes);
    graph_fini(&graph);
    graph_fini(&back);
}

static void internal_ops_travel_only_among_ourselves(void **state) {
    struct str bytes =
        graphdef_of("_in = _MrFeed() {T=float, index=0}\nout = _MrFetch(_in) {T=float, index=0}\n");
    struct graph graph;
    graph_init(&graph);
    struct status *st = graph_add_graphdef(&graph, span_of_str(&bytes), &limits);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    status_unref(st);
    struct graph_limits internal = limits;
    internal.is_internal = true;
    assert_null(graph_add_graphdef(&graph, span_of_str(&bytes), &internal));
    assert_true(node_is_stateful(graph_find(&graph, "_in")));
    str_fini(&bytes);
    graph_fini(&graph);
}

static void assert_code(struct status *st, enum status_code code, const char *words) {
    if (status_code(st) != code || !strstr(status_message(st), words))
        fail_msg("%s: '%s' lacks '%s'", status_code_name(status_code(st)), status_message(st),
                 words);
    status_unref(st);
}

static void limits_hold(void **state) {
    struct graph graph;
    struct graph_limits tight = limits;
    struct str nodes = graphdef_of("a = NoOp()\nb = NoOp()\nc = NoOp()\n");
    struct str list = graphdef_of("x = NoOp() {_l=[1, 2, 3, 4, 5, 6, 7, 8, 9]}\n");
    struct str tensor = graphdef_of("x = Const() {dtype=float, value=float[100000]{1, …}}\n");
    struct str deep =
        graphdef_of("x = NoOp() {f=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=1}}}}}}}}}\n");
    graph_init(&graph);
    tight.max_nodes = 2;
    assert_code(graph_add_graphdef(&graph, span_of_str(&nodes), &tight), STATUS_RESOURCE_EXHAUSTED,
                "more than 2 nodes");
    tight.max_list_elements = 8;
    assert_code(graph_add_graphdef(&graph, span_of_str(&list), &tight), STATUS_RESOURCE_EXHAUSTED,
                "more than 8 elements");
    tight.max_tensor_bytes = 100000;
    assert_code(graph_add_graphdef(&graph, span_of_str(&tensor), &tight), STATUS_RESOURCE_EXHAUSTED,
                "OOM");
    tight.max_depth = 20;
    assert_code(graph_add_graphdef(&graph, span_of_str(&deep), &tight), STATUS_INVALID_ARGUMENT,
                "nest deeper than 20");
    assert_null(graph_add_graphdef(&graph, span_of_str(&deep), &limits));
    str_fini(&nodes);
    str_fini(&list);
    str_fini(&tensor);
    str_fini(&deep);
    graph_fini(&graph);
}

static void nesting_is_measured(void **state) {
    struct str message = STR_INIT;
    /* The innermost message is empty, and costs a decoder no level. */
    for (int depth = 1; depth < 300; depth++) {
        assert_int_equal(proto_is_too_deep(span_of_str(&message), 100), depth > 101);
        struct str outer = STR_INIT;
        proto_add_bytes(&outer, 1, message.data, message.len);
        str_fini(&message);
        message = outer;
    }
    assert_true(proto_is_too_deep((struct span){"\x0a\x05", 2}, 100));
    assert_false(proto_is_too_deep((struct span){"", 0}, 100));
    /* bytes, not a message */
    assert_false(proto_is_too_deep((struct span){"\x0a\x02\xff\xff", 4}, 1));
    str_fini(&message);
}

/* Each cut and each flipped byte of a real graph yields a status or a graph, and nothing stays
 * behind after an error. */
static void damaged_messages_are_survived(void **state) {
    struct str bytes = graphdef_of(
        "v = VariableV2() {dtype=float, shape=[2,?]} @/job:ps/task:0\n"
        "c = Const() {dtype=string, value=string[2]{\"a\", \"bc\"}}\n"
        "i = Identity(v, ^c) {T=float, _l=[1, 2], _f=&g{T=float}, _s=[[1], <unknown>]}\n");
    for (size_t at = 0; at < bytes.len; at++) {
        char *copy = xmalloc(bytes.len);
        memcpy(copy, bytes.data, bytes.len);
        for (int variant = 0; variant < 3; variant++) {
            struct graph graph;
            graph_init(&graph);
            copy[at] = variant == 0   ? (char)(bytes.data[at] ^ 0x01)
                       : variant == 1 ? (char)(bytes.data[at] ^ 0x80)
                                      : bytes.data[at];
            struct status *st = graph_add_graphdef(
                &graph, (struct span){copy, variant == 2 ? at : bytes.len}, &limits);
            if (st)
                assert_int_equal(graph.n_live, 0);
            status_unref(st);
            graph_fini(&graph);
        }
        free(copy);
    }
    str_fini(&bytes);
}

/* "a" before "b", or after it, in every map of a FunctionDef. */
struct function_writer {
    bool is_backwards;
    uint64_t second; /* of two integers in a list */
};

static void add_entry(struct str *out, uint32_t number, const char *key, const struct str *value) {
    struct str entry = STR_INIT;
    proto_add_bytes(&entry, 1, key, strlen(key));
    proto_add_bytes(&entry, 2, str_text(value), value->len);
    proto_add_bytes(out, number, str_text(&entry), entry.len);
    str_fini(&entry);
}

static void add_both(const struct function_writer *w, struct str *out, uint32_t number,
                     const struct str *a, const struct str *b) {
    add_entry(out, number, w->is_backwards ? "b" : "a", w->is_backwards ? b : a);
    add_entry(out, number, w->is_backwards ? "a" : "b", w->is_backwards ? a : b);
}

/* Maps within maps: a node's attrs hold a list of functions with attrs of their own, and so do
 * the attrs of an argument. */
static struct str function_def(const struct function_writer *w) {
    struct str def = STR_INIT, integer = STR_INIT, list = STR_INIT, text = STR_INIT,
               func = STR_INIT, funcs = STR_INIT, node = STR_INIT, arg = STR_INIT, entry = STR_INIT;
    proto_add_bytes(&text, 1, "f", 1);
    proto_add_bytes(&def, 1, str_text(&text), text.len);
    proto_add_int(&integer, 3, 7); /* AttrValue.i */
    str_clear(&text);
    proto_add_int(&text, 3, 1); /* ListValue.i */
    proto_add_int(&text, 3, w->second);
    proto_add_bytes(&list, 1, str_text(&text), text.len);
    proto_add_bytes(&func, 1, "g", 1);
    add_both(w, &func, 2, &integer, &list);
    str_clear(&text);
    proto_add_bytes(&text, 9, str_text(&func), func.len);
    proto_add_bytes(&funcs, 1, str_text(&text), text.len);
    proto_add_bytes(&node, 1, "n", 1);
    add_both(w, &node, 5, &integer, &funcs);
    proto_add_bytes(&def, 3, str_text(&node), node.len);
    add_both(w, &def, 5, &list, &integer);
    add_both(w, &arg, 1, &integer, &list);
    proto_add_int(&entry, 1, 1);
    proto_add_bytes(&entry, 2, str_text(&arg), arg.len);
    proto_add_bytes(&def, 7, str_text(&entry), entry.len);
    str_fini(&integer);
    str_fini(&list);
    str_fini(&text);
    str_fini(&func);
    str_fini(&funcs);
    str_fini(&node);
    str_fini(&arg);
    str_fini(&entry);
    return def;
}

static void a_function_is_the_same_in_any_order_of_its_maps(void **state) {
    struct graph graph;
    struct str forwards = function_def(&(struct function_writer){false, 2}),
               backwards = function_def(&(struct function_writer){true, 2}),
               other = function_def(&(struct function_writer){true, 3});
    assert_false(span_equal(span_of_str(&forwards), span_of_str(&backwards)));
    assert_int_equal(forwards.len, other.len);
    graph_init(&graph);
    assert_null(graph_add_function(&graph, span_of_str(&forwards), &limits));
    assert_null(graph_add_function(&graph, span_of_str(&backwards), &limits));
    assert_code(graph_add_function(&graph, span_of_str(&other), &limits), STATUS_INVALID_ARGUMENT,
                "different function");
    graph_fini(&graph);
    str_fini(&forwards);
    str_fini(&backwards);
    str_fini(&other);
}

static void a_function_is_added_once(void **state) {
    /* FunctionDef{signature{name "f" input_arg{name "x" type float} output_arg{name "y" type
     * float}}} */
    const char def[] = "\x0a\x11\x0a\x01"
                       "f\x12\x05\x0a\x01x\x18\x01\x1a\x05\x0a\x01y\x18\x01";
    const char other[] = "\x0a\x11\x0a\x01"
                         "f\x12\x05\x0a\x01x\x18\x01\x1a\x05\x0a\x01y\x18\x02";
    struct graph graph = parse("a = Placeholder() {dtype=float}\n");
    assert_null(graph_add_function(&graph, (struct span){def, sizeof(def) - 1}, &limits));
    assert_null(graph_add_function(&graph, (struct span){def, sizeof(def) - 1}, &limits));
    assert_code(graph_add_function(&graph, (struct span){other, sizeof(other) - 1}, &limits),
                STATUS_INVALID_ARGUMENT, "Cannot add function 'f' because a different function");
    assert_code(graph_add_function(&graph, (struct span){"\x0a\x05", 2}, &limits),
                STATUS_INVALID_ARGUMENT, "Malformed FunctionDef ''");
    assert_code(graph_add_function(&graph, (struct span){"", 0}, &limits), STATUS_INVALID_ARGUMENT,
                "no name");
    assert_null(graph_parse("call = f(a)\n", &graph));
    assert_int_equal(graph_find(&graph, "call")->out_types[0], DT_FLOAT);
    assert_code(graph_parse("bad = f(a, a)\n", &graph), STATUS_INVALID_ARGUMENT,
                "NodeDef expected inputs 'float' do not match 2 inputs");
    struct graph copy;
    graph_copy(&graph, NULL, &copy, NULL);
    assert_non_null(graph_op_lookup(&copy, "f"));
    graph_fini(&copy);
    graph_fini(&graph);
}

static void reading_is_linear(void **state) {
    enum { N = 100 * 1000 };
    struct graph graph;
    graph_init(&graph);
    struct node *before, *node;
    assert_null(graph_add_node(&graph, "x", "Placeholder", "", &before));
    node_set_attr_type(&graph, before, "dtype", DT_FLOAT);
    assert_null(node_finish(&graph, before));
    struct node *group;
    assert_null(graph_add_node(&graph, "group", "NoOp", "", &group));
    for (int i = 0; i < N; i++) {
        char name[64];
        snprintf(name, sizeof(name), "some/scope/of/a/layer_%d/add", i);
        assert_null(graph_add_node(&graph, name, "AddV2", "/job:worker/task:0", &node));
        node_set_attr_type(&graph, node, "T", DT_FLOAT);
        node_add_input(&graph, node, before, 0);
        node_add_input(&graph, node, before, 0);
        assert_null(node_finish(&graph, node));
        before = node;
    }
    node_add_control(&graph, group, before);
    struct str bytes = STR_INIT;
    int64_t start = clock_now_ns();
    graph_to_graphdef(&graph, NULL, &bytes);
    int64_t written = clock_now_ns();
    struct graph back, copy;
    graph_init(&back);
    assert_null(graph_add_graphdef(&back, span_of_str(&bytes), &limits));
    int64_t read = clock_now_ns();
    graph_copy(&back, NULL, &copy, NULL);
    int64_t copied = clock_now_ns();
    assert_int_equal(back.n_live, N + 2);
    graph_fini(&copy);
    printf("ns a node: written %d, read %d, copied %d; %zu bytes of message, %zu in memory\n",
           (int)((written - start) / N), (int)((read - written) / N), (int)((copied - read) / N),
           bytes.len / N, back.arena.size_bytes / N);
    str_fini(&bytes);
    graph_fini(&back);
    graph_fini(&graph);
}

int main(void) {
    graph_limits_default(&limits);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensorflows_graphs_get_tensorflows_answers),
        cmocka_unit_test(a_later_graph_may_use_earlier_nodes),
        cmocka_unit_test(placed_nodes_carry_their_device),
        cmocka_unit_test(internal_ops_travel_only_among_ourselves),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(nesting_is_measured),
        cmocka_unit_test(damaged_messages_are_survived),
        cmocka_unit_test(a_function_is_the_same_in_any_order_of_its_maps),
        cmocka_unit_test(a_function_is_added_once),
        cmocka_unit_test(reading_is_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
