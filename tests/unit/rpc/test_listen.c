/* Addresses: parsing and listening. */
#include "rpc/listen.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static void addresses_are_parsed(void **state) {
    static const struct {
        const char *text, *host;
        int port; /* -1: refused */
        bool is_unix;
    } rows[] = {
        {"127.0.0.1:2222", "127.0.0.1", 2222, false},
        {"[::]:0", "::", 0, false},
        {"[fe80::1]:65535", "fe80::1", 65535, false},
        {"localhost:80", "localhost", 80, false},
        {":8080", "", 8080, false},
        {"*:8080", "", 8080, false},
        {"unix:/tmp/x", "/tmp/x", 0, true},
        {"unix:x:1", "x:1", 0, true},
        {"", NULL, -1, false},
        {"host", NULL, -1, false},
        {"host:", NULL, -1, false},
        {"host:65536", NULL, -1, false},
        {"host:1x", NULL, -1, false},
        {"host:-1", NULL, -1, false},
        {"host:000000001", NULL, -1, false},
        {"::1:80", NULL, -1, false},
        {"[::1:80", NULL, -1, false},
        {"unix:", NULL, -1, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct net_address address;
        struct status *st = net_address_parse(rows[i].text, &address);
        if (rows[i].port < 0) {
            assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
            status_unref(st);
            continue;
        }
        assert_null(st);
        assert_string_equal(address.host, rows[i].host);
        assert_int_equal(address.port, rows[i].port);
        assert_int_equal(address.is_unix, rows[i].is_unix);
    }
    char long_text[600] = "unix:";
    memset(long_text + 5, 'a', 300);
    struct net_address address;
    struct status *st = net_address_parse(long_text, &address);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    status_unref(st);
    memset(long_text, 'a', 300);
    memcpy(long_text + 300, ":80", 4);
    st = net_address_parse(long_text, &address);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    status_unref(st);
}

struct fixture {
    struct loop *loop;
    struct listener *listener;
    int n_accepted, n_wanted;
};

static void on_accept(void *arg, int fd_take) {
    struct fixture *f = arg;
    int no_delay = 0;
    socklen_t len = sizeof(no_delay);
    if (getsockopt(fd_take, IPPROTO_TCP, TCP_NODELAY, &no_delay, &len) == 0)
        assert_true(no_delay);
    close(fd_take);
    if (++f->n_accepted == f->n_wanted) {
        listener_close(f->listener);
        loop_stop(f->loop);
    }
}

static int dial_ip(const char *host, int port) {
    struct net_address address = {.port = (uint16_t)port};
    struct sockaddr_storage sockaddr;
    memcpy(address.host, host, strlen(host) + 1);
    socklen_t len = net_address_to_sockaddr(&address, &sockaddr);
    int fd = socket(sockaddr.ss_family, SOCK_STREAM, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&sockaddr, len) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static bool has_v6(void) {
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = in6addr_loopback};
    int fd = socket(AF_INET6, SOCK_STREAM, 0);
    bool works = fd >= 0 && bind(fd, (struct sockaddr *)&any, sizeof(any)) == 0;
    if (fd >= 0)
        close(fd);
    return works;
}

static void check_dials(const char *text, const char *const *hosts, int n_hosts) {
    struct fixture f = {.loop = loop_new(), .n_wanted = n_hosts};
    int fds[4];
    assert_null(listener_new(f.loop, text, on_accept, &f, &f.listener));
    assert_true(listener_port(f.listener) > 0);
    for (int i = 0; i < n_hosts; i++)
        assert_true((fds[i] = dial_ip(hosts[i], listener_port(f.listener))) >= 0);
    loop_run(f.loop);
    assert_int_equal(f.n_accepted, n_hosts);
    for (int i = 0; i < n_hosts; i++)
        close(fds[i]);
    loop_free(f.loop);
}

static void localhost_and_wildcards_answer_in_both_families(void **state) {
    static const char *const both[] = {"127.0.0.1", "::1"};
    int n = has_v6() ? 2 : 1;
    check_dials("127.0.0.1:0", both, 1);
    check_dials("localhost:0", both, n);
    check_dials("*:0", both, n);
    if (n == 2)
        check_dials("[::]:0", both, 2);
}

static void a_port_in_use_is_named(void **state) {
    struct fixture f = {.loop = loop_new()};
    struct listener *second = NULL;
    assert_null(listener_new(f.loop, "127.0.0.1:0", on_accept, &f, &f.listener));
    char text[40];
    snprintf(text, sizeof(text), "127.0.0.1:%d", listener_port(f.listener));
    struct status *st = listener_new(f.loop, text, on_accept, &f, &second);
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    assert_non_null(strstr(status_message(st), text));
    assert_non_null(strstr(status_message(st), "in use"));
    assert_null(second);
    status_unref(st);
    st = listener_new(f.loop, "nonsense", on_accept, &f, &second);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    status_unref(st);
    listener_close(f.listener);
    loop_stop(f.loop);
    loop_run(f.loop);
    loop_free(f.loop);
}

static void a_stale_unix_socket_is_replaced_and_a_live_one_is_not(void **state) {
    struct fixture f = {.loop = loop_new(), .n_wanted = 1};
    char text[64];
    snprintf(text, sizeof(text), "unix:/tmp/millrace_test_listen.%d", (int)getpid());
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    snprintf(un.sun_path, sizeof(un.sun_path), "%s", text + 5);
    int stale = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(stale, (struct sockaddr *)&un, sizeof(un)), 0);
    close(stale); /* its file stays */
    assert_null(listener_new(f.loop, text, on_accept, &f, &f.listener));
    assert_int_equal(listener_port(f.listener), 0);

    struct listener *second = NULL;
    struct status *st = listener_new(f.loop, text, on_accept, &f, &second);
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    status_unref(st);
    loop_run(f.loop); /* the probe of the second one was a connection, too */
    assert_int_equal(f.n_accepted, 1);
    struct stat info;
    assert_int_not_equal(stat(un.sun_path, &info), 0); /* closing removed it */
    loop_free(f.loop);
}

/* A stranger that resets before it is accepted leaves a socket without a peer, with bytes in it:
 * it is none of the machine's own. */
static void a_socket_whose_peer_has_gone_is_still_no_unix_socket(void **state) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(address);
    struct linger reset = {.l_onoff = 1};
    struct str name = STR_INIT;
    int pair[2], server = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(server, (struct sockaddr *)&address, len), 0);
    assert_int_equal(listen(server, 1), 0);
    assert_int_equal(getsockname(server, (struct sockaddr *)&address, &len), 0);
    assert_int_equal(connect(client, (struct sockaddr *)&address, len), 0);
    assert_int_equal(write(client, "PRI", 3), 3);
    assert_int_equal(setsockopt(client, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
    close(client);
    int accepted = accept(server, NULL, NULL);
    assert_true(accepted >= 0);
    assert_false(net_peer_name(accepted, &name));
    assert_false(net_is_unix(accepted));
    close(accepted);
    close(server);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    assert_true(net_is_unix(pair[0]));
    close(pair[0]);
    close(pair[1]);
    assert_false(net_is_unix(-1));
    str_fini(&name);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_parsed),
        cmocka_unit_test(localhost_and_wildcards_answer_in_both_families),
        cmocka_unit_test(a_port_in_use_is_named),
        cmocka_unit_test(a_socket_whose_peer_has_gone_is_still_no_unix_socket),
        cmocka_unit_test(a_stale_unix_socket_is_replaced_and_a_live_one_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
