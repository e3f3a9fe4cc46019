/* Products with long sums, which are computed in pieces: the bits are those of one call of the
 * library, but for single rows, and a cancel is seen between two pieces. Products that are divided
 * by rows or columns have the same bits on any pool. AMX gives the bits of the whole to any part,
 * also where a value is not finite; the libraries may round the last rows of a part otherwise. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/pool_cancel.h"
#include "common/graph/graph_text.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/matmul/amx.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/onednn.h"
#include "tests/unit/kernels/kernel_test.h"

enum { SIDE = 8, K = 2000000 };

/* Values of a fixed sequence, large and small, so that the order of a sum shows. */
static double next_value(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    double value = (double)(*seed >> 8) / (1 << 24) - 0.5;
    return *seed & 128 ? value * 1e4 : value;
}

static void *values(size_t size, int64_t n) {
    char *data = malloc(size * (size_t)n);
    assert_non_null(data);
    uint32_t seed = 1;
    for (int64_t i = 0; i < n; i++) {
        if (size == sizeof(float))
            ((float *)(void *)data)[i] = (float)next_value(&seed);
        else
            ((double *)(void *)data)[i] = next_value(&seed);
    }
    return data;
}

static struct matmul product_of(const void *a, const void *b, void *c, bool trans_a) {
    return (struct matmul){.m = SIDE,
                           .n = SIDE,
                           .k = K,
                           .a = a,
                           .b = b,
                           .c = c,
                           .lda = trans_a ? SIDE : K,
                           .ldb = SIDE,
                           .ldc = SIDE,
                           .trans_a = trans_a};
}

static void long_float_sums_have_the_bits_of_one_call(void **state) {
    const struct onednn *lib = onednn_get();
    if (!lib)
        skip();
    float *a = values(sizeof(float), SIDE * (int64_t)K),
          *b = values(sizeof(float), SIDE * (int64_t)K), whole[SIDE * SIDE], pieces[SIDE * SIDE];
    for (int trans_a = 0; trans_a < 2; trans_a++) {
        struct matmul g = product_of(a, b, pieces, trans_a);
        matmul_run(DT_FLOAT, &g);
        assert_int_equal(lib->sgemm(trans_a ? 'T' : 'N', 'N', SIDE, SIDE, K, 1, a, g.lda, b, g.ldb,
                                    0, whole, SIDE),
                         dnnl_success);
        assert_memory_equal(whole, pieces, sizeof(whole));
    }
    free(a);
    free(b);
}

static void long_double_sums_have_the_bits_of_one_call(void **state) {
    const struct blas *blas = blas_get();
    if (!blas)
        skip();
    double *a = values(sizeof(double), SIDE * (int64_t)K),
           *b = values(sizeof(double), SIDE * (int64_t)K), whole[SIDE * SIDE], pieces[SIDE * SIDE];
    for (int trans_a = 0; trans_a < 2; trans_a++) {
        struct matmul g = product_of(a, b, pieces, trans_a);
        matmul_run(DT_DOUBLE, &g);
        blas->dgemm(BLAS_ROW_MAJOR, trans_a ? BLAS_TRANS : BLAS_NO_TRANS, BLAS_NO_TRANS, SIDE, SIDE,
                    K, 1, a, (int)g.lda, b, SIDE, 0, whole, SIDE);
        assert_memory_equal(whole, pieces, sizeof(whole));
    }
    free(a);
    free(b);
}

static struct matmul row_product(const double *a, const double *b, double *c) {
    struct matmul g = product_of(a, b, c, false);
    g.m = 1;
    g.k = g.lda = 4 * (int64_t)K;
    return g;
}

static void long_sums_of_one_row_are_those_of_one_call(void **state) {
    const struct blas *blas = blas_get();
    if (!blas)
        skip();
    double *a = values(sizeof(double), 4 * (int64_t)K),
           *b = values(sizeof(double), 4 * SIDE * (int64_t)K), whole[SIDE], pieces[SIDE];
    struct matmul g = row_product(a, b, pieces);
    matmul_run(DT_DOUBLE, &g);
    blas->dgemv(BLAS_ROW_MAJOR, BLAS_TRANS, 4 * K, SIDE, 1, b, SIDE, a, 1, 0, whole, 1);
    for (int i = 0; i < SIDE; i++)
        assert_true(fabs(whole[i] - pieces[i]) <= 1e-9 * fabs(whole[i]));
    free(a);
    free(b);
}

