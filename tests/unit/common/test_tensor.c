/* Tensor values: where elements live, sharing, views, objects, text. */
#include "common/tensor/tensor.h"

#include <stdlib.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define SHAPE(...) \
    ((struct shape){sizeof((int64_t[]){__VA_ARGS__}) / 8, (const int64_t[]){__VA_ARGS__}})

static struct tensor make(enum dtype dtype, struct shape shape) {
    struct tensor t;
    assert_null(tensor_new_zeroed(allocator_host(), dtype, shape, &t));
    return t;
}

static void assert_refused(struct status *st, enum status_code code) {
    assert_int_equal(status_code(st), code);
    status_unref(st);
}

static void small_values_are_inline(void **state) {
    struct tensor t = make(DT_FLOAT, SHAPE(4));
    assert_int_equal(t.storage, TENSOR_INLINE);
    tensor_clear(&t);
    t = make(DT_FLOAT, SHAPE(5));
    assert_int_equal(t.storage, TENSOR_BUFFER);
    assert_true(tensor_is_sole(&t));
    tensor_clear(&t);
    t = make(DT_FLOAT, SHAPE(1000, 0, 7));
    assert_int_equal(t.storage, TENSOR_INLINE);
    assert_int_equal(tensor_n_elements(&t), 0);
    tensor_clear(&t);
    t = make(DT_STRING, SHAPE(2));
    assert_int_equal(t.storage, TENSOR_INLINE);
    tensor_clear(&t);
    t = make(DT_COMPLEX128, SHAPE_SCALAR);
    assert_int_equal(t.storage, TENSOR_INLINE);
    tensor_clear(&t);
}

static void bad_shapes_are_refused(void **state) {
    struct tensor t = TENSOR_INIT;
    int64_t many[255];
    for (int i = 0; i < 255; i++)
        many[i] = 1;
    assert_refused(tensor_new(allocator_host(), DT_FLOAT, SHAPE(2, -1), &t),
                   STATUS_INVALID_ARGUMENT);
    assert_refused(tensor_new(allocator_host(), DT_FLOAT, SHAPE(1ll << 40, 1ll << 40), &t),
                   STATUS_INVALID_ARGUMENT);
    assert_refused(tensor_new(allocator_host(), DT_FLOAT, SHAPE(0, 1ll << 40, 1ll << 40), &t),
                   STATUS_INVALID_ARGUMENT);
    assert_refused(tensor_new(allocator_host(), DT_FLOAT, SHAPE(1ll << 62), &t),
                   STATUS_RESOURCE_EXHAUSTED);
    assert_refused(tensor_new(allocator_host(), DT_FLOAT, SHAPE(1ll << 48), &t),
                   STATUS_RESOURCE_EXHAUSTED);
    assert_refused(tensor_new(allocator_host(), DT_STRING, SHAPE(1ll << 48), &t),
                   STATUS_RESOURCE_EXHAUSTED);
    assert_refused(tensor_new(allocator_host(), DT_FLOAT, SHAPE_UNKNOWN, &t),
                   STATUS_INVALID_ARGUMENT);
    assert_refused(tensor_new(allocator_host(), DT_FLOAT, (struct shape){255, many}, &t),
                   STATUS_INVALID_ARGUMENT);
    assert_refused(tensor_new(allocator_host(), DT_INVALID, SHAPE_SCALAR, &t),
                   STATUS_INVALID_ARGUMENT);
    assert_refused(tensor_new(allocator_host(), dtype_ref(DT_FLOAT), SHAPE_SCALAR, &t),
                   STATUS_INVALID_ARGUMENT);
    assert_null(tensor_new(allocator_host(), DT_FLOAT, (struct shape){254, many}, &t));
    assert_int_equal(tensor_n_elements(&t), 1);
    tensor_clear(&t);
}

