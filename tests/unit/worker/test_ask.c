/* Questions to another task (worker/exchange/ask.h): more at a time than it takes, and what
 * becomes of them when it cannot be reached. */
#include "worker/exchange/ask.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "tests/unit/rpc/loop_turns.h"
#include "worker/service/service.h"

enum { N_QUESTIONS = 5 * PEER_MAX_CALLS + 1 };

static struct loop *loop;
static struct pool *pool;
static char device_name[] = "/job:ps/replica:0/task:0/device:TEST:0";
static struct device device;
static struct worker_service *service;
static struct ask_table *table;
static struct peer_call questions[N_QUESTIONS];
static char requests[N_QUESTIONS][16];
static int n_answered, n_failed;

static struct status *echo(struct span request, struct peer_reply *ret) {
    str_add_bytes(&ret->bytes, request.data, request.len);
    return NULL;
}

static void on_done(struct peer_call *question) {
    bool is_right = !question->status && span_is(question->request, str_text(&question->reply));
    n_answered += is_right;
    n_failed += !is_right;
    status_unref(question->status);
    str_fini(&question->reply);
    buffer_unref(question->payload);
}

static void ask_all(struct ask_task *task) {
    n_answered = n_failed = 0;
    for (int i = 0; i < N_QUESTIONS; i++) {
        snprintf(requests[i], sizeof(requests[i]), "question %d", i);
        questions[i] = (struct peer_call){.request = span_of(requests[i]), .on_done = on_done};
        list_init(&questions[i].link);
        ask_start(task, &questions[i]);
    }
    TURN_UNTIL(loop, n_answered + n_failed == N_QUESTIONS);
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
    options.answer = echo;
    assert_null(worker_service_new(loop, &options, &service));
    table = ask_table_new(loop, "/job:worker/replica:0/task:0", 5, 10000);
    return 0;
}

static void mark_freed(void *arg) { *(bool *)arg = true; }

static int teardown(void **state) {
    bool is_freed = false;
    ask_table_free(table);
    worker_service_free(service, mark_freed, &is_freed);
    TURN_UNTIL(loop, is_freed);
    loop_stop(loop);
    loop_run(loop);
    pool_free(pool);
    loop_free(loop);
    return 0;
}

static struct ask_task *know(const char *address) {
    struct ask_task *task = NULL;
    assert_null(ask_table_know(table, "/job:ps/replica:0/task:0", address, "", &task));
    return task;
}

static void more_than_the_other_task_takes_at_a_time_wait(void **state) {
    char address[64];
    snprintf(address, sizeof(address), "127.0.0.1:%d", worker_service_port(service));
    ask_all(know(address));
    assert_int_equal(n_answered, N_QUESTIONS);
}

static void all_end_when_it_cannot_be_reached(void **state) {
    ask_all(know("127.0.0.1:1"));
    assert_int_equal(n_failed, N_QUESTIONS);
}

static void all_end_when_this_task_stops(void **state) {
    ask_table_stop(table);
    ask_all(know("127.0.0.1:1"));
    assert_int_equal(n_failed, N_QUESTIONS);
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
