/* Pre-grants where memory or pending writes are short, and with a peer whose messages are wrong. */
#include "tests/unit/worker/pregrant_pair.h"

/* ---- room ---- */

static void without_room_nothing_is_granted_ahead(void **state) {
    struct tensor value;
    struct wait wait;
    /* a peer's part of it is less than the value */
    rendezvous_table_set_in_flight_limit(b.rendezvous, 2 * N_BYTES);
    open_at_sender(7);
    receive(7, &wait);
    assert_int_equal(pregrant_bytes(), 0);
    make(&value, 4);
    send_value(7, &value);
    expect(&wait, 4);
    release(&value);
    end_both(7);
    rendezvous_table_set_in_flight_limit(b.rendezvous, 8 * N_BYTES);
    atomic_store(&b.rendezvous->in_flight_bytes, 8 * N_BYTES - 1); /* others' */
    receive(8, &wait);
    assert_int_equal(pregrant_bytes(), 0);
    atomic_store(&b.rendezvous->in_flight_bytes, 0);
    end_both(8);
    expect_end(&wait);
}

/* A peer's part and a session's; and what is granted ahead, however long it takes, keeps nobody
 * waiting whose value is there. */
static void what_is_granted_ahead_takes_no_room_from_what_is_there(void **state) {
    enum { N = 6 };
    struct plan_channel channels[N], unknown = channel_of(N);
    struct wait waits[N], wait;
    struct tensor value;
    struct session_credit *credit = session_credit_new();
    rendezvous_table_set_in_flight_limit(b.rendezvous, 8 * N_BYTES);
    open_at_sender(7);
    for (uint32_t i = 0; i < N; i++) {
        channels[i] = channel_of(i);
        receive_edge(7, &channels[i], credit, &waits[i]);
    }
    assert_int_equal(pregrant_bytes(), 2 * N_BYTES);
    assert_int_equal(atomic_load(&credit->pregrant_bytes), 2 * N_BYTES);
    LOOP_UNTIL(loop, n_held() == 2);
    make(&value, 4);
    unknown.slot_bytes = 0;
    receive_edge(7, &unknown, credit, &wait);
    task_send(&a, b.name, 7, N, &value); /* the others may depend on it */
    expect(&wait, 4);
    for (uint32_t i = N; i-- > 0;)
        task_send(&a, b.name, 7, i, &value);
    for (int i = 0; i < N; i++)
        expect(&waits[i], 4);
    release(&value);
    end_both(7);
    assert_int_equal(atomic_load(&credit->pregrant_bytes) + atomic_load(&credit->in_flight_bytes),
                     0);
    session_credit_unref(credit);
}

static void limit_b(int64_t n_values) {
    /* as large as its block is */
    struct buffer *one_value = buffer_alloc(allocator_host(), N_BYTES);
    limited = allocator_host_new("limited", n_values * (int64_t)one_value->size_bytes);
    buffer_unref(one_value);
    b.rendezvous->allocator = limited;
}

/* A step may have all the memory, whatever lies ready; then nothing is prepared or granted ahead
 * any more. */
static void what_is_prepared_takes_no_memory_from_steps(void **state) {
    enum { N = 6 };
    struct buffer *buffers[N];
    struct wait wait;
    limit_b(N);
    check_goes_ahead(7);
    LOOP_UNTIL(loop, is_prepared());
    assert_int_equal(atomic_load(&limited->in_use_bytes), 0);
    for (int i = 0; i < N; i++)
        assert_non_null(buffers[i] = buffer_alloc(limited, N_BYTES));
    peer_rdma_tick(&b.other->rdma, clock_now_ns());
    LOOP_UNTIL(loop, b.peers->rdma.prepared_bytes == 0);
    for (int i = 0; i < N; i++)
        buffer_unref(buffers[i]);
    check_goes_ahead(8);
    LOOP_UNTIL(loop, is_prepared());
    open_at_sender(9);
    receive(9, &wait);
    LOOP_UNTIL(loop, n_held() == 1);
    /* it counts once it is used */
    assert_in_range(atomic_load(&limited->in_use_bytes), N_BYTES, limited->limit_bytes / N);
    end_both(9);
    expect_end(&wait);
    LOOP_UNTIL(loop, atomic_load(&limited->in_use_bytes) == 0);
}

