/* The worker wire: framing, both ways of reading payloads, writing from any thread, and what
 * strangers may send. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/tensor/tensor_proto.h"
#include "rpc/wire/step_messages.h"
#include "rpc/wire/wire_last.h"
#include "rpc/wire/wire_values.h"
#include "tests/unit/rpc/grpc_dial.h"
#include "tests/unit/rpc/wire_ends.h"

/* ---- both directions, all sizes ---- */

static void messages_of_all_sizes_cross_a_unix_socket(void **state) {
    check_sizes();
    assert_true(wire_conn_is_unix(here.conn) && wire_conn_is_unix(there.conn));
}

static void messages_of_all_sizes_cross_tcp(void **state) {
    wire_server_close(server);
    listen_on("127.0.0.1:0");
    check_sizes();
    assert_false(wire_conn_is_unix(here.conn));
}

static void names_are_resolved(void **state) {
    wire_server_close(server);
    listen_on("localhost:0");
    snprintf(address, sizeof(address), "localhost:%d", wire_server_port(server));
    connect_here();
    send_text(here.conn, WIRE_PING, 1, "x");
    LOOP_UNTIL(loop, there.n_messages == 1);
}

static void a_unix_path_works_and_is_removed(void **state) {
    char path[64];
    wire_server_close(server);
    snprintf(path, sizeof(path), "/tmp/millrace-test-wire-%d", (int)getpid());
    char text[80];
    snprintf(text, sizeof(text), "unix:%s", path);
    listen_on(text);
    connect_here();
    send_text(here.conn, WIRE_PING, 1, "x");
    LOOP_UNTIL(loop, there.n_messages == 1);
    wire_server_close(server);
    assert_int_not_equal(access(path, F_OK), 0);
    server = NULL;
}

static void large_metas_are_read_whole(void **state) {
    size_t len = 3 << 20;
    char *meta = malloc(len);
    for (size_t i = 0; i < len; i++)
        meta[i] = (char)(i * 31);
    connect_here();
    wire_send(here.conn, &(struct wire_out){.type = WIRE_RUN_DONE, .id = 1, .meta = {meta, len}});
    send_text(here.conn, WIRE_PING, 2, "after");
    LOOP_UNTIL(loop, there.n_messages == 1);
    assert_int_equal(there.last_meta.len, len);
    assert_memory_equal(there.last_meta.data, meta, len);
    LOOP_UNTIL(loop, there.n_messages == 2);
    assert_string_equal(str_text(&there.last_meta), "after");
    free(meta);
}

static void a_message_that_comes_byte_by_byte_is_delivered_once(void **state) {
    int fd = connect_raw();
    struct wire_output output = {0};
    struct tensor t;
    make_tensor(&t, 200, 3);
    const struct tensor *tensors[1] = {&t};
    wire_output_add_message(&output, &(struct wire_out){.type = WIRE_PUSH,
                                                        .id = 9,
                                                        .meta = span_of("slow"),
                                                        .tensors = tensors,
                                                        .n_tensors = 1});
    wire_output_add_message(
        &output, &(struct wire_out){.type = WIRE_PING, .id = 10, .meta = span_of("next")});
    struct iovec iov[WIRE_MAX_IOV];
    size_t n_bytes;
    assert_int_equal(wire_output_peek(&output, iov, &n_bytes), 1); /* small messages coalesce */
    for (size_t i = 0; i < n_bytes; i++) {
        write_raw(fd, (char *)iov[0].iov_base + i, 1);
        uv_run(loop_uv(loop), UV_RUN_NOWAIT);
    }
    LOOP_UNTIL(loop, there.n_messages == 2);
    assert_int_equal(there.last_id, 10);
    assert_int_equal(there.n_allocs, 1);
    wire_output_fini(&output);
    tensor_clear(&t);
    close(fd);
    LOOP_UNTIL(loop, there.n_closed == 1);
    assert_int_equal(there.closed_code, STATUS_UNAVAILABLE);
}

/* ---- strangers ---- */

