/* The index arithmetic of GPU kernels beyond 2^31 elements, on the host and without the elements:
 * every function gets numbers, and gives numbers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <initializer_list>

extern "C" {
#include <cmocka.h>
}

#include "kernels/cuda/ops/division.h"
#include "kernels/cuda/ops/elementwise_forms.h"
#include "kernels/cuda/ops/moves.h"
#include "kernels/cuda/ops/picks.h"

/* What a kernel of the simulated device reads. */
static sim_thread_view view;
extern "C" {
sim_thread_view *sim_thread = &view;
uint3 sim_block, sim_block_size = {256, 1, 1}, sim_grid_size;
}

static const int64_t GI = (int64_t)1 << 30; /* 2^30 */

static void threads_of_large_grids_have_their_own_numbers(void **) {
    sim_grid_size = {0x7fffffffu, 1, 1};
    sim_block = {0x7ffffffeu, 0, 0};
    view.index = {255, 0, 0};
    assert_int_equal(gpu_thread(), (2 * GI - 1) * 256 - 1);
    assert_int_equal(gpu_n_threads(), (2 * GI - 1) * 256);
}

static void quotients_are_exact_on_both_sides_of_the_limit(void **) {
    static const int64_t values[] = {1, 2, 3, 7, 640, 65537, 2 * GI - 1, 2 * GI, 3 * GI + 1},
                         limits[] = {2 * GI - 1, 2 * GI, 2 * GI + 1, 9 * GI};
    for (int64_t value : values)
        for (int64_t limit : limits) {
            gpu_divisor divisor = gpu_divisor_of(value, limit);
            for (int64_t n : {(int64_t)0, value - 1, value, limit / 2, limit - 2, limit - 1})
                if (n >= 0 && n < limit)
                    assert_int_equal(gpu_divide(divisor, n), n / value);
        }
}

static void indices_are_divided_in_as_many_bits_as_they_need(void **) {
    for (int64_t e : {4 * GI - 1, 4 * GI, 4 * GI + 1, 900 * GI + 77})
        for (int64_t by : {(int64_t)1, (int64_t)3, 2 * GI + 1, 4 * GI, 5 * GI}) {
            int64_t rest, quotient = pick_divide(e, by, &rest);
            assert_int_equal(quotient, e / by);
            assert_int_equal(rest, e % by);
        }
}

/* Rows of a tensor [3, 2^31 + 5, 2], and what is out of range. */
static void slices_of_large_tensors_are_found(void **) {
    static const int64_t indices[] = {2, 2 * GI + 4, 0, 3, 1, -1, 1, 2 * GI + 5};
    pick_slices slices = {};
    slices.indices = indices;
    slices.index = PICK_INT64;
    slices.depth = 2;
    slices.n_rows = 4;
    slices.dims[0] = 3;
    slices.dims[1] = 2 * GI + 5;
    assert_int_equal(pick_slice(slices, 0), 2 * (2 * GI + 5) + 2 * GI + 4);
    assert_int_equal(pick_slice(slices, 1), 3);
    assert_int_equal(pick_slice(slices, 2), -1);
    assert_int_equal(pick_slice(slices, 3), -1);
    slices.wraps = 1;
    assert_int_equal(pick_slice(slices, 2), (2 * GI + 5) * 2 - 1);
    assert_int_equal(pick_slice(slices, 3), 2 * GI + 5);
}

/* A transpose of [70000, 65536, 3], whose last elements are far apart. */
static void elements_of_large_copies_are_found(void **) {
    move_loops loops = {};
    loops.n_loops = 3;
    const int64_t dims[] = {65536, 70000, 3}, from[] = {3, 3 * 65536, 1}, to[] = {210000, 3, 1};
    for (int d = 0; d < 3; d++) {
        loops.dims[d] = dims[d];
        loops.from_strides[d] = from[d];
        loops.to_strides[d] = to[d];
    }
    const uint64_t n = (uint64_t)65536 * 70000 * 3;
    move_place last = move_find<uint64_t>(loops, n - 1);
    assert_int_equal(last.from, n - 1);
    assert_int_equal(last.to, n - 1);
    move_place other = move_find<uint64_t>(loops, n - 210000);
    assert_int_equal(other.from, (int64_t)65535 * 3);
    assert_int_equal(other.to, (int64_t)65535 * 210000);
    /* few elements that are far apart need 32 bits for their number, and 64 for their place */
    loops.n_loops = 2;
    loops.from_strides[0] = 9 * GI;
    move_place few = move_find<uint32_t>(loops, 5 * 70000 + 1);
    assert_int_equal(few.from, 45 * GI + from[1]);
}

/* A [3, 2^31 + 1] result of operands [3, 1] and [2^31 + 1]. */
static void operands_of_large_broadcasts_are_found(void **) {
    elementwise_args args = {};
    const int64_t n_cols = 2 * GI + 1;
    args.rank = 2;
    args.dims[0] = gpu_divisor_of(3, 3 * n_cols);
    args.dims[1] = gpu_divisor_of(n_cols, 3 * n_cols);
    args.strides[0][0] = args.strides[1][1] = 1;
    int64_t offsets[2];
    elementwise_seek<2>(args, 3 * n_cols - 1, offsets);
    assert_int_equal(offsets[0], 2);
    assert_int_equal(offsets[1], n_cols - 1);
    elementwise_seek<2>(args, n_cols, offsets);
    assert_int_equal(offsets[0], 1);
    assert_int_equal(offsets[1], 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_of_large_grids_have_their_own_numbers),
        cmocka_unit_test(quotients_are_exact_on_both_sides_of_the_limit),
        cmocka_unit_test(indices_are_divided_in_as_many_bits_as_they_need),
        cmocka_unit_test(slices_of_large_tensors_are_found),
        cmocka_unit_test(elements_of_large_copies_are_found),
        cmocka_unit_test(operands_of_large_broadcasts_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
