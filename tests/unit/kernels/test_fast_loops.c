/* Loops and products that are chosen by machine and size: every build that this machine can run,
 * against plain arithmetic in double.
 *
 * MILLRACE_FUNCTIONS=all tries all floats for erfc (minutes) instead of each 997th. */
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/matmul/matmul.h"
#include "kernels/support/half_blocks.h"
#include "kernels/cpu/math/math_arith.h"
#include "kernels/support/isa.h"

/* ---- elementwise: at most MAX_ULPS from libm's double ---- */

enum { N_VALUES = 40000, MAX_ULPS = 3 };

static double ulps(float value, double exact) {
    if (isnan(exact) || isinf((float)exact))
        return (isnan(exact) ? isnan(value) : value == (float)exact) ? 0 : (double)INFINITY;
    float magnitude = fabsf((float)exact);
    return fabs((double)value - exact) / (double)(nextafterf(magnitude, INFINITY) - magnitude);
}

static float *values(void) {
    static const float special[] = {
        0,       -0.0f,    INFINITY,   -INFINITY, NAN,        -1,    -0.9999999f, 1e-30f,
        1e-40f,  -1e-40f,  88.5f,      88.73f,    89,         -104,  -110,        3.4e38f,
        1e5f,    99999.9f, 1e6f,       1e10f,     3.9999f,    4,     4.0001f,     1.0f,
        1.0001f, 355,      3.1415927f, -710,      69.115036f, -1.5f, 1.5707964f,  0.78539819f};
    float *x = xmalloc(N_VALUES * sizeof(*x));
    for (size_t i = 0; i < N_VALUES; i++) /* from 1e-6 to 1e6, dense near 1, both signs */
        x[i] = (i % 2 ? 1.0f : -1.0f) * powf(10, 6 * powf(2 * (float)i / N_VALUES - 1, 3));
    memcpy(x, special, sizeof(special));
    return x;
}

static void check_loops(const char *name, unary_loop *const *loops, double exact(double)) {
    float *x = values(), *y = xmalloc(N_VALUES * sizeof(*y));
    loops[DT_FLOAT](x, y, N_VALUES);
    for (int i = 0; i < N_VALUES; i++) {
        if (!(ulps(y[i], exact((double)x[i])) <= MAX_ULPS))
            fail_msg("%s(%.9g) is %.9g, not %.9g", name, (double)x[i], (double)y[i],
                     exact((double)x[i]));
    }
    assert_int_equal(!signbit(y[1]), !signbit((float)exact(-0.0)));
    loops[DT_FLOAT](x, x, N_VALUES); /* in place: the same bits */
    assert_memory_equal(x, y, N_VALUES * sizeof(*x));
    free(x);
    free(y);
}