static void long_integer_sums_wrap_as_one(void **state) {
    int64_t *a = malloc(SIDE * K * sizeof(*a)), *b = malloc(SIDE * K * sizeof(*b)),
            sums[SIDE * SIDE], expected = 0;
    assert_true(a && b);
    for (int64_t i = 0; i < SIDE * K; i++)
        a[i] = (int64_t)((uint64_t)(INT64_MAX / 3) * (uint64_t)(i % 5)), b[i] = i % 7 - 3;
    struct matmul g = product_of(a, b, sums, false);
    matmul_run(DT_INT64, &g);
    for (int64_t k = 0; k < K; k++)
        expected = (int64_t)((uint64_t)expected + (uint64_t)a[K + k] * (uint64_t)b[k * SIDE + 2]);
    assert_true(sums[SIDE + 2] == expected);
    free(a);
    free(b);
}

static bool count_question(void *arg) {
    ++*(int *)arg;
    return true;
}

static void a_cancel_ends_a_long_sum(void **state) {
    enum { VALUE = 7 };
    int64_t *a = calloc(SIDE * K, sizeof(*a)), *b = calloc(SIDE * K, sizeof(*b)), sums[SIDE * SIDE];
    assert_true(a && b);
    a[K - 1] = b[(K - 1) * SIDE] = VALUE; /* the last term of the first sum */
    struct matmul g = product_of(a, b, sums, false);
    int n_questions = 0;
    struct pool_cancel cancel = {count_question, &n_questions};
    pool_set_cancel(&cancel);
    matmul_run(DT_INT64, &g);
    pool_set_cancel(NULL);
    assert_int_equal(n_questions, 1);
    assert_true(sums[0] == 0);
    matmul_run(DT_INT64, &g);
    assert_true(sums[0] == VALUE * VALUE);
    free(a);
    free(b);
}

/* The second piece of the sums is left out: it alone is not zero. */
static void a_cancel_ends_the_long_sums_of_a_row(void **state) {
    double *a = calloc(4 * K, sizeof(*a)), *b = calloc(4 * SIDE * K, sizeof(*b)), sums[SIDE];
    assert_true(a && b);
    a[4 * K - 1] = b[(4 * K - 1) * SIDE] = 3;
    struct matmul g = row_product(a, b, sums);
    int n_questions = 0;
    struct pool_cancel cancel = {count_question, &n_questions};
    pool_set_cancel(&cancel);
    matmul_run(DT_DOUBLE, &g);
    pool_set_cancel(NULL);
    assert_int_equal(n_questions, 1);
    assert_true(sums[0] == 0);
    matmul_run(DT_DOUBLE, &g);
    assert_true(sums[0] == 9);
    free(a);
    free(b);
}

/* A pool divides as its threads have time. A part alone would be small enough for another
 * implementation. */
static void check_parts(int64_t m, int64_t n, int64_t k, bool trans_b) {
    enum { PART = 16 };
    float *a = values(sizeof(*a), m * k), *b = values(sizeof(*b), k * n),
          *c = values(sizeof(*c), m * n), *whole = values(sizeof(*c), m * n);
    struct matmul g = {.m = m,
                       .n = n,
                       .k = k,
                       .lda = k,
                       .ldb = trans_b ? k : n,
                       .ldc = n,
                       .trans_b = trans_b,
                       .a = a,
                       .b = b,
                       .c = whole};
    matmul_run(DT_FLOAT, &g);
    g.whole_m = m, g.whole_n = n;
    for (int64_t row = 0; row < m; row += PART) {
        g.a = a + row * k, g.c = c + row * n, g.m = MIN(m - row, (int64_t)PART);
        matmul_run(DT_FLOAT, &g);
    }
    assert_memory_equal(c, whole, sizeof(*c) * (size_t)(m * n));
    free(a), free(b), free(c), free(whole);
}

