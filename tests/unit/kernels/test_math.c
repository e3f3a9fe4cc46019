/* The math family: what the differential cases (tests/differential/cases_math.py) cannot show,
 * and a few values of each engine that need no TensorFlow. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "kernels/cpu/blas.h"
#include "tests/unit/kernels/kernel_test.h"

#define VALUE(name, dtype, text) name " = Const() {dtype=" dtype ", value=" dtype text "}\n"

/* ---- values ---- */

static void test_binary_ops_broadcast(void **state) {
    kernel_test_run(VALUE("a", "int32", "[2,1]{1, 2}")
                        VALUE("b", "int32", "[3]{10, 20, 30}") "r = AddV2(a, b) {T=int32}",
                    "r", "int32[2,3]{11, 21, 31, 12, 22, 32}");
    kernel_test_run(VALUE("a", "int32", "[]{7}")
                        VALUE("b", "int32", "[]{5}") "r = Sub(a, b) {T=int32}",
                    "r", "int32[]{2}");
    kernel_test_run(VALUE("a", "int32", "[0,3]{}")
                        VALUE("b", "int32", "[3]{1, 2, 3}") "r = Mul(a, b) {T=int32}",
                    "r", "int32[0,3]{}");
    kernel_test_run(VALUE("a", "string", "[2]{\"x\", \"\"}")
                        VALUE("b", "string", "[]{\"yz\"}") "r = Add(a, b) {T=string}",
                    "r", "string[2]{\"xyz\", \"yz\"}");
    /* More dimensions that alternate than TensorFlow takes. */
    kernel_test_run(VALUE("a", "int32", "[1,2,1,2,1,2,1,1,1,1]{1, 2, 3, 4, 5, 6, 7, 8}") VALUE(
                        "b", "int32", "[2,1,1,1,1,1,1,1,1,1]{0, 100}") "r = AddV2(a, b) {T=int32}",
                    "r",
                    "int32[2,2,1,2,1,2,1,1,1,1]{1, 2, 3, 4, 5, 6, 7, 8, 101, 102, 103, 104, 105, "
                    "106, 107, 108}");
}

static void test_binary_ops_refuse_what_they_cannot(void **state) {
    kernel_test_fails(VALUE("a", "int32", "[]{1}")
                          VALUE("b", "int32", "[]{0}") "r = FloorDiv(a, b) {T=int32}",
                      "r", STATUS_INVALID_ARGUMENT, "Integer division by zero");
    kernel_test_fails(VALUE("a", "int32", "[2]{2, 3}")
                          VALUE("b", "int32", "[2]{1, -1}") "r = Pow(a, b) {T=int32}",
                      "r", STATUS_INVALID_ARGUMENT,
                      "Integers to negative integer powers are not allowed");
    kernel_test_fails(VALUE("a", "int32", "[3]{1, 2, 3}")
                          VALUE("b", "int32", "[2]{1, 2}") "r = Less(a, b) {T=int32}",
                      "r", STATUS_INVALID_ARGUMENT, "Incompatible shapes: [3] vs. [2]");
    kernel_test_run(VALUE("a", "int32", "[3]{1, 2, 3}") VALUE(
                        "b", "int32",
                        "[2]{1, 2}") "r = NotEqual(a, b) {T=int32, incompatible_shape_error=false}",
                    "r", "bool[]{true}");
}

static void test_integers_wrap_without_traps(void **state) {
    kernel_test_run(VALUE("a", "int32", "[1]{-2147483648}")
                        VALUE("b", "int32", "[1]{-1}") "r = Div(a, b) {T=int32}",
                    "r", "int32[1]{-2147483648}");
    kernel_test_run(VALUE("a", "int32", "[1]{-2147483648}")
                        VALUE("b", "int32", "[1]{-1}") "r = FloorMod(a, b) {T=int32}",
                    "r", "int32[1]{0}");
    kernel_test_run(VALUE("a", "int8", "[1]{-128}") "r = Abs(a) {T=int8}", "r", "int8[1]{-128}");
    kernel_test_run(VALUE("a", "uint16", "[1]{65535}") "r = Square(a) {T=uint16}", "r",
                    "uint16[1]{1}");
    kernel_test_run(VALUE("a", "int32", "[3]{1, 1, -8}")
                        VALUE("b", "int32", "[3]{40, -3, 1}") "r = LeftShift(a, b) {T=int32}",
                    "r", "int32[3]{-2147483648, 1, -16}");
}

