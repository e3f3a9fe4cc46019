/* Division of a run's elements by one that stands for all: the bits of the processor's division for
 * every significand of a float, for doubles next to the points where rounding turns, for dividends
 * and divisors at all limits, in vectors that have elements of every kind.
 *
 * MILLRACE_DIVISIONS, default 3, is how many floats more all significands are divided by. With
 * "all", all floats are divided by each of the listed ones (some minutes). */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/base.h"
#include "kernels/cpu/emit/emit_internal.h"
#include "kernels/support/isa.h"

enum { N = 1 << 16 };

static bool is_skipped(void) {
    if (!emit_is_on())
        print_message("skipped: this processor has no AVX2, or the system refuses\n");
    return !emit_is_on();
}

static uint64_t seed = 88172645463325252;
static uint64_t draw(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed * 0x2545f4914f6cdd1d;
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}
static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}
static double double_of(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}
static uint64_t wide_bits_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

/* ---- a run of one division ---- */

static struct emit_code *code_of(const char *op, enum dtype dtype) {
    static const int numbers[] = {0, 1}, result = 0;
    enum dtype types[] = {dtype, dtype};
    struct emit_instruction division = {emit_row_find(op, dtype, dtype), dtype, dtype, numbers, 2};
    struct emit_run run = {types, 2, 2, &division, 1, &result, 1};
    struct emit_code *code = emit_code_new(&run);
    assert_non_null(code);
    return code;
}

/* The processor's division, of vectors where the compiler makes them. */
static void divide_floats(const float *x, float c, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] / c;
}
static void divide_doubles(const double *x, double c, double *y, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] / c;
}

static void check_floats(const struct emit_code *code, float *x, float c, int64_t n) {
    static float made[N], expected[N];
    divide_floats(x, c, expected, n);
    emit_code_run(code, (void *[]){x, &c, made}, n);
    if (memcmp(made, expected, (size_t)n * sizeof(float)) == 0)
        return;
    for (int64_t i = 0; i < n; i++)
        if (bits_of(made[i]) != bits_of(expected[i]))
            fail_msg("%a / %a is %a (%x), not %a (%x)", (double)x[i], (double)c, (double)made[i],
                     bits_of(made[i]), (double)expected[i], bits_of(expected[i]));
}

static void check_doubles(const struct emit_code *code, double *x, double c, int64_t n) {
    static double made[N], expected[N];
    divide_doubles(x, c, expected, n);
    emit_code_run(code, (void *[]){x, &c, made}, n);
    if (memcmp(made, expected, (size_t)n * sizeof(double)) == 0)
        return;
    for (int64_t i = 0; i < n; i++)
        if (wide_bits_of(made[i]) != wide_bits_of(expected[i]))
            fail_msg("%a / %a is %a, not %a", x[i], c, made[i], expected[i]);
}

/* ---- floats: all significands ---- */

static const float divisors[] = {0.9f,
                                 0.999f,
                                 3,
                                 1.41421356f,
                                 1 + FLT_EPSILON,
                                 1e-8f,
                                 2 - FLT_EPSILON,
                                 255,
                                 0x1p-28f,
                                 0x1.fffffcp27f,
                                 1 - FLT_EPSILON / 2};

/* With exponents and signs that are drawn, mostly within the limits. */
static void check_all_significands(const struct emit_code *code, float c) {
    static float x[N];
    for (uint32_t begin = 0; begin < 1u << 23; begin += N) {
        for (uint32_t i = 0; i < N; i++) {
            uint32_t exponent = 127 - 60 + (uint32_t)(draw() >> 33) % 120;
            x[i] = float_of((begin + i) | exponent << 23 | (i & 1) << 31);
        }
        check_floats(code, x, c, N);
    }
}

static void check_all_floats(const struct emit_code *code, float c) {
    static float x[N];
    for (uint64_t begin = 0; begin < 1ull << 32; begin += N) {
        for (uint32_t i = 0; i < N; i++)
            x[i] = float_of((uint32_t)begin + i);
        check_floats(code, x, c, N);
    }
}

static void test_every_significand_of_a_float(void **state) {
    if (is_skipped())
        return;
    const char *more = getenv("MILLRACE_DIVISIONS");
    bool is_all = more && strcmp(more, "all") == 0;
    struct emit_code *code = code_of("RealDiv", DT_FLOAT);
    for (size_t i = 0; i < ARRAY_LEN(divisors); i++) {
        check_all_significands(code, divisors[i]);
        if (is_all)
            check_all_floats(code, divisors[i]);
    }
    int n_more = is_all ? 50 : more ? (int)strtol(more, NULL, 10) : 3;
    for (int i = 0; i < n_more; i++)
        check_all_significands(code, float_of((uint32_t)(draw() >> 41) | 127u << 23));
    emit_code_free(code);
}

