/* The nn family where TensorFlow cannot be asked: results that do not depend on the pool, memory
 * used again, accuracy, limits. What the ops compute is compared with TensorFlow in
 * tests/differential/cases_nn.py. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "kernels/support/half_blocks.h"
#include "kernels/support/vmath.h"
#include "tests/unit/kernels/kernel_test.h"

/* ---- one kernel by itself, with or without a pool ---- */

struct single {
    struct graph graph;
    struct kernel_instance instance;
    struct tensor inputs[3], outputs[2];
    struct kernel_ctx ctx;
};

static void single_init(struct single *s, const char *text, struct pool *pool) {
    memset(s, 0, sizeof(*s));
    graph_init(&s->graph);
    struct status *st = graph_parse(text, &s->graph);
    if (st)
        fail_msg("%s", status_message(st));
    struct node *node = s->graph.nodes[s->graph.n_nodes - 1];
    assert_null(
        kernel_instance_init(&s->instance, node, "CPU", TEST_DEVICE, allocator_host(), NULL));
    s->ctx = (struct kernel_ctx){
        .inputs = s->inputs, .outputs = s->outputs, .instance = &s->instance, .pool = pool};
}

static void single_run(struct single *s) {
    assert_int_equal(s->instance.compute(&s->ctx), KERNEL_DONE);
    if (s->ctx.status)
        fail_msg("%s", status_message(s->ctx.status));
}

static void single_fini(struct single *s) {
    for (int i = 0; i < 3; i++)
        tensor_clear(&s->inputs[i]);
    for (int i = 0; i < 2; i++)
        tensor_clear(&s->outputs[i]);
    status_unref(s->ctx.status);
    kernel_instance_fini(&s->instance);
    graph_fini(&s->graph);
}

/* Values of a fixed sequence, large and small, so that the order of a sum shows. */
static void floats(struct tensor *t, int64_t rows, int64_t cols) {
    assert_null(
        tensor_new(allocator_host(), DT_FLOAT, (struct shape){2, (int64_t[]){rows, cols}}, t));
    uint32_t seed = 1;
    for (int64_t i = 0; i < t->n_elements; i++) {
        seed = seed * 1664525u + 1013904223u;
        ((float *)tensor_data(t))[i] = ldexpf((float)(seed >> 8), (int)(seed % 13) - 30) - 0.01f;
    }
}

/* ---- the pool ---- */

static const char *const pooled[] = {
    "a = Placeholder() {dtype=float}\nr = Softplus(a) {T=float}",
    "a = Placeholder() {dtype=float}\nr = Softmax(a) {T=float}",
    "a = Placeholder() {dtype=float}\nr = LogSoftmax(a) {T=float}",
    "a = Placeholder() {dtype=float}\nr = BiasAddGrad(a) {T=float}",
    "a = Placeholder() {dtype=float}\nr = L2Loss(a) {T=float}",
    "a = Placeholder() {dtype=float}\nk = Placeholder() {dtype=int32}\nr = TopKV2(a, k) {T=float}",
    ("a = Placeholder() {dtype=float}\nk = Placeholder() {dtype=int32}\nr = NthElement(a, k) "
     "{T=float}"),
    "a = Placeholder() {dtype=float}\nr = SoftmaxCrossEntropyWithLogits(a, a) {T=float}",
};

static void test_results_do_not_depend_on_the_pool(void **state) {
    for (size_t i = 0; i < ARRAY_LEN(pooled); i++) {
        struct pool *pool = pool_new(3);
        struct single alone, shared;
        single_init(&alone, pooled[i], NULL);
        single_init(&shared, pooled[i], pool);
        floats(&alone.inputs[0], 3000, 117);
        floats(&shared.inputs[0], 3000, 117);
        if (strstr(pooled[i], "(a, k)")) {
            tensor_init_scalar_i32(&alone.inputs[1], 99);
            tensor_init_scalar_i32(&shared.inputs[1], 99);
        } else if (strstr(pooled[i], "(a, a)")) {
            floats(&alone.inputs[1], 3000, 117);
            floats(&shared.inputs[1], 3000, 117);
        }
        single_run(&alone);
        single_run(&shared);
        for (int k = 0; k < alone.instance.n_outputs; k++) {
            if (!tensor_equal(&alone.outputs[k], &shared.outputs[k]))
                fail_msg("output %d depends on the pool: %s", k, pooled[i]);
        }
        single_fini(&alone);
        single_fini(&shared);
        pool_free(pool);
    }
}

