/* Pre-grants between two tasks, by remote slots (over a device made of memory) and by pushes over
 * TCP: each order in which a value and its grant can arrive, values that do not fit, and the end of
 * a step, a connection or a peer at every moment. */
#include "tests/unit/worker/pregrant_pair.h"

/* ---- as expected ---- */

static void a_value_that_is_granted_ahead_is_never_announced(void **state) {
    check_goes_ahead(7);
    if (is_rdma())
        assert_true(task_says(&b, "\"received\":1,\"received_bytes\":200000,\"tcp_instead\":0") &&
                    task_says(&b, "\"pregrants\":{\"grants\":1,\"from_prepared\":0,\"received\":1,"
                                  "\"sent\":0,\"ended\":0") &&
                    task_says(&a, "\"bulk\":false"));
    else
        assert_true(task_says(&a, "\"bulk\":true"));
}

/* The device registers nothing while the second step runs: its place was prepared after the
 * first. */
static void the_next_step_finds_its_place_prepared(void **state) {
    check_goes_ahead(7);
    LOOP_UNTIL(loop, is_prepared());
    struct tensor value;
    struct wait wait;
    fake_verbs.is_registering_held = true;
    open_at_sender(8);
    receive(8, &wait);
    LOOP_UNTIL(loop, n_held() == 1);
    assert_true(task_says(&b, "\"from_prepared\":1") && task_says(&b, "\"prepared\":0"));
    fake_verbs_let_register();
    make(&value, 8);
    send_value(8, &value);
    expect(&wait, 8);
    release(&value);
    end_both(8);
    for (uint64_t step = 9; step < 20; step++) {
        check_goes_ahead(step);
        LOOP_UNTIL(loop, task_says(&b, "\"prepared\":1"));
    }
    assert_true(task_says(&b, "\"from_prepared\":12,\"received\":13,"));
}

static void a_place_that_nobody_wants_for_a_while_goes(void **state) {
    check_goes_ahead(7);
    LOOP_UNTIL(loop, is_prepared());
    int n_regions = fake_verbs.n_regions;
    peer_rdma_tick(&b.other->rdma, INT64_MAX / 2);
    LOOP_UNTIL(loop, fake_verbs.n_regions < n_regions);
    LOOP_UNTIL(loop, b.peers->rdma.prepared_bytes == 0);
    check_goes_ahead(8);
}

static void a_grant_waits_for_its_senders_step(void **state) {
    struct tensor value;
    struct wait wait;
    receive(7, &wait);
    LOOP_UNTIL(loop, n_held() == 1); /* in the table of a step that nobody has opened */
    make(&value, 1);
    send_value(7, &value);
    expect(&wait, 1);
    release(&value);
    end_both(7);
}

