/* The gRPC server and client against each other on one loop. */
#include "rpc/grpc/grpc_server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/metrics.h"
#include "rpc/grpc/grpc_client.h"

enum { TENSOR_OFFSET = 49, MAX_RESULTS = 2000 };

struct result {
    enum status_code code;
    char message[256];
    struct grpc_message reply;
    bool is_done;
};

/* A loop with a server, a client, and what happened to both. */
struct fixture {
    struct loop *loop;
    struct grpc_server *server;
    struct grpc_client *client;
    char target[100];
    struct result results[MAX_RESULTS];
    int n_started, n_done;
    struct grpc_call *parked; /* a call of /test/Park */
    int n_parked, n_cancelled, n_connections_closed, n_server_closed, n_client_closed, n_drained;
    int64_t parked_timeout_ms;
    void (*on_parked)(struct fixture *f);
    void (*on_cancelled)(struct fixture *f);
};

/* ---- methods ---- */

static size_t align_tensor(struct span head, size_t body_len) { return TENSOR_OFFSET; }

static void on_echo(void *service, struct grpc_call *call) {
    struct grpc_message *message = grpc_call_message(call);
    struct grpc_body body;
    grpc_body_init(&body);
    assert_true(message->buffer == NULL ||
                (uintptr_t)(message->body.data + TENSOR_OFFSET) % BUFFER_ALIGN == 0);
    if (message->buffer)
        grpc_body_add_shared(&body, message->body.data, message->body.len,
                             buffer_ref(message->buffer));
    grpc_call_reply(call, &body);
    assert_int_equal(body.n_slices, 0); /* moved out */
}

static void on_fail(void *service, struct grpc_call *call) {
    grpc_call_fail(
        call, status_new(STATUS_FAILED_PRECONDITION, "100%% wrong:\n\t [[{{node caf\xc3\xa9}}]]"));
}

static void on_park_cancelled(struct grpc_call *call, void *user) {
    struct fixture *f = user;
    assert_true(grpc_call_is_cancelled(call));
    f->n_cancelled++;
    if (f->on_cancelled)
        f->on_cancelled(f);
}

static void on_park(void *service, struct grpc_call *call) {
    struct fixture *f = service;
    f->parked = call;
    f->n_parked++;
    f->parked_timeout_ms = grpc_call_timeout_ms(call);
    grpc_call_set_user(call, f, on_park_cancelled);
    if (f->on_parked)
        f->on_parked(f);
}

/* Answers from another thread, as a worker would. */
struct posted_answer {
    struct loop_task task;
    struct loop *loop;
    struct grpc_call *call;
    pthread_t thread;
};

static void run_posted_answer(struct loop_task *task) {
    struct posted_answer *answer = CONTAINER_OF(task, struct posted_answer, task);
    struct grpc_body body;
    pthread_join(answer->thread, NULL);
    grpc_body_init(&body);
    grpc_body_add_copy(&body, "posted", 6);
    grpc_call_reply(answer->call, &body);
    free(answer);
}

static void *post_answer(void *arg) {
    struct posted_answer *answer = arg;
    loop_post(answer->loop, &answer->task);
    return NULL;
}

static void on_thread(void *service, struct grpc_call *call) {
    struct fixture *f = service;
    struct posted_answer *answer = calloc(1, sizeof(*answer));
    *answer =
        (struct posted_answer){.task = {.run = run_posted_answer}, .loop = f->loop, .call = call};
    pthread_create(&answer->thread, NULL, post_answer, answer);
}

static void on_connection_closed(void *service, uint64_t connection_id) {
    struct fixture *f = service;
    assert_true(connection_id > 0);
    f->n_connections_closed++;
}

static const struct grpc_method methods[] = {
    {"/test/Echo", on_echo, align_tensor},
    {"/test/Fail", on_fail, NULL},
    {"/test/Park", on_park, NULL},
    {"/test/Thread", on_thread, NULL},
};

/* ---- the fixture ---- */

