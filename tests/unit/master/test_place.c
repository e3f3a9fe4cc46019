/* Placement, of a session and of a step: data/place.txt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/master/pass_file.h"
#include "tests/unit/master/test_kernels.h"

static void place_makes_graphs_of_text(void **state) {
    pass_file_run("place.txt", "cut prune place");
}

static void place_by_cost_makes_graphs_of_text(void **state) {
    pass_file_run("place_cost.txt", "cut prune place");
}

static void spread_makes_graphs_of_text(void **state) {
    pass_file_run("place_spread.txt", "cut prune place");
}

static void each_placement_has_a_reason(void **state) {
    pass_file_run("place_explain.txt", "cut prune place");
}

int main(void) {
    test_kernels_add_gpu();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(place_makes_graphs_of_text),
        cmocka_unit_test(place_by_cost_makes_graphs_of_text),
        cmocka_unit_test(spread_makes_graphs_of_text),
        cmocka_unit_test(each_placement_has_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
