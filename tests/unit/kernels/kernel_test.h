/* Kernel tests in a line: a graph as text, an endpoint to fetch, a tensor as text. Fails the
 * running cmocka test on a difference.
 *
 *   kernel_test_run("a = Const() {dtype=int32, value=int32[2]{1, 2}}\n"
 *                   "r = Rank(a) {T=int32}", "r", "int32[]{1}"); */
#ifndef MILLRACE_TESTS_UNIT_KERNELS_KERNEL_TEST_H
#define MILLRACE_TESTS_UNIT_KERNELS_KERNEL_TEST_H

#include "tests/tools/test_host.h"

/* The value of `endpoint` prints (tensor_print, no limit) as `expected`; where its shape is
 * inferred, it fits the value. */
void kernel_test_run(const char *graph_text, const char *endpoint, const char *expected);
/* Building, preparing or running fails with `code` and a message that holds `words`. */
void kernel_test_fails(const char *graph_text, const char *endpoint, enum status_code code,
                       const char *words);
/* The static shape of `endpoint` prints as `expected`; "!words" stands for an error that holds
 * the words. */
void kernel_test_shape(const char *graph_text, const char *endpoint, const char *expected);
/* Several steps on one state: each fetches an endpoint ("" runs `target` only) and compares it;
 * a NULL row ends. */
struct kernel_test_step {
    const char *target;   /* a node to run, or NULL */
    const char *endpoint; /* to fetch, or NULL */
    const char *expected; /* its text */
};
void kernel_test_steps(const char *graph_text, const struct kernel_test_step *steps,
                       size_t n_steps);

#endif
