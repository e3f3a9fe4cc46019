/* The admin port: pages, limits, malformed HTTP. */
#include "rpc/daemon/admin.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/metrics.h"
#include "rpc/daemon/page.h"
#include "tests/unit/rpc/grpc_dial.h"
#include "tests/unit/rpc/test_certs.h"

/* The admin port on a loop of its own thread; the tests are blocking HTTP clients. */
struct fixture {
    struct loop *loop;
    struct admin_server *server;
    struct loop_task close;
    pthread_t thread;
    int port;
    struct tls *tls; /* or NULL */
    int n_refused;   /* gRPC clients */
};

static int write_status(void *arg, const char *query, struct str *out) {
    assert_true(loop_is_current(((struct fixture *)arg)->loop));
    page_open(out, NULL, '{');
    page_text(out, "query", query);
    page_text(out, "hostile", "<script>");
    page_close(out, '}');
    return 200;
}

static int write_lines(void *arg, const char *query, struct str *out) {
    str_add(out, page_query_wants_json(query) ? "{\"lines\": 1}" : "a line\n");
    return 200;
}

static int write_error(void *arg, const char *query, struct str *out) {
    str_add(out, "{\"code\":3}");
    return 200;
}

static int write_error_to_operator(void *arg, const char *query, struct str *out) {
    str_addf(out, "{\"code\":3,\"message\":\"%s\"}", query);
    return 200;
}

static int write_ready(void *arg, const char *query, struct str *out) {
    str_add(out, "waiting for /job:ps/task:0\n");
    return 503;
}

static int write_large(void *arg, const char *query, struct str *out) {
    for (int i = 0; i < 300000; i++)
        str_add(out, "0123456789");
    return 200;
}

static int write_quit(void *arg, const char *query, struct str *out) {
    struct fixture *f = arg;
    admin_server_close(f->server);
    admin_server_close(f->server);
    f->server = NULL;
    return 200;
}

/* Pages that are finished later: by a task of the loop's, at once, or never before the server
 * has closed. */
struct later {
    struct loop_task task;
    struct admin_reply *reply;
    char query[100];
};

static void finish_later(struct loop_task *task) {
    struct later *later = CONTAINER_OF(task, struct later, task);
    struct str body = STR_INIT;
    if (page_query_wants_json(later->query))
        str_add(&body, "{\"later\": true}");
    else
        str_addf(&body, "later: %s", later->query);
    admin_reply_finish(later->reply, 203, &body);
    str_fini(&body);
    free(later);
}

static struct later *held; /* by the loop's thread */

static void begin_later(void *arg, const char *query, struct admin_reply *reply) {
    struct fixture *f = arg;
    struct later *later = calloc(1, sizeof(*later));
    later->task.run = finish_later;
    later->reply = reply;
    snprintf(later->query, sizeof(later->query), "%s", query);
    if (strcmp(query, "now") == 0)
        finish_later(&later->task);
    else if (strcmp(query, "hold") == 0)
        held = later;
    else
        loop_post(f->loop, &later->task);
}

static void run_close(struct loop_task *task) {
    struct fixture *f = CONTAINER_OF(task, struct fixture, close);
    admin_server_close(f->server);
    loop_stop(f->loop);
}

static void *run_loop(void *arg) {
    loop_run(((struct fixture *)arg)->loop);
    return NULL;
}

static void write_refusal(void *arg, struct str *out) {
    str_addf(out, "this is an admin port, told %d times", ++((struct fixture *)arg)->n_refused);
}

static int write_change(void *arg, const char *query, struct str *out) {
    str_add(out, "changed\n");
    return 200;
}

static struct fixture *setup_with(const struct admin_options *more) {
    static const struct admin_page pages[] = {
        {"/statusz", "application/json", .write = write_status, .summary = "the status"},
        {"/linez", "text/plain", .write = write_lines, .has_json = true, .summary = "lines"},
        {"/errorz", "application/json", .write = write_error,
         .write_to_operator = write_error_to_operator},
        {"/readyz", "text/plain", .write = write_ready},
        {"/large", "text/plain", .write = write_large},
        {"/quit", "text/plain", .write = write_quit},
        {"/change", "text/plain", .write = write_change, .is_action = true},
        {"/later", "text/plain", .begin = begin_later, .has_json = true}};
    struct fixture *f = calloc(1, sizeof(*f));
    signal(SIGPIPE, SIG_IGN);
    f->loop = loop_new();
    f->close.run = run_close;
    f->tls = more->tls;
    struct admin_options options = *more;
    options.pages = pages;
    options.n_pages = ARRAY_LEN(pages);
    options.arg = f;
    options.program = "tf-test";
    options.name = "/job:test/task:0";
    options.write_refusal = write_refusal;
    assert_null(admin_server_new(f->loop, "localhost:0", &options, &f->server));
    f->port = admin_server_port(f->server);
    assert_true(f->port > 0);
    pthread_create(&f->thread, NULL, run_loop, f);
    return f;
}

