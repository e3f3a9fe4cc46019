/* Convolution, pooling, normalisation and recurrent cells where TensorFlow cannot be asked:
 * results that do not depend on the pool, inputs that crash it, deprecated ops that its client
 * refuses. What the ops compute is compared in tests/differential/cases_{conv,pool,norm,rnn}.py. */
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/nn/conv.h"
#include "tests/unit/kernels/kernel_test.h"

/* ---- the pool ---- */

enum { MAX_OPERANDS = 18 };

struct pooled {
    const char *text;
    struct {
        int rank;
        int64_t dims[5];
    } in[5];
};

/* Large enough that work is split. */
static const struct pooled pooled[] = {
    {"r = Conv2D(a, b) {T=float, strides=[1, 1, 1, 1], padding=\"SAME\"}",
     {{4, {12, 20, 20, 16}}, {4, {3, 3, 16, 32}}}},
    {"r = Conv2D(a, b) {T=float, strides=[1, 2, 2, 1], padding=\"VALID\"}",
     {{4, {7, 21, 20, 3}}, {4, {5, 5, 3, 30}}}},
    {"r = DepthwiseConv2dNative(a, b) {T=float, strides=[1, 1, 1, 1], padding=\"SAME\"}",
     {{4, {6, 30, 30, 70}}, {4, {3, 3, 70, 1}}}},
    {"r = MaxPool(a) {T=float, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding=\"SAME\"}",
     {{4, {8, 40, 40, 33}}}},
    {"r = AvgPool(a) {T=float, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding=\"SAME\"}",
     {{4, {8, 40, 40, 33}}}},
    {"r = MaxPoolGrad(a, b, b) {T=float, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], "
     "padding=\"SAME\"}",
     {{4, {8, 40, 40, 33}}, {4, {8, 20, 20, 33}}}},
    {"r = FusedBatchNormV3(a, b, b, b, b) {T=float, U=float}", {{4, {8, 40, 40, 33}}, {1, {33}}}},
    {"r = LRN(a) {T=float}", {{4, {8, 20, 20, 64}}}},
    {"r = Dilation2D(a, b) {T=float, strides=[1, 1, 1, 1], rates=[1, 1, 1, 1], padding=\"SAME\"}",
     {{4, {4, 30, 30, 20}}, {3, {3, 3, 20}}}},
    {"r = ExtractImagePatches(a) {T=float, ksizes=[1, 3, 3, 1], strides=[1, 1, 1, 1], rates=[1, 1, "
     "1, 1], padding=\"SAME\"}",
     {{4, {4, 30, 30, 20}}}},
    {"r = GRUBlockCell(a, b, c, d, e, f) {T=float}",
     {{2, {300, 40}}, {2, {300, 50}}, {2, {90, 100}}, {2, {90, 50}}, {1, {100}}}},
};

static void fill(struct tensor *t, int rank, const int64_t *dims, uint32_t seed) {
    assert_null(tensor_new(allocator_host(), DT_FLOAT, (struct shape){rank, dims}, t));
    for (int64_t i = 0; i < t->n_elements; i++) {
        seed = seed * 1664525u + 1013904223u;
        ((float *)tensor_data(t))[i] = (float)(seed >> 8) * 0x1p-24f - 0.4f;
    }
}

static void run(const struct pooled *test, struct pool *pool, struct tensor *ret) {
    struct graph graph;
    struct kernel_instance instance;
    struct str text = STR_INIT;
    for (int i = 0; i < 6; i++)
        str_addf(&text, "%c = Placeholder() {dtype=float}\n", 'a' + i);
    str_add(&text, test->text);
    graph_init(&graph);
    struct status *st = graph_parse(str_text(&text), &graph);
    if (st)
        fail_msg("%s", status_message(st));
    const struct node *node = graph.nodes[graph.n_nodes - 1];
    assert_null(kernel_instance_init(&instance, node, "CPU", TEST_DEVICE, allocator_host(), NULL));
    struct tensor inputs[MAX_OPERANDS], outputs[MAX_OPERANDS];
    memset(inputs, 0, sizeof(inputs));
    memset(outputs, 0, sizeof(outputs));
    for (int i = 0; i < instance.n_inputs; i++) {
        int which = node->inputs[i].src->name[0] - 'a';
        if (which == 5) /* b_c, which has no place in the row */
            fill(&inputs[i], 1, (int64_t[]){50}, 9);
        else
            fill(&inputs[i], test->in[which].rank, test->in[which].dims, (uint32_t)which + 1);
    }
    struct kernel_ctx ctx = {
        .inputs = inputs, .outputs = outputs, .instance = &instance, .pool = pool};
    assert_int_equal(instance.compute(&ctx), KERNEL_DONE);
    if (ctx.status)
        fail_msg("%s: %s", test->text, status_message(ctx.status));
    tensor_move(ret, &outputs[0]);
    for (int i = 0; i < MAX_OPERANDS; i++) {
        tensor_clear(&inputs[i]);
        tensor_clear(&outputs[i]);
    }
    kernel_instance_fini(&instance);
    graph_fini(&graph);
    str_fini(&text);
}

