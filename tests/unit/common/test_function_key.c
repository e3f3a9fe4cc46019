/* The keys that distinguish the instances of functions (common/graph/function_key.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/graph/function_key.h"
#include "common/graph/graph.h"

enum { N_ELEMENTS = 1000, MAX_ATTRS = 3 };

/* A function with up to three attrs. */
struct made {
    struct attr attrs[MAX_ATTRS];
    struct attr_func func;
    struct tensor tensor;
};

static void make(struct made *made, const char *name, int n_attrs) {
    *made = (struct made){.func = {.name = name, .n_attrs = n_attrs}};
    made->func.attrs = made->attrs;
}

/* f[v=a tensor whose last element is `last`] */
static void make_large(struct made *made, int64_t last) {
    make(made, "f", 1);
    assert_null(tensor_new(allocator_host(), DT_INT64,
                           (struct shape){1, (const int64_t[]){N_ELEMENTS}}, &made->tensor));
    memset(tensor_data(&made->tensor), 0, N_ELEMENTS * sizeof(int64_t));
    ((int64_t *)tensor_data(&made->tensor))[N_ELEMENTS - 1] = last;
    made->attrs[0] = (struct attr){"v", {.type = ATTR_TENSOR, .tensor = &made->tensor}};
}

static bool are_same(const struct made *a, const struct made *b) {
    struct str x = STR_INIT, y = STR_INIT;
    bool same = function_is_same_instance(&a->func, &b->func);
    function_identity(&a->func, &x);
    function_identity(&b->func, &y);
    assert_int_equal(same, x.len == y.len && memcmp(x.data, y.data, x.len) == 0);
    str_fini(&x);
    str_fini(&y);
    return same;
}

static void large_tensors_differ_by_their_last_element(void **state) {
    struct made a, b, c;
    make_large(&a, 1);
    make_large(&b, 1);
    make_large(&c, 2);
    assert_true(are_same(&a, &b));
    assert_false(are_same(&a, &c));
    tensor_clear(&a.tensor);
    tensor_clear(&b.tensor);
    tensor_clear(&c.tensor);
}

/* As printed, the first would be the second: f[a="x", b="y"]. */
static void texts_are_not_confused_with_what_separates_them(void **state) {
    struct made one, two;
    make(&one, "f", 1);
    one.attrs[0] = (struct attr){"a", {.type = ATTR_STRING, .s = span_of("x\", b=\"y")}};
    make(&two, "f", 2);
    two.attrs[0] = (struct attr){"a", {.type = ATTR_STRING, .s = span_of("x")}};
    two.attrs[1] = (struct attr){"b", {.type = ATTR_STRING, .s = span_of("y")}};
    assert_false(are_same(&one, &two));
    make(&one, "fa", 0);
    make(&two, "f", 1);
    two.attrs[0] = (struct attr){"a", {.type = ATTR_STRING, .s = span_of("")}};
    assert_false(are_same(&one, &two));
}

static void numbers_are_compared_by_their_bits(void **state) {
    struct made a, b;
    make(&a, "f", 1);
    make(&b, "f", 1);
    a.attrs[0] = (struct attr){"x", {.type = ATTR_FLOAT, .f = 0.0f}};
    b.attrs[0] = (struct attr){"x", {.type = ATTR_FLOAT, .f = -0.0f}};
    assert_false(are_same(&a, &b));
    b.attrs[0] = (struct attr){"x", {.type = ATTR_INT, .i = 0}};
    assert_false(are_same(&a, &b));
}

/* The number is the master's: it is in the key, and no part of what is compared. */
static void the_number_makes_the_key(void **state) {
    struct made plain, numbered;
    struct str key = STR_INIT;
    make(&plain, "f", 1);
    plain.attrs[0] = (struct attr){"z", {.type = ATTR_INT, .i = 5}};
    make(&numbered, "f", 2);
    numbered.attrs[0] = (struct attr){FUNCTION_INSTANCE_ATTR, {.type = ATTR_INT, .i = 3}};
    numbered.attrs[1] = plain.attrs[0];
    assert_true(are_same(&plain, &numbered));
    function_key(&plain.func, "/device:CPU:0", &key);
    assert_string_equal(str_text(&key), "f#0@/device:CPU:0");
    str_clear(&key);
    function_key(&numbered.func, "/device:CPU:0", &key);
    assert_string_equal(str_text(&key), "f#3@/device:CPU:0");
    str_fini(&key);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_tensors_differ_by_their_last_element),
        cmocka_unit_test(texts_are_not_confused_with_what_separates_them),
        cmocka_unit_test(numbers_are_compared_by_their_bits),
        cmocka_unit_test(the_number_makes_the_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
