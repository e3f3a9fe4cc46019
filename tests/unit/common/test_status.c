/* The error type: messages, prefixes, references, strangers' codes, cuts. */
#include "common/base/status.h"

#include <pthread.h>
#include <stdlib.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void success_is_null(void **state) {
    assert_int_equal(status_code(NULL), STATUS_OK);
    assert_string_equal(status_message(NULL), "");
    assert_null(status_ref(NULL));
    status_unref(NULL);
    assert_null(status_prefix_take(NULL, "node %s: ", "a"));
    assert_null(status_suffix_take(NULL, " at %s", "a"));
}

static void message_is_formatted(void **state) {
    struct status *st = status_invalid("node %s: rank %d", "a/b", 3);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    assert_string_equal(status_message(st), "node a/b: rank 3");
    status_unref(st);
}

static void prefix_and_suffix_leave_a_shared_status_alone(void **state) {
    struct status *st = status_unavailable("lost peer");
    struct status *kept = status_ref(st);
    st = status_prefix_take(st, "step %d: ", 7);
    st = status_suffix_take(st, " (%s)", "/job:ps");
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    assert_string_equal(status_message(st), "step 7: lost peer (/job:ps)");
    assert_string_equal(status_message(kept), "lost peer");
    status_unref(st);
    status_unref(kept);
}

static void long_messages_are_whole_up_to_the_limit(void **state) {
    char *text = malloc(100001);
    memset(text, 'x', 100000);
    text[100000] = '\0';
    struct status *st = status_internal("%.*s", 600, text);
    assert_int_equal(strlen(status_message(st)), 600);
    status_unref(st);
    st = status_internal("%s", text);
    assert_int_equal(strlen(status_message(st)), 65536);
    st = status_prefix_take(st, "node: ");
    assert_int_equal(strlen(status_message(st)), 65536);
    assert_memory_equal(status_message(st), "node: xxx", 9);
    status_unref(st);
    free(text);
}

static void a_cut_never_splits_a_character(void **state) {
    enum { LEN = 70000 };
    char *text = malloc(LEN);
    for (int shift = 0; shift < 3; shift++) {
        memset(text, 'x', LEN);
        for (int i = shift; i + 3 <= LEN; i += 3)
            memcpy(text + i, "\xE2\x82\xAC", 3);
        struct status *st = status_from_wire(STATUS_INTERNAL, (struct span){text, LEN});
        size_t len = strlen(status_message(st));
        assert_in_range(len, 65534, 65536);
        assert_int_equal((len - (size_t)shift) % 3, 0);
        status_unref(st);
    }
    free(text);
}

static void a_wire_status_may_carry_anything(void **state) {
    assert_null(status_from_wire(0, span_of("ignored")));
    static const int strange[] = {-1, 17, 1 << 30};
    for (size_t i = 0; i < ARRAY_LEN(strange); i++) {
        struct status *st = status_from_wire(strange[i], (struct span){"abcdef", 3});
        assert_int_equal(status_code(st), STATUS_UNKNOWN);
        assert_string_equal(status_message(st), "abc");
        status_unref(st);
    }
    struct status *st = status_from_wire(STATUS_ABORTED, (struct span){NULL, 0});
    assert_int_equal(status_code(st), STATUS_ABORTED);
    assert_string_equal(status_message(st), "");
    status_unref(st);
}

/* A protobuf string that is no UTF-8 spoils the answer that carries it. */
static void messages_are_utf8_whatever_they_quote(void **state) {
    struct status *st = status_invalid("cannot convert '%s' of node %s",
                                       "\xff"
                                       "1\xc3",
                                       "caf\xc3\xa9");
    assert_string_equal(status_message(st), "cannot convert '?1?' of node caf\xc3\xa9");
    st = status_prefix_take(st, "%.*s: ", 1, "\xc3\xa9");
    assert_string_equal(status_message(st), "?: cannot convert '?1?' of node caf\xc3\xa9");
    status_unref(st);
    st = status_from_wire(3, (struct span){"\xed\xa0\x80", 3});
    assert_string_equal(status_message(st), "???");
    status_unref(st);
}

static void codes_have_grpc_names(void **state) {
    for (int code = 0; code <= STATUS_UNAUTHENTICATED; code++)
        assert_non_null(status_code_name((enum status_code)code));
    assert_string_equal(status_code_name(STATUS_OK), "OK");
    assert_string_equal(status_code_name(STATUS_OUT_OF_RANGE), "OUT_OF_RANGE");
    assert_string_equal(status_code_name((enum status_code)99), "UNKNOWN");
    assert_string_equal(status_code_name((enum status_code) - 1), "UNKNOWN");
}

static struct status *try_and_pass(struct status *failure) {
    TRY(NULL);
    TRY(failure);
    return status_internal("not reached");
}

static void try_passes_the_error_on(void **state) {
    struct status *failure = status_not_found("x");
    assert_ptr_equal(try_and_pass(failure), failure);
    status_unref(failure);
}

static void *ref_and_unref(void *arg) {
    for (int i = 0; i < 20000; i++)
        status_unref(status_ref(arg));
    status_unref(arg);
    return NULL;
}

static void threads_share_one_status(void **state) {
    struct status *st = status_internal("shared");
    pthread_t threads[4];
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ref_and_unref, status_ref(st)), 0);
    status_unref(st);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        pthread_join(threads[i], NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(success_is_null),
        cmocka_unit_test(message_is_formatted),
        cmocka_unit_test(prefix_and_suffix_leave_a_shared_status_alone),
        cmocka_unit_test(long_messages_are_whole_up_to_the_limit),
        cmocka_unit_test(a_cut_never_splits_a_character),
        cmocka_unit_test(a_wire_status_may_carry_anything),
        cmocka_unit_test(messages_are_utf8_whatever_they_quote),
        cmocka_unit_test(codes_have_grpc_names),
        cmocka_unit_test(try_passes_the_error_on),
        cmocka_unit_test(threads_share_one_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
