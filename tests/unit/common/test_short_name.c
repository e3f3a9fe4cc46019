/* Names that are shortened stay apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "common/graph/short_name.h"

enum { LONG_BYTES = 3 * SHORT_NAME_BYTES };

static void fill(char *name, size_t len, char last) {
    memset(name, 'a', len);
    name[len - 1] = last;
    name[len] = 0;
}

static void what_fits_stays(void **state) {
    (void)state;
    char name[LONG_BYTES + 1], buffer[SHORT_NAME_BYTES + 1];
    fill(name, SHORT_NAME_BYTES, 'b');
    assert_true(span_is(short_name(name, buffer), name));
    assert_true(span_is(short_name("", buffer), ""));
}

static void long_names_that_begin_alike_stay_apart(void **state) {
    (void)state;
    char name[LONG_BYTES + 1], first[SHORT_NAME_BYTES + 1], second[SHORT_NAME_BYTES + 1];
    for (size_t len = SHORT_NAME_BYTES + 1; len <= LONG_BYTES; len++) {
        fill(name, len, 'b');
        struct span b = short_name(name, first);
        fill(name, len, 'c');
        struct span c = short_name(name, second);
        assert_int_equal(b.len, SHORT_NAME_BYTES);
        assert_int_equal(c.len, SHORT_NAME_BYTES);
        assert_memory_equal(b.data, name, SHORT_NAME_BYTES - 17);
        assert_int_equal(b.data[SHORT_NAME_BYTES - 17], '~');
        assert_false(span_equal(b, c));
        struct span again = short_name(name, first);
        assert_true(span_equal(again, c));
    }
}

/* Tasks and masters of other processes, machines and versions compute the same. */
static void it_is_the_same_everywhere(void **state) {
    (void)state;
    char name[LONG_BYTES + 1], buffer[SHORT_NAME_BYTES + 1];
    fill(name, SHORT_NAME_BYTES + 1, 'b');
    assert_string_equal(short_name(name, buffer).data + SHORT_NAME_BYTES - 17, "~064591459d6382c7");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits_stays),
        cmocka_unit_test(long_names_that_begin_alike_stay_apart),
        cmocka_unit_test(it_is_the_same_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
