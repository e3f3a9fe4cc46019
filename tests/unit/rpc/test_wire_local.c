/* The worker wire within one process: names, delivery, payloads that are handed over, and ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <pthread.h>

#include "tests/unit/rpc/wire_ends.h"

static int begin(void **state) {
    loop = loop_new();
    memset(&here, 0, sizeof(here));
    memset(&there, 0, sizeof(there));
    listen_on("local:here");
    return 0;
}

static void names_are_parsed(void **state) {
    struct net_address parsed;
    assert_null(net_address_parse("local:worker", &parsed));
    assert_true(parsed.is_local && parsed.is_unix);
    assert_string_equal(parsed.host, "worker");
    assert_null(net_address_parse("local:2222", &parsed)); /* a host */
    assert_false(parsed.is_local);
    struct status *st = net_address_parse("local:", &parsed);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    status_unref(st);
}

static void no_socket_listens_there(void **state) {
    struct listener *listener;
    struct status *st = listener_new(loop, "local:there", NULL, NULL, &listener);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(status_message(st), "local:there"));
    status_unref(st);
}

static void messages_of_all_sizes_cross(void **state) {
    check_sizes();
    assert_true(wire_conn_is_unix(here.conn) && wire_conn_is_same_user(here.conn));
}

static void a_name_is_taken_once_and_free_again(void **state) {
    struct wire_server *second;
    for (int i = 0; i < 100; i++) {
        struct status *st = wire_listen(loop, "local:here", on_accept, NULL, &second);
        assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
        assert_non_null(strstr(status_message(st), "local:here: the name is taken"));
        status_unref(st);
        wire_server_close(server);
        listen_on("local:here");
    }
}

static void a_name_that_nobody_has_ends_the_connection(void **state) {
    snprintf(address, sizeof(address), "local:nobody");
    connect_here();
    assert_int_equal(here.n_closed, 0); /* never inside the call */
    LOOP_UNTIL(loop, here.n_closed == 1);
    assert_int_equal(here.closed_code, STATUS_UNAVAILABLE);
    assert_non_null(strstr(str_text(&here.closed_why), "local:nobody: nothing in this process"));
}

/* What is sent at once waits until the other end has been accepted. */
static void what_is_sent_first_is_delivered_first(void **state) {
    connect_here();
    for (uint64_t i = 0; i < 10; i++)
        send_text(here.conn, WIRE_PING, i, "early");
    assert_null(there.conn);
    LOOP_UNTIL(loop, there.n_messages == 10);
    assert_int_equal(there.last_id, 9);
    assert_false(there.is_out_of_order);
}

static void what_is_queued_waits_for_a_flush(void **state) {
    connect_here();
    send_text(here.conn, WIRE_PING, 0, "first");
    LOOP_UNTIL(loop, there.n_messages == 1);
    wire_queue(here.conn, &(struct wire_out){.type = WIRE_PING, .id = 1, .meta = {"x", 1}});
    assert_int_equal(wire_conn_queued_bytes(here.conn), WIRE_HEADER_BYTES + 1);
    for (int i = 0; i < 10; i++)
        uv_run(loop_uv(loop), UV_RUN_NOWAIT);
    assert_int_equal(there.n_messages, 1);
    wire_flush(here.conn);
    LOOP_UNTIL(loop, there.n_messages == 2);
    assert_int_equal(wire_conn_queued_bytes(here.conn), 0);
    assert_int_equal(wire_conn_sent_bytes(here.conn), wire_conn_received_bytes(there.conn));
}

/* ---- payloads ---- */

static struct buffer *kept;

static void keep_payload(void *owner, struct wire_conn *conn, struct wire_message *message) {
    kept = message->payload;
    message->payload = NULL;
}

static const struct wire_handlers keeping = {.on_message = keep_payload, .on_closed = on_closed};

static void send_bytes(struct wire_conn *conn, const struct tensor *t) {
    const struct tensor *tensors[1] = {t};
    wire_send(conn, &(struct wire_out){.type = WIRE_PUSH, .tensors = tensors, .n_tensors = 1});
}

static void send_kept(int64_t n_bytes, struct tensor *t) {
    make_tensor(t, n_bytes, 1);
    kept = NULL;
    send_bytes(here.conn, t);
    LOOP_UNTIL(loop, kept != NULL);
    assert_memory_equal(kept->data, tensor_cdata(t), (size_t)n_bytes);
}

