/* The rendezvous' credit and grants, between two tasks over a real connection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/worker/rendezvous_pair.h"

static void a_full_budget_delays_grants_and_all_arrive(void **state) {
    enum { N = 20, ELEMENTS = 50000 };
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL, NULL),
                      *receiver = rendezvous_open(b.rendezvous, 1, NULL, NULL);
    struct wait waits[N];
    rendezvous_table_set_in_flight_limit(b.rendezvous, ELEMENTS * 4 * 2);
    peer_connect(a.other);
    for (uint32_t i = 0; i < N; i++)
        send_floats(sender, to_b(i, DT_FLOAT), 0, ELEMENTS, (float)i);
    for (uint32_t i = 0; i < N / 2; i++) {
        struct plan_channel in = from_a(i, DT_FLOAT);
        assert_false(start(receiver, &in, 0, &waits[i]));
    }
    for (uint32_t i = 0; i < N / 2; i++) {
        while (waits[i].n_calls == 0) {
            loop_iterate(loop);
            assert_true(atomic_load(&b.rendezvous->in_flight_bytes) <= ELEMENTS * 4 * 2);
        }
        assert_true(value_holds(&waits[i].value, ELEMENTS, (float)i));
        tensor_clear(&waits[i].value);
    }
    for (uint32_t i = N / 2; i < N; i++) {
        struct plan_channel in = from_a(i, DT_FLOAT);
        if (!start(receiver, &in, 0, &waits[i]))
            LOOP_UNTIL(loop, waits[i].n_calls == 1);
        assert_true(value_holds(&waits[i].value, ELEMENTS, (float)i));
        tensor_clear(&waits[i].value);
    }
    end(&a, sender, 1);
    end(&b, receiver, 1);
}

static uint8_t state_of(struct rendezvous *rendezvous, uint32_t edge) {
    pthread_mutex_lock(&rendezvous->lock);
    struct slot *slot = slot_find(rendezvous, edge, 0);
    uint8_t found = slot ? slot->state : SLOT_N_STATES;
    pthread_mutex_unlock(&rendezvous->lock);
    return found;
}

/* Both values are announced, in this order, before the receiver's step begins. */
static void a_late_value_is_not_granted_before_its_recv_starts(void **state) {
    enum { LATE = 7, EARLY = 9, ELEMENTS = 50000 };
    uint32_t edges[] = {3, LATE, 12};
    const struct plan_edges late_edges = {edges, 3};
    struct plan_channel in = from_a(LATE, DT_FLOAT);
    struct wait wait;
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL, NULL);
    peer_connect(a.other);
    send_floats(sender, to_b(LATE, DT_FLOAT), 0, ELEMENTS, 1);
    send_floats(sender, to_b(EARLY, DT_FLOAT), 0, ELEMENTS, 2);
    struct rendezvous *receiver = rendezvous_open(b.rendezvous, 1, NULL, &late_edges);
    LOOP_UNTIL(loop, state_of(receiver, EARLY) == SLOT_VALUE);
    assert_int_equal(state_of(receiver, LATE), SLOT_ANNOUNCED);
    assert_false(start(receiver, &in, 0, &wait));
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_true(value_holds(&wait.value, ELEMENTS, 1));
    tensor_clear(&wait.value);
    end(&a, sender, 1);
    end(&b, receiver, 1);
}

static void a_value_larger_than_the_budget_comes_when_it_is_all_that_is_awaited(void **state) {
    struct rendezvous *senders[2], *receivers[2];
    struct wait waits[2];
    struct plan_channel in = from_a(1, DT_FLOAT);
    rendezvous_table_set_in_flight_limit(b.rendezvous, 1);
    peer_connect(a.other);
    for (uint64_t i = 0; i < 2; i++) {
        senders[i] = rendezvous_open(a.rendezvous, i + 1, NULL, NULL);
        receivers[i] = rendezvous_open(b.rendezvous, i + 1, NULL, NULL);
        assert_false(start(receivers[i], &in, 0, &waits[i]));
        send_floats(senders[i], to_b(1, DT_FLOAT), 0, 100000, 1);
    }
    LOOP_UNTIL(loop, waits[0].n_calls == 1 && waits[1].n_calls == 1);
    for (uint64_t i = 0; i < 2; i++) {
        tensor_clear(&waits[i].value);
        end(&a, senders[i], i + 1);
        end(&b, receivers[i], i + 1);
    }
}

