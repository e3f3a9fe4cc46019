/* Inlining functions: master/compile/inline/pass_inline.c. The cases are in data/inline_*.txt. */
#include "tests/unit/master/pass_file.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void calls(void **state) { pass_file_run("inline_call.txt", "cut prune inline"); }
static void gradients(void **state) { pass_file_run("inline_gradient.txt", "cut prune inline"); }
static void branches(void **state) { pass_file_run("inline_branch.txt", "cut prune inline"); }
static void loops(void **state) { pass_file_run("inline_loop.txt", "cut prune inline"); }
static void places(void **state) { pass_file_run("inline_place.txt", "cut prune inline place"); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls), cmocka_unit_test(branches), cmocka_unit_test(gradients),
        cmocka_unit_test(loops), cmocka_unit_test(places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