static void test_results_do_not_depend_on_the_pool(void **state) {
    struct pool *pool = pool_new(4);
    for (size_t i = 0; i < ARRAY_LEN(pooled); i++) {
        struct tensor alone = TENSOR_INIT, shared = TENSOR_INIT;
        run(&pooled[i], NULL, &alone);
        run(&pooled[i], pool, &shared);
        if (pooled[i].in[4].rank == 0 && !tensor_equal(&alone, &shared))
            fail_msg("the result depends on the pool: %s", pooled[i].text);
        /* Products of recurrent cells are split by columns, which may round in another order. */
        for (int64_t e = 0; e < alone.n_elements; e++)
            assert_true(fabsf(((float *)tensor_data(&alone))[e] -
                              ((float *)tensor_data(&shared))[e]) < 1e-4f);
        tensor_clear(&alone);
        tensor_clear(&shared);
    }
    pool_free(pool);
}

/* ---- implementations ---- */

static const struct conv_shape large[] = {
    /* batch, channels in and out, groups, in, out, window, stride, rate, pad_before */
    {3, 32, 48, 1, {1, 14, 13}, {1, 14, 13}, {1, 5, 3}, {1, 1, 1}, {1, 1, 1}, {0, 2, 1}},
    {1, 31, 33, 1, {1, 40, 9}, {1, 38, 7}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}},
    {2, 24, 100, 1, {1, 21, 22}, {1, 11, 8}, {1, 3, 3}, {1, 2, 3}, {1, 1, 1}, {0, 1, 1}},
    {5, 64, 256, 1, {1, 9, 17}, {1, 9, 17}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}},
    {2, 40, 1, 1, {1, 31, 18}, {1, 31, 18}, {1, 5, 4}, {1, 1, 1}, {1, 1, 1}, {0, 2, 1}},
    {2, 3, 40, 1, {1, 31, 18}, {1, 31, 18}, {1, 5, 4}, {1, 1, 1}, {1, 1, 1}, {0, 2, 1}},
    {2, 1, 32, 1, {5, 9, 18}, {3, 9, 18}, {3, 3, 4}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}},
    {2, 32, 2, 1, {5, 9, 18}, {3, 9, 18}, {3, 3, 4}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}},
};

/* Runs one direction as float, and as double by columns and products, and compares. With
 * `has_infinity` an image holds one. */
