/* The cut at feeds and fetches: data/cut.txt; the types it tells. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "tests/unit/master/pass_file.h"

static void cut_makes_graphs_of_text(void **state) { pass_file_run("cut.txt", "cut prune"); }

static void cut_tells_base_types_of_feeds_and_fetches(void **state) {
    const char *feeds[] = {"v", "a:0"}, *fetches[] = {"w:0", "n"};
    struct signature signature = {feeds, fetches, NULL, 2, 2, 0};
    struct compile_options options;
    struct compilation c;
    bool changed = false;
    compile_options_default(&options);
    compilation_init(&c, &signature, NULL, &options, NULL);
    assert_null(graph_parse("v = VariableV2() {dtype=float, shape=[]}\n"
                            "w = VariableV2() {dtype=double, shape=[]}\n"
                            "a = Placeholder() {dtype=int64}\n"
                            "n = Neg(a) {T=int64}\n",
                            &c.graph));
    assert_null(pass_cut(&c, &changed));
    assert_true(changed);
    assert_int_equal(c.feed_types[0], DT_FLOAT);
    assert_int_equal(c.feed_types[1], DT_INT64);
    assert_int_equal(c.fetch_types[0], DT_DOUBLE);
    assert_int_equal(c.fetch_types[1], DT_INT64);
    compilation_fini(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_makes_graphs_of_text),
        cmocka_unit_test(cut_tells_base_types_of_feeds_and_fetches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
