/* TensorArrays and stacks. Values and refusals by program are
 * tests/differential/cases_tensor_array.py's business; here: that unstacking copies nothing,
 * growth, gradients that are summed in place, and what is left of a step. */
#include "tests/unit/kernels/kernel_test.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include "kernels/host/resources/tensor_array.h"

// clang-format off
#define ARRAY "size = Const() {dtype=int32, value=int32[]{3}}\n" \
              "a = TensorArrayV3(size) {dtype=float}\n" \
              "zero = Const() {dtype=int32, value=int32[]{0}}\n" \
              "two = Const() {dtype=int32, value=int32[]{2}}\n" \
              "x = Const() {dtype=float, value=float[2]{1, 2}}\n" \
              "w = TensorArrayWriteV3(a, zero, x, a:1) {T=float}\n" \
              "w2 = TensorArrayWriteV3(a, two, x, w) {T=float}\n"
// clang-format on

static void test_what_is_written_is_read(void **state) {
    kernel_test_run(ARRAY "r = TensorArrayReadV3(a, two, w2) {dtype=float}\n", "r",
                    "float[2]{1, 2}");
    kernel_test_run(ARRAY "at = Const() {dtype=int32, value=int32[2]{2, 0}}\n"
                          "r = TensorArrayGatherV3(a, at, w2) {dtype=float}\n",
                    "r", "float[2,2]{1, 2, 1, 2}");
    kernel_test_run(ARRAY "r = TensorArraySizeV3(a, w2)\n", "r", "int32[]{3}");
}

static void test_refusals(void **state) {
    kernel_test_fails(
        ARRAY "r = TensorArrayWriteV3(a, two, x, w2) {T=float}\n", "r", STATUS_INVALID_ARGUMENT,
        "Could not write to TensorArray index 2 because it has already been written to.");
    kernel_test_fails(ARRAY "r = TensorArrayReadV3(a, size, w2) {dtype=float}\n", "r",
                      STATUS_INVALID_ARGUMENT, "Tried to read from index 3 but array size is: 3");
    kernel_test_fails(ARRAY "r = TensorArrayReadV3(a, two, w2) {dtype=float}\n"
                            "again = TensorArrayReadV3(a, two, w2, ^r) {dtype=float}\n",
                      "again", STATUS_INVALID_ARGUMENT,
                      "Could not read index 2 twice because it was cleared after a previous read");
}

/* ---- the object ---- */

static struct tensor_array *array_new(int64_t n, bool is_dynamic) {
    struct tensor_array_options options = {.name = "a",
                                           .dtype = DT_FLOAT,
                                           .element_shape = SHAPE_UNKNOWN,
                                           .is_dynamic = is_dynamic,
                                           .clears_after_read = true};
    struct tensor_array *array = NULL;
    assert_null(tensor_array_new(&options, n, &array));
    return array;
}

static struct tensor vector(int64_t n, float value) {
    struct tensor t = TENSOR_INIT;
    assert_null(tensor_new(allocator_host(), DT_FLOAT, (struct shape){1, &n}, &t));
    for (int64_t i = 0; i < n; i++)
        ((float *)tensor_data(&t))[i] = value;
    return t;
}

static struct kernel_instance instance;
static struct kernel_ctx ctx = {.instance = &instance};

static void test_growth_keeps_elements(void **state) {
    struct tensor_array *array = array_new(0, true);
    for (int i = 0; i < 1000; i++) {
        struct tensor t = vector(i % 9, (float)i);
        assert_null(tensor_array_write(array, &ctx, i, &t));
    }
    int64_t n = 0;
    bool is_dynamic = false;
    assert_null(tensor_array_size(array, &n, &is_dynamic));
    assert_int_equal(n, 1000);
    assert_true(is_dynamic);
    for (int i = 999; i >= 0; i--) {
        struct tensor t = TENSOR_INIT;
        assert_null(tensor_array_read(array, &ctx, i, &t));
        assert_int_equal(t.n_elements, i % 9);
        if (t.n_elements > 0)
            assert_true(*(const float *)tensor_cdata(&t) == (float)i);
        tensor_clear(&t);
    }
    object_unref(&array->object);
}