static void expect_refusal(struct wire_header header, const char *magic, uint32_t crc,
                           const char *words) {
    char bytes[WIRE_HEADER_BYTES];
    wire_header_write(&header, bytes);
    if (magic)
        memcpy(bytes, magic, 4);
    memcpy(bytes + 12, &crc, sizeof(crc));
    int fd = connect_raw();
    write_raw(fd, bytes, sizeof(bytes));
    LOOP_UNTIL(loop, there.n_closed == 1);
    if (!strstr(str_text(&there.closed_why), words))
        fail_msg("\"%s\" does not say \"%s\"", str_text(&there.closed_why), words);
    assert_int_equal(there.n_allocs, 0);
    assert_int_equal(there.n_messages, 0);
    close(fd);
    wire_conn_unref(there.conn);
    str_fini(&there.closed_why);
    memset(&there, 0, sizeof(there));
}

static void bad_headers_end_the_connection_and_take_no_memory(void **state) {
    struct wire_header good = {.type = WIRE_PING};
    struct wire_header bad = good;
    expect_refusal(good, "GET ", 0, "not a Millrace worker message");
    expect_refusal(good, NULL, 1, "checksum");
    bad.type = 0;
    expect_refusal(bad, NULL, 0, "unknown message type 0");
    bad.type = WIRE_TYPE_END;
    expect_refusal(bad, NULL, 0, "unknown message type");
    bad = good;
    bad.flags = 2;
    expect_refusal(bad, NULL, 0, "unknown flags");
    bad = good;
    bad.meta_len = WIRE_MAX_META_BYTES + 1;
    expect_refusal(bad, NULL, 0, "bytes of meta");
    bad = good;
    bad.payload_len = UINT64_MAX;
    expect_refusal(bad, NULL, 0, "bytes of payload");
}

/* ---- limits ---- */

static void expect_header(struct wire_header header, int64_t max_payload_bytes, const char *what) {
    char bytes[WIRE_HEADER_BYTES];
    struct wire_header read;
    wire_header_write(&header, bytes);
    struct status *st = wire_header_read(bytes, max_payload_bytes, false, &read);
    assert_int_equal(status_code(st), what ? STATUS_RESOURCE_EXHAUSTED : STATUS_OK);
    if (what)
        assert_non_null(strstr(status_message(st), what));
    status_unref(st);
}

/* One below each limit and at it a message is sent and accepted, one above neither. */
static void each_type_has_the_same_limits_on_both_sides(void **state) {
    static const int64_t max_payload = (int64_t)5 << 30;
    for (int type = WIRE_HELLO; type < WIRE_TYPE_END; type++)
        for (int above = -1; above <= 1; above++) {
            size_t meta_len = (size_t)(WIRE_MAX_META_BYTES + above);
            struct status *st = wire_check_meta((enum wire_type)type, meta_len);
            assert_int_equal(status_code(st), above > 0 ? STATUS_RESOURCE_EXHAUSTED : STATUS_OK);
            if (above > 0) {
                assert_non_null(strstr(status_message(st), wire_type_name((enum wire_type)type)));
                assert_non_null(strstr(status_message(st), "67108865 bytes"));
            }
            status_unref(st);
            expect_header(
                (struct wire_header){.type = (uint16_t)type, .meta_len = (uint32_t)meta_len}, 0,
                above > 0 ? "67108865 bytes of meta, the limit is 67108864" : NULL);
            expect_header((struct wire_header){.type = (uint16_t)type,
                                               .payload_len = (uint64_t)(max_payload + above)},
                          max_payload,
                          above > 0 ? "5368709121 bytes of payload, the limit is 5368709120"
                                    : NULL);
        }
}

static void a_meta_at_the_limit_crosses(void **state) {
    char *meta = calloc(1, WIRE_MAX_META_BYTES);
    connect_here();
    wire_send(here.conn,
              &(struct wire_out){.type = WIRE_STEPS, .meta = {meta, WIRE_MAX_META_BYTES}});
    LOOP_UNTIL(loop, there.n_messages == 1);
    assert_int_equal(there.last_meta.len, WIRE_MAX_META_BYTES);
    free(meta);
}

