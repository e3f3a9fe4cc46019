/* The worker wire over TLS: messages of all sizes, both ways, from many threads at once; and which
 * peers are refused, with which message. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <pthread.h>
#include <sys/socket.h>

#include "rpc/wire/wire_internal.h"
#include "tests/unit/rpc/grpc_dial.h"
#include "tests/unit/rpc/loop_until.h"
#include "tests/unit/rpc/test_certs.h"
#include "tests/unit/rpc/wire_end.h"

enum { N_THREADS = 3, N_PER_THREAD = 400 };

struct end {
    struct wire_conn *conn;
    int n_messages, n_closed;
    size_t n_bytes;
    struct wire_message last;
    bool is_wrong;
    struct str why;
    uint64_t next[N_THREADS + 1]; /* per sender, of the id's upper half */
};

static struct test_certs certs;
static struct loop *loop;
static struct wire_server *server;
static struct end here, there;
static char address[64];
static struct tls *master, *ps;

static unsigned char byte_at(uint64_t id, size_t i) {
    return (unsigned char)(id * 131 + i * 7 + (i >> 12));
}

static void on_message(void *owner, struct wire_conn *conn, struct wire_message *message) {
    struct end *end = owner;
    uint64_t sender = message->id >> 32;
    end->n_messages++;
    end->n_bytes += message->payload_len;
    for (size_t i = 0; i < message->payload_len; i += 997)
        end->is_wrong |= ((unsigned char *)message->payload->data)[i] != byte_at(message->id, i);
    end->is_wrong |= sender > N_THREADS || (message->id & 0xffffffff) != end->next[sender]++;
}

static void on_closed(void *owner, struct wire_conn *conn, struct status *why) {
    struct end *end = owner;
    end->n_closed++;
    str_add(&end->why, status_message(why));
}

static const struct wire_handlers handlers = {.on_message = on_message, .on_closed = on_closed};

static void on_accept(void *arg, struct wire_conn *conn_take) {
    wire_conn_unref(there.conn);
    there.conn = conn_take;
    wire_conn_set_owner(conn_take, &there, &handlers);
}

static int setup(void **state) {
    loop = loop_new();
    memset(&here, 0, sizeof(here));
    memset(&there, 0, sizeof(there));
    test_ok(wire_listen(loop, "127.0.0.1:0", on_accept, NULL, &server));
    snprintf(address, sizeof(address), "127.0.0.1:%d", wire_server_port(server));
    return 0;
}

static void end_fini(struct end *end) {
    wire_end(loop, end->conn, &end->n_closed);
    str_fini(&end->why);
}

static int teardown(void **state) {
    end_fini(&here);
    end_fini(&there);
    wire_server_close(server);
    loop_end(loop);
    return 0;
}

static int group_setup(void **state) {
    test_certs_init(&certs, "ours");
    master = test_tls(&certs, "master", &certs, TLS_ALPN_WIRE);
    ps = test_tls(&certs, "ps-0", &certs, TLS_ALPN_WIRE);
    return 0;
}

static int group_teardown(void **state) {
    tls_unref(master);
    tls_unref(ps);
    test_certs_fini(&certs);
    return 0;
}

static void connect_here(struct tls *tls, const char *task) {
    here.conn = wire_connect(loop, address, &handlers, &here);
    wire_conn_secure(here.conn, tls, task);
}

static void send_payload(struct wire_conn *conn, uint64_t id, size_t len) {
    struct buffer *buffer = len ? buffer_alloc(allocator_host(), len) : NULL;
    for (size_t i = 0; i < len; i++)
        ((unsigned char *)buffer->data)[i] = byte_at(id, i);
    struct wire_out out = {.type = WIRE_PUSH,
                           .id = id,
                           .extra = {buffer ? buffer->data : NULL, len},
                           .extra_buffer = buffer};
    wire_send(conn, &out);
    buffer_unref(buffer);
}

static void test_messages_of_all_sizes(void **state) {
    static const size_t sizes[] = {0,     1,       4095,     4096, 16384,   16385,
                                   65536, 1 << 20, 40 << 20, 3,    5 << 20, 0};
    size_t total = 0;
    wire_server_secure(server, ps);
    connect_here(master, "/job:ps/replica:0/task:0");
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) { /* queued before there is a connection */
        send_payload(here.conn, i, sizes[i]);
        total += sizes[i];
    }
    LOOP_UNTIL(loop, there.n_messages == (int)ARRAY_LEN(sizes) || here.n_closed || there.n_closed);
    assert_int_equal(there.n_bytes, total);
    assert_null(wire_conn_check_task(there.conn, "master"));
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++)
        send_payload(there.conn, i, sizes[i]);
    LOOP_UNTIL(loop, here.n_messages == (int)ARRAY_LEN(sizes) || here.n_closed || there.n_closed);
    assert_int_equal(here.n_bytes, total);
    assert_false(here.is_wrong || there.is_wrong);
}

struct sender {
    pthread_t thread;
    uint64_t id;
};

static void *run_sender(void *arg) {
    struct sender *sender = arg;
    for (uint64_t i = 0; i < N_PER_THREAD; i++)
        send_payload(here.conn, sender->id << 32 | i, i % 40 == 0 ? 300000 : i % 7 * 900);
    return NULL;
}