static void start_server(struct fixture *f, const char *address,
                         const struct grpc_server_limits *limits) {
    struct grpc_server_options options = {.methods = methods,
                                          .n_methods = ARRAY_LEN(methods),
                                          .service = f,
                                          .on_connection_closed = on_connection_closed};
    if (limits)
        options.limits = *limits;
    assert_null(grpc_server_new(f->loop, address, &options, &f->server));
    if (grpc_server_port(f->server) > 0)
        snprintf(f->target, sizeof(f->target), "127.0.0.1:%d", grpc_server_port(f->server));
    else
        snprintf(f->target, sizeof(f->target), "%s", address);
}

static struct fixture *setup_with(const char *address, const struct grpc_server_limits *limits) {
    struct fixture *f = calloc(1, sizeof(*f));
    f->loop = loop_new();
    start_server(f, address, limits);
    f->client = grpc_client_new(f->loop, f->target, false);
    return f;
}

static struct fixture *setup(void) { return setup_with("127.0.0.1:0", NULL); }

static void on_server_closed(void *arg) { ((struct fixture *)arg)->n_server_closed++; }
static void on_client_closed(void *arg) { ((struct fixture *)arg)->n_client_closed++; }

static void close_server(struct fixture *f) {
    grpc_server_close(f->server, on_server_closed, f);
    f->server = NULL;
}
static void close_client(struct fixture *f) {
    grpc_client_close(f->client, on_client_closed, f);
    f->client = NULL;
}

static void drop_reply(struct result *result) {
    buffer_unref(result->reply.buffer);
    result->reply.buffer = NULL;
}

/* Closes what is open, runs to the end and checks that all was closed once. */
static void teardown(struct fixture *f) {
    if (f->client)
        close_client(f);
    if (f->server)
        close_server(f);
    loop_stop(f->loop);
    loop_run(f->loop);
    assert_int_equal(f->n_client_closed, 1);
    assert_int_equal(f->n_server_closed, 1);
    for (int i = 0; i < f->n_started; i++)
        drop_reply(&f->results[i]);
    loop_free(f->loop);
    free(f);
}

static struct fixture *current; /* on_done knows its result only */

static void on_done(void *arg, struct status *status_take, struct grpc_message message_take) {
    struct result *result = arg;
    assert_false(result->is_done); /* exactly once */
    result->is_done = true;
    result->code = status_code(status_take);
    snprintf(result->message, sizeof(result->message), "%s", status_message(status_take));
    result->reply = message_take;
    assert_true(status_take == NULL || message_take.buffer == NULL);
    status_unref(status_take);
    current->n_done++;
}

static struct grpc_client_call *start(struct fixture *f, const char *path, struct grpc_body *body,
                                      int64_t timeout_ms) {
    struct grpc_body empty;
    grpc_body_init(&empty);
    current = f;
    struct result *result = &f->results[f->n_started++];
    struct grpc_client_call *call = grpc_client_start(f->client, path, body ? body : &empty,
                                                      timeout_ms, align_tensor, on_done, result);
    assert_false(result->is_done); /* never inside the call */
    return call;
}

/* Turns the loop until the counter has come that far. */
static void run_until(struct fixture *f, const int *counter, int wanted) {
    while (*counter < wanted)
        loop_run_once(f->loop);
}

static struct grpc_body pattern_body(size_t len, unsigned seed) {
    struct grpc_body body;
    grpc_body_init(&body);
    if (len == 0)
        return body;
    struct buffer *buffer = buffer_alloc(allocator_host(), len);
    for (size_t i = 0; i < len; i++)
        buffer->data[i] = (char)(i * 31 + (i >> 12) + seed);
    grpc_body_add_shared(&body, buffer->data, len, buffer);
    return body;
}

/* ---- calls ---- */

static void check_echo(struct fixture *f, size_t len) {
    struct grpc_body body = pattern_body(len, 3), expected = pattern_body(len, 3);
    int at = f->n_started;
    start(f, "/test/Echo", &body, -1);
    assert_int_equal(body.n_slices, 0); /* moved out */
    run_until(f, &f->n_done, at + 1);
    struct result *result = &f->results[at];
    assert_string_equal(result->message, "");
    assert_int_equal(result->code, STATUS_OK);
    assert_int_equal(result->reply.body.len, len);
    if (len > 0) {
        assert_int_equal((uintptr_t)(result->reply.body.data + TENSOR_OFFSET) % BUFFER_ALIGN, 0);
        assert_int_equal(memcmp(result->reply.body.data, expected.slices[0].bytes.data, len), 0);
    }
    grpc_body_fini(&expected);
    drop_reply(result);
}

