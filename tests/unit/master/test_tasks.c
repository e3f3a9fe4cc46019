/* The table of tasks of a session's cluster: what the master tells a task in Hello and Leave, the
 * names of its devices, and one process at the addresses of two tasks. The tasks are played. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "common/tensor/tensor_proto.h"
#include "master/cluster/tasks_internal.h"
#include "master/compile/cost/link_table.h"
#include "proto/worker.pb-c.h"
#include "tests/unit/rpc/loop_until.h"

enum { MASTER = 4711, PROCESS = 17, OTHER_PROCESS = 18, MAX_HELLOS = 64 };

/* A process with one or more addresses. As a worker, it has one name in the session's cluster: the
 * first one that a master tells it. */
struct process {
    double flops_per_second; /* that its status tells; 0: none */
    double changes_to; /* that it tells unasked before it answers the Hello of control; 0: none */
    uint64_t incarnation;
    char as_task[128];
    /* of each Hello: the name that it tells, the channel, and the incarnation that it expects */
    struct {
        char as_task[128];
        unsigned channel;
        uint64_t expected;
    } hellos[MAX_HELLOS];
    int n_hellos, n_leaves, n_open, n_pongs, n_drains;
    int n_answered; /* how many Hellos it answers */
    size_t padding; /* zero bytes that its replies to pings have before the rows of links */
    int n_awaited;  /* how many Leaves it awaits before it closes its connections */
    struct wire_conn *open[MAX_HELLOS];
};

static struct loop *loop;
static struct process process, other_process;
static struct wire_server *servers[3];
static struct cluster_spec spec;
static struct tasks *tasks;

/* ---- a task ---- */

static void answer(struct wire_conn *conn, enum wire_type type, uint64_t id, size_t len,
                   const uint8_t *bytes) {
    wire_send(conn, &(struct wire_out){.type = type, .id = id, .meta = {(const char *)bytes, len}});
}

static void send_status(const struct process *p, struct wire_conn *conn, uint64_t id) {
    uint8_t bytes[512];
    Millrace__WorkerStatus status = MILLRACE__WORKER_STATUS__INIT;
    Millrace__DeviceInfo device = MILLRACE__DEVICE_INFO__INIT, *list[] = {&device};
    device.name = (char *)"/job:home/replica:0/task:5/device:CPU:0";
    device.type = (char *)"CPU";
    Millrace__DeviceRates rates = MILLRACE__DEVICE_RATES__INIT;
    if (p->flops_per_second != 0) {
        rates.flops_per_second = p->flops_per_second;
        device.rates = &rates;
        device.lanes = 3;
    }
    status.task = (char *)"/job:home/replica:0/task:5";
    status.incarnation = p->incarnation;
    status.host_id = (char *)"another host";
    status.revision = 1;
    status.n_device = 1;
    status.device = list;
    answer(conn, WIRE_STATUS, id, millrace__worker_status__pack(&status, bytes), bytes);
}

static void on_hello(struct process *p, struct wire_conn *conn,
                     const struct wire_message *message) {
    uint8_t bytes[512];
    Millrace__Hello mine = MILLRACE__HELLO__INIT,
                    *hello = millrace__hello__unpack(NULL, message->meta.len,
                                                     (const uint8_t *)message->meta.data);
    assert_non_null(hello);
    assert_string_equal(hello->task, "master");
    assert_int_equal(hello->incarnation, MASTER);
    assert_true(p->n_hellos < MAX_HELLOS);
    snprintf(p->hellos[p->n_hellos].as_task, sizeof(p->as_task), "%s", hello->as_task);
    p->hellos[p->n_hellos].channel = hello->channel;
    p->hellos[p->n_hellos++].expected = hello->expected_incarnation;
    mine.protocol = WIRE_PROTOCOL;
    mine.incarnation = p->incarnation;
    if (*hello->as_task && hello->channel == 0 && p->changes_to != 0) {
        p->flops_per_second = p->changes_to;
        send_status(p, conn, 0);
    }
    if (p->n_hellos <= p->n_answered)
        answer(conn, WIRE_HELLO, message->id, millrace__hello__pack(&mine, bytes), bytes);
    if (*hello->as_task && !*p->as_task)
        snprintf(p->as_task, sizeof(p->as_task), "%s", hello->as_task);
    if (*hello->as_task && strcmp(p->as_task, hello->as_task) != 0)
        wire_conn_close(conn, status_failed_precondition("this task has another name"));
    millrace__hello__free_unpacked(hello, NULL);
}