static struct fixture *setup(void) { return setup_with(&(struct admin_options){.tls = NULL}); }

static void teardown(struct fixture *f) {
    loop_post(f->loop, &f->close);
    pthread_join(f->thread, NULL);
    loop_free(f->loop);
    tls_unref(f->tls);
    free(f);
}

static int dial(const struct fixture *f) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)f->port),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* Sends the text and reads to the end. */
static void exchange_over(int fd, const char *request, struct str *reply) {
    char input[65536];
    ssize_t n;
    str_clear(reply);
    assert_int_equal(write(fd, request, strlen(request)), (ssize_t)strlen(request));
    while ((n = read(fd, input, sizeof(input))) > 0)
        str_add_bytes(reply, input, (size_t)n);
    close(fd);
}

static void exchange(const struct fixture *f, const char *request, struct str *reply) {
    exchange_over(dial(f), request, reply);
}

static void check(const struct fixture *f, const char *request_line, const char *headers,
                  const char *status, const char *wanted, const char *wanted_too) {
    struct str reply = STR_INIT;
    char request[1000];
    snprintf(request, sizeof(request), "%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n",
             request_line, headers);
    exchange(f, request, &reply);
    char first[100];
    snprintf(first, sizeof(first), "HTTP/1.1 %s ", status);
    if (strncmp(str_text(&reply), first, strlen(first)) != 0 || !strstr(str_text(&reply), wanted) ||
        !strstr(str_text(&reply), wanted_too))
        fail_msg("%s: %s", request_line, str_text(&reply));
    str_fini(&reply);
}

static void pages_are_served(void **state) {
    static struct metric metric = METRIC_COUNTER_INIT("millrace_test_total", "a test");
    metrics_register(&metric);
    metric_add(&metric, 7);
    struct fixture *f = setup();
    check(f, "GET /livez", "", "200", "\r\n\r\nok\n", "text/plain");
    check(f, "GET /metrics", "", "200", "millrace_test_total 7\n", "version=0.0.4");
    check(f, "GET /readyz", "", "503", "/job:ps/task:0", "text/plain");
    check(f, "GET /statusz?a=b&c", "", "200", "\"query\":\"a=b&c\"", "application/json");
    check(f, "GET /nothing", "", "404", "no such page", "");
    check(f, "GET /livez/x", "", "404", "", "");
    check(f, "POST /livez", "Content-Length: 3\r\n", "405", "Allow: GET, HEAD", "");
    check(f, "DELETE /livez", "", "405", "", "");
    teardown(f);
}

/* Programs get what they got before there was HTML. */
static void html_is_for_those_who_ask_for_it(void **state) {
    static const char browser[] = "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,"
                                  "*/*;q=0.8\r\n";
    struct fixture *f = setup();
    check(f, "GET /statusz", "", "200", "{\"query\":\"\"", "Content-Type: application/json\r\n");
    check(f, "GET /statusz", "Accept: */*\r\n", "200", "{\"query\":\"\"", "application/json");
    check(f, "GET /statusz?a=1", "Accept: application/json\r\n", "200", "\"a=1&format=json\"",
          "application/json");
    check(f, "GET /statusz", "Accept: application/json, text/html\r\n", "200", "\"format=json\"",
          "application/json");
    check(f, "GET /statusz", browser, "200", "&lt;script&gt;", "Content-Type: text/html");
    check(f, "GET /statusz", browser, "200", "<b>tf-test</b><span>/job:test/task:0",
          "Content-Security-Policy: default-src 'none'");
    check(f, "GET /statusz?format=html", "", "200", "<!DOCTYPE html>", "format=html");
    check(f, "GET /statusz?format=json", browser, "200", "\"format=json\"", "application/json");
    check(f, "GET /statusz?format=other", browser, "200", "\"format=other\"", "application/json");
    check(f, "GET /statusz?xformat=json", browser, "200", "<!DOCTYPE html>", "text/html");
    check(f, "GET /statusz", "Accept: text/html;q=0, application/json\r\n", "200",
          "\"format=json\"", "application/json");
    check(f, "GET /statusz", "Accept: text/html; level=1; Q=0.0 ,*/*\r\n", "200", "\"query\":\"\"",
          "application/json");
    check(f, "GET /statusz", "Accept: application/json;q=0.5 , TEXT/HTML\r\n", "200",
          "<!DOCTYPE html>", "text/html");
    check(f, "GET /statusz", "Accept: text/html2, x/text/html,\r\n", "200", "\"query\":\"\"",
          "application/json");
    check(f, "GET /linez", "", "200", "\r\n\r\na line\n", "text/plain");
    check(f, "GET /linez", browser, "200", "<dt>lines<dd>", "text/html");
    check(f, "GET /linez?format=json", "", "200", "\r\n\r\n{\"lines\": 1}", "application/json");
    check(f, "GET /readyz", browser, "503", "waiting for", "text/plain");
    check(f, "GET /later?format=html", "", "203", "<dt>later<dd>yes", "text/html");
    check(f, "GET /later?format=json", "", "203", "{\"later\": true}", "application/json");
    teardown(f);
}