static void test_a_read_moves_the_memory_out(void **state) {
    struct tensor_array *array = array_new(1, false);
    struct tensor t = vector(100, 1), back = TENSOR_INIT;
    const void *data = tensor_cdata(&t);
    assert_null(tensor_array_write(array, &ctx, 0, &t));
    assert_int_equal(t.storage, TENSOR_NONE);
    assert_null(tensor_array_read(array, &ctx, 0, &back));
    assert_ptr_equal(tensor_cdata(&back), data);
    assert_true(tensor_is_sole(&back));
    tensor_clear(&back);
    object_unref(&array->object);
}

static void test_gradients_are_summed_without_touching_others(void **state) {
    struct tensor_array *array = array_new(1, false), *grad = NULL;
    struct tensor t = vector(100, 1), kept = TENSOR_INIT, sum = TENSOR_INIT;
    assert_null(tensor_array_write(array, &ctx, 0, &t));
    assert_null(tensor_array_new_grad(array, "a@g", SHAPE_SCALAR, &grad));
    t = vector(100, 10);
    tensor_copy(&kept, &t); /* somebody else holds the first one */
    assert_null(tensor_array_write(grad, &ctx, 0, &t));
    for (int i = 0; i < 3; i++) {
        t = vector(100, 1);
        assert_null(tensor_array_write(grad, &ctx, 0, &t));
    }
    assert_null(tensor_array_read(grad, &ctx, 0, &sum));
    assert_true(*(const float *)tensor_cdata(&sum) == 13);
    assert_true(*(const float *)tensor_cdata(&kept) == 10);
    tensor_clear(&sum);
    tensor_clear(&kept);
    object_unref(&grad->object);
    object_unref(&array->object);
}

static void test_a_size_beyond_memory_is_refused(void **state) {
    struct tensor_array *array = array_new(0, true);
    struct tensor t = vector(1, 1);
    struct status *st = tensor_array_write(array, &ctx, INT64_MAX, &t);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    status_unref(st);
    tensor_clear(&t);
    object_unref(&array->object);
}

/* ---- stacks ---- */

// clang-format off
#define STACK "size = Const() {dtype=int32, value=int32[]{1}}\n" \
              "s = StackV2(size) {elem_type=float}\n" \
              "x = Const() {dtype=float, value=float[2]{1, 2}}\n" \
              "push = StackPushV2(s, x) {T=float}\n"
// clang-format on

static void test_stack_gives_back_what_it_took(void **state) {
    kernel_test_run(STACK "pop = StackPopV2(s, ^push) {elem_type=float}\n", "pop",
                    "float[2]{1, 2}");
    kernel_test_fails(STACK "again = StackPushV2(s, push) {T=float}\n", "again",
                      STATUS_INVALID_ARGUMENT, "overflowed its max_size (1)");
    kernel_test_fails(STACK "pop = StackPopV2(s) {elem_type=float}\n", "pop",
                      STATUS_INVALID_ARGUMENT, "is empty when calling Pop()");
    kernel_test_fails(
        STACK "close = StackCloseV2(s, ^push)\npop = StackPopV2(s, ^close) {elem_type=float}\n",
        "pop", STATUS_INVALID_ARGUMENT, "has already been closed");
    kernel_test_run("s = Stack() {elem_type=float}\n"
                    "x = Const() {dtype=float, value=float[2]{1, 2}}\n"
                    "push = StackPush(s, x) {T=float}\n"
                    "pop = StackPop(s, ^push) {elem_type=float}\n",
                    "pop", "float[2]{1, 2}");
}

int main(void) {
    instance.allocator = allocator_host();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_growth_keeps_elements),
        cmocka_unit_test(test_a_read_moves_the_memory_out),
        cmocka_unit_test(test_gradients_are_summed_without_touching_others),
        cmocka_unit_test(test_a_size_beyond_memory_is_refused),
        cmocka_unit_test(test_stack_gives_back_what_it_took),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
