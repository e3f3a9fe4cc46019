/* Functions that kernels call: data/functions.txt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/master/pass_file.h"

static void functions_are_compiled_for_their_tasks(void **state) {
    pass_file_run("functions.txt", "cut prune inline place partition functions");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_compiled_for_their_tasks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
