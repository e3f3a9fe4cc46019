/* Arithmetic clean-ups: data/simplify.txt, and rows of the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "common/signatures/op_signature.h"
#include "master/compile/rewrite/simplify.h"
#include "tests/unit/master/pass_file.h"

static void simplify_makes_graphs_of_text(void **state) {
    pass_file_run("simplify.txt", "cut prune simplify sweep");
}

static void rules_are_sorted_and_name_ops(void **state) {
    for (size_t i = 0; i < n_simplify_rules; i++) {
        assert_non_null(op_signature_find(simplify_rules[i].op));
        if (i > 0)
            assert_true(strcmp(simplify_rules[i - 1].op, simplify_rules[i].op) <= 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(simplify_makes_graphs_of_text),
        cmocka_unit_test(rules_are_sorted_and_name_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