static void a_meta_beyond_the_limit_ends_the_connection_and_not_the_process(void **state) {
    char *meta = calloc(1, WIRE_MAX_META_BYTES + 1);
    connect_here();
    wire_send(here.conn,
              &(struct wire_out){.type = WIRE_STEPS, .meta = {meta, WIRE_MAX_META_BYTES + 1}});
    LOOP_UNTIL(loop, here.n_closed == 1);
    assert_int_equal(here.closed_code, STATUS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(str_text(&here.closed_why), "a Steps message"));
    free(meta);
}

static void make_string(struct tensor *t, size_t len) {
    char *bytes = calloc(1, len + 1);
    memset(bytes, 's', len);
    *t = TENSOR_INIT;
    assert_null(tensor_new(allocator_host(), DT_STRING, (struct shape){0, NULL}, t));
    tensor_set_string(t, 0, bytes, len);
    free(bytes);
}

/* Sends the values as RunDone does and reads them back. */
static void strings_cross(const size_t *lens, size_t n, size_t n_parts) {
    struct wire_values values;
    struct str meta = STR_INIT;
    struct tensor *tensors = aligned_alloc(64, n * sizeof(*tensors));
    struct tensor_meta one;
    size_t offset = 0;
    wire_values_init(&values, n);
    for (size_t i = 0; i < n; i++) {
        size_t proto_bytes;
        make_string(&tensors[i], lens[i]);
        assert_null(wire_values_add(&values, &tensors[i], &proto_bytes));
        run_done_add_fetch(&meta, &tensors[i], proto_bytes);
    }
    assert_int_equal(values.n_parts, n_parts);
    assert_true(meta.len <= WIRE_INLINE_PROTOS_BYTES + 64 * n);
    connect_here();
    wire_send(here.conn, &(struct wire_out){.type = WIRE_RUN_DONE,
                                            .meta = {meta.data, meta.len},
                                            .tensors = values.parts,
                                            .n_tensors = values.n_parts});
    LOOP_UNTIL(loop, there.n_messages == 1);
    struct buffer *payload = buffer_alloc(allocator_host(), there.last_payload.len + 1);
    memcpy(payload->data, str_text(&there.last_payload), there.last_payload.len);
    struct wire_message message = {.payload = payload, .payload_len = there.last_payload.len};
    struct run_done_message done;
    assert_null(
        run_done_read((struct span){str_text(&there.last_meta), there.last_meta.len}, &done));
    for (size_t i = 0; i < n; i++) {
        struct span fetch;
        struct tensor got = TENSOR_INIT;
        assert_true(run_done_next_fetch(&done, &fetch));
        assert_null(tensor_meta_read(fetch, &one));
        assert_null(tensor_meta_take(&one, &message, &offset, allocator_host(), &got));
        struct span want = tensor_string(&tensors[i], 0), have = tensor_string(&got, 0);
        assert_int_equal(have.len, want.len);
        assert_memory_equal(have.data, want.data, want.len);
        tensor_clear(&got);
        tensor_clear(&tensors[i]);
    }
    buffer_unref(payload);
    wire_values_fini(&values);
    str_fini(&meta);
    free(tensors);
}

static void a_long_string_travels_in_the_payload(void **state) {
    static const size_t lens[] = {3, 70 << 20, 0, 100000};
    strings_cross(lens, ARRAY_LEN(lens), 2);
}

static void many_short_strings_do_not_fill_the_meta(void **state) {
    enum { N = 400 };
    size_t lens[N];
    for (int i = 0; i < N; i++)
        lens[i] = 60000;
    strings_cross(lens, N, N - WIRE_INLINE_PROTOS_BYTES / 60006);
}

