/* Checksums on the worker wire: which end requests them, what they cover, and what happens after a
 * flipped bit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/metrics.h"
#include "tests/unit/rpc/wire_ends.h"

static void check_both_ways(void) {
    assert_string_equal(wire_conn_checksums(here.conn), "both");
    assert_string_equal(wire_conn_checksums(there.conn), "both");
    assert_true(here.n_closed == 0 && there.n_closed == 0);
}

static void messages_of_all_sizes_cross_with_sums(void **state) {
    here.asks_for_checksums = there.asks_for_checksums = true;
    check_sizes();
    check_both_ways();
}

static void the_end_that_connects_may_ask_for_them(void **state) {
    here.asks_for_checksums = true;
    check_sizes();
    check_both_ways();
}

static void the_end_that_is_connected_to_may_ask_for_them(void **state) {
    there.asks_for_checksums = true;
    check_sizes();
    check_both_ways();
}

static void they_cross_tcp(void **state) {
    wire_server_close(server);
    listen_on("127.0.0.1:0");
    there.asks_for_checksums = true;
    check_sizes();
    check_both_ways();
}

static void nobody_who_was_not_asked_sends_them(void **state) {
    check_sizes();
    assert_string_equal(wire_conn_checksums(here.conn), "no");
    assert_string_equal(wire_conn_checksums(there.conn), "no");
}

static void large_metas_have_theirs(void **state) {
    size_t len = 3 << 20;
    char *meta = malloc(len);
    for (size_t i = 0; i < len; i++)
        meta[i] = (char)(i * 31);
    here.asks_for_checksums = true;
    connect_here();
    wire_send(here.conn, &(struct wire_out){.type = WIRE_RUN_DONE, .id = 1, .meta = {meta, len}});
    send_text(here.conn, WIRE_PING, 2, "after");
    LOOP_UNTIL(loop, there.n_messages == 2);
    assert_string_equal(str_text(&there.last_meta), "after");
    free(meta);
}

static void a_payload_that_is_dropped_is_summed_as_well(void **state) {
    struct tensor t;
    make_tensor(&t, 2000000, 1);
    const struct tensor *tensors[1] = {&t};
    here.asks_for_checksums = there.discard_payloads = true;
    connect_here();
    wire_send(here.conn, &(struct wire_out){.type = WIRE_PUSH, .tensors = tensors, .n_tensors = 1});
    send_text(here.conn, WIRE_PING, 1, "after");
    LOOP_UNTIL(loop, there.n_messages == 1);
    assert_string_equal(str_text(&there.last_meta), "after");
    tensor_clear(&t);
}

/* ---- bits that flip ---- */

/* The bytes of messages as they would be written. */
static void write_out(struct wire_output *output, struct str *bytes) {
    struct iovec iov[WIRE_MAX_IOV];
    struct buffer *done[WIRE_MAX_IOV];
    while (output->n_segments > 0) {
        size_t n_bytes;
        int n = wire_output_peek(output, iov, &n_bytes);
        for (int i = 0; i < n; i++)
            str_add_bytes(bytes, iov[i].iov_base, iov[i].iov_len);
        wire_output_add_to_checksum(output, iov, n_bytes);
        int n_done = wire_output_consume(output, n_bytes, done);
        for (int i = 0; i < n_done; i++)
            buffer_unref(done[i]);
    }
    wire_output_fini(output);
}

static void make_push(int64_t payload_bytes, struct str *bytes) {
    struct wire_output output = {.has_checksums = true};
    struct tensor t;
    make_tensor(&t, payload_bytes, 3);
    const struct tensor *tensors[1] = {&t};
    wire_output_add_message(&output, &(struct wire_out){.type = WIRE_PUSH,
                                                        .id = 9,
                                                        .meta = span_of("the meta"),
                                                        .tensors = tensors,
                                                        .n_tensors = 1});
    write_out(&output, bytes);
    tensor_clear(&t);
}

static void let_there_go(void) {
    wire_conn_unref(there.conn);
    str_fini(&there.closed_why);
    str_fini(&there.last_meta);
    str_fini(&there.last_payload);
    memset(&there, 0, sizeof(there));
}

/* Behind `before` (whole messages) comes the message with that bit flipped, and the stream's
 * end. It is not delivered. */
static void flip(const struct str *before, int n_before, const struct str *message, size_t bit) {
    int fd = connect_raw();
    if (before->len > 0)
        write_raw(fd, before->data, before->len);
    message->data[bit / 8] ^= (char)(1 << bit % 8);
    write_raw(fd, message->data, message->len);
    message->data[bit / 8] ^= (char)(1 << bit % 8);
    shutdown(fd, SHUT_WR);
    LOOP_UNTIL(loop, there.n_closed == 1);
    close(fd);
    if (there.n_messages != n_before)
        fail_msg("bit %zu: delivered", bit);
}

static void expect_data_loss(const struct str *before, const struct str *message, size_t bit,
                             const char *part) {
    flip(before, 1, message, bit);
    if (there.closed_code != STATUS_DATA_LOSS || !strstr(str_text(&there.closed_why), part))
        fail_msg("bit %zu, in the %s: code %d, %s", bit, part, (int)there.closed_code,
                 str_text(&there.closed_why));
    let_there_go();
}