/* ---- dividends and divisors at all limits ---- */

/* Both signs of numbers next to every power of two, of the least and largest ones, of NaNs. */
static int64_t float_limits(float *x) {
    int64_t n = 0;
    for (uint32_t sign = 0; sign < 2; sign++)
        for (uint32_t exponent = 0; exponent < 256; exponent++)
            for (int32_t d = -2; d <= 2; d++)
                x[n++] = float_of(((exponent << 23) + (uint32_t)d) ^ sign << 31);
    for (int i = 0; i < 1000; i++) /* subnormal */
        x[n++] = float_of((uint32_t)(draw() >> 42) | (i & 1u) << 31);
    return n;
}

static int64_t double_limits(double *x) {
    int64_t n = 0;
    for (uint64_t sign = 0; sign < 2; sign++)
        for (uint64_t exponent = 0; exponent < 2048; exponent++)
            for (int64_t d = -2; d <= 2; d++)
                x[n++] = double_of(((exponent << 52) + (uint64_t)d) ^ sign << 63);
    for (int i = 0; i < 1000; i++) /* subnormal: also where the upper half is 0 */
        x[n++] = double_of(draw() >> (13 + i % 45) | (i & 1ull) << 63);
    return n;
}

static bool is_quiet(double c) { return c == c; }

static void test_floats_at_all_limits(void **state) {
    static float x[N], c[N];
    if (is_skipped())
        return;
    struct emit_code *code = code_of("Div", DT_FLOAT);
    int64_t n = float_limits(x), n_divisors = float_limits(c);
    for (int64_t i = 0; i < n_divisors; i++)
        if (is_quiet((double)c[i])) /* C does not say which of two NaNs a division gives */
            check_floats(code, x, c[i], n);
    emit_code_free(code);
}

static void test_doubles_at_all_limits(void **state) {
    static double x[N], c[N];
    if (is_skipped())
        return;
    struct emit_code *code = code_of("Div", DT_DOUBLE);
    int64_t n = double_limits(x), n_divisors = double_limits(c);
    for (int64_t i = 0; i < n_divisors; i += i % 50 == 0 ? 1 : 7)
        if (is_quiet(c[i]))
            check_doubles(code, x, c[i], n);
    emit_code_free(code);
}

/* ---- doubles: where rounding turns ---- */

static double drawn_divisor(int i) {
    static const double listed[] = {0.9,
                                    0.999,
                                    3,
                                    7,
                                    1 + DBL_EPSILON,
                                    2 - DBL_EPSILON,
                                    1e-8,
                                    255,
                                    1.4142135623730951,
                                    1 - DBL_EPSILON / 2};
    if (i < (int)ARRAY_LEN(listed))
        return listed[i];
    uint64_t significand = draw() >> 12; /* some next to a power of two, some with few bits */
    significand = i % 4 == 0   ? significand & 15
                  : i % 4 == 1 ? significand | ~15ull >> 12
                  : i % 4 == 2 ? significand & 0xffff000000000
                               : significand;
    return double_of((significand & 0xfffffffffffff) | 1023ull << 52);
}

/* Products of c and a point between two quotients, and their neighbours, are the dividends whose
 * quotients are the hardest to round. */
static void test_doubles_next_to_where_rounding_turns(void **state) {
    static double x[N];
    if (is_skipped())
        return;
    struct emit_code *code = code_of("RealDiv", DT_DOUBLE);
    for (int k = 0; k < 200; k++) {
        double c = drawn_divisor(k);
        for (int i = 0; i < N; i += 4) {
            uint64_t drawn = draw();
            double low = double_of(drawn >> 12 | 1023ull << 52), half = DBL_EPSILON / 2;
            if (i % 64 == 0) /* quotients next to a power of two */
                low = double_of((drawn & 7) | (1023ull - (drawn >> 3 & 1)) << 52) - 3 * half;
            double turn = fma(low, c, half * c);
            for (int j = 0; j < 4; j++)
                x[i + j] = double_of(wide_bits_of(turn) + (uint64_t)j - 1 + (drawn & 1)) *
                           (drawn & 2 ? 1 : -0x1p-40);
        }
        check_doubles(code, x, c, N);
    }
    emit_code_free(code);
}

/* ---- runs ---- */