static void a_refused_payload_ends_the_connection(void **state) {
    there.refuse_payloads = true;
    connect_here();
    wire_send(here.conn, &(struct wire_out){.type = WIRE_PUSH, .extra = span_of("payload")});
    LOOP_UNTIL(loop, there.n_closed == 1 && here.n_closed == 1);
    assert_int_equal(there.closed_code, STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(there.n_messages, 0);
    assert_int_equal(here.closed_code, STATUS_UNAVAILABLE);
}

static void a_discarded_payload_is_read_past(void **state) {
    static const int64_t sizes[] = {100, 20000, 2000000};
    connect_here();
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct tensor t;
        make_tensor(&t, sizes[i], 1);
        const struct tensor *tensors[1] = {&t};
        there.discard_payloads = true;
        wire_send(here.conn,
                  &(struct wire_out){.type = WIRE_PUSH, .tensors = tensors, .n_tensors = 1});
        send_text(here.conn, WIRE_PING, 1, "after");
        LOOP_UNTIL(loop, there.n_messages == (int)i + 1);
        assert_int_equal(there.last_type, WIRE_PING);
        tensor_clear(&t);
    }
    assert_int_equal(there.n_allocs, 3);
}

static void a_stream_that_ends_within_a_message_says_so(void **state) {
    int fd = connect_raw();
    char bytes[WIRE_HEADER_BYTES];
    wire_header_write(&(struct wire_header){.type = WIRE_PUSH, .meta_len = 5}, bytes);
    write_raw(fd, bytes, sizeof(bytes));
    close(fd);
    LOOP_UNTIL(loop, there.n_closed == 1);
    assert_non_null(strstr(str_text(&there.closed_why), "in the middle of a message"));
}

static void a_grpc_client_is_told_where_to_connect(void **state) {
    struct wire_server *tcp;
    assert_null(wire_listen(loop, "127.0.0.1:0", on_accept, NULL, &tcp));
    wire_server_refuse_grpc(tcp, "this is a worker's port");
    assert_grpc_is_refused(loop, wire_server_port(tcp), "this is a worker's port");
    LOOP_UNTIL(loop, there.n_closed == 1);
    assert_non_null(strstr(str_text(&there.closed_why), "speaks gRPC"));
    wire_server_close(tcp);
}

/* ---- endings ---- */

static void a_refused_connect_ends_once_and_not_inside_the_call(void **state) {
    here.conn = wire_connect(loop, "unix:@nobody-listens-here", &handlers, &here);
    assert_int_equal(here.n_closed, 0);
    send_text(here.conn, WIRE_PING, 1, "x");
    LOOP_UNTIL(loop, here.n_closed == 1);
    assert_int_equal(here.closed_code, STATUS_UNAVAILABLE);
    assert_non_null(strstr(str_text(&here.closed_why), "nobody-listens-here"));
}

static void a_refused_tcp_connect_names_the_address(void **state) {
    here.conn = wire_connect(loop, "127.0.0.1:1", &handlers, &here);
    LOOP_UNTIL(loop, here.n_closed == 1);
    assert_non_null(strstr(str_text(&here.closed_why), "127.0.0.1:1"));
}

static void a_malformed_address_ends_the_connection(void **state) {
    here.conn = wire_connect(loop, "no port", &handlers, &here);
    LOOP_UNTIL(loop, here.n_closed == 1);
    assert_int_equal(here.closed_code, STATUS_INVALID_ARGUMENT);
}

static void closing_inside_a_message_stops_delivery(void **state) {
    there.close_on_message = true;
    connect_here();
    for (uint64_t i = 0; i < 3; i++)
        wire_queue(here.conn, &(struct wire_out){.type = WIRE_PING, .id = i});
    wire_flush(here.conn);
    LOOP_UNTIL(loop, there.n_closed == 1 && here.n_closed == 1);
    assert_int_equal(there.n_messages, 1);
    assert_string_equal(str_text(&there.closed_why), "enough");
}

/* Whoever counts what a connection has moved does so when it ends. */
static struct totals { uint64_t sent_bytes, received_bytes; } at_end;

static void on_closed_count(void *owner, struct wire_conn *conn, struct status *why) {
    at_end = (struct totals){wire_conn_sent_bytes(conn), wire_conn_received_bytes(conn)};
    on_closed(owner, conn, why);
}

