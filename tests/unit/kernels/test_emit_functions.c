/* Compiled exp, tanh, sigmoid, erf and erfc: the bits of the kernels' loops for AVX2 and for
 * AVX-512, with vectors of 256 and of 512 bits, over all kinds of numbers.
 *
 * MILLRACE_FUNCTIONS=all tries all floats (some minutes) instead of each 997th. */
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/emit/emit_internal.h"
#include "kernels/cpu/math/math_arith.h"
#include "kernels/support/isa.h"

enum { N = 1 << 14 };

static const struct function {
    const char *op;
    unary_loop *const *avx2, *const *avx512;
} functions[] = {
#ifdef __x86_64__
    {"Exp", exp_loops_avx2, exp_loops_avx512},
    {"Tanh", tanh_loops_avx2, tanh_loops_avx512},
    {"Sigmoid", sigmoid_loops_avx2, sigmoid_loops_avx512},
    {"Erf", erf_loops_avx2, erf_loops_avx512},
    {"Erfc", erfc_loops_avx2, erfc_loops_avx512},
#endif
};

static bool is_skipped(void) {
    if (!emit_is_on())
        print_message("skipped: this processor has no AVX2, or the system refuses\n");
    return !emit_is_on();
}

static struct emit_code *code_of(const char *op, enum dtype dtype, bool is_wide) {
    static const int number = 0;
    struct emit_instruction instruction = {emit_row_find(op, dtype, dtype), dtype, dtype, &number,
                                           1};
    struct emit_run run = {&dtype, 0, 1, &instruction, 1, &number, 1};
    if (!instruction.row)
        return NULL;
    emit_set_wide(is_wide);
    struct emit_code *code = emit_code_new(&run);
    emit_set_wide(true);
    assert_non_null(code);
    return code;
}

static void compare(const char *op, const char *loops, const void *x, const void *made,
                    const void *expected, size_t size) {
    if (memcmp(made, expected, N * size) == 0)
        return;
    for (size_t i = 0; i < N; i++) {
        uint64_t a = 0, b = 0, of = 0;
        memcpy(&a, (const char *)made + i * size, size);
        memcpy(&b, (const char *)expected + i * size, size);
        memcpy(&of, (const char *)x + i * size, size);
        if (a != b)
            fail_msg("%s of %llx is %llx, that of the loops for %s %llx", op,
                     (unsigned long long)of, (unsigned long long)a, loops, (unsigned long long)b);
    }
}

static void check(const struct function *f, struct emit_code *const codes[2], enum dtype dtype,
                  const void *x) {
    static char made[2][N * 8], expected[N * 8];
    size_t size = dtype_size(dtype);
    for (int i = 0; i < 2; i++)
        emit_code_run(codes[i], (void *[]){(void *)(uintptr_t)x, made[i]}, N);
    f->avx2[dtype](x, expected, N);
    compare(f->op, "AVX2", x, made[0], expected, size);
    compare(f->op, "AVX2", x, made[1], expected, size);
    if (!cpu_has_avx512())
        return;
    f->avx512[dtype](x, expected, N);
    compare(f->op, "AVX-512", x, made[1], expected, size);
}

/* Bits are numbers of all kinds, NaNs included. */
static void check_floats(const struct function *f) {
    static float x[N];
    const char *of = getenv("MILLRACE_FUNCTIONS");
    uint64_t step = of && strcmp(of, "all") == 0 ? 1 : 997;
    struct emit_code *codes[2] = {code_of(f->op, DT_FLOAT, false), code_of(f->op, DT_FLOAT, true)};
    for (uint64_t begin = 0; begin < 1ull << 32; begin += N * step) {
        for (uint64_t i = 0; i < N; i++) {
            uint32_t bits = (uint32_t)(begin + i * step);
            memcpy(&x[i], &bits, sizeof(bits));
        }
        check(f, codes, DT_FLOAT, x);
    }
    emit_code_free(codes[0]);
    emit_code_free(codes[1]);
}