/* Many steps at once, each waiting for one value: the limit holds whatever they wait for. */
static void many_steps_never_have_more_in_flight_than_the_budget(void **state) {
    enum { N = 64, ELEMENTS = 50000, BYTES = ELEMENTS * 4 };
    struct rendezvous *senders[N], *receivers[N];
    struct wait waits[N];
    struct plan_channel in = from_a(1, DT_FLOAT);
    struct session_credit *flows[2] = {session_credit_new(), session_credit_new()};
    rendezvous_table_set_in_flight_limit(b.rendezvous, 8 * BYTES);
    peer_connect(a.other);
    int n_done = 0;
    for (uint64_t i = 0; i < N; i++) {
        senders[i] = rendezvous_open(a.rendezvous, i + 1, NULL, NULL);
        receivers[i] = rendezvous_open(b.rendezvous, i + 1, flows[i % 2], NULL);
        assert_false(start(receivers[i], &in, 0, &waits[i]));
        send_floats(senders[i], to_b(1, DT_FLOAT), 0, ELEMENTS, (float)i);
    }
    while (n_done < N) {
        loop_iterate(loop);
        assert_true(atomic_load(&b.rendezvous->in_flight_bytes) <= 2 * BYTES); /* a peer's share */
        assert_true(atomic_load(peer_in_flight_bytes(b.other)) <= 2 * BYTES);
        n_done = 0;
        for (int i = 0; i < N; i++)
            n_done += waits[i].n_calls;
    }
    assert_int_equal(atomic_load(peer_in_flight_bytes(b.other)), 0);
    for (uint64_t i = 0; i < N; i++) {
        assert_true(value_holds(&waits[i].value, ELEMENTS, (float)i));
        tensor_clear(&waits[i].value);
        end(&a, senders[i], i + 1);
        end(&b, receivers[i], i + 1);
    }
    session_credit_unref(flows[0]);
    session_credit_unref(flows[1]);
}

/* Small values come all the time, so there is never room for a large one but by its claim. */
static void a_large_value_does_not_starve_among_small_ones(void **state) {
    enum { SMALL = 20000, LARGE = 1000000, MAX_ROUNDS = 2000 };
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL, NULL),
                      *receiver = rendezvous_open(b.rendezvous, 1, NULL, NULL);
    struct rendezvous *large_sender = rendezvous_open(a.rendezvous, 2, NULL, NULL),
                      *large_receiver = rendezvous_open(b.rendezvous, 2, NULL, NULL);
    struct plan_channel large_in = from_a(7, DT_FLOAT);
    struct wait large, small[2];
    rendezvous_table_set_in_flight_limit(b.rendezvous, 16 * SMALL * 4);
    peer_connect(a.other);
    uint32_t n_sent = 0;
    for (; n_sent < 2; n_sent++)
        send_floats(sender, to_b(n_sent, DT_FLOAT), 0, SMALL, 1);
    assert_false(start(large_receiver, &large_in, 0, &large));
    send_floats(large_sender, to_b(7, DT_FLOAT), 0, LARGE, 2);
    for (uint32_t i = 0; large.n_calls == 0; i++) {
        struct plan_channel in = from_a(i, DT_FLOAT);
        assert_true(i < MAX_ROUNDS);
        /* there is always another one on its way */
        send_floats(sender, to_b(n_sent++, DT_FLOAT), 0, SMALL, 1);
        if (!start(receiver, &in, 0, &small[i % 2]))
            LOOP_UNTIL(loop, small[i % 2].n_calls == 1);
        tensor_clear(&small[i % 2].value);
    }
    assert_true(value_holds(&large.value, LARGE, 2));
    tensor_clear(&large.value);
    assert_null(atomic_load(&b.rendezvous->claim));
    end(&a, sender, 1);
    end(&b, receiver, 1);
    end(&a, large_sender, 2);
    end(&b, large_receiver, 2);
}

