/* Calls that a thread makes by itself: servers that are away, silent, slow, or end the call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "rpc/grpc/grpc_duplex.h"

/* HTTP/2 frames of a server: settings; then the headers ":status 200", "grpc-status" and END_STREAM
 * of stream 1, with HPACK literals. */
static const char settings[] = "\0\0\0\4\0\0\0\0\0";
static const char done_ok[] = "\0\0\x10\1\5\0\0\0\1\x88\0\x0bgrpc-status\1"
                              "0";
static const char done_bad[] = "\0\0\x11\1\5\0\0\0\1\x88\0\x0bgrpc-status\2"
                               "13";
/* an EventReply of two bytes, in a message of stream 1, after headers that do not end it */
static const char reply[] = "\0\0\1\1\4\0\0\0\1\x88"
                            "\0\0\7\0\0\0\0\0\1\0\0\0\0\2hi";

struct server {
    int fd, port;
    const char *bytes[3]; /* what is sent to the client that is accepted */
    size_t sizes[3];
    pthread_t thread;
    bool closes;
    int client;
};

/* Reads until the client has begun its call: after its preface, settings and their reply. */
static void read_headers(int client) {
    enum { BEFORE_HEADERS = 24 + 21 + 9 };
    char bytes[1024];
    for (ssize_t n = 0, all = 0; all <= BEFORE_HEADERS + 9; all += n)
        assert_true((n = recv(client, bytes, sizeof bytes, 0)) > 0);
}

static void *serve(void *arg) {
    struct server *server = arg;
    server->client = accept(server->fd, NULL, NULL);
    for (int i = 0; i < 3 && server->bytes[i]; i++) {
        if (i == 1)
            read_headers(server->client);
        assert_int_equal(send(server->client, server->bytes[i], server->sizes[i], MSG_NOSIGNAL),
                         server->sizes[i]);
    }
    if (server->closes)
        shutdown(server->client, SHUT_RDWR);
    return NULL;
}

static void server_listen(struct server *server) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof address;
    server->fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(server->fd, (struct sockaddr *)&address, len), 0);
    assert_int_equal(getsockname(server->fd, (struct sockaddr *)&address, &len), 0);
    server->port = ntohs(address.sin_port);
}

static void server_start(struct server *server) {
    server_listen(server);
    assert_int_equal(listen(server->fd, 1), 0);
    assert_int_equal(pthread_create(&server->thread, NULL, serve, server), 0);
}

static void server_end(struct server *server) {
    pthread_join(server->thread, NULL);
    close(server->client);
    close(server->fd);
}

static struct status *open_to(int port, struct grpc_duplex **ret, bool (*is_unwanted)(void *)) {
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%d", port);
    return grpc_duplex_open(&(struct grpc_duplex_options){.address = address,
                                                          .path = "/s/M",
                                                          .connect_ms = 300,
                                                          .stall_ms = 300,
                                                          .is_unwanted = is_unwanted},
                            ret);
}

static void expect(struct status *status_take, enum status_code code, const char *words) {
    assert_non_null(status_take);
    if (status_code(status_take) != code || !strstr(status_message(status_take), words))
        fail_msg("%s", status_message(status_take));
    status_unref(status_take);
}

static void a_server_that_is_away(void **state) {
    struct server server = {0};
    struct grpc_duplex *duplex;
    server_listen(&server); /* bound, and not listening */
    expect(open_to(server.port, &duplex, NULL), STATUS_UNAVAILABLE, "127.0.0.1:");
    close(server.fd);
    expect(grpc_duplex_open(&(struct grpc_duplex_options){.address = "unix:/x", .path = "/s/M"},
                            &duplex),
           STATUS_INVALID_ARGUMENT, "unix:/x");
}

static void a_server_that_is_silent(void **state) {
    struct server server = {0};
    struct grpc_duplex *duplex;
    server_start(&server);
    expect(open_to(server.port, &duplex, NULL), STATUS_DEADLINE_EXCEEDED, "does not speak HTTP/2");
    server_end(&server);
}

static void a_server_of_another_protocol(void **state) {
    struct server server = {.bytes = {"220 mail.example ESMTP ready\r\n"}, .sizes = {30}};
    struct grpc_duplex *duplex;
    server_start(&server);
    expect(open_to(server.port, &duplex, NULL), STATUS_DEADLINE_EXCEEDED, "does not speak HTTP/2");
    server_end(&server);
}

