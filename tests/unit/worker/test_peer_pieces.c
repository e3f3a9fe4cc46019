/* Values that are sent while they grow: before they are whole, in each way that a value can take,
 * and what both ends are told when the growth fails, a step ends or a peer is lost in between. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/worker/growing_pair.h"

/* Each piece is received before the next one is there. */
static void check_overlap(void) {
    int n_lost = a.n_lost + b.n_lost;
    struct crossing crossing = crossing_begin();
    uint64_t n_early = a.other->pieces.n_early;
    crossing_start(&crossing);
    for (int i = 1; i < N_PIECES; i++) {
        fill(&crossing, (size_t)i * PIECE);
        await_pieces(&crossing, (uint64_t)i);
        assert_int_equal(crossing.wait.n_calls, 0);
    }
    fill_to_the_end(&crossing);
    expect_whole(&crossing);
    assert_int_equal(b.other->streams.n_pieces_received, crossing.n_received + N_PIECES);
    assert_int_equal(a.other->pieces.n_early, n_early + N_PIECES - 1);
    crossing_end(&crossing);
    assert_int_equal(a.n_lost + b.n_lost, n_lost);
}

static void pieces_are_received_before_the_value_is_whole(void **state) {
    check_overlap();
    assert_true(task_says(&a, "\"pieces\":{\"values_sent\":1,\"sent\":5,\"sent_before_whole\":4,"
                              "\"failed\":0,\"received\":0,\"handed_on\":0}"));
    assert_true(task_says(&b, "\"received\":5,\"handed_on\":0}"));
}

static void so_they_are_with_checksums(void **state) {
    peer_table_set_checksums(a.peers, true);
    check_overlap();
}

static void and_over_several_sockets(void **state) {
    peer_table_set_streams(a.peers, 3);
    check_overlap(); /* opens them */
    LOOP_UNTIL(loop, a.other->streams.greeted == (1u << 3) - 2);
    check_overlap();
    assert_int_equal(b.other->streams.used, (1u << 3) - 2);
}

static void only_a_task_that_is_reached_over_tcp_is_sent_pieces(void **state) {
    connect_tasks();
    assert_true(peer_sends_pieces(a.other));
    a.other->takes_pieces = false;
    assert_false(peer_sends_pieces(a.other));
}

static void not_one_on_the_same_host(void **state) {
    connect_tasks();
    assert_false(peer_sends_pieces(a.other));
}

static void a_pregranted_value_grows_too(void **state) {
    struct crossing crossing = crossing_begin();
    crossing.in.shape = tensor_shape(&crossing.source);
    crossing.in.slot_bytes = SIZE;
    assert_false(start(crossing.receiver, &crossing.in, 0, &crossing.wait));
    rendezvous_flush(crossing.receiver);
    LOOP_UNTIL(loop, crossing.sender->n_pending_pregrants == 1);
    crossing_send(&crossing);
    assert_int_equal(crossing.sender->n_pending_pregrants, 0);
    fill(&crossing, PIECE);
    await_pieces(&crossing, 1);
    fill_to_the_end(&crossing);
    expect_whole(&crossing);
    crossing_end(&crossing);
}

static void other_values_are_sent_between_two_pieces(void **state) {
    struct crossing crossing = crossing_begin();
    struct plan_channel out = to_b(4, DT_FLOAT), in = from_a(4, DT_FLOAT);
    struct wait other;
    crossing_start(&crossing);
    fill(&crossing, PIECE);
    await_pieces(&crossing, 1);
    assert_false(start(crossing.receiver, &in, 0, &other));
    send_floats(crossing.sender, out, 0, n_floats, 7);
    LOOP_UNTIL(loop, other.n_calls == 1);
    assert_true(value_holds(&other.value, n_floats, 7));
    tensor_clear(&other.value);
    fill_to_the_end(&crossing);
    expect_whole(&crossing);
    crossing_end(&crossing);
}