static void the_index_links_the_pages(void **state) {
    struct fixture *f = setup();
    check(f, "GET /", "", "200", "\"program\":\"tf-test\"", "\"name\":\"/job:test/task:0\"");
    check(f, "GET /", "", "200", "{\"page\":\"/statusz\",\"about\":\"the status\"}",
          "{\"page\":\"/metrics\",");
    check(f, "GET /?format=html", "", "200", "<a href=\"/statusz\">/statusz</a><td>the status",
          "<dt>uptime<dd>");
    teardown(f);
}

static void a_change_is_posted_with_the_header(void **state) {
    struct fixture *f = setup();
    check(f, "POST /change", "X-Millrace: 1\r\nContent-Length: 0\r\n", "200", "changed", "");
    check(f, "GET /change", "X-Millrace: 1\r\n", "405", "Allow: POST", "");
    check(f, "GET /errorz?x", "", "200", "{\"code\":3,\"message\":\"x\"}", ""); /* unguarded */
    check(f, "POST /change", "Content-Length: 0\r\n", "403", "X-Millrace", "");
    teardown(f);
}

static int dial_unix(const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void guarded_changes_are_for_the_unix_socket(void **state) {
    static const char request[] = "POST /change HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                                  "X-Millrace: 1\r\nContent-Length: 0\r\n\r\n";
    char directory[] = "/tmp/millrace-test-admin-XXXXXX", path[64];
    struct stat info;
    struct str reply = STR_INIT;
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/admin.sock", directory);
    struct fixture *f =
        setup_with(&(struct admin_options){.unix_path = path, .guards_changes = true});
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    check(f, "POST /change", "X-Millrace: 1\r\nContent-Length: 0\r\n", "403", "millrace://CLUSTER",
          "--admin-socket");
    check(f, "GET /livez", "", "200", "ok", "");
    exchange_over(dial_unix(path), request, &reply);
    assert_non_null(strstr(str_text(&reply), "200 OK"));
    assert_non_null(strstr(str_text(&reply), "changed"));
    check(f, "GET /errorz?operator=1", "", "200", "\r\n\r\n{\"code\":3}", "");
    exchange_over(dial_unix(path), "GET /errorz?x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                  &reply);
    assert_non_null(strstr(str_text(&reply), "{\"code\":3,\"message\":\"x\"}"));
    str_fini(&reply);
    teardown(f);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(rmdir(directory), 0);
}

/* Runs only as root, who may become another user. */
static void the_unix_socket_is_for_its_owner(void **state) {
    char directory[] = "/tmp/millrace-test-admin-XXXXXX", path[64], byte;
    if (geteuid() != 0)
        skip();
    assert_non_null(mkdtemp(directory));
    snprintf(path, sizeof(path), "%s/admin.sock", directory);
    struct fixture *f = setup_with(&(struct admin_options){.unix_path = path});
    assert_int_equal(chmod(directory, 0755), 0);
    assert_int_equal(chmod(path, 0666), 0); /* as if somebody had opened the file to all */
    pid_t child = fork();
    if (child == 0) {
        if (setuid(65534) != 0)
            _exit(2);
        int fd = dial_unix(path);
        _exit(read(fd, &byte, 1) == 0 ? 0 : 1); /* it is closed at once */
    }
    int outcome;
    assert_int_equal(waitpid(child, &outcome, 0), child);
    assert_int_equal(outcome, 0);
    teardown(f);
    assert_int_equal(rmdir(directory), 0);
}

static void a_page_may_be_finished_later(void **state) {
    struct fixture *f = setup();
    check(f, "GET /later?x", "", "203", "\r\n\r\nlater: x", "text/plain");
    check(f, "GET /later?now", "", "203", "\r\n\r\nlater: now", "text/plain");
    check(f, "HEAD /later?x", "", "203", "Content-Length: 8", "");
    for (int i = 0; i < 100; i++)
        check(f, "GET /later?again", "", "203", "later: again", "");
    teardown(f);
}

static void a_server_that_closes_waits_for_no_page(void **state) {
    struct fixture *f = setup();
    static const char request[] = "GET /later?hold HTTP/1.1\r\nHost: x\r\n\r\n";
    int fd = dial(f);
    assert_int_equal(write(fd, request, sizeof(request) - 1), (ssize_t)sizeof(request) - 1);
    check(f, "GET /later?x", "", "203", "later: x", ""); /* others are served */
    for (int i = 0; i < 1000 && !__atomic_load_n(&held, __ATOMIC_ACQUIRE); i++)
        check(f, "GET /livez", "", "200", "ok", "");
    assert_non_null(__atomic_load_n(&held, __ATOMIC_ACQUIRE));
    loop_post(f->loop, &f->close);
    pthread_join(f->thread, NULL);
    char input[1000];
    while (read(fd, input, sizeof(input)) > 0) /* its connection ends */
        continue;
    close(fd);
    finish_later(&held->task); /* nobody hears it */
    held = NULL;
    loop_free(f->loop);
    free(f);
}

static void head_has_no_body(void **state) {
    struct fixture *f = setup();
    struct str reply = STR_INIT;
    exchange(f, "HEAD /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &reply);
    assert_non_null(strstr(str_text(&reply), "Content-Length: 3"));
    assert_string_equal(str_text(&reply) + reply.len - 4, "\r\n\r\n");
    str_fini(&reply);
    teardown(f);
}

static void large_pages_and_many_requests_on_one_connection(void **state) {
    struct fixture *f = setup();
    struct str reply = STR_INIT;
    exchange(f, "GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", &reply);
    assert_true(reply.len > 3000000);
    exchange(f,
             "GET /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
             "GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
             &reply);
    int n = 0;
    for (const char *p = str_text(&reply); (p = strstr(p, "\r\n\r\nok\n")); p++)
        n++;
    assert_int_equal(n, 3);
    str_fini(&reply);
    teardown(f);
}

static void malformed_requests_end_cleanly(void **state) {
    static const char *const rows[] = {
        "GET\r\n\r\n", "GET /livez\r\n\r\n", "GET /livez HTTP/9.9\r\n\r\n",
        "GET /livez HTTP/1.1\r\nHost x\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"};
    static const char *const unfinished[] = {"", "\r\n\r\n", "\x16\x03\x01 tls",
                                             "GET /livez HTTP/1.1\r\nHost"};
    struct fixture *f = setup();
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int fd = dial(f);
        char input[4096];
        assert_true(write(fd, rows[i], strlen(rows[i])) > 0);
        shutdown(fd, SHUT_WR);
        while (read(fd, input, sizeof(input)) > 0) {
        }
        close(fd);
    }
    /* libmicrohttpd waits for the rest: only the end of these is felt */
    for (size_t i = 0; i < ARRAY_LEN(unfinished); i++) {
        int fd = dial(f);
        assert_int_equal(write(fd, unfinished[i], strlen(unfinished[i])),
                         (ssize_t)strlen(unfinished[i]));
        close(fd);
    }
    char *long_request = calloc(1, 100001); /* a request line that does not fit */
    memset(long_request, 'a', 100000);
    memcpy(long_request, "GET /", 5);
    int fd = dial(f);
    char input[4096];
    (void)!write(fd, long_request, 100000);
    shutdown(fd, SHUT_WR);
    while (read(fd, input, sizeof(input)) > 0) {
    }
    close(fd);
    free(long_request);
    check(f, "GET /livez", "", "200", "ok", "");
    teardown(f);
}

static void connections_are_limited(void **state) {
    enum { N_CONNECTIONS = 150 };
    struct fixture *f = setup();
    int fds[N_CONNECTIONS], n_refused = 0;
    for (int i = 0; i < N_CONNECTIONS; i++)
        fds[i] = dial(f);
    char byte;
    for (int i = N_CONNECTIONS - 1; i >= 100; i--) /* those beyond the limit are closed at once */
        n_refused += read(fds[i], &byte, 1) <= 0;
    assert_int_equal(n_refused, 50);
    for (int i = 0; i < N_CONNECTIONS; i++)
        close(fds[i]);
    struct str reply = STR_INIT;
    while (!strstr(str_text(&reply), "ok\n")) { /* until it has seen them go */
        int fd = dial(f);
        char input[500];
        ssize_t n = write(fd, "GET /livez HTTP/1.0\r\n\r\n", 23);
        while (n > 0 && (n = read(fd, input, sizeof(input))) > 0)
            str_add_bytes(&reply, input, (size_t)n);
        close(fd);
    }
    str_fini(&reply);
    teardown(f);
}

/* Of these the HTTP library never hears. */
static void connections_with_tls_are_limited_and_must_shake_hands(void **state) {
    enum { N_CONNECTIONS = 150 };
    struct test_certs certs;
    test_certs_init(&certs, "ours");
    struct fixture *f =
        setup_with(&(struct admin_options){.tls = test_tls(&certs, "master", NULL, TLS_ALPN_HTTP)});
    int fds[N_CONNECTIONS], n_refused = 0;
    for (int i = 0; i < N_CONNECTIONS; i++)
        fds[i] = dial(f);
    char byte;
    for (int i = N_CONNECTIONS - 1; i >= 100; i--)
        n_refused += read(fds[i], &byte, 1) <= 0;
    assert_int_equal(n_refused, 50);
    while (read(fds[0], &byte, 1) > 0) /* its time for the handshake ends: an alert at most */
        ;
    for (int i = 0; i < N_CONNECTIONS; i++)
        close(fds[i]);
    teardown(f);
    test_certs_fini(&certs);
}

static void a_grpc_client_is_told_where_to_connect(void **state) {
    struct fixture *f = setup();
    struct loop *loop = loop_new();
    assert_grpc_is_refused(loop, f->port, "this is an admin port, told 1 times");
    assert_grpc_is_refused(loop, f->port, "this is an admin port, told 2 times");
    loop_end(loop);
    check(f, "GET /livez", "", "200", "ok", "");
    teardown(f);
}

static void a_grpc_client_without_tls_is_told_by_a_port_with_tls(void **state) {
    struct test_certs certs;
    test_certs_init(&certs, "ours");
    struct fixture *f =
        setup_with(&(struct admin_options){.tls = test_tls(&certs, "master", NULL, TLS_ALPN_HTTP)});
    struct loop *loop = loop_new();
    assert_grpc_is_refused(loop, f->port, "this is an admin port");
    loop_end(loop);
    teardown(f);
    test_certs_fini(&certs);
}

static void a_page_may_close_the_server(void **state) {
    struct fixture *f = setup();
    struct str reply = STR_INIT;
    exchange(f, "GET /quit HTTP/1.1\r\nHost: x\r\n\r\n", &reply);
    str_fini(&reply);
    teardown(f);
}

static void a_port_in_use_is_a_status(void **state) {
    struct fixture *f = setup();
    struct loop *loop = loop_new();
    struct admin_server *second = NULL;
    struct admin_options options = {.n_pages = 0};
    char address[40];
    snprintf(address, sizeof(address), "127.0.0.1:%d", f->port);
    struct status *st = admin_server_new(loop, address, &options, &second);
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    assert_null(second);
    status_unref(st);
    loop_free(loop);
    teardown(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_served),
        cmocka_unit_test(html_is_for_those_who_ask_for_it),
        cmocka_unit_test(the_index_links_the_pages),
        cmocka_unit_test(a_change_is_posted_with_the_header),
        cmocka_unit_test(guarded_changes_are_for_the_unix_socket),
        cmocka_unit_test(the_unix_socket_is_for_its_owner),
        cmocka_unit_test(a_page_may_be_finished_later),
        cmocka_unit_test(a_server_that_closes_waits_for_no_page),
        cmocka_unit_test(head_has_no_body),
        cmocka_unit_test(large_pages_and_many_requests_on_one_connection),
        cmocka_unit_test(malformed_requests_end_cleanly),
        cmocka_unit_test(connections_are_limited),
        cmocka_unit_test(connections_with_tls_are_limited_and_must_shake_hands),
        cmocka_unit_test(a_grpc_client_is_told_where_to_connect),
        cmocka_unit_test(a_grpc_client_without_tls_is_told_by_a_port_with_tls),
        cmocka_unit_test(a_page_may_close_the_server),
        cmocka_unit_test(a_port_in_use_is_a_status),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