static void messages_of_all_sizes_come_back_aligned(void **state) {
    static const size_t lens[] = {0,     1,     5,       100,           4096,    16384,
                                  65535, 65536, 1 << 20, (5 << 20) + 3, 64 << 20};
    char unix_address[64];
    snprintf(unix_address, sizeof(unix_address), "unix:/tmp/millrace_test_grpc.%d", (int)getpid());
    const char *addresses[] = {"127.0.0.1:0", unix_address};
    for (size_t a = 0; a < ARRAY_LEN(addresses); a++) {
        struct fixture *f = setup_with(addresses[a], NULL);
        for (size_t i = 0; i < ARRAY_LEN(lens); i++)
            check_echo(f, lens[i]);
        teardown(f);
    }
}

static void many_concurrent_calls_each_get_their_own_reply(void **state) {
    enum { N_CALLS = 1500 };
    struct fixture *f = setup();
    for (int i = 0; i < N_CALLS; i++) {
        struct grpc_body body = pattern_body((size_t)(i * 37 % 9000) + 1, (unsigned)i);
        start(f, "/test/Echo", &body, i % 3 ? -1 : 60000);
    }
    run_until(f, &f->n_done, N_CALLS);
    for (int i = 0; i < N_CALLS; i++) {
        struct grpc_body expected = pattern_body((size_t)(i * 37 % 9000) + 1, (unsigned)i);
        assert_int_equal(f->results[i].code, STATUS_OK);
        assert_int_equal(f->results[i].reply.body.len, expected.size_bytes);
        assert_memory_equal(f->results[i].reply.body.data, expected.slices[0].bytes.data,
                            expected.size_bytes);
        grpc_body_fini(&expected);
    }
    teardown(f);
}

static void a_body_of_many_slices_arrives_in_order(void **state) {
    struct fixture *f = setup();
    struct grpc_body body;
    grpc_body_init(&body);
    struct buffer *shared = buffer_alloc(allocator_host(), 1000);
    memset(shared->data, 's', 1000);
    for (int i = 0; i < 1000; i++) { /* more than one writev takes */
        grpc_body_add_copy(&body, "copy", 4);
        grpc_body_add_shared(&body, shared->data, (size_t)i, buffer_ref(shared));
    }
    size_t len = body.size_bytes;
    start(f, "/test/Echo", &body, -1);
    run_until(f, &f->n_done, 1);
    assert_int_equal(f->results[0].reply.body.len, len);
    const char *p = f->results[0].reply.body.data;
    for (int i = 0; i < 1000; p += 4 + i, i++)
        assert_memory_equal(p, "copy", 4);
    teardown(f);
    assert_true(buffer_is_sole(shared));
    buffer_unref(shared);
}

static void an_answer_may_come_from_another_thread(void **state) {
    struct fixture *f = setup();
    for (int i = 0; i < 100; i++)
        start(f, "/test/Thread", NULL, -1);
    run_until(f, &f->n_done, 100);
    for (int i = 0; i < 100; i++)
        assert_memory_equal(f->results[i].reply.body.data, "posted", 6);
    teardown(f);
}

static void errors_travel_with_code_and_text(void **state) {
    struct fixture *f = setup();
    start(f, "/test/Fail", NULL, -1);
    start(f, "/test/Nothing", NULL, -1);
    run_until(f, &f->n_done, 2);
    assert_int_equal(f->results[0].code, STATUS_FAILED_PRECONDITION);
    assert_string_equal(f->results[0].message, "100% wrong:\n\t [[{{node caf\xc3\xa9}}]]");
    assert_int_equal(f->results[1].code, STATUS_UNIMPLEMENTED);
    assert_non_null(strstr(f->results[1].message, "/test/Nothing"));
    teardown(f);
}

/* ---- ends before their time ---- */