static void a_connection_that_has_ended_says_what_it_moved(void **state) {
    static const struct wire_handlers counting = {
        .on_message = on_message, .alloc = on_alloc, .on_closed = on_closed_count};
    struct tensor t;
    make_tensor(&t, 300000, 1);
    const struct tensor *tensors[1] = {&t};
    here.conn = wire_connect(loop, address, &counting, &here);
    send_text(here.conn, WIRE_PING, 1, "to");
    LOOP_UNTIL(loop, there.n_messages == 1);
    wire_send(there.conn,
              &(struct wire_out){
                  .type = WIRE_PUSH, .meta = span_of("back"), .tensors = tensors, .n_tensors = 1});
    LOOP_UNTIL(loop, here.n_messages == 1);
    tensor_clear(&t);
    uint64_t sent_bytes = wire_conn_received_bytes(there.conn);
    uint64_t received_bytes = wire_conn_sent_bytes(there.conn);
    assert_true(sent_bytes > WIRE_HEADER_BYTES && received_bytes > 300000);
    wire_conn_close(here.conn, NULL);
    LOOP_UNTIL(loop, here.n_closed == 1 && there.n_closed == 1);
    assert_int_equal(at_end.sent_bytes, sent_bytes);
    assert_int_equal(at_end.received_bytes, received_bytes);
    assert_int_equal(wire_conn_received_bytes(here.conn), received_bytes);
    assert_int_equal(wire_conn_received_bytes(there.conn), sent_bytes);
}

static void what_the_peer_does_not_read_waits_and_is_dropped_at_the_end(void **state) {
    struct tensor t;
    make_tensor(&t, 8 << 20, 1);
    const struct tensor *tensors[1] = {&t};
    int fd = connect_raw(); /* never reads */
    LOOP_UNTIL(loop, there.conn != NULL);
    wire_send(there.conn,
              &(struct wire_out){.type = WIRE_PUSH, .tensors = tensors, .n_tensors = 1});
    assert_true(wire_conn_queued_bytes(there.conn) > 0);
    assert_false(buffer_is_sole(t.buffer));
    wire_conn_close(there.conn, NULL);
    LOOP_UNTIL(loop, there.n_closed == 1);
    assert_int_equal(there.closed_code, STATUS_OK);
    assert_int_equal(wire_conn_queued_bytes(there.conn), 0);
    assert_true(buffer_is_sole(t.buffer));
    tensor_clear(&t);
    close(fd);
}

/* ---- threads ---- */

enum { N_SENDERS = 4, N_SENT = 3000 };

struct sender {
    pthread_t thread;
    uint64_t number;
};

static void *send_many(void *arg) {
    struct sender *sender = arg;
    struct tensor t;
    make_tensor(&t, 30000, 1);
    const struct tensor *tensors[1] = {&t};
    for (uint64_t i = 0; i < N_SENT; i++)
        wire_send(here.conn, &(struct wire_out){.type = WIRE_PUSH,
                                                .id = sender->number << 32 | i,
                                                .meta = span_of("m"),
                                                .tensors = tensors,
                                                .n_tensors = i % 16 == 0});
    tensor_clear(&t);
    return NULL;
}

static void threads_send_whole_messages_in_their_order(void **state) {
    struct sender senders[N_SENDERS];
    connect_here();
    for (int i = 0; i < N_SENDERS; i++) {
        senders[i].number = (uint64_t)i;
        assert_int_equal(pthread_create(&senders[i].thread, NULL, send_many, &senders[i]), 0);
    }
    LOOP_UNTIL(loop, there.n_messages == N_SENDERS * N_SENT);
    for (int i = 0; i < N_SENDERS; i++)
        pthread_join(senders[i].thread, NULL);
    assert_false(there.is_out_of_order);
}

static void closing_while_threads_send_is_safe(void **state) {
    struct sender senders[N_SENDERS];
    connect_here();
    for (int i = 0; i < N_SENDERS; i++) {
        senders[i].number = (uint64_t)i;
        assert_int_equal(pthread_create(&senders[i].thread, NULL, send_many, &senders[i]), 0);
    }
    LOOP_UNTIL(loop, there.n_messages > 100);
    wire_conn_close(here.conn, NULL);
    LOOP_UNTIL(loop, here.n_closed == 1 && there.n_closed == 1);
    for (int i = 0; i < N_SENDERS; i++)
        pthread_join(senders[i].thread, NULL);
    assert_int_equal(here.n_closed, 1);
}

