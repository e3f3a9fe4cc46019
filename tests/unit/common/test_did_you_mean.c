/* Which names are near to one that was mistyped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "common/base/did_you_mean.h"

static const char *const names[] = {"status",     "top",   "trace", "tunnel",
                                    "checkpoint", "certs", "costs"};

static void expect(const char *typed, const char *wanted) {
    struct did_you_mean guess = {.typed = span_of(typed)};
    struct str text = STR_INIT;
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        did_you_mean_try(&guess, names[i]);
    did_you_mean_add(&guess, "--", &text);
    assert_string_equal(str_text(&text), wanted);
    str_fini(&text);
}

static void a_slip_of_the_finger_is_understood(void **state) {
    expect("staus", ", did you mean --status?");
    expect("sttaus", ", did you mean --status?");
    expect("statuss", ", did you mean --status?");
    expect("stetus", ", did you mean --status?");
    expect("tpo", ", did you mean --top?");
    expect("chekcpoitn", ", did you mean --checkpoint?");
}

static void what_is_far_from_all_is_not_guessed(void **state) {
    expect("", "");
    expect("x", "");
    expect("drain", "");
    expect("checkers", "");
    expect("a name that is longer than every word that we have, and longer than any buffer", "");
}

static void the_nearest_wins(void **state) {
    expect("cests", ", did you mean --certs?");
    expect("cost", ", did you mean --costs?");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slip_of_the_finger_is_understood),
        cmocka_unit_test(what_is_far_from_all_is_not_guessed),
        cmocka_unit_test(the_nearest_wins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