static void with_little_memory_nothing_is_granted_ahead(void **state) {
    struct tensor value;
    struct wait wait;
    limit_b(4);
    struct buffer *others = buffer_alloc(limited, 2 * N_BYTES);
    open_at_sender(7);
    receive(7, &wait);
    assert_int_equal(pregrant_bytes(), 0);
    make(&value, 4);
    send_value(7, &value);
    expect(&wait, 4);
    end_both(7);
    release(&value);
    buffer_unref(others);
    check_goes_ahead(8);
    LOOP_UNTIL(loop, atomic_load(&limited->in_use_bytes) == 0);
}

/* Beyond the places of a line nothing is asked of it, whatever room there is. */
static void more_than_a_line_has_places_is_not_asked_for(void **state) {
    enum { N = RDMA_MAX_PREGRANTS + 40 };
    static struct plan_channel channels[N];
    static struct wait waits[N];
    struct tensor value;
    int64_t granted = metric_get(&worker_pregrants_total);
    fake_verbs.is_registering_held = true;
    open_at_sender(7);
    for (uint32_t i = 0; i < N; i++) {
        channels[i] = channel_of(i);
        receive_edge(7, &channels[i], NULL, &waits[i]);
    }
    assert_int_equal(metric_get(&worker_pregrants_total) - granted, RDMA_MAX_PREGRANTS);
    assert_int_equal(pregrant_bytes(), (int64_t)RDMA_MAX_PREGRANTS * N_BYTES);
    fake_verbs_let_register();
    make(&value, 5);
    for (uint32_t i = 0; i < N; i++)
        task_send(&a, b.name, 7, i, &value);
    for (int i = 0; i < N; i++)
        expect(&waits[i], 5);
    release(&value);
    end_both(7);
    assert_int_equal(atomic_load(&b.other->rdma.n_pregrants), 0);
    check_goes_ahead(8);
}

/* ---- peers that lie ---- */

static void tell_a(const struct str *meta, uint64_t step) {
    assert_true(peer_queue(
        b.other, CHANNEL_CONTROL,
        &(struct wire_out){.type = WIRE_GRANT, .id = step, .meta = {meta->data, meta->len}}));
    peer_flush(b.other, CHANNEL_CONTROL);
}

/* More than are held, for one key twice, for what is received here (which comes all the same),
 * for no large value. */
static void grants_that_make_no_sense_are_dropped_or_refused(void **state) {
    struct str meta = STR_INIT;
    struct tensor value;
    open_at_sender(7);
    for (uint32_t i = 0; i < PEER_MAX_PENDING_PREGRANTS + 10; i++) {
        str_clear(&meta);
        edge_message_write_expected(&meta, i, 0, DT_FLOAT, (struct shape){1, dims}, N_BYTES);
        tell_a(&meta, 7);
        if (i < 3)
            tell_a(&meta, 7);
    }
    LOOP_UNTIL(loop, n_held() == PEER_MAX_PENDING_PREGRANTS);
    for (int i = 0; i < 10; i++)
        loop_iterate(loop);
    assert_int_equal(n_held(), PEER_MAX_PENDING_PREGRANTS);
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 7, NULL, NULL);
    struct plan_channel from_b = {
        .edge = 1, .tensor_name = "v:0", .peer_task = b.name, .dtype = DT_FLOAT};
    struct wait wait = {.recv.on_value = wait_on_value};
    assert_false(rendezvous_recv_start(sender, &from_b, 0, &wait.recv, &wait.value));
    make(&value, 3);
    task_send(&b, a.name, 7, 1, &value);
    expect(&wait, 3);
    release(&value);
    rendezvous_unref(sender);
    end_both(7);
    assert_int_equal(n_held(), 0);
    str_clear(&meta);
    /* the shape has more */
    edge_message_write_expected(&meta, 1, 0, DT_FLOAT, (struct shape){1, dims}, N_BYTES - 4);
    tell_a(&meta, 8);
    LOOP_UNTIL(loop, a.n_lost == 1 && b.n_lost == 1);
    str_fini(&meta);
}