static void answer_parked(struct fixture *f) {
    struct grpc_body body;
    grpc_body_init(&body);
    grpc_body_add_copy(&body, "late", 4);
    grpc_call_reply(f->parked, &body);
    f->parked = NULL;
}

static void a_cancelled_call_is_cancelled_once_and_its_answer_dropped(void **state) {
    struct fixture *f = setup();
    struct grpc_client_call *call = start(f, "/test/Park", NULL, -1);
    run_until(f, &f->n_parked, 1);
    assert_int_equal(f->parked_timeout_ms, -1);
    grpc_client_cancel(call);
    grpc_client_cancel(call);
    assert_int_equal(f->n_done, 0); /* on_done follows */
    run_until(f, &f->n_done, 1);
    assert_int_equal(f->results[0].code, STATUS_CANCELLED);
    run_until(f, &f->n_cancelled, 1);
    answer_parked(f);
    check_echo(f, 5); /* the connection lives */
    assert_int_equal(f->n_cancelled, 1);
    teardown(f);
}

static void a_call_may_be_answered_inside_on_cancel(void **state) {
    struct fixture *f = setup();
    f->on_cancelled = answer_parked;
    struct grpc_client_call *call = start(f, "/test/Park", NULL, -1);
    run_until(f, &f->n_parked, 1);
    grpc_client_cancel(call);
    run_until(f, &f->n_cancelled, 1);
    check_echo(f, 5);
    teardown(f);
}

static void a_deadline_ends_the_call_on_both_sides(void **state) {
    struct fixture *f = setup();
    start(f, "/test/Park", NULL, 30);
    run_until(f, &f->n_done, 1);
    assert_int_equal(f->results[0].code, STATUS_DEADLINE_EXCEEDED);
    run_until(f, &f->n_cancelled, 1);
    assert_in_range(f->parked_timeout_ms, 1, 30);
    answer_parked(f);
    check_echo(f, 1);
    assert_int_equal(f->n_cancelled, 1);
    teardown(f);
}

static void a_lost_client_cancels_its_calls_once(void **state) {
    struct fixture *f = setup();
    start(f, "/test/Park", NULL, 60000);
    run_until(f, &f->n_parked, 1);
    close_client(f);
    run_until(f, &f->n_cancelled, 1);
    run_until(f, &f->n_connections_closed, 1);
    run_until(f, &f->n_done, 1);
    assert_int_equal(f->results[0].code, STATUS_CANCELLED);
    answer_parked(f);
    assert_int_equal(f->n_cancelled, 1);
    teardown(f);
}

static void a_lost_server_fails_calls_with_unavailable_and_its_name(void **state) {
    struct fixture *f = setup();
    start(f, "/test/Park", NULL, -1);
    run_until(f, &f->n_parked, 1);
    close_server(f);
    run_until(f, &f->n_done, 1);
    assert_int_equal(f->results[0].code, STATUS_UNAVAILABLE);
    assert_non_null(strstr(f->results[0].message, f->target));
    assert_int_equal(f->n_cancelled, 1);     /* live calls were told */
    assert_int_equal(f->n_server_closed, 0); /* waits for their answers */
    start(f, "/test/Echo", NULL, -1);        /* refused at once: nobody listens */
    run_until(f, &f->n_done, 2);
    assert_int_equal(f->results[1].code, STATUS_UNAVAILABLE);
    assert_non_null(strstr(f->results[1].message, "refused"));
    assert_non_null(strstr(f->results[1].message, f->target));
    answer_parked(f);
    run_until(f, &f->n_server_closed, 1);
    teardown(f);
}

static void the_server_may_be_closed_from_inside_a_call(void **state) {
    struct fixture *f = setup();
    f->on_parked = close_server;
    f->on_cancelled = answer_parked;
    start(f, "/test/Park", NULL, -1);
    run_until(f, &f->n_done, 1);
    assert_int_equal(f->results[0].code, STATUS_UNAVAILABLE);
    run_until(f, &f->n_server_closed, 1);
    teardown(f);
}

static void on_drained(void *arg) { ((struct fixture *)arg)->n_drained++; }

