/* Constant folding: data/fold.txt; the budgets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "tests/unit/master/pass_file.h"
#include "tests/unit/master/test_kernels.h"

static void fold_makes_graphs_of_text(void **state) {
    pass_file_run("fold.txt", "cut prune fold sweep");
}

/* a1 = c + c, a2 = a1 + c, … : how many nodes are left after folding under `options`. */
static int n_nodes_after_folding(const struct compile_options *options, int length) {
    const char *fetches[] = {"last:0"};
    struct signature signature = {.fetches = fetches, .n_fetches = 1};
    struct device_table *devices = devices_from_text("worker:0");
    struct str text = STR_INIT;
    struct compilation c;
    bool changed;
    str_add(&text, "c = Const() {dtype=float, value=float[]{1}}\na0 = AddV2(c, c) {T=float}\n");
    for (int i = 1; i < length - 1; i++)
        str_addf(&text, "a%d = AddV2(a%d, c) {T=float}\n", i, i - 1);
    str_addf(&text, "last = AddV2(a%d, c) {T=float}\n", length - 2);
    compilation_init(&c, &signature, devices, options, NULL);
    assert_null(graph_parse(str_text(&text), &c.graph));
    const char *passes[] = {"cut", "fold", "sweep"};
    for (size_t i = 0; i < ARRAY_LEN(passes); i++)
        assert_null(compilation_run_pass(&c, pass_find(passes[i]), &changed));
    int n_live = c.graph.n_live;
    compilation_fini(&c);
    device_table_unref(devices);
    str_fini(&text);
    return n_live;
}

static void fold_stops_when_its_time_is_up(void **state) {
    struct compile_options options;
    compile_options_default(&options);
    options.verify = true;
    options.fold_budget_ns = 60 * INT64_C(1000000000);
    assert_int_equal(n_nodes_after_folding(&options, 50), 2); /* the Const and the fetch */
    options.fold_budget_ns = 0;
    int n_before = test_kernels_n_calls();
    assert_int_equal(n_nodes_after_folding(&options, 50), 52);
    assert_int_equal(test_kernels_n_calls() - n_before, 0);
}

static void fold_stops_when_its_memory_is_used_up(void **state) {
    struct compile_options options;
    compile_options_default(&options);
    options.verify = true;
    options.fold_budget_ns = 60 * INT64_C(1000000000);
    options.fold_max_bytes = 4; /* 16 times 4 bytes in all, and the one that passes the mark */
    int n_before = test_kernels_n_calls();
    n_nodes_after_folding(&options, 50);
    assert_int_equal(test_kernels_n_calls() - n_before, 17);
}

/* Each node doubles its string. Ten such nodes with more inputs would take all memory. */
static void fold_counts_the_bytes_of_strings(void **state) {
    const char *fetches[] = {"j9:0"};
    struct signature signature = {.fetches = fetches, .n_fetches = 1};
    struct device_table *devices = devices_from_text("worker:0");
    struct compile_options options;
    struct str text = STR_INIT;
    struct compilation c;
    bool changed;
    compile_options_default(&options);
    options.fold_budget_ns = 60 * INT64_C(1000000000);
    options.fold_max_bytes = 1024;
    str_add(&text, "c = Const() {dtype=string, value=string[]{\"");
    for (int i = 0; i < 100; i++)
        str_add_char(&text, 'x');
    str_add(&text, "\"}}\nj0 = StringJoin(c, c) {N=2}\n");
    for (int i = 1; i < 10; i++)
        str_addf(&text, "j%d = StringJoin(j%d, j%d) {N=2}\n", i, i - 1, i - 1);
    compilation_init(&c, &signature, devices, &options, NULL);
    assert_null(graph_parse(str_text(&text), &c.graph));
    int n_before = test_kernels_n_calls();
    assert_null(compilation_run_pass(&c, pass_find("cut"), &changed));
    assert_null(compilation_run_pass(&c, pass_find("fold"), &changed));
    int n_calls = test_kernels_n_calls() - n_before; /* 200, 400 and 800 bytes, at most */
    assert_true(n_calls >= 1 && n_calls <= 3);
    assert_string_equal(graph_find(&c.graph, "j9")->op_name, "StringJoin");
    compilation_fini(&c);
    device_table_unref(devices);
    str_fini(&text);
}

static void fold_can_be_switched_off(void **state) {
    struct compile_options options;
    const char *const disabled[] = {"fold", NULL};
    compile_options_default(&options);
    int n_before = test_kernels_n_calls();
    options.no_optimizations = true;
    assert_int_equal(n_nodes_after_folding(&options, 50), 52);
    options.no_optimizations = false;
    options.disabled_passes = disabled;
    assert_int_equal(n_nodes_after_folding(&options, 50), 52);
    assert_int_equal(test_kernels_n_calls() - n_before, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fold_makes_graphs_of_text),
        cmocka_unit_test(fold_stops_when_its_time_is_up),
        cmocka_unit_test(fold_stops_when_its_memory_is_used_up),
        cmocka_unit_test(fold_counts_the_bytes_of_strings),
        cmocka_unit_test(fold_can_be_switched_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