/* The loop reads while others write. */
static void test_many_threads_and_both_ways(void **state) {
    struct sender senders[N_THREADS];
    wire_server_secure(server, ps);
    connect_here(master, "/job:ps/replica:0/task:0");
    LOOP_UNTIL(loop, there.conn && wire_conn_is_open(here.conn) && wire_conn_is_open(there.conn));
    for (uint64_t i = 0; i < N_THREADS; i++) {
        senders[i].id = i + 1;
        assert_int_equal(pthread_create(&senders[i].thread, NULL, run_sender, &senders[i]), 0);
    }
    for (uint64_t i = 0; i < N_PER_THREAD; i++)
        send_payload(there.conn, i, i % 40 == 0 ? 300000 : i % 5 * 1000);
    LOOP_UNTIL(loop,
               (there.n_messages == N_THREADS * N_PER_THREAD && here.n_messages == N_PER_THREAD) ||
                   here.n_closed || there.n_closed);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(senders[i].thread, NULL);
    assert_int_equal(there.n_messages, N_THREADS * N_PER_THREAD);
    assert_int_equal(here.n_messages, N_PER_THREAD);
    assert_false(here.is_wrong || there.is_wrong);
}

static void expect_why(const struct end *end, const char *part) {
    if (!strstr(str_text(&end->why), part))
        fail_msg("'%s' does not have '%s'", str_text(&end->why), part);
}

/* Nothing of what was queued has gone to the wrong one. */
static void test_the_wrong_task_gets_nothing(void **state) {
    wire_server_secure(server, ps);
    connect_here(master, "/job:ps/replica:0/task:1");
    send_payload(here.conn, 0, 1000);
    LOOP_UNTIL(loop, here.n_closed && there.n_closed);
    expect_why(&here, "is for URI:millrace://default/job/ps/task/0");
    expect_why(&here, "not for millrace://default/job/ps/task/1");
    expect_why(&there, "refuses our certificate");
    assert_int_equal(there.n_messages, 0);
}

static void test_who_shows_no_certificate(void **state) {
    struct tls *nobody = test_tls(&certs, NULL, &certs, TLS_ALPN_WIRE);
    wire_server_secure(server, ps);
    connect_here(nobody, "/job:ps/replica:0/task:0");
    send_payload(here.conn, 0, 1000);
    LOOP_UNTIL(loop, here.n_closed && there.n_closed);
    expect_why(&there, "shows no certificate");
    expect_why(&here, "requires a certificate");
    assert_int_equal(there.n_messages, 0);
    tls_unref(nobody);
}

static void test_in_the_clear_to_a_port_with_tls(void **state) {
    wire_server_secure(server, ps);
    connect_here(NULL, NULL);
    send_payload(here.conn, 0, 1000);
    LOOP_UNTIL(loop, here.n_closed && there.n_closed);
    expect_why(&there, "does not speak TLS");
    expect_why(&here, "wants TLS");
}

static void test_with_tls_to_a_port_in_the_clear(void **state) {
    connect_here(master, "/job:ps/replica:0/task:0");
    send_payload(here.conn, 0, 1000);
    LOOP_UNTIL(loop, here.n_closed && there.n_closed);
    expect_why(&here, "closed the connection during the TLS handshake: does it speak TLS");
    assert_int_equal(there.n_messages, 0);
}

static void test_grpc_in_the_clear_to_a_port_with_tls(void **state) {
    wire_server_secure(server, ps);
    wire_server_refuse_grpc(server, "these words come later");
    wire_server_refuse_grpc(server, "this is a worker's port");
    assert_grpc_is_refused(loop, wire_server_port(server), "this is a worker's port");
    LOOP_UNTIL(loop, there.n_closed);
    expect_why(&there, "speaks gRPC");
    /* the next one is a task, with TLS */
    connect_here(master, "/job:ps/replica:0/task:0");
    send_payload(here.conn, 0, 1000);
    LOOP_UNTIL(loop, there.n_messages == 1 || here.n_closed);
    assert_int_equal(there.n_messages, 1);
}

static void test_closing_in_the_handshake(void **state) {
    wire_server_secure(server, ps);
    connect_here(master, "/job:ps/replica:0/task:0");
    LOOP_UNTIL(loop, there.conn);
    wire_conn_close(here.conn, NULL);
    LOOP_UNTIL(loop, here.n_closed && there.n_closed);
    expect_why(&there, "during the TLS handshake");
}

/* Of this user, which is all that it needs. */
static void test_unix_sockets_need_none(void **state) {
    char text[64];
    wire_server_close(server);
    snprintf(text, sizeof(text), "unix:@millrace-test-tls-%d", (int)getpid());
    test_ok(wire_listen(loop, text, on_accept, NULL, &server));
    wire_server_secure(server, ps);
    here.conn = wire_connect(loop, text, &handlers, &here);
    wire_conn_secure(here.conn, master, "/job:ps/replica:0/task:0");
    send_payload(here.conn, 0, 1000);
    LOOP_UNTIL(loop, there.n_messages == 1 || here.n_closed);
    assert_int_equal(there.n_messages, 1);
    assert_null(wire_conn_check_task(there.conn, "master"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_messages_of_all_sizes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_threads_and_both_ways, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_wrong_task_gets_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_who_shows_no_certificate, setup, teardown),
        cmocka_unit_test_setup_teardown(test_in_the_clear_to_a_port_with_tls, setup, teardown),
        cmocka_unit_test_setup_teardown(test_with_tls_to_a_port_in_the_clear, setup, teardown),
        cmocka_unit_test_setup_teardown(test_grpc_in_the_clear_to_a_port_with_tls, setup, teardown),
        cmocka_unit_test_setup_teardown(test_closing_in_the_handshake, setup, teardown),
        cmocka_unit_test_setup_teardown(test_unix_sockets_need_none, setup, teardown),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
