/* Special functions: each ends soon for every argument, and those with several methods agree where
 * one
 * method takes over from another. Values against TensorFlow's: tests/differential/cases_special.py.
 * */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/base.h"
#include "kernels/cpu/math/math_special.h"

/* Far more than any call takes (the longest: 0.3 ms), far less than an iteration without a
 * bound. */
enum { LIMIT_NS = 20 * 1000 * 1000 };

static const double grid[] = {
    0.0,     -0.0,      DBL_TRUE_MIN, -DBL_TRUE_MIN, 1e-310, DBL_MIN,  1e-300,   1e-100,
    1e-17,   1e-9,      1e-5,         0.1,           0.5,    1,        1.5,      2,
    3,       9.99,      12,           29.9,          30.1,   170,      700,      1e4,
    1e6,     1e7 + .5,  1e8,          1e12,          1e15,   1e17,     1e100,    1e300,
    DBL_MAX, INFINITY,  NAN,          -1e-9,         -0.5,   -1,       -2.5,     -1e3 - .5,
    -1e6,    -1e7 + .5, -1e9 - .5,    -1e15,         -1e100, -DBL_MAX, -INFINITY};

typedef double one_fn(double x);
typedef double two_fn(double a, double x);
static const struct {
    const char *name;
    one_fn *fn;
} ones[] = {
    {"ndtri", special_ndtri},
    {"erfinv", special_erfinv},
    {"lgamma", special_lgamma},
    {"digamma", special_digamma},
    {"bessel_i0", special_bessel_i0},
    {"bessel_i1", special_bessel_i1},
    {"bessel_i0e", special_bessel_i0e},
    {"bessel_i1e", special_bessel_i1e},
    {"bessel_k0", special_bessel_k0},
    {"bessel_k1", special_bessel_k1},
    {"bessel_k0e", special_bessel_k0e},
    {"bessel_k1e", special_bessel_k1e},
    {"bessel_y0", special_bessel_y0},
    {"bessel_y1", special_bessel_y1},
    {"bessel_y1f", special_bessel_y1f},
    {"dawsn", special_dawsn},
    {"expint", special_expint},
    {"spence", special_spence},
    {"fresnel_cos", special_fresnel_cos},
    {"fresnel_sin", special_fresnel_sin},
};
static const struct {
    const char *name;
    two_fn *fn;
} twos[] = {
    {"zeta", special_zeta},
    {"polygamma", special_polygamma},
    {"igamma", special_igamma},
    {"igammac", special_igammac},
    {"igamma_grad_a", special_igamma_grad_a},
    {"random_gamma_grad", special_random_gamma_grad},
};

static int64_t cpu_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void check_time(int64_t begin, const char *name, double a, double b, double c) {
    int64_t took = cpu_ns() - begin;
    if (took > LIMIT_NS)
        fail_msg("%s(%g, %g, %g) took %lld us", name, a, b, c, (long long)took / 1000);
}

static void test_functions_of_one_argument_end_soon(void **state) {
    for (size_t f = 0; f < ARRAY_LEN(ones); f++) {
        for (size_t i = 0; i < ARRAY_LEN(grid); i++) {
            int64_t begin = cpu_ns();
            volatile double value = ones[f].fn(grid[i]);
            check_time(begin, ones[f].name, grid[i], 0, 0);
            if (isnan(grid[i]) && !isnan(value))
                fail_msg("%s(NaN) is %g", ones[f].name, value);
        }
    }
}

static void test_functions_of_two_arguments_end_soon(void **state) {
    for (size_t f = 0; f < ARRAY_LEN(twos); f++) {
        for (size_t i = 0; i < ARRAY_LEN(grid); i++) {
            for (size_t j = 0; j < ARRAY_LEN(grid); j++) {
                int64_t begin = cpu_ns();
                volatile double value = twos[f].fn(grid[i], grid[j]);
                (void)value;
                check_time(begin, twos[f].name, grid[i], grid[j], 0);
            }
        }
    }
}

static void test_the_incomplete_beta_function_ends_soon(void **state) {
    static const double xs[] = {0, DBL_TRUE_MIN, 1e-9, 0.3, 0.5, 1 - 1e-9, 1, NAN, -1, 2, INFINITY};
    for (size_t i = 0; i < ARRAY_LEN(grid); i++) {
        for (size_t j = 0; j < ARRAY_LEN(grid); j++) {
            for (size_t k = 0; k < ARRAY_LEN(xs); k++) {
                int64_t begin = cpu_ns();
                volatile double value = special_betainc(grid[i], grid[j], xs[k]);
                (void)value;
                check_time(begin, "betainc", grid[i], grid[j], xs[k]);
            }
        }
    }
}

static void check_close(const char *what, double value, double expected, double tolerance) {
    if (!(fabs(value - expected) <= tolerance * fabs(expected)))
        fail_msg("%s is %.17g instead of %.17g", what, value, expected);
}

/* Values of Abramowitz and Stegun's formulas, computed to 20 digits. */
static void test_bessel_k(void **state) {
    check_close("k0(1)", special_bessel_k0(1), 0.42102443824070833334, 1e-15);
    check_close("k1(1)", special_bessel_k1(1), 0.60190723019723457474, 1e-15);
    check_close("k0e(1e300)", special_bessel_k0e(1e300), sqrt(1.5707963267948966192e-300), 1e-15);
    check_close("k1e(1e17)", special_bessel_k1e(1e17), sqrt(1.5707963267948966192e-17), 1e-15);
    check_close("k1(1e-300)", special_bessel_k1(1e-300), 1e300, 1e-15);
    check_close("k0(1e-300)", special_bessel_k0(1e-300), 690.89145941387215, 1e-15);
    /* both sides of the borders between the methods */
    static const double borders[] = {1e-9, 30};
    for (size_t i = 0; i < ARRAY_LEN(borders); i++) {
        double below = nextafter(borders[i], 0), above = nextafter(borders[i], 100);
        check_close("k0e at a border", special_bessel_k0e(below), special_bessel_k0e(above), 3e-14);
        check_close("k1e at a border", special_bessel_k1e(below), special_bessel_k1e(above), 3e-14);
    }
}

static void test_zeta_below_zero_sums_all_terms(void **state) {
    static const double qs[] = {-0.25, -0.5, -3.75, -99.5, -1000.125};
    for (size_t i = 0; i < ARRAY_LEN(qs); i++) {
        for (int x = 2; x <= 5; x++) {
            double sum = 0, size = 1, q = qs[i];
            for (; q < 0; q++) {
                sum += pow(q, -x);
                size += fabs(pow(q, -x));
            }
            sum += special_zeta(x, q);
            /* for odd x the terms cancel, so the plain sum is exact to its largest term only */
            assert_true(fabs(special_zeta(x, qs[i]) - sum) <= 1e-14 * size);
        }
    }
    check_close("zeta(3, -99.5)", special_zeta(3, -99.5), special_zeta(3, 100.5), 1e-14);
    assert_true(isnan(special_zeta(2.5, -0.5)));
    assert_true(isinf(special_zeta(2, -3)));
    assert_true(isnan(special_zeta(3, -3)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions_of_one_argument_end_soon),
        cmocka_unit_test(test_functions_of_two_arguments_end_soon),
        cmocka_unit_test(test_the_incomplete_beta_function_ends_soon),
        cmocka_unit_test(test_bessel_k),
        cmocka_unit_test(test_zeta_below_zero_sums_all_terms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