static void a_task_that_takes_no_pieces_gets_the_whole_value(void **state) {
    struct crossing crossing = crossing_begin();
    a.other->takes_pieces = false;
    crossing_start(&crossing);
    fill(&crossing, 3 * PIECE);
    LOOP_UNTIL(loop, crossing.sender->n_slots == 0); /* it is granted */
    fill_to_the_end(&crossing);
    expect_whole(&crossing);
    assert_int_equal(b.other->streams.n_pieces_received, crossing.n_received);
    crossing_end(&crossing);
}

/* ---- a copy that fails ---- */

static void fail_growth(struct crossing *crossing) {
    struct status *why = status_internal("the device is gone");
    growing_buffer_end(crossing->growing, why);
    status_unref(why);
}

static void check_failure(int n_pieces_before) {
    int n_lost = a.n_lost + b.n_lost;
    struct crossing crossing = crossing_begin();
    crossing_start(&crossing);
    fill(&crossing, (size_t)n_pieces_before * PIECE);
    if (n_pieces_before > 0)
        await_pieces(&crossing, (uint64_t)n_pieces_before);
    fail_growth(&crossing);
    LOOP_UNTIL(loop, crossing.wait.n_calls == 1);
    expect_failure(&crossing.wait, STATUS_INTERNAL, "the device is gone");
    LOOP_UNTIL(loop, list_is_empty(&b.other->streams.arrivals));
    crossing_end(&crossing);
    assert_int_equal(a.n_lost + b.n_lost, n_lost);
    check_overlap(); /* the next step */
}

static void a_failure_before_the_first_piece_fails_the_recv(void **state) { check_failure(0); }
static void so_does_one_after_half_of_the_pieces(void **state) { check_failure(2); }
static void and_one_before_the_last_piece(void **state) { check_failure(N_PIECES - 1); }

static void and_one_of_pieces_over_several_sockets(void **state) {
    peer_table_set_streams(a.peers, 3);
    check_overlap();
    LOOP_UNTIL(loop, a.other->streams.greeted == (1u << 3) - 2);
    check_failure(3);
}

static void and_one_before_the_value_is_sent(void **state) {
    struct crossing crossing = crossing_begin();
    fail_growth(&crossing);
    crossing_start(&crossing);
    LOOP_UNTIL(loop, crossing.wait.n_calls == 1);
    expect_failure(&crossing.wait, STATUS_INTERNAL, "the device is gone");
    assert_int_equal(a.other->pieces.n_failed, 1);
    crossing_end(&crossing);
}