static void test_casts_beyond_range(void **state) {
    kernel_test_run(
        VALUE("a", "float",
              "[4]{1e10, -1e10, nan, -1.9}") "r = Cast(a) {SrcT=float, DstT=int32, Truncate=false}",
        "r", "int32[4]{-2147483648, -2147483648, -2147483648, -1}");
    kernel_test_run(
        VALUE("a", "double",
              "[3]{1e19, 1e300, -1}") "r = Cast(a) {SrcT=double, DstT=uint64, Truncate=false}",
        "r", "uint64[3]{10000000000000000000, 9223372036854775808, 18446744073709551615}");
}

static void test_selects_and_limits(void **state) {
    kernel_test_run(VALUE("c", "bool", "[2]{true, false}") VALUE("x", "int32", "[2,2]{1, 2, 3, 4}")
                        VALUE("y", "int32", "[2,2]{5, 6, 7, 8}") "r = Select(c, x, y) {T=int32}",
                    "r", "int32[2,2]{1, 2, 7, 8}");
    kernel_test_run(
        VALUE("c", "bool", "[2,1]{true, false}") VALUE("x", "string", "[]{\"t\"}")
            VALUE("y", "string", "[2]{\"e\", \"f\"}") "r = SelectV2(c, x, y) {T=string}",
        "r", "string[2,2]{\"t\", \"t\", \"e\", \"f\"}");
    kernel_test_fails(VALUE("c", "bool", "[3]{true, false, true}")
                          VALUE("x", "int32", "[2]{1, 2}") "r = SelectV2(c, x, x) {T=int32}",
                      "r", STATUS_INVALID_ARGUMENT,
                      "condition [3], then [2], and else [2] must be broadcastable");
    kernel_test_run(VALUE("a", "int32", "[3]{1, 5, 9}") VALUE("l", "int32", "[]{2}")
                        VALUE("h", "int32", "[]{6}") "r = ClipByValue(a, l, h) {T=int32}",
                    "r", "int32[3]{2, 5, 6}");
    kernel_test_run(VALUE("a", "int32", "[2]{1, 2}") "r = AddN(a, a, a) {T=int32, N=3}", "r",
                    "int32[2]{3, 6}");
}

