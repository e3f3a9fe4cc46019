/* A worker's service and its masters: Hello, status, pings, memberships; masters that connect
 * again,
 * fall silent or go; draining. */
#include "common/base/clock.h"
#include "kernels/host/resources/resource_held.h"
#include "kernels/host/resources/tensor_array.h"
#include "kernels/variable.h"
#include "rpc/wire/wire_last.h"
#include "tests/unit/worker/master_end.h"

/* ---- first words ---- */

static void the_status_names_task_and_devices(void **state) {
    wire_send(to_worker.conn, &(struct wire_out){.type = WIRE_GET_STATUS, .id = 9});
    await_message(&to_worker, 2);
    assert_int_equal(to_worker.last.type, WIRE_STATUS);
    Millrace__WorkerStatus *status = millrace__worker_status__unpack(
        NULL, to_worker.last.meta.len, (const uint8_t *)to_worker.last.meta.data);
    assert_string_equal(status->task, worker.task);
    assert_int_equal(status->incarnation, worker_service_incarnation(worker.service));
    assert_int_equal(status->n_device, 1);
    assert_string_equal(status->device[0]->name, worker.device_name);
    assert_string_equal(status->unix_address, worker_service_unix_address(worker.service));
    millrace__worker_status__free_unpacked(status, NULL);
}

static Millrace__WorkerStatus *last_status(struct master_end *end) {
    assert_int_equal(end->last.type, WIRE_STATUS);
    return millrace__worker_status__unpack(NULL, end->last.meta.len,
                                           (const uint8_t *)end->last.meta.data);
}

static void a_master_is_told_the_rates_of_the_devices(void **state) {
    worker.service->options.device_scale = 4;
    wire_send(to_worker.conn, &(struct wire_out){.type = WIRE_GET_STATUS, .id = 9});
    await_message(&to_worker, 2);
    assert_int_equal(to_worker.last.id, 9);
    Millrace__WorkerStatus *status = last_status(&to_worker);
    const Millrace__DeviceRates *told = status->device[0]->rates;
    const struct device_rates *measured = &worker.service->rates;
    assert_true(measured->flops_per_second > 0 && measured->bytes_per_second > 0);
    assert_true(told->flops_per_second == measured->flops_per_second / 4);
    assert_true(told->bytes_per_second == measured->bytes_per_second / 4);
    assert_true(told->dispatch_ns == measured->dispatch_ns * 4);
    assert_int_equal(status->device[0]->lanes, pool_n_threads(worker.service->options.pool));
    millrace__worker_status__free_unpacked(status, NULL);
}

/* A tool, or another process that wants this task's place, asks only whether there is a task. */
static void a_tool_does_not_make_the_worker_measure(void **state) {
    struct master_end tool = {0};
    tool.conn = wire_connect(loop, worker.address, &handlers, &tool);
    send_hello(&tool, "", 0);
    wire_send(tool.conn, &(struct wire_out){.type = WIRE_GET_STATUS, .id = 9});
    await_message(&tool, 2);
    Millrace__WorkerStatus *status = last_status(&tool);
    assert_true(status->device[0]->rates->flops_per_second == 0);
    assert_int_equal(worker.service->rates_phase, RATES_UNKNOWN);
    millrace__worker_status__free_unpacked(status, NULL);
    end_fini(&tool);
}

static void a_master_that_goes_while_the_worker_measures_gets_no_answer(void **state) {
    struct master_end other = {0};
    connect_to(&other, &worker);
    wire_send(other.conn, &(struct wire_out){.type = WIRE_GET_STATUS, .id = 9});
    LOOP_UNTIL(loop, worker.service->rates_phase != RATES_UNKNOWN);
    end_fini(&other);
    LOOP_UNTIL(loop, worker.service->rates_phase == RATES_KNOWN);
    LOOP_UNTIL(loop, worker.service->n_connections == 1);
}

static void a_ping_comes_back(void **state) {
    wire_send(to_worker.conn,
              &(struct wire_out){.type = WIRE_PING, .id = 3, .meta = span_of("echo")});
    await_message(&to_worker, 2);
    assert_int_equal(to_worker.last.type, WIRE_PONG);
    assert_int_equal(to_worker.last.id, 3);
    /* and the worker's time */
    assert_int_equal(strncmp(str_text(&to_worker.last_meta), "echo", 4), 0);
}

