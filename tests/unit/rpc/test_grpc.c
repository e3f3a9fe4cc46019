/* What gRPC server and client share: bodies, percent-encoding, timeouts. */
#include "rpc/grpc/grpc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <stdlib.h>

#include "common/base/str.h"
#include "rpc/grpc/grpc_receive.h"

/* ---- bodies ---- */

static void adjacent_copies_become_one_slice(void **state) {
    struct grpc_body body;
    grpc_body_init(&body);
    grpc_body_add_copy(&body, "abc", 3);
    grpc_body_add_copy(&body, "", 0);
    grpc_body_add_copy(&body, "defg", 4);
    assert_int_equal(body.n_slices, 1);
    assert_int_equal(body.size_bytes, 7);
    assert_memory_equal(body.slices[0].bytes.data, "abcdefg", 7);
    grpc_body_fini(&body);
    assert_int_equal(body.n_slices, 0);
    grpc_body_fini(&body);
}

static void shared_slices_hold_their_buffer(void **state) {
    struct buffer *buffer = buffer_alloc(allocator_host(), 100);
    memset(buffer->data, 'x', 100);
    struct grpc_body body;
    grpc_body_init(&body);
    grpc_body_add_copy(&body, "<", 1);
    grpc_body_add_shared(&body, buffer->data + 10, 50, buffer_ref(buffer));
    grpc_body_add_shared(&body, buffer->data, 0, buffer_ref(buffer)); /* nothing to hold it for */
    grpc_body_add_copy(&body, ">", 1);
    assert_int_equal(body.n_slices, 3);
    assert_int_equal(body.size_bytes, 52);
    assert_ptr_equal(body.slices[1].bytes.data, buffer->data + 10);
    assert_false(buffer_is_sole(buffer));
    grpc_body_fini(&body);
    assert_true(buffer_is_sole(buffer));
    buffer_unref(buffer);
}

static void many_copies_stay_where_they_are(void **state) {
    struct grpc_body body;
    grpc_body_init(&body);
    char piece[200];
    for (int i = 0; i < 2000; i++) {
        memset(piece, i & 0xff, sizeof(piece));
        grpc_body_add_copy(&body, piece, sizeof(piece));
    }
    size_t at = 0;
    for (size_t i = 0; i < body.n_slices; i++)
        for (size_t j = 0; j < body.slices[i].bytes.len; j++, at++)
            assert_int_equal((uint8_t)body.slices[i].bytes.data[j], (at / sizeof(piece)) & 0xff);
    assert_int_equal(at, 2000 * sizeof(piece));
    assert_int_equal(body.size_bytes, at);
    grpc_body_fini(&body);
}

/* ---- grpc-message ---- */