static void a_claim_goes_with_its_step(void **state) {
    struct rendezvous *senders[3], *receivers[3];
    struct wait waits[3];
    struct plan_channel in = from_a(1, DT_FLOAT);
    struct status *why = status_new(STATUS_CANCELLED, "no more");
    rendezvous_table_set_in_flight_limit(b.rendezvous, 1);
    atomic_store(&b.rendezvous->in_flight_bytes, 1000); /* of some other peer's, that is slow */
    peer_connect(a.other);
    for (uint64_t i = 0; i < 3; i++) {
        senders[i] = rendezvous_open(a.rendezvous, i + 1, NULL, NULL);
        receivers[i] = rendezvous_open(b.rendezvous, i + 1, NULL, NULL);
        assert_false(start(receivers[i], &in, 0, &waits[i]));
        send_floats(senders[i], to_b(1, DT_FLOAT), 0, 100000, (float)i);
    }
    LOOP_UNTIL(loop, atomic_load(&b.rendezvous->claim) != NULL);
    for (int i = 0; i < 10; i++)
        loop_iterate(loop);
    assert_ptr_equal(atomic_load(&b.rendezvous->claim), receivers[0]);
    rendezvous_abort(receivers[0], why); /* the next in line has it */
    expect_failure(&waits[0], STATUS_CANCELLED, "no more");
    assert_ptr_equal(atomic_load(&b.rendezvous->claim), receivers[1]);
    atomic_fetch_sub(&b.rendezvous->in_flight_bytes, 1000);
    rendezvous_retry_pending(b.rendezvous);
    LOOP_UNTIL(loop, waits[1].n_calls == 1 && waits[2].n_calls == 1);
    for (uint64_t i = 0; i < 3; i++) {
        tensor_clear(&waits[i].value);
        end(&a, senders[i], i + 1);
        end(&b, receivers[i], i + 1);
    }
    status_unref(why);
}

static void memory_that_is_out_fails_the_step_and_not_the_connection(void **state) {
    struct allocator *small = allocator_host_new("small", 1000);
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL, NULL),
                      *receiver = rendezvous_open(b.rendezvous, 1, NULL, NULL);
    struct plan_channel in = from_a(1, DT_FLOAT);
    struct wait wait;
    b.rendezvous->allocator = small;
    peer_connect(a.other);
    assert_false(start(receiver, &in, 0, &wait));
    send_floats(sender, to_b(1, DT_FLOAT), 0, 100000, 1);
    LOOP_UNTIL(loop, wait.n_calls == 1);
    expect_failure(&wait, STATUS_RESOURCE_EXHAUSTED, "400000 bytes");
    assert_int_equal(atomic_load(&b.rendezvous->in_flight_bytes), 0);
    end(&a, sender, 1);
    end(&b, receiver, 1);
    b.rendezvous->allocator = allocator_host();
    check_crossing(100000, true);
    allocator_host_free(small);
}

static void an_abort_drops_what_is_granted_and_its_bytes_are_read_past(void **state) {
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL, NULL),
                      *receiver = rendezvous_open(b.rendezvous, 1, NULL, NULL);
    struct status *why = status_new(STATUS_CANCELLED, "no more");
    peer_connect(a.other);
    send_floats(sender, to_b(1, DT_FLOAT), 0, 4000000, 1);
    LOOP_UNTIL(loop, atomic_load(&b.rendezvous->in_flight_bytes) > 0);
    rendezvous_abort(receiver, why);
    assert_int_equal(atomic_load(&b.rendezvous->in_flight_bytes), 0);
    check_crossing(10, true);
    check_crossing(100000, true);
    status_unref(why);
    end(&a, sender, 1);
    end(&b, receiver, 1);
}

