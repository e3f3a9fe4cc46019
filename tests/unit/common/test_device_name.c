/* Device names: every spelling, partial names, what is refused. */
#include "common/graph/device_name.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct device_name parse(const char *text) {
    struct device_name name;
    struct status *st = device_name_parse(span_of(text), &name);
    if (st)
        fail_msg("%s", status_message(st));
    return name;
}

static void assert_prints(const struct device_name *name, const char *expected) {
    struct str out = STR_INIT;
    device_name_print(name, &out);
    assert_string_equal(str_text(&out), expected);
    str_fini(&out);
}

static void every_spelling_is_read(void **state) {
    static const struct {
        const char *text, *canonical;
    } cases[] = {
        {"", ""},
        {"/", ""},
        {"/job:ps/task:1", "/job:ps/task:1"},
        {"/job:ps/replica:0/task:1/device:GPU:0", "/job:ps/replica:0/task:1/device:GPU:0"},
        {"/job:ps/replica:0/task:1/gpu:0", "/job:ps/replica:0/task:1/device:GPU:0"},
        {"/cpu:0", "/device:CPU:0"},
        {"/CPU:0", "/device:CPU:0"},
        {"/gpu:*", "/device:GPU:*"},
        {"/device:cpu:3", "/device:CPU:3"},
        {"/device:CPU", "/device:CPU:*"},
        {"/device:*:2", "/device:*:2"},
        {"/device:*:*", ""},
        {"/device:XLA_CPU:0", "/device:XLA_CPU:0"},
        {"CPU:0", "/device:CPU:0"},
        {"cpu:1", "/device:CPU:1"},
        {"/task:2/job:worker", "/job:worker/task:2"},
        {"/job:*/task:*/replica:*", ""},
        {"/job:my-job_2", "/job:my-job_2"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct device_name name = parse(cases[i].text);
        assert_prints(&name, cases[i].canonical);
        struct device_name again = parse(cases[i].canonical);
        assert_true(device_name_equal(&name, &again));
    }
}

static void what_is_malformed_is_refused(void **state) {
    const char *const texts[] = {
        "/foo:bar",
        "/job:",
        "/job:1a",
        "/task:",
        "/task:x",
        "/task:-1",
        "/task:99999999999",
        "/cpu",
        "/device:",
        "/device:GPU:x",
        "/job:ps/",
        "job:ps",
        "//job:ps",
        "/job:ps task:0",
        "CPU:0/task:1",
        "/job:a123456789012345678901234567890123456789012345678901234567890123"};
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct device_name name;
        struct status *st = device_name_parse(span_of(texts[i]), &name);
        if (!st)
            fail_msg("'%s' was taken", texts[i]);
        assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(status_message(st), "Malformed device specification '"));
        status_unref(st);
    }
}

static void partial_names_match_and_narrow(void **state) {
    struct device_name full = parse("/job:ps/replica:0/task:1/device:CPU:0"),
                       part = parse("/job:ps"), other = parse("/task:1/cpu:0");
    assert_true(device_name_is_full(&full) && !device_name_is_full(&part));
    assert_true(device_name_matches(&part, &full) && device_name_matches(&other, &full));
    struct device_name wrong = parse("/job:ps/task:2");
    assert_false(device_name_matches(&wrong, &full));
    assert_true(device_name_intersect(&part, &other));
    assert_prints(&part, "/job:ps/task:1/device:CPU:0");
    struct device_name before = part;
    assert_false(device_name_intersect(&part, &wrong));
    assert_true(device_name_equal(&part, &before));
    device_name_override(&part, &wrong);
    assert_prints(&part, "/job:ps/task:2/device:CPU:0");
    struct str out = STR_INIT;
    device_name_print_task(&full, &out);
    assert_string_equal(str_text(&out), "/job:ps/replica:0/task:1");
    str_fini(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_spelling_is_read),
        cmocka_unit_test(what_is_malformed_is_refused),
        cmocka_unit_test(partial_names_match_and_narrow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