static void test_half_inputs_are_rounded_once(void **state) {
    /* 1 + 2^-11 - 2^-11: a sum rounded step by step would lose the small terms. */
    struct single s;
    single_init(&s, "a = Placeholder() {dtype=half}\nr = BiasAddGrad(a) {T=half}", NULL);
    assert_null(tensor_new(allocator_host(), DT_HALF, (struct shape){2, (int64_t[]){4097, 1}},
                           &s.inputs[0]));
    uint16_t *values = tensor_data(&s.inputs[0]);
    for (int i = 0; i < 4097; i++)
        values[i] = i == 0 ? half_value_store(DT_HALF, 2048) : half_value_store(DT_HALF, 0.25f);
    single_run(&s);
    assert_true(half_value_load(DT_HALF, *(const uint16_t *)tensor_cdata(&s.outputs[0])) == 3072);
    single_fini(&s);
}

/* ---- memory ---- */

static void test_activations_reuse_a_sole_input(void **state) {
    for (int shared = 0; shared < 2; shared++) {
        struct single s;
        struct tensor other = TENSOR_INIT;
        single_init(&s, "a = Placeholder() {dtype=float}\nr = Relu(a) {T=float}", NULL);
        floats(&s.inputs[0], 8, 8);
        if (shared)
            tensor_copy(&other, &s.inputs[0]);
        const void *data = tensor_cdata(&s.inputs[0]);
        single_run(&s);
        assert_int_equal(tensor_cdata(&s.outputs[0]) == data, !shared);
        tensor_clear(&other);
        single_fini(&s);
    }
}

/* ---- TopK ---- */

static void test_top_k_agrees_with_sorting_on_hard_rows(void **state) {
    /* Rising rows make every element a candidate; equal ones are told apart by their column
     * alone. */
    enum { N = 20000 };
    for (int kind = 0; kind < 3; kind++) {
        static const int32_t ks[] = {1, 64, 65, 300, N - 1, N};
        for (size_t i = 0; i < ARRAY_LEN(ks); i++) {
            struct single s;
            single_init(&s,
                        "a = Placeholder() {dtype=int64}\nk = Placeholder() {dtype=int32}\nr = "
                        "TopKV2(a, k) {T=int64}",
                        NULL);
            assert_null(tensor_new(allocator_host(), DT_INT64, (struct shape){1, (int64_t[]){N}},
                                   &s.inputs[0]));
            for (int64_t c = 0; c < N; c++)
                ((int64_t *)tensor_data(&s.inputs[0]))[c] = kind == 0 ? c : kind == 1 ? -c : 7;
            tensor_init_scalar_i32(&s.inputs[1], ks[i]);
            single_run(&s);
            const int32_t *columns = tensor_cdata(&s.outputs[1]);
            for (int32_t place = 0; place < ks[i]; place++)
                assert_int_equal(columns[place], kind == 0 ? N - 1 - place : place);
            single_fini(&s);
        }
    }
}

static void test_nan_is_above_infinity(void **state) {
    kernel_test_run("a = Const() {dtype=float, value=float[4]{1, inf, nan, -inf}}\nk = Const() "
                    "{dtype=int32, value=int32[]{4}}\n"
                    "r = TopKV2(a, k) {T=float}",
                    "r:1", "int32[4]{2, 1, 0, 3}");
}

/* ---- vmath ---- */

static double ulps(double got, double wanted, double unit) {
    return got == wanted ? 0 : fabs(got - wanted) / unit;
}

