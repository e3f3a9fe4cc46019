/* Which requests are a stub's own repeats of one that waited in vain. */
#include "master/request/repeats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const int64_t ms = 1000000;

static void a_stubs_repeats_are_known_and_the_users_next_try_is_not(void **state) {
    struct repeats repeats = {.at = 0};
    int64_t now = 77 * ms;
    uint64_t key = repeats_key(3, span_of("request"));
    assert_false(repeats_take(&repeats, key, now));
    repeats_note(&repeats, key, now);
    for (int i = 0; i < REPEATS_PER_CALL; i++) {
        now += 15 * ms;
        assert_true(repeats_any(&repeats, now));
        assert_true(repeats_take(&repeats, key, now));
    }
    assert_false(repeats_take(&repeats, key, now + ms));
    assert_false(repeats_any(&repeats, now + ms));
}

static void one_that_comes_later_waits_again(void **state) {
    struct repeats repeats = {.at = 0};
    uint64_t key = repeats_key(3, span_of("request"));
    repeats_note(&repeats, key, 0);
    assert_true(repeats_take(&repeats, key, REPEATS_WINDOW_MS * ms)); /* begins the window anew */
    assert_true(repeats_take(&repeats, key, 2 * REPEATS_WINDOW_MS * ms));
    assert_false(repeats_take(&repeats, key, 3 * REPEATS_WINDOW_MS * ms + 1));
    assert_false(repeats_any(&repeats, 3 * REPEATS_WINDOW_MS * ms + 1));
}

static void others_are_not_taken_for_it(void **state) {
    struct repeats repeats = {.at = 0};
    repeats_note(&repeats, repeats_key(3, span_of("request")), 0);
    assert_false(repeats_take(&repeats, repeats_key(4, span_of("request")), 1));
    assert_false(repeats_take(&repeats, repeats_key(3, span_of("requesu")), 1));
    assert_false(repeats_take(&repeats, repeats_key(3, span_of("")), 1));
    assert_true(repeats_take(&repeats, repeats_key(3, span_of("request")), 1));
}

static void the_oldest_of_too_many_is_forgotten(void **state) {
    struct repeats repeats = {.at = 0};
    for (uint64_t i = 0; i <= REPEATS_KEPT; i++)
        repeats_note(&repeats, repeats_key(i, span_of("x")), 0);
    assert_false(repeats_take(&repeats, repeats_key(0, span_of("x")), 1));
    for (uint64_t i = 1; i <= REPEATS_KEPT; i++)
        assert_true(repeats_take(&repeats, repeats_key(i, span_of("x")), 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stubs_repeats_are_known_and_the_users_next_try_is_not),
        cmocka_unit_test(one_that_comes_later_waits_again),
        cmocka_unit_test(others_are_not_taken_for_it),
        cmocka_unit_test(the_oldest_of_too_many_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
