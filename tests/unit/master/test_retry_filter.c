/* Tests which requests count as retries of a stub. */
#include "master/request/retry_filter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const int64_t ms = 1000000;

static void a_stubs_retries_are_recognised_and_the_users_next_try_is_not(void **state) {
    struct retry_filter filter = {.at = 0};
    int64_t now = 77 * ms;
    uint64_t key = retry_filter_key(3, span_of("request"));
    assert_false(retry_filter_take(&filter, key, now));
    retry_filter_note(&filter, key, now);
    for (int i = 0; i < RETRIES_PER_CALL; i++) {
        now += 15 * ms;
        assert_true(retry_filter_any(&filter, now));
        assert_true(retry_filter_take(&filter, key, now));
    }
    assert_false(retry_filter_take(&filter, key, now + ms));
    assert_false(retry_filter_any(&filter, now + ms));
}

static void one_that_comes_later_waits_again(void **state) {
    struct retry_filter filter = {.at = 0};
    uint64_t key = retry_filter_key(3, span_of("request"));
    retry_filter_note(&filter, key, 0);
    assert_true(
        retry_filter_take(&filter, key, RETRY_WINDOW_MS * ms)); /* starts the window again */
    assert_true(retry_filter_take(&filter, key, 2 * RETRY_WINDOW_MS * ms));
    assert_false(retry_filter_take(&filter, key, 3 * RETRY_WINDOW_MS * ms + 1));
    assert_false(retry_filter_any(&filter, 3 * RETRY_WINDOW_MS * ms + 1));
}

static void others_are_not_taken_for_it(void **state) {
    struct retry_filter filter = {.at = 0};
    retry_filter_note(&filter, retry_filter_key(3, span_of("request")), 0);
    assert_false(retry_filter_take(&filter, retry_filter_key(4, span_of("request")), 1));
    assert_false(retry_filter_take(&filter, retry_filter_key(3, span_of("requesu")), 1));
    assert_false(retry_filter_take(&filter, retry_filter_key(3, span_of("")), 1));
    assert_true(retry_filter_take(&filter, retry_filter_key(3, span_of("request")), 1));
}

static void the_oldest_of_too_many_is_forgotten(void **state) {
    struct retry_filter filter = {.at = 0};
    for (uint64_t i = 0; i <= RETRY_FILTER_ROWS; i++)
        retry_filter_note(&filter, retry_filter_key(i, span_of("x")), 0);
    assert_false(retry_filter_take(&filter, retry_filter_key(0, span_of("x")), 1));
    for (uint64_t i = 1; i <= RETRY_FILTER_ROWS; i++)
        assert_true(retry_filter_take(&filter, retry_filter_key(i, span_of("x")), 1));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stubs_retries_are_recognised_and_the_users_next_try_is_not),
        cmocka_unit_test(one_that_comes_later_waits_again),
        cmocka_unit_test(others_are_not_taken_for_it),
        cmocka_unit_test(the_oldest_of_too_many_is_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
