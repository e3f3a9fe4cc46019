/* Gathered rows and their reduction as one node: data/gathers.txt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/master/pass_file.h"

static void gathers_makes_graphs_of_text(void **state) {
    pass_file_run("gathers.txt", "cut prune place fuse contract gathers");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gathers_makes_graphs_of_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