static void expect_closed(struct master_end *end) {
    LOOP_UNTIL(loop, end->n_closed == 1);
    assert_int_equal(end->n_messages, 0);
    end_fini(end);
}

static void the_first_message_must_be_a_fitting_hello(void **state) {
    struct master_end end = {0};
    end.conn = wire_connect(loop, worker.address, &handlers, &end);
    wire_send(end.conn, &(struct wire_out){.type = WIRE_GET_STATUS});
    expect_closed(&end);
    end.conn = wire_connect(loop, worker.address, &handlers, &end);
    send_hello(&end, "master", 12345); /* of a task that was restarted since */
    expect_closed(&end);
    end.conn = wire_connect(loop, worker.address, &handlers, &end);
    wire_send(end.conn, &(struct wire_out){.type = WIRE_HELLO, .meta = span_of("\x0a")});
    expect_closed(&end);
}

static void who_never_says_hello_is_closed(void **state) {
    struct master_end end = {0};
    end.conn = wire_connect(loop, worker.address, &handlers, &end);
    LOOP_UNTIL(loop, worker.service->n_connections == 2);
    connections_expire(worker.service, clock_now_ns());
    loop_iterate(loop);
    assert_int_equal(end.n_closed, 0);
    connections_expire(worker.service, clock_now_ns() + (SERVICE_HELLO_SECONDS + 1) * 1000000000ll);
    expect_closed(&end);
    assert_int_equal(worker.service->n_connections, 1); /* the master has */
}

static void a_tool_may_not_run_graphs(void **state) {
    struct master_end end = {0};
    end.conn = wire_connect(loop, worker.address, &handlers, &end);
    send_hello(&end, "", 0);
    send_run(&end, 1, 1, NULL, 0, false);
    LOOP_UNTIL(loop, end.n_closed == 1);
    assert_int_equal(end.n_messages, 1);
    end_fini(&end);
}

/* ---- masters that come and go ---- */

static uint64_t membership(struct master_end *end) {
    int n = end->n_messages;
    wire_send(end->conn, &(struct wire_out){.type = WIRE_GET_STATUS, .id = 9});
    await_message(end, n + 1);
    Millrace__WorkerStatus *status = millrace__worker_status__unpack(
        NULL, end->last.meta.len, (const uint8_t *)end->last.meta.data);
    assert_non_null(status);
    uint64_t got = status->membership;
    millrace__worker_status__free_unpacked(status, NULL);
    return got;
}

static void a_step_ends_with_the_connection_that_brought_it(void **state) {
    struct master_end second = {0};
    uint64_t graph = register_graph(&to_worker, &worker, WAITING, NULL);
    /* of the same master: it has given the first one up, which has not been noticed here */
    connect_to(&second, &worker);
    send_run(&to_worker, graph, ++next_step, NULL, 0, false);
    LOOP_UNTIL(loop, n_waiting == 1);
    end_fini(&to_worker);
    LOOP_UNTIL(loop, n_waiting == 0 && worker_service_n_steps(worker.service) == 0);
    int n = second.n_messages;
    send_run(&second, graph, next_step, NULL, 0, false);
    expect_code(&second, n + 1, next_step, STATUS_ABORTED, "has ended here already");
    end_fini(&second);
}

static void a_membership_lasts_as_long_as_the_graphs(void **state) {
    struct master_end second = {0};
    uint64_t first = membership(&to_worker);
    assert_true(first != 0);
    connect_to(&second, &worker);
    end_fini(&to_worker);
    LOOP_UNTIL(loop, worker.service->n_connections == 1);
    assert_int_equal(membership(&second), first);
    end_fini(&second);
    LOOP_UNTIL(loop, worker.service->n_connections == 0);
    masters_expire(worker.service, clock_now_ns()); /* no grace here */
    connect_to(&to_worker, &worker);
    assert_int_not_equal(membership(&to_worker), first);
}

/* What it does not name goes: the answer to its registration was lost, or the word that it is
 * not needed. */
