/* Loop invariants: data/invariants.txt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/master/pass_file.h"

static void invariants_makes_graphs_of_text(void **state) {
    pass_file_run("invariants.txt", "cut prune invariants sweep");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invariants_makes_graphs_of_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