static void parts_of_a_product_have_the_bits_of_the_whole(void **state) {
    if (!amx_is_there())
        skip();
    check_parts(300, 64, 300, false);
    check_parts(300, 64, 300, true);
    check_parts(113, 100, 50, false);
    check_parts(97, 12, 40, false);
}

/* Rows of a and columns of b that have values that are not finite leave the others' bits alone, in
 * a part as in the whole. */
static void check_parts_with_nan(bool adds, bool trans_a) {
    enum { M = 300, N = 64, SUM = 100, PART = 40, NAN_ROW = 130, INF_ROW = 131, NAN_COLUMN = 17 };
    float *a = values(sizeof(*a), M * SUM), *b = values(sizeof(*b), SUM * N),
          *c = values(sizeof(*c), M * N), *whole = values(sizeof(*c), M * N),
          *finite = values(sizeof(*c), M * N);
    int64_t row_step = trans_a ? 1 : SUM, column_step = trans_a ? M : 1;
    struct matmul g = {.m = M,
                       .n = N,
                       .k = SUM,
                       .lda = trans_a ? M : SUM,
                       .ldb = N,
                       .ldc = N,
                       .trans_a = trans_a,
                       .adds = adds,
                       .a = a,
                       .b = b,
                       .c = finite};
    matmul_run(DT_FLOAT, &g);
    a[NAN_ROW * row_step + 3 * column_step] = NAN;
    a[INF_ROW * row_step + 99 * column_step] = INFINITY;
    b[5 * N + NAN_COLUMN] = NAN;
    g.c = whole;
    matmul_run(DT_FLOAT, &g);
    g.whole_m = M, g.whole_n = N;
    for (int64_t row = 0; row < M; row += PART) {
        g.a = a + row * row_step, g.c = c + row * N, g.m = MIN(M - row, (int64_t)PART);
        matmul_run(DT_FLOAT, &g);
    }
    for (int64_t i = 0; i < M * N; i++) {
        bool is_nan = i / N == NAN_ROW || i % N == NAN_COLUMN;
        assert_int_equal(isnan(whole[i]), is_nan);
        assert_int_equal(isnan(c[i]), is_nan);
        if (i / N == INF_ROW && !is_nan)
            assert_true(isinf(whole[i]) && c[i] == whole[i]);
        else if (!is_nan)
            assert_true(c[i] == whole[i] && c[i] == finite[i]);
    }
    free(a), free(b), free(c), free(whole), free(finite);
}

static void nan_leaves_the_bits_of_other_rows_and_columns(void **state) {
    if (!amx_is_there())
        skip();
    for (int form = 0; form < 4; form++)
        check_parts_with_nan(form & 1, form & 2);
}

/* Computes units one by one from the last, and all at once. */
static void check_units(enum dtype dtype, struct matmul g, bool by_rows) {
    size_t size = dtype_size(dtype);
    double *a = values(sizeof(*a), 2 * g.m * g.k), *b = values(sizeof(*b), 2 * g.k * g.n),
           *together = values(sizeof(*together), 2 * g.m * g.n),
           *apart = values(sizeof(*apart), 2 * g.m * g.n);
    if (dtype == DT_FLOAT || dtype == DT_COMPLEX64) { /* as doubles the bits may be NaN */
        for (int64_t i = 0; i < 2 * g.m * g.k; i++)
            ((float *)(void *)a)[i] = (float)a[i];
        for (int64_t i = 0; i < 2 * g.k * g.n; i++)
            ((float *)(void *)b)[i] = (float)b[i];
    }
    g.a = a, g.b = b, g.c = together;
    g.lda = g.trans_a ? g.m : g.k, g.ldb = g.trans_b ? g.k : g.n, g.ldc = g.n;
    struct matmul_division division = matmul_divide(dtype, &g, by_rows);
    int64_t side = by_rows ? g.m : g.n;
    assert_true((division.n_units - 1) * division.unit < side);
    assert_true(division.n_units * division.unit >= side);
    matmul_run_units(dtype, &g, &division, 0, division.n_units);
    g.c = apart;
    for (int64_t i = division.n_units; i-- > 0;)
        matmul_run_units(dtype, &g, &division, i, i + 1);
    assert_memory_equal(together, apart, size * (size_t)(g.m * g.n));
    free(a), free(b), free(together), free(apart);
}

