/* Connections to other tasks: which task connects, fencing by incarnation, loss. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "tests/unit/state_drawing.h"
#include "tests/unit/worker/two_tasks.h"
#include "worker/exchange/peer_internal.h"
#include "worker/exchange/peer_links.h"
#include "worker/exchange/peer_rdma_internal.h"

static struct loop *loop;
static struct test_task a, b;

struct inbox {
    int n_messages;
    uint64_t last_id;
    struct peer *from;
};

static struct inbox at_a, at_b;

static struct status *receive(void *arg, struct peer *peer, struct wire_message *message,
                              const struct edge_message *edge) {
    struct inbox *inbox = arg;
    inbox->n_messages++;
    inbox->last_id = message->id;
    inbox->from = peer;
    return message->id == 666 ? status_invalid("the number of the beast") : NULL;
}

static struct buffer *receive_alloc(void *arg, struct peer *peer,
                                    const struct wire_message *message,
                                    const struct edge_message *edge, size_t size_bytes) {
    return buffer_alloc(allocator_host(), size_bytes);
}

static const struct peer_receiver receiver = {.on_message = receive, .alloc = receive_alloc};

static int setup(void **state) {
    loop = loop_new();
    memset(&at_a, 0, sizeof(at_a));
    memset(&at_b, 0, sizeof(at_b));
    task_init(&a, loop, "/job:worker/replica:0/task:0");
    task_init(&b, loop, "/job:ps/replica:0/task:0");
    tasks_meet(&a, &b);
    tasks_receive(&a, &b, &receiver, &at_a, &at_b);
    return 0;
}

static int teardown(void **state) {
    tasks_fini(&a, &b);
    return 0;
}

static bool send_id(struct peer *peer, enum channel_kind kind, uint64_t id) {
    if (!peer_queue(peer, kind, &(struct wire_out){.type = WIRE_GRANT, .id = id}))
        return false;
    peer_flush(peer, kind);
    return true;
}

static void one_connection_serves_both_directions(void **state) {
    assert_false(send_id(a.other, CHANNEL_CONTROL, 1)); /* not opened yet */
    peer_connect(a.other);
    assert_true(send_id(a.other, CHANNEL_CONTROL, 2));
    LOOP_UNTIL(loop, at_b.n_messages == 1);
    assert_int_equal(at_b.last_id, 2);
    assert_ptr_equal(at_b.from, b.other);
    assert_true(send_id(b.other, CHANNEL_CONTROL, 3)); /* over the connection that a opened */
    LOOP_UNTIL(loop, at_a.n_messages == 1);
    assert_int_equal(at_a.last_id, 3);
    assert_ptr_equal(at_a.from, a.other);
}

static void both_may_connect_at_once(void **state) {
    peer_connect(a.other);
    peer_connect(b.other);
    assert_true(send_id(a.other, CHANNEL_CONTROL, 1));
    assert_true(send_id(b.other, CHANNEL_CONTROL, 2));
    LOOP_UNTIL(loop, at_a.n_messages == 1 && at_b.n_messages == 1);
    for (int i = 0; i < 10; i++)
        loop_iterate(loop);
    assert_int_equal(a.n_lost + b.n_lost, 0);
    assert_true(send_id(a.other, CHANNEL_CONTROL, 3));
    LOOP_UNTIL(loop, at_b.n_messages == 2);
}

static void the_bulk_channel_opens_with_its_first_message(void **state) {
    peer_connect(a.other);
    assert_true(send_id(a.other, CHANNEL_BULK, 4));
    LOOP_UNTIL(loop, at_b.last_id == 4);
}

static void a_lost_peer_is_told_once_and_can_be_connected_again(void **state) {
    peer_connect(a.other);
    assert_true(send_id(a.other, CHANNEL_BULK, 1));
    LOOP_UNTIL(loop, at_b.n_messages == 1);
    assert_true(send_id(b.other, CHANNEL_CONTROL, 666)); /* a closes */
    LOOP_UNTIL(loop, a.n_lost > 0 && b.n_lost > 0);
    for (int i = 0; i < 10; i++)
        loop_iterate(loop);
    assert_int_equal(a.n_lost, 1);
    assert_int_equal(b.n_lost, 1);
    assert_int_equal(b.lost_code, STATUS_UNAVAILABLE);
    assert_non_null(strstr(str_text(&b.lost_why), a.name));
    assert_false(send_id(a.other, CHANNEL_CONTROL, 2));
    peer_connect(a.other);
    assert_true(send_id(a.other, CHANNEL_CONTROL, 3));
    LOOP_UNTIL(loop, at_b.last_id == 3);
}

