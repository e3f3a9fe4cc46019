/* Questions to another task (worker/exchange/peer_call.h): more at a time than it takes, and what
 * becomes of them when it cannot be reached. */
#include "worker/exchange/peer_call.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/rpc/loop_turns.h"
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

static struct status *echo(struct span request, struct peer_reply *ret) {
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
    TURN_UNTIL(loop, n_replied + n_failed == N_CALLS);
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
    TURN_UNTIL(loop, is_freed);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(more_than_the_other_task_takes_at_a_time_wait, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(all_end_when_it_cannot_be_reached, setup, teardown),
        cmocka_unit_test_setup_teardown(all_end_when_this_task_stops, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
