/* A task in the clusters of sessions: the Hello of a session's master and of a peer there, and the
 * master's Leave. The task also has a master of its own cluster (to_worker). */
#include "tests/unit/worker/master_end.h"

enum { SESSION_MASTER = 815, OTHER_SESSION_MASTER = 816 };
#define NAME "/job:store/replica:0/task:3"

static struct master_end control, bulk, other;

static void send_greeting(struct master_end *end, const Millrace__Hello *hello) {
    struct str bytes = STR_INIT;
    size_t len = millrace__hello__get_packed_size(hello);
    uint8_t *packed = xmalloc(len);
    millrace__hello__pack(hello, packed);
    str_add_bytes(&bytes, packed, len);
    free(packed);
    end->conn = wire_connect(loop, worker.address, &handlers, end);
    wire_send(end->conn, &(struct wire_out){.type = WIRE_HELLO, .meta = {bytes.data, bytes.len}});
    str_fini(&bytes);
}

/* Connects as a session's master, which calls the task `as_task`. */
static void greet(struct master_end *end, uint64_t master, const char *as_task) {
    Millrace__Hello hello = MILLRACE__HELLO__INIT;
    hello.protocol = WIRE_PROTOCOL;
    hello.task = (char *)"master";
    hello.incarnation = master;
    hello.as_task = (char *)(uintptr_t)as_task;
    end->incarnation = master;
    send_greeting(end, &hello);
    await_message(end, 1);
}

static void greet_well(struct master_end *end, uint64_t master, const char *as_task) {
    int n = worker.service->n_connections;
    greet(end, master, as_task);
    assert_int_equal(end->last.type, WIRE_HELLO);
    assert_int_equal(worker.service->n_connections, n + 1);
    assert_int_equal(end->n_closed, 0);
}

static void expect_end(struct master_end *end) {
    LOOP_UNTIL(loop, end->n_closed == 1);
    end_fini(end);
}

static int end_all(void **state) {
    end_fini(&control);
    end_fini(&bulk);
    end_fini(&other);
    return teardown(state);
}

/* ---- Hello ---- */

static void a_task_has_one_name_for_all_connections_of_a_master(void **state) {
    greet_well(&control, SESSION_MASTER, NAME);
    greet_well(&bulk, SESSION_MASTER, NAME);
    assert_int_equal(worker.service->n_exchanges, 2); /* of its own cluster, and of the session's */
    greet_well(&other, OTHER_SESSION_MASTER, "/job:other/replica:0/task:0");
    assert_int_equal(worker.service->n_exchanges, 3);
}

static void a_second_name_is_refused(void **state) {
    greet_well(&control, SESSION_MASTER, NAME);
    greet(&other, SESSION_MASTER, "/job:store/replica:0/task:4");
    expect_end(&other);
    assert_int_equal(control.n_closed, 0);
    assert_int_equal(worker.service->n_exchanges, 2);
}

static void a_name_of_any_length_is_not_taken(void **state) {
    char name[600];
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    greet(&other, SESSION_MASTER, name);
    expect_end(&other);
    assert_int_equal(worker.service->n_exchanges, 1);
}

/* The probe asks who is there, and tells no name. */
static void a_master_without_a_name_makes_no_cluster(void **state) {
    greet_well(&other, SESSION_MASTER, "");
    assert_int_equal(worker.service->n_exchanges, 1);
}

/* A task of a session's cluster connects: it states the cluster, and its name in both. */
static void greet_as_peer(struct master_end *end, uint64_t cluster) {
    Millrace__Hello hello = MILLRACE__HELLO__INIT;
    hello.protocol = WIRE_PROTOCOL;
    hello.task = (char *)"/job:store/replica:0/task:0";
    hello.own_task = (char *)"/job:ps/replica:0/task:0";
    hello.incarnation = 99;
    hello.cluster = cluster;
    send_greeting(end, &hello);
}

static void a_peer_of_an_unknown_cluster_is_refused(void **state) {
    greet_well(&control, SESSION_MASTER, NAME);
    greet_as_peer(&other, OTHER_SESSION_MASTER);
    expect_end(&other);
    assert_int_equal(control.n_closed, 0);
}

/* ---- Leave ---- */

static void leave(struct master_end *end) {
    wire_send(end->conn, &(struct wire_out){.type = WIRE_LEAVE});
}

static void what_a_leaving_master_had_is_freed_at_once(void **state) {
    worker.service->options.graph_grace_ms = 1000 * 1000; /* a lost master's graphs would stay */
    greet_well(&control, SESSION_MASTER, NAME);
    greet_well(&bulk, SESSION_MASTER, NAME);
    uint64_t home = register_graph(&to_worker, &worker, WAITING, NULL);
    uint64_t graph = register_graph(&control, &worker, WAITING, NULL);
    send_run(&control, graph, ++next_step, NULL, 0, false);
    LOOP_UNTIL(loop, n_waiting == 1);
    leave(&control);
    LOOP_UNTIL(loop, control.n_closed == 1 && bulk.n_closed == 1);
    LOOP_UNTIL(loop, n_waiting == 0 && worker_service_n_steps(worker.service) == 0);
    LOOP_UNTIL(loop, worker.service->n_exchanges == 1);
    assert_null(graph_cache_find(worker.service->graphs, graph));
    assert_non_null(graph_cache_find(worker.service->graphs, home));
    assert_int_equal(to_worker.n_closed, 0);
    end_fini(&control);
    greet_well(&control, SESSION_MASTER, "/job:store/replica:0/task:9"); /* all is forgotten */
}

static void only_a_master_can_leave(void **state) {
    struct master_end tool = {0};
    greet_well(&control, SESSION_MASTER, NAME);
    tool.conn = wire_connect(loop, worker.address, &handlers, &tool);
    send_hello(&tool, "", 0);
    leave(&tool);
    expect_end(&tool);
    assert_int_equal(control.n_closed, 0);
}

#define SESSION_TEST(name) cmocka_unit_test_setup_teardown(name, setup, end_all)

int main(void) {
    const struct CMUnitTest tests[] = {
        SESSION_TEST(a_task_has_one_name_for_all_connections_of_a_master),
        SESSION_TEST(a_second_name_is_refused),
        SESSION_TEST(a_name_of_any_length_is_not_taken),
        SESSION_TEST(a_master_without_a_name_makes_no_cluster),
        SESSION_TEST(a_peer_of_an_unknown_cluster_is_refused),
        SESSION_TEST(what_a_leaving_master_had_is_freed_at_once),
        SESSION_TEST(only_a_master_can_leave),
    };
    return RUN_SERVICE_TESTS(tests);
}