static void check_flips(int64_t payload_bytes, size_t payload_stride) {
    enum { META = 8, FRONT = WIRE_HEADER_BYTES + META + WIRE_CHECKSUM_BYTES };
    struct str before = STR_INIT, message = STR_INIT;
    struct wire_output output = {.has_checksums = true};
    wire_output_add_message(&output, &(struct wire_out){.type = WIRE_PING, .id = 1});
    write_out(&output, &before);
    make_push(payload_bytes, &message);
    assert_int_equal(message.len, FRONT + payload_bytes + WIRE_CHECKSUM_BYTES);
    for (size_t bit = 0; bit < 8 * WIRE_HEADER_BYTES; bit++)
        expect_data_loss(&before, &message, bit, "header");
    for (size_t bit = 8 * WIRE_HEADER_BYTES; bit < 8 * FRONT; bit++)
        expect_data_loss(&before, &message, bit, "meta");
    for (size_t bit = 8 * FRONT; bit < 8 * (message.len - WIRE_CHECKSUM_BYTES);
         bit += payload_stride)
        expect_data_loss(&before, &message, bit, "payload");
    for (size_t bit = 8 * (message.len - WIRE_CHECKSUM_BYTES); bit < 8 * message.len; bit++)
        expect_data_loss(&before, &message, bit, "payload");
    str_fini(&before);
    str_fini(&message);
}

static void a_flipped_bit_anywhere_in_a_small_message_is_found(void **state) {
    check_flips(100, 1);
}
static void a_flipped_bit_anywhere_in_a_large_message_is_found(void **state) {
    check_flips(100000, 4099);
}

/* Before anything has said that there are sums: not even a flag that is lost hides the flip. */
static void a_flipped_bit_in_the_first_message_is_found(void **state) {
    struct str nothing = STR_INIT, message = STR_INIT;
    make_push(100, &message);
    for (size_t bit = 0; bit < 8 * message.len; bit++) {
        flip(&nothing, 0, &message, bit);
        if (there.closed_code != STATUS_DATA_LOSS && there.closed_code != STATUS_INVALID_ARGUMENT)
            fail_msg("bit %zu: code %d, %s", bit, (int)there.closed_code,
                     str_text(&there.closed_why));
        let_there_go();
    }
    str_fini(&message);
}

static void the_reason_names_peer_type_and_place(void **state) {
    struct str before = STR_INIT, message = STR_INIT, metrics = STR_INIT;
    make_push(300, &before);
    make_push(20000, &message);
    flip(&before, 1, &message, 8 * 1000);
    char place[64];
    snprintf(place, sizeof(place), "in the message at byte %zu: ", before.len);
    const char *why = str_text(&there.closed_why);
    assert_non_null(strstr(why, wire_conn_peer(there.conn)));
    assert_non_null(strstr(why, place));
    assert_non_null(strstr(why, "type 14 (Push)"));
    metrics_write_prometheus(&metrics);
    const char *count = strstr(str_text(&metrics), "\nmillrace_wire_checksum_errors_total ");
    assert_non_null(count);
    assert_true(strtol(strchr(count + 1, ' '), NULL, 10) > 0);
    str_fini(&before);
    str_fini(&message);
    str_fini(&metrics);
}

static void a_message_without_after_one_with_sums_is_refused(void **state) {
    struct str bytes = STR_INIT;
    make_push(300, &bytes);
    char bare[WIRE_HEADER_BYTES];
    wire_header_write(&(struct wire_header){.type = WIRE_PING}, bare);
    int fd = connect_raw();
    write_raw(fd, bytes.data, bytes.len);
    write_raw(fd, bare, sizeof(bare));
    LOOP_UNTIL(loop, there.n_closed == 1);
    assert_int_equal(there.n_messages, 1);
    assert_int_equal(there.closed_code, STATUS_DATA_LOSS);
    str_fini(&bytes);
    close(fd);
}

static void sums_that_come_byte_by_byte_are_read(void **state) {
    struct str bytes = STR_INIT;
    make_push(20000, &bytes);
    make_push(10, &bytes);
    int fd = connect_raw();
    for (size_t i = 0; i < bytes.len; i++) {
        write_raw(fd, bytes.data + i, 1);
        uv_run(loop_uv(loop), UV_RUN_NOWAIT);
    }
    LOOP_UNTIL(loop, there.n_messages == 2);
    assert_int_equal(there.last_payload.len, 10);
    str_fini(&bytes);
    close(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(messages_of_all_sizes_cross_with_sums),
        TEST(the_end_that_connects_may_ask_for_them),
        TEST(the_end_that_is_connected_to_may_ask_for_them),
        TEST(they_cross_tcp),
        TEST(nobody_who_was_not_asked_sends_them),
        TEST(large_metas_have_theirs),
        TEST(a_payload_that_is_dropped_is_summed_as_well),
        TEST(a_flipped_bit_anywhere_in_a_small_message_is_found),
        TEST(a_flipped_bit_anywhere_in_a_large_message_is_found),
        TEST(a_flipped_bit_in_the_first_message_is_found),
        TEST(the_reason_names_peer_type_and_place),
        TEST(a_message_without_after_one_with_sums_is_refused),
        TEST(sums_that_come_byte_by_byte_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
