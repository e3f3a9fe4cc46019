/* Grants ahead between two tasks, by places in memory (over a device made of memory) and by
 * pushes over TCP: the ways in which the value and its grant can meet or miss each other, other
 * values than expected, and every moment at which a step, a line or a peer goes away. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "tests/unit/worker/rdma_task.h"
#include "worker/exchange/peer_internal.h"
#include "worker/exchange/peer_rdma_internal.h"
#include "worker/exchange/rendezvous_pregrant.h"
#include "worker/exchange/rendezvous_internal.h"

static struct loop *loop;
static struct test_task a, b; /* a sends, b receives */
static int64_t in_use_before;
static struct allocator *limited; /* b's, where a test has made it */

enum { N_FLOATS = 50000, N_BYTES = N_FLOATS * 4 };
static const int64_t dims[1] = {N_FLOATS};

static void connect_both(void) {
    peer_connect(a.other);
    if (a.peers->rdma.device)
        TURN_UNTIL(loop, peer_pregrant_way(b.other) == PEER_PREGRANT_WRITE &&
                             task_says(&a, "\"to\":\"ready\",\"from\":\"ready\",\"written\""));
    else
        TURN_UNTIL(loop, peer_pregrant_way(b.other) == PEER_PREGRANT_PUSH);
}

static int begin(enum rdma_mode mode) {
    fake_verbs_reset();
    in_use_before = atomic_load(&allocator_host()->in_use_bytes);
    loop = loop_new();
    task_start_rdma(&a, loop, "/job:ps/replica:0/task:0", mode);
    task_start_rdma(&b, loop, "/job:worker/replica:0/task:0", mode);
    tasks_meet_over_tcp(&a, &b);
    connect_both();
    return 0;
}

/* The receiver alone has a device. */
static int setup_half(void **state) {
    fake_verbs_reset();
    in_use_before = atomic_load(&allocator_host()->in_use_bytes);
    loop = loop_new();
    task_start_rdma(&a, loop, "/job:ps/replica:0/task:0", RDMA_OFF);
    task_start_rdma(&b, loop, "/job:worker/replica:0/task:0", RDMA_PREFER);
    tasks_meet_over_tcp(&a, &b);
    connect_both();
    return 0;
}

static int setup_rdma(void **state) { return begin(RDMA_PREFER); }
static int setup_require(void **state) { return begin(RDMA_REQUIRE); }
static int setup_tcp(void **state) { return begin(RDMA_OFF); }

static bool is_rdma(void) { return a.peers->rdma.device != NULL; }

/* Whatever has happened, nothing is granted, held, registered or in memory any more. */
static int teardown(void **state) {
    fake_verbs_let_register();
    assert_int_equal(atomic_load(&b.rendezvous->pregrant_bytes), 0);
    assert_int_equal(atomic_load(&b.rendezvous->in_flight_bytes), 0);
    assert_int_equal(atomic_load(peer_pregrant_bytes(b.other)), 0);
    assert_int_equal(atomic_load(peer_n_pending_pregrants(a.other)), 0);
    tasks_fini(&a, &b);
    allocator_host_free(limited);
    limited = NULL;
    assert_int_equal(fake_verbs.n_regions, 0);
    assert_int_equal(fake_verbs.n_queue_pairs, 0);
    assert_int_equal(fake_verbs.n_domains, 0);
    assert_int_equal(atomic_load(&allocator_host()->in_use_bytes), in_use_before);
    return 0;
}

/* ---- what the tests do ---- */

static struct plan_channel channel_of(uint32_t edge) {
    return (struct plan_channel){.edge = edge,
                                 .tensor_name = "v:0",
                                 .peer_task = a.name,
                                 .dtype = DT_FLOAT,
                                 .shape = {1, dims},
                                 .slot_bytes = N_BYTES};
}

/* As a step's Recv starts; the channel outlives the step. */
static void receive_edge(uint64_t step, const struct plan_channel *channel,
                         struct session_credit *credit, struct wait *wait) {
    struct rendezvous *rendezvous = rendezvous_open_in(b.rendezvous, step, credit);
    memset(wait, 0, sizeof(*wait));
    wait->recv.on_value = wait_on_value;
    if (rendezvous_recv_start(rendezvous, channel, 0, &wait->recv, &wait->value))
        wait->n_calls = 1;
    rendezvous_flush(rendezvous);
    rendezvous_unref(rendezvous);
}

static struct plan_channel one;
static void receive(uint64_t step, struct wait *wait) {
    one = channel_of(1);
    receive_edge(step, &one, NULL, wait);
}

