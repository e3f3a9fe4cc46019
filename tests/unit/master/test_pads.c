/* Convolutions that pad their images themselves: data/pads.txt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/master/pass_file.h"

static void pads_makes_graphs_of_text(void **state) {
    pass_file_run("pads.txt", "cut prune pads sweep");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pads_makes_graphs_of_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
