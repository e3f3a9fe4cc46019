/* TensorLists as objects: what is copied and what is not, and how they travel. Values and
 * refusals by program are tests/differential/cases_list.py's business. */
#include "tests/unit/kernels/kernel_test.h"

#include <setjmp.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/tensor/tensor_proto.h"
#include "kernels/host/resources/tensor_list.h"

static struct tensor vector(int64_t n, float value) {
    struct tensor t = TENSOR_INIT;
    assert_null(tensor_new(allocator_host(), DT_FLOAT, (struct shape){1, &n}, &t));
    for (int64_t i = 0; i < n; i++)
        ((float *)tensor_data(&t))[i] = value;
    return t;
}

static struct tensor_list *list_new(int64_t n) {
    struct tensor_list *list = NULL;
    assert_null(tensor_list_new(DT_FLOAT, SHAPE_UNKNOWN, n, &list));
    return list;
}

static void push(struct tensor_list **list, struct tensor value) {
    assert_null(tensor_list_own(list, (*list)->n + 1));
    assert_null(tensor_list_set(*list, (*list)->n, &value));
    (*list)->n++;
}

/* ---- by kernel ---- */

// clang-format off
#define TWO "any = Const() {dtype=int32, value=int32[]{-1}}\n" \
            "x = Const() {dtype=float, value=float[2]{1, 2}}\n" \
            "y = Const() {dtype=float, value=float[2]{3, 4}}\n" \
            "e = EmptyTensorList(any, any) {element_dtype=float, shape_type=int32}\n" \
            "a = TensorListPushBack(e, x) {element_dtype=float}\n" \
            "b = TensorListPushBack(a, y) {element_dtype=float}\n"
// clang-format on

static void test_what_is_pushed_is_read(void **state) {
    kernel_test_run(TWO "r = TensorListStack(b, any) {element_dtype=float}\n", "r",
                    "float[2,2]{1, 2, 3, 4}");
    kernel_test_run(TWO "r = TensorListPopBack(b, any) {element_dtype=float}\n", "r:1",
                    "float[2]{3, 4}");
    kernel_test_run(TWO "r = TensorListLength(b)\n", "r", "int32[]{2}");
    kernel_test_run(
        TWO "s = AddN(b, b) {T=variant, N=2}\nr = TensorListStack(s, any) {element_dtype=float}\n",
        "r", "float[2,2]{2, 4, 6, 8}");
    kernel_test_run(
        TWO "z = ZerosLike(b) {T=variant}\nr = TensorListStack(z, any) {element_dtype=float}\n",
        "r", "float[2,2]{0, 0, 0, 0}");
}

static void test_refusals(void **state) {
    kernel_test_fails(TWO "i = Const() {dtype=int32, value=int32[]{2}}\nr = TensorListGetItem(b, "
                          "i, any) {element_dtype=float}\n",
                      "r", STATUS_INVALID_ARGUMENT,
                      "Trying to access element 2 in a list with 2 elements.");
    kernel_test_fails(TWO "i = Const() {dtype=int32, value=int32[]{-1}}\n"
                          "r = TensorListSetItem(b, i, x) {element_dtype=float, "
                          "resize_if_index_out_of_bounds=true}\n",
                      "r", STATUS_INVALID_ARGUMENT, "Trying to modify element -1");
    kernel_test_fails(TWO
                      "i = Const() {dtype=int32, value=int32[1]{-1}}\nrows = Const() {dtype=float, "
                      "value=float[1,2]{1, 2}}\n"
                      "r = TensorListScatterIntoExistingList(b, rows, i) {element_dtype=float}\n",
                      "r", STATUS_INVALID_ARGUMENT, "must all be non-negative");
    kernel_test_fails(TWO
                      "n = Const() {dtype=int64, value=int64[2]{1, -3}}\ns = Const() {dtype=int32, "
                      "value=int32[2]{-1, 2}}\n"
                      "two = Const() {dtype=int32, value=int32[]{2}}\n"
                      "l = TensorListReserve(s, two) {element_dtype=float, shape_type=int32}\n"
                      "r = TensorListConcatV2(l, any, n) {element_dtype=float, shape_type=int32}\n",
                      "r", STATUS_INVALID_ARGUMENT, "leading_dims must not be negative");
}

