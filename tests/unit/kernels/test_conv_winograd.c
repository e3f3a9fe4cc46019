/* Convolutions by tiles: as exact as sums of floats in order, up to a factor, whatever is at the
 * border; the same on any number of threads; refused where a value is not finite. */
#include "kernels/cpu/nn/conv_winograd.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/pool.h"
#include "kernels/cpu/nn/conv.h"
#include "kernels/support/isa.h"

/* batch, channels in and out, groups, in, out, window, stride, rate, pad_before */
static const struct conv_shape suitable[] = {
    {8, 16, 16, 1, {1, 32, 32}, {1, 32, 32}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}},
    {9, 32, 48, 1, {1, 17, 14}, {1, 15, 12}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}},
    {40, 64, 64, 1, {1, 8, 7}, {1, 8, 7}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}},
    {3, 16, 32, 1, {1, 21, 90}, {1, 23, 91}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 2, 1}},
    {5, 48, 16, 1, {1, 14, 14}, {1, 14, 14}, {1, 5, 5}, {1, 1, 1}, {1, 1, 1}, {0, 2, 2}},
    {4, 32, 64, 1, {1, 15, 13}, {1, 13, 11}, {1, 5, 5}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}},
};

struct operands {
    int64_t n[3];
    float *data[3]; /* in, filter, out */
};

static uint32_t seed = 7;
static float draw(void) {
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) * 0x1p-23f - 1;
}

static void operands_init(struct operands *o, const struct conv_shape *s) {
    o->n[0] = s->batch * conv_n_positions(s->in) * s->in_channels;
    o->n[1] = conv_n_positions(s->window) * s->in_channels * s->out_channels;
    o->n[2] = s->batch * conv_n_positions(s->out) * s->out_channels;
    for (int i = 0; i < 3; i++) {
        o->data[i] = xmalloc((size_t)o->n[i] * sizeof(float));
        for (int64_t e = 0; e < o->n[i]; e++)
            o->data[i][e] = draw();
    }
}

static void operands_fini(struct operands *o) {
    for (int i = 0; i < 3; i++)
        free(o->data[i]);
}

static int result_of(enum conv_direction direction) {
    return direction == CONV_FORWARD ? 2 : direction == CONV_BACKPROP_INPUT ? 0 : 1;
}

static bool run(enum conv_direction direction, const struct conv_shape *s, const struct operands *o,
                struct pool *pool, const struct kernel_epilogue *epilogue, float *result) {
    struct kernel_instance instance = {.allocator = allocator_host()};
    struct kernel_ctx ctx = {.instance = &instance, .pool = pool, .epilogue = epilogue};
    const struct conv_operands operands = {o->data[0], o->data[1], o->data[2], result,
                                           epilogue != NULL};
    bool is_done;
    assert_null(conv_by_winograd(&ctx, direction, s, &operands, &is_done));
    return is_done;
}

static bool has_loops(void) { return cpu_has_avx2() || cpu_has_avx512(); }

/* ---- exactness ---- */

/* The convolution from its definition, summed in order: as double and as float. */
static void convolve(enum conv_direction direction, const struct conv_shape *s,
                     const struct operands *o, double *exact, float *ordered) {
    int64_t n_taps = s->window[1] * s->window[2], c = s->in_channels, k = s->out_channels;
    const float *in = o->data[0], *filter = o->data[1], *out = o->data[2];
    for (int64_t p = 0; p < s->batch * s->out[1] * s->out[2]; p++) {
        int64_t image = p / (s->out[1] * s->out[2]), y = p / s->out[2] % s->out[1],
                x = p % s->out[2];
        for (int64_t t = 0; t < n_taps; t++) {
            int64_t row = y + t / s->window[2] - s->pad_before[1],
                    column = x + t % s->window[2] - s->pad_before[2];
            if (row < 0 || row >= s->in[1] || column < 0 || column >= s->in[2])
                continue;
            int64_t at = ((image * s->in[1] + row) * s->in[2] + column) * c;
            for (int64_t i = 0; i < c; i++)
                for (int64_t j = 0; j < k; j++) {
                    int64_t f = (t * c + i) * k + j, to = p * k + j;
                    float a = direction == CONV_BACKPROP_INPUT ? out[to] : in[at + i],
                          b = direction == CONV_BACKPROP_FILTER ? out[to] : filter[f];
                    int64_t e = direction == CONV_FORWARD          ? to
                                : direction == CONV_BACKPROP_INPUT ? at + i
                                                                   : f;
                    exact[e] += (double)a * (double)b;
                    ordered[e] += a * b;
                }
        }
    }
}

