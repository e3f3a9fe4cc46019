/* Calls of a gRPC server without a connection: answers, cancellation, deadlines, and the server's
 * end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "rpc/grpc/grpc_inproc.h"
#include "tests/unit/rpc/loop_until.h"

static struct loop *loop;
static struct grpc_server *server;
static struct grpc_call *held; /* by /test/Hold; NULL: none */
static int n_cancelled;

struct answer {
    struct status *status;
    struct grpc_message message;
    int n;
};

static void on_answer(void *arg, struct status *status_take, struct grpc_message message_take) {
    struct answer *answer = arg;
    answer->status = status_take;
    answer->message = message_take;
    answer->n++;
}

static void answer_fini(struct answer *answer) {
    status_unref(answer->status);
    buffer_unref(answer->message.buffer);
}

/* ---- the service ---- */

static void echo(void *service, struct grpc_call *call) {
    struct grpc_body body;
    struct grpc_message *message = grpc_call_message(call);
    assert_ptr_equal(service, &server);
    assert_int_equal(grpc_call_connection_id(call), 0);
    assert_null(grpc_call_relay_task(call));
    grpc_body_init(&body);
    grpc_body_add_copy(&body, "<", 1);
    if (message->body.len > 0)
        grpc_body_add_shared(&body, message->body.data, message->body.len,
                             buffer_ref(message->buffer));
    grpc_body_add_copy(&body, ">", 1);
    grpc_call_reply(call, &body);
    grpc_body_fini(&body);
}

static void fail_call(void *service, struct grpc_call *call) {
    grpc_call_fail(call, status_not_found("no such thing"));
}

static void on_cancel(struct grpc_call *call, void *user) { n_cancelled++; }

static void hold(void *service, struct grpc_call *call) {
    held = call;
    grpc_call_set_user(call, NULL, on_cancel);
}

static size_t align_second(struct span head, size_t body_len) { return 2; }

static const struct grpc_method methods[] = {{"/test/Echo", echo, align_second},
                                             {"/test/Fail", fail_call, NULL},
                                             {"/test/Hold", hold, NULL}};

static int setup(void **state) {
    static const char *const services[] = {"", NULL};
    struct grpc_server_options options = {.methods = methods,
                                          .n_methods = ARRAY_LEN(methods),
                                          .service = &server,
                                          .health_services = services,
                                          .limits = {.max_message_bytes = 1 << 20}};
    loop = loop_new();
    held = NULL;
    n_cancelled = 0;
    assert_null(grpc_server_new(loop, NULL, &options, &server));
    return 0;
}

static void set_true(void *arg) { *(bool *)arg = true; }

static int teardown(void **state) {
    bool is_closed = false;
    if (server)
        grpc_server_close(server, set_true, &is_closed);
    LOOP_UNTIL(loop, !server || is_closed);
    loop_end(loop);
    return 0;
}

static struct grpc_inproc *start(const char *path, const char *text, int64_t timeout_ms,
                                 struct answer *answer) {
    struct grpc_body body;
    grpc_body_init(&body);
    grpc_body_add_copy(&body, text, strlen(text));
    struct grpc_inproc *call =
        grpc_inproc_start(server, path, &body, timeout_ms, NULL, on_answer, answer);
    assert_int_equal(answer->n, 0); /* never inside the call */
    assert_int_equal(body.n_slices, 0);
    return call;
}

static void expect_failure(struct answer *answer, enum status_code code, const char *words) {
    LOOP_UNTIL(loop, answer->n == 1);
    assert_int_equal(status_code(answer->status), code);
    if (!strstr(status_message(answer->status), words))
        fail_msg("\"%s\" does not say \"%s\"", status_message(answer->status), words);
    assert_null(answer->message.buffer);
    answer_fini(answer);
}

static void release_held(void) {
    grpc_call_fail(held, status_internal("late"));
    held = NULL;
}

/* ---- tests ---- */

static void a_call_is_answered(void **state) {
    struct answer answer = {0}, empty = {0};
    start("/test/Echo", "hello", -1, &answer);
    start("/test/Echo", "", -1, &empty);
    LOOP_UNTIL(loop, answer.n == 1 && empty.n == 1);
    assert_null(answer.status);
    assert_true(span_is(answer.message.body, "<hello>"));
    assert_true(span_is(empty.message.body, "<>"));
    answer_fini(&answer);
    answer_fini(&empty);
}

static void an_error_arrives_as_it_is(void **state) {
    struct answer answer = {0};
    start("/test/Fail", "x", 1000, &answer);
    expect_failure(&answer, STATUS_NOT_FOUND, "no such thing");
}

static size_t align_first(struct span head, size_t body_len) {
    assert_int_equal(head.len, MIN(body_len, (size_t)GRPC_HEAD_BYTES));
    return 1;
}