static void open_at_sender(uint64_t step) { rendezvous_unref(rendezvous_open(a.rendezvous, step)); }
static void send_value(uint64_t step, const struct tensor *value) {
    task_send(&a, b.name, step, 1, value);
}
static void make(struct tensor *t, float seed) { value_make(t, allocator_host(), N_FLOATS, seed); }

static int n_held(void) { return atomic_load(peer_n_pending_pregrants(a.other)); }
static int64_t pregrant_bytes(void) { return atomic_load(&b.rendezvous->pregrant_bytes); }
static int64_t n_sent(void) { return metric_get(&worker_pregranted_sent_total); }
static int64_t n_arrived(void) { return metric_get(&worker_pregranted_received_total); }

static void end_both(uint64_t step) {
    rendezvous_end_step(a.rendezvous, step);
    rendezvous_end_step(b.rendezvous, step);
}

static void expect(struct wait *wait, float seed) {
    TURN_UNTIL(loop, wait->n_calls == 1);
    assert_null(wait->status);
    assert_true(value_holds(&wait->value, N_FLOATS, seed));
    assert_true(tensor_is_sole(&wait->value));
    tensor_clear(&wait->value);
}

static void release(struct tensor *value) {
    TURN_UNTIL(loop, tensor_is_sole(value));
    tensor_clear(value);
}

/* The grant is at the sender before the value is: the best case. */
static void check_goes_ahead(uint64_t step) {
    struct tensor value;
    struct wait wait;
    int64_t sent = n_sent(), arrived = n_arrived();
    open_at_sender(step);
    receive(step, &wait);
    assert_int_equal(pregrant_bytes(), N_BYTES);
    TURN_UNTIL(loop, n_held() == 1);
    make(&value, (float)step);
    send_value(step, &value);
    assert_int_equal(n_held(), 0);
    expect(&wait, (float)step);
    assert_int_equal(pregrant_bytes(), 0);
    assert_int_equal(n_sent() - sent, 1);
    assert_int_equal(n_arrived() - arrived, 1);
    release(&value);
    end_both(step);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

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

static const struct peer_pending_write *prepared(void) {
    return LIST_ENTRY(b.other->rdma.prepared.next, struct peer_pending_write, link);
}
static bool is_prepared(void) {
    return task_says(&b, "\"prepared\":1") && prepared()->write.state == RDMA_GRANTED;
}

/* The device registers nothing while the second step runs: its place was prepared after the
 * first. */
static void the_next_step_finds_its_place_prepared(void **state) {
    check_goes_ahead(7);
    TURN_UNTIL(loop, is_prepared());
    struct tensor value;
    struct wait wait;
    fake_verbs.is_registering_held = true;
    open_at_sender(8);
    receive(8, &wait);
    TURN_UNTIL(loop, n_held() == 1);
    assert_true(task_says(&b, "\"from_prepared\":1") && task_says(&b, "\"prepared\":0"));
    fake_verbs_let_register();
    make(&value, 8);
    send_value(8, &value);
    expect(&wait, 8);
    release(&value);
    end_both(8);
    for (uint64_t step = 9; step < 20; step++) {
        check_goes_ahead(step);
        TURN_UNTIL(loop, task_says(&b, "\"prepared\":1"));
    }
    assert_true(task_says(&b, "\"from_prepared\":12,\"received\":13,"));
}

static void a_place_that_nobody_wants_for_a_while_goes(void **state) {
    check_goes_ahead(7);
    TURN_UNTIL(loop, is_prepared());
    int n_regions = fake_verbs.n_regions;
    peer_rdma_tick(&b.other->rdma, INT64_MAX / 2);
    TURN_UNTIL(loop, fake_verbs.n_regions < n_regions);
    TURN_UNTIL(loop, b.peers->rdma.prepared_bytes == 0);
    check_goes_ahead(8);
}

static void a_grant_waits_for_its_senders_step(void **state) {
    struct tensor value;
    struct wait wait;
    receive(7, &wait);
    TURN_UNTIL(loop, n_held() == 1); /* in the table of a step that nobody has opened */
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
            loop_turn(loop);
        assert_int_equal(pregrant_bytes() + atomic_load(&b.rendezvous->in_flight_bytes), 0);
        end_both(step);
    }
    assert_int_equal(n_sent() - sent, 5);
    release(&value);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static struct str announce_meta(const struct tensor *value) {
    struct str meta = STR_INIT;
    edge_message_write(&meta, 1, 0, value, 0);
    return meta;
}

/* As if the peer had sent it. */
static struct status *task_hears(struct rendezvous_table *table, struct peer *peer,
                                 struct wire_message *message) {
    struct edge_message edge;
    TRY(edge_message_read(message->meta, &edge));
    return rendezvous_receiver.on_message(table, peer, message, &edge);
}

static struct status *tell_b(enum wire_type type, uint64_t step, const struct str *meta) {
    struct wire_message message = {.type = type, .id = step, .meta = {meta->data, meta->len}};
    return task_hears(b.rendezvous, b.other, &message);
}

static void an_announcement_that_comes_after_its_value_takes_no_room(void **state) {
    struct tensor value;
    struct wait wait;
    make(&value, 3);
    open_at_sender(7);
    receive(7, &wait);
    TURN_UNTIL(loop, n_held() == 1);
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
    TURN_UNTIL(loop, wait->n_calls == 1);
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
    TURN_UNTIL(loop, n_held() == 1);
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
                loop_turn(loop);
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
        TURN_UNTIL(loop, n_held() == 1);
        if (step % 2 == 0)
            tensor_init_dead(&value);
        else
            value_make(&value, allocator_host(), 1000, 1);
        send_value(step, &value);
        assert_int_equal(n_held(), 0);
        TURN_UNTIL(loop, wait.n_calls == 1);
        assert_null(wait.status);
        assert_int_equal(wait.value.storage, step % 2 == 0 ? TENSOR_DEAD : TENSOR_BUFFER);
        assert_int_equal(pregrant_bytes(), 0);
        tensor_clear(&wait.value);
        tensor_clear(&value);
        end_both(step);
    }
    TURN_UNTIL(loop, fake_verbs.n_regions <= 0 || !is_rdma());
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

/* ---- steps that go away ---- */

static void expect_end(struct wait *wait) {
    assert_int_equal(wait->n_calls, 1);
    assert_non_null(wait->status);
    status_unref(wait->status);
}

static void a_senders_step_that_ends_without_the_value_gives_the_place_back(void **state) {
    struct wait wait;
    open_at_sender(7);
    receive(7, &wait);
    TURN_UNTIL(loop, n_held() == 1);
    rendezvous_end_step(a.rendezvous, 7);
    assert_int_equal(n_held(), 0);
    TURN_UNTIL(loop, !is_rdma() || task_says(&b, "\"ended\":1"));
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
    TURN_UNTIL(loop, task_says(&b, "\"ended\":1"));
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
        loop_turn(loop);
    TURN_UNTIL(loop, !is_rdma() || task_says(&b, "\"ended\":1"));
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
    TURN_UNTIL(loop, n_held() == 1);
    rendezvous_end_step(b.rendezvous, 7);
    expect_end(&wait);
    assert_int_equal(pregrant_bytes(), 0);
    make(&other, 5); /* would get the same memory from the allocator */
    make(&value, 6);
    send_value(7, &value);
    release(&value);
    for (int i = 0; i < 10; i++)
        loop_turn(loop);
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
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 7);
    receive(7, &wait);
    TURN_UNTIL(loop, n_held() == 1);
    rendezvous_abort(sender, why);
    assert_int_equal(n_held(), 0);
    make(&value, 6);
    st = rendezvous_send(sender, &to_b, 0, &value);
    assert_int_equal(status_code(st), STATUS_CANCELLED);
    status_unref(st);
    status_unref(why);
    rendezvous_unref(sender);
    TURN_UNTIL(loop, !is_rdma() || task_says(&b, "\"ended\":1"));
    end_both(7);
    expect_end(&wait);
}