static void messages_survive_percent_encoding(void **state) {
    static const struct {
        const char *text, *encoded;
    } rows[] = {
        {"", ""},
        {"plain text ~ }", "plain text ~ }"},
        {"100%", "100%25"},
        {"two\nlines\ttab", "two%0Alines%09tab"},
        {"\x7f", "%7F"},
        {"caf\xc3\xa9 \xe2\x82\xac", "caf%C3%A9 %E2%82%AC"},
        {"\xff stray", "%FF stray"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct str encoded = STR_INIT, decoded = STR_INIT;
        grpc_percent_encode(rows[i].text, &encoded);
        assert_string_equal(str_text(&encoded), rows[i].encoded);
        grpc_percent_decode((struct span){str_text(&encoded), encoded.len}, &decoded);
        assert_string_equal(str_text(&decoded), rows[i].text);
        str_fini(&encoded);
        str_fini(&decoded);
    }
}

static void a_broken_escape_is_text(void **state) {
    static const struct {
        const char *encoded, *text;
    } rows[] = {{"%", "%"},
                {"%4", "%4"},
                {"%zz", "%zz"},
                {"%4g%41", "%4gA"},
                {"%e2%82%AC", "\xe2\x82\xac"},
                {"a%2", "a%2"}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct str decoded = STR_INIT;
        grpc_percent_decode(span_of(rows[i].encoded), &decoded);
        assert_string_equal(str_text(&decoded), rows[i].text);
        str_fini(&decoded);
    }
}

static void long_messages_are_cut_between_characters(void **state) {
    char text[20001];
    memset(text, 'x', 20000);
    text[20000] = '\0';
    struct str encoded = STR_INIT;
    grpc_percent_encode(text, &encoded);
    assert_int_equal(encoded.len, 6000);
    str_clear(&encoded);
    for (int i = 0; i < 9999; i += 3)
        memcpy(text + i, "\xe2\x82\xac", 3); /* 9 encoded bytes each: 666 of them fit */
    text[9999] = '\0';
    grpc_percent_encode(text, &encoded);
    assert_int_equal(encoded.len, 5994);
    str_fini(&encoded);
}

/* ---- grpc-timeout ---- */

static void timeouts_are_rounded_up(void **state) {
    static const struct {
        const char *text;
        bool is_valid;
        int64_t ms;
    } rows[] = {
        {"1510m", true, 1510},
        {"0m", true, 0},
        {"7S", true, 7000},
        {"2M", true, 120000},
        {"1H", true, 3600000},
        {"1u", true, 1},
        {"1000u", true, 1},
        {"1001u", true, 2},
        {"1n", true, 1},
        {"2000001n", true, 3},
        {"0n", true, 0},
        {"99999999H", true, 359999996400000},
        {"99999999999999999999999999m", true, INT64_MAX},
        {"9223372036854775807H", true, INT64_MAX},
        {"", false, 0},
        {"m", false, 0},
        {"12", false, 0},
        {"-1m", false, 0},
        {"1.5S", false, 0},
        {" 1S", false, 0},
        {"1x", false, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int64_t ms = -7;
        assert_int_equal(grpc_timeout_parse(span_of(rows[i].text), &ms), rows[i].is_valid);
        assert_int_equal(ms, rows[i].is_valid ? rows[i].ms : -7);
    }
}

/* ---- the receiver ---- */

static size_t head_seen;

static size_t align_at_49(struct span head, size_t body_len) {
    assert_true(head.len >= MIN(body_len, (size_t)GRPC_HEAD_BYTES));
    assert_true(head.len <= body_len);
    assert_int_equal(head.data[0], 'A');
    head_seen = head.len;
    return 49;
}

static char *framed_message(size_t len) {
    char *bytes = malloc(len + 5);
    bytes[0] = 0;
    bytes[1] = (char)(len >> 24);
    bytes[2] = (char)(len >> 16);
    bytes[3] = (char)(len >> 8);
    bytes[4] = (char)len;
    for (size_t i = 0; i < len; i++)
        bytes[5 + i] = (char)('A' + i % 23);
    return bytes;
}

/* Feeds the message in chunks of `step` bytes. */
static void check_steps(size_t len, size_t step, grpc_align_fn *align) {
    struct grpc_quota quota = {.limit_bytes = 1 << 20, .max_message_bytes = 1 << 20};
    struct grpc_receiver in;
    char *bytes = framed_message(len);
    grpc_receiver_init(&in, &quota, align);
    for (size_t at = 0; at < len + 5; at += step) {
        assert_int_equal(in.state == RECEIVE_DONE, false);
        assert_null(grpc_receiver_feed(&in, bytes + at, MIN(step, len + 5 - at)));
    }
    assert_int_equal(quota.in_use_bytes, len);
    assert_null(grpc_receiver_end(&in));
    struct grpc_message message = grpc_receiver_take(&in);
    assert_int_equal(message.body.len, len);
    assert_memory_equal(message.body.data, bytes + 5, len);
    if (align && len > 0)
        assert_int_equal((uintptr_t)(message.body.data + 49) % BUFFER_ALIGN, 0);
    assert_int_equal(message.buffer == NULL, len == 0);
    buffer_unref(message.buffer);
    grpc_receiver_fini(&in);
    assert_int_equal(quota.in_use_bytes, 0);
    free(bytes);
}

static void messages_arrive_whole_and_aligned_however_they_are_cut(void **state) {
    static const size_t lens[] = {0, 1, 5, 49, 64, 4095, 4096, 4097, 70000};
    static const size_t steps[] = {1, 2, 3, 4, 5, 6, 7, 64, 4000, 4101, 4102, 100000};
    for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
        for (size_t j = 0; j < ARRAY_LEN(steps); j++) {
            check_steps(lens[i], steps[j], align_at_49);
            check_steps(lens[i], steps[j], NULL);
        }
    }
    assert_true(head_seen > 0);
}

static void bytes_read_straight_into_place_are_not_copied(void **state) {
    struct grpc_quota quota = {.limit_bytes = 1 << 20, .max_message_bytes = 1 << 20};
    struct grpc_receiver in;
    char *bytes = framed_message(10000), *place;
    size_t room;
    grpc_receiver_init(&in, &quota, align_at_49);
    assert_false(grpc_receiver_destination(&in, &place, &room));
    assert_null(grpc_receiver_feed(&in, bytes, 5000));
    assert_true(grpc_receiver_destination(&in, &place, &room));
    assert_int_equal(room, 10005 - 5000);
    memcpy(place, bytes + 5000, room);
    assert_null(grpc_receiver_feed(&in, place, room));
    assert_int_equal(in.state, RECEIVE_DONE);
    struct grpc_message message = grpc_receiver_take(&in);
    assert_memory_equal(message.body.data, bytes + 5, 10000);
    buffer_unref(message.buffer);
    grpc_receiver_fini(&in);
    free(bytes);
}

static void check_refusal(const char *bytes, size_t len, enum status_code code) {
    struct grpc_quota quota = {.in_use_bytes = 900, .limit_bytes = 1000, .max_message_bytes = 500};
    struct grpc_receiver in;
    grpc_receiver_init(&in, &quota, NULL);
    struct status *why = grpc_receiver_feed(&in, bytes, len);
    if (!why)
        why = grpc_receiver_end(&in);
    assert_int_equal(status_code(why), code);
    assert_true(strlen(status_message(why)) > 10);
    status_unref(why);
    assert_int_equal(quota.in_use_bytes, 900);
    if (in.state == RECEIVE_REFUSED)
        assert_null(grpc_receiver_feed(&in, bytes, len)); /* ignored from now on */
    grpc_receiver_fini(&in);
}

static void lies_and_limits_are_refused(void **state) {
    check_refusal("", 0, STATUS_INTERNAL);                        /* no message */
    check_refusal("\0\0\0", 3, STATUS_INTERNAL);                  /* half a prefix */
    check_refusal("\0\0\0\0\5abcd", 9, STATUS_INTERNAL);          /* shorter than it says */
    check_refusal("\0\0\0\0\5abcdef", 11, STATUS_INTERNAL);       /* longer than it says */
    check_refusal("\0\0\0\0\0x", 6, STATUS_INTERNAL);             /* an empty one with bytes */
    check_refusal("\0\0\0\0\1a\0\0\0\0\1b", 12, STATUS_INTERNAL); /* two messages */
    check_refusal("\1\0\0\0\5abcde", 10, STATUS_INTERNAL);        /* compressed, nobody said how */
    check_refusal("\2\0\0\0\5abcde", 10, STATUS_INTERNAL);        /* a flag that does not exist */
    check_refusal("\0\0\0\1\xf5", 5, STATUS_RESOURCE_EXHAUSTED);  /* 501 bytes: too long */
    check_refusal("\0\0\0\0\x65", 5, STATUS_RESOURCE_EXHAUSTED);  /* 101 bytes: no room in flight */
    check_refusal("\0\xff\xff\xff\xff", 5, STATUS_RESOURCE_EXHAUSTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adjacent_copies_become_one_slice),
        cmocka_unit_test(shared_slices_hold_their_buffer),
        cmocka_unit_test(many_copies_stay_where_they_are),
        cmocka_unit_test(messages_survive_percent_encoding),
        cmocka_unit_test(a_broken_escape_is_text),
        cmocka_unit_test(long_messages_are_cut_between_characters),
        cmocka_unit_test(timeouts_are_rounded_up),
        cmocka_unit_test(messages_arrive_whole_and_aligned_however_they_are_cut),
        cmocka_unit_test(bytes_read_straight_into_place_are_not_copied),
        cmocka_unit_test(lies_and_limits_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
