/* Graphs as text: what is printed reads back, and what is malformed is refused with its line. */
#include "common/graph/graph_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

/* Text that prints as itself. */
static const char canonical[] =
    "a = Const() {dtype=float, value=float[2]{1, 2}}\n"
    "v = VariableV2() {dtype=float, shape=[2]} @/job:ps/task:0\n"
    "init = Assign(v, a) {T=float, _class=[\"loc:@v\"]}\n"
    "read = Identity(v, ^init) {T=float, _count=3, _flag=true, _rate=0.5, _shape=[2,?], "
    "_shapes=[[2], [?,3], <unknown>], _type=int32}\n"
    "s = AddV2(a, read) {T=float} @/device:CPU:0 -> 2\n"
    "split = Split(axis, s) {T=float, num_split=2}\n"
    "both = Pack(split, split:1) {N=2, T=float, axis=1}\n"
    "axis = Const() {dtype=int32, value=int32[]{0}}\n"
    "conv = Conv2D(x, x) {T=half, dilations=[1, 2, 2, 1], padding=\"SAME\", strides=[1, 1, 1, 1]}\n"
    "x = Placeholder() {dtype=half, shape=[?]}\n"
    "text = Const() {dtype=string, value=string[]{\"a \\\"b\\\" {}()\\n\"}}\n"
    "q = FIFOQueueV2() {component_types=[float, string], shapes=[[], [2]]}\n"
    "call = PartitionedCall(a) {Tin=[float], Tout=[float], f=&body{T=float, n=2}}\n"
    "all = NoOp(^call, ^both)\n"
    "zero = Const() {dtype=int32, value=int32[]{0}}\n"
    "enter = Enter(zero) {T=int32, frame_name=\"loop\"}\n"
    "merge = Merge(enter, next) {N=2, T=int32}\n"
    "next = NextIteration(merge) {T=int32}\n"
    "feed = _MrFeed() {T=float, index=1}\n"
    "send = _MrSend(feed) {T=float, dst_device=\"b\", edge=3, src_device=\"a\", "
    "tensor_name=\"feed:0\"}\n";

static struct graph parse(const char *text) {
    struct graph graph;
    graph_init(&graph);
    struct status *st = graph_parse(text, &graph);
    if (st)
        fail_msg("%s", status_message(st));
    return graph;
}

static void text_reads_back(void **state) {
    struct graph graph = parse(canonical);
    struct str out = STR_INIT;
    graph_print(&graph, &out);
    assert_string_equal(str_text(&out), canonical);
    assert_int_equal(graph_find(&graph, "s")->placed, 2);
    assert_int_equal(graph_find(&graph, "v")->out_types[0], DT_FLOAT + DT_REF_OFFSET);
    str_fini(&out);
    graph_fini(&graph);
}

static void comments_blanks_and_defaults_are_understood(void **state) {
    struct graph graph =
        parse("# a comment\n\n   a=Const( ){ dtype = float , value = float[1]{ 3 } }   # more\r\n"
              "b = MatMul(c,c) {T=float, transpose_a=false}\nc = Placeholder() {dtype=float}");
    struct str out = STR_INIT;
    graph_print(&graph, &out);
    assert_string_equal(str_text(&out),
                        "a = Const() {dtype=float, value=float[1]{3}}\nb = MatMul(c, c) "
                        "{T=float}\nc = Placeholder() {dtype=float}\n");
    str_fini(&out);
    graph_fini(&graph);
}

static void malformed_text_is_refused_with_its_line(void **state) {
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"a = NoOp()\nb = Nope()", "line 2: Op type not registered 'Nope'"},
        {"a = NoOp()\n\nb NoOp()", "line 3: name = Op(inputs)"},
        {"a = NoOp(", "line 1: (inputs)"},
        {"a = NoOp(^b)", "line 1: Node 'a': Unknown input node '^b'"},
        {"a = NoOp()\na = NoOp()", "line 2: Node 'a' is not unique"},
        {"a = NoOp() {x=}", "line 1:"},
        {"a = NoOp() {x=1", "line 1:"},
        {"a = NoOp() {x=[1, }", "line 1:"},
        {"a = NoOp() -> x", "line 1:"},
        {"a = NoOp() what", "line 1: The end of the line"},
        {"a = NoOp(b c)", "line 1:"},
        {"a b = NoOp()", "line 1:"},
        {"a = Const() {dtype=flot, value=float[]{1}}", "line 1: A type"},
        {"a = Const() {dtype=float, value=float[]{1, 2}}", "line 1: Malformed elements"},
        {"a = Placeholder() {dtype=float}\nb = Identity(a) {T=int32}",
         "line 2: Input 0 of node b was passed float"},
        {"a = Identity(b) {T=float}\nb = Identity(a) {T=float}", "in a cycle"},
        {"a = NoOp()\nb = Identity(^a, a) {T=float}",
         "line 2: All control inputs must follow all data inputs"},
        {"a = NoOp() "
         "{f=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=&"
         "g{x=&g{x=&g{x=&g{x=&g{x=&g{x=&g"
         "{x=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=&g{x=1",
         "too deep"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct graph graph;
        graph_init(&graph);
        assert_null(graph_parse("kept = NoOp()", &graph));
        struct status *st = graph_parse(cases[i].text, &graph);
        if (!st || !strstr(status_message(st), cases[i].words))
            fail_msg("'%s' gives '%s'", cases[i].text, status_message(st));
        status_unref(st);
        assert_int_equal(graph.n_live, 1);
        assert_null(graph_find(&graph, "a"));
        graph_fini(&graph);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_reads_back),
        cmocka_unit_test(comments_blanks_and_defaults_are_understood),
        cmocka_unit_test(malformed_text_is_refused_with_its_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