#define REDUCE(op) "r = " op "(a, x) {T=int32, Tidx=int32, keep_dims=false}"
static void test_reductions(void **state) {
    const char *input = VALUE("a", "int32", "[2,3]{1, 2, 3, 4, 5, 6}");
    char text[512];
    const struct {
        const char *op, *axes, *expected;
    } rows[] = {
        {"Sum", "[1]{0}", "int32[3]{5, 7, 9}"},  {"Sum", "[1]{-1}", "int32[2]{6, 15}"},
        {"Prod", "[2]{0, 1}", "int32[]{720}"},   {"Max", "[1]{1}", "int32[2]{3, 6}"},
        {"Mean", "[1]{0}", "int32[3]{2, 3, 4}"}, {"Sum", "[0]{}", "int32[2,3]{1, 2, 3, 4, 5, 6}"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        snprintf(text, sizeof(text),
                 "%sx = Const() {dtype=int32, value=int32%s}\nr = %s(a, x) {T=int32, Tidx=int32, "
                 "keep_dims=false}",
                 input, rows[i].axes, rows[i].op);
        kernel_test_run(text, "r", rows[i].expected);
    }
    kernel_test_fails(VALUE("a", "int32", "[2]{1, 2}") VALUE("x", "int32", "[2]{0, -1}")
                          REDUCE("Sum"),
                      "r", STATUS_INVALID_ARGUMENT, "Axes contains duplicate dimension: 0");
    kernel_test_fails(VALUE("a", "int32", "[2]{1, 2}") VALUE("x", "int32", "[1]{1}") REDUCE("Min"),
                      "r", STATUS_INVALID_ARGUMENT, "Invalid reduction dimension");
    kernel_test_run(VALUE("a", "int32", "[0,2]{}") VALUE("x", "int32", "[1]{0}") REDUCE("Max"), "r",
                    "int32[2]{-2147483648, -2147483648}");
    kernel_test_run(
        VALUE("a", "int8", "[3]{100, 100, 100}")
            VALUE("x", "int32", "[1]{0}") "r = Mean(a, x) {T=int8, Tidx=int32, keep_dims=true}",
        "r", "int8[1]{100}");
}

static void test_along_one_dimension(void **state) {
    kernel_test_run(VALUE("a", "float", "[4]{nan, 1, 3, 3}")
                        VALUE("d", "int32",
                              "[]{0}") "r = ArgMax(a, d) {T=float, Tidx=int32, output_type=int64}",
                    "r", "int64[]{2}");
    kernel_test_fails(
        VALUE("a", "float", "[0,2]{}") VALUE(
            "d", "int32", "[]{0}") "r = ArgMin(a, d) {T=float, Tidx=int32, output_type=int32}",
        "r", STATUS_INVALID_ARGUMENT, "Reduction axis 0 is empty in shape [0,2]");
    kernel_test_run(
        VALUE("a", "int32", "[3]{1, 2, 3}")
            VALUE("d", "int32",
                  "[]{-1}") "r = Cumsum(a, d) {T=int32, Tidx=int32, exclusive=true, reverse=true}",
        "r", "int32[3]{5, 3, 0}");
    kernel_test_fails(VALUE("a", "int32", "[1]{1}")
                          VALUE("d", "int32", "[]{1}") "r = Cumprod(a, d) {T=int32, Tidx=int32}",
                      "r", STATUS_INVALID_ARGUMENT,
                      "Expected scan axis in the range [-1, 1), but got 1");
}

static void test_products(void **state) {
    kernel_test_run(
        VALUE("a", "float", "[2,2]{1, 2, 3, 4}") VALUE(
            "b", "float",
            "[2,2]{5, 6, 7, 8}") "r = MatMul(a, b) {T=float, transpose_a=true, transpose_b=false}",
        "r", "float[2,2]{26, 30, 38, 44}");
    kernel_test_run(VALUE("a", "int32", "[2,1,2]{1, 2, 3, 4}")
                        VALUE("b", "int32", "[2,1]{10, 1}") "r = BatchMatMulV2(a, b) {T=int32}",
                    "r", "int32[2,1,1]{12, 34}");
    kernel_test_run(VALUE("a", "float", "[2,0]{}")
                        VALUE("b", "float", "[0,2]{}") "r = MatMul(a, b) {T=float}",
                    "r", "float[2,2]{0, 0, 0, 0}");
    kernel_test_fails(VALUE("a", "float", "[1,2]{1, 2}") "r = MatMul(a, a) {T=float}", "r",
                      STATUS_INVALID_ARGUMENT,
                      "Matrix size-incompatible: In[0]: [1,2], In[1]: [1,2]");
}

static void test_segments_and_counts(void **state) {
    kernel_test_run(
        VALUE("a", "int32", "[3,2]{1, 2, 3, 4, 5, 6}")
            VALUE("s", "int32", "[3]{0, 0, 2}") "r = SegmentSum(a, s) {T=int32, Tindices=int32}",
        "r", "int32[3,2]{4, 6, 0, 0, 5, 6}");
    kernel_test_fails(
        VALUE("a", "int32", "[3]{1, 2, 3}")
            VALUE("s", "int32", "[3]{0, 2, 1}") "r = SegmentMax(a, s) {T=int32, Tindices=int32}",
        "r", STATUS_INVALID_ARGUMENT, "segment ids are not increasing");
    kernel_test_run(VALUE("a", "int32", "[3]{1, 2, 3}") VALUE("s", "int32", "[3]{1, -1, 1}")
                        VALUE("n", "int32", "[]{2}") "r = UnsortedSegmentSum(a, s, n) {T=int32, "
                                                     "Tindices=int32, Tnumsegments=int32}",
                    "r", "int32[2]{0, 4}");
    kernel_test_fails(VALUE("a", "int32", "[1]{1}") VALUE("s", "int32", "[1]{7}")
                          VALUE("n", "int32", "[]{2}") "r = UnsortedSegmentSum(a, s, n) {T=int32, "
                                                       "Tindices=int32, Tnumsegments=int32}",
                      "r", STATUS_INVALID_ARGUMENT, "segment_ids[0] = 7 is out of range [0, 2)");
    /* A last id that asks for more rows than any machine has. */
    kernel_test_fails(
        VALUE("a", "int64", "[1]{1}")
            VALUE("s", "int64",
                  "[1]{9223372036854775807}") "r = SegmentSum(a, s) {T=int64, Tindices=int64}",
        "r", STATUS_INVALID_ARGUMENT, "out of range");
    kernel_test_run(VALUE("a", "int32", "[4]{1, 1, 3, 9}") VALUE("n", "int32", "[]{4}")
                        VALUE("w", "int64", "[0]{}") "r = Bincount(a, n, w) {T=int64}",
                    "r", "int64[4]{0, 2, 0, 1}");
}

static void test_static_shapes(void **state) {
    kernel_test_shape("a = Placeholder() {dtype=float, shape=[?,3]}\nb = Placeholder() "
                      "{dtype=float, shape=[1]}\nr = AddV2(a, b) {T=float}",
                      "r", "[?,3]");
    kernel_test_shape("a = Placeholder() {dtype=float, shape=[2,3]}\nb = Placeholder() "
                      "{dtype=float, shape=[2]}\nr = AddV2(a, b) {T=float}",
                      "r", "!Dimensions must be equal, but are 3 and 2");
    kernel_test_shape("a = Placeholder() {dtype=float, shape=[4,?]}\nb = Placeholder() "
                      "{dtype=float, shape=[5,?]}\n"
                      "r = MatMul(a, b) {T=float, transpose_a=true, transpose_b=true}",
                      "r", "[?,5]");
    kernel_test_shape("a = Placeholder() {dtype=float, shape=[4]}\nr = MatMul(a, a) {T=float}", "r",
                      "!Shape must be rank 2 but is rank 1");
    kernel_test_shape(
        "a = Placeholder() {dtype=float, shape=[4,?,6]}\n" VALUE(
            "x", "int32", "[1]{-1}") "r = Sum(a, x) {T=float, Tidx=int32, keep_dims=true}",
        "r", "[4,?,1]");
    kernel_test_shape("a = Placeholder() {dtype=float, shape=[4,?,6]}\nx = Placeholder() "
                      "{dtype=int32, shape=[1]}\n"
                      "r = Sum(a, x) {T=float, Tidx=int32, keep_dims=false}",
                      "r", "<unknown>");
    kernel_test_shape(
        "a = Placeholder() {dtype=float, shape=[7,2]}\ns = Placeholder() {dtype=int32, "
        "shape=[7]}\n" VALUE("n", "int32", "[]{5}") "r = UnsortedSegmentSum(a, s, n) {T=float, "
                                                    "Tindices=int32, Tnumsegments=int32}",
        "r", "[5,2]");
}

/* ---- with threads, and accuracy: values made here ---- */

/* Runs the graph's node `r`. */
static void eval(const char *text, struct pool *pool, const struct tensor *inputs,
                 struct tensor *ret) {
    struct graph graph = {0};
    graph_init(&graph);
    assert_null(graph_parse(text, &graph));
    *ret = TENSOR_INIT;
    struct status *st =
        kernel_eval(graph_find(&graph, "r"), allocator_host(), pool, NULL, NULL, inputs, ret);
    if (st)
        print_error("%s\n", status_message(st));
    assert_null(st);
    graph_fini(&graph);
}

static struct tensor make(enum dtype dtype, int rank, const int64_t *dims) {
    struct tensor t = TENSOR_INIT;
    assert_null(tensor_new(allocator_host(), dtype, (struct shape){rank, dims}, &t));
    for (int64_t i = 0; i < t.n_elements; i++) {
        if (dtype == DT_FLOAT)
            ((float *)tensor_data(&t))[i] = (float)((i * 7919) % 2003) / 1000.0f - 1.0f;
        else
            ((int32_t *)tensor_data(&t))[i] = (int32_t)(i * 7919 % 2003);
    }
    return t;
}

#define TWO(type) "a = Placeholder() {dtype=" type "}\nb = Placeholder() {dtype=" type "}\n"
static void test_results_do_not_depend_on_threads(void **state) {
    static const char *const graphs[] = {
        TWO("float") "r = Mul(a, b) {T=float}",
        TWO("float") "r = MatMul(a, b) {T=float, transpose_a=false, transpose_b=true}",
        TWO("float") "r = SquaredDifference(a, b) {T=float}",
    };
    static const char *const reductions[] = {"Sum", "Max", "Mean", "EuclideanNorm"};
    struct pool *pool = pool_new(3);
    struct tensor inputs[2] = {make(DT_FLOAT, 2, (int64_t[]){700, 900}),
                               make(DT_FLOAT, 2, (int64_t[]){700, 900})},
                  one, many;
    for (size_t i = 0; i < ARRAY_LEN(graphs); i++) {
        eval(graphs[i], NULL, inputs, &one);
        eval(graphs[i], pool, inputs, &many);
        if (i == 1) { /* BLAS may sum a share in another order */
            for (int64_t k = 0; k < one.n_elements; k++)
                assert_true(fabsf(((const float *)tensor_cdata(&one))[k] -
                                  ((const float *)tensor_cdata(&many))[k]) < 1e-2f);
        } else {
            assert_true(tensor_equal(&one, &many));
        }
        tensor_clear(&one);
        tensor_clear(&many);
    }
    for (size_t i = 0; i < 3 * ARRAY_LEN(reductions); i++) {
        char text[256];
        snprintf(text, sizeof(text),
                 "a = Placeholder() {dtype=float}\nx = Placeholder() {dtype=int32}\nr = %s(a, x) "
                 "{T=float, Tidx=int32}",
                 reductions[i / 3]);
        struct tensor two[2] = {inputs[0], make(DT_INT32, 1, (int64_t[]){i % 3 == 2 ? 2 : 1})};
        ((int32_t *)tensor_data(&two[1]))[0] = (int32_t)(i % 3 == 1);
        if (i % 3 == 2)
            ((int32_t *)tensor_data(&two[1]))[1] = 1;
        eval(text, NULL, two, &one);
        eval(text, pool, two, &many);
        assert_true(tensor_equal(&one, &many));
        tensor_clear(&one);
        tensor_clear(&many);
    }
    tensor_clear(&inputs[0]);
    tensor_clear(&inputs[1]);
    pool_free(pool);
}

static void test_sums_are_exact_to_the_last_place(void **state) {
    int64_t dims[] = {3000001};
    struct tensor inputs[2] = {make(DT_FLOAT, 1, dims), make(DT_INT32, 1, (int64_t[]){1})}, sum;
    float *x = tensor_data(&inputs[0]);
    double expected = 0;
    for (int64_t i = 0; i < dims[0]; i++) {
        x[i] = 0.1f + (float)(i % 7) * 1e-3f;
        expected += x[i];
    }
    ((int32_t *)tensor_data(&inputs[1]))[0] = 0;
    eval("a = Placeholder() {dtype=float}\nx = Placeholder() {dtype=int32}\nr = Sum(a, x) "
         "{T=float, Tidx=int32}",
         NULL, inputs, &sum);
    assert_true(*(const float *)tensor_cdata(&sum) == (float)expected);
    tensor_clear(&inputs[0]);
    tensor_clear(&sum);
}

static double ulps_f32(float got, double expected) {
    if (isnan(expected) || isinf((float)expected))
        return isnan(got) == isnan(expected) && (isnan(got) || got == (float)expected) ? 0 : 1e9;
    int exponent;
    frexp(expected, &exponent);
    double ulp = ldexp(1, MAX(exponent, -125) - 24);
    return fabs((double)got - expected) / ulp;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static void test_vector_functions_are_accurate(void **state) {
    static const struct {
        const char *op;
        double (*function)(double);
        double low, high, ulps;
    } rows[] = {{"Exp", exp, -110, 92, 2},      {"Log", log, 1e-45, 3e38, 2},
                {"Tanh", tanh, -12, 12, 4},     {"Sigmoid", sigmoid, -100, 100, 3},
                {"Tanh", tanh, -1e-3, 1e-3, 4}, {"Log", log, 0.5, 2, 2}};
    int64_t dims[] = {200003};
    struct tensor in = make(DT_FLOAT, 1, dims), out;
    float *x = tensor_data(&in);
    for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
        double worst = 0;
        for (int64_t i = 0; i < dims[0]; i++) {
            double t = (double)i / (double)(dims[0] - 1);
            x[i] = (float)(rows[k].low > 0 && rows[k].high / rows[k].low > 1e6
                               ? exp(log(rows[k].low) * (1 - t) + log(rows[k].high) * t)
                               : rows[k].low * (1 - t) + rows[k].high * t);
        }
        const float special[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1e-45f, -1e-45f, 1, -1};
        memcpy(x, special, sizeof(special));
        char text[128];
        snprintf(text, sizeof(text), "a = Placeholder() {dtype=float}\nr = %s(a) {T=float}",
                 rows[k].op);
        eval(text, NULL, &in, &out);
        for (int64_t i = 0; i < dims[0]; i++) {
            double ulps = ulps_f32(((const float *)tensor_cdata(&out))[i], rows[k].function(x[i]));
            if (ulps > worst)
                worst = ulps;
        }
        if (worst > rows[k].ulps)
            print_error("%s: %g ulps\n", rows[k].op, worst);
        assert_true(worst <= rows[k].ulps);
        tensor_clear(&out);
    }
    tensor_clear(&in);
}

/* The library must bear calls from several threads. Each thread's matrix holds a number of its
 * own, so that a work buffer that two of them are given shows in the product. */
enum { MULTIPLIER_N = 64, MULTIPLIER_ROUNDS = 4000 };

struct multiplier {
    pthread_t thread;
    float value;
    int n_wrong;
};

static void *multiply_often(void *arg) {
    const struct blas *blas = blas_get();
    struct multiplier *self = arg;
    enum { N = MULTIPLIER_N };
    float a[N * N], c[N * N];
    for (int i = 0; i < N * N; i++)
        a[i] = self->value;
    for (int i = 0; i < MULTIPLIER_ROUNDS; i++) {
        blas->sgemm(BLAS_ROW_MAJOR, BLAS_NO_TRANS, BLAS_NO_TRANS, N, N, N, 1, a, N, a, N, 0, c, N);
        for (int k = 0; k < N * N; k++)
            self->n_wrong += c[k] != self->value * self->value * N;
    }
    return NULL;
}

static void test_blas_from_many_threads(void **state) {
    if (!blas_get()) {
        print_message("no BLAS library on this machine\n");
        skip();
    }
    struct multiplier multipliers[4];
    for (size_t i = 0; i < ARRAY_LEN(multipliers); i++) {
        multipliers[i] = (struct multiplier){.value = (float)i + 1};
        assert_int_equal(
            pthread_create(&multipliers[i].thread, NULL, multiply_often, &multipliers[i]), 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(multipliers); i++)
        pthread_join(multipliers[i].thread, NULL);
    for (size_t i = 0; i < ARRAY_LEN(multipliers); i++)
        assert_int_equal(multipliers[i].n_wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_binary_ops_broadcast),
        cmocka_unit_test(test_binary_ops_refuse_what_they_cannot),
        cmocka_unit_test(test_integers_wrap_without_traps),
        cmocka_unit_test(test_casts_beyond_range),
        cmocka_unit_test(test_selects_and_limits),
        cmocka_unit_test(test_reductions),
        cmocka_unit_test(test_along_one_dimension),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_segments_and_counts),
        cmocka_unit_test(test_static_shapes),
        cmocka_unit_test(test_results_do_not_depend_on_threads),
        cmocka_unit_test(test_sums_are_exact_to_the_last_place),
        cmocka_unit_test(test_vector_functions_are_accurate),
        cmocka_unit_test(test_blas_from_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