/* ---- lines and peers that go away ---- */

static void a_line_that_breaks_before_the_value_is_there_leaves_tcp(void **state) {
    struct tensor value;
    struct wait wait;
    open_at_sender(7);
    receive(7, &wait);
    TURN_UNTIL(loop, n_held() == 1);
    fake_verbs_break_receivers();
    TURN_UNTIL(loop, task_says(&b, "\"ended\":1") && peer_rdma_connection_to(&a.other->rdma) == 0);
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
        TURN_UNTIL(loop, n_held() == 1);
        fake_verbs_break_receivers();
        for (int i = 0; i < n_turns; i++)
            loop_turn(loop);
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
    TURN_UNTIL(loop, n_held() == 1);
    fake_verbs.is_held = true;
    make(&value, 4);
    send_value(7, &value);
    TURN_UNTIL(loop, fake_verbs.n_waiting > 0);
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
    TURN_UNTIL(loop, a.n_lost == 1 && b.n_lost == 1);
}

/* The step of the lost connection ends later than the next connection begins. */
static void a_grant_of_a_lost_connection_is_not_used_by_the_next(void **state) {
    struct tensor value;
    struct wait wait;
    open_at_sender(7);
    receive(7, &wait);
    TURN_UNTIL(loop, n_held() == 1);
    lose_b();
    rendezvous_end_step(b.rendezvous, 7);
    expect_end(&wait);
    connect_both();
    make(&value, 4);
    send_value(7, &value);
    assert_int_equal(n_held(), 0);
    for (int i = 0; i < 10; i++)
        loop_turn(loop);
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
        loop_turn(loop);
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
    TURN_UNTIL(loop, task_says(&b, "\"ended\":1"));
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
    TURN_UNTIL(loop, n_held() == 1);
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
        TURN_UNTIL(loop, atomic_load(&thread_waits[i].n_calls) == 1);
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
    TURN_UNTIL(loop, n_held() == 0);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

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
    TURN_UNTIL(loop, n_held() == 2);
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
    TURN_UNTIL(loop, is_prepared());
    assert_int_equal(atomic_load(&limited->in_use_bytes), 0);
    for (int i = 0; i < N; i++)
        assert_non_null(buffers[i] = buffer_alloc(limited, N_BYTES));
    peer_rdma_tick(&b.other->rdma, clock_now_ns());
    TURN_UNTIL(loop, b.peers->rdma.prepared_bytes == 0);
    for (int i = 0; i < N; i++)
        buffer_unref(buffers[i]);
    check_goes_ahead(8);
    TURN_UNTIL(loop, is_prepared());
    open_at_sender(9);
    receive(9, &wait);
    TURN_UNTIL(loop, n_held() == 1);
    /* it counts once it is used */
    assert_in_range(atomic_load(&limited->in_use_bytes), N_BYTES, limited->limit_bytes / N);
    end_both(9);
    expect_end(&wait);
    TURN_UNTIL(loop, atomic_load(&limited->in_use_bytes) == 0);
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
    TURN_UNTIL(loop, atomic_load(&limited->in_use_bytes) == 0);
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
    TURN_UNTIL(loop, n_held() == PEER_MAX_PENDING_PREGRANTS);
    for (int i = 0; i < 10; i++)
        loop_turn(loop);
    assert_int_equal(n_held(), PEER_MAX_PENDING_PREGRANTS);
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 7);
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
    TURN_UNTIL(loop, a.n_lost == 1 && b.n_lost == 1);
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
    TURN_UNTIL(loop, n_held() == 1);
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
        struct rendezvous *sender = rendezvous_open(a.rendezvous, step);
        TURN_UNTIL(loop, sender->has_dropped_pregrant);
        rendezvous_unref(sender);
        if (comes_early && is_rdma())
            TURN_UNTIL(loop, task_says(&b, "\"ended\":2"));
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
    TURN_UNTIL(loop, is_prepared());
    fake_verbs_forge_number(prepared()->write.remote_slot.number);
    TURN_UNTIL(loop, task_says(&b, "\"from\":\"a write to a place that it was not told of\""));
    TURN_UNTIL(loop, b.peers->rdma.prepared_bytes == 0);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static const int64_t twice_dims[1] = {2 * N_FLOATS};
