/* Convolutions in pieces: the pieces' results are those of the whole. */
#include "kernels/cpu/nn/conv_split.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { MAX_ELEMENTS = 4096, N_SHAPES = 4000 };

/* Adds the convolution of integers of one shape, from its definition. Channels are one. */
static void convolve(enum conv_direction direction, const struct conv_shape *s, int64_t *in,
                     int64_t *filter, int64_t *out) {
    int64_t n_in = conv_n_positions(s->in), n_out = conv_n_positions(s->out),
            n_window = conv_n_positions(s->window);
    for (int64_t i = 0; i < s->batch * n_out * n_window; i++) {
        int64_t image = i / n_window / n_out, p = i / n_window % n_out, w = i % n_window, at = 0;
        int64_t rest_p = p, rest_w = w, place[3];
        bool is_inside = true;
        for (int d = 2; d >= 0; d--) {
            place[d] = rest_p % s->out[d] * s->stride[d] + rest_w % s->window[d] * s->rate[d] -
                       s->pad_before[d];
            is_inside &= place[d] >= 0 && place[d] < s->in[d];
            rest_p /= s->out[d], rest_w /= s->window[d];
        }
        if (!is_inside)
            continue;
        for (int d = 0; d < 3; d++)
            at = at * s->in[d] + place[d];
        int64_t *x = &in[image * n_in + at], *y = &out[image * n_out + p], *f = &filter[w];
        if (direction == CONV_FORWARD)
            *y += *x * *f;
        else if (direction == CONV_BACKPROP_INPUT)
            *x += *y * *f;
        else
            *f += *x * *y;
    }
}

static uint32_t seed = 1;
static int64_t draw(int64_t n) {
    seed = seed * 1664525u + 1013904223u;
    return (int64_t)((seed >> 8) % (uint32_t)n);
}

static struct conv_shape draw_shape(void) {
    struct conv_shape s = {.batch = 1 + draw(6), .in_channels = 1, .out_channels = 1, .groups = 1};
    int first = (int)draw(3);
    for (int d = 0; d < 3; d++) {
        bool has_size = d >= first;
        s.in[d] = has_size ? 1 + draw(12) : 1;
        s.window[d] = has_size ? 1 + draw(4) : 1;
        s.stride[d] = has_size ? 1 + draw(3) : 1;
        s.rate[d] = has_size ? 1 + draw(2) : 1;
        int64_t reach = (s.window[d] - 1) * s.rate[d];
        s.pad_before[d] = draw(reach + 1);
        int64_t after = draw(reach + 1);
        s.in[d] = MAX(s.in[d], reach + 1 - s.pad_before[d] - after);
        s.out[d] = (s.in[d] + s.pad_before[d] + after - reach - 1) / s.stride[d] + 1;
    }
    return s;
}

static void fill(int64_t *to) {
    for (int i = 0; i < MAX_ELEMENTS * 4; i++)
        to[i] = draw(100);
}

static void pieces_are_the_whole(void **state) {
    static int64_t in[2][MAX_ELEMENTS * 4], filter[2][MAX_ELEMENTS * 4], out[2][MAX_ELEMENTS * 4];
    static struct conv_split split;
    int n_banded = 0;
    for (int i = 0; i < N_SHAPES; i++) {
        struct conv_shape s = draw_shape();
        enum conv_direction direction = (enum conv_direction)draw(CONV_N_DIRECTIONS);
        int64_t n_in = conv_n_positions(s.in), n_out = conv_n_positions(s.out);
        if (s.batch * MAX(n_in, n_out) > MAX_ELEMENTS * 4)
            continue;
        fill(in[0]), fill(filter[0]), fill(out[0]);
        int64_t(*result)[MAX_ELEMENTS * 4] = direction == CONV_FORWARD          ? out
                                             : direction == CONV_BACKPROP_INPUT ? in
                                                                                : filter;
        memset(result[0], 0, sizeof(result[0]));
        memcpy(in[1], in[0], sizeof(in[0]));
        memcpy(filter[1], filter[0], sizeof(in[0]));
        memcpy(out[1], out[0], sizeof(in[0]));
        convolve(direction, &s, in[0], filter[0], out[0]);
        conv_split(direction, &s, conv_n_multiplications(&s) / (double)(1 + draw(20)), &split);
        assert_int_equal(split.images * split.n_groups, s.batch);
        for (int64_t piece = 0; piece < split.n_groups * split.n_bands; piece++) {
            const struct conv_band *band = &split.bands[piece % split.n_bands];
            int64_t image = piece / split.n_bands * split.images;
            convolve(direction, &band->shape,
                     in[1] + image * n_in + band->in_row * split.in_row_elements, filter[1],
                     out[1] + image * n_out + band->out_row * split.out_row_elements);
        }
        n_banded += split.n_bands > 1;
        assert_memory_equal(result[0], result[1], sizeof(result[0]));
    }
    assert_true(n_banded > N_SHAPES / 20);
}

static void a_small_share_is_one_piece(void **state) {
    struct conv_shape s = {.batch = 4,
                           .in_channels = 2,
                           .out_channels = 2,
                           .groups = 1,
                           .in = {1, 9, 9},
                           .out = {1, 9, 9},
                           .window = {1, 3, 3},
                           .stride = {1, 1, 1},
                           .rate = {1, 1, 1},
                           .pad_before = {0, 1, 1}};
    struct conv_split split;
    conv_split(CONV_FORWARD, &s, conv_n_multiplications(&s) / 2, &split);
    assert_int_equal(split.images, 4);
    assert_int_equal(split.n_groups * split.n_bands, 1);
    assert_memory_equal(&split.bands[0].shape, &s, sizeof(s));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_the_whole),
        cmocka_unit_test(a_small_share_is_one_piece),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