static void test_vmath_is_within_two_ulps(void **state) {
    for (double x = -110; x < 95; x += 0.0037) {
        float v = (float)x, wanted = (float)exp((double)v);
        if (isfinite(wanted))
            assert_true(ulps(vexp_f32(v), exp((double)v),
                             (double)(nextafterf(wanted, INFINITY) - wanted)) < 2);
        if (x < 0)
            assert_true(ulps(vexpm1_low_f32(v), expm1((double)v),
                             (double)(nextafterf(fabsf(expm1f(v)), INFINITY) - fabsf(expm1f(v)))) <
                        2);
    }
    for (double x = -750; x < 705; x += 0.037) {
        double wanted = exp(x);
        /* libm's half included */
        assert_true(ulps(vexp_f64(x), wanted, nextafter(wanted, INFINITY) - wanted) < 2.5);
        double u = exp(x / 20);
        assert_true(
            ulps(vlog1p_positive_f64(u), log1p(u), nextafter(log1p(u), INFINITY) - log1p(u)) < 2.5);
    }
    assert_true(isnan(vexp_f32(NAN)) && vexp_f32(INFINITY) == INFINITY &&
                vexp_f32(-INFINITY) == 0 && vexpm1_low_f32(-INFINITY) == -1);
    assert_true(isnan(vexp_f64(NAN)) && vexp_f64(INFINITY) == INFINITY &&
                vexp_f64(-INFINITY) == 0 && vexpm1_low_f64(-INFINITY) == -1);
}

/* ---- long rows ---- */

enum { LONG_ROW = 1000000 };

/* e^x is 1 once, and then a tenth: a sum of tenths is rounded to the same side for long. */
static void fill_long_row(struct tensor *t) {
    assert_null(
        tensor_new(allocator_host(), DT_FLOAT, (struct shape){2, (int64_t[]){1, LONG_ROW}}, t));
    for (int64_t i = 0; i < LONG_ROW; i++)
        ((float *)tensor_data(t))[i] = i == 0 ? 0 : logf(0.1f);
}

/* Σ e^x, in double precision. */
static double long_row_sum(const struct tensor *t) {
    double sum = 0;
    for (int64_t i = 0; i < LONG_ROW; i++)
        sum += exp((double)((const float *)tensor_cdata(t))[i]);
    return sum;
}

static void test_a_long_softmax_keeps_its_digits(void **state) {
    struct single s;
    single_init(&s, pooled[1], NULL);
    fill_long_row(&s.inputs[0]);
    double sum = long_row_sum(&s.inputs[0]);
    single_run(&s);
    double got = (double)((const float *)tensor_cdata(&s.outputs[0]))[0];

    assert_true(fabs(got * sum - 1) < 5e-6);
    single_fini(&s);
}

static void test_a_long_cross_entropy_keeps_its_digits(void **state) {
    struct single s;
    double wanted = 0;
    single_init(&s,
                "a = Placeholder() {dtype=float}\nb = Placeholder() {dtype=float}\n"
                "r = SoftmaxCrossEntropyWithLogits(a, b) {T=float}",
                NULL);
    fill_long_row(&s.inputs[0]);
    fill_long_row(&s.inputs[1]);
    double log_sum = log(long_row_sum(&s.inputs[0]));
    for (int64_t i = 0; i < LONG_ROW; i++) {
        float *label = (float *)tensor_data(&s.inputs[1]) + i;
        double x = (double)*label;
        *label = 0.1f;
        wanted += (double)*label * (log_sum - x);
    }
    single_run(&s);
    double got = (double)((const float *)tensor_cdata(&s.outputs[0]))[0];

    assert_true(fabs(got / wanted - 1) < 5e-6);
    single_fini(&s);
}

/* ---- batch normalisation ---- */

/* 4200 values of each of five channels, 1,000,000 to 1,000,006, whose variance is 4. 512 of them
 * have no mean that a float holds. */