static void units_have_the_same_bits_together_and_apart(void **state) {
    static const enum dtype dtypes[] = {DT_FLOAT, DT_DOUBLE, DT_COMPLEX64, DT_COMPLEX128, DT_INT32};
    static const int64_t sizes[][3] = {{300, 64, 300}, {520, 40, 333}, {300, 300, 300},
                                       {2000, 17, 90}, {24, 700, 300}, {1, 3000, 100},
                                       {3000, 1, 100}, {200, 50, 3},   {64, 2200, 1000}};
    for (size_t i = 0; i < ARRAY_LEN(sizes) * ARRAY_LEN(dtypes) * 4; i++) {
        const int64_t *size = sizes[i / 4 % ARRAY_LEN(sizes)];
        struct matmul g = {
            .m = size[0], .n = size[1], .k = size[2], .trans_a = i & 1, .trans_b = i & 2};
        check_units(dtypes[i / 4 / ARRAY_LEN(sizes)], g, g.m >= g.n);
    }
}

static void run_einsum(struct pool *pool, const struct tensor *inputs, struct tensor *ret) {
    struct graph graph;
    graph_init(&graph);
    assert_null(graph_parse("a = Placeholder() {dtype=float}\n"
                            "b = Placeholder() {dtype=float}\n"
                            "r = Einsum(a, b) {N=2, T=float, equation=\"ij,jk->ik\"}",
                            &graph));
    assert_null(
        kernel_eval(graph_find(&graph, "r"), allocator_host(), pool, NULL, NULL, inputs, ret));
    graph_fini(&graph);
}

static struct tensor matrix_take(int64_t rows, int64_t columns, float *data) {
    struct tensor t = TENSOR_INIT;
    const int64_t dims[] = {rows, columns};
    assert_null(tensor_new(allocator_host(), DT_FLOAT, (struct shape){2, dims}, &t));
    memcpy(tensor_data(&t), data, tensor_size_bytes(&t));
    free(data);
    return t;
}

static void the_bits_of_an_einsum_do_not_depend_on_the_pool(void **state) {
    struct pool *pool = pool_new(4);
    struct tensor inputs[] = {matrix_take(300, 300, values(sizeof(float), 300 * 300)),
                              matrix_take(300, 64, values(sizeof(float), 300 * 64))},
                  alone = TENSOR_INIT, shared = TENSOR_INIT;
    run_einsum(NULL, inputs, &alone);
    run_einsum(pool, inputs, &shared);
    assert_memory_equal(tensor_cdata(&alone), tensor_cdata(&shared), tensor_size_bytes(&alone));
    tensor_clear(&inputs[0]), tensor_clear(&inputs[1]);
    tensor_clear(&alone), tensor_clear(&shared);
    pool_free(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_float_sums_have_the_bits_of_one_call),
        cmocka_unit_test(long_double_sums_have_the_bits_of_one_call),
        cmocka_unit_test(long_sums_of_one_row_are_those_of_one_call),
        cmocka_unit_test(long_integer_sums_wrap_as_one),
        cmocka_unit_test(a_cancel_ends_a_long_sum),
        cmocka_unit_test(a_cancel_ends_the_long_sums_of_a_row),
        cmocka_unit_test(parts_of_a_product_have_the_bits_of_the_whole),
        cmocka_unit_test(nan_leaves_the_bits_of_other_rows_and_columns),
        cmocka_unit_test(units_have_the_same_bits_together_and_apart),
        cmocka_unit_test(the_bits_of_an_einsum_do_not_depend_on_the_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