static void copies_share_and_are_let_go(void **state) {
    struct tensor a = make(DT_INT32, SHAPE(2, 3, 1, 1, 1, 2)), b, c;
    ((int32_t *)tensor_data(&a))[11] = 7;
    tensor_copy(&b, &a);
    assert_false(tensor_is_sole(&a));
    assert_ptr_equal(tensor_cdata(&a), tensor_cdata(&b));
    assert_ptr_not_equal(tensor_dims(&a), tensor_dims(&b));
    tensor_move(&c, &a);
    assert_int_equal(a.storage, TENSOR_NONE);
    tensor_clear(&a); /* keeps a rank of 6 in it: must not matter */
    tensor_copy(&a, &(struct tensor){.rank = 9});
    tensor_clear(&b);
    assert_true(tensor_is_sole(&c));
    assert_int_equal(((const int32_t *)tensor_cdata(&c))[11], 7);
    assert_null(tensor_clone(allocator_host(), &c, &b));
    assert_true(tensor_equal(&b, &c));
    ((int32_t *)tensor_data(&b))[0] = 1;
    assert_false(tensor_equal(&b, &c));
    tensor_clear(&b);
    tensor_clear(&c);
    tensor_init_dead(&a);
    tensor_clear(&a);
}

static void views_share_the_buffer(void **state) {
    struct tensor a = make(DT_FLOAT, SHAPE(10, 8)), view, row;
    for (int i = 0; i < 80; i++)
        ((float *)tensor_data(&a))[i] = (float)i;
    assert_null(tensor_slice_rows(&a, 2, 5, &view));
    assert_int_equal(tensor_dim(&view, 0), 3);
    assert_int_equal(tensor_n_elements(&view), 24);
    assert_true(((const float *)tensor_cdata(&view))[0] == 16);
    assert_false(tensor_is_sole(&a));
    assert_null(tensor_reshape(&view, SHAPE(2, 12), &row));
    tensor_clear(&a);
    tensor_clear(&view);
    assert_true(tensor_is_sole(&row));
    assert_true(((const float *)tensor_cdata(&row))[23] == 39);
    assert_refused(tensor_reshape(&row, SHAPE(25), &a), STATUS_INVALID_ARGUMENT);
    assert_null(tensor_view(row.buffer, row.data + 4, DT_FLOAT, SHAPE(5), &view));
    assert_true(((const float *)tensor_cdata(&view))[0] == 17);
    assert_refused(tensor_view(row.buffer, row.data, DT_FLOAT, SHAPE(1ll << 40), &a),
                   STATUS_INVALID_ARGUMENT);
    tensor_clear(&row);
    tensor_clear(&view);
    a = make(DT_FLOAT, SHAPE(0, 3));
    assert_null(tensor_slice_rows(&a, 0, 0, &view));
    assert_int_equal(tensor_n_elements(&view), 0);
    tensor_clear(&view);
    tensor_clear(&a);
}

static int n_freed;
static void count_free(struct object *object) {
    n_freed++;
    free(object);
}
static const struct object_type counted_type = {"counted", count_free};

static struct object *counted_new(void) {
    struct object *object = malloc(sizeof(*object));
    object_init(object, &counted_type);
    return object;
}

static void objects_are_let_go_with_the_last_holder(void **state) {
    for (int64_t n = 1; n < 6; n++) {
        n_freed = 0;
        struct tensor t = make(DT_VARIANT, SHAPE(n)), copy, rows, clone;
        for (int64_t i = 0; i < n; i++)
            tensor_set_object(&t, i, counted_new());
        tensor_set_object(&t, 0, counted_new());
        assert_int_equal(n_freed, 1);
        tensor_copy(&copy, &t);
        assert_null(tensor_slice_rows(&t, 0, 1, &rows));
        assert_null(tensor_clone(allocator_host(), &t, &clone));
        tensor_clear(&t);
        tensor_clear(&copy);
        tensor_clear(&clone);
        assert_int_equal(n_freed, n <= 1 ? 1 : n); /* all but the first, which the slice holds */
        tensor_clear(&rows);
        assert_int_equal(n_freed, n + 1);
    }
}