/* Tells a link from the task of job "b", and one from a task that nobody knows. With padding, a
 * short second reply tells a link from the task of job "a". */
static void send_pong(struct process *p, struct wire_conn *conn, struct wire_message *ping) {
    struct str meta = STR_INIT;
    heartbeat_answer(ping->meta, 1, &meta);
    char *zeros = xcalloc(1, p->padding + 1);
    if (p->padding > 0)
        proto_add_bytes(&meta, 100, zeros, p->padding);
    free(zeros);
    size_t begin = meta.len;
    link_report_add(&meta, begin,
                    &(struct link_report){span_of("/job:b/replica:0/task:0"), LINK_WAY_TCP, 300000,
                                          1000000000});
    link_report_add(&meta, begin,
                    &(struct link_report){span_of("/job:x/replica:0/task:0"), LINK_WAY_TCP, 1, 1});
    answer(conn, WIRE_PONG, ping->id, meta.len, (const uint8_t *)meta.data);
    if (p->padding > 0) {
        str_clear(&meta);
        link_report_add(
            &meta, 0,
            &(struct link_report){span_of("/job:a/replica:0/task:0"), LINK_WAY_TCP, 300000, 1});
        answer(conn, WIRE_PONG, ping->id, meta.len, (const uint8_t *)meta.data);
    }
    str_fini(&meta);
    p->n_pongs++;
}

static void on_message(void *owner, struct wire_conn *conn, struct wire_message *message) {
    struct process *p = owner;
    switch (message->type) {
    case WIRE_HELLO:
        on_hello(p, conn, message);
        break;
    case WIRE_GET_STATUS:
        send_status(p, conn, message->id);
        break;
    case WIRE_PING:
        send_pong(p, conn, message);
        break;
    case WIRE_DRAIN:
        p->n_drains++;
        break;
    case WIRE_KEEP_GRAPHS:
        answer(conn, WIRE_KEPT, message->id, 0, NULL);
        break;
    case WIRE_LEAVE:
        p->n_leaves++;
        for (int i = 0; i < p->n_open && p->n_leaves >= p->n_awaited; i++)
            wire_conn_close(p->open[i], NULL);
        break;
    default:
        break;
    }
}

static void on_closed(void *owner, struct wire_conn *conn, struct status *why) {
    struct process *p = owner;
    for (int i = 0; i < p->n_open; i++)
        if (p->open[i] == conn)
            p->open[i] = p->open[--p->n_open];
    wire_conn_unref(conn);
}

static const struct wire_handlers handlers = {.on_message = on_message, .on_closed = on_closed};

static void on_accept(void *arg, struct wire_conn *conn_take) {
    struct process *p = arg;
    assert_true(p->n_open < MAX_HELLOS);
    p->open[p->n_open++] = conn_take;
    wire_conn_set_owner(conn_take, p, &handlers);
}

/* ---- the master ---- */

static void on_event(void *arg, struct task *task) {}
static void hold_nothing(void *arg, const struct task *task, struct str *out) {}

/* Adds a task of job `job`, at an address of its own of the process. */
static void add_task(const char *job, struct process *p) {
    char address[64];
    struct wire_server **server = &servers[spec.n_tasks];
    assert_null(wire_listen(loop, "127.0.0.1:0", on_accept, p, server));
    snprintf(address, sizeof(address), "127.0.0.1:%d", wire_server_port(*server));
    assert_null(cluster_spec_add(&spec, span_of(job), 0, span_of(address)));
}

static void start(void) {
    tasks = tasks_new_session(loop, &spec, MASTER, 1000, on_event, on_event, hold_nothing, NULL);
}