static void a_large_tensor_is_handed_over_for_reading(void **state) {
    struct tensor t;
    connect_here();
    LOOP_UNTIL(loop, there.conn != NULL);
    wire_conn_set_owner(there.conn, &there, &keeping);
    send_kept(1 << 20, &t);
    assert_ptr_equal(kept->data, tensor_cdata(&t));
    assert_false(buffer_is_sole(kept)); /* the sender may keep it, so nobody may write to it */
    tensor_clear(&t);
    assert_int_equal(kept->data[5], (char)(5 * 7 + 1)); /* it lives as long as its view */
    buffer_unref(kept);
}

static void a_small_tensor_is_copied(void **state) {
    struct tensor t;
    connect_here();
    LOOP_UNTIL(loop, there.conn != NULL);
    wire_conn_set_owner(there.conn, &there, &keeping);
    send_kept(1000, &t);
    assert_ptr_not_equal(kept->data, tensor_cdata(&t));
    assert_true(buffer_is_sole(kept));
    buffer_unref(kept);
    tensor_clear(&t);
}

static void send_and_after(int64_t n_bytes) {
    struct tensor t;
    make_tensor(&t, n_bytes, 1);
    connect_here();
    LOOP_UNTIL(loop, there.conn != NULL);
    send_bytes(here.conn, &t);
    send_text(here.conn, WIRE_PING, 2, "after");
    tensor_clear(&t);
}

static void a_refused_payload_ends_the_connection(void **state) {
    there.refuse_payloads = true;
    send_and_after(100000);
    LOOP_UNTIL(loop, there.n_closed == 1 && here.n_closed == 1);
    assert_int_equal(there.closed_code, STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(there.n_messages, 0);
    assert_int_equal(here.closed_code, STATUS_UNAVAILABLE);
}

static void a_payload_that_is_not_wanted_is_dropped(void **state) {
    there.discard_payloads = true;
    send_and_after(100000);
    LOOP_UNTIL(loop, there.n_messages == 1);
    assert_string_equal(str_text(&there.last_meta), "after");
    assert_int_equal(there.n_allocs, 1);
}

static void a_payload_beyond_the_limit_ends_the_connection(void **state) {
    static const struct wire_handlers limited = {
        .on_message = on_message, .on_closed = on_closed, .max_payload_bytes = 1000};
    struct tensor t;
    make_tensor(&t, 1001, 1);
    connect_here();
    LOOP_UNTIL(loop, there.conn != NULL);
    wire_conn_set_owner(there.conn, &there, &limited);
    send_bytes(here.conn, &t);
    LOOP_UNTIL(loop, there.n_closed == 1);
    assert_int_equal(there.closed_code, STATUS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(str_text(&there.closed_why), "the limit is 1000"));
    tensor_clear(&t);
}

/* ---- the end ---- */

static void what_was_sent_before_the_end_is_delivered(void **state) {
    connect_here();
    send_text(here.conn, WIRE_PING, 0, "last words");
    wire_conn_close(here.conn, NULL);
    LOOP_UNTIL(loop, there.n_closed == 1 && here.n_closed == 1);
    assert_int_equal(there.n_messages, 1);
    assert_string_equal(str_text(&there.last_meta), "last words");
    assert_int_equal(there.closed_code, STATUS_UNAVAILABLE);
    assert_string_equal(str_text(&there.closed_why), "this process closed the connection");
}

static void a_connection_whose_other_end_has_gone_is_hung_up(void **state) {
    connect_here();
    send_text(here.conn, WIRE_PING, 0, "x");
    LOOP_UNTIL(loop, there.n_messages == 1);
    assert_false(wire_conn_is_hung_up(here.conn));
    wire_conn_close(there.conn, NULL);
    assert_true(wire_conn_is_hung_up(here.conn));
    send_text(here.conn, WIRE_PING, 1, "into the void");
    LOOP_UNTIL(loop, here.n_closed == 1);
    send_text(here.conn, WIRE_PING, 2, "too late");
    assert_int_equal(wire_conn_queued_bytes(here.conn), 0);
}

static void closing_inside_a_message_stops_delivery(void **state) {
    there.close_on_message = true;
    connect_here();
    for (uint64_t i = 0; i < 3; i++)
        send_text(here.conn, WIRE_PING, i, "x");
    LOOP_UNTIL(loop, there.n_closed == 1 && here.n_closed == 1);
    assert_int_equal(there.n_messages, 1);
    assert_int_equal(there.closed_code, STATUS_CANCELLED);
}

static void who_waits_at_a_listener_that_closes_is_told(void **state) {
    connect_here();
    wire_server_close(server);
    server = NULL;
    LOOP_UNTIL(loop, here.n_closed == 1);
    assert_null(there.conn);
    assert_int_equal(here.closed_code, STATUS_UNAVAILABLE);
}

static void who_gives_up_before_being_accepted_is_accepted_and_ends(void **state) {
    connect_here();
    wire_conn_close(here.conn, NULL);
    LOOP_UNTIL(loop, here.n_closed == 1 && there.n_closed == 1);
    assert_int_equal(there.n_messages, 0);
}

/* ---- threads ---- */

enum { N_SENDERS = 4, N_SENT = 500 };

static void *send_many(void *arg) {
    uint64_t sender = (uint64_t)(uintptr_t)arg;
    struct tensor t;
    make_tensor(&t, 20000, (int)sender);
    const struct tensor *tensors[1] = {&t};
    for (uint64_t i = 0; i < N_SENT; i++)
        wire_send(here.conn, &(struct wire_out){.type = WIRE_PUSH,
                                                .id = sender << 32 | i,
                                                .tensors = tensors,
                                                .n_tensors = i % 7 == 0});
    tensor_clear(&t);
    return NULL;
}

static void send_by_threads(pthread_t *threads) {
    for (uintptr_t i = 0; i < N_SENDERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, send_many, (void *)i), 0);
}