static void strings_hold_any_bytes(void **state) {
    struct tensor t = make(DT_STRING, SHAPE(2, 2)), other;
    assert_int_equal(tensor_string(&t, 3).len, 0);
    tensor_set_string(&t, 0, "a\0b", 3);
    tensor_set_string(&t, 1, "x", 1);
    tensor_set_string(&t, 1, "", 0);
    assert_int_equal(tensor_string(&t, 0).len, 3);
    assert_int_equal(tensor_string(&t, 0).data[3], 0);
    assert_null(tensor_clone(allocator_host(), &t, &other));
    tensor_set_string(&other, 0, "a\0b", 3); /* equal by content */
    assert_true(tensor_equal(&t, &other));
    tensor_set_string(&other, 0, "a\0c", 3);
    assert_false(tensor_equal(&t, &other));
    tensor_clear(&t);
    tensor_clear(&other);
}

static void handles_keep_their_texts(void **state) {
    struct resource_handle *handle =
        resource_handle_new("/job:a/device:CPU:0", "", "v", "variable", DT_FLOAT, counted_new());
    assert_string_equal(handle->container, "localhost");
    assert_string_equal(handle->type_name, "variable");
    struct tensor t, copy;
    n_freed = 0;
    tensor_init_scalar_object(&t, DT_RESOURCE, &handle->object);
    tensor_copy(&copy, &t);
    tensor_clear(&t);
    assert_int_equal(n_freed, 0);
    tensor_clear(&copy);
    assert_int_equal(n_freed, 1);
    tensor_init_ref(&t, DT_FLOAT, counted_new());
    tensor_copy(&copy, &t);
    tensor_clear(&t);
    tensor_clear(&copy);
    assert_int_equal(n_freed, 2);
}

/* Text that prints as itself. */
static void text_reads_back(void **state) {
    const char *const texts[] = {
        "float[]{1}",
        "float[2,3]{1, 2, 3, 4, 5.5, -1e-07}",
        "double[2]{0.1, 3.141592653589793}",
        "float[3]{nan, inf, -inf}",
        "int32[0]{}",
        "int64[2]{-9223372036854775808, 9223372036854775807}",
        "uint64[1]{18446744073709551615}",
        "bool[2]{true, false}",
        "half[3]{1.5, 65504, 0.33325195}",
        "bfloat16[2]{1, 3.140625}",
        "complex64[2]{(1,-2), (0.1,0)}",
        "complex128[]{(0.1,2)}",
        "string[3]{\"a\", \"\", \"q\\\"\\\\\\n\\x01é\"}",
        "int8[1]{-128}",
        "uint8[1]{255}",
        "int4[2]{-8, 7}",
        "uint4[1]{15}",
        "float8_e4m3fn[2]{448, 0.001953125}",
        "float8_e5m2[1]{inf}",
        "qint32[1]{-5}",
        "uint16[2]{0, 65535}",
        "int32[2]{-2147483648, 2147483647}",
        "uint4[2]{0, 15}",
        "uint2[2]{0, 3}",
        "quint8[1]{255}",
        "float4_e2m1fn[1]{-6}",
        "float[1,1,1,1,1]{2}",
        "int2[2]{-2, 1}",
        "float8_e5m2fnuz[1]{nan}",
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct tensor t;
        struct span in = span_of(texts[i]);
        struct status *st = tensor_parse(&in, allocator_host(), &t);
        if (st)
            fail_msg("%s: %s", texts[i], status_message(st));
        assert_int_equal(in.len, 0);
        struct str out = STR_INIT;
        tensor_print(&t, 100, &out);
        assert_string_equal(str_text(&out), texts[i]);
        str_fini(&out);
        tensor_clear(&t);
    }
}

static void long_text_is_cut_and_repeats_when_read(void **state) {
    struct tensor t = make(DT_INT32, SHAPE(3)), back;
    struct str out = STR_INIT;
    tensor_print(&t, 2, &out);
    assert_string_equal(str_text(&out), "int32[3]{0, 0, …}");
    struct span in = span_of("int32[4]{1, 2, …}");
    assert_null(tensor_parse(&in, allocator_host(), &back));
    str_clear(&out);
    tensor_print(&back, 10, &out);
    assert_string_equal(str_text(&out), "int32[4]{1, 2, 2, 2}");
    tensor_clear(&t);
    tensor_clear(&back);
    str_fini(&out);
}