static struct plan_channel twice;

/* Receives of step 8 begin while a prepared place is being withdrawn; another one's registration
 * keeps the device busy. */
static void begin_while_a_place_is_withdrawn(struct wait *wait, struct wait *other_wait) {
    check_goes_ahead(7);
    TURN_UNTIL(loop, is_prepared());
    const struct peer_pending_write *remote_slot = prepared();
    twice = channel_of(2);
    twice.shape = (struct shape){1, twice_dims};
    twice.slot_bytes = 2 * N_BYTES;
    fake_verbs.is_registering_held = true;
    open_at_sender(8);
    receive_edge(8, &twice, NULL, other_wait);
    TURN_UNTIL(loop, !list_is_empty(&b.other->rdma.pending_writes));
    fake_verbs_forge_number(remote_slot->write.remote_slot.number);
    TURN_UNTIL(loop, remote_slot->write.state == RDMA_WITHDRAWING);
    receive(8, wait);
    TURN_UNTIL(loop, list_is_empty(&b.other->rdma.requested));
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
    TURN_UNTIL(loop, b.other->rdma.in_state == IN_ENDING);
    fake_verbs_let_register();
    TURN_UNTIL(loop, a.other->rdma.out_state == OUT_NONE);
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
    TURN_UNTIL(loop, n_held() == 1);
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
    TURN_UNTIL(loop, b.n_lost == 1);
    end_both(7);
    expect_end(&wait);
    release(&value);
    str_fini(&meta);
}

#define RDMA(name) \
    { #name " (rdma)", name, setup_rdma, teardown, NULL }
#define REQUIRE(name) \
    { #name " (rdma required)", name, setup_require, teardown, NULL }
#define TCP(name) \
    { #name " (tcp)", name, setup_tcp, teardown, NULL }

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