static void test_static_shapes(void **state) {
    kernel_test_shape(TWO "r = TensorListStack(b, any) {element_dtype=float}\n", "r", "<unknown>");
    kernel_test_shape("s = Const() {dtype=int32, value=int32[2]{-1, 3}}\nn = Const() {dtype=int32, "
                      "value=int32[]{5}}\n"
                      "l = TensorListReserve(s, n) {element_dtype=float, shape_type=int32}\n"
                      "r = TensorListStack(l, s) {element_dtype=float, num_elements=5}\n",
                      "r", "[5,?,3]");
    kernel_test_shape(
        "s = Const() {dtype=int32, value=int32[1]{3}}\nn = Const() {dtype=int32, "
        "value=int32[]{5}}\n"
        "l = TensorListReserve(s, n) {element_dtype=float, shape_type=int32}\n"
        "r = TensorListGetItem(l, n, s) {element_dtype=int32}\n",
        "r", "!Expected list with element dtype int32 but got list with element dtype float");
}

/* ---- who holds what ---- */

static void test_a_sole_list_changes_in_place(void **state) {
    struct tensor_list *list = list_new(0), *first = list;
    int64_t n_moves = 0;
    for (int i = 0; i < 10000; i++) {
        const void *before = list->elements;
        push(&list, vector(i % 9, (float)i));
        n_moves += list->elements != before;
    }
    assert_ptr_equal(list, first);
    assert_true(n_moves < 20); /* doubling */
    for (int i = 0; i < 10000; i++)
        assert_int_equal(list->elements[i].n_elements, i % 9);
    tensor_list_unref(list);
}

static void test_a_shared_list_is_copied_without_its_elements(void **state) {
    struct tensor_list *list = list_new(0), *other;
    push(&list, vector(100, 1));
    push(&list, vector(100, 2));
    object_ref(&list->object);
    other = list;
    push(&other, vector(1, 3));
    assert_ptr_not_equal(list, other);
    assert_int_equal(list->n, 2);
    assert_int_equal(other->n, 3);
    assert_ptr_equal(tensor_cdata(&list->elements[1]), tensor_cdata(&other->elements[1]));
    assert_null(tensor_list_resize(other, 1));
    assert_true(tensor_list_has(list, 1));
    tensor_list_unref(other);
    assert_true(tensor_is_sole(&list->elements[0]));
    tensor_list_unref(list);
}

static void test_a_size_beyond_memory_is_refused(void **state) {
    struct tensor_list *list = NULL;
    struct status *st = tensor_list_new(DT_FLOAT, SHAPE_UNKNOWN, INT64_MAX, &list);
    assert_int_equal(status_code(st), STATUS_RESOURCE_EXHAUSTED);
    status_unref(st);
}

static void test_nesting_ends_at_the_limit(void **state) {
    struct tensor_list *outer = list_new(0);
    struct status *st = NULL;
    int depth = 1;
    for (; !st; depth++) {
        struct tensor value = TENSOR_INIT;
        tensor_init_scalar_object(&value, DT_VARIANT, &outer->object);
        assert_null(tensor_list_new(DT_VARIANT, SHAPE_UNKNOWN, 1, &outer));
        st = tensor_list_set(outer, 0, &value);
        tensor_clear(&value);
    }
    assert_int_equal(depth - 1, VARIANT_MAX_DEPTH);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    status_unref(st);
    tensor_list_unref(outer);
}

/* ---- on the wire ---- */

static struct tensor_list *through_the_wire(struct tensor_list *list_take) {
    struct tensor t = TENSOR_INIT, back = TENSOR_INIT;
    struct str proto = STR_INIT;
    tensor_init_scalar_object(&t, DT_VARIANT, &list_take->object);
    tensor_to_proto(&t, &proto);
    assert_null(tensor_from_proto((struct span){str_text(&proto), proto.len}, NULL,
                                  allocator_host(), &back));
    struct object *object = object_ref(*(struct object *const *)tensor_cdata(&back));
    assert_ptr_equal(object->type, &variant_proto_type);
    assert_null(variant_resolve(&object, allocator_host()));
    assert_ptr_equal(object->type, &tensor_list_type);
    tensor_clear(&t);
    tensor_clear(&back);
    str_fini(&proto);
    return (struct tensor_list *)object;
}