static int setup(void **state) {
    loop = loop_new();
    cluster_spec_init(&spec);
    process = (struct process){.incarnation = PROCESS, .n_answered = MAX_HELLOS};
    other_process = (struct process){.incarnation = OTHER_PROCESS, .n_answered = MAX_HELLOS};
    memset(servers, 0, sizeof(servers));
    tasks = NULL;
    return 0;
}

static int teardown(void **state) {
    tasks_free(tasks);
    for (size_t i = 0; i < ARRAY_LEN(servers); i++)
        wire_server_close(servers[i]);
    LOOP_UNTIL(loop, process.n_open == 0 && other_process.n_open == 0);
    cluster_spec_fini(&spec);
    loop_end(loop);
    return 0;
}

/* ---- tests ---- */

/* The probe only asks who is there: before the name is checked, no name is told. */
static void a_task_is_told_its_name_after_the_probe(void **state) {
    add_task("b", &process);
    start();
    LOOP_UNTIL(loop, tasks_all_ready(tasks, NULL));
    assert_int_equal(process.n_hellos, 3);
    assert_string_equal(process.hellos[0].as_task, "");
    assert_int_equal(process.hellos[0].expected, 0);
    for (int i = 1; i < 3; i++) {
        assert_string_equal(process.hellos[i].as_task, "/job:b/replica:0/task:0");
        assert_int_equal(process.hellos[i].expected, PROCESS);
    }
    assert_int_equal(process.hellos[1].channel + process.hellos[2].channel, 0 + 1);
    assert_string_equal(task_own_name(tasks_at(tasks, 0)), "/job:home/replica:0/task:5");
    struct device_table *devices = tasks_devices(tasks);
    assert_int_equal(devices->n_devices, 1);
    assert_string_equal(devices->devices[0].full_name, "/job:b/replica:0/task:0/device:CPU:0");
    device_table_unref(devices);
}

static void a_master_of_the_own_cluster_tells_no_name(void **state) {
    add_task("home", &process);
    spec.tasks[0].name = "/job:home/replica:0/task:5";
    tasks = tasks_new(loop, &spec, MASTER, 1000, on_event, on_event, hold_nothing, NULL);
    LOOP_UNTIL(loop, tasks_all_ready(tasks, NULL));
    for (int i = 0; i < process.n_hellos; i++)
        assert_string_equal(process.hellos[i].as_task, "");
}

static void a_leaving_master_says_so(void **state) {
    add_task("a", &process);
    add_task("b", &other_process);
    start();
    LOOP_UNTIL(loop, tasks_all_ready(tasks, NULL));
    tasks_leave(tasks);
    tasks = NULL; /* it frees itself once the tasks have closed their connections */
    LOOP_UNTIL(loop, process.n_open == 0 && other_process.n_open == 0);
    assert_int_equal(process.n_leaves, 1);
    assert_int_equal(other_process.n_leaves, 1);
}

/* Each of the two Hellos may be the one that the task hears last. */
static void a_master_that_leaves_while_it_is_linked_says_so_on_both_connections(void **state) {
    add_task("a", &process);
    process.n_answered = 1; /* the probe's */
    process.n_awaited = 2;
    start();
    LOOP_UNTIL(loop, process.n_hellos == 3);
    tasks_leave(tasks);
    tasks = NULL;
    LOOP_UNTIL(loop, process.n_open == 0);
    assert_int_equal(process.n_leaves, 2);
}

/* The process closes the connections of one of its two names, so that never both tasks stay READY.
 * What it said on the probes is remembered. */
static void one_process_at_two_addresses_is_found(void **state) {
    add_task("a", &process);
    add_task("b", &process);
    add_task("c", &other_process);
    start();
    LOOP_UNTIL(loop, *process.as_task);
    int refused = strstr(process.as_task, "/job:a") ? 1 : 0;
    LOOP_UNTIL(loop, task_state(tasks_at(tasks, refused)) == TASK_DOWN &&
                         task_incarnation(tasks_at(tasks, refused)) != 0);
    struct status *st = tasks_check_distinct(tasks);
    assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(status_message(st), "/job:a/replica:0/task:0 at "));
    assert_non_null(strstr(status_message(st), "/job:b/replica:0/task:0 at "));
    assert_non_null(strstr(status_message(st), "are the same process"));
    status_unref(st);
}

