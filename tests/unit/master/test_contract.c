/* Products in front of fused programs: data/contract.txt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/master/pass_file.h"

static void contract_makes_graphs_of_text(void **state) {
    pass_file_run("contract.txt", "cut prune place fuse contract");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contract_makes_graphs_of_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