static void compare(enum conv_direction direction, const struct conv_shape *s) {
    struct operands o;
    operands_init(&o, s);
    int64_t n = o.n[result_of(direction)];
    double *exact = xcalloc((size_t)n, sizeof(*exact)), error = 0, ordered_error = 0;
    float *ordered = xcalloc((size_t)n, sizeof(*ordered)),
          *ours = xmalloc((size_t)n * sizeof(*ours));
    convolve(direction, s, &o, exact, ordered);
    memset(ours, 0xff, (size_t)n * sizeof(*ours)); /* NaN: every element must be written */
    assert_true(run(direction, s, &o, NULL, NULL, ours));
    for (int64_t e = 0; e < n; e++) {
        assert_true(isfinite(ours[e]));
        error = MAX(error, fabs((double)ours[e] - exact[e]));
        ordered_error = MAX(ordered_error, fabs((double)ordered[e] - exact[e]));
    }
    print_message("window %d, channels %d to %d, direction %d: error %.2g, of ordered sums %.2g\n",
                  (int)s->window[1], (int)s->in_channels, (int)s->out_channels, direction, error,
                  ordered_error);
    assert_true(error <= 4 * ordered_error);
    free(exact);
    free(ordered);
    free(ours);
    operands_fini(&o);
}

static void test_errors_are_those_of_ordered_sums(void **state) {
    if (!has_loops())
        skip();
    for (size_t i = 0; i < ARRAY_LEN(suitable); i++)
        for (int direction = 0; direction < CONV_N_DIRECTIONS; direction++)
            compare((enum conv_direction)direction, &suitable[i]);
}

/* ---- the loops of each instruction set ---- */

enum { CHANNELS = WINOGRAD_CHANNELS, PLANE = CHANNELS * CHANNELS };

/* One tile: the result has side x side pixels, each of which is a sum over the window. */
static void check_tile(const struct winograd_loops *loops, int window) {
    static float image[WINOGRAD_PLANES][CHANNELS], filter[25][CHANNELS][CHANNELS];
    static float cut[WINOGRAD_PLANES * PLANE], cut_filter[WINOGRAD_PLANES * PLANE],
        products[WINOGRAD_PLANES * PLANE];
    int side = WINOGRAD_SIDE + 1 - window;
    float result[WINOGRAD_MAX_OUT * WINOGRAD_MAX_OUT][CHANNELS];
    const float *in[WINOGRAD_PLANES];
    float *out[WINOGRAD_MAX_OUT * WINOGRAD_MAX_OUT];
    for (int i = 0; i < WINOGRAD_PLANES; i++) {
        in[i] = image[i];
        for (int c = 0; c < CHANNELS; c++)
            image[i][c] = draw();
    }
    for (int i = 0; i < window * window * PLANE; i++)
        (&filter[0][0][0])[i] = draw();
    for (int i = 0; i < side * side; i++)
        out[i] = i == 1 ? NULL : result[i];
    loops->cut(in, CHANNELS, cut, PLANE);
    loops->cut_filter(&filter[0][0][0], window, PLANE, cut_filter, PLANE);
    for (int p = 0; p < WINOGRAD_PLANES; p++)
        loops->multiply(&(struct winograd_product){cut + p * PLANE, cut_filter + p * PLANE,
                                                   products + p * PLANE, CHANNELS, 1, CHANNELS,
                                                   CHANNELS, 1, CHANNELS, CHANNELS, false});
    assert_true(loops->join(products, PLANE, side, CHANNELS, out));
    for (int i = 0; i < side * side * CHANNELS; i++) {
        int p = i / CHANNELS, o = i % CHANNELS;
        double sum = 0;
        for (int t = 0; t < window * window; t++)
            for (int c = 0; c < CHANNELS; c++) {
                int at = (p / side + t / window) * WINOGRAD_SIDE + p % side + t % window;
                sum += (double)image[at][c] * (double)filter[t][c][o];
            }
        assert_true(p == 1 || fabs(result[p][o] - sum) < 2e-5);
    }
}

static void test_tiles_are_right_by_every_instruction_set(void **state) {
    if (!has_loops())
        skip();
#if HAS_AVX2_FILES
    for (int window = 3; window <= 5; window += 2) {
        if (cpu_has_avx512())
            check_tile(&winograd_loops_avx512, window);
        check_tile(&winograd_loops_avx2, window);
    }
#endif
}

/* Any number of rows: blocks of them, and what is left. */
static void check_product(const struct winograd_loops *loops, int64_t m, int64_t n, bool adds) {
    enum { MOST = 48, K = 5 };
    static float a[MOST * K], b[K * MOST], c[MOST * MOST], before[MOST * MOST];
    for (int i = 0; i < MOST * K; i++)
        a[i] = (float)(i % 7 - 3), b[i] = (float)(i % 5 - 2);
    for (int i = 0; i < MOST * MOST; i++)
        before[i] = c[i] = (float)(i % 3);
    for (int is_by_k = 0; is_by_k < 2; is_by_k++) {
        memcpy(c, before, sizeof(c));
        loops->multiply(&(struct winograd_product){.a = a,
                                                   .b = b,
                                                   .c = c,
                                                   .a_row = is_by_k ? 1 : K,
                                                   .a_step = is_by_k ? m : 1,
                                                   .b_step = n,
                                                   .c_row = n,
                                                   .m = m,
                                                   .n = n,
                                                   .k = K,
                                                   .adds = adds});
        for (int64_t i = 0; i < MOST * MOST; i++) {
            float sum = i < m * n && !adds ? 0 : before[i];
            for (int64_t k = 0; i < m * n && k < K; k++)
                sum += a[is_by_k ? k * m + i / n : i / n * K + k] * b[k * n + i % n];
            assert_true(c[i] == sum);
        }
    }
}

