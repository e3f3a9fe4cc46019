/* RDMA between two tasks when something fails: the network, the step or the peer, at every moment
 * of a transfer, and peers that break the rules. */
#include "tests/unit/worker/rdma_pair.h"

static int setup_both_require_small(void **state) {
    fake_verbs_reset();
    fake_verbs.ports[0].max_message_bytes = 65536;
    in_use_before = atomic_load(&allocator_host()->in_use_bytes);
    start_with(RDMA_REQUIRE, RDMA_REQUIRE);
    return 0;
}

/* ---- a network that does not carry ---- */

static void a_network_that_drops_everything_is_found_by_the_probe(void **state) {
    fake_verbs.is_silent = true;
    check_crosses(&a, &b, 7);
    LOOP_UNTIL(loop,
               task_says(&a, "\"to\":\"RDMA write: transport retry counter exceeded (status 12"));
    LOOP_UNTIL(loop,
               task_says(&b, "\"from\":\"it says: RDMA write: transport retry counter exceeded"));
    assert_true(task_says(&a, "\"transport\":\"tcp\""));
    check_crosses(&b, &a, 8);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static void a_network_that_damages_is_found_by_the_probe(void **state) {
    fake_verbs.is_damaging = true;
    check_crosses(&a, &b, 7);
    LOOP_UNTIL(loop, task_says(&b, "\"from\":\"the bytes of the probe were changed on the way\""));
    LOOP_UNTIL(loop, task_says(&a, "\"to\":\"it says: the bytes of the probe"));
    check_crosses(&a, &b, 8);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static void a_value_survives_a_broken_connection(void **state) {
    struct tensor value;
    struct wait wait;
    bring_to(GRANTED, 8, &value, &wait);
    fake_verbs_run(3); /* a part of it is there */
    fake_verbs.is_silent = true;
    fake_verbs.is_held = false;
    fake_verbs_run(-1);
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_null(wait.status);
    assert_true(holds(&wait.value, 8));
    assert_true(task_says(&a, "transport retry counter exceeded") &&
                task_says(&b, "\"tcp_instead\":1"));
    assert_int_equal(a.n_lost + b.n_lost, 0);
    tensor_clear(&wait.value);
    LOOP_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
    fake_verbs.is_silent = false;
    check_crosses(&a, &b, 8);
    check_crosses(&b, &a, 9); /* the other line has not noticed */
    assert_true(task_says(&b, "\"written\":1,"));
}

static void a_failed_connection_is_tried_again(void **state) {
    peer_table_set_heartbeat(a.peers, 50); /* the table's clock */
    a.peers->rdma.retry_ms = 100;
    fake_verbs.is_silent = true;
    check_crosses(&a, &b, 7);
    LOOP_UNTIL(loop, task_says(&a, "transport retry counter exceeded") &&
                         task_says(&b, "\"to\":\"RDMA write"));
    fake_verbs.is_silent = false;
    LOOP_UNTIL(loop, task_says(&a, READY_TO) && task_says(&b, READY_FROM));
    assert_false(task_says(&b, READY_TO)); /* whose minute is not over */
    check_crosses(&a, &b, 8);
    assert_true(task_says(&a, "\"written\":1,"));
}

static void a_value_survives_a_broken_receiver(void **state) {
    struct tensor value;
    struct wait wait;
    bring_to(GRANTED, 9, &value, &wait);
    fake_verbs_run(2);
    fake_verbs_break_receivers();
    fake_verbs.is_held = false;
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_null(wait.status);
    assert_true(holds(&wait.value, 9));
    assert_int_equal(a.n_lost + b.n_lost, 0);
    tensor_clear(&wait.value);
    LOOP_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
}

/* What the sender knows to have arrived is never asked for again, though the receiver had not
 * looked yet. */
static void values_that_arrived_before_the_break_count(void **state) {
    struct tensor value;
    struct wait wait;
    bring_to(GRANTED, 9, &value, &wait);
    fake_verbs_run(-1); /* all of it, and neither loop has turned */
    fake_verbs_break_receivers();
    fake_verbs.is_held = false;
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_true(holds(&wait.value, 9) && task_says(&b, "\"received\":1,"));
    tensor_clear(&wait.value);
    LOOP_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
}

static void a_required_connection_that_breaks_loses_the_peer(void **state) {
    struct tensor value;
    struct wait wait;
    bring_to(GRANTED, 10, &value, &wait);
    fake_verbs.is_silent = true;
    fake_verbs.is_held = false;
    fake_verbs_run(-1);
    LOOP_UNTIL(loop, a.n_lost == 1 && b.n_lost == 1);
    assert_int_equal(a.lost_code, STATUS_UNAVAILABLE);
    assert_non_null(strstr(str_text(&a.lost_why), "/job:worker/replica:0/task:0"));
    assert_non_null(strstr(str_text(&a.lost_why), "transport retry counter exceeded"));
    rendezvous_end_step(b.rendezvous, 7);
    status_unref(wait.status);
    LOOP_UNTIL(loop, tensor_is_sole(&value));
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
    LOOP_UNTIL(loop, tensor_is_sole(&value));
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
static void a_buffer_outlives_its_step_until_the_write_ends(void **state) {
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
    LOOP_UNTIL(loop, fake_verbs.n_regions < n_regions);
    assert_true(holds(&other, 13));
    assert_true(task_says(&a, READY_TO));
    tensor_clear(&other);
    LOOP_UNTIL(loop, tensor_is_sole(&value));
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
    LOOP_UNTIL(loop, a.n_lost == 1 && b.n_lost == 1);
    end_step(&a, 7);
    end_step(&b, 7);
    assert_int_equal(wait.n_calls, 1);
    release(&wait);
    fake_verbs_let_register();
    fake_verbs.is_held = false;
    LOOP_UNTIL(loop, tensor_is_sole(&value));
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
    LOOP_UNTIL(loop, task_says(&b, "\"in_flight_bytes\":1200004"));
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
static void a_push_of_a_value_with_a_remote_slot_is_refused(void **state) {
    struct tensor value;
    struct wait wait;
    struct str meta = STR_INIT;
    bring_to(GRANTED, 16, &value, &wait);
    edge_message_write(&meta, 1, 0, &value, 0);
    say(&a, WIRE_PUSH, 7, &meta, CHANNEL_BULK, &value);
    LOOP_UNTIL(loop, b.n_lost == 1);
    end_step(&b, 7);
    end_step(&a, 7);
    status_unref(wait.status);
    fake_verbs.is_held = false;
    LOOP_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
    str_fini(&meta);
}

/* The same while its buffer is not registered yet: the loop has not even heard of the grant. */
static void a_push_of_a_value_that_gets_a_remote_slot_is_refused(void **state) {
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
    LOOP_UNTIL(loop, b.n_lost == 1);
    fake_verbs_let_register();
    end_step(&b, 7);
    status_unref(wait.status);
    tensor_clear(&value);
    buffer_unref(announcement);
    buffer_unref(buffer);
    str_fini(&meta);
}

/* The sender's first word about its probe may be the grant that the receiver sends after it. */
static void a_grant_before_the_acknowledgement_of_the_probe_is_used(void **state) {
    struct tensor value;
    struct wait wait;
    struct str meta = STR_INIT;
    fake_verbs.is_held = true;
    make(&value, 17);
    peer_connect(a.other);
    receive(&b, &a, 7, &wait);
    send_value(&a, &b, 7, &value);
    LOOP_UNTIL(loop, fake_verbs.n_waiting == 2 && task_says(&b, "\"in_flight_bytes\":1200004"));
    edge_message_write(&meta, 1, 0, NULL, 0);
    edge_message_add_remote_slot(
        &meta, &(struct rdma_remote_slot){.number = 4711, .key = 1, .address = 4096});
    say(&b, WIRE_GRANT, 7, &meta, CHANNEL_CONTROL, NULL);
    LOOP_UNTIL(loop, task_says(&a, "\"writing\":1") || a.n_lost > 0);
    assert_int_equal(a.n_lost, 0);
    end_step(&a, 7);
    end_step(&b, 7);
    status_unref(wait.status);
    fake_verbs.is_held = false;
    fake_verbs_run(-1);
    LOOP_UNTIL(loop, tensor_is_sole(&value));
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
static void a_second_offer_replaces_the_first(void **state) {
    connect_both();
    offer_again(&a, 99);
    LOOP_UNTIL(loop, task_says(&b, "\"from\":\"being proved\"") || b.n_lost > 0);
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
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_true(holds(&wait.value, 9) && task_says(&b, "\"received\":1,"));
    tensor_clear(&wait.value);
    LOOP_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
}

static void a_number_that_was_not_granted_ends_the_connection(void **state) {
    connect_both();
    fake_verbs_forge_number(4711);
    LOOP_UNTIL(loop,
               task_says(&a, "\"from\":\"a write with number 4711, which is not granted") &&
                   task_says(&b, "\"from\":\"a write with number 4711, which is not granted"));
    check_crosses(&a, &b, 7);
    check_crosses(&b, &a, 8);
}

static void malformed_rdma_messages_end_the_wire_connection(void **state) {
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
            LOOP_UNTIL(loop, a.n_lost == before + 1);
        else
            LOOP_UNTIL(loop, a.n_lost == before + 1 && b.n_lost == before + 1);
        LOOP_UNTIL(loop, b.n_lost == a.n_lost);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_network_that_drops_everything_is_found_by_the_probe),
        TEST(a_network_that_damages_is_found_by_the_probe),
        TEST_WITH(a_value_survives_a_broken_connection, setup_small_messages),
        TEST(a_failed_connection_is_tried_again),
        TEST_WITH(a_value_survives_a_broken_receiver, setup_small_messages),
        TEST_WITH(values_that_arrived_before_the_break_count, setup_small_messages),
        TEST_WITH(a_required_connection_that_breaks_loses_the_peer, setup_both_require_small),
        TEST_WITH(a_receivers_step_that_ends_while_its_buffer_is_being_registered,
                  setup_small_messages),
        TEST_WITH(a_receivers_step_that_ends_before_the_write, setup_small_messages),
        TEST_WITH(a_receivers_step_that_ends_in_the_midst_of_the_write, setup_small_messages),
        TEST_WITH(a_receivers_step_that_ends_before_it_sees_the_write, setup_small_messages),
        TEST_WITH(a_senders_step_that_ends_before_the_grant_comes, setup_small_messages),
        TEST_WITH(a_senders_step_that_ends_before_the_write, setup_small_messages),
        TEST_WITH(a_senders_step_that_ends_in_the_midst_of_the_write, setup_small_messages),
        TEST_WITH(a_senders_step_that_ends_after_the_write, setup_small_messages),
        TEST_WITH(a_buffer_outlives_its_step_until_the_write_ends, setup_small_messages),
        TEST_WITH(a_peer_lost_while_a_buffer_is_being_registered, setup_small_messages),
        TEST_WITH(a_peer_lost_before_the_write, setup_small_messages),
        TEST_WITH(a_peer_lost_in_the_midst_of_the_write, setup_small_messages),
        TEST_WITH(a_peer_lost_after_the_write, setup_small_messages),
        TEST(a_task_that_stops_in_the_midst_gives_everything_back),
        TEST_WITH(a_push_of_a_value_with_a_remote_slot_is_refused, setup_small_messages),
        TEST(a_push_of_a_value_that_gets_a_remote_slot_is_refused),
        TEST(a_grant_before_the_acknowledgement_of_the_probe_is_used),
        TEST(a_second_offer_replaces_the_first),
        TEST_WITH(a_value_behind_a_wrong_number_counts, setup_small_messages),
        TEST(a_number_that_was_not_granted_ends_the_connection),
        TEST(malformed_rdma_messages_end_the_wire_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
