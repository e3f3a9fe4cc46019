/* Two tasks that write into each other's memory, over a device made of memory: bring-up, values,
 * everything that can fail, and every moment at which a step or a peer can go away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/worker/rdma_task.h"
#include "worker/exchange/peer_internal.h"

static struct loop *loop;
static struct test_task a, b;
static enum rdma_mode mode_a = RDMA_PREFER, mode_b = RDMA_PREFER;
static int64_t in_use_before;

static void start_with(enum rdma_mode first, enum rdma_mode second) {
    loop = loop_new();
    task_start_rdma(&a, loop, "/job:ps/replica:0/task:0", first);
    task_start_rdma(&b, loop, "/job:worker/replica:0/task:0", second);
    tasks_meet_over_tcp(&a, &b);
}

static int setup(void **state) {
    fake_verbs_reset();
    in_use_before = atomic_load(&allocator_host()->in_use_bytes);
    start_with(mode_a, mode_b);
    return 0;
}

/* Whatever has happened, all that was registered, made or held has been given back. */
static int teardown(void **state) {
    fake_verbs_let_register();
    tasks_fini(&a, &b);
    assert_int_equal(fake_verbs.n_regions, 0);
    assert_int_equal(fake_verbs.n_queue_pairs, 0);
    assert_int_equal(fake_verbs.n_domains, 0);
    assert_int_equal(atomic_load(&allocator_host()->in_use_bytes), in_use_before);
    return 0;
}

/* ---- values ---- */

static const int64_t n_floats = 300001; /* 1.2 MB and no round number */

static void receive(struct test_task *task, const struct test_task *from, uint64_t step,
                    struct wait *wait) {
    task_receive(task, from->name, step, 1, wait);
}
static void send_value(struct test_task *task, const struct test_task *to, uint64_t step,
                       const struct tensor *value) {
    task_send(task, to->name, step, 1, value);
}
static void make(struct tensor *t, float seed) { value_make(t, allocator_host(), n_floats, seed); }
static bool holds(const struct tensor *t, float seed) { return value_holds(t, n_floats, seed); }

#define READY_TO "\"to\":\"ready\",\"from\""
#define READY_FROM "\"from\":\"ready\",\"written\""

static void connect_both(void) {
    peer_connect(a.other);
    TURN_UNTIL(loop, task_says(&a, READY_TO) && task_says(&a, READY_FROM) &&
                         task_says(&b, READY_TO) && task_says(&b, READY_FROM));
}

/* A value of a step of its own crosses and is right. */
static void check_crosses(struct test_task *from, struct test_task *to, uint64_t step) {
    struct tensor value;
    struct wait wait;
    make(&value, (float)step);
    peer_connect(from->other);
    receive(to, from, step, &wait);
    send_value(from, to, step, &value);
    TURN_UNTIL(loop, wait.n_calls == 1);
    assert_null(wait.status);
    assert_true(holds(&wait.value, (float)step));
    tensor_clear(&wait.value);
    TURN_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
    rendezvous_end_step(from->rendezvous, step);
    rendezvous_end_step(to->rendezvous, step);
}

enum moment { REGISTERING, GRANTED, HALF_WRITTEN, WRITTEN };

/* Sends b a value in step 7 and brings it to that moment. */
static void bring_to(enum moment moment, float seed, struct tensor *value, struct wait *wait) {
    connect_both();
    make(value, seed);
    fake_verbs.is_held = true;
    fake_verbs.is_registering_held = moment == REGISTERING;
    receive(&b, &a, 7, wait);
    send_value(&a, &b, 7, value);
    if (moment == REGISTERING)
        TURN_UNTIL(loop, task_says(&b, "\"in_flight_bytes\":1200004"));
    else
        TURN_UNTIL(loop, fake_verbs.n_waiting > 1);
    if (moment == HALF_WRITTEN)
        fake_verbs_run(2);
    if (moment == WRITTEN)
        fake_verbs_run(-1);
}

static void release(struct wait *wait) {
    if (wait->status)
        status_unref(wait->status);
    else
        tensor_clear(&wait->value);
}

static void end_step(struct test_task *task, uint64_t step) {
    rendezvous_end_step(task->rendezvous, step);
}

/* ---- bring-up and values ---- */

