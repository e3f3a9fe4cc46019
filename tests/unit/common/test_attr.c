/* Attr values: copies, comparison, hashes, text. */
#include "common/graph/attr.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct tensor *floats(struct arena *arena, int64_t n, float first) {
    struct tensor *t = arena_alloc_aligned(arena, sizeof(*t), _Alignof(struct tensor));
    assert_null(tensor_new_zeroed(allocator_host(), DT_FLOAT, (struct shape){1, &n}, t));
    ((float *)tensor_data(t))[0] = first;
    return t;
}

/* One value of each kind. Every call makes equal ones, with tensors of their own. */
static int make_values(struct arena *arena, struct attr_value *values) {
    static const int64_t dims[] = {2, -1};
    struct attr_value *list = arena_array(arena, struct attr_value, 2),
                      *tensors = arena_array(arena, struct attr_value, 1);
    list[0] = (struct attr_value){.type = ATTR_INT, .i = 1};
    list[1] = (struct attr_value){.type = ATTR_INT, .i = -2};
    tensors[0] = (struct attr_value){.type = ATTR_TENSOR, .tensor = floats(arena, 8, 2)};
    struct attr_func *func = arena_new(arena, struct attr_func);
    func->name = "f";
    func->n_attrs = 2;
    func->attrs = arena_array(arena, struct attr, 2);
    func->attrs[0] = (struct attr){"T", {.type = ATTR_TYPE, .dtype = DT_FLOAT}};
    func->attrs[1] = (struct attr){"value", {.type = ATTR_TENSOR, .tensor = floats(arena, 6, 3)}};
    int n = 0;
    values[n++] = (struct attr_value){.type = ATTR_STRING, .s = {"a\0\"b", 4}};
    values[n++] = (struct attr_value){.type = ATTR_INT, .i = INT64_MIN};
    values[n++] = (struct attr_value){.type = ATTR_FLOAT, .f = 2};
    values[n++] = (struct attr_value){.type = ATTR_FLOAT, .f = NAN};
    values[n++] = (struct attr_value){.type = ATTR_BOOL, .b = true};
    values[n++] = (struct attr_value){.type = ATTR_TYPE, .dtype = DT_BFLOAT16};
    values[n++] = (struct attr_value){.type = ATTR_SHAPE, .shape = {2, dims}};
    values[n++] = (struct attr_value){.type = ATTR_SHAPE, .shape = SHAPE_UNKNOWN};
    values[n++] = (struct attr_value){.type = ATTR_TENSOR, .tensor = floats(arena, 5, 1)};
    values[n++] = (struct attr_value){.type = ATTR_FUNC, .func = func};
    values[n++] = (struct attr_value){.type = ATTR_LIST_INT, .list = {list, 2}};
    values[n++] = (struct attr_value){.type = ATTR_LIST_TENSOR, .list = {tensors, 1}};
    values[n++] = (struct attr_value){.type = ATTR_LIST_STRING};
    values[n++] =
        (struct attr_value){.type = ATTR_TYPE, .is_placeholder = true, .placeholder = "T"};
    return n;
}

static void clear_values(struct attr_value *values, int n) {
    for (int i = 0; i < n; i++)
        attr_value_clear(&values[i]);
}

static void values_equal_their_like_only(void **state) {
    struct arena arena;
    arena_init(&arena);
    struct attr_value a[16], b[16];
    int n = make_values(&arena, a);
    make_values(&arena, b);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            assert_int_equal(attr_value_equal(&a[i], &b[k]), i == k);
            assert_int_equal(attr_value_hash(&a[i]) == attr_value_hash(&b[k]), i == k);
        }
    ((float *)tensor_data(b[8].tensor))[4] = 9;
    assert_false(attr_value_equal(&a[8], &b[8]));
    clear_values(a, n);
    clear_values(b, n);
    arena_fini(&arena);
}

static void copies_stand_alone(void **state) {
    struct arena from, to;
    arena_init(&from);
    arena_init(&to);
    struct attr_value a[16], b[16], like[16];
    int n = make_values(&from, a);
    for (int i = 0; i < n; i++)
        attr_value_copy(&a[i], &to, &b[i]);
    assert_false(tensor_is_sole(b[8].tensor)); /* shared */
    clear_values(a, n);
    arena_fini(&from);
    assert_true(tensor_is_sole(b[8].tensor));
    make_values(&to, like);
    for (int i = 0; i < n; i++)
        assert_true(attr_value_equal(&b[i], &like[i]));
    clear_values(b, n);
    clear_values(like, n);
    attr_value_clear(NULL);
    arena_fini(&to);
}

static void values_print(void **state) {
    static const char *const expected[] = {
        "\"a\\x00\\\"b\"",
        "-9223372036854775808",
        "2.0",
        "nan",
        "true",
        "bfloat16",
        "[2,?]",
        "<unknown>",
        "float[5]{1, 0, 0, 0, 0}",
        "&f{T=float, value=float[6]{3, 0, 0, 0, 0, 0}}",
        "[1, -2]",
        "[float[8]{2, 0, 0, 0, 0, 0, 0, 0}]",
        "[]",
        "$T",
    };
    struct arena arena;
    arena_init(&arena);
    struct attr_value values[16];
    int n = make_values(&arena, values);
    assert_int_equal(n, ARRAY_LEN(expected));
    for (int i = 0; i < n; i++) {
        struct str out = STR_INIT;
        attr_value_print(&values[i], &out);
        assert_string_equal(str_text(&out), expected[i]);
        str_fini(&out);
    }
    clear_values(values, n);
    arena_fini(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_equal_their_like_only),
        cmocka_unit_test(copies_stand_alone),
        cmocka_unit_test(values_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