static void tasks_that_have_not_answered_are_no_process(void **state) {
    add_task("a", &process);
    add_task("b", &other_process);
    start();
    assert_null(tasks_check_distinct(tasks)); /* nothing is connected yet */
    LOOP_UNTIL(loop, tasks_all_ready(tasks, NULL));
    assert_null(tasks_check_distinct(tasks));
}

static void a_task_is_tried_when_it_is_ready_or_has_not_answered(void **state) {
    add_task("a", &process);
    add_task("b", &other_process);
    process.n_answered = 1; /* the probe's */
    start();
    assert_false(tasks_all_tried(tasks));
    LOOP_UNTIL(loop, process.n_hellos == 3 && task_state(tasks_at(tasks, 1)) == TASK_READY);
    assert_false(tasks_all_tried(tasks)); /* it is being linked */
    for (int i = 0; i < process.n_open; i++)
        wire_conn_close(process.open[i], NULL);
    LOOP_UNTIL(loop, tasks_all_tried(tasks));
    assert_false(tasks_all_ready(tasks, NULL));
}

/* A worker of an older version tells no rates and no lanes. */
static void the_devices_have_the_speed_that_their_tasks_tell(void **state) {
    add_task("a", &process);
    add_task("b", &other_process);
    process.flops_per_second = 1e9;
    start();
    LOOP_UNTIL(loop, tasks_all_ready(tasks, NULL));
    struct device_table *devices = tasks_devices(tasks);
    assert_int_equal(devices->n_devices, 2);
    assert_true(devices->devices[0].slowness.compute > 5);
    assert_true(devices->devices[0].slowness.memory == 1);
    assert_true(devices->devices[1].slowness.compute == 1);
    assert_int_equal(devices->devices[0].n_lanes, 3);
    assert_int_equal(devices->devices[1].n_lanes, 1);
    device_table_unref(devices);
}

/* A device may fail while the master connects its channels. */
static void devices_that_change_while_a_task_is_linked_are_known(void **state) {
    add_task("a", &process);
    process.changes_to = 1e9;
    start();
    LOOP_UNTIL(loop, tasks_all_ready(tasks, NULL));
    struct device_table *devices = tasks_devices(tasks);
    assert_int_equal(devices->n_devices, 1);
    assert_true(devices->devices[0].slowness.compute > 5);
    device_table_unref(devices);
}

static void links_are_known_by_the_replies_to_pings(void **state) {
    struct str page = STR_INIT;
    add_task("a", &process);
    add_task("b", &other_process);
    start();
    LOOP_UNTIL(loop, tasks_all_ready(tasks, NULL) && process.n_pongs > 0);
    do {
        loop_iterate(loop);
        str_clear(&page);
        link_table_describe(tasks_links(tasks), 10, &page);
    } while (!strstr(str_text(&page), "\"to\": \"/job:a/"));
    struct schedule_link link =
        link_table_find(tasks_links(tasks), "/job:b/replica:0/task:0", "/job:a/replica:0/task:0");
    assert_true(link.latency_ns == 300000 && link.ns_per_byte == 1);
    assert_null(strstr(str_text(&page), "/job:x/"));
    str_fini(&page);
}

static void long_replies_to_pings_are_not_read(void **state) {
    struct str page = STR_INIT;
    process.padding = 600;
    add_task("a", &process);
    add_task("b", &other_process);
    start();
    do { /* until the short reply that follows the long one has been read */
        loop_iterate(loop);
        str_clear(&page);
        link_table_describe(tasks_links(tasks), 10, &page);
    } while (!strstr(str_text(&page), "\"from\": \"/job:a/replica:0/task:0\", \"to\": \"/job:a/"));
    struct schedule_link link =
        link_table_find(tasks_links(tasks), "/job:b/replica:0/task:0", "/job:a/replica:0/task:0");
    assert_true(link.latency_ns != 300000);
    str_fini(&page);
}