#define FAR_VALUES                                                 \
    "begin = Const() {dtype=int32, value=int32[]{1000000}}\n"      \
    "seven = Const() {dtype=int32, value=int32[]{7}}\n"            \
    "zero = Const() {dtype=int32, value=int32[]{0}}\n"             \
    "end = Const() {dtype=int32, value=int32[]{21000}}\n"          \
    "step = Const() {dtype=int32, value=int32[]{1}}\n"             \
    "count = Range(zero, end, step) {Tidx=int32}\n"                \
    "small = FloorMod(count, seven) {T=int32}\n"                   \
    "large = AddV2(small, begin) {T=int32}\n"                      \
    "flat = Cast(large) {SrcT=int32, DstT=float}\n"                \
    "one = Const() {dtype=float, value=float[5]{1, 1, 1, 1, 1}}\n" \
    "none = Const() {dtype=float, value=float[0]{}}\n"             \
    "four = Const() {dtype=float, value=float[]{4}}\n"             \
    "bound = Const() {dtype=float, value=float[]{4e-6}}\n"

static void far_from_0(const char *format, const char *shape) {
    struct str text = STR_INIT;
    str_addf(&text,
             FAR_VALUES "shape = Const() {dtype=int32, value=%s}\n"
                        "x = Reshape(flat, shape) {T=float, Tshape=int32}\n"
                        "r = FusedBatchNormV3(x, one, one, none, none) {T=float, U=float, "
                        "is_training=true, data_format=\"%s\"}\n"
                        "off = Sub(r:4, four) {T=float}\n"
                        "error = Abs(off) {T=float}\n"
                        "is_small = Less(error, bound) {T=float}",
             shape, format);
    kernel_test_run(str_text(&text), "r:3",
                    "float[5]{1000003, 1000003, 1000003, 1000003, 1000003}");
    kernel_test_run(str_text(&text), "is_small", "bool[5]{true, true, true, true, true}");
    str_fini(&text);
}

static void test_a_variance_far_from_0_keeps_its_digits(void **state) {
    far_from_0("NHWC", "int32[4]{7, 20, 30, 5}");
    far_from_0("NHWC", "int32[4]{1, 1, 4200, 5}");
    far_from_0("NCHW", "int32[4]{1, 5, 60, 70}");
    far_from_0("NCHW", "int32[4]{60, 5, 7, 10}");
    far_from_0("NDHWC", "int32[5]{7, 2, 10, 30, 5}");
    far_from_0("NCDHW", "int32[5]{1, 5, 2, 30, 70}");
}

/* ---- errors ---- */

static void test_wrong_labels_are_named(void **state) {
    kernel_test_fails("a = Const() {dtype=float, value=float[2,3]{1, 2, 3, 4, 5, 6}}\nb = Const() "
                      "{dtype=int32, value=int32[2]{5, 0}}\n"
                      "r = SparseSoftmaxCrossEntropyWithLogits(a, b) {T=float, Tlabels=int32}",
                      "r", STATUS_INVALID_ARGUMENT,
                      "Received a label value of 5 which is outside the valid range of [0, 3).  "
                      "Label values: 5 0");
    kernel_test_fails("a = Const() {dtype=float, value=float[]{1}}\nr = Softmax(a) {T=float}", "r",
                      STATUS_INVALID_ARGUMENT, "logits must have >= 1 dimension");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results_do_not_depend_on_the_pool),
        cmocka_unit_test(test_half_inputs_are_rounded_once),
        cmocka_unit_test(test_activations_reuse_a_sole_input),
        cmocka_unit_test(test_top_k_agrees_with_sorting_on_hard_rows),
        cmocka_unit_test(test_nan_is_above_infinity),
        cmocka_unit_test(test_vmath_is_within_two_ulps),
        cmocka_unit_test(test_a_long_softmax_keeps_its_digits),
        cmocka_unit_test(test_a_long_cross_entropy_keeps_its_digits),
        cmocka_unit_test(test_a_variance_far_from_0_keeps_its_digits),
        cmocka_unit_test(test_wrong_labels_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
