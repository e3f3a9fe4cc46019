/* Products that read transposed operands in place: data/transposes.txt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/master/pass_file.h"

static void transposes_makes_graphs_of_text(void **state) {
    pass_file_run("transposes.txt", "cut prune transposes sweep");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transposes_makes_graphs_of_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