static void bad_text_is_refused(void **state) {
    const char *const texts[] = {"",
                                 "float",
                                 "float[",
                                 "float[2]{1}",
                                 "float[1]{1, 2}",
                                 "flot[1]{1}",
                                 "string[1]{\"a}",
                                 "int32[1]{x}",
                                 "bool[1]{1}",
                                 "resource[]{}",
                                 "float[-3]{}",
                                 "float[2]{1 2}",
                                 "float[9223372036854775807,2]{…}",
                                 "float[18446744073709551616]{…}",
                                 "int64[1]{9223372036854775808}",
                                 "int64[1]{-9223372036854775809}",
                                 "uint64[1]{18446744073709551616}",
                                 "uint64[1]{-1}",
                                 "int32[1]{2147483648}",
                                 "int32[1]{-2147483649}",
                                 "uint32[1]{4294967296}",
                                 "uint32[1]{-1}",
                                 "int8[1]{128}",
                                 "uint16[1]{65536}",
                                 "quint8[1]{256}",
                                 "qint32[1]{-2147483649}",
                                 "int4[1]{8}",
                                 "int4[1]{-9}",
                                 "uint2[1]{4}"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct tensor t;
        struct span in = span_of(texts[i]);
        assert_refused(tensor_parse(&in, allocator_host(), &t), STATUS_INVALID_ARGUMENT);
    }
}

static void what_is_no_tensor_is_told_how_one_is_written(void **state) {
    struct span in = span_of("[1, 2]");
    struct tensor t;
    struct status *st = tensor_parse(&in, allocator_host(), &t);
    assert_non_null(st);
    assert_non_null(strstr(status_message(st),
                           "'[1, 2]' is not a tensor; a tensor is written as float[2]{1, 2}"));
    status_unref(st);
}

static void shapes_compare_and_print(void **state) {
    struct arena arena;
    arena_init(&arena);
    assert_string_equal(SHAPE_TEXT(SHAPE(2, -1, 3)), "[2,?,3]");
    assert_string_equal(SHAPE_TEXT(SHAPE_SCALAR), "[]");
    assert_string_equal(SHAPE_TEXT(SHAPE_UNKNOWN), "<unknown>");
    assert_true(shape_is_compatible(SHAPE(2, -1), SHAPE(-1, 5)) &&
                !shape_equal(SHAPE(2, -1), SHAPE(-1, 5)));
    assert_false(shape_is_compatible(SHAPE(2), SHAPE(3)));
    assert_false(shape_is_compatible(SHAPE(2), SHAPE(2, 2)));
    assert_true(shape_is_compatible(SHAPE_UNKNOWN, SHAPE(2, 2)));
    assert_true(shape_is_full(SHAPE(0)) && !shape_is_full(SHAPE(-1)) &&
                !shape_is_full(SHAPE_UNKNOWN) && shape_is_full(SHAPE_SCALAR));
    assert_true(shape_equal(shape_dup(SHAPE(4, 5), &arena), SHAPE(4, 5)));
    arena_fini(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_values_are_inline),
        cmocka_unit_test(bad_shapes_are_refused),
        cmocka_unit_test(copies_share_and_are_let_go),
        cmocka_unit_test(views_share_the_buffer),
        cmocka_unit_test(objects_are_let_go_with_the_last_holder),
        cmocka_unit_test(strings_hold_any_bytes),
        cmocka_unit_test(handles_keep_their_texts),
        cmocka_unit_test(text_reads_back),
        cmocka_unit_test(long_text_is_cut_and_repeats_when_read),
        cmocka_unit_test(bad_text_is_refused),
        cmocka_unit_test(what_is_no_tensor_is_told_how_one_is_written),
        cmocka_unit_test(shapes_compare_and_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