#define CHECK_BUILDS(name, exact)                                     \
    do {                                                              \
        check_loops(#name, name##_loops_base, exact);                 \
        if (cpu_has_avx2())                                           \
            check_loops(#name " avx2", name##_loops_avx2, exact);     \
        if (cpu_has_avx512())                                         \
            check_loops(#name " avx512", name##_loops_avx512, exact); \
    } while (0)

static void test_elementwise_loops_are_exact_to_a_few_ulps(void **state) {
    (void)state;
    CHECK_BUILDS(sin, sin);
    CHECK_BUILDS(cos, cos);
    CHECK_BUILDS(erf, erf);
    CHECK_BUILDS(erfc, erfc);
    CHECK_BUILDS(expm1, expm1);
    CHECK_BUILDS(log1p, log1p);
    CHECK_BUILDS(exp, exp);
    CHECK_BUILDS(tanh, tanh);
}

/* Floats from 2^-31 to 12, of both signs: below, erfc is 1, and above 0 or 2. The tail loses no
 * precision, down to the smallest subnormal number. Of all floats the worst are 3.66 units from the
 * exact value with FMA, 3.60 without. */
enum { ERFC_MAX_ULPS = 4 };

static void check_erfc(unary_loop *const *loops) {
    const char *of = getenv("MILLRACE_FUNCTIONS");
    uint32_t step = of && strcmp(of, "all") == 0 ? 1 : 997, bits = 0x30000000;
    float x[1024], y[ARRAY_LEN(x)];
    while (bits < 0x41400000) {
        for (size_t i = 0; i < ARRAY_LEN(x); i += 2, bits += step) {
            memcpy(&x[i], &bits, sizeof(bits));
            x[i + 1] = -x[i];
        }
        loops[DT_FLOAT](x, y, ARRAY_LEN(x));
        for (size_t i = 0; i < ARRAY_LEN(x); i++) {
            if (!(ulps(y[i], erfc((double)x[i])) <= ERFC_MAX_ULPS))
                fail_msg("erfc(%.9g) is %.9g", (double)x[i], (double)y[i]);
        }
    }
}

static void test_erfc_is_exact_to_a_few_ulps_for_all_floats(void **state) {
    (void)state;
    check_erfc(erfc_loops_base);
    if (cpu_has_avx2())
        check_erfc(erfc_loops_avx2);
    if (cpu_has_avx512())
        check_erfc(erfc_loops_avx512);
}

/* ---- halves: the machine's conversion and the portable one give the same bits ---- */

static void test_halves_convert_alike_in_blocks_and_one_by_one(void **state) {
    (void)state;
    enum { N = 1 << 16 };
    uint16_t *halves = xmalloc(N * sizeof(*halves)), *back = xmalloc(N * sizeof(*back));
    float *wide = xmalloc(N * sizeof(*wide));
    for (int i = 0; i < N; i++)
        halves[i] = (uint16_t)i;
    half_block_load(DT_HALF, wide, halves, N);
    for (int i = 0; i < N; i++) {
        float one = half_value_load(DT_HALF, halves[i]);
        if (one == one)
            assert_memory_equal(&wide[i], &one, sizeof(one));
        else
            assert_true(wide[i] != wide[i]);
        wide[i] = one == one ? wide[i] * 1.0003f : wide[i]; /* between two halves */
    }
    half_block_store(DT_HALF, back, wide, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(back[i], half_value_store(DT_HALF, wide[i]));
    free(halves);
    free(back);
    free(wide);
}

/* ---- products ---- */

static void check_product(int64_t m, int64_t n, int64_t k, bool trans_a, bool trans_b, bool adds) {
    int64_t lda = (trans_a ? m : k) + 3, ldb = (trans_b ? k : n) + (k % 512 ? 5 : 0), ldc = n + 2;
    float *a = xmalloc((size_t)((trans_a ? k : m) * lda) * sizeof(*a)),
          *b = xmalloc((size_t)((trans_b ? n : k) * ldb) * sizeof(*b));
    float *c = xmalloc((size_t)(m * ldc) * sizeof(*c));
    for (int64_t i = 0; i < (trans_a ? k : m) * lda; i++)
        a[i] = (float)(i * 7 % 13 - 6); /* small whole numbers: every sum is exact, in any order */
    for (int64_t i = 0; i < (trans_b ? n : k) * ldb; i++)
        b[i] = (float)(i * 5 % 11 - 5);
    for (int64_t i = 0; i < m * ldc; i++)
        c[i] = 1000;
    struct matmul g = {.m = m,
                       .n = n,
                       .k = k,
                       .a = a,
                       .b = b,
                       .c = c,
                       .lda = lda,
                       .ldb = ldb,
                       .ldc = ldc,
                       .trans_a = trans_a,
                       .trans_b = trans_b,
                       .adds = adds};
    matmul_run(DT_FLOAT, &g);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < ldc; j++) {
            double sum = j >= n || adds ? 1000 : 0; /* what lies between the rows stays */
            for (int64_t p = 0; p < k && j < n; p++)
                sum += (double)a[trans_a ? p * lda + i : i * lda + p] *
                       (double)b[trans_b ? j * ldb + p : p * ldb + j];
            assert_true((double)c[i * ldc + j] == sum);
        }
    }
    free(a);
    free(b);
    free(c);
}

static void test_products_of_every_form_and_odd_sizes(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {
        {2, 2, 2},    {1, 300, 256}, {5, 7, 2000},   {4, 64, 256},   {23, 65, 257},
        {24, 6, 600}, {32, 49, 512}, {33, 60, 1023}, {47, 101, 512}, {64, 64, 300},
        {70, 80, 90}, {3, 1, 500},   {96, 48, 48},   {101, 530, 70}, {130, 49, 401}};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        for (int form = 0; form < 8; form++)
            check_product(sizes[i][0], sizes[i][1], sizes[i][2], form & 1, form & 2, form & 4);
    }
}

/* The product of x with its transpose has the same bits whether the transpose is stored or asked
 * for,
 * and with either operand transposed. */
static void check_layouts(enum dtype dtype, int64_t n, int64_t k) {
    size_t size = dtype_size(dtype);
    char *x = xmalloc((size_t)(n * k) * size), *xt = xmalloc((size_t)(n * k) * size);
    char *c[4];
    for (int64_t i = 0; i < n; i++) {
        for (int64_t j = 0; j < k; j++) {
            double v = sin((double)(i * k + j + 1)) * 3;
            if (dtype == DT_FLOAT)
                ((float *)(void *)x)[i * k + j] = ((float *)(void *)xt)[j * n + i] = (float)v;
            else
                ((double *)(void *)x)[i * k + j] = ((double *)(void *)xt)[j * n + i] = v;
        }
    }
    for (int form = 0; form < 4; form++) {
        bool trans_a = form & 1, trans_b = form & 2;
        c[form] = xmalloc((size_t)(n * n) * size);
        struct matmul g = {.m = n,
                           .n = n,
                           .k = k,
                           .a = trans_a ? xt : x,
                           .b = trans_b ? x : xt,
                           .c = c[form],
                           .lda = trans_a ? n : k,
                           .ldb = trans_b ? k : n,
                           .ldc = n,
                           .trans_a = trans_a,
                           .trans_b = trans_b};
        matmul_run(dtype, &g);
        if (memcmp(c[form], c[0], (size_t)(n * n) * size) != 0)
            fail_msg("%s [%d,%d]: form %d differs", dtype_name(dtype), (int)n, (int)k, form);
    }
    for (int form = 0; form < 4; form++)
        free(c[form]);
    free(x);
    free(xt);
}

static void test_small_products_do_not_depend_on_the_layout(void **state) {
    for (int64_t n = 1; n <= 20; n++) {
        for (int64_t k = 1; n * n * k < 2048; k++) {
            check_layouts(DT_DOUBLE, n, k);
            check_layouts(DT_FLOAT, n, k);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_elementwise_loops_are_exact_to_a_few_ulps),
        cmocka_unit_test(test_erfc_is_exact_to_a_few_ulps_for_all_floats),
        cmocka_unit_test(test_halves_convert_alike_in_blocks_and_one_by_one),
        cmocka_unit_test(test_products_of_every_form_and_odd_sizes),
        cmocka_unit_test(test_small_products_do_not_depend_on_the_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