/* Of what goes from here to another task. */
static void a_grant_of_another_peers_edge_is_in_nobodys_way(void **state) {
    struct tensor value;
    struct wait wait;
    struct peer *third;
    struct str meta = STR_INIT;
    assert_null(
        peer_table_know(a.peers, "/job:worker/replica:0/task:1", "127.0.0.1:1", "", 3, &third));
    edge_message_write_expected(&meta, 1, 0, DT_FLOAT, (struct shape){1, dims}, N_BYTES);
    struct wire_message lie = {.type = WIRE_GRANT, .id = 7, .meta = {meta.data, meta.len}};
    open_at_sender(7);
    assert_null(task_hears(a.rendezvous, third, &lie));
    assert_int_equal(atomic_load(peer_n_pending_pregrants(third)), 1);
    receive(7, &wait);
    LOOP_UNTIL(loop, n_held() == 1);
    make(&value, 3);
    send_value(7, &value);
    expect(&wait, 3);
    assert_null(task_hears(a.rendezvous, third, &lie));
    release(&value);
    end_both(7);
    assert_int_equal(atomic_load(peer_n_pending_pregrants(third)), 0);
    assert_int_equal(a.n_lost + b.n_lost, 0);
    str_fini(&meta);
}

/* For steps that nobody has opened: what is kept counts. */
static void early_metas_are_counted_and_limited(void **state) {
    static int64_t most[SHAPE_MAX_RANK];
    for (int i = 0; i < SHAPE_MAX_RANK; i++)
        most[i] = i < 40 ? 2 : 1;
    struct str grant = STR_INIT, announcement = STR_INIT;
    edge_message_write_expected(&grant, UINT32_MAX, UINT64_MAX, DT_INT8,
                                (struct shape){SHAPE_MAX_RANK, most}, 1ull << 40);
    str_add_bytes(&announcement, grant.data, grant.len);
    edge_message_add_remote_slot(&grant,
                                 &(struct rdma_remote_slot){UINT32_MAX, UINT32_MAX, UINT64_MAX});
    assert_null(tell_b(WIRE_GRANT, 7, &grant));
    assert_int_equal(atomic_load(&b.rendezvous->early_bytes),
                     sizeof(struct slot) + sizeof(struct pending_pregrant) + sizeof(most));
    rendezvous_end_step(b.rendezvous, 7);
    assert_null(tell_b(WIRE_ANNOUNCE, 8, &announcement));
    assert_int_equal(atomic_load(&b.rendezvous->early_bytes),
                     sizeof(struct slot) + announcement.len);
    rendezvous_end_step(b.rendezvous, 8);
    assert_int_equal(atomic_load(&b.rendezvous->early_bytes), 0);
    for (int type = WIRE_ANNOUNCE; type <= WIRE_GRANT; type += WIRE_GRANT - WIRE_ANNOUNCE) {
        struct str large = STR_INIT;
        str_add_bytes(&large, announcement.data, announcement.len);
        while (large.len <= RENDEZVOUS_MAX_META_BYTES)
            str_add_bytes(&large, "\x7a\x01x", 3); /* a field that nobody knows */
        struct status *st = tell_b((enum wire_type)type, 9, &large);
        assert_int_equal(status_code(st), STATUS_INVALID_ARGUMENT);
        status_unref(st);
        str_fini(&large);
    }
    str_fini(&announcement);
    str_fini(&grant);
}