static void a_server_that_takes_nothing(void **state) {
    struct server server = {.bytes = {settings}, .sizes = {9}};
    struct grpc_duplex *duplex;
    char *large = calloc(1, 1 << 20); /* more than a stream's window */
    server_start(&server);
    assert_null(open_to(server.port, &duplex, NULL));
    expect(grpc_duplex_send(duplex, (struct span){large, 1 << 20}), STATUS_DEADLINE_EXCEEDED,
           "has taken nothing");
    grpc_duplex_close(duplex);
    server_end(&server);
    free(large);
}

static void replies_and_an_end(void **state) {
    struct server server = {.bytes = {settings, reply,
                                      "\0\0\x0f\1\5\0\0\0\1\0\x0bgrpc-status\1"
                                      "0"},
                            .sizes = {9, 26, 24}};
    struct grpc_duplex *duplex;
    struct str text = STR_INIT;
    bool is_ended;
    server_start(&server);
    assert_null(open_to(server.port, &duplex, NULL));
    assert_null(grpc_duplex_receive(duplex, 10000, &text, &is_ended));
    assert_false(is_ended);
    assert_string_equal(str_text(&text), "hi");
    assert_null(grpc_duplex_receive(duplex, 10000, &text, &is_ended));
    assert_true(is_ended);
    assert_null(grpc_duplex_finish(duplex));
    grpc_duplex_close(duplex);
    server_end(&server);
    str_fini(&text);
}

static void ends_with_a_status(void **state) {
    struct server bad = {.bytes = {settings, done_bad}, .sizes = {9, sizeof done_bad - 1}},
                  good = {.bytes = {settings, done_ok}, .sizes = {9, sizeof done_ok - 1}};
    struct grpc_duplex *duplex;
    struct str text = STR_INIT;
    bool is_ended = false;
    server_start(&bad);
    assert_null(open_to(bad.port, &duplex, NULL));
    expect(grpc_duplex_receive(duplex, 10000, &text, &is_ended), STATUS_INTERNAL, "/s/M");
    expect(grpc_duplex_send(duplex, span_of("x")), STATUS_INTERNAL, "/s/M");
    grpc_duplex_close(duplex);
    server_end(&bad);
    server_start(&good);
    assert_null(open_to(good.port, &duplex, NULL));
    assert_null(grpc_duplex_receive(duplex, 10000, &text, &is_ended));
    assert_true(is_ended);
    expect(grpc_duplex_send(duplex, span_of("x")), STATUS_UNAVAILABLE, "has ended /s/M");
    grpc_duplex_close(duplex);
    server_end(&good);
    str_fini(&text);
}

static void a_connection_that_breaks(void **state) {
    struct server server = {.bytes = {settings}, .sizes = {9}, .closes = true};
    struct grpc_duplex *duplex;
    struct str text = STR_INIT;
    bool is_ended;
    server_start(&server);
    struct status *st = open_to(server.port, &duplex, NULL);
    if (st) { /* it broke while the request was being sent */
        expect(st, STATUS_UNAVAILABLE, "127.0.0.1:");
    } else {
        expect(grpc_duplex_receive(duplex, 10000, &text, &is_ended), STATUS_UNAVAILABLE,
               "127.0.0.1:");
        grpc_duplex_close(duplex);
    }
    server_end(&server);
}

static _Atomic bool is_cancelled;
static bool ask(void *arg) { return atomic_load(&is_cancelled); }
static void *cancel(void *arg) {
    atomic_store(&is_cancelled, true);
    return NULL;
}

static void a_call_that_nobody_wants(void **state) {
    struct server server = {.bytes = {settings}, .sizes = {9}};
    struct grpc_duplex *duplex;
    struct str text = STR_INIT;
    pthread_t thread;
    bool is_ended;
    server_start(&server);
    assert_null(open_to(server.port, &duplex, ask));
    assert_int_equal(pthread_create(&thread, NULL, cancel, NULL), 0);
    expect(grpc_duplex_receive(duplex, -1, &text, &is_ended), STATUS_CANCELLED, "/s/M");
    pthread_join(thread, NULL);
    grpc_duplex_close(duplex);
    server_end(&server);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_is_away),
        cmocka_unit_test(a_server_that_is_silent),
        cmocka_unit_test(a_server_of_another_protocol),
        cmocka_unit_test(a_server_that_takes_nothing),
        cmocka_unit_test(replies_and_an_end),
        cmocka_unit_test(ends_with_a_status),
        cmocka_unit_test(a_connection_that_breaks),
        cmocka_unit_test(a_call_that_nobody_wants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
