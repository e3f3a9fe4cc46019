/* Addresses that only this process knows: listeners, the worker wire and gRPC over them. */
#include "rpc/local.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <pthread.h>

#include "rpc/grpc/grpc_client.h"
#include "rpc/grpc/grpc_server.h"
#include "tests/unit/rpc/wire_ends.h"

static int n_accepted, accepted_fd;

static void keep_fd(void *arg, int fd_take) {
    n_accepted++;
    accepted_fd = fd_take;
}

static int begin(void **state) {
    loop = loop_new();
    memset(&here, 0, sizeof(here));
    memset(&there, 0, sizeof(there));
    n_accepted = 0;
    return 0;
}

static int finish(void **state) {
    loop_end(loop);
    return 0;
}

static void expect_unavailable(struct status *st, const char *part) {
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    if (!strstr(status_message(st), part))
        fail_msg("\"%s\" is not in \"%s\"", part, status_message(st));
    status_unref(st);
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

static void a_dialled_socket_is_accepted(void **state) {
    struct listener *listener;
    char byte = 'x';
    int fd;
    expect_unavailable(local_dial("here", &fd), "local:here: nothing in this process");
    assert_null(listener_new(loop, "local:here", keep_fd, NULL, &listener));
    struct listener *second;
    expect_unavailable(listener_new(loop, "local:here", keep_fd, NULL, &second), "is taken");
    assert_null(local_dial("here", &fd));
    assert_int_equal(n_accepted, 0); /* never inside the call */
    LOOP_UNTIL(loop, n_accepted == 1);
    assert_int_equal(write(fd, &byte, 1), 1);
    byte = 0;
    assert_int_equal(read(accepted_fd, &byte, 1), 1);
    assert_int_equal(byte, 'x');
    close(fd);
    close(accepted_fd);
    listener_close(listener);
    expect_unavailable(local_dial("here", &fd), "nothing in this process");
}

static void a_socket_that_waits_is_closed_with_its_listener(void **state) {
    struct listener *listener;
    char byte;
    int fd;
    assert_null(listener_new(loop, "local:here", keep_fd, NULL, &listener));
    assert_null(local_dial("here", &fd));
    listener_close(listener);
    struct pollfd event = {.fd = fd, .events = POLLIN};
    LOOP_UNTIL(loop, poll(&event, 1, 0) == 1);
    assert_int_equal(read(fd, &byte, 1), 0);
    assert_int_equal(n_accepted, 0);
    close(fd);
}

/* The name is free again at once, also for a listener of another loop. */
static void a_name_is_used_again(void **state) {
    for (int i = 0; i < 100; i++) {
        struct listener *listener;
        int fd;
        assert_null(listener_new(loop, "local:here", keep_fd, NULL, &listener));
        assert_null(local_dial("here", &fd));
        close(fd);
        listener_close(listener);
    }
}

enum { N_DIALLERS = 4, N_DIALS = 50 };

static void *dial_many(void *arg) {
    for (int i = 0; i < N_DIALS; i++) {
        int fd;
        struct status *st = local_dial("here", &fd);
        if (st)
            return arg;
        close(fd);
    }
    return NULL;
}

static void close_fd(void *arg, int fd_take) {
    n_accepted++;
    close(fd_take);
}

static void any_thread_may_dial(void **state) {
    struct listener *listener;
    pthread_t threads[N_DIALLERS];
    assert_null(listener_new(loop, "local:here", close_fd, NULL, &listener));
    for (int i = 0; i < N_DIALLERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, dial_many, &n_accepted), 0);
    LOOP_UNTIL(loop, n_accepted == N_DIALLERS * N_DIALS);
    for (int i = 0; i < N_DIALLERS; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    listener_close(listener);
}

static void the_wire_works_over_it(void **state) {
    listen_on("local:wire");
    connect_here();
    wire_send(here.conn, &(struct wire_out){.type = WIRE_PING, .id = 7, .meta = {"hello", 5}});
    LOOP_UNTIL(loop, there.n_messages == 1);
    assert_int_equal(there.last_id, 7);
    assert_string_equal(str_text(&there.last_meta), "hello");
    assert_true(wire_conn_is_unix(here.conn));
    wire_server_close(server);
    end_fini(&here);
    end_fini(&there);
    memset(&here, 0, sizeof(here));
    connect_here(); /* nobody listens any more */
    LOOP_UNTIL(loop, here.n_closed == 1);
    assert_int_equal(here.closed_code, STATUS_UNAVAILABLE);
    end_fini(&here);
}

static void on_call(void *service, struct grpc_call *call) {
    struct grpc_body body;
    grpc_body_init(&body);
    grpc_body_add_copy(&body, "pong", 4);
    grpc_call_reply(call, &body);
    grpc_body_fini(&body);
}

struct answer {
    struct status *status;
    struct grpc_message message;
    bool has_come;
};

static void on_answer(void *arg, struct status *status_take, struct grpc_message message_take) {
    *(struct answer *)arg = (struct answer){status_take, message_take, true};
}

static void set_true(void *arg) { *(bool *)arg = true; }

static void grpc_works_over_it(void **state) {
    static const struct grpc_method methods[] = {{"/test/Ping", on_call, NULL}};
    struct grpc_server_options options = {.methods = methods, .n_methods = 1};
    struct grpc_server *grpc;
    assert_null(grpc_server_new(loop, "local:grpc", &options, &grpc));
    struct grpc_client *client = grpc_client_new(loop, "local:grpc", false);
    for (int i = 0; i < 2; i++) { /* the second time nothing listens */
        struct answer answer = {0};
        struct grpc_body body;
        bool is_closed = false;
        grpc_body_init(&body);
        grpc_client_start(client, "/test/Ping", &body, -1, NULL, on_answer, &answer);
        LOOP_UNTIL(loop, answer.has_come);
        if (i == 0) {
            assert_null(answer.status);
            assert_true(span_is(answer.message.body, "pong"));
            buffer_unref(answer.message.buffer);
            grpc_server_close(grpc, set_true, &is_closed);
            LOOP_UNTIL(loop, is_closed);
        } else {
            expect_unavailable(answer.status, "local:grpc");
        }
    }
    bool is_closed = false;
    grpc_client_close(client, set_true, &is_closed);
    LOOP_UNTIL(loop, is_closed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(names_are_parsed, begin, finish),
        cmocka_unit_test_setup_teardown(a_dialled_socket_is_accepted, begin, finish),
        cmocka_unit_test_setup_teardown(a_socket_that_waits_is_closed_with_its_listener, begin,
                                        finish),
        cmocka_unit_test_setup_teardown(a_name_is_used_again, begin, finish),
        cmocka_unit_test_setup_teardown(any_thread_may_dial, begin, finish),
        cmocka_unit_test_setup_teardown(the_wire_works_over_it, begin, finish),
        cmocka_unit_test_setup_teardown(grpc_works_over_it, begin, finish),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