static void a_grant_is_good_for_one_message(void **state) {
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL, NULL),
                      *receiver = rendezvous_open(b.rendezvous, 1, NULL, NULL);
    struct plan_channel in = from_a(1, DT_FLOAT);
    struct wait wait;
    struct tensor like;
    struct str meta = STR_INIT;
    peer_connect(a.other);
    assert_false(start(receiver, &in, 0, &wait));
    send_floats(sender, to_b(1, DT_FLOAT), 0, 100000, 1);
    LOOP_UNTIL(loop, atomic_load(&b.rendezvous->in_flight_bytes) > 0);
    value_make(&like, allocator_host(), 100000, 1);
    edge_message_write(&meta, 1, 0, &like, 0);
    struct wire_message push = {
        .type = WIRE_PUSH, .id = 1, .meta = {meta.data, meta.len}, .payload_len = 400000};
    struct edge_message edge = {.edge = 1};
    struct buffer *first = rendezvous_receiver.alloc(b.rendezvous, b.other, &push, &edge, 400000);
    assert_non_null(first);
    assert_null(rendezvous_receiver.alloc(b.rendezvous, b.other, &push, &edge, 400000));
    assert_true(rendezvous_receiver.is_wanted(b.rendezvous, b.other, 1, 1, 0));
    assert_false(rendezvous_receiver.is_wanted(b.rendezvous, b.other, 1, 2, 0));
    LOOP_UNTIL(loop, b.n_lost == 1); /* the value itself comes: the second */
    assert_non_null(
        strstr(str_text(&b.lost_why), "sends 400000 bytes of a Push that were not granted"));
    assert_int_equal(wait.n_calls, 0);
    buffer_unref(first);
    tensor_clear(&like);
    str_fini(&meta);
    rendezvous_end_step(b.rendezvous, 1);
    assert_false(rendezvous_receiver.is_wanted(b.rendezvous, b.other, 1, 1, 0));
    status_unref(wait.status);
    assert_int_equal(atomic_load(&b.rendezvous->in_flight_bytes), 0);
    rendezvous_unref(receiver);
    end(&a, sender, 1);
}

static void sending_without_a_connection_is_unavailable(void **state) {
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL, NULL);
    struct plan_channel out = to_b(1, DT_FLOAT), nowhere = {.edge = 2,
                                                            .tensor_name = "y:0",
                                                            .peer_task = "/job:x/replica:0/task:0"};
    struct tensor t;
    value_make(&t, allocator_host(), 1, 1);
    struct status *st = rendezvous_send(sender, &out, 0, &t);
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    assert_non_null(strstr(status_message(st), b.name));
    status_unref(st);
    value_make(&t, allocator_host(), 1, 1);
    st = rendezvous_send(sender, &nowhere, 0, &t);
    assert_int_equal(status_code(st), STATUS_INTERNAL);
    status_unref(st);
    end(&a, sender, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_full_budget_delays_grants_and_all_arrive),
        TEST(a_late_value_is_not_granted_before_its_recv_starts),
        TEST(a_value_larger_than_the_budget_comes_when_it_is_all_that_is_awaited),
        TEST(many_steps_never_have_more_in_flight_than_the_budget),
        TEST(a_large_value_does_not_starve_among_small_ones),
        TEST(a_claim_goes_with_its_step),
        TEST(memory_that_is_out_fails_the_step_and_not_the_connection),
        TEST(an_abort_drops_what_is_granted_and_its_bytes_are_read_past),
        TEST(a_grant_is_good_for_one_message),
        TEST(sending_without_a_connection_is_unavailable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