static void compare_with_double(enum conv_direction direction, const struct conv_shape *s,
                                bool has_infinity) {
    int64_t n[3] = {s->batch * conv_n_positions(s->in) * s->in_channels,
                    conv_n_positions(s->window) * s->in_channels * s->out_channels,
                    s->batch * conv_n_positions(s->out) * s->out_channels};
    float *plain[3];
    double *wide[3];
    uint32_t seed = 7;
    for (int i = 0; i < 3; i++) {
        plain[i] = xmalloc((size_t)n[i] * sizeof(float));
        wide[i] = xmalloc((size_t)n[i] * sizeof(double));
        for (int64_t e = 0; e < n[i]; e++) {
            seed = seed * 1664525u + 1013904223u;
            wide[i][e] = plain[i][e] = (float)(seed >> 8) * 0x1p-24f - 0.4f;
        }
        if (has_infinity && i == (direction == CONV_BACKPROP_INPUT ? 2 : 0))
            wide[i][n[i] / 2] = plain[i][n[i] / 2] = INFINITY;
    }
    int result = direction == CONV_FORWARD ? 2 : direction == CONV_BACKPROP_INPUT ? 0 : 1;
    struct kernel_instance instance = {.allocator = allocator_host()};
    struct kernel_ctx ctx = {.instance = &instance};
    assert_null(conv_run(&ctx, direction, s, DT_FLOAT,
                         &(struct conv_operands){plain[0], plain[1], plain[2], plain[result]}));
    assert_null(conv_by_gemm(&ctx, direction, s, DT_DOUBLE,
                             &(struct conv_operands){wide[0], wide[1], wide[2], wide[result]}));
    for (int64_t e = 0; e < n[result]; e++) {
        double x = plain[result][e], y = wide[result][e];
        if (!(isfinite(y) ? fabs(x - y) <= 1e-5 * (1 + fabs(y)) : isnan(y) ? isnan(x) : x == y))
            fail_msg("direction %d, channels %d to %d, element %d: %.9g, not %.9g", direction,
                     (int)s->in_channels, (int)s->out_channels, (int)e, x, y);
    }
    for (int i = 0; i < 3; i++) {
        free(plain[i]);
        free(wide[i]);
    }
}

static void test_large_convolutions_are_exact(void **state) {
    for (size_t i = 0; i < ARRAY_LEN(large); i++) {
        for (int direction = 0; direction < CONV_N_DIRECTIONS; direction++) {
            if (large[i].stride[2] == 1 || direction == CONV_FORWARD)
                compare_with_double((enum conv_direction)direction, &large[i], false);
        }
    }
}

/* No part of an infinity is a number, so such a convolution is computed by other means. */
static void test_infinities_are_convolved(void **state) {
    for (int direction = 0; direction < CONV_N_DIRECTIONS; direction++)
        compare_with_double((enum conv_direction)direction, &large[0], true);
}

/* ---- products ---- */

/* Sizes for our own loops, for matrix-vector products and for either library; rows of c lie
 * apart, what is between them stays. */
static void test_products_add_and_transpose(void **state) {
    enum { MAX_A = 37 * 300, MAX_B = 300 * 64, MAX_C = 37 * 310, GAP = 3 };
    static const struct {
        int m, n, k;
    } sizes[] = {{37, 300, 41}, {1, 300, 64}, {37, 1, 300}, {1, 1, 64}, {5, 4, 3}, {2, 300, 0}};
    static float a[MAX_A], b[MAX_B], c[MAX_C];
    static double da[MAX_A], db[MAX_B], dc[MAX_C];
    static int32_t ia[MAX_A], ib[MAX_B], ic[MAX_C];
    for (int i = 0; i < MAX_A; i++)
        da[i] = a[i] = (float)(ia[i] = i % 7 - 3);
    for (int i = 0; i < MAX_B; i++)
        db[i] = b[i] = (float)(ib[i] = i % 5 - 2);
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        int m = sizes[s].m, n = sizes[s].n, k = sizes[s].k;
        for (int form = 0; form < 8; form++) {
            struct matmul g = {.m = m,
                               .n = n,
                               .k = k,
                               .ldc = n + GAP,
                               .trans_a = form & 1,
                               .trans_b = form >> 1 & 1,
                               .adds = form >> 2};
            g.lda = g.trans_a ? m : MAX(k, 1);
            g.ldb = g.trans_b ? MAX(k, 1) : n;
            for (int i = 0; i < MAX_C; i++)
                dc[i] = c[i] = (float)(ic[i] = 1);
            g.a = a, g.b = b, g.c = c;
            matmul_run(DT_FLOAT, &g);
            g.a = da, g.b = db, g.c = dc;
            matmul_run(DT_DOUBLE, &g);
            g.a = ia, g.b = ib, g.c = ic;
            matmul_run(DT_INT32, &g);
            for (int i = 0; i < m * (n + GAP); i++) {
                int row = i / (n + GAP), column = i % (n + GAP), sum = g.adds || column >= n;
                for (int e = 0; column < n && e < k; e++)
                    sum += ia[g.trans_a ? e * m + row : row * k + e] *
                           ib[g.trans_b ? column * k + e : e * n + column];
                assert_int_equal(ic[i], sum);
                assert_true(c[i] == (float)sum && dc[i] == sum);
            }
        }
    }
}