static void test_products_have_any_number_of_rows(void **state) {
    if (!has_loops())
        skip();
#if HAS_AVX2_FILES
    for (int64_t m = 1; m <= 27; m++)
        for (int64_t n = 16; n <= 48; n += 16)
            for (int adds = 0; adds < 2; adds++) {
                if (cpu_has_avx512())
                    check_product(&winograd_loops_avx512, m, n, adds);
                check_product(&winograd_loops_avx2, m, n, adds);
            }
#endif
}

/* ---- threads, and what is behind the product ---- */

static void test_results_do_not_depend_on_threads(void **state) {
    if (!has_loops())
        skip();
    struct pool *pool = pool_new(4);
    for (size_t i = 0; i < ARRAY_LEN(suitable); i++)
        for (int direction = 0; direction < CONV_N_DIRECTIONS; direction++) {
            struct operands o;
            operands_init(&o, &suitable[i]);
            int64_t n = o.n[result_of((enum conv_direction)direction)];
            float *alone = xmalloc((size_t)n * sizeof(*alone)),
                  *shared = xmalloc((size_t)n * sizeof(*shared));
            assert_true(run((enum conv_direction)direction, &suitable[i], &o, NULL, NULL, alone));
            assert_true(run((enum conv_direction)direction, &suitable[i], &o, pool, NULL, shared));
            assert_memory_equal(alone, shared, (size_t)n * sizeof(*alone));
            free(alone);
            free(shared);
            operands_fini(&o);
        }
    pool_free(pool);
}

static int *n_taken; /* by element */
static void take(const struct kernel_ctx *ctx, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++)
        n_taken[i]++;
}

static void test_every_element_is_handed_over_once(void **state) {
    static const struct kernel_epilogue epilogue = {.take = take};
    if (!has_loops())
        skip();
    for (size_t i = 0; i < ARRAY_LEN(suitable); i++) {
        struct operands o;
        operands_init(&o, &suitable[i]);
        n_taken = xcalloc((size_t)o.n[2], sizeof(*n_taken));
        assert_true(run(CONV_FORWARD, &suitable[i], &o, NULL, &epilogue, o.data[2]));
        for (int64_t e = 0; e < o.n[2]; e++)
            assert_int_equal(n_taken[e], 1);
        free(n_taken);
        operands_fini(&o);
    }
}

/* ---- what is refused ---- */

static void test_values_that_are_not_finite_are_refused(void **state) {
    static const float values[] = {INFINITY, -INFINITY, NAN, 3e38f};
    if (!has_loops())
        skip();
    for (size_t v = 0; v < ARRAY_LEN(values); v++)
        for (int direction = 0; direction < CONV_N_DIRECTIONS; direction++) {
            struct operands o;
            operands_init(&o, &suitable[1]);
            int read = direction == CONV_BACKPROP_INPUT ? 2 : 0,
                result = result_of((enum conv_direction)direction);
            for (int64_t e = 0; e < o.n[read]; e += 1237)
                o.data[read][e] = values[v];
            assert_false(
                run((enum conv_direction)direction, &suitable[1], &o, NULL, NULL, o.data[result]));
            operands_fini(&o);
        }
}

static void test_other_shapes_are_refused(void **state) {
    struct conv_shape refused[12];
    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        refused[i] = suitable[0];
    refused[0].stride[1] = 2;
    refused[1].rate[2] = 2;
    refused[2].groups = 2;
    refused[3].in_channels = 17;
    refused[4].out_channels = 24;
    refused[5].window[2] = 5;
    refused[6].window[1] = refused[6].window[2] = 4;
    refused[7].window[0] = refused[7].in[0] = 3;
    refused[8].out_channels = 272;
    refused[9].batch = 1; /* too small to repay the filter's part */
    refused[10].in[1] = refused[10].in[2] = refused[10].out[1] = refused[10].out[2] = 1;
    refused[11].in[1] = refused[11].out[1] = 1; /* a row: tiles would be mostly empty */
    refused[11].batch = refused[10].batch = 1000;
    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        for (int direction = 0; direction < CONV_N_DIRECTIONS; direction++)
            assert_false(run((enum conv_direction)direction, &refused[i],
                             &(struct operands){.n = {0}}, NULL, NULL, NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_errors_are_those_of_ordered_sums),
        cmocka_unit_test(test_tiles_are_right_by_every_instruction_set),
        cmocka_unit_test(test_products_have_any_number_of_rows),
        cmocka_unit_test(test_results_do_not_depend_on_threads),
        cmocka_unit_test(test_every_element_is_handed_over_once),
        cmocka_unit_test(test_values_that_are_not_finite_are_refused),
        cmocka_unit_test(test_other_shapes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