static void draining_finishes_live_calls_and_takes_no_new_ones(void **state) {
    struct fixture *f = setup();
    start(f, "/test/Park", NULL, -1);
    run_until(f, &f->n_parked, 1);
    grpc_server_drain(f->server, on_drained, f);
    assert_int_equal(f->n_drained, 0);
    start(f, "/test/Echo", NULL, -1); /* before the GOAWAY could be seen */
    run_until(f, &f->n_done, 1);
    assert_int_equal(f->results[1].code, STATUS_OK); /* nobody had told the client yet */
    start(f, "/test/Echo", NULL, -1);                /* after it */
    run_until(f, &f->n_done, 2);
    assert_int_equal(f->results[2].code, STATUS_UNAVAILABLE);
    assert_int_equal(f->n_drained, 0);
    answer_parked(f);
    run_until(f, &f->n_done, 3);
    assert_int_equal(f->results[0].code, STATUS_OK);
    assert_memory_equal(f->results[0].reply.body.data, "late", 4);
    run_until(f, &f->n_drained, 1);
    teardown(f);
}

static void an_idle_server_drains_at_once(void **state) {
    struct fixture *f = setup();
    grpc_server_drain(f->server, on_drained, f);
    run_until(f, &f->n_drained, 1);
    teardown(f);
}

/* ---- limits ---- */

static void too_long_messages_are_refused_before_memory_is_taken(void **state) {
    struct grpc_server_limits limits = {.max_message_bytes = 1 << 20};
    struct fixture *f = setup_with("127.0.0.1:0", &limits);
    struct grpc_body small = pattern_body(1 << 20, 0), large = pattern_body((32 << 20) + 1, 0);
    start(f, "/test/Echo", &small, -1);
    start(f, "/test/Echo", &large, -1);
    run_until(f, &f->n_done, 2);
    assert_int_equal(f->results[0].code, STATUS_OK);
    assert_int_equal(f->results[1].code, STATUS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(f->results[1].message, "33554433"));
    check_echo(f, 5);
    teardown(f);
}

static void bytes_in_flight_are_limited(void **state) {
    struct grpc_server_limits limits = {.max_inflight_bytes = 1000};
    struct fixture *f = setup_with("127.0.0.1:0", &limits);
    struct grpc_body first = pattern_body(700, 0), second = pattern_body(700, 0);
    start(f, "/test/Park", &first, -1);
    run_until(f, &f->n_parked, 1);
    start(f, "/test/Echo", &second, -1);
    run_until(f, &f->n_done, 1);
    assert_int_equal(f->results[1].code, STATUS_RESOURCE_EXHAUSTED);
    answer_parked(f);
    run_until(f, &f->n_done, 2);
    check_echo(f, 700); /* the first one's bytes are given back */
    teardown(f);
}

static void connections_are_limited(void **state) {
    struct grpc_server_limits limits = {.max_connections = 1};
    struct fixture *f = setup_with("127.0.0.1:0", &limits);
    check_echo(f, 5);
    struct grpc_client *second = grpc_client_new(f->loop, f->target, false);
    struct grpc_body body = pattern_body(5, 0);
    grpc_client_start(second, "/test/Echo", &body, -1, NULL, on_done, &f->results[f->n_started++]);
    run_until(f, &f->n_done, 2);
    assert_int_equal(f->results[1].code, STATUS_UNAVAILABLE);
    grpc_client_close(second, NULL, NULL);
    check_echo(f, 5);
    teardown(f);
}

/* ---- the client alone ---- */

static void a_patient_client_waits_for_its_server(void **state) {
    struct fixture *f = calloc(1, sizeof(*f));
    f->loop = loop_new();
    char address[64];
    snprintf(address, sizeof(address), "unix:/tmp/millrace_test_grpc_late.%d", (int)getpid());
    f->client = grpc_client_new(f->loop, address, true);
    start(f, "/test/Echo", NULL, 20); /* its own timeout bounds the wait */
    run_until(f, &f->n_done, 1);
    assert_int_equal(f->results[0].code, STATUS_DEADLINE_EXCEEDED);
    start(f, "/test/Echo", NULL, -1);
    start_server(f, address, NULL);
    run_until(f, &f->n_done, 2);
    assert_int_equal(f->results[1].code, STATUS_OK);
    teardown(f);
}