static void large_messages_are_aligned(void **state) {
    struct answer answer = {0};
    struct grpc_body body;
    size_t n_bytes = 1 << 19;
    struct buffer *buffer = buffer_alloc(allocator_host(), n_bytes);
    for (size_t i = 0; i < n_bytes; i++)
        buffer->data[i] = (char)(i * 7);
    grpc_body_init(&body);
    grpc_body_add_copy(&body, "ab", 2);
    grpc_body_add_shared(&body, buffer->data, n_bytes, buffer);
    grpc_inproc_start(server, "/test/Echo", &body, -1, align_first, on_answer, &answer);
    LOOP_UNTIL(loop, answer.n == 1);
    assert_null(answer.status);
    assert_int_equal(answer.message.body.len, n_bytes + 4);
    assert_int_equal((uintptr_t)(answer.message.body.data + 1) % BUFFER_ALIGN, 0);
    for (size_t i = 0; i < n_bytes; i++)
        if (answer.message.body.data[i + 3] != (char)(i * 7))
            fail_msg("byte %zu differs", i);
    answer_fini(&answer);
}

static void what_the_server_does_not_serve_is_named(void **state) {
    struct answer unknown = {0}, health = {0}, large = {0};
    char *text = malloc((1 << 20) + 2);
    memset(text, 'x', (1 << 20) + 1);
    text[(1 << 20) + 1] = '\0';
    start("/test/Nothing", "x", -1, &unknown);
    expect_failure(&unknown, STATUS_UNIMPLEMENTED, "/test/Nothing");
    start("/grpc.health.v1.Health/Watch", "", -1, &health);
    expect_failure(&health, STATUS_UNIMPLEMENTED, "Watch");
    start("/test/Echo", text, -1, &large);
    expect_failure(&large, STATUS_RESOURCE_EXHAUSTED, "/test/Echo: a message of 1048577 bytes");
    free(text);
}

static void a_cancelled_call_ends_at_once_and_tells_the_service(void **state) {
    struct answer answer = {0};
    struct grpc_inproc *call = start("/test/Hold", "x", -1, &answer);
    assert_non_null(held);
    assert_false(grpc_call_is_cancelled(held));
    grpc_inproc_cancel(call);
    grpc_inproc_cancel(call); /* it has an answer already */
    assert_int_equal(n_cancelled, 1);
    expect_failure(&answer, STATUS_CANCELLED, "/test/Hold");
    assert_true(grpc_call_is_cancelled(held));
    release_held();
}

static void a_cancelled_call_may_be_answered_before_its_end_is_told(void **state) {
    struct answer answer = {0};
    struct grpc_inproc *call = start("/test/Hold", "x", -1, &answer);
    grpc_inproc_cancel(call);
    release_held();
    expect_failure(&answer, STATUS_CANCELLED, "/test/Hold");
}

static void a_call_ends_at_its_deadline(void **state) {
    struct answer answer = {0};
    start("/test/Hold", "x", 20, &answer);
    assert_int_equal(grpc_call_timeout_ms(held), 20);
    expect_failure(&answer, STATUS_DEADLINE_EXCEEDED, "deadline of 20 ms");
    assert_int_equal(n_cancelled, 1);
    release_held();
}

static void a_closing_server_ends_its_calls(void **state) {
    struct answer answer = {0}, late = {0};
    bool is_closed = false;
    start("/test/Hold", "x", -1, &answer);
    grpc_server_close(server, set_true, &is_closed);
    assert_int_equal(n_cancelled, 1);
    expect_failure(&answer, STATUS_UNAVAILABLE, "closed");
    start("/test/Echo", "x", -1, &late);
    expect_failure(&late, STATUS_UNAVAILABLE, "takes no more calls");
    assert_false(is_closed); /* the service has a call still */
    release_held();
    LOOP_UNTIL(loop, is_closed);
    server = NULL;
}

static void a_draining_server_ends_once_its_calls_have_ended(void **state) {
    struct answer answer = {0};
    bool is_drained = false;
    start("/test/Hold", "x", -1, &answer);
    grpc_server_drain(server, set_true, &is_drained);
    uv_run(loop_uv(loop), UV_RUN_NOWAIT);
    assert_false(is_drained);
    release_held();
    LOOP_UNTIL(loop, is_drained);
    expect_failure(&answer, STATUS_INTERNAL, "late");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_call_is_answered),
        TEST(an_error_arrives_as_it_is),
        TEST(large_messages_are_aligned),
        TEST(what_the_server_does_not_serve_is_named),
        TEST(a_cancelled_call_ends_at_once_and_tells_the_service),
        TEST(a_cancelled_call_may_be_answered_before_its_end_is_told),
        TEST(a_call_ends_at_its_deadline),
        TEST(a_closing_server_ends_its_calls),
        TEST(a_draining_server_ends_once_its_calls_have_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
