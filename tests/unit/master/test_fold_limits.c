/* What folding refuses to compute: a few bytes of graph that would take much memory or time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "master/compile/rewrite/fold_limits.h"

enum { MAX_INPUTS = 16 };

/* Is the last node of the text within 10 MiB and 200 ms? Its inputs are Consts. */
static bool is_within(const char *text) {
    struct fold_limits limits = {.max_bytes = 10 << 20, .max_ns = 200e6};
    struct tensor *inputs = aligned_alloc(64, MAX_INPUTS * sizeof(struct tensor));
    struct graph graph;
    struct arena scratch;
    graph_init(&graph);
    arena_init(&scratch);
    struct status *st = graph_parse(text, &graph);
    if (st)
        print_error("%s\n", status_message(st));
    assert_null(st);
    const struct node *node = graph.nodes[graph.n_nodes - 1];
    assert_true(node->n_data <= MAX_INPUTS);
    for (int i = 0; i < node->n_data; i++)
        inputs[i] = *node_attr(node->inputs[i].src, "value")->tensor; /* borrowed */
    bool is = fold_is_within(&limits, node, inputs, &scratch);
    arena_fini(&scratch);
    graph_fini(&graph);
    free(inputs);
    return is;
}

#define INT(name, value) name " = Const() {dtype=int32, value=int32" value "}\n"
#define FLOAT(name, value) name " = Const() {dtype=float, value=float" value "}\n"
#define TEXT(name, value) name " = Const() {dtype=string, value=string" value "}\n"

static void outputs_are_limited(void **state) {
    assert_true(is_within(INT("n", "[1]{1000}") FLOAT("x", "[]{1}") "f = Fill(n, x) {T=float}\n"));
    assert_false(is_within(INT("n", "[2]{100000, 100000}")
                               FLOAT("x", "[]{1}") "f = Fill(n, x) {T=float}\n"));
    assert_false(is_within(INT("a", "[]{0}") INT("b", "[]{1000000000}")
                               INT("c", "[]{1}") "r = Range(a, b, c) {Tidx=int32}\n"));
    assert_true(is_within(INT("a", "[]{0}") INT("b", "[]{1000}")
                              INT("c", "[]{1}") "r = Range(a, b, c) {Tidx=int32}\n"));
    assert_false(is_within(FLOAT("x", "[1000]{1, …}")
                               INT("n", "[1]{1000000}") "t = Tile(x, n) {T=float}\n"));
    assert_false(is_within(FLOAT("x", "[100000,1]{1, …}")
                               FLOAT("y", "[1,100000]{1, …}") "m = Mul(x, y) {T=float}\n"));
    assert_true(is_within(FLOAT("x", "[1000,1]{1, …}")
                              FLOAT("y", "[1,1000]{1, …}") "m = Mul(x, y) {T=float}\n"));
}

static void work_is_limited(void **state) {
    /* small results of much work, or much work for each element */
    assert_true(is_within(FLOAT("x", "[2,2]{1, …}") "d = MatrixDeterminant(x) {T=float}\n"));
    assert_false(is_within(FLOAT("x", "[4000,4000]{1, …}") "d = MatrixDeterminant(x) {T=float}\n"));
    assert_false(is_within(FLOAT("x", "[2500000]{1, …}") "d = BesselJ0(x) {T=float}\n"));
}

static void windows_and_filter_banks_are_limited(void **state) {
#define SPECTROGRAM FLOAT("s", "[1,10,129]{1, …}") INT("r", "[]{16000}")
    assert_true(is_within(SPECTROGRAM "m = Mfcc(s, r) {filterbank_channel_count=40}\n"));
    assert_false(is_within(SPECTROGRAM "m = Mfcc(s, r) {filterbank_channel_count=100000000}\n"));
    assert_false(is_within(SPECTROGRAM "m = Mfcc(s, r) {filterbank_channel_count=100000, "
                                       "dct_coefficient_count=100000}\n"));
}

static void strings_are_limited(void **state) {
    struct str text = STR_INIT;
    assert_true(is_within(TEXT("a", "[2]{\"x\", \"y\"}")
                              TEXT("b", "[2]{\"1\", \"2\"}") "j = StringJoin(a, b) {N=2}\n"));
    /* sixteen times a string of 1 MiB */
    str_add(&text, "a = Const() {dtype=string, value=string[]{\"");
    for (int i = 0; i < 1 << 20; i++)
        str_add_char(&text, 'x');
    str_add(&text, "\"}}\n");
    size_t head = text.len;
    str_add(&text, "j = StringJoin(a, a, a, a, a, a, a, a, a, a, a, a, a, a, a, a) {N=16}\n");
    assert_false(is_within(str_text(&text)));
    text.len = head;
    str_add(&text, "l = StringLower(a)\n");
    assert_true(is_within(str_text(&text)));
    text.len = head;
    str_add(&text, "r = StaticRegexReplace(a) {pattern=\".\", rewrite=\"a long replacement\"}\n");
    assert_false(is_within(str_text(&text)));
    text.len = head;
    str_add(&text, "b = Const() {dtype=string, value=string[]{\"\"}}\n"
                   "s = StringSplit(a, b)\n"); /* a piece for each byte */
    assert_false(is_within(str_text(&text)));
    str_fini(&text);
    assert_true(is_within(FLOAT("x", "[10]{1, …}") "s = AsString(x) {T=float, width=20}\n"));
    assert_false(
        is_within(FLOAT("x", "[10]{1, …}") "s = AsString(x) {T=float, width=2000000000}\n"));
    assert_false(is_within(TEXT("z", "[]{\"abc\"}") "d = DecodeCompressed(z)\n"));
}

static void a_value_is_counted_with_its_strings(void **state) {
    struct tensor t = TENSOR_INIT;
    int64_t n = 1000;
    char text[1000];
    memset(text, 'x', sizeof(text));
    assert_null(tensor_new(allocator_host(), DT_STRING, (struct shape){1, &n}, &t));
    struct bytes *bytes = bytes_new(text, sizeof(text));
    for (int64_t i = 0; i < n; i++) /* one string a thousand times: a message has it as often */
        tensor_set_object(&t, i, object_ref(&bytes->object));
    object_unref(&bytes->object);
    assert_int_equal(fold_value_bytes(&t, 10 << 20), 1000 * 8 + 1000 * 1000);
    assert_true(fold_value_bytes(&t, 20000) > 20000);
    assert_true(fold_value_bytes(&t, 20000) <= 21000);
    tensor_clear(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_are_limited),
        cmocka_unit_test(work_is_limited),
        cmocka_unit_test(windows_and_filter_banks_are_limited),
        cmocka_unit_test(strings_are_limited),
        cmocka_unit_test(a_value_is_counted_with_its_strings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