/* The first 64 of each power of two and its neighbours are next to all limits. */
static void check_doubles(const struct function *f) {
    static double x[N];
    uint64_t seed = 88172645463325252;
    struct emit_code *codes[2] = {code_of(f->op, DT_DOUBLE, false),
                                  code_of(f->op, DT_DOUBLE, true)};
    for (int k = 0; k < 100 && codes[0]; k++) {
        for (uint64_t i = 0; i < N; i++) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            uint64_t bits = seed * 0x2545f4914f6cdd1d;
            if (k == 0) /* next to powers of two */
                bits = ((i >> 2) << 52) + (i & 3) - 1;
            else if (k % 2) /* from 2^-23 to 2^12 */
                bits = (bits & 0x800fffffffffffff) | (1000 + (bits >> 52) % 36) << 52;
            memcpy(&x[i], &bits, sizeof(bits));
        }
        check(f, codes, DT_DOUBLE, x);
    }
    emit_code_free(codes[0]);
    emit_code_free(codes[1]);
}

static void test_functions_of_floats_have_the_bits_of_all_loops(void **state) {
    if (is_skipped())
        return;
    for (size_t i = 0; i < ARRAY_LEN(functions); i++)
        check_floats(&functions[i]);
}

static void test_functions_of_doubles_have_the_bits_of_all_loops(void **state) {
    if (is_skipped())
        return;
    for (size_t i = 0; i < ARRAY_LEN(functions); i++)
        check_doubles(&functions[i]);
}

/* y = sigmoid(x0)·tanh(x1) + exp(x2)·x3, for all lengths: more values than registers, and shared
 * constants. */
static void test_functions_in_one_run(void **state) {
    static const char *const ops[] = {"Sigmoid", "Tanh", "Exp", "Mul", "Mul", "AddV2"};
    static const int numbers[][2] = {{0, 0}, {1, 0}, {2, 0}, {4, 5}, {6, 3}, {7, 8}}, result = 5;
    enum dtype types[] = {DT_FLOAT, DT_FLOAT, DT_FLOAT, DT_FLOAT};
    struct emit_instruction instructions[6];
    float x[4][300], a[300], b[300], made[300];
    if (is_skipped())
        return;
    for (int i = 0; i < 6; i++)
        instructions[i] = (struct emit_instruction){emit_row_find(ops[i], DT_FLOAT, DT_FLOAT),
                                                    DT_FLOAT, DT_FLOAT, numbers[i], i < 3 ? 1 : 2};
    for (int i = 0; i < 4 * 300; i++)
        x[i / 300][i % 300] = (float)((i * 7919) % 2003) / 200 - 5;
    struct emit_run run = {types, 0, 4, instructions, 6, &result, 1};
    for (int is_wide = 0; is_wide < 2; is_wide++) {
        emit_set_wide(is_wide);
        struct emit_code *code = emit_code_new(&run);
        assert_non_null(code);
        for (int64_t n = 1; n <= 300; n++) {
            emit_code_run(code, (void *[]){x[0], x[1], x[2], x[3], made}, n);
            functions[2].avx2[DT_FLOAT](x[0], a, n);
            functions[1].avx2[DT_FLOAT](x[1], b, n);
            for (int64_t i = 0; i < n; i++)
                a[i] *= b[i];
            functions[0].avx2[DT_FLOAT](x[2], b, n);
            for (int64_t i = 0; i < n; i++) {
                volatile float product = b[i] * x[3][i]; /* rounded by itself */
                a[i] += product;
            }
            assert_memory_equal(made, a, (size_t)n * sizeof(float));
        }
        emit_code_free(code);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions_of_floats_have_the_bits_of_all_loops),
        cmocka_unit_test(test_functions_of_doubles_have_the_bits_of_all_loops),
        cmocka_unit_test(test_functions_in_one_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