static void a_task_that_is_not_there_is_lost_with_its_name(void **state) {
    struct peer *nobody;
    assert_null(peer_table_know(a.peers, "/job:x/replica:0/task:7", "127.0.0.1:1", "", 5, &nobody));
    peer_connect(nobody);
    assert_true(send_id(nobody, CHANNEL_CONTROL, 1)); /* queued */
    LOOP_UNTIL(loop, a.n_lost == 1);
    assert_non_null(strstr(str_text(&a.lost_why), "/job:x/replica:0/task:7"));
    assert_non_null(strstr(str_text(&a.lost_why), "127.0.0.1:1"));
}

/* Accepts, and says nothing. */
static void mute_on_message(void *owner, struct wire_conn *conn, struct wire_message *message) {}
static const struct wire_handlers mute_handlers = {.on_message = mute_on_message,
                                                   .on_closed = task_on_closed};

/* A master that has not heard of a restart, or of another one, names a process that is not there:
 * nobody's steps suffer. */
static void a_registration_does_not_disturb_the_living_task(void **state) {
    struct peer *other;
    peer_connect(a.other);
    assert_true(send_id(a.other, CHANNEL_CONTROL, 1));
    LOOP_UNTIL(loop, at_b.last_id == 1 && a.other->is_greeted);
    assert_null(peer_table_know(a.peers, b.name, "127.0.0.1:1", "unix:@nowhere", 77, &other));
    assert_null(peer_table_know(b.peers, a.name, "127.0.0.1:1", "unix:@nowhere", 78, &other));
    assert_ptr_equal(other, b.other);
    assert_true(a.other->incarnation == b.incarnation && b.other->incarnation == a.incarnation);
    assert_true(send_id(a.other, CHANNEL_CONTROL, 2));
    assert_true(send_id(a.other, CHANNEL_BULK, 3)); /* opened at the address that was right */
    LOOP_UNTIL(loop, at_b.n_messages == 3);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

/* The registration may be older than the process that answers, which decides. */
static void whoever_answers_says_which_process_it_is(void **state) {
    struct peer *other;
    assert_null(peer_table_know(a.peers, b.name, "127.0.0.1:1", b.address, 77, &other));
    peer_connect(a.other);
    assert_true(send_id(a.other, CHANNEL_CONTROL, 1));
    LOOP_UNTIL(loop, at_b.last_id == 1 && a.other->is_greeted);
    assert_true(a.other->incarnation == b.incarnation);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static void a_restarted_task_is_known_by_its_own_hello(void **state) {
    struct str hello = STR_INIT;
    peer_connect(a.other);
    assert_true(send_id(a.other, CHANNEL_CONTROL, 1));
    LOOP_UNTIL(loop, at_b.last_id == 1 && b.other->is_greeted);
    struct wire_conn *conn = wire_connect(loop, b.address, &mute_handlers, NULL);
    peer_hello_write(&hello, a.name, 99, CHANNEL_CONTROL, b.incarnation);
    wire_send(conn, &(struct wire_out){.type = WIRE_HELLO, .meta = {hello.data, hello.len}});
    LOOP_UNTIL(loop, b.n_lost == 1);
    assert_int_equal(b.lost_code, STATUS_UNAVAILABLE);
    assert_non_null(strstr(str_text(&b.lost_why), "has been restarted"));
    assert_int_equal(b.other->incarnation, 99);
    assert_true(send_id(b.other, CHANNEL_CONTROL, 2)); /* to the new one */
    LOOP_UNTIL(loop, a.n_lost == 1);
    assert_int_equal(at_a.n_messages, 0);
    wire_conn_close(conn, NULL); /* its reference goes with on_closed */
    LOOP_UNTIL(loop, b.n_lost == 2);
    str_fini(&hello);
}

/* One channel leads to a process and the next to another: they are never mixed. */
static void channels_of_two_processes_are_not_mixed(void **state) {
    struct test_task c;
    struct peer *other;
    peer_connect(a.other);
    assert_true(send_id(a.other, CHANNEL_CONTROL, 1));
    LOOP_UNTIL(loop, at_b.last_id == 1 && a.other->is_greeted);
    task_init(&c, loop, b.name); /* started again, while the old one is not lost yet */
    assert_null(peer_table_know(c.peers, a.name, "127.0.0.1:1", a.address, a.incarnation, &other));
    assert_null(peer_table_know(a.peers, b.name, "127.0.0.1:1", c.address, b.incarnation, &other));
    assert_true(send_id(a.other, CHANNEL_BULK, 2));
    LOOP_UNTIL(loop, a.n_lost == 1);
    assert_int_equal(at_b.n_messages, 1);
    peer_connect(a.other);
    LOOP_UNTIL(loop, a.other->is_greeted);
    assert_true(a.other->incarnation == c.incarnation);
    task_fini(&c);
}

static void an_unknown_task_is_refused(void **state) {
    struct test_task c;
    task_init(&c, loop, "/job:c/replica:0/task:0");
    assert_null(
        peer_table_know(c.peers, b.name, "127.0.0.1:1", b.address, b.incarnation, &c.other));
    peer_connect(c.other);
    LOOP_UNTIL(loop, b.n_refused == 1 && c.n_lost == 1);
    task_fini(&c);
}

static void a_task_is_its_own_peer_without_a_connection(void **state) {
    struct peer *self;
    assert_null(peer_table_know(a.peers, a.name, "", "", a.incarnation, &self));
    assert_true(self->is_self);
    peer_connect(self);
    assert_false(send_id(self, CHANNEL_CONTROL, 1));
}

static void the_page_says_which_transport_and_why(void **state) {
    struct str page = STR_INIT;
    peer_connect(a.other);
    peer_table_describe(a.peers, &page);
    assert_non_null(strstr(page.data, "\"transport\":\"unix\""));
    assert_non_null(strstr(page.data, "unix: the same host"));
    str_fini(&page);
}

static void transports_are_asked_in_order(void **state) {
    struct transport_endpoint here = {"/job:a/task:0", 1, "h:1", ""},
                              there = {"/job:b/task:0", 2, "h:2", "unix:@b"};
    struct str why = STR_INIT;
    assert_ptr_equal(transport_choose(&here, &here, &why), &transport_local);
    assert_ptr_equal(transport_choose(&here, &there, &why), &transport_unix);
    there.unix_address = "";
    str_clear(&why);
    assert_ptr_equal(transport_choose(&here, &there, &why), &transport_tcp);
    assert_non_null(strstr(why.data, "no Unix address"));
    str_fini(&why);
}

static void mute_on_accept(void *arg, struct wire_conn *conn_take) {
    wire_conn_set_owner(conn_take, NULL, &mute_handlers);
}

static void a_silent_task_is_lost(void **state) {
    struct wire_server *mute;
    struct peer *other;
    char address[64];
    snprintf(address, sizeof(address), "unix:@millrace-test-mute-%d", (int)getpid());
    assert_null(wire_listen(loop, address, mute_on_accept, NULL, &mute));
    assert_null(
        peer_table_know(a.peers, "/job:mute/replica:0/task:0", "127.0.0.1:1", address, 9, &other));
    peer_table_set_heartbeat(a.peers, 20);
    peer_connect(other);
    LOOP_UNTIL(loop, a.n_lost == 1);
    assert_int_equal(a.lost_code, STATUS_UNAVAILABLE);
    assert_non_null(
        strstr(str_text(&a.lost_why), "/job:mute/replica:0/task:0: no sign of life for "));
    assert_false(send_id(other, CHANNEL_CONTROL, 1));
    wire_server_close(mute);
}

static void one_that_answers_is_kept_and_measured(void **state) {
    struct str page = STR_INIT;
    peer_table_set_heartbeat(a.peers, 10);
    peer_connect(a.other);
    do {
        loop_iterate(loop);
        str_clear(&page);
        peer_table_describe(a.peers, &page);
    } while (strstr(page.data, "\"rtt_us\":0,"));
    /* twenty intervals: silence would be noticed */
    int64_t until_ns = clock_now_ns() + 200 * 1000000ll;
    while (clock_now_ns() < until_ns)
        loop_iterate(loop);
    assert_int_equal(a.n_lost + b.n_lost, 0);
    str_fini(&page);
}

/* Sends a value of zeros as an edge of step 1. */
static void push_zeros(struct test_task *from, int64_t size_bytes) {
    struct tensor value = TENSOR_INIT;
    const int64_t dims[] = {size_bytes / (int64_t)sizeof(float)};
    struct str meta = STR_INIT;
    struct status *st =
        tensor_new_zeroed(allocator_host(), DT_FLOAT, (struct shape){1, dims}, &value);
    assert_null(st);
    edge_message_write(&meta, 3, 0, &value, 0);
    const struct tensor *tensors[] = {&value};
    assert_true(peer_queue(from->other, CHANNEL_BULK,
                           &(struct wire_out){.type = WIRE_PUSH,
                                              .id = 1,
                                              .meta = {meta.data, meta.len},
                                              .tensors = tensors,
                                              .n_tensors = 1}));
    peer_flush(from->other, CHANNEL_BULK);
    str_fini(&meta);
    tensor_clear(&value);
}

static void links_are_measured_and_reported(void **state) {
    struct str reply = STR_INIT;
    struct link_report report;
    peer_table_report_links(b.peers, &reply);
    assert_int_equal(reply.len, 0); /* nothing is connected */
    peer_table_set_heartbeat(b.peers, 10);
    peer_connect(a.other);
    push_zeros(&a, 8 << 20);
    LOOP_UNTIL(loop, at_b.n_messages == 1);
    LOOP_UNTIL(loop, heartbeat_shortest_rtt_ns(&b.other->heartbeat) > 0);
    peer_table_report_links(b.peers, &reply);
    struct span rest = {reply.data, reply.len};
    assert_true(link_report_next(&rest, &report));
    assert_true(span_is(report.task, a.name));
    assert_true(report.way == LINK_WAY_UNIX || report.way == LINK_WAY_TCP);
    assert_true(report.latency_ns > 0 && report.latency_ns < 1000000000);
    assert_true(report.bytes_per_second > 1000000);
    assert_false(link_report_next(&rest, &report));
    str_fini(&reply);
}

/* Most of them may have arrived before the receiver looks at its clock. */
static void small_values_do_not_measure_a_link(void **state) {
    peer_connect(a.other);
    push_zeros(&a, 1 << 20);
    LOOP_UNTIL(loop, at_b.n_messages == 1);
    assert_true(b.other->ns_per_byte == 0);
    push_zeros(&a, PEER_LINK_MIN_BYTES);
    LOOP_UNTIL(loop, at_b.n_messages == 2);
    assert_true(b.other->ns_per_byte > 0);
}

static void every_link_is_reported_in_turn(void **state) {
    enum { N_PEERS = 40 };
    struct str reply = STR_INIT;
    struct link_report report;
    bool is_seen[N_PEERS] = {false};
    int n_seen = 0;
    for (int i = 0; i < N_PEERS; i++) {
        char name[64];
        struct peer *peer;
        snprintf(name, sizeof name, "/job:other/replica:0/task:%d", i);
        assert_null(peer_table_know(a.peers, name, b.address, "", 1, &peer));
        peer_connect(peer); /* the channel is there, though nobody answers to this name */
    }
    for (int i = 0; i < N_PEERS; i++) {
        str_clear(&reply);
        peer_table_report_links(a.peers, &reply);
        assert_true(reply.len > 0 && reply.len <= LINK_REPORT_MAX_BYTES);
        struct span rest = {reply.data, reply.len};
        while (link_report_next(&rest, &report)) {
            int task =
                (int)strtol((char *)memrchr(report.task.data, ':', report.task.len) + 1, NULL, 10);
            n_seen += !is_seen[task];
            is_seen[task] = true;
        }
    }
    assert_int_equal(n_seen, N_PEERS);
    str_fini(&reply);
}

static struct peer_traffic traffic_of(struct peer *peer) {
    struct peer_traffic traffic = peer->ended;
    peer_count_ended(peer, peer->channels[CHANNEL_CONTROL]);
    struct peer_traffic all = peer->ended;
    peer->ended = traffic;
    return all;
}

/* The counters of a peer go on where its lost sockets have ended. */
static void what_lost_sockets_moved_is_still_counted(void **state) {
    struct str page = STR_INIT;
    peer_connect(a.other);
    assert_true(send_id(a.other, CHANNEL_CONTROL, 1));
    LOOP_UNTIL(loop, at_b.n_messages == 1 && a.other->is_greeted);
    struct peer_traffic at_a_before = traffic_of(a.other), at_b_before = traffic_of(b.other);
    assert_true(at_a_before.received_bytes[LINK_WAY_UNIX] > 0);
    assert_true(at_b_before.received_bytes[LINK_WAY_UNIX] > 0);
    assert_true(send_id(b.other, CHANNEL_CONTROL, 666)); /* a closes */
    LOOP_UNTIL(loop, a.n_lost > 0 && b.n_lost > 0);
    LOOP_UNTIL(loop, a.peers->n_channels == 0 && b.peers->n_channels == 0);
    for (int way = 0; way < LINK_N_WAYS; way++) {
        assert_true(a.other->ended.sent_bytes[way] >= at_a_before.sent_bytes[way]);
        assert_true(a.other->ended.received_bytes[way] >= at_a_before.received_bytes[way]);
        assert_true(b.other->ended.sent_bytes[way] >= at_b_before.sent_bytes[way]);
        assert_true(b.other->ended.received_bytes[way] >= at_b_before.received_bytes[way]);
    }
    peer_table_write_metrics(a.peers, &page);
    assert_non_null(strstr(str_text(&page), "millrace_peer_received_bytes_total{peer=\"/job:ps/"));
    str_fini(&page);
}

static uint64_t sent_to_others(void) {
    static const char others[] =
        "millrace_peer_sent_bytes_total{peer=\"others\",transport=\"unix\"} ";
    struct str page = STR_INIT;
    peer_table_write_metrics(a.peers, &page);
    const char *line = strstr(str_text(&page), others);
    uint64_t n_bytes = line ? strtoull(line + sizeof(others) - 1, NULL, 10) : 0;
    str_fini(&page);
    return n_bytes;
}

/* A counter that decreases looks like a restart, and one that jumps like traffic. */
static void a_peer_keeps_its_series_when_others_become_known(void **state) {
    struct peer *other;
    char name[64];
    uint64_t n_sent = 0;
    for (int i = 0; i < 3 * PEER_METRICS_MAX; i++) { /* and b is known first */
        snprintf(name, sizeof name, "/job:other/replica:0/task:%d", i);
        assert_null(peer_table_know(a.peers, name, "", "", 1, &other));
        assert_int_equal(other->has_series, i < PEER_METRICS_MAX - 1);
        other->ended.sent_bytes[LINK_WAY_UNIX] = 1000;
        n_sent += other->has_series ? 0 : 1000;
        assert_int_equal(sent_to_others(), n_sent);
    }
}

/* A peer opens another connection when it has lost the first one: whoever still has that must
 * not send on it. */
static void a_second_connection_ends_the_first(void **state) {
    peer_connect(a.other);
    assert_true(send_id(a.other, CHANNEL_CONTROL, 1));
    LOOP_UNTIL(loop, at_b.n_messages == 1);
    struct str hello = STR_INIT;
    /* as a's next one */
    struct wire_conn *conn = wire_connect(loop, b.address, &mute_handlers, NULL);
    peer_hello_write(&hello, a.name, a.incarnation, CHANNEL_CONTROL, b.incarnation);
    wire_send(conn, &(struct wire_out){.type = WIRE_HELLO, .meta = {hello.data, hello.len}});
    LOOP_UNTIL(loop, b.n_lost == 1);
    assert_non_null(strstr(str_text(&b.lost_why), "has opened a new one"));
    assert_true(send_id(b.other, CHANNEL_CONTROL, 2)); /* over the new one */
    LOOP_UNTIL(loop, a.n_lost == 1);
    assert_int_equal(at_a.n_messages, 0);
    wire_conn_close(conn, NULL); /* its reference goes with on_closed */
    LOOP_UNTIL(loop, b.n_lost == 2);
    str_fini(&hello);
}

static void the_drawings_of_rdma_connections_are_their_tables(void **state) {
    static const char path[] = TEST_SOURCE_ROOT "/worker/exchange/peer_rdma_internal.h";
    assert_drawing_is_table(path, "states of the connection to the peer", &peer_out_machine);
    assert_drawing_is_table(path, "states of the connection from the peer", &peer_in_machine);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_drawings_of_rdma_connections_are_their_tables),
        TEST(one_connection_serves_both_directions),
        TEST(both_may_connect_at_once),
        TEST(the_bulk_channel_opens_with_its_first_message),
        TEST(a_lost_peer_is_told_once_and_can_be_connected_again),
        TEST(what_lost_sockets_moved_is_still_counted),
        TEST(a_peer_keeps_its_series_when_others_become_known),
        TEST(a_task_that_is_not_there_is_lost_with_its_name),
        TEST(a_registration_does_not_disturb_the_living_task),
        TEST(whoever_answers_says_which_process_it_is),
        TEST(a_restarted_task_is_known_by_its_own_hello),
        TEST(channels_of_two_processes_are_not_mixed),
        TEST(an_unknown_task_is_refused),
        TEST(a_task_is_its_own_peer_without_a_connection),
        TEST(the_page_says_which_transport_and_why),
        TEST(transports_are_asked_in_order),
        TEST(a_silent_task_is_lost),
        TEST(one_that_answers_is_kept_and_measured),
        TEST(links_are_measured_and_reported),
        TEST(small_values_do_not_measure_a_link),
        TEST(every_link_is_reported_in_turn),
        TEST(a_second_connection_ends_the_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
