/* Assert, Print and similar: the words that clients and their tests look for. */
#include "tests/unit/kernels/kernel_test.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

// clang-format off
#define ASSERT_FAILS(data, attrs, words) \
    kernel_test_fails("no = Const() {dtype=bool, value=bool[]{false}}\n" data \
        "a = Assert(no, d) {" attrs "}\nx = Const(^a) {dtype=float, value=float[]{1}}\n", \
                      "x", STATUS_INVALID_ARGUMENT, words)
// clang-format on

static void test_assert_shows_its_data(void **state) {
    ASSERT_FAILS("d = Const() {dtype=float, value=float[4]{1, 2.5, 3, 4}}\n", "T=[float]",
                 "assertion failed: [1 2.5 3...]");
    ASSERT_FAILS("d = Const() {dtype=int32, value=int32[2,3]{1, 2, 3, 4, 5, 6}}\n",
                 "T=[int32], summarize=4", "assertion failed: [[1 2 3][4...]...]");
    ASSERT_FAILS("d = Const() {dtype=int32, value=int32[2,2,1]{1, 2, 3, 4}}\n",
                 "T=[int32], summarize=-1", "assertion failed: [[[1][2]][[3][4]]]");
    ASSERT_FAILS("d = Const() {dtype=int32, value=int32[2]{1, 2}}\n", "T=[int32], summarize=0",
                 "assertion failed: [...]");
    ASSERT_FAILS("d = Const() {dtype=string, value=string[2]{\"a b\", \"c\\n\"}}\n", "T=[string]",
                 "assertion failed: [a b c\\n]");
    ASSERT_FAILS("d = Const() {dtype=double, value=double[3]{0.1, 1e300, 3}}\n", "T=[double]",
                 "assertion failed: [0.1 1e+300 3]");
}

static void test_assert_that_holds_is_silent(void **state) {
    kernel_test_run("yes = Const() {dtype=bool, value=bool[]{true}}\n"
                    "a = Assert(yes, yes) {T=[bool]}\n"
                    "x = Const(^a) {dtype=float, value=float[]{1}}\n",
                    "x", "float[]{1}");
}

static void test_print_hands_its_input_on(void **state) {
    kernel_test_run("x = Const() {dtype=float, value=float[2]{1, 2}}\n"
                    "p = Print(x, x) {T=float, U=[float], first_n=0, message=\"unseen\"}\n",
                    "p", "float[2]{1, 2}");
}

static void test_print_v2_knows_its_streams(void **state) {
    kernel_test_fails("t = Const() {dtype=string, value=string[]{\"text\"}}\n"
                      "p = PrintV2(t) {output_stream=\"nowhere\"}\n"
                      "x = Const(^p) {dtype=float, value=float[]{1}}\n",
                      "x", STATUS_INVALID_ARGUMENT, "Unknown output stream: nowhere");
}

static void test_abort_fails_its_step(void **state) {
    kernel_test_fails(
        "a = Abort() {error_msg=\"on purpose\"}\nx = Const(^a) {dtype=float, value=float[]{1}}\n",
        "x", STATUS_ABORTED, "Abort: on purpose");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_abort_fails_its_step),
        cmocka_unit_test(test_assert_shows_its_data),
        cmocka_unit_test(test_assert_that_holds_is_silent),
        cmocka_unit_test(test_print_hands_its_input_on),
        cmocka_unit_test(test_print_v2_knows_its_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
