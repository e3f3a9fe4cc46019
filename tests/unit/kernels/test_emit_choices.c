/* Compiled choices by comparisons: more masks than there are registers for masks, masks that choose
 * more than once, and masks that also are operands of other operations. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/base.h"
#include "kernels/cpu/emit/emit_internal.h"

enum { N = 300, N_VECTORS = 4, N_MASKS = 8 };

static bool is_skipped(void) {
    if (!emit_is_on())
        print_message("skipped: this processor has no AVX2, or the system refuses\n");
    return !emit_is_on();
}

/* A run of floats, or of integers of 8 bytes, which is made instruction by instruction. */
struct made_run {
    enum dtype dtype, types[N_VECTORS];
    struct emit_instruction instructions[EMIT_MAX_INSTRUCTIONS];
    int numbers[EMIT_MAX_INSTRUCTIONS][3], n;
};

static int add(struct made_run *run, const char *op, enum dtype in, enum dtype out, int a, int b,
               int c) {
    int k = run->n++;
    int n_operands = (a >= 0) + (b >= 0) + (c >= 0);
    run->numbers[k][0] = a;
    run->numbers[k][1] = b;
    run->numbers[k][2] = c;
    run->instructions[k] =
        (struct emit_instruction){emit_row_find(op, in, out), in, out, run->numbers[k], n_operands};
    assert_non_null(run->instructions[k].row);
    return N_VECTORS + k;
}
static int compare(struct made_run *run, const char *op, int a, int b) {
    return add(run, op, run->dtype, DT_BOOL, a, b, -1);
}
static int choose(struct made_run *run, int mask, int yes, int no) {
    return add(run, "SelectV2", run->dtype, run->dtype, mask, yes, no);
}
static int sum(struct made_run *run, int a, int b) {
    return add(run, "AddV2", run->dtype, run->dtype, a, b, -1);
}

static struct emit_code *code_of(const struct made_run *made) {
    int result = made->n - 1;
    struct emit_run run = {made->types, 0, N_VECTORS, made->instructions, made->n, &result, 1};
    struct emit_code *code = emit_code_new(&run);
    assert_non_null(code);
    return code;
}

/* Small numbers, so that sums of floats are exact. */
static int64_t number_at(int vector, int64_t i) { return (i * (vector + 3) * 7919) % 37 - 18; }

static void check(const struct made_run *run, int64_t (*expected)(const int64_t *x)) {
    static char memory[N_VECTORS + 1][N * 8] __attribute__((aligned(8)));
    bool is_float = run->dtype == DT_FLOAT;
    void *pointers[N_VECTORS + 1];
    struct emit_code *code = code_of(run);
    for (int v = 0; v <= N_VECTORS; v++)
        pointers[v] = memory[v];
    for (int64_t n = 1; n <= N; n++) {
        for (int v = 0; v < N_VECTORS; v++)
            for (int64_t i = 0; i < n; i++) {
                if (is_float)
                    ((float *)pointers[v])[i] = (float)number_at(v, i);
                else
                    ((int64_t *)pointers[v])[i] = number_at(v, i);
            }
        emit_code_run(code, pointers, n);
        for (int64_t i = 0; i < n; i++) {
            int64_t x[N_VECTORS], made;
            for (int v = 0; v < N_VECTORS; v++)
                x[v] = number_at(v, i);
            made = is_float ? (int64_t)((float *)pointers[N_VECTORS])[i]
                            : ((int64_t *)pointers[N_VECTORS])[i];
            assert_int_equal(made, expected(x));
        }
    }
    emit_code_free(code);
}

/* Of both dtypes, with vectors of 256 and of 512 bits. */
static void check_all(void (*make)(struct made_run *run), int64_t (*expected)(const int64_t *x)) {
    for (int i = 0; i < 4 && !is_skipped(); i++) {
        struct made_run run = {.dtype = i & 1 ? DT_FLOAT : DT_INT64};
        for (int v = 0; v < N_VECTORS; v++)
            run.types[v] = run.dtype;
        make(&run);
        emit_set_wide(i & 2);
        check(&run, expected);
        emit_set_wide(true);
    }
}

/* All masks are alive before the first one chooses. */
static void make_many_masks(struct made_run *run) {
    static const char *const ops[] = {"Less", "Greater"};
    int masks[N_MASKS], total;
    for (int k = 0; k < N_MASKS; k++)
        masks[k] = compare(run, ops[k / 4], k % 4, (k + 1) % 4);
    total = choose(run, masks[0], 0, 1);
    for (int k = 1; k < N_MASKS; k++)
        total = sum(run, total, choose(run, masks[k], k % 4, (k + 2) % 4));
}
static int64_t sum_of_many_choices(const int64_t *x) {
    int64_t total = x[0] < x[1] ? x[0] : x[1];
    for (int k = 1; k < N_MASKS; k++) {
        int64_t a = x[k % 4], b = x[(k + 1) % 4];
        total += (k < 4 ? a < b : a > b) ? x[k % 4] : x[(k + 2) % 4];
    }
    return total;
}

static void test_more_masks_than_registers(void **state) {
    check_all(make_many_masks, sum_of_many_choices);
}

/* One mask chooses three times, once between two equal values. Another one is also a number. */
static void make_masks_of_two_uses(struct made_run *run) {
    int less = compare(run, "Less", 0, 1), equal = compare(run, "Equal", 2, 3);
    int both = add(run, "LogicalOr", DT_BOOL, DT_BOOL, less, equal, -1);
    int greater = compare(run, "Greater", 1, 2), first = choose(run, greater, 0, 1);
    int second = choose(run, greater, first, 2), same = choose(run, greater, second, second);
    int one = add(run, "Cast", DT_BOOL, run->dtype, equal, -1, -1);
    int last = choose(run, equal, same, choose(run, both, first, 3));
    sum(run, sum(run, one, last), choose(run, less, second, first));
}
static int64_t sum_of_masks_of_two_uses(const int64_t *x) {
    bool less = x[0]<x[1], equal = x[2] == x[3], greater = x[1]> x[2];
    int64_t first = greater ? x[0] : x[1], second = greater ? first : x[2];
    int64_t last = equal ? second : less || equal ? first : x[3];
    return equal + last + (less ? second : first);
}

static void test_masks_that_do_not_only_choose(void **state) {
    check_all(make_masks_of_two_uses, sum_of_masks_of_two_uses);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_masks_than_registers),
        cmocka_unit_test(test_masks_that_do_not_only_choose),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