static void a_master_that_connects_anew_keeps_what_it_names(void **state) {
    struct master_end second = {0};
    uint64_t kept = register_graph(&to_worker, &worker, WAITING, NULL),
             other = register_graph(&to_worker, &worker, WAITING, NULL);
    struct str meta = STR_INIT;
    send_run(&to_worker, kept, ++next_step, NULL, 0, false);
    LOOP_UNTIL(loop, n_waiting == 1);
    connect_to(&second, &worker);
    proto_add_bytes(&meta, 1, (const char *)&kept, sizeof(kept));
    int n = second.n_messages;
    wire_send(second.conn,
              &(struct wire_out){.type = WIRE_KEEP_GRAPHS, .id = 7, .meta = {meta.data, meta.len}});
    str_fini(&meta);
    await_message(&second, n + 1);
    assert_int_equal(second.last.type, WIRE_KEPT);
    assert_non_null(graph_cache_find(worker.service->graphs, kept));
    assert_null(graph_cache_find(worker.service->graphs, other));
    /* the older connection is over, and its step with it */
    LOOP_UNTIL(loop, to_worker.n_closed == 1 && n_waiting == 0);
    end_fini(&second);
}

static void send_ping(struct master_end *end, uint32_t interval_ms) {
    struct str meta = STR_INIT;
    proto_add_int(&meta, 2, interval_ms);
    int n = end->n_messages;
    wire_send(end->conn,
              &(struct wire_out){.type = WIRE_PING, .id = 3, .meta = {meta.data, meta.len}});
    str_fini(&meta);
    await_message(end, n + 1);
    assert_int_equal(end->last.type, WIRE_PONG);
}

static void a_master_that_pinged_and_is_silent_is_lost(void **state) {
    uint64_t graph = register_graph(&to_worker, &worker, WAITING, NULL);
    int64_t now_ns = clock_now_ns();
    for (int i = 0; i < 20; i++)
        masters_beat(worker.service, now_ns += 1000000000); /* it has never pinged: it need not */
    for (int i = 0; i < 10; i++)
        loop_iterate(loop);
    assert_int_equal(to_worker.n_closed, 0);
    send_run(&to_worker, graph, ++next_step, NULL, 0, false);
    LOOP_UNTIL(loop, n_waiting == 1);
    send_ping(&to_worker, 2000);
    now_ns = clock_now_ns();
    for (int i = 0; i < 5; i++)
        masters_beat(worker.service, now_ns += 1000000000);
    for (int i = 0; i < 10; i++)
        loop_iterate(loop);
    assert_int_equal(to_worker.n_closed, 0);
    for (int i = 0; i < 2; i++)
        masters_beat(worker.service, now_ns += 1000000000);
    LOOP_UNTIL(loop, to_worker.n_closed == 1 && n_waiting == 0);
}

static void mark_gone(void *arg) { ++*(int *)arg; }

static void a_worker_without_a_master_says_so_once(void **state) {
    int n_gone = 0;
    worker.service->options.master_wait_ms = 1;
    worker.service->options.on_masters_gone = mark_gone;
    worker.service->options.on_masters_gone_arg = &n_gone;
    loop_timer_start(&worker.service->beat, 1, 1);
    for (int i = 0; i < 10; i++)
        loop_iterate(loop);
    assert_int_equal(n_gone, 0); /* it has one */
    end_fini(&to_worker);
    LOOP_UNTIL(loop, n_gone == 1);
    for (int i = 0; i < 10; i++)
        loop_iterate(loop);
    assert_int_equal(n_gone, 1);
}

static void a_lost_master_ends_its_steps_and_then_its_graphs(void **state) {
    uint64_t graph = register_graph(&to_worker, &worker, WAITING, NULL);
    send_run(&to_worker, graph, ++next_step, NULL, 0, false);
    LOOP_UNTIL(loop, n_waiting == 1);
    assert_int_equal(graph_cache_n_graphs(worker.service->graphs), 1);
    end_fini(&to_worker);
    LOOP_UNTIL(loop, n_waiting == 0 && worker_service_n_steps(worker.service) == 0);
    masters_expire(worker.service, INT64_MAX / 2);
    assert_int_equal(graph_cache_n_graphs(worker.service->graphs), 0);
}

static void a_deregistered_graph_is_gone(void **state) {
    uint64_t graph = register_graph(&to_worker, &worker, FEED_TO_FETCH, NULL);
    Millrace__DeregisterGraph request = MILLRACE__DEREGISTER_GRAPH__INIT;
    uint8_t bytes[64];
    request.n_graph = 1;
    request.graph = &graph;
    size_t len = millrace__deregister_graph__pack(&request, bytes);
    wire_send(to_worker.conn,
              &(struct wire_out){.type = WIRE_DEREGISTER_GRAPH, .meta = {(char *)bytes, len}});
    send_run(&to_worker, graph, ++next_step, NULL, 0, false);
    expect_code(&to_worker, 3, next_step, STATUS_ABORTED, "not registered");
}

