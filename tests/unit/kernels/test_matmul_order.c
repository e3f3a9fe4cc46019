/* Large products whose operands are stored transposed, which are copied first where that pays
 * (kernels/cpu/matmul/matmul_order.h): the values are right in every form, the bits are the same on
 * any pool, and what has few units or other types is left alone. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "kernels/cpu/matmul/matmul_order.h"
#include "tests/unit/kernels/kernel_test.h"

static struct tensor matrix(int64_t rows, int64_t columns, uint32_t seed) {
    struct tensor t = TENSOR_INIT;
    const int64_t dims[] = {rows, columns};
    assert_null(tensor_new(allocator_host(), DT_FLOAT, (struct shape){2, dims}, &t));
    float *data = tensor_data(&t);
    for (int64_t i = 0; i < rows * columns; i++) {
        seed = seed * 1664525u + 1013904223u;
        data[i] = (float)(seed >> 8) / (1 << 24) - 0.5f;
    }
    return t;
}

static void run_matmul(int form, struct pool *pool, const struct tensor *inputs,
                       struct tensor *ret) {
    struct graph graph;
    char text[256];
    snprintf(text, sizeof(text),
             "a = Placeholder() {dtype=float}\n"
             "b = Placeholder() {dtype=float}\n"
             "r = MatMul(a, b) {T=float, transpose_a=%s, transpose_b=%s}",
             form & 1 ? "true" : "false", form & 2 ? "true" : "false");
    graph_init(&graph);
    assert_null(graph_parse(text, &graph));
    assert_null(
        kernel_eval(graph_find(&graph, "r"), allocator_host(), pool, NULL, NULL, inputs, ret));
    graph_fini(&graph);
}

static double sum_at(int form, const struct tensor *inputs, int64_t k, int64_t i, int64_t j) {
    const float *a = tensor_cdata(&inputs[0]), *b = tensor_cdata(&inputs[1]);
    int64_t lda = tensor_shape(&inputs[0]).dims[1], ldb = tensor_shape(&inputs[1]).dims[1];
    double sum = 0;
    for (int64_t l = 0; l < k; l++)
        sum += (double)(form & 1 ? a[l * lda + i] : a[i * lda + l]) *
               (double)(form & 2 ? b[j * ldb + l] : b[l * ldb + j]);
    return sum;
}

static void check_form(int form, int64_t m, int64_t n, int64_t k, struct pool *pool) {
    struct tensor inputs[] = {form & 1 ? matrix(k, m, 1) : matrix(m, k, 1),
                              form & 2 ? matrix(n, k, 2) : matrix(k, n, 2)},
                  alone = TENSOR_INIT, shared = TENSOR_INIT;
    run_matmul(form, NULL, inputs, &alone);
    run_matmul(form, pool, inputs, &shared);
    assert_memory_equal(tensor_cdata(&alone), tensor_cdata(&shared), tensor_size_bytes(&alone));
    const float *got = tensor_cdata(&alone);
    for (int64_t at = 0; at < m * n; at += 97)
        assert_true(fabs((double)got[at] - sum_at(form, inputs, k, at / n, at % n)) < 1e-3);
    tensor_clear(&inputs[0]), tensor_clear(&inputs[1]);
    tensor_clear(&alone), tensor_clear(&shared);
}

static void every_form_is_right_and_the_same_on_any_pool(void **state) {
    static const int64_t sizes[][3] = {{1024, 256, 300}, {256, 1000, 512}, {520, 513, 130},
                                       {300, 300, 300},  {64, 2200, 700},  {2000, 17, 90}};
    struct pool *pool = pool_new(4);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        for (int form = 0; form < 4; form++)
            check_form(form, sizes[i][0], sizes[i][1], sizes[i][2], pool);
    pool_free(pool);
}

/* Returns how many operands of a product are copied, and checks what the copies hold. */
static int n_copied(enum dtype dtype, int form, int64_t m, int64_t n, int64_t k) {
    struct tensor inputs[] = {form & 1 ? matrix(k, m, 3) : matrix(m, k, 3),
                              form & 2 ? matrix(n, k, 4) : matrix(k, n, 4)},
                  copies[2] = {TENSOR_INIT, TENSOR_INIT};
    const struct kernel_instance instance = {.allocator = allocator_host()};
    const struct kernel_ctx ctx = {.instance = &instance};
    struct matmul p = {.m = m,
                       .n = n,
                       .k = k,
                       .a = tensor_cdata(&inputs[0]),
                       .b = tensor_cdata(&inputs[1]),
                       .lda = form & 1 ? m : k,
                       .ldb = form & 2 ? k : n,
                       .trans_a = form & 1,
                       .trans_b = form & 2};
    const struct matmul before = p;
    struct matmul_division division = matmul_divide(dtype, &p, matmul_is_by_rows(dtype, &p));
    assert_null(matmul_put_in_order(&ctx, dtype, &division, &p, copies));
    int n_made = (p.a != before.a) + (p.b != before.b);
    assert_int_equal(before.trans_a - p.trans_a, p.a != before.a);
    assert_int_equal(before.trans_b - p.trans_b, p.b != before.b);
    for (int64_t i = 0; i < m * k && p.a != before.a; i++)
        assert_true(((const float *)p.a)[i / k * p.lda + i % k] ==
                    ((const float *)before.a)[i % k * before.lda + i / k]);
    for (int64_t i = 0; i < k * n && p.b != before.b; i++)
        assert_true(((const float *)p.b)[i / n * p.ldb + i % n] ==
                    ((const float *)before.b)[i % n * before.ldb + i / n]);
    for (int i = 0; i < 2; i++) {
        tensor_clear(&inputs[i]);
        tensor_clear(&copies[i]);
    }
    return n_made;
}

static void operands_are_copied_where_it_pays(void **state) {
    struct matmul p = {.m = 1024, .n = 256, .k = 1024};
    if (!matmul_packs_operands(DT_FLOAT, &p))
        skip(); /* no oneDNN, or AMX */
    assert_int_equal(n_copied(DT_FLOAT, 0, 1024, 256, 1024), 0);
    assert_int_equal(n_copied(DT_FLOAT, 1, 1024, 512, 300), 1);
    assert_int_equal(n_copied(DT_FLOAT, 2, 1024, 256, 1024), 1);
    assert_int_equal(n_copied(DT_FLOAT, 3, 1024, 512, 300), 2);
    assert_int_equal(n_copied(DT_FLOAT, 1, 256, 1024, 1024), 1);
    /* other types, few uses of an element, few units */
    assert_int_equal(n_copied(DT_DOUBLE, 3, 300, 300, 300), 0);
    assert_int_equal(n_copied(DT_FLOAT, 2, 128, 128, 1024), 0);
    assert_int_equal(n_copied(DT_FLOAT, 1, 1024, 256, 1024), 0);
    assert_int_equal(n_copied(DT_FLOAT, 2, 32, 2000, 300), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_is_right_and_the_same_on_any_pool),
        cmocka_unit_test(operands_are_copied_where_it_pays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