static void test_a_list_survives_the_wire(void **state) {
    int64_t dims[2] = {-1, 7};
    struct tensor_list *list = list_new(5);
    struct tensor t = vector(3, 5);
    list->max_n = 9;
    tensor_list_set_shape(list, (struct shape){2, dims});
    assert_null(tensor_list_set(list, 3, &t));
    list = through_the_wire(list);
    assert_int_equal(list->n, 5);
    assert_int_equal(list->max_n, 9);
    assert_int_equal(list->dtype, DT_FLOAT);
    assert_true(shape_equal(list->element_shape, (struct shape){2, dims}));
    for (int i = 0; i < 5; i++)
        assert_int_equal(tensor_list_has(list, i), i == 3);
    assert_true(((const float *)tensor_cdata(&list->elements[3]))[2] == 5);
    list = through_the_wire(list);
    tensor_list_set_shape(list, SHAPE_UNKNOWN);
    list->max_n = -1;
    assert_null(tensor_list_resize(list, 0));
    list = through_the_wire(list);
    assert_int_equal(list->n, 0);
    assert_int_equal(list->max_n, -1);
    assert_int_equal(list->element_shape.rank, -1);
    tensor_list_unref(list);
}

static void test_nested_lists_survive_the_wire(void **state) {
    struct tensor_list *outer = NULL, *inner = list_new(0);
    struct tensor value = TENSOR_INIT;
    push(&inner, vector(2, 4));
    tensor_init_scalar_object(&value, DT_VARIANT, &inner->object);
    assert_null(tensor_list_new(DT_VARIANT, SHAPE_SCALAR, 2, &outer));
    assert_null(tensor_list_set(outer, 1, &value));
    outer = through_the_wire(through_the_wire(outer)); /* the second time as bytes inside */
    struct object *object = object_ref(*(struct object *const *)tensor_cdata(&outer->elements[1]));
    assert_null(variant_resolve(&object, allocator_host()));
    inner = (struct tensor_list *)object;
    assert_int_equal(inner->n, 1);
    assert_true(((const float *)tensor_cdata(&inner->elements[0]))[1] == 4);
    tensor_list_unref(inner);
    tensor_list_unref(outer);
}

/* What TensorFlow 2.21 writes for a list of four floats [2], of which number 1 is set to {1, 2}. */
static const char by_tensorflow[] =
    "\x0a\x16tensorflow::"
    "TensorList\x12\x13\x03\x00\x02\x03\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x12\x02\x08"
    "\x02\x1a\x12\x08\x01\x12\x04\x12\x02\x08\x02\x2a\x08\x00\x00\x80\x3f\x00\x00\x00\x40";

static void test_tensorflows_lists_are_read(void **state) {
    struct object *object =
        &variant_proto_new((struct span){by_tensorflow, sizeof(by_tensorflow) - 1})->object;
    assert_null(variant_resolve(&object, allocator_host()));
    assert_ptr_equal(object->type, &tensor_list_type);
    struct tensor_list *list = (struct tensor_list *)object;
    int64_t two = 2;
    assert_int_equal(list->n, 4);
    assert_true(shape_equal(list->element_shape, (struct shape){1, &two}));
    assert_true(tensor_list_has(list, 1) && !tensor_list_has(list, 0) && !tensor_list_has(list, 3));
    assert_true(((const float *)tensor_cdata(&list->elements[1]))[1] == 2);
    struct str out = STR_INIT;
    object->type->encode(object, &out);
    assert_memory_equal(str_text(&out), by_tensorflow, 24 + 2 + 19 + 1); /* name and metadata */
    str_fini(&out);
    object_unref(object);
}

/* Every cut, and every byte replaced, gives a list, an error, or bytes that nobody knows: never
 * more. */
static void test_broken_lists_are_refused(void **state) {
    char copy[sizeof(by_tensorflow)];
    size_t len = sizeof(by_tensorflow) - 1;
    for (size_t cut = 1; cut < len; cut++) {
        struct object *object = &variant_proto_new((struct span){by_tensorflow, cut})->object;
        status_unref(variant_resolve(&object, allocator_host()));
        object_unref(object);
    }
    for (size_t i = 0; i < len; i++) {
        for (int value = 0; value < 256; value++) {
            memcpy(copy, by_tensorflow, len);
            copy[i] = (char)value;
            struct object *object = &variant_proto_new((struct span){copy, len})->object;
            status_unref(variant_resolve(&object, allocator_host()));
            object_unref(object);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_pushed_is_read),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_static_shapes),
        cmocka_unit_test(test_a_sole_list_changes_in_place),
        cmocka_unit_test(test_a_shared_list_is_copied_without_its_elements),
        cmocka_unit_test(test_a_size_beyond_memory_is_refused),
        cmocka_unit_test(test_nesting_ends_at_the_limit),
        cmocka_unit_test(test_a_list_survives_the_wire),
        cmocka_unit_test(test_nested_lists_survive_the_wire),
        cmocka_unit_test(test_tensorflows_lists_are_read),
        cmocka_unit_test(test_broken_lists_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