/* The sender has too many: its announcement says that it needs another. */
static void a_grant_that_is_dropped_is_asked_for_again(void **state) {
    struct tensor value;
    struct wait wait;
    make(&value, 5);
    for (uint64_t step = 7; step < 9; step++) {
        /* before the value, or only after the receiver has heard of it */
        bool comes_early = step == 8;
        atomic_store(peer_n_pending_pregrants(a.other), PEER_MAX_PENDING_PREGRANTS);
        open_at_sender(step);
        receive(step, &wait);
        struct rendezvous *sender = rendezvous_open(a.rendezvous, step, NULL, NULL);
        LOOP_UNTIL(loop, sender->has_dropped_pregrant);
        rendezvous_unref(sender);
        if (comes_early && is_rdma())
            LOOP_UNTIL(loop, task_says(&b, "\"ended\":2"));
        send_value(step, &value);
        expect(&wait, 5);
        end_both(step);
        assert_int_equal(n_held(), PEER_MAX_PENDING_PREGRANTS);
    }
    atomic_store(peer_n_pending_pregrants(a.other), 0);
    release(&value);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static void a_number_that_was_prepared_and_not_told_ends_the_line(void **state) {
    check_goes_ahead(7);
    LOOP_UNTIL(loop, is_prepared());
    fake_verbs_forge_number(prepared()->write.remote_slot.number);
    LOOP_UNTIL(loop, task_says(&b, "\"from\":\"a write to a remote slot that was not granted\""));
    LOOP_UNTIL(loop, b.peers->rdma.prepared_bytes == 0);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static const int64_t twice_dims[1] = {2 * N_FLOATS};
static struct plan_channel twice;

/* Receives of step 8 begin while a prepared place is being withdrawn; another one's registration
 * keeps the device busy. */
static void begin_while_a_place_is_withdrawn(struct wait *wait, struct wait *other_wait) {
    check_goes_ahead(7);
    LOOP_UNTIL(loop, is_prepared());
    const struct peer_pending_write *remote_slot = prepared();
    twice = channel_of(2);
    twice.shape = (struct shape){1, twice_dims};
    twice.slot_bytes = 2 * N_BYTES;
    fake_verbs.is_registering_held = true;
    open_at_sender(8);
    receive_edge(8, &twice, NULL, other_wait);
    LOOP_UNTIL(loop, !list_is_empty(&b.other->rdma.pending_writes));
    fake_verbs_forge_number(remote_slot->write.remote_slot.number);
    LOOP_UNTIL(loop, remote_slot->write.state == RDMA_WITHDRAWING);
    receive(8, wait);
    LOOP_UNTIL(loop, list_is_empty(&b.other->rdma.requested));
}

static void a_prepared_place_that_is_withdrawn_is_not_used(void **state) {
    struct tensor value;
    struct wait wait, other_wait;
    begin_while_a_place_is_withdrawn(&wait, &other_wait);
    fake_verbs_let_register();
    make(&value, 8);
    send_value(8, &value);
    expect(&wait, 8);
    release(&value);
    end_both(8);
    expect_end(&other_wait);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

/* The sender waits for RdmaEnded before it tries again. */
static void a_line_that_ends_is_not_broken_besides(void **state) {
    struct wait wait, other_wait;
    begin_while_a_place_is_withdrawn(&wait, &other_wait);
    struct status *why = status_unavailable("by the test");
    peer_rdma_out_failed(&a.other->rdma, why);
    status_unref(why);
    LOOP_UNTIL(loop, b.other->rdma.in_state == IN_ENDING);
    fake_verbs_let_register();
    LOOP_UNTIL(loop, a.other->rdma.out_state == OUT_NONE);
    end_both(8);
    expect_end(&wait);
    expect_end(&other_wait);
}

/* It is not read into the place that may still be written. */
static void a_push_of_what_has_a_place_is_refused(void **state) {
    struct tensor value;
    struct wait wait;
    open_at_sender(7);
    receive(7, &wait);
    LOOP_UNTIL(loop, n_held() == 1);
    make(&value, 4);
    struct str meta = announce_meta(&value);
    const struct tensor *tensors[1] = {&value};
    assert_true(peer_queue(a.other, CHANNEL_BULK,
                           &(struct wire_out){.type = WIRE_PUSH,
                                              .id = 7,
                                              .meta = {meta.data, meta.len},
                                              .tensors = tensors,
                                              .n_tensors = 1}));
    peer_flush(a.other, CHANNEL_BULK);
    LOOP_UNTIL(loop, b.n_lost == 1);
    end_both(7);
    expect_end(&wait);
    release(&value);
    str_fini(&meta);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        RDMA(without_room_nothing_is_granted_ahead),
        TCP(without_room_nothing_is_granted_ahead),
        RDMA(what_is_granted_ahead_takes_no_room_from_what_is_there),
        TCP(what_is_granted_ahead_takes_no_room_from_what_is_there),
        RDMA(what_is_prepared_takes_no_memory_from_steps),
        RDMA(with_little_memory_nothing_is_granted_ahead),
        TCP(with_little_memory_nothing_is_granted_ahead),
        RDMA(more_than_a_line_has_places_is_not_asked_for),
        TCP(grants_that_make_no_sense_are_dropped_or_refused),
        TCP(a_grant_of_another_peers_edge_is_in_nobodys_way),
        RDMA(a_grant_of_another_peers_edge_is_in_nobodys_way),
        TCP(early_metas_are_counted_and_limited),
        RDMA(a_grant_that_is_dropped_is_asked_for_again),
        TCP(a_grant_that_is_dropped_is_asked_for_again),
        RDMA(a_number_that_was_prepared_and_not_told_ends_the_line),
        RDMA(a_prepared_place_that_is_withdrawn_is_not_used),
        RDMA(a_line_that_ends_is_not_broken_besides),
        RDMA(a_push_of_what_has_a_place_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