static void plain_free(struct object *object) { free(object); }
static const struct object_type plain_type = {.name = "plain", .free = plain_free};

static struct status *make_plain(void *arg, struct object **ret) {
    *ret = xmalloc(sizeof(struct object));
    object_init(*ret, &plain_type);
    return NULL;
}

static struct status *make_tensor_array(void *arg, struct object **ret) {
    struct tensor_array *array;
    TRY(tensor_array_new(&(struct tensor_array_options){.name = "a", .dtype = DT_FLOAT}, 1000,
                         &array));
    *ret = &array->object;
    return NULL;
}

static struct container_place at(const char *container) {
    return (struct container_place){container, ""};
}

static struct status *make_variable(void *arg, struct object **ret) {
    struct variable *variable = variable_new(DT_FLOAT, "v");
    struct tensor value = TENSOR_INIT;
    int64_t n = 1000;
    TRY(tensor_new(allocator_host(), DT_FLOAT, (struct shape){1, &n}, &value));
    variable_assign_take(variable, &value);
    *ret = &variable->object;
    return NULL;
}

static bool memory_page_says(const char *words) {
    struct str page = STR_INIT;
    worker_service_page_memory(worker.service, &page);
    bool is_said = strstr(str_text(&page), words) != NULL;
    str_fini(&page);
    return is_said;
}

/* A client may fill queues and TensorArrays, and pages are made on the loop. */
static void the_page_of_memory_looks_at_few_tensors(void **state) {
    enum { N_ARRAYS = 2 * RESOURCE_HELD_MAX_LOOKS / 1000 };
    struct object *made;
    char name[20], words[60];
    assert_null(container_lookup_or_create(worker.service->containers, at("c"), "v", &variable_type,
                                           make_variable, NULL, &made));
    object_unref(made);
    assert_true(memory_page_says("\"resources_bytes\":4000,\"resources_not_counted\":0,"));
    for (int i = 0; i < N_ARRAYS; i++) {
        snprintf(name, sizeof(name), "a%d", i);
        assert_null(container_lookup_or_create(worker.service->containers, at("c"), name,
                                               &tensor_array_type, make_tensor_array, NULL, &made));
        object_unref(made);
    }
    int n_least = N_ARRAYS / 2 - 1, n_said = 0;
    for (int i = n_least; i <= n_least + 3; i++) {
        snprintf(words, sizeof(words), "\"resources_not_counted\":%d,", i);
        n_said += memory_page_says(words);
    }
    assert_int_equal(n_said, 1);
}

static void reset_drops_resources_and_graphs(void **state) {
    struct object *made;
    register_graph(&to_worker, &worker, FEED_TO_FETCH, NULL);
    assert_null(container_lookup_or_create(worker.service->containers, at("c"), "v", &plain_type,
                                           make_plain, NULL, &made));
    object_unref(made);
    Millrace__Reset request = MILLRACE__RESET__INIT;
    char *names[] = {(char *)"other"};
    uint8_t bytes[64];
    request.n_container = 1;
    request.container = names;
    size_t len = millrace__reset__pack(&request, bytes);
    wire_send(to_worker.conn, &(struct wire_out){.type = WIRE_RESET, .meta = {(char *)bytes, len}});
    await_message(&to_worker, 3);
    assert_int_equal(to_worker.last.type, WIRE_RESET_DONE);
    assert_int_equal(container_n_resources(worker.service->containers), 1);
    request.n_container = 0;
    request.drop_graphs = true;
    len = millrace__reset__pack(&request, bytes);
    wire_send(to_worker.conn, &(struct wire_out){.type = WIRE_RESET, .meta = {(char *)bytes, len}});
    await_message(&to_worker, 4);
    assert_int_equal(container_n_resources(worker.service->containers), 0);
    assert_int_equal(graph_cache_n_graphs(worker.service->graphs), 0);
}

static void draining_waits_for_steps_and_refuses_new_ones(void **state) {
    bool is_drained = false;
    uint64_t graph = register_graph(&to_worker, &worker, WAITING, NULL), waiting = ++next_step;
    send_run(&to_worker, graph, waiting, NULL, 0, false);
    LOOP_UNTIL(loop, n_waiting == 1);
    worker_service_drain(worker.service, mark_freed, &is_drained);
    send_run(&to_worker, graph, ++next_step, NULL, 0, false);
    /* after the pong by which the task says that it was told to stop */
    expect_code(&to_worker, 4, next_step, STATUS_UNAVAILABLE, "draining");
    assert_false(is_drained);
    send_cancel(&to_worker, waiting);
    LOOP_UNTIL(loop, is_drained);
}