/* ---- the last bytes ---- */

static void expect_rest_is_read(void) {
    struct tensor large;
    connect_here();
    send_text(here.conn, WIRE_PING, 1, "x");
    LOOP_UNTIL(loop, there.n_messages == 1);
    send_text(here.conn, WIRE_PING, 2, "y");
    make_tensor(&large, 100000, 1);
    const struct tensor *tensors[1] = {&large};
    wire_send(here.conn, &(struct wire_out){.type = WIRE_PUSH, .tensors = tensors, .n_tensors = 1});
    tensor_clear(&large);
    wire_conn_read_rest(there.conn); /* outside of the loop */
    assert_int_equal(there.n_messages, 3);
    assert_int_equal(there.last_payload.len, 100000);
    wire_conn_read_rest(there.conn);
    assert_int_equal(there.n_messages, 3);
    wire_conn_close(here.conn, NULL);
    LOOP_UNTIL(loop, there.n_closed == 1);
    wire_conn_read_rest(there.conn);
}

static void the_rest_is_read_at_once(void **state) { expect_rest_is_read(); }

static void the_rest_is_read_at_once_from_tcp(void **state) {
    wire_server_close(server);
    listen_on("127.0.0.1:0");
    expect_rest_is_read();
}

static void what_nobody_has_read_has_not_arrived(void **state) {
    struct tensor large;
    connect_here();
    send_text(here.conn, WIRE_PING, 1, "x");
    LOOP_UNTIL(loop, there.n_messages == 1);
    LOOP_UNTIL(loop, wire_conn_unarrived_bytes(here.conn) == 0);
    make_tensor(&large, 20 << 20, 1); /* more than a socket holds */
    const struct tensor *tensors[1] = {&large};
    wire_send(here.conn, &(struct wire_out){.type = WIRE_PUSH, .tensors = tensors, .n_tensors = 1});
    assert_true(wire_conn_unarrived_bytes(here.conn) >= 20 << 20);
    LOOP_UNTIL(loop, there.n_messages == 2);
    LOOP_UNTIL(loop, wire_conn_unarrived_bytes(here.conn) == 0);
    send_text(here.conn, WIRE_PING, 1, "x");
    assert_true(wire_conn_unarrived_bytes(here.conn) > 0); /* the kernel has it */
    wire_conn_close(here.conn, NULL);
    assert_int_equal(wire_conn_unarrived_bytes(here.conn), 0);
    tensor_clear(&large);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(messages_of_all_sizes_cross_a_unix_socket),
        TEST(messages_of_all_sizes_cross_tcp),
        TEST(names_are_resolved),
        TEST(a_unix_path_works_and_is_removed),
        TEST(large_metas_are_read_whole),
        TEST(a_message_that_comes_byte_by_byte_is_delivered_once),
        TEST(bad_headers_end_the_connection_and_take_no_memory),
        TEST(each_type_has_the_same_limits_on_both_sides),
        TEST(a_meta_at_the_limit_crosses),
        TEST(a_meta_beyond_the_limit_ends_the_connection_and_not_the_process),
        TEST(a_long_string_travels_in_the_payload),
        TEST(many_short_strings_do_not_fill_the_meta),
        TEST(a_refused_payload_ends_the_connection),
        TEST(a_discarded_payload_is_read_past),
        TEST(a_stream_that_ends_within_a_message_says_so),
        TEST(a_grpc_client_is_told_where_to_connect),
        TEST(a_refused_connect_ends_once_and_not_inside_the_call),
        TEST(a_refused_tcp_connect_names_the_address),
        TEST(a_malformed_address_ends_the_connection),
        TEST(closing_inside_a_message_stops_delivery),
        TEST(a_connection_that_has_ended_says_what_it_moved),
        TEST(what_the_peer_does_not_read_waits_and_is_dropped_at_the_end),
        TEST(threads_send_whole_messages_in_their_order),
        TEST(closing_while_threads_send_is_safe),
        TEST(the_rest_is_read_at_once),
        TEST(the_rest_is_read_at_once_from_tcp),
        TEST(what_nobody_has_read_has_not_arrived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