/* ---- what TensorFlow does not survive ---- */

#define TENSOR_OF(name, text) name " = Const() {dtype=float, value=float" text "}\n"
#define ARGMAX_GRAD(index)                                                                         \
    TENSOR_OF("x", "[1,2,2,1]{1, 2, 3, 4}")                                                        \
    TENSOR_OF("g", "[1,1,1,1]{5}")                                                                 \
    "i = Const() {dtype=int64, value=int64[1,1,1,1]{" index "}}\n"                                 \
    "r = MaxPoolGradWithArgmax(x, g, i) {T=float, Targmax=int64, ksize=[1, 2, 2, 1], strides=[1, " \
    "2, 2, 1], padding=\"SAME\"}"

static void test_indices_outside_are_refused(void **state) {
    kernel_test_run(ARGMAX_GRAD("2"), "r", "float[1,2,2,1]{0, 0, 5, 0}");
    kernel_test_fails(ARGMAX_GRAD("4"), "r", STATUS_INVALID_ARGUMENT, "outside of the input");
    kernel_test_fails(ARGMAX_GRAD("-1"), "r", STATUS_INVALID_ARGUMENT, "outside of the input");
}

static void test_gradient_shapes_are_checked(void **state) {
    kernel_test_fails("s = Const() {dtype=int32, value=int32[4]{1, 4, 4, 1}}\n" TENSOR_OF(
                          "g", "[1,1,2,1]{1, 1}") "r = AvgPoolGrad(s, g) {T=float, ksize=[1, 2, 2, "
                                                  "1], strides=[1, 2, 2, 1], padding=\"SAME\"}",
                      "r", STATUS_INVALID_ARGUMENT,
                      "Expected grad shape to be [1,2,2,1], but got [1,1,2,1]");
    kernel_test_fails(
        "s = Const() {dtype=int32, value=int32[4]{1, 4, -4, 1}}\n" TENSOR_OF(
            "g", "[1,2,2,1]{1, 1, 1, 1}") "r = AvgPoolGrad(s, g) {T=float, ksize=[1, 2, 2, 1], "
                                          "strides=[1, 2, 2, 1], padding=\"SAME\"}",
        "r", STATUS_INVALID_ARGUMENT, "");
    kernel_test_fails(TENSOR_OF("x", "[1,2,2,1]{1, 2, 3, 4}") TENSOR_OF(
                          "y", "[1,1,1,1]{4}") "r = MaxPoolGrad(x, y, y) {T=float, ksize=[1, 0, 2, "
                                               "1], strides=[1, 2, 2, 1], padding=\"SAME\"}",
                      "r", STATUS_INVALID_ARGUMENT, "must be larger than 0");
}

#define SEQUENCE(length)                                                         \
    "n = Const() {dtype=int64, value=int64[]{" length                            \
    "}}\n" TENSOR_OF("x", "[2,1,1]{1, 1}") TENSOR_OF("h", "[1,1]{0}")            \
        TENSOR_OF("w", "[2,4]{0, 0, 0, 0, 0, 0, 0, 0}") TENSOR_OF("p", "[1]{0}") \
            TENSOR_OF("b", "[4]{0, 0, 0, 0}") "r = BlockLSTM(n, x, h, h, w, p, p, p, b) {T=float}"

static void test_sequence_lengths_are_checked(void **state) {
    kernel_test_run(SEQUENCE("1"), "r:0", "float[2,1,1]{0.5, 0}"); /* zeros after the end */
    kernel_test_fails(SEQUENCE("3"), "r:0", STATUS_INVALID_ARGUMENT,
                      "seq_len_max 3 is not in [0, 2]");
    kernel_test_fails(SEQUENCE("-1"), "r:0", STATUS_INVALID_ARGUMENT, "seq_len_max");
}