/* y = (x / c) / d in place of x, for all lengths, with elements of every kind in one vector. */
static void test_divisors_of_several_kinds_in_place(void **state) {
    static const float pairs[][2] = {{3, 0.9f},  {4, 0.5f},      {3, 0},        {-3, 0.9f},
                                     {3, 1e30f}, {1e-40f, 0.9f}, {INFINITY, 3}, {4, 0.9f}};
    static const float kinds[] = {0, -0.0f, 1, -1e-44f, 1e-30f, INFINITY, 5, 3e38f, -7, 1e-37f};
    static const int numbers[][2] = {{0, 1}, {3, 2}}, result = 1;
    enum dtype types[] = {DT_FLOAT, DT_FLOAT, DT_FLOAT};
    if (is_skipped())
        return;
    const struct emit_row *row = emit_row_find("RealDiv", DT_FLOAT, DT_FLOAT);
    struct emit_instruction divisions[] = {{row, DT_FLOAT, DT_FLOAT, numbers[0], 2},
                                           {row, DT_FLOAT, DT_FLOAT, numbers[1], 2}};
    struct emit_run run = {types, 6, 3, divisions, 2, &result, 1};
    struct emit_code *code = emit_code_new(&run);
    assert_non_null(code);
    for (size_t p = 0; p < ARRAY_LEN(pairs); p++)
        for (int64_t n = 1; n < 150; n++) {
            float x[150], expected[150], c = pairs[p][0], d = pairs[p][1];
            for (int64_t i = 0; i < n; i++)
                x[i] = kinds[(draw() >> 40) % (n % 2 ? ARRAY_LEN(kinds) : 3)];
            divide_floats(x, c, expected, n);
            divide_floats(expected, d, expected, n);
            emit_code_run(code, (void *[]){x, &c, &d, x}, n);
            for (int64_t i = 0; i < n; i++)
                if (bits_of(x[i]) != bits_of(expected[i]))
                    fail_msg("by %g and %g: element %lld of %lld is %a, not %a", (double)c,
                             (double)d, (long long)i, (long long)n, (double)x[i],
                             (double)expected[i]);
        }
    emit_code_free(code);
}

static void test_div_no_nan_of_any_divisor(void **state) {
    static float x[N], made[N];
    if (is_skipped())
        return;
    struct emit_code *code = code_of("DivNoNan", DT_FLOAT);
    int64_t n = float_limits(x);
    for (size_t k = 0; k < ARRAY_LEN(divisors) + 2; k++) {
        float c = k < ARRAY_LEN(divisors) ? divisors[k] : k % 2 ? 0.0f : -0.0f;
        emit_code_run(code, (void *[]){x, &c, made}, n);
        for (int64_t i = 0; i < n; i++) {
            float expected = c == 0 ? 0 : x[i] / c;
            assert_int_equal(bits_of(made[i]), bits_of(expected));
        }
    }
    emit_code_free(code);
}

static void test_how_a_divisor_is_taken(void **state) {
    static const struct {
        double c;
        enum emit_division floats, doubles;
    } cases[] = {{3, EMIT_CORRECT, EMIT_CORRECT},         {4, EMIT_MULTIPLY, EMIT_MULTIPLY},
                 {-3, EMIT_DIVIDE, EMIT_DIVIDE},          {0, EMIT_DIVIDE, EMIT_DIVIDE},
                 {INFINITY, EMIT_DIVIDE, EMIT_DIVIDE},    {NAN, EMIT_DIVIDE, EMIT_DIVIDE},
                 {0x1p28, EMIT_MULTIPLY, EMIT_MULTIPLY},  {0x1.8p28, EMIT_DIVIDE, EMIT_CORRECT},
                 {0x1p-28, EMIT_MULTIPLY, EMIT_MULTIPLY}, {0x1p-29, EMIT_DIVIDE, EMIT_MULTIPLY},
                 {0x1p-101, EMIT_DIVIDE, EMIT_DIVIDE},    {1e-8, EMIT_CORRECT, EMIT_CORRECT}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        float narrow = (float)cases[i].c;
        assert_int_equal(emit_division_by(&narrow, 4), cases[i].floats);
        assert_int_equal(emit_division_by(&cases[i].c, 8), cases[i].doubles);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_how_a_divisor_is_taken),
        cmocka_unit_test(test_floats_at_all_limits),
        cmocka_unit_test(test_doubles_at_all_limits),
        cmocka_unit_test(test_doubles_next_to_where_rounding_turns),
        cmocka_unit_test(test_divisors_of_several_kinds_in_place),
        cmocka_unit_test(test_div_no_nan_of_any_divisor),
        cmocka_unit_test(test_every_significand_of_a_float),
    };
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (cpu_has_avx512()) {
        emit_set_wide(false);
        n_failed += cmocka_run_group_tests(tests, NULL, NULL);
    }
    return n_failed;
}