static void and_one_of_a_value_that_is_sent_whole(void **state) {
    struct crossing crossing = crossing_begin();
    a.other->takes_pieces = false;
    crossing_start(&crossing);
    fill(&crossing, PIECE);
    LOOP_UNTIL(loop, crossing.sender->n_slots == 0);
    fail_growth(&crossing);
    LOOP_UNTIL(loop, buffer_is_sole(crossing.growing));
    /* Such a task knows no message for it: the step fails here, and its master ends it there. */
    assert_int_equal(a.other->pieces.n_failed, 1);
    struct status *why = status_internal("as the master says");
    rendezvous_abort(crossing.receiver, why);
    status_unref(why);
    expect_failure(&crossing.wait, STATUS_INTERNAL, "as the master says");
    crossing_end(&crossing);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

/* ---- steps that end, and peers that are lost ---- */

static void the_receivers_step_may_end_in_between(void **state) {
    struct crossing crossing = crossing_begin();
    struct status *why = status_new(STATUS_CANCELLED, "cancelled");
    crossing_start(&crossing);
    fill(&crossing, 2 * PIECE);
    await_pieces(&crossing, 2);
    rendezvous_abort(crossing.receiver, why);
    status_unref(why);
    expect_failure(&crossing.wait, STATUS_CANCELLED, "cancelled");
    fill_to_the_end(&crossing);
    await_pieces(&crossing, N_PIECES);
    LOOP_UNTIL(loop, list_is_empty(&b.other->streams.arrivals));
    crossing_end(&crossing);
    check_overlap();
}

static void the_senders_step_may_end_in_between(void **state) {
    struct crossing crossing = crossing_begin();
    struct status *why = status_new(STATUS_CANCELLED, "cancelled");
    crossing_start(&crossing);
    fill(&crossing, 2 * PIECE);
    await_pieces(&crossing, 2);
    rendezvous_abort(crossing.sender, why);
    rendezvous_end_step(a.rendezvous, crossing.step);
    status_unref(why);
    fill_to_the_end(&crossing);
    expect_whole(&crossing); /* the receiver's step goes on until its master ends it */
    crossing_end(&crossing);
}

static void a_lost_peer_is_sent_nothing_more(void **state) {
    struct crossing crossing = crossing_begin();
    crossing_start(&crossing);
    fill(&crossing, 2 * PIECE);
    await_pieces(&crossing, 2);
    struct transport_channel *bulk = b.other->channels[CHANNEL_BULK];
    bulk->transport->close(bulk, status_unavailable("cut"));
    LOOP_UNTIL(loop, a.n_lost == 1 && b.n_lost == 1);
    uint64_t n_sent = a.other->pieces.n_sent;
    connect_tasks();
    fill_to_the_end(&crossing);
    LOOP_UNTIL(loop, buffer_is_sole(crossing.growing));
    assert_int_equal(a.other->pieces.n_sent, n_sent);
    assert_true(list_is_empty(&b.other->streams.arrivals));
    struct status *why = status_unavailable("lost"); /* as the task does when it loses the peer */
    rendezvous_abort(crossing.receiver, why);
    status_unref(why);
    expect_failure(&crossing.wait, STATUS_UNAVAILABLE, "lost");
    crossing_end(&crossing);
    check_failure(1);
}

static void a_task_may_end_in_between(void **state) {
    struct crossing crossing = crossing_begin();
    crossing_start(&crossing);
    fill(&crossing, 2 * PIECE);
    await_pieces(&crossing, 2);
    rendezvous_end_step(a.rendezvous, crossing.step);
    rendezvous_unref(crossing.sender);
    tensor_clear(&crossing.source);
    growing_buffer_advance(crossing.growing, 3 * PIECE);
    rendezvous_table_free(a.rendezvous);
    peer_table_free(a.peers);
    a.rendezvous = NULL;
    a.peers = NULL;
    growing_buffer_end(crossing.growing, NULL);
    LOOP_UNTIL(loop, buffer_is_sole(crossing.growing));
    buffer_unref(crossing.growing);
    LOOP_UNTIL(loop, b.n_lost == 1);
    struct status *why = status_unavailable("lost");
    rendezvous_abort(crossing.receiver, why);
    status_unref(why);
    expect_failure(&crossing.wait, STATUS_UNAVAILABLE, "lost");
    end(&b, crossing.receiver, crossing.step);
}

/* ---- another thread fills ---- */

static void *fill_in_small_parts(void *arg) {
    struct crossing *crossing = arg;
    for (size_t at = 0; at < SIZE; at += MIB / 2)
        fill(crossing, at + MIB / 2);
    growing_buffer_end(crossing->growing, NULL);
    return NULL;
}

static void a_device_fills_on_its_own_thread(void **state) {
    for (int i = 0; i < 10; i++) {
        struct crossing crossing = crossing_begin();
        pthread_t device;
        assert_false(start(crossing.receiver, &crossing.in, 0, &crossing.wait));
        assert_int_equal(pthread_create(&device, NULL, fill_in_small_parts, &crossing), 0);
        crossing_send(&crossing);
        expect_whole(&crossing);
        pthread_join(device, NULL);
        crossing_end(&crossing);
    }
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

/* ---- what strangers may send ---- */

static void send_stripe(Millrace__Stripe stripe, size_t payload_bytes) {
    struct str push = STR_INIT;
    uint8_t meta[256];
    connect_tasks();
    edge_message_write(&push, EDGE, 0, NULL, 0);
    stripe.push = (ProtobufCBinaryData){.len = push.len, .data = (uint8_t *)push.data};
    size_t len = millrace__stripe__pack(&stripe, meta);
    char *bytes = calloc(1, payload_bytes + 1);
    struct wire_out out = {
        .type = WIRE_STRIPE, .id = 1, .meta = {(char *)meta, len}, .extra = {bytes, payload_bytes}};
    assert_true(peer_queue(a.other, CHANNEL_BULK, &out));
    peer_flush(a.other, CHANNEL_BULK);
    free(bytes);
    str_fini(&push);
}

static Millrace__Stripe stripe_of(uint64_t total_bytes, unsigned n, uint64_t stripe_bytes) {
    Millrace__Stripe stripe = MILLRACE__STRIPE__INIT;
    stripe.total_bytes = total_bytes;
    stripe.n_stripes = n;
    stripe.stripe_bytes = stripe_bytes;
    return stripe;
}

static void pieces_that_do_not_add_up_are_refused(void **state) {
    const struct {
        uint64_t total_bytes;
        unsigned n;
        uint64_t stripe_bytes;
    } rows[] = {{16 * MIB, 3, 4 * MIB},    {16 * MIB, 5, 4 * MIB},  {16 * MIB, 256, MIB / 16},
                {16 * MIB, 2, UINT64_MAX}, {16 * MIB, 1, 16 * MIB}, {5000ull * MIB, 5000, MIB}};
    for (int i = 0; i < (int)ARRAY_LEN(rows); i++) {
        size_t payload = (size_t)MIN(rows[i].stripe_bytes, (uint64_t)(4 * MIB));
        send_stripe(stripe_of(rows[i].total_bytes, rows[i].n, rows[i].stripe_bytes), payload);
        LOOP_UNTIL(loop, a.n_lost == i + 1 && b.n_lost == i + 1);
    }
    assert_int_equal(b.other->streams.n_arrivals, 0);
}

static void a_failure_with_bytes_is_refused(void **state) {
    Millrace__Stripe stripe = stripe_of(8 * MIB, 2, 0);
    stripe.failed_code = STATUS_INTERNAL;
    send_stripe(stripe, 4 * MIB);
    LOOP_UNTIL(loop, a.n_lost == 1 && b.n_lost == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_TCP(pieces_are_received_before_the_value_is_whole),
        TEST_TCP(so_they_are_with_checksums),
        TEST_TCP(and_over_several_sockets),
        TEST_TCP(only_a_task_that_is_reached_over_tcp_is_sent_pieces),
        TEST(not_one_on_the_same_host),
        TEST_TCP(a_pregranted_value_grows_too),
        TEST_TCP(other_values_are_sent_between_two_pieces),
        TEST_TCP(a_task_that_takes_no_pieces_gets_the_whole_value),
        TEST_TCP(a_failure_before_the_first_piece_fails_the_recv),
        TEST_TCP(so_does_one_after_half_of_the_pieces),
        TEST_TCP(and_one_before_the_last_piece),
        TEST_TCP(and_one_of_pieces_over_several_sockets),
        TEST_TCP(and_one_before_the_value_is_sent),
        TEST_TCP(and_one_of_a_value_that_is_sent_whole),
        TEST_TCP(the_receivers_step_may_end_in_between),
        TEST_TCP(the_senders_step_may_end_in_between),
        TEST_TCP(a_lost_peer_is_sent_nothing_more),
        TEST_TCP(a_task_may_end_in_between),
        TEST_TCP(a_device_fills_on_its_own_thread),
        TEST_TCP(pieces_that_do_not_add_up_are_refused),
        TEST_TCP(a_failure_with_bytes_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
