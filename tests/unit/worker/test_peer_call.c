/* Questions to another task (worker/exchange/peer_call.h): more at a time than it takes, and what
 * becomes of them when it cannot be reached. */
#include "worker/exchange/peer_call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/rpc/loop_until.h"
#include "worker/service/service.h"

enum { N_CALLS = 5 * PEER_MAX_CALLS + 1 };

static struct loop *loop;
static struct pool *pool;
static char device_name[] = "/job:ps/replica:0/task:0/device:TEST:0";
static struct device device;
static struct worker_service *service;
static struct peer_call_table *table;
static struct peer_call calls[N_CALLS];
static char requests[N_CALLS][16];
static int n_replied, n_failed;

static void str_add_repeated(struct str *out, size_t n) {
    static char few[4096];
    memset(few, 'x', sizeof(few));
    for (size_t left = n; left > 0; left -= MIN(left, sizeof(few)))
        str_add_bytes(out, few, MIN(left, sizeof(few)));
}

/* A request "!N" gets a reply of N bytes, "?N" a failure with so many words, others themselves. */
static struct status *echo(struct span request, struct peer_reply *ret) {
    if (request.len > 1 && request.len < 16 && strchr("!?", request.data[0])) {
        char number[16] = "";
        memcpy(number, request.data + 1, request.len - 1);
        str_add_repeated(&ret->bytes, strtoul(number, NULL, 10));
        return request.data[0] == '?' ? status_invalid("%s", str_text(&ret->bytes)) : NULL;
    }
    str_add_bytes(&ret->bytes, request.data, request.len);
    return NULL;
}

static void on_done(struct peer_call *call) {
    bool is_right = !call->status && span_is(call->request, str_text(&call->reply));
    n_replied += is_right;
    n_failed += !is_right;
    status_unref(call->status);
    str_fini(&call->reply);
    buffer_unref(call->payload);
}

static void ask_all(struct peer_call_task *task) {
    n_replied = n_failed = 0;
    for (int i = 0; i < N_CALLS; i++) {
        snprintf(requests[i], sizeof(requests[i]), "call %d", i);
        calls[i] = (struct peer_call){.request = span_of(requests[i]), .on_done = on_done};
        list_init(&calls[i].link);
        peer_call_start(task, &calls[i]);
    }
    LOOP_UNTIL(loop, n_replied + n_failed == N_CALLS);
}

static int setup(void **state) {
    struct worker_options options;
    loop = loop_new();
    pool = pool_new(2);
    device = (struct device){
        .full_name = device_name, .type = "TEST", .allocator = allocator_host(), .incarnation = 5};
    assert_null(device_name_parse(span_of(device_name), &device.name));
    worker_options_default(&options);
    options.devices = &device;
    options.n_devices = 1;
    options.task = "/job:ps/replica:0/task:0";
    options.listen = "127.0.0.1:0";
    options.pool = pool;
    options.serve_peer_call = echo;
    assert_null(worker_service_new(loop, &options, &service));
    table = peer_call_table_new(loop, "/job:worker/replica:0/task:0", 5, 10000);
    return 0;
}

static void mark_freed(void *arg) { *(bool *)arg = true; }

static int teardown(void **state) {
    bool is_freed = false;
    peer_call_table_free(table);
    worker_service_free(service, mark_freed, &is_freed);
    LOOP_UNTIL(loop, is_freed);
    loop_stop(loop);
    loop_run(loop);
    pool_free(pool);
    loop_free(loop);
    return 0;
}

static struct peer_call_task *know(const char *address) {
    struct peer_call_task *task = NULL;
    assert_null(peer_call_table_know(table, "/job:ps/replica:0/task:0", address, "", &task));
    return task;
}

static void more_than_the_other_task_takes_at_a_time_wait(void **state) {
    char address[64];
    snprintf(address, sizeof(address), "127.0.0.1:%d", worker_service_port(service));
    ask_all(know(address));
    assert_int_equal(n_replied, N_CALLS);
}

static void all_end_when_it_cannot_be_reached(void **state) {
    ask_all(know("127.0.0.1:1"));
    assert_int_equal(n_failed, N_CALLS);
}

static void all_end_when_this_task_stops(void **state) {
    peer_call_table_stop(table);
    ask_all(know("127.0.0.1:1"));
    assert_int_equal(n_failed, N_CALLS);
}

struct sized_call {
    struct peer_call call;
    bool is_done;
};

static void on_sized(struct peer_call *call) {
    CONTAINER_OF(call, struct sized_call, call)->is_done = true;
}

/* Makes one call and takes what came of it: the length of its reply, or the failure. */
static size_t call_with(struct peer_call_task *task, struct span request,
                        enum status_code *ret_code, char ret_words[200]) {
    struct sized_call sized = {.call = {.request = request, .on_done = on_sized}};
    list_init(&sized.call.link);
    peer_call_start(task, &sized.call);
    assert_false(sized.is_done);
    LOOP_UNTIL(loop, sized.is_done);
    size_t len = sized.call.reply.len;
    *ret_code = status_code(sized.call.status);
    snprintf(ret_words, 200, "%s", status_message(sized.call.status));
    status_unref(sized.call.status);
    str_fini(&sized.call.reply);
    return len;
}

/* One below each limit, at it, and one above: what is too long fails its call and nothing else. */
static void limits_fail_the_call_and_not_the_connection(void **state) {
    char address[64], text[16], words[200];
    enum status_code code;
    struct str request = STR_INIT;
    snprintf(address, sizeof(address), "127.0.0.1:%d", worker_service_port(service));
    struct peer_call_task *task = know(address);
    for (size_t n = PEER_MAX_REQUEST_BYTES - 1; n <= PEER_MAX_REQUEST_BYTES + 1; n++) {
        str_clear(&request);
        str_add_repeated(&request, n);
        size_t len = call_with(task, (struct span){request.data, n}, &code, words);
        bool fits = n <= PEER_MAX_REQUEST_BYTES;
        assert_int_equal(code, fits ? STATUS_OK : STATUS_RESOURCE_EXHAUSTED);
        assert_int_equal(len, fits ? n : 0);
        assert_true(fits || strstr(words, "a request of 65537 bytes to"));
    }
    for (size_t n = PEER_MAX_REPLY_BYTES - 1; n <= PEER_MAX_REPLY_BYTES + 1; n++) {
        snprintf(text, sizeof(text), "!%zu", n);
        size_t len = call_with(task, span_of(text), &code, words);
        bool fits = n <= PEER_MAX_REPLY_BYTES;
        assert_int_equal(code, fits ? STATUS_OK : STATUS_RESOURCE_EXHAUSTED);
        assert_int_equal(len, fits ? n : 0);
        assert_true(fits || strstr(words, "a reply of 4194305 bytes"));
    }
    call_with(task, span_of("?70000000"), &code, words); /* more than a message's meta may have */
    assert_int_equal(code, STATUS_INVALID_ARGUMENT);
    call_with(task, span_of("and on"), &code, words);
    assert_int_equal(code, STATUS_OK);
    str_fini(&request);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(more_than_the_other_task_takes_at_a_time_wait, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(all_end_when_it_cannot_be_reached, setup, teardown),
        cmocka_unit_test_setup_teardown(limits_fail_the_call_and_not_the_connection, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(all_end_when_this_task_stops, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