static void a_client_reconnects_after_its_server_restarted(void **state) {
    struct fixture *f = setup();
    check_echo(f, 5);
    char address[100];
    snprintf(address, sizeof(address), "%s", f->target);
    close_server(f);
    run_until(f, &f->n_server_closed, 1);
    start_server(f, address, NULL);
    check_echo(f, 5);
    f->n_server_closed = 0;
    teardown(f);
}

static void bad_targets_fail_each_call(void **state) {
    static const char *const targets[] = {"nonsense", "no.such.host.invalid:1",
                                          "unix:/no/such/socket"};
    struct fixture *f = setup();
    for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
        struct grpc_client *client = grpc_client_new(f->loop, targets[i], false);
        struct grpc_body body = pattern_body(5, 0);
        grpc_client_start(client, "/test/Echo", &body, -1, NULL, on_done,
                          &f->results[f->n_started++]);
        current = f;
        run_until(f, &f->n_done, f->n_started);
        assert_int_equal(f->results[i].code, i == 0 ? STATUS_INVALID_ARGUMENT : STATUS_UNAVAILABLE);
        grpc_client_close(client, NULL, NULL);
    }
    teardown(f);
}

static void closing_a_client_that_never_connected_ends_its_calls(void **state) {
    struct fixture *f = setup();
    start(f, "/test/Echo", NULL, 60000);
    struct grpc_client *resolving = grpc_client_new(f->loop, "no.such.host.invalid:1", true);
    grpc_client_close(resolving, NULL, NULL);
    close_client(f);
    run_until(f, &f->n_done, 1);
    assert_int_equal(f->results[0].code, STATUS_CANCELLED);
    run_until(f, &f->n_client_closed, 1);
    teardown(f);
}

static void calls_and_bytes_are_counted(void **state) {
    struct fixture *f = setup();
    struct grpc_server_limits limits;
    grpc_server_limits_default(&limits);
    assert_int_equal(limits.max_message_bytes, INT32_MAX);
    check_echo(f, 5);
    struct str text = STR_INIT;
    metrics_write_prometheus(&text);
    assert_non_null(strstr(str_text(&text), "millrace_grpc_connections 1\n"));
    assert_non_null(strstr(str_text(&text), "millrace_grpc_calls_total"));
    assert_non_null(
        strstr(str_text(&text), "millrace_grpc_refused_total{limit=\"message_bytes\"}"));
    str_fini(&text);
    teardown(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_of_all_sizes_come_back_aligned),
        cmocka_unit_test(many_concurrent_calls_each_get_their_own_reply),
        cmocka_unit_test(a_body_of_many_slices_arrives_in_order),
        cmocka_unit_test(an_answer_may_come_from_another_thread),
        cmocka_unit_test(errors_travel_with_code_and_text),
        cmocka_unit_test(a_cancelled_call_is_cancelled_once_and_its_answer_dropped),
        cmocka_unit_test(a_call_may_be_answered_inside_on_cancel),
        cmocka_unit_test(a_deadline_ends_the_call_on_both_sides),
        cmocka_unit_test(a_lost_client_cancels_its_calls_once),
        cmocka_unit_test(a_lost_server_fails_calls_with_unavailable_and_its_name),
        cmocka_unit_test(the_server_may_be_closed_from_inside_a_call),
        cmocka_unit_test(draining_finishes_live_calls_and_takes_no_new_ones),
        cmocka_unit_test(an_idle_server_drains_at_once),
        cmocka_unit_test(too_long_messages_are_refused_before_memory_is_taken),
        cmocka_unit_test(bytes_in_flight_are_limited),
        cmocka_unit_test(connections_are_limited),
        cmocka_unit_test(a_patient_client_waits_for_its_server),
        cmocka_unit_test(a_client_reconnects_after_its_server_restarted),
        cmocka_unit_test(bad_targets_fail_each_call),
        cmocka_unit_test(closing_a_client_that_never_connected_ends_its_calls),
        cmocka_unit_test(calls_and_bytes_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
