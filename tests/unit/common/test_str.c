/* The growing byte string, and JSON escapes of strangers' bytes. */
#include "common/base/str.h"

#include <stdlib.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void an_empty_string_reads_as_empty(void **state) {
    struct str s = STR_INIT;
    assert_string_equal(str_text(&s), "");
    assert_null(s.data);
    str_clear(&s);
    str_add_bytes(&s, NULL, 0);
    assert_string_equal(s.data, "");
    str_fini(&s);
    str_fini(&s);
    str_fini(NULL);
}

static void appending_grows(void **state) {
    struct str s = STR_INIT;
    for (int i = 0; i < 10000; i++)
        str_add_char(&s, (char)('a' + i % 26));
    assert_int_equal(s.len, 10000);
    for (int i = 0; i < 10000; i++)
        assert_int_equal(s.data[i], 'a' + i % 26);
    assert_int_equal(s.data[10000], '\0');
    str_clear(&s);
    str_add(&s, "x");
    str_add_bytes(&s, "\0y", 2);
    assert_int_equal(s.len, 3);
    assert_memory_equal(s.data, "x\0y", 4);
    str_fini(&s);
}

static void formatting_fits_at_every_length(void **state) {
    for (int len = 1; len < 200; len++) {
        struct str s = STR_INIT;
        str_add(&s, "ab");
        str_addf(&s, "%0*d", len, 5);
        assert_int_equal(s.len, 2 + len);
        assert_int_equal(strlen(s.data), s.len);
        assert_int_equal(s.data[s.len - 1], '5');
        str_fini(&s);
    }
}

static void detach_leaves_an_empty_string(void **state) {
    struct str s = STR_INIT;
    char *empty = str_detach(&s);
    assert_string_equal(empty, "");
    free(empty);
    str_add(&s, "text");
    char *text = str_detach(&s);
    assert_string_equal(text, "text");
    free(text);
    assert_null(s.data);
    assert_int_equal(s.len, 0);
}

#define REPLACED "\\ufffd"

static void json_escapes_are_valid_json(void **state) {
    static const struct {
        const char *bytes, *escaped;
    } cases[] = {
        {"plain/name:0", "plain/name:0"},
        {"a\"b\\c", "a\\\"b\\\\c"},
        {"\b\f\n\r\t", "\\b\\f\\n\\r\\t"},
        {"\x01\x1f\x7f", "\\u0001\\u001f\x7f"},
        {"\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", "\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"},
        {"\x80", REPLACED},
        {"\xC0\xAF", REPLACED REPLACED},                           /* overlong '/' */
        {"\xE0\x9F\xBF", REPLACED REPLACED REPLACED},              /* overlong */
        {"\xED\xA0\x80", REPLACED REPLACED REPLACED},              /* a surrogate */
        {"\xF4\x90\x80\x80", REPLACED REPLACED REPLACED REPLACED}, /* above U+10FFFF */
        {"a\xE2\x82", "a" REPLACED REPLACED},                      /* torn */
        {"\xFF"
         "b",
         REPLACED "b"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str s = STR_INIT;
        str_add_json_escaped(&s, cases[i].bytes, strlen(cases[i].bytes));
        assert_string_equal(str_text(&s), cases[i].escaped);
        str_fini(&s);
    }
    struct str s = STR_INIT;
    str_add_json_escaped(&s, "a\0b", 3);
    assert_string_equal(str_text(&s), "a\\u0000b");
    str_fini(&s);
}

static void code_points_become_utf8(void **state) {
    static const uint32_t codes[] = {0x41, 0x7f, 0x80, 0x7ff, 0x800, 0xffff, 0x10000, 0x10ffff};
    struct str s = STR_INIT;
    for (size_t i = 0; i < ARRAY_LEN(codes); i++)
        str_add_utf8(&s, codes[i]);
    assert_string_equal(
        str_text(&s),
        "A\x7f\xC2\x80\xDF\xBF\xE0\xA0\x80\xEF\xBF\xBF\xF0\x90\x80\x80\xF4\x8F\xBF\xBF");
    str_fini(&s);
}

static void base64_digits_of_both_alphabets(void **state) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int i = 0; i < 64; i++)
        assert_int_equal(base64_digit(plain[i]), i);
    assert_int_equal(base64_digit('-'), 62);
    assert_int_equal(base64_digit('_'), 63);
    for (const char *c = "=@[`{:. \n"; *c; c++)
        assert_int_equal(base64_digit(*c), -1);
    assert_int_equal(base64_digit('\0'), -1);
    assert_int_equal(base64_digit('\xff'), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_string_reads_as_empty),
        cmocka_unit_test(appending_grows),
        cmocka_unit_test(formatting_fits_at_every_length),
        cmocka_unit_test(detach_leaves_an_empty_string),
        cmocka_unit_test(json_escapes_are_valid_json),
        cmocka_unit_test(code_points_become_utf8),
        cmocka_unit_test(base64_digits_of_both_alphabets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