/* Both cross on the wire; the announcement is about nothing then, whichever comes first. */
static void a_grant_meets_its_values_announcement(void **state) {
    struct tensor value;
    struct wait wait;
    int64_t sent = n_sent();
    make(&value, 2);
    for (uint64_t step = 7; step < 12; step++) {
        send_value(step, &value);
        receive(step, &wait);
        assert_int_equal(pregrant_bytes(), N_BYTES);
        expect(&wait, 2);
        for (int i = 0; i < 5; i++)
            loop_iterate(loop);
        assert_int_equal(pregrant_bytes() + atomic_load(&b.rendezvous->in_flight_bytes), 0);
        end_both(step);
    }
    assert_int_equal(n_sent() - sent, 5);
    release(&value);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static void an_announcement_that_comes_after_its_value_takes_no_room(void **state) {
    struct tensor value;
    struct wait wait;
    make(&value, 3);
    open_at_sender(7);
    receive(7, &wait);
    LOOP_UNTIL(loop, n_held() == 1);
    send_value(7, &value);
    expect(&wait, 3);
    struct str meta = announce_meta(&value);
    assert_null(tell_b(WIRE_ANNOUNCE, 7, &meta));
    assert_int_equal(pregrant_bytes() + atomic_load(&b.rendezvous->in_flight_bytes), 0);
    struct status *st = tell_b(WIRE_ANNOUNCE, 7, &meta);
    assert_int_equal(status_code(st), STATUS_INTERNAL);
    status_unref(st);
    str_fini(&meta);
    release(&value);
    end_both(7);
}

/* ---- other values ---- */

static void expect_shape(struct wait *wait, enum dtype dtype, int64_t n) {
    LOOP_UNTIL(loop, wait->n_calls == 1);
    assert_null(wait->status);
    assert_int_equal(wait->value.dtype, dtype);
    assert_int_equal(wait->value.n_elements, n);
    tensor_clear(&wait->value);
}

static void send_other(uint64_t step, bool comes_first, int64_t rows, int64_t columns,
                       struct wait *wait, struct tensor *value) {
    int64_t shape[2] = {rows, columns};
    *value = TENSOR_INIT;
    assert_null(tensor_new(allocator_host(), DT_FLOAT, (struct shape){2, shape}, value));
    memset(tensor_data(value), 0, tensor_size_bytes(value));
    if (comes_first)
        send_value(step, value);
    else
        open_at_sender(step);
    receive(step, wait);
    if (comes_first)
        return;
    LOOP_UNTIL(loop, n_held() == 1);
    send_value(step, value);
}

/* Larger, smaller, and of the same bytes; announced after the grant has come, and before. */
static void a_value_of_another_shape_is_announced(void **state) {
    static const int64_t shapes[][2] = {{100, 1000}, {100, 200}, {100, 500}};
    uint64_t step = 7;
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (int comes_first = 0; comes_first < 2; comes_first++, step++) {
            struct tensor value;
            struct wait wait;
            int64_t sent = n_sent();
            send_other(step, comes_first, shapes[i][0], shapes[i][1], &wait, &value);
            expect_shape(&wait, DT_FLOAT, shapes[i][0] * shapes[i][1]);
            assert_int_equal(n_sent() - sent, 0);
            for (int k = 0; k < 5; k++)
                loop_iterate(loop);
            assert_int_equal(pregrant_bytes() + atomic_load(&b.rendezvous->in_flight_bytes), 0);
            release(&value);
            end_both(step);
        }
    if (is_rdma())
        assert_true(task_says(&b, "\"received\":6,") && task_says(&b, "\"ended\":6") &&
                    task_says(&b, "\"tcp_instead\":0"));
    assert_int_equal(a.n_lost + b.n_lost, 0);
    check_goes_ahead(step);
}

static void a_small_value_is_pushed_and_a_dead_one_said(void **state) {
    struct wait wait;
    for (uint64_t step = 7; step < 11; step++) {
        struct tensor value = TENSOR_INIT;
        open_at_sender(step);
        receive(step, &wait);
        LOOP_UNTIL(loop, n_held() == 1);
        if (step % 2 == 0)
            tensor_init_dead(&value);
        else
            value_make(&value, allocator_host(), 1000, 1);
        send_value(step, &value);
        assert_int_equal(n_held(), 0);
        LOOP_UNTIL(loop, wait.n_calls == 1);
        assert_null(wait.status);
        assert_int_equal(wait.value.storage, step % 2 == 0 ? TENSOR_DEAD : TENSOR_BUFFER);
        assert_int_equal(pregrant_bytes(), 0);
        tensor_clear(&wait.value);
        tensor_clear(&value);
        end_both(step);
    }
    LOOP_UNTIL(loop, fake_verbs.n_regions <= 0 || !is_rdma());
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

/* ---- steps that go away ---- */

static void a_senders_step_that_ends_without_the_value_gives_the_place_back(void **state) {
    struct wait wait;
    open_at_sender(7);
    receive(7, &wait);
    LOOP_UNTIL(loop, n_held() == 1);
    rendezvous_end_step(a.rendezvous, 7);
    assert_int_equal(n_held(), 0);
    LOOP_UNTIL(loop, !is_rdma() || task_says(&b, "\"ended\":1"));
    assert_int_equal(wait.n_calls, 0); /* its own step ends it */
    rendezvous_end_step(b.rendezvous, 7);
    expect_end(&wait);
    check_goes_ahead(8);
}

/* The sender holds as many as it may: the line lives, and the value goes over it. */
static void a_place_that_is_declined_takes_nothing_off_the_line(void **state) {
    struct tensor value;
    struct wait wait;
    make(&value, 4);
    open_at_sender(7);
    atomic_fetch_add(peer_n_pending_pregrants(a.other), PEER_MAX_PENDING_PREGRANTS);
    receive(7, &wait);
    LOOP_UNTIL(loop, task_says(&b, "\"ended\":1"));
    atomic_fetch_sub(peer_n_pending_pregrants(a.other), PEER_MAX_PENDING_PREGRANTS);
    assert_int_equal(pregrant_bytes(), 0);
    send_value(7, &value);
    expect(&wait, 4);
    assert_true(task_says(&b, "\"received\":1,\"received_bytes\":200000,\"tcp_instead\":0") &&
                task_says(&a, "\"bulk\":false"));
    release(&value);
    end_both(7);
    check_goes_ahead(8);
}

static void a_grant_for_a_step_that_has_ended_is_declined(void **state) {
    struct wait wait;
    open_at_sender(7);
    rendezvous_end_step(a.rendezvous, 7);
    receive(7, &wait);
    for (int i = 0; i < 10; i++)
        loop_iterate(loop);
    LOOP_UNTIL(loop, !is_rdma() || task_says(&b, "\"ended\":1"));
    assert_int_equal(n_held(), 0);
    rendezvous_end_step(b.rendezvous, 7);
    expect_end(&wait);
}

/* The memory waits for the sender's answer, the room does not. */
static void a_receivers_step_that_ends_leaves_the_place_to_the_write(void **state) {
    struct tensor value, other;
    struct wait wait;
    open_at_sender(7);
    receive(7, &wait);
    LOOP_UNTIL(loop, n_held() == 1);
    rendezvous_end_step(b.rendezvous, 7);
    expect_end(&wait);
    assert_int_equal(pregrant_bytes(), 0);
    make(&other, 5); /* would get the same memory from the allocator */
    make(&value, 6);
    send_value(7, &value);
    release(&value);
    for (int i = 0; i < 10; i++)
        loop_iterate(loop);
    assert_true(value_holds(&other, N_FLOATS, 5));
    tensor_clear(&other);
    rendezvous_end_step(a.rendezvous, 7);
    assert_int_equal(a.n_lost + b.n_lost, 0);
    check_goes_ahead(8);
}

static void an_aborted_step_takes_no_value(void **state) {
    struct tensor value;
    struct wait wait;
    struct plan_channel to_b = {
        .edge = 1, .tensor_name = "v:0", .peer_task = b.name, .dtype = DT_FLOAT};
    struct status *why = status_new(STATUS_CANCELLED, "enough"), *st;
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 7, NULL, NULL);
    receive(7, &wait);
    LOOP_UNTIL(loop, n_held() == 1);
    rendezvous_abort(sender, why);
    assert_int_equal(n_held(), 0);
    make(&value, 6);
    st = rendezvous_send(sender, &to_b, 0, &value);
    assert_int_equal(status_code(st), STATUS_CANCELLED);
    status_unref(st);
    status_unref(why);
    rendezvous_unref(sender);
    LOOP_UNTIL(loop, !is_rdma() || task_says(&b, "\"ended\":1"));
    end_both(7);
    expect_end(&wait);
}

/* ---- lines and peers that go away ---- */

static void a_line_that_breaks_before_the_value_is_there_leaves_tcp(void **state) {
    struct tensor value;
    struct wait wait;
    open_at_sender(7);
    receive(7, &wait);
    LOOP_UNTIL(loop, n_held() == 1);
    fake_verbs_break_receivers();
    LOOP_UNTIL(loop, task_says(&b, "\"ended\":1") && peer_rdma_connection_to(&a.other->rdma) == 0);
    make(&value, 4);
    send_value(7, &value);
    expect(&wait, 4);
    assert_true(task_says(&a, "\"bulk\":true") && task_says(&b, "\"received\":0"));
    release(&value);
    end_both(7);
    assert_int_equal(a.n_lost + b.n_lost, 0);
    check_goes_ahead(8); /* as a push */
}

/* At the moment of its end, while it is ending, and after: whatever the sender knows of it when
 * the value comes. */
static void a_value_may_come_at_any_moment_of_a_lines_end(void **state) {
    for (int n_turns = 0; n_turns < 8; n_turns++) {
        struct tensor value;
        struct wait wait;
        open_at_sender(7);
        receive(7, &wait);
        LOOP_UNTIL(loop, n_held() == 1);
        fake_verbs_break_receivers();
        for (int i = 0; i < n_turns; i++)
            loop_iterate(loop);
        make(&value, 4);
        send_value(7, &value);
        expect(&wait, 4);
        release(&value);
        end_both(7);
        assert_int_equal(a.n_lost + b.n_lost, 0);
        teardown(state);
        setup_rdma(state);
    }
}

static void a_line_that_breaks_under_the_write_costs_nothing_but_time(void **state) {
    struct tensor value;
    struct wait wait;
    open_at_sender(7);
    receive(7, &wait);
    LOOP_UNTIL(loop, n_held() == 1);
    fake_verbs.is_held = true;
    make(&value, 4);
    send_value(7, &value);
    LOOP_UNTIL(loop, fake_verbs.n_waiting > 0);
    rendezvous_end_step(a.rendezvous, 7); /* its value is on its way */
    fake_verbs.is_silent = true;
    fake_verbs.is_held = false;
    fake_verbs_run(-1);
    expect(&wait, 4);
    release(&value);
    end_both(7);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static void lose_b(void) {
    struct wire_out nonsense = {.type = WIRE_GRANT, .meta = {"\xff", 1}};
    assert_true(peer_queue(a.other, CHANNEL_CONTROL, &nonsense));
    peer_flush(a.other, CHANNEL_CONTROL);
    LOOP_UNTIL(loop, a.n_lost == 1 && b.n_lost == 1);
}

/* The step of the lost connection ends later than the next connection begins. */
static void a_grant_of_a_lost_connection_is_not_used_by_the_next(void **state) {
    struct tensor value;
    struct wait wait;
    open_at_sender(7);
    receive(7, &wait);
    LOOP_UNTIL(loop, n_held() == 1);
    lose_b();
    rendezvous_end_step(b.rendezvous, 7);
    expect_end(&wait);
    connect_both();
    make(&value, 4);
    send_value(7, &value);
    assert_int_equal(n_held(), 0);
    for (int i = 0; i < 10; i++)
        loop_iterate(loop);
    assert_true(tensor_is_sole(&value));
    tensor_clear(&value);
    rendezvous_end_step(a.rendezvous, 7);
    a.n_lost = b.n_lost = 0;
    check_goes_ahead(8);
}

/* What can go by RDMA in a moment is not pushed. */
static void while_a_line_may_come_nothing_is_pushed_ahead(void **state) {
    lose_b();
    assert_int_equal(peer_pregrant_way(b.other), PEER_PREGRANT_NONE);
    peer_connect(a.other);
    while (peer_pregrant_way(b.other) != PEER_PREGRANT_WRITE) {
        assert_int_equal(peer_pregrant_way(b.other), PEER_PREGRANT_NONE);
        loop_iterate(loop);
    }
    a.n_lost = b.n_lost = 0;
    check_goes_ahead(8);
}

static void where_no_line_comes_values_are_pushed_ahead(void **state) {
    /* it has said that it has no device */
    assert_int_equal(peer_pregrant_way(b.other), PEER_PREGRANT_PUSH);
    check_goes_ahead(7);
}

static void without_memory_to_register_the_value_is_announced(void **state) {
    struct tensor value;
    struct wait wait;
    fake_verbs.n_registrations_to_fail = 1;
    open_at_sender(7);
    receive(7, &wait);
    LOOP_UNTIL(loop, task_says(&b, "\"ended\":1"));
    assert_int_equal(pregrant_bytes(), 0);
    make(&value, 4);
    send_value(7, &value);
    expect(&wait, 4);
    assert_true(task_says(&b, "\"received\":1,"));
    release(&value);
    end_both(7);
    check_goes_ahead(8);
}

static void a_sender_that_cannot_register_pushes(void **state) {
    struct tensor value;
    struct wait wait;
    allocator_host_trim();
    open_at_sender(7);
    receive(7, &wait);
    LOOP_UNTIL(loop, n_held() == 1);
    fake_verbs.n_sources_to_fail = 1;
    make(&value, 4);
    send_value(7, &value);
    expect(&wait, 4);
    assert_true(task_says(&a, "\"tcp_instead\":1") && task_says(&b, "\"ended\":1"));
    release(&value);
    end_both(7);
    check_goes_ahead(8);
}

/* ---- threads ---- */

enum { N_THREAD_STEPS = 60 };
static struct plan_channel thread_channel;
static struct wait thread_waits[N_THREAD_STEPS];
static struct tensor thread_value;

static uint64_t step_of(int i) { return 100 + (uint64_t)i; }

static void *receive_on_a_thread(void *arg) {
    for (int i = 0; i < N_THREAD_STEPS; i++)
        receive_edge(step_of(i), &thread_channel, NULL, &thread_waits[i]);
    return NULL;
}

/* Every third step has a value of another shape, every fifth ends without. */
static void *send_on_a_thread(void *arg) {
    struct tensor other;
    value_make(&other, allocator_host(), 2 * N_FLOATS, 9);
    for (int i = 0; i < N_THREAD_STEPS; i++) {
        open_at_sender(step_of(i));
        if (i % 5 != 0)
            send_value(step_of(i), i % 3 == 0 ? &other : &thread_value);
    }
    for (int i = 0; i < N_THREAD_STEPS; i += 5)
        rendezvous_end_step(a.rendezvous, step_of(i));
    tensor_clear(&other);
    return NULL;
}

static void steps_run_on_other_threads_than_the_loops(void **state) {
    pthread_t sender, receiver;
    thread_channel = channel_of(1);
    memset(thread_waits, 0, sizeof(thread_waits));
    make(&thread_value, 9);
    assert_int_equal(pthread_create(&receiver, NULL, receive_on_a_thread, NULL), 0);
    assert_int_equal(pthread_create(&sender, NULL, send_on_a_thread, NULL), 0);
    for (int i = 0; i < N_THREAD_STEPS; i++) {
        if (i % 5 == 0)
            continue;
        LOOP_UNTIL(loop, atomic_load(&thread_waits[i].n_calls) == 1);
        assert_null(thread_waits[i].status);
        assert_true(value_holds(&thread_waits[i].value, i % 3 == 0 ? 2 * N_FLOATS : N_FLOATS, 9));
        tensor_clear(&thread_waits[i].value);
    }
    pthread_join(receiver, NULL);
    pthread_join(sender, NULL);
    for (int i = 0; i < N_THREAD_STEPS; i++)
        end_both(step_of(i));
    for (int i = 0; i < N_THREAD_STEPS; i += 5)
        expect_end(&thread_waits[i]);
    release(&thread_value);
    LOOP_UNTIL(loop, n_held() == 0);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        RDMA(a_value_that_is_granted_ahead_is_never_announced),
        TCP(a_value_that_is_granted_ahead_is_never_announced),
        RDMA(the_next_step_finds_its_place_prepared),
        RDMA(a_place_that_nobody_wants_for_a_while_goes),
        RDMA(a_grant_waits_for_its_senders_step),
        TCP(a_grant_waits_for_its_senders_step),
        RDMA(a_grant_meets_its_values_announcement),
        TCP(a_grant_meets_its_values_announcement),
        RDMA(an_announcement_that_comes_after_its_value_takes_no_room),
        TCP(an_announcement_that_comes_after_its_value_takes_no_room),
        RDMA(a_value_of_another_shape_is_announced),
        REQUIRE(a_value_of_another_shape_is_announced),
        TCP(a_value_of_another_shape_is_announced),
        RDMA(a_small_value_is_pushed_and_a_dead_one_said),
        TCP(a_small_value_is_pushed_and_a_dead_one_said),
        RDMA(a_senders_step_that_ends_without_the_value_gives_the_place_back),
        TCP(a_senders_step_that_ends_without_the_value_gives_the_place_back),
        RDMA(a_place_that_is_declined_takes_nothing_off_the_line),
        REQUIRE(a_place_that_is_declined_takes_nothing_off_the_line),
        RDMA(a_grant_for_a_step_that_has_ended_is_declined),
        TCP(a_grant_for_a_step_that_has_ended_is_declined),
        RDMA(a_receivers_step_that_ends_leaves_the_place_to_the_write),
        TCP(a_receivers_step_that_ends_leaves_the_place_to_the_write),
        RDMA(an_aborted_step_takes_no_value),
        TCP(an_aborted_step_takes_no_value),
        RDMA(a_line_that_breaks_before_the_value_is_there_leaves_tcp),
        RDMA(a_value_may_come_at_any_moment_of_a_lines_end),
        RDMA(a_line_that_breaks_under_the_write_costs_nothing_but_time),
        RDMA(a_grant_of_a_lost_connection_is_not_used_by_the_next),
        TCP(a_grant_of_a_lost_connection_is_not_used_by_the_next),
        RDMA(while_a_line_may_come_nothing_is_pushed_ahead),
        {"where_no_line_comes_values_are_pushed_ahead", where_no_line_comes_values_are_pushed_ahead,
         setup_half, teardown, NULL},
        RDMA(without_memory_to_register_the_value_is_announced),
        RDMA(a_sender_that_cannot_register_pushes),
        RDMA(steps_run_on_other_threads_than_the_loops),
        TCP(steps_run_on_other_threads_than_the_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
