/* Watches of a debugger: data/debug.txt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/master/pass_file.h"

static void watches_make_graphs_of_text(void **state) {
    pass_file_run("debug.txt", "cut prune cse sweep place debug fuse");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(watches_make_graphs_of_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