static void threads_send_whole_messages_in_their_order(void **state) {
    pthread_t threads[N_SENDERS];
    connect_here();
    send_by_threads(threads);
    LOOP_UNTIL(loop, there.n_messages == N_SENDERS * N_SENT);
    for (int i = 0; i < N_SENDERS; i++)
        pthread_join(threads[i], NULL);
    assert_false(there.is_out_of_order);
}

static void closing_while_threads_send_is_safe(void **state) {
    pthread_t threads[N_SENDERS];
    connect_here();
    send_by_threads(threads);
    LOOP_UNTIL(loop, there.n_messages > 10);
    wire_conn_close(there.conn, NULL);
    LOOP_UNTIL(loop, here.n_closed == 1);
    for (int i = 0; i < N_SENDERS; i++)
        pthread_join(threads[i], NULL);
}

/* The other end lives on a loop of another thread. */
static void *run_other_loop(void *arg) {
    struct loop *other = loop_new();
    struct end end = {0};
    end.conn = wire_connect(other, "local:here", &handlers, &end);
    send_text(end.conn, WIRE_PING, 3, "from another loop");
    LOOP_UNTIL(other, end.n_messages == 1);
    wire_end(other, end.conn, &end.n_closed);
    str_fini(&end.last_meta);
    str_fini(&end.closed_why);
    loop_end(other);
    return NULL;
}

static void two_loops_may_be_joined(void **state) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_other_loop, NULL), 0);
    LOOP_UNTIL(loop, there.n_messages == 1);
    assert_string_equal(str_text(&there.last_meta), "from another loop");
    send_text(there.conn, WIRE_PONG, 3, "back");
    LOOP_UNTIL(loop, there.n_closed == 1);
    pthread_join(thread, NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(names_are_parsed),
        TEST(no_socket_listens_there),
        TEST(messages_of_all_sizes_cross),
        TEST(a_name_is_taken_once_and_free_again),
        TEST(a_name_that_nobody_has_ends_the_connection),
        TEST(what_is_sent_first_is_delivered_first),
        TEST(what_is_queued_waits_for_a_flush),
        TEST(a_large_tensor_is_handed_over_for_reading),
        TEST(a_small_tensor_is_copied),
        TEST(a_refused_payload_ends_the_connection),
        TEST(a_payload_that_is_not_wanted_is_dropped),
        TEST(a_payload_beyond_the_limit_ends_the_connection),
        TEST(what_was_sent_before_the_end_is_delivered),
        TEST(a_connection_whose_other_end_has_gone_is_hung_up),
        TEST(closing_inside_a_message_stops_delivery),
        TEST(who_waits_at_a_listener_that_closes_is_told),
        TEST(who_gives_up_before_being_accepted_is_accepted_and_ends),
        TEST(threads_send_whole_messages_in_their_order),
        TEST(closing_while_threads_send_is_safe),
        TEST(two_loops_may_be_joined),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