static void test_products_of_sizes_do_not_overflow(void **state) {
    kernel_test_fails("s = Const() {dtype=int32, value=int32[4]{1, 2147483647, 2147483647, "
                      "2147483647}}\n" TENSOR_OF("f", "[1,1,2147483647,0]{}") TENSOR_OF(
                          "g", "[1,1,1,0]{}") "r = Conv2DBackpropInput(s, f, g) {T=float, "
                                              "strides=[1, 1, 1, 1], padding=\"SAME\"}",
                      "r", STATUS_INVALID_ARGUMENT, "");
    kernel_test_fails(TENSOR_OF("x", "[1,1,1,1]{1}") TENSOR_OF(
                          "f", "[1,1,1,1]{1}") "r = Conv2D(x, f) {T=float, strides=[1, 1, 1, 1], "
                                               "padding=\"EXPLICIT\", "
                                               "explicit_paddings=[0, 0, 4611686018427387904, "
                                               "4611686018427387904, 0, 0, 0, 0]}",
                      "r", STATUS_INVALID_ARGUMENT, "too large");
}

/* ---- deprecated ops, which TensorFlow's client makes no longer ---- */

static void test_global_normalization(void **state) {
    kernel_test_run(TENSOR_OF("t", "[1,1,2,1]{3, 7}") TENSOR_OF("m", "[1]{1}")
                        TENSOR_OF("v", "[1]{3}") TENSOR_OF("b", "[1]{10}")
                            TENSOR_OF("g", "[1]{4}") "r = BatchNormWithGlobalNormalization(t, m, "
                                                     "v, b, g) {T=float, variance_epsilon=1, "
                                                     "scale_after_normalization=true}",
                    "r", "float[1,1,2,1]{14, 22}");
    const char *gradient = TENSOR_OF("t", "[1,1,2,1]{3, 7}") TENSOR_OF("m", "[1]{1}")
        TENSOR_OF("v", "[1]{3}") TENSOR_OF("g", "[1]{4}")
            TENSOR_OF("d", "[1,1,2,1]{1, 2}") "r = BatchNormWithGlobalNormalizationGrad(t, m, v, "
                                              "g, d) {T=float, variance_epsilon=1, "
                                              "scale_after_normalization=true}";
    kernel_test_run(gradient, "r:0", "float[1,1,2,1]{2, 4}");
    kernel_test_run(gradient, "r:1", "float[1]{-6}");
    kernel_test_run(gradient, "r:2", "float[1]{-3.5}"); /* -½ · ⅛ · (1·2 + 2·6) · 4 */
    kernel_test_run(gradient, "r:3", "float[1]{3}");
    kernel_test_run(gradient, "r:4", "float[1]{7}");
}

/* TensorFlow's regions for these seeds, in every execution of the node. */
static void test_deterministic_regions_stay(void **state) {
    static const struct {
        const char *pseudo_random, *rows, *columns;
    } kinds[] = {
        {"false", "int64[7]{0, 1, 3, 4, 6, 8, 10}", "int64[6]{0, 1, 2, 4, 5, 7}"},
        {"true", "int64[7]{0, 2, 4, 5, 7, 9, 10}", "int64[6]{0, 2, 3, 5, 6, 7}"},
    };
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        char graph[1024];
        snprintf(graph, sizeof(graph),
                 "d = Const() {dtype=int32, value=int32[4]{1, 10, 7, 1}}\n"
                 "v = Const() {dtype=float, value=float[]{1}}\n"
                 "x = Fill(d, v) {T=float, index_type=int32}\n"
                 "r = FractionalAvgPool(x) {T=float, pooling_ratio=[1.0, 1.5, 1.4, 1.0], "
                 "pseudo_random=%s, overlapping=false, deterministic=true, seed=5, seed2=7}",
                 kinds[i].pseudo_random);
        const struct kernel_test_step steps[] = {
            {NULL, "r:1", kinds[i].rows},
            {NULL, "r:1", kinds[i].rows},
            {NULL, "r:2", kinds[i].columns},
        };
        kernel_test_steps(graph, steps, ARRAY_LEN(steps));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_results_do_not_depend_on_the_pool),
        cmocka_unit_test(test_large_convolutions_are_exact),
        cmocka_unit_test(test_infinities_are_convolved),
        cmocka_unit_test(test_products_add_and_transpose),
        cmocka_unit_test(test_indices_outside_are_refused),
        cmocka_unit_test(test_gradient_shapes_are_checked),
        cmocka_unit_test(test_sequence_lengths_are_checked),
        cmocka_unit_test(test_products_of_sizes_do_not_overflow),
        cmocka_unit_test(test_global_normalization),
        cmocka_unit_test(test_deterministic_regions_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
