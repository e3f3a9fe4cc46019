/* Fused programs: data/fuse.txt. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "tests/unit/master/pass_file.h"
#include "tests/unit/master/test_kernels.h"

static void fuse_makes_graphs_of_text(void **state) {
    pass_file_run("fuse.txt", "cut prune place fuse");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fuse_makes_graphs_of_text),
    };
    test_kernels_add_gpu();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
