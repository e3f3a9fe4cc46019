/* Tests kernels/rates.h: rates of devices, and what they make of a cost row's time. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kernels/rates.h"

static bool is_about(double a, double b) { return fabs(a - b) <= 1e-9 * fabs(b); }

static struct device_slowness slowness(double flops, double bytes, double dispatch_ns) {
    return device_slowness_of("CPU", &(struct device_rates){flops, bytes, dispatch_ns});
}

static void this_host_has_rates(void **state) {
    struct device_rates rates = device_rates_measure();
    assert_true(rates.flops_per_second > 1e6 && rates.flops_per_second < 1e13);
    assert_true(rates.bytes_per_second > 1e6 && rates.bytes_per_second < 1e13);
    assert_true(rates.dispatch_ns > 0.01 && rates.dispatch_ns < 1e6);
}

static void a_device_that_tells_nothing_is_as_fast_as_the_rows(void **state) {
    const double bad[] = {0, -1, NAN, INFINITY, -INFINITY};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct device_slowness s = slowness(bad[i], bad[i], bad[i]);
        assert_true(s.compute == 1 && s.memory == 1 && s.dispatch == 1);
    }
}

static void a_slower_device_is_told_apart(void **state) {
    struct device_rates rates = {1e10, 2e10, 5};
    struct device_rates slow = device_rates_divide(rates, 4);
    struct device_slowness a = device_slowness_of("CPU", &rates),
                           b = device_slowness_of("CPU", &slow);
    assert_true(device_slowness_is_near(&a, &a));
    assert_false(device_slowness_is_near(&a, &b));
    assert_true(b.compute > 3 && b.memory > 3 && b.dispatch > 3);
}

/* Other work on a host makes what is measured differ from time to time. */
static void small_differences_do_not_count(void **state) {
    struct device_slowness a = slowness(2.0e10, 2.4e10, 4.5), b = slowness(2.4e10, 2.8e10, 4.0);
    assert_true(a.compute == 1 && a.memory == 1 && a.dispatch == 1);
    assert_true(device_slowness_is_near(&a, &b));
}

static void a_liar_is_limited(void **state) {
    struct device_slowness s = slowness(1e-300, 1e300, 1e300);
    assert_true(s.compute == 1e4 && s.memory == 1e-4 && s.dispatch == 1e4);
}

static void arithmetic_and_memory_share_the_time(void **state) {
    struct device_slowness s = {.compute = 2, .memory = 8, .dispatch = 3};
    assert_true(is_about(device_slowness_ns(&s, &(struct cost){100, 1e6, 0}), 200));
    assert_true(is_about(device_slowness_ns(&s, &(struct cost){100, 0, 1e6}), 800));
    assert_true(is_about(device_slowness_ns(&s, &(struct cost){100, 0, 0}), 300));
    double both = device_slowness_ns(&s, &(struct cost){100, 1e6, 1e6});
    assert_true(both > 200 && both < 800);
    assert_true(is_about(device_slowness_ns(&s, &(struct cost){100, 1e6, 0, 40}), 160));
}

/* A GPU is compared with a GPU: one of a fifth of the reference's arithmetic and a third of its
 * memory, and the reference. */
static void a_gpu_is_compared_with_a_gpu(void **state) {
    struct device_rates smaller = {1.34e13, 1.6e12, 0}, reference = {6.7e13, 4.9e12, 0};
    struct device_slowness s = device_slowness_of("GPU", &smaller);
    assert_true(is_about(s.compute, 5));
    assert_true(s.memory > 3 && s.memory < 3.1 && s.dispatch == 1);
    s = device_slowness_of("GPU", &reference);
    assert_true(s.compute == 1 && s.memory == 1 && s.dispatch == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_host_has_rates),
        cmocka_unit_test(a_device_that_tells_nothing_is_as_fast_as_the_rows),
        cmocka_unit_test(a_slower_device_is_told_apart),
        cmocka_unit_test(small_differences_do_not_count),
        cmocka_unit_test(a_liar_is_limited),
        cmocka_unit_test(arithmetic_and_memory_share_the_time),
        cmocka_unit_test(a_gpu_is_compared_with_a_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