static const struct status *failure;
static const struct status *failure_of(struct device *device) { return failure; }

/* The step does not use the device, so it ends at once. */
static void a_failed_device_ends_the_steps_and_refuses_new_ones(void **state) {
    static const struct device_ops ops = {.failure = failure_of};
    struct device gpu = {.ops = &ops};
    struct status *why = status_unavailable("GPU 0 has failed");
    struct master_end late = {0};
    struct str refusal = STR_INIT;
    bool is_drained = false;
    uint64_t graph = register_graph(&to_worker, &worker, WAITING, NULL), waiting = ++next_step;
    failure = why;
    send_run(&to_worker, graph, waiting, NULL, 0, false);
    LOOP_UNTIL(loop, n_waiting == 1);
    worker_service_abandon(worker.service, &gpu, mark_freed, &is_drained);
    expect_code(&to_worker, 3, waiting, STATUS_UNAVAILABLE, "GPU 0 has failed");
    assert_false(is_derived(&to_worker));
    send_run(&to_worker, graph, ++next_step, NULL, 0, false);
    expect_code(&to_worker, 4, next_step, STATUS_UNAVAILABLE, "is stopping: GPU 0 has failed");
    assert_int_equal(register_graph(&to_worker, &worker, WAITING, &refusal), 0);
    assert_non_null(strstr(str_text(&refusal), "is stopping: GPU 0 has failed"));
    late.conn = wire_connect(loop, worker.address, &handlers, &late);
    expect_closed(&late);
    LOOP_UNTIL(loop, is_drained);
    str_fini(&refusal);
    status_unref(why);
}

/* The reply is larger than what sockets hold, so the last step has ended long before the master has
 * its reply. */
static void draining_waits_until_replies_have_arrived(void **state) {
    struct tensor feed = TENSOR_INIT;
    bool is_drained = false;
    int64_t n = 8 << 20;
    uint64_t graph = register_graph(&to_worker, &worker, FEED_TO_FETCH, NULL);
    assert_null(tensor_new_zeroed(allocator_host(), DT_FLOAT, (struct shape){1, &n}, &feed));
    send_run(&to_worker, graph, ++next_step, &feed, 1, false);
    struct wire_conn *conn =
        LIST_ENTRY(worker.service->connections.next, struct service_connection, link)->wire;
    LOOP_UNTIL(loop, wire_conn_unarrived_bytes(conn) > 20 << 20);
    worker_service_drain(worker.service, mark_freed, &is_drained);
    LOOP_UNTIL(loop, is_drained);
    assert_int_equal(wire_conn_unarrived_bytes(conn), 0);
    await_message(&to_worker, 4);
    /* the pong that tells of draining is queued behind the reply */
    assert_int_equal(to_worker.last.type, WIRE_PONG);
    tensor_clear(&feed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(the_status_names_task_and_devices),
        TEST(a_master_is_told_the_rates_of_the_devices),
        TEST(a_tool_does_not_make_the_worker_measure),
        TEST(a_master_that_goes_while_the_worker_measures_gets_no_answer),
        TEST(a_ping_comes_back),
        TEST(the_first_message_must_be_a_fitting_hello),
        TEST(who_never_says_hello_is_closed),
        TEST(a_tool_may_not_run_graphs),
        TEST(a_lost_master_ends_its_steps_and_then_its_graphs),
        TEST(a_step_ends_with_the_connection_that_brought_it),
        TEST(a_membership_lasts_as_long_as_the_graphs),
        TEST(a_master_that_connects_anew_keeps_what_it_names),
        TEST(a_master_that_pinged_and_is_silent_is_lost),
        TEST(a_worker_without_a_master_says_so_once),
        TEST(a_deregistered_graph_is_gone),
        TEST(the_page_of_memory_looks_at_few_tensors),
        TEST(reset_drops_resources_and_graphs),
        TEST(draining_waits_for_steps_and_refuses_new_ones),
        TEST(a_failed_device_ends_the_steps_and_refuses_new_ones),
        TEST(draining_waits_until_replies_have_arrived),
    };
    return RUN_SERVICE_TESTS(tests);
}