/* Drain has no answer: the connection may be lost before it has arrived. */
static void a_task_is_told_to_drain_again(void **state) {
    add_task("a", &process);
    add_task("b", &other_process);
    start();
    LOOP_UNTIL(loop, tasks_all_ready(tasks, NULL));
    assert_null(task_drain(tasks_at(tasks, 0)));
    LOOP_UNTIL(loop, process.n_drains == 1);
    assert_null(task_drain(tasks_at(tasks, 0)));
    LOOP_UNTIL(loop, process.n_drains == 2);
    for (int i = 0; i < process.n_open; i++)
        wire_conn_close(process.open[i], NULL);
    LOOP_UNTIL(loop, task_state(tasks_at(tasks, 0)) == TASK_DOWN);
    assert_null(task_drain(tasks_at(tasks, 0)));
    LOOP_UNTIL(loop, process.n_drains == 3);
    assert_int_equal(task_state(tasks_at(tasks, 0)), TASK_READY);
    assert_true(tasks_all_ready(tasks, NULL)); /* the other task is */
    assert_int_equal(other_process.n_drains, 0);
}

static void a_cluster_whose_tasks_are_all_drained_is_not_ready(void **state) {
    struct str why = STR_INIT;
    add_task("a", &process);
    add_task("b", &other_process);
    start();
    LOOP_UNTIL(loop, tasks_all_ready(tasks, NULL));
    assert_null(task_drain(tasks_at(tasks, 0)));
    assert_true(tasks_all_ready(tasks, NULL));
    assert_null(task_drain(tasks_at(tasks, 1)));
    assert_false(tasks_all_ready(tasks, NULL));
    tasks_describe_missing(tasks, NULL, &why);
    assert_string_equal(str_text(&why), "every task has been drained or has left");
    str_fini(&why);
}

static int n_replies;
static void on_reply(struct task_call *call, struct status *status_take,
                     struct wire_message *message) {
    if (status_take)
        fail_msg("%s", status_message(status_take));
    assert_int_equal(message->type, WIRE_RUN_DONE);
    n_replies++;
}

/* A task that ends replies over one connection and closes the other one first. */
static void a_reply_before_the_end_of_a_task_counts(void **state) {
    n_replies = 0;
    add_task("a", &process);
    start();
    LOOP_UNTIL(loop, tasks_all_ready(tasks, NULL));
    LOOP_UNTIL(loop, process.n_open == 2); /* the probe has ended */
    struct task *task = tasks_at(tasks, 0);
    for (int k = 0; k < 2; k++) {
        struct task_call call = {.on_reply = on_reply};
        struct wire_out run = {.type = WIRE_RUN_GRAPH};
        task_call_start(task, &call, &run);
        struct wire_conn *first = process.open[k], *last = process.open[1 - k];
        answer(last, WIRE_RUN_DONE, call.id, 0, NULL);
        wire_conn_close(first, NULL);
        LOOP_UNTIL(loop, task_state(task) == TASK_DOWN);
        assert_int_equal(n_replies, k + 1);
        LOOP_UNTIL(loop, task_state(task) == TASK_READY && process.n_open == 2);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_task_is_told_its_name_after_the_probe, setup, teardown),
        cmocka_unit_test_setup_teardown(a_master_of_the_own_cluster_tells_no_name, setup, teardown),
        cmocka_unit_test_setup_teardown(a_leaving_master_says_so, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_master_that_leaves_while_it_is_linked_says_so_on_both_connections, setup, teardown),
        cmocka_unit_test_setup_teardown(the_devices_have_the_speed_that_their_tasks_tell, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(devices_that_change_while_a_task_is_linked_are_known, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(links_are_known_by_the_replies_to_pings, setup, teardown),
        cmocka_unit_test_setup_teardown(long_replies_to_pings_are_not_read, setup, teardown),
        cmocka_unit_test_setup_teardown(a_task_is_told_to_drain_again, setup, teardown),
        cmocka_unit_test_setup_teardown(a_reply_before_the_end_of_a_task_counts, setup, teardown),
        cmocka_unit_test_setup_teardown(a_cluster_whose_tasks_are_all_drained_is_not_ready, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(one_process_at_two_addresses_is_found, setup, teardown),
        cmocka_unit_test_setup_teardown(tasks_that_have_not_answered_are_no_process, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_task_is_tried_when_it_is_ready_or_has_not_answered, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