static void a_large_value_is_written_into_place(void **state) {
    connect_both();
    check_crosses(&a, &b, 7);
    assert_true(task_says(&a, "\"transport\":\"rdma\"") && task_says(&b, "\"transport\":\"rdma\""));
    assert_true(task_says(&a, "\"written\":1,\"written_bytes\":1200004,\"received\":0"));
    assert_true(task_says(&b, "\"received\":1,\"received_bytes\":1200004,\"tcp_instead\":0"));
    assert_true(task_says(&a, "\"bulk\":false") && task_says(&b, "\"bulk\":false"));
}

static void the_other_direction_is_a_line_of_its_own(void **state) {
    connect_both();
    check_crosses(&b, &a, 8);
    assert_true(task_says(&a, "\"written\":0") && task_says(&a, "\"received\":1,") &&
                task_says(&b, "\"written\":1,"));
}

static void both_ends_may_connect_at_once(void **state) {
    peer_connect(a.other);
    peer_connect(b.other);
    TURN_UNTIL(loop, task_says(&a, READY_TO) && task_says(&a, READY_FROM) &&
                         task_says(&b, READY_TO) && task_says(&b, READY_FROM));
    check_crosses(&a, &b, 9);
    check_crosses(&b, &a, 10);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static void the_receiver_is_the_only_holder(void **state) {
    struct tensor value;
    struct wait wait;
    connect_both();
    make(&value, 3);
    receive(&b, &a, 7, &wait);
    send_value(&a, &b, 7, &value);
    TURN_UNTIL(loop, wait.n_calls == 1);
    assert_true(tensor_is_sole(&wait.value));
    tensor_clear(&wait.value);
    tensor_clear(&value);
}

static void what_is_granted_while_the_line_is_being_proved_waits_for_it(void **state) {
    struct tensor value;
    struct wait wait;
    fake_verbs.is_held = true;
    make(&value, 4);
    peer_connect(a.other);
    receive(&b, &a, 7, &wait);
    send_value(&a, &b, 7, &value);
    TURN_UNTIL(loop, fake_verbs.n_waiting == 2); /* both probes */
    assert_int_equal(wait.n_calls, 0);
    fake_verbs.is_held = false;
    fake_verbs_run(-1);
    TURN_UNTIL(loop, wait.n_calls == 1);
    assert_true(holds(&wait.value, 4) && task_says(&b, "\"received\":1,"));
    tensor_clear(&wait.value);
    tensor_clear(&value);
}

static void strings_are_written_as_their_protos(void **state) {
    struct tensor value = TENSOR_INIT;
    struct wait wait;
    int64_t n = 3;
    char *text = xmalloc(100000);
    memset(text, 'x', 100000);
    connect_both();
    assert_null(tensor_new(allocator_host(), DT_STRING, (struct shape){1, &n}, &value));
    for (int i = 0; i < 3; i++)
        tensor_set_string(&value, i, text, 100000);
    receive(&b, &a, 7, &wait);
    send_value(&a, &b, 7, &value);
    TURN_UNTIL(loop, wait.n_calls == 1);
    assert_true(task_says(&b, "\"received\":1,") && wait.value.dtype == DT_STRING &&
                wait.value.n_elements == 3);
    assert_int_equal(tensor_string(&wait.value, 2).len, 100000);
    tensor_clear(&wait.value);
    tensor_clear(&value);
    free(text);
}

static void values_are_split_at_the_devices_largest_message(void **state) {
    connect_both();
    fake_verbs.largest_write_bytes = 0;
    uint64_t before = fake_verbs.n_writes, numbers = fake_verbs.n_numbers;
    check_crosses(&a, &b, 7);
    assert_int_equal(fake_verbs.largest_write_bytes, 65536);
    assert_int_equal(fake_verbs.n_writes - before, (1200004 + 65535) / 65536);
    assert_int_equal(fake_verbs.n_numbers - numbers, 1); /* the last piece alone */
}

static int setup_small_messages(void **state) {
    fake_verbs_reset();
    fake_verbs.ports[0].max_message_bytes = 65536;
    in_use_before = atomic_load(&allocator_host()->in_use_bytes);
    start_with(RDMA_PREFER, RDMA_PREFER);
    return 0;
}

/* More at a time than the queue pair holds pieces, and than places may be granted. */
static void many_values_at_once_all_arrive(void **state) {
    enum { N = 300 };
    static struct wait waits[N];
    struct tensor value;
    connect_both();
    make(&value, 5);
    for (uint32_t i = 0; i < N; i++)
        task_receive(&b, a.name, 7, i, &waits[i]);
    for (uint32_t i = 0; i < N; i++)
        task_send(&a, b.name, 7, i, &value);
    for (int i = 0; i < N; i++) {
        TURN_UNTIL(loop, waits[i].n_calls == 1);
        assert_true(holds(&waits[i].value, 5));
        tensor_clear(&waits[i].value);
    }
    assert_true(fake_verbs.n_writes > 256);
    TURN_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
}

/* ---- registered memory ---- */

static void a_value_sent_again_is_registered_once(void **state) {
    struct tensor value;
    struct wait wait;
    connect_both();
    make(&value, 6);
    for (uint64_t step = 7; step < 12; step++) {
        receive(&b, &a, step, &wait);
        send_value(&a, &b, step, &value);
        TURN_UNTIL(loop, wait.n_calls == 1);
        tensor_clear(&wait.value);
    }
    TURN_UNTIL(loop, tensor_is_sole(&value));
    struct str page = STR_INIT;
    peer_table_describe_rdma(a.peers, &page);
    if (buffer_is_recycled(value.buffer)) /* not in a hostile build */
        assert_non_null(strstr(str_text(&page), "\"kept\":1,\"kept_bytes\":1200004"));
    str_fini(&page);
    tensor_clear(&value);
}

static void memory_that_goes_back_to_the_system_is_withdrawn_first(void **state) {
    connect_both();
    check_crosses(&b, &a, 7); /* the allocator tells one device of a process: here the second one */
    TURN_UNTIL(loop, fake_verbs.n_regions <= 1);
    allocator_host_trim();
    assert_int_equal(fake_verbs.n_regions, 0);
    check_crosses(&b, &a, 8);
}

/* ---- one of the two cannot ---- */

static void without_memory_to_register_the_value_comes_over_tcp(void **state) {
    connect_both();
    fake_verbs.n_registrations_to_fail = 1;
    check_crosses(&a, &b, 7);
    assert_true(task_says(&b, "\"received\":0,\"received_bytes\":0,\"tcp_instead\":1") &&
                task_says(&a, "\"bulk\":true"));
    check_crosses(&a, &b, 8);
    assert_true(task_says(&b, "\"received\":1,"));
}

static void a_sender_that_cannot_register_declines_and_pushes(void **state) {
    connect_both();
    allocator_host_trim();
    fake_verbs.n_sources_to_fail = 1;
    check_crosses(&a, &b, 7);
    assert_true(task_says(&a, "\"written\":0") && task_says(&a, "\"tcp_instead\":1") &&
                task_says(&b, "\"tcp_instead\":1"));
    check_crosses(&a, &b, 8);
    assert_true(task_says(&a, "\"written\":1,"));
}

static void a_peer_without_rdma_gets_it_over_tcp(void **state) {
    check_crosses(&a, &b, 7);
    TURN_UNTIL(loop, task_says(&a, "\"to\":\"it says: switched off\""));
    assert_true(task_says(&a, "\"transport\":\"tcp\"") && task_says(&a, "\"mode\":\"prefer\"") &&
                task_says(&b, "\"mode\":\"off\""));
    check_crosses(&b, &a, 8);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static void what_is_required_and_refused_is_an_error_that_says_so(void **state) {
    struct wait wait;
    receive(&b, &a, 7, &wait);
    peer_connect(a.other);
    TURN_UNTIL(loop, a.n_lost == 1 && b.n_lost >= 1);
    assert_int_equal(a.lost_code, STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(str_text(&a.lost_why),
                           "RDMA is required here (--rdma=require), and none goes to task "
                           "/job:worker/replica:0/task:0: it says: switched off"));
    rendezvous_end_step(b.rendezvous, 7);
    assert_int_equal(wait.n_calls, 1);
    status_unref(wait.status);
}

static int setup_a_alone(void **state) {
    mode_b = RDMA_OFF;
    setup(state);
    mode_b = RDMA_PREFER;
    return 0;
}
static int setup_a_requires(void **state) {
    mode_a = RDMA_REQUIRE;
    setup_a_alone(state);
    mode_a = RDMA_PREFER;
    return 0;
}
static int setup_both_require(void **state) {
    mode_a = mode_b = RDMA_REQUIRE;
    setup(state);
    mode_a = mode_b = RDMA_PREFER;
    return 0;
}

static int setup_both_require_small(void **state) {
    fake_verbs_reset();
    fake_verbs.ports[0].max_message_bytes = 65536;
    in_use_before = atomic_load(&allocator_host()->in_use_bytes);
    start_with(RDMA_REQUIRE, RDMA_REQUIRE);
    return 0;
}

static void required_on_both_ends_it_works(void **state) {
    connect_both();
    check_crosses(&a, &b, 7);
    check_crosses(&b, &a, 8);
    assert_true(task_says(&b, "\"received\":1,") && task_says(&a, "\"received\":1,"));
}

static void a_queue_pair_that_cannot_be_made_leaves_tcp(void **state) {
    static const char *const calls[] = {"create_cq", "create_qp", "modify_qp", "alloc_pd"};
    for (uint64_t i = 0; i < ARRAY_LEN(calls); i++) {
        fake_verbs.failing_call = calls[i];
        check_crosses(&a, &b, 10 + 2 * i);
        check_crosses(&b, &a, 11 + 2 * i);
        assert_true(task_says(&a, "\"received\":0,\"received_bytes\":0") &&
                    task_says(&b, "\"received\":0,\"received_bytes\":0"));
        fake_verbs.failing_call = NULL;
        teardown(state);
        setup(state);
    }
}

/* ---- a network that does not carry ---- */

static void a_network_that_drops_everything_is_found_by_the_probe(void **state) {
    fake_verbs.is_silent = true;
    check_crosses(&a, &b, 7);
    TURN_UNTIL(loop,
               task_says(&a, "\"to\":\"RDMA write: transport retry counter exceeded (status 12"));
    TURN_UNTIL(loop,
               task_says(&b, "\"from\":\"it says: RDMA write: transport retry counter exceeded"));
    assert_true(task_says(&a, "\"transport\":\"tcp\""));
    check_crosses(&b, &a, 8);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static void a_network_that_damages_is_found_by_the_probe(void **state) {
    fake_verbs.is_damaging = true;
    check_crosses(&a, &b, 7);
    TURN_UNTIL(loop,
               task_says(&b, "\"from\":\"the probe arrived with other bytes than were sent\""));
    TURN_UNTIL(loop, task_says(&a, "\"to\":\"it says: the probe arrived"));
    check_crosses(&a, &b, 8);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static void a_line_that_breaks_under_a_value_costs_nothing_but_time(void **state) {
    struct tensor value;
    struct wait wait;
    bring_to(GRANTED, 8, &value, &wait);
    fake_verbs_run(3); /* a part of it is there */
    fake_verbs.is_silent = true;
    fake_verbs.is_held = false;
    fake_verbs_run(-1);
    TURN_UNTIL(loop, wait.n_calls == 1);
    assert_null(wait.status);
    assert_true(holds(&wait.value, 8));
    assert_true(task_says(&a, "transport retry counter exceeded") &&
                task_says(&b, "\"tcp_instead\":1"));
    assert_int_equal(a.n_lost + b.n_lost, 0);
    tensor_clear(&wait.value);
    TURN_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
    fake_verbs.is_silent = false;
    check_crosses(&a, &b, 8);
    check_crosses(&b, &a, 9); /* the other line has not noticed */
    assert_true(task_says(&b, "\"written\":1,"));
}

static void a_line_that_has_failed_is_tried_again(void **state) {
    peer_table_set_heartbeat(a.peers, 50); /* the table's clock */
    peer_table_set_rdma_retry(a.peers, 100);
    fake_verbs.is_silent = true;
    check_crosses(&a, &b, 7);
    TURN_UNTIL(loop, task_says(&a, "transport retry counter exceeded") &&
                         task_says(&b, "\"to\":\"RDMA write"));
    fake_verbs.is_silent = false;
    TURN_UNTIL(loop, task_says(&a, READY_TO) && task_says(&b, READY_FROM));
    assert_false(task_says(&b, READY_TO)); /* whose minute is not over */
    check_crosses(&a, &b, 8);
    assert_true(task_says(&a, "\"written\":1,"));
}

static void a_receiver_that_breaks_is_no_worse(void **state) {
    struct tensor value;
    struct wait wait;
    bring_to(GRANTED, 9, &value, &wait);
    fake_verbs_run(2);
    fake_verbs_break_receivers();
    fake_verbs.is_held = false;
    TURN_UNTIL(loop, wait.n_calls == 1);
    assert_null(wait.status);
    assert_true(holds(&wait.value, 9));
    assert_int_equal(a.n_lost + b.n_lost, 0);
    tensor_clear(&wait.value);
    TURN_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
}

/* What the sender knows to have arrived is never asked for again, though the receiver had not
 * looked yet. */
static void what_came_before_the_break_counts(void **state) {
    struct tensor value;
    struct wait wait;
    bring_to(GRANTED, 9, &value, &wait);
    fake_verbs_run(-1); /* all of it, and neither loop has turned */
    fake_verbs_break_receivers();
    fake_verbs.is_held = false;
    TURN_UNTIL(loop, wait.n_calls == 1);
    assert_true(holds(&wait.value, 9) && task_says(&b, "\"received\":1,"));
    tensor_clear(&wait.value);
    TURN_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
}

static void a_required_line_that_breaks_loses_the_peer(void **state) {
    struct tensor value;
    struct wait wait;
    bring_to(GRANTED, 10, &value, &wait);
    fake_verbs.is_silent = true;
    fake_verbs.is_held = false;
    fake_verbs_run(-1);
    TURN_UNTIL(loop, a.n_lost == 1 && b.n_lost == 1);
    assert_int_equal(a.lost_code, STATUS_UNAVAILABLE);
    assert_non_null(strstr(str_text(&a.lost_why), "/job:worker/replica:0/task:0"));
    assert_non_null(strstr(str_text(&a.lost_why), "transport retry counter exceeded"));
    rendezvous_end_step(b.rendezvous, 7);
    status_unref(wait.status);
    TURN_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
    fake_verbs.is_silent = false; /* and the next step tries again */
    connect_both();
    check_crosses(&a, &b, 8);
}

/* ---- a step goes away ---- */

/* The receiver's step ends at that moment, or the sender's. */
static void end_at(enum moment moment, bool is_sender) {
    struct tensor value;
    struct wait wait;
    bring_to(moment, 11, &value, &wait);
    end_step(is_sender ? &a : &b, 7);
    if (is_sender && moment == REGISTERING)
        assert_true(tensor_is_sole(&value)); /* it was only offered */
    fake_verbs_let_register();
    fake_verbs.is_held = false;
    fake_verbs_run(-1);
    TURN_UNTIL(loop, tensor_is_sole(&value));
    check_crosses(&a, &b, 8); /* the line is as it was */
    assert_int_equal(a.n_lost + b.n_lost, 0);
    assert_true(task_says(&a, READY_TO));
    end_step(is_sender ? &b : &a, 7);
    assert_int_equal(wait.n_calls, 1);
    release(&wait);
    tensor_clear(&value);
}

static void a_receivers_step_that_ends_while_its_buffer_is_being_registered(void **state) {
    end_at(REGISTERING, false);
}
static void a_receivers_step_that_ends_before_the_write(void **state) { end_at(GRANTED, false); }
static void a_receivers_step_that_ends_in_the_midst_of_the_write(void **state) {
    end_at(HALF_WRITTEN, false);
}
static void a_receivers_step_that_ends_before_it_sees_the_write(void **state) {
    end_at(WRITTEN, false);
}
static void a_senders_step_that_ends_before_the_grant_comes(void **state) {
    end_at(REGISTERING, true);
}
static void a_senders_step_that_ends_before_the_write(void **state) { end_at(GRANTED, true); }
static void a_senders_step_that_ends_in_the_midst_of_the_write(void **state) {
    end_at(HALF_WRITTEN, true);
}
static void a_senders_step_that_ends_after_the_write(void **state) { end_at(WRITTEN, true); }

/* The memory that a write is under way to belongs to nobody else, though its step is over. */
static void a_buffer_waits_for_the_write_that_its_step_does_not_wait_for(void **state) {
    struct tensor value, other;
    struct wait wait;
    bring_to(GRANTED, 12, &value, &wait);
    fake_verbs_run(1);
    end_step(&b, 7);
    status_unref(wait.status);
    int n_regions = fake_verbs.n_regions;
    make(&other, 13); /* would get the same memory from the allocator */
    fake_verbs.is_held = false;
    /* the rest of the write lands: the fake checks that its region is still there */
    fake_verbs_run(-1);
    TURN_UNTIL(loop, fake_verbs.n_regions < n_regions);
    assert_true(holds(&other, 13));
    assert_true(task_says(&a, READY_TO));
    tensor_clear(&other);
    TURN_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
}

/* ---- a peer goes away ---- */

static void lose_at(enum moment moment) {
    struct tensor value;
    struct wait wait;
    bring_to(moment, 14, &value, &wait);
    /* which ends the control channel */
    struct wire_out nonsense = {.type = WIRE_GRANT, .meta = {"\xff", 1}};
    assert_true(peer_queue(a.other, CHANNEL_CONTROL, &nonsense));
    peer_flush(a.other, CHANNEL_CONTROL);
    TURN_UNTIL(loop, a.n_lost == 1 && b.n_lost == 1);
    end_step(&a, 7);
    end_step(&b, 7);
    assert_int_equal(wait.n_calls, 1);
    release(&wait);
    fake_verbs_let_register();
    fake_verbs.is_held = false;
    TURN_UNTIL(loop, tensor_is_sole(&value));
    assert_int_equal(fake_verbs.n_queue_pairs, 0);
    connect_both();
    check_crosses(&a, &b, 8);
    tensor_clear(&value);
}

static void a_peer_lost_while_a_buffer_is_being_registered(void **state) { lose_at(REGISTERING); }
static void a_peer_lost_before_the_write(void **state) { lose_at(GRANTED); }
static void a_peer_lost_in_the_midst_of_the_write(void **state) { lose_at(HALF_WRITTEN); }
static void a_peer_lost_after_the_write(void **state) { lose_at(WRITTEN); }

static void a_task_that_stops_in_the_midst_gives_everything_back(void **state) {
    struct tensor value;
    struct wait wait;
    connect_both();
    make(&value, 15);
    fake_verbs.is_held = fake_verbs.is_registering_held = true;
    receive(&b, &a, 7, &wait);
    send_value(&a, &b, 7, &value);
    TURN_UNTIL(loop, task_says(&b, "\"in_flight_bytes\":1200004"));
    tensor_clear(&value);
    teardown(state);
    status_unref(wait.status);
    setup(state);
}

/* ---- a peer that lies ---- */

static void say(struct test_task *task, enum wire_type type, uint64_t id, const struct str *meta,
                enum channel_kind kind, const struct tensor *payload) {
    const struct tensor *tensors[1] = {payload};
    assert_true(peer_queue(task->other, kind,
                           &(struct wire_out){.type = type,
                                              .id = id,
                                              .meta = {str_text(meta), meta->len},
                                              .tensors = tensors,
                                              .n_tensors = payload ? 1 : 0}));
    peer_flush(task->other, kind);
}

/* It could still write what a kernel reads. */
static void a_push_of_what_has_a_place_is_refused(void **state) {
    struct tensor value;
    struct wait wait;
    struct str meta = STR_INIT;
    bring_to(GRANTED, 16, &value, &wait);
    edge_message_write(&meta, 1, 0, &value, 0);
    say(&a, WIRE_PUSH, 7, &meta, CHANNEL_BULK, &value);
    TURN_UNTIL(loop, b.n_lost == 1);
    end_step(&b, 7);
    end_step(&a, 7);
    status_unref(wait.status);
    fake_verbs.is_held = false;
    TURN_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
    str_fini(&meta);
}

/* The same while its buffer is not registered yet: the loop has not even heard of the grant. */
static void a_push_of_what_will_have_a_place_is_refused(void **state) {
    struct tensor value;
    struct wait wait;
    struct str meta = STR_INIT;
    struct buffer *announcement = buffer_alloc(allocator_host(), 1),
                  *buffer = buffer_alloc(allocator_host(), 1);
    connect_both();
    make(&value, 16);
    receive(&b, &a, 7, &wait);
    edge_message_write(&meta, 1, 0, &value, 0);
    assert_true(peer_grant(b.other, &(struct peer_grant){.step = 7,
                                                         .edge = 1,
                                                         .announcement = announcement,
                                                         .buffer = buffer,
                                                         .size_bytes = 1}));
    struct wire_message push = {.type = WIRE_PUSH, .id = 7, .meta = {meta.data, meta.len}};
    assert_true(peer_rdma_has_pending_writes(&b.other->rdma) &&
                peer_rdma_is_pending_write(&b.other->rdma, push.id, 1, 0));
    assert_false(peer_rdma_is_pending_write(&b.other->rdma, 7, 2, 0) ||
                 peer_rdma_is_pending_write(&b.other->rdma, 8, 1, 0));
    fake_verbs.is_registering_held = true;
    say(&a, WIRE_PUSH, 7, &meta, CHANNEL_BULK, &value);
    TURN_UNTIL(loop, b.n_lost == 1);
    fake_verbs_let_register();
    end_step(&b, 7);
    status_unref(wait.status);
    tensor_clear(&value);
    buffer_unref(announcement);
    buffer_unref(buffer);
    str_fini(&meta);
}

/* The sender's first word about its probe may be the grant that the receiver sends after it. */
static void a_grant_that_overtakes_the_probes_acknowledgement_is_taken(void **state) {
    struct tensor value;
    struct wait wait;
    struct str meta = STR_INIT;
    fake_verbs.is_held = true;
    make(&value, 17);
    peer_connect(a.other);
    receive(&b, &a, 7, &wait);
    send_value(&a, &b, 7, &value);
    TURN_UNTIL(loop, fake_verbs.n_waiting == 2 && task_says(&b, "\"in_flight_bytes\":1200004"));
    edge_message_write(&meta, 1, 0, NULL, 0);
    edge_message_add_remote_slot(
        &meta, &(struct rdma_remote_slot){.number = 4711, .key = 1, .address = 4096});
    say(&b, WIRE_GRANT, 7, &meta, CHANNEL_CONTROL, NULL);
    TURN_UNTIL(loop, task_says(&a, "\"writing\":1") || a.n_lost > 0);
    assert_int_equal(a.n_lost, 0);
    end_step(&a, 7);
    end_step(&b, 7);
    status_unref(wait.status);
    fake_verbs.is_held = false;
    fake_verbs_run(-1);
    TURN_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
    str_fini(&meta);
}

static void offer_again(struct test_task *task, uint64_t connection) {
    static uint8_t gid[16] = {[10] = 0xff, 0xff, 10, 0, 0, 2};
    Millrace__RdmaOffer message = MILLRACE__RDMA_OFFER__INIT;
    Millrace__RdmaAddress address = MILLRACE__RDMA_ADDRESS__INIT;
    uint8_t bytes[256];
    address.qpn = 0x7777;
    address.gid = (ProtobufCBinaryData){sizeof(gid), gid};
    address.mtu = IBV_MTU_1024;
    address.is_ethernet = true;
    address.max_message_bytes = 1 << 20;
    message.connection = connection;
    message.address = &address;
    struct wire_out out = {.type = WIRE_RDMA_OFFER,
                           .meta = {(char *)bytes, millrace__rdma_offer__pack(&message, bytes)}};
    assert_true(peer_queue(task->other, CHANNEL_CONTROL, &out));
    peer_flush(task->other, CHANNEL_CONTROL);
}

/* As one does that has lost the connection and come back before this end has noticed. */
static void a_second_offer_takes_the_place_of_the_first(void **state) {
    connect_both();
    offer_again(&a, 99);
    TURN_UNTIL(loop, task_says(&b, "\"from\":\"being proved\"") || b.n_lost > 0);
    assert_int_equal(a.n_lost + b.n_lost, 0);
    check_crosses(&b, &a, 8); /* the other line has not noticed */
}

/* The number and the value's come in one look at the queue: what the sender knows to be there is
 * not dropped with the line. */
static void a_value_behind_a_wrong_number_counts(void **state) {
    struct tensor value;
    struct wait wait;
    bring_to(GRANTED, 9, &value, &wait);
    fake_verbs_forge_number(4711);
    fake_verbs_run(-1); /* and neither loop has turned */
    fake_verbs.is_held = false;
    TURN_UNTIL(loop, wait.n_calls == 1);
    assert_true(holds(&wait.value, 9) && task_says(&b, "\"received\":1,"));
    tensor_clear(&wait.value);
    TURN_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
}

static void a_number_that_was_not_granted_ends_the_line(void **state) {
    connect_both();
    fake_verbs_forge_number(4711);
    TURN_UNTIL(loop,
               task_says(&a, "\"from\":\"a write with number 4711, which is not granted") &&
                   task_says(&b, "\"from\":\"a write with number 4711, which is not granted"));
    check_crosses(&a, &b, 7);
    check_crosses(&b, &a, 8);
}

static void nonsense_about_lines_ends_the_connection(void **state) {
    static const struct {
        enum wire_type type;
        const char *bytes;
        size_t len;
    } bad[] = {
        {WIRE_RDMA_OFFER, "", 0},
        {WIRE_RDMA_OFFER, "\xff", 1},
        {WIRE_RDMA_REPLY, "\xff", 1},
        {WIRE_RDMA_DECLINE, "\xff", 1},
        /* an address with a GID of one byte */
        {WIRE_RDMA_OFFER, "\x09\x01\x00\x00\x00\x00\x00\x00\x00\x12\x03\x1a\x01x", 14},
        /* harmless: nothing is offered there */
        {WIRE_GRANT, "\x08\x01\x2a\x07\x08\x05\x1d\x01\x00\x00\x00", 11},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        int before = a.n_lost;
        struct str meta = STR_INIT;
        connect_both();
        str_add_bytes(&meta, bad[i].bytes, bad[i].len);
        say(&a, bad[i].type, 7, &meta, CHANNEL_CONTROL, NULL);
        str_fini(&meta);
        if (bad[i].type == WIRE_GRANT) /* it is declined, and the receiver knows of no such place */
            TURN_UNTIL(loop, a.n_lost == before + 1);
        else
            TURN_UNTIL(loop, a.n_lost == before + 1 && b.n_lost == before + 1);
        TURN_UNTIL(loop, b.n_lost == a.n_lost);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define TEST_WITH(name, its_setup) cmocka_unit_test_setup_teardown(name, its_setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_large_value_is_written_into_place),
        TEST(the_other_direction_is_a_line_of_its_own),
        TEST(both_ends_may_connect_at_once),
        TEST(the_receiver_is_the_only_holder),
        TEST(what_is_granted_while_the_line_is_being_proved_waits_for_it),
        TEST(strings_are_written_as_their_protos),
        TEST_WITH(values_are_split_at_the_devices_largest_message, setup_small_messages),
        TEST_WITH(many_values_at_once_all_arrive, setup_small_messages),
        TEST(a_value_sent_again_is_registered_once),
        TEST(memory_that_goes_back_to_the_system_is_withdrawn_first),
        TEST(without_memory_to_register_the_value_comes_over_tcp),
        TEST(a_sender_that_cannot_register_declines_and_pushes),
        TEST_WITH(a_peer_without_rdma_gets_it_over_tcp, setup_a_alone),
        TEST_WITH(what_is_required_and_refused_is_an_error_that_says_so, setup_a_requires),
        TEST_WITH(required_on_both_ends_it_works, setup_both_require),
        TEST(a_queue_pair_that_cannot_be_made_leaves_tcp),
        TEST(a_network_that_drops_everything_is_found_by_the_probe),
        TEST(a_network_that_damages_is_found_by_the_probe),
        TEST_WITH(a_line_that_breaks_under_a_value_costs_nothing_but_time, setup_small_messages),
        TEST(a_line_that_has_failed_is_tried_again),
        TEST_WITH(a_receiver_that_breaks_is_no_worse, setup_small_messages),
        TEST_WITH(what_came_before_the_break_counts, setup_small_messages),
        TEST_WITH(a_required_line_that_breaks_loses_the_peer, setup_both_require_small),
        TEST_WITH(a_receivers_step_that_ends_while_its_buffer_is_being_registered,
                  setup_small_messages),
        TEST_WITH(a_receivers_step_that_ends_before_the_write, setup_small_messages),
        TEST_WITH(a_receivers_step_that_ends_in_the_midst_of_the_write, setup_small_messages),
        TEST_WITH(a_receivers_step_that_ends_before_it_sees_the_write, setup_small_messages),
        TEST_WITH(a_senders_step_that_ends_before_the_grant_comes, setup_small_messages),
        TEST_WITH(a_senders_step_that_ends_before_the_write, setup_small_messages),
        TEST_WITH(a_senders_step_that_ends_in_the_midst_of_the_write, setup_small_messages),
        TEST_WITH(a_senders_step_that_ends_after_the_write, setup_small_messages),
        TEST_WITH(a_buffer_waits_for_the_write_that_its_step_does_not_wait_for,
                  setup_small_messages),
        TEST_WITH(a_peer_lost_while_a_buffer_is_being_registered, setup_small_messages),
        TEST_WITH(a_peer_lost_before_the_write, setup_small_messages),
        TEST_WITH(a_peer_lost_in_the_midst_of_the_write, setup_small_messages),
        TEST_WITH(a_peer_lost_after_the_write, setup_small_messages),
        TEST(a_task_that_stops_in_the_midst_gives_everything_back),
        TEST_WITH(a_push_of_what_has_a_place_is_refused, setup_small_messages),
        TEST(a_push_of_what_will_have_a_place_is_refused),
        TEST(a_grant_that_overtakes_the_probes_acknowledgement_is_taken),
        TEST(a_second_offer_takes_the_place_of_the_first),
        TEST_WITH(a_value_behind_a_wrong_number_counts, setup_small_messages),
        TEST(a_number_that_was_not_granted_ends_the_line),
        TEST(nonsense_about_lines_ends_the_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
