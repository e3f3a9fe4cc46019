/* Values that still grow when their receiver grants them a remote slot: the sender cannot know
 * before that an RDMA connection will exist by then. They are written when they are whole. */
#include "tests/unit/worker/rdma_pair.h"

#include "common/tensor/growing_buffer.h"
#include "worker/exchange/rendezvous_internal.h"

enum { EDGE = 1, MIB = 1 << 20, SIZE = 10 * MIB };
static const int64_t n_large = SIZE / (int64_t)sizeof(float);

/* A value from a to b in a step of its own. */
struct crossing {
    uint64_t step;
    struct plan_channel out, in;
    struct tensor source;
    struct buffer *growing;
    struct wait wait;
};

static void crossing_begin(struct crossing *crossing, uint64_t step) {
    memset(crossing, 0, sizeof(*crossing));
    crossing->step = step;
    crossing->out = (struct plan_channel){
        .edge = EDGE, .tensor_name = "x:0", .peer_task = b.name, .dtype = DT_FLOAT};
    crossing->in = crossing->out;
    crossing->in.peer_task = a.name;
    crossing->in.takes_growing = true; /* what is written by RDMA is handed on whole all the same */
    value_make(&crossing->source, allocator_host(), n_large, (float)step);
    crossing->growing = growing_buffer_new(allocator_host(), SIZE);
    crossing->wait.recv.on_value = wait_on_value;
}

static void crossing_receive(struct crossing *crossing) {
    struct rendezvous *rendezvous = rendezvous_open(b.rendezvous, crossing->step, NULL, NULL);
    assert_false(rendezvous_recv_start(rendezvous, &crossing->in, 0, &crossing->wait.recv,
                                       &crossing->wait.value));
    rendezvous_flush(rendezvous);
    rendezvous_unref(rendezvous);
}

static void crossing_send(struct crossing *crossing) {
    struct rendezvous *rendezvous = rendezvous_open(a.rendezvous, crossing->step, NULL, NULL);
    struct tensor value = TENSOR_INIT;
    assert_null(tensor_view(crossing->growing, crossing->growing->data, DT_FLOAT,
                            tensor_shape(&crossing->source), &value));
    assert_null(rendezvous_send(rendezvous, &crossing->out, 0, &value));
    rendezvous_flush(rendezvous);
    rendezvous_unref(rendezvous);
}

static void fill(struct crossing *crossing, size_t n_bytes) {
    memcpy(crossing->growing->data, crossing->source.data, n_bytes);
    growing_buffer_advance(crossing->growing, n_bytes);
}

static void fill_to_the_end(struct crossing *crossing) {
    fill(crossing, SIZE);
    growing_buffer_end(crossing->growing, NULL);
}

static uint32_t n_sent_slots(uint64_t step) {
    struct rendezvous *rendezvous = rendezvous_open(a.rendezvous, step, NULL, NULL);
    uint32_t n = rendezvous->n_slots;
    rendezvous_unref(rendezvous);
    return n;
}

/* The value is granted, and half of it is there. */
static void half_way(struct crossing *crossing, uint64_t step) {
    connect_both();
    crossing_begin(crossing, step);
    crossing_receive(crossing);
    crossing_send(crossing);
    LOOP_UNTIL(loop, n_sent_slots(step) == 0);
    fill(crossing, SIZE / 2);
    for (int i = 0; i < 20; i++)
        loop_iterate(loop);
    assert_int_equal(crossing->wait.n_calls, 0);
    assert_int_equal(fake_verbs.n_waiting, 0); /* nothing is written of what is not there */
}

static void crossing_end(struct crossing *crossing) {
    tensor_clear(&crossing->wait.value);
    tensor_clear(&crossing->source);
    end_step(&a, crossing->step);
    end_step(&b, crossing->step);
    LOOP_UNTIL(loop, buffer_is_sole(crossing->growing));
    buffer_unref(crossing->growing);
    assert_int_equal(atomic_load(&b.rendezvous->in_flight_bytes), 0);
}

static void expect_whole(struct crossing *crossing) {
    LOOP_UNTIL(loop, crossing->wait.n_calls == 1);
    assert_null(crossing->wait.status);
    assert_true(value_holds(&crossing->wait.value, n_large, (float)crossing->step));
}

static void check_growing_crosses(uint64_t step) {
    struct crossing crossing;
    uint64_t n_written = a.other->rdma.n_written;
    half_way(&crossing, step);
    fill_to_the_end(&crossing);
    expect_whole(&crossing);
    crossing_end(&crossing);
    LOOP_UNTIL(loop, a.other->rdma.n_written == n_written + 1);
}

static void a_growing_value_is_written_when_it_is_whole(void **state) {
    connect_both();
    assert_false(peer_sends_pieces(a.other)); /* so a step would not begin one now */
    check_growing_crosses(7);
    assert_true(task_says(&a, "\"pieces\":{\"values_sent\":0,"));
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static void it_is_written_to_a_slot_that_was_granted_before(void **state) {
    struct crossing crossing;
    connect_both();
    crossing_begin(&crossing, 7);
    crossing.in.shape = tensor_shape(&crossing.source);
    crossing.in.slot_bytes = SIZE;
    rendezvous_unref(rendezvous_open(a.rendezvous, 7, NULL, NULL));
    LOOP_UNTIL(loop, peer_pregrant_way(b.other) == PEER_PREGRANT_WRITE);
    crossing_receive(&crossing);
    LOOP_UNTIL(loop, atomic_load(peer_n_pending_pregrants(a.other)) == 1);
    uint64_t n_written = a.other->rdma.n_written;
    crossing_send(&crossing);
    fill_to_the_end(&crossing);
    expect_whole(&crossing);
    crossing_end(&crossing);
    LOOP_UNTIL(loop, a.other->rdma.n_written == n_written + 1);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static void a_value_whose_growth_fails_declines_its_slot(void **state) {
    struct crossing crossing;
    struct status *why = status_internal("the device is gone");
    half_way(&crossing, 7);
    growing_buffer_end(crossing.growing, why);
    status_unref(why);
    LOOP_UNTIL(loop, crossing.wait.n_calls == 1);
    assert_int_equal(status_code(crossing.wait.status), STATUS_INTERNAL);
    assert_non_null(strstr(status_message(crossing.wait.status), "the device is gone"));
    status_unref(crossing.wait.status);
    crossing_end(&crossing);
    assert_int_equal(a.n_lost + b.n_lost, 0);
    check_growing_crosses(8);
}

static void a_value_whose_connection_ends_is_sent_over_tcp(void **state) {
    struct crossing crossing;
    half_way(&crossing, 7);
    fake_verbs_break_receivers();
    LOOP_UNTIL(loop, peer_rdma_connection_to(&a.other->rdma) == 0);
    fill_to_the_end(&crossing);
    expect_whole(&crossing);
    crossing_end(&crossing);
    assert_int_equal(a.other->rdma.n_written, 0);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static void a_connection_may_end_at_any_moment_of_the_growth(void **state) {
    for (int n_turns = 0; n_turns < 8; n_turns++) {
        struct crossing crossing;
        half_way(&crossing, 7);
        fake_verbs_break_receivers();
        for (int i = 0; i < n_turns; i++)
            loop_iterate(loop);
        fill_to_the_end(&crossing);
        expect_whole(&crossing);
        crossing_end(&crossing);
        assert_int_equal(a.n_lost + b.n_lost, 0);
        teardown(state);
        setup(state);
    }
}

static void the_receivers_step_may_end_before_the_write(void **state) {
    struct crossing crossing;
    struct status *why = status_new(STATUS_CANCELLED, "enough");
    half_way(&crossing, 7);
    struct rendezvous *rendezvous = rendezvous_open(b.rendezvous, 7, NULL, NULL);
    rendezvous_abort(rendezvous, why);
    rendezvous_unref(rendezvous);
    status_unref(why);
    assert_int_equal(status_code(crossing.wait.status), STATUS_CANCELLED);
    status_unref(crossing.wait.status);
    end_step(&b, 7);
    fill_to_the_end(&crossing); /* the write ends what its slot holds */
    crossing_end(&crossing);
    check_growing_crosses(8);
}

static void a_peer_may_be_lost_before_the_write(void **state) {
    struct crossing crossing;
    half_way(&crossing, 7);
    struct transport_channel *control = b.other->channels[CHANNEL_CONTROL];
    control->transport->close(control, status_unavailable("cut"));
    LOOP_UNTIL(loop, a.n_lost == 1 && b.n_lost == 1);
    fill_to_the_end(&crossing);
    LOOP_UNTIL(loop, buffer_is_sole(crossing.growing));
    assert_int_equal(a.other->rdma.n_written, 0);
    struct rendezvous *rendezvous = rendezvous_open(b.rendezvous, 7, NULL, NULL);
    struct status *why = status_unavailable("lost"); /* as the task does when it loses the peer */
    rendezvous_abort(rendezvous, why);
    rendezvous_unref(rendezvous);
    status_unref(why);
    assert_int_equal(crossing.wait.n_calls, 1);
    status_unref(crossing.wait.status);
    crossing_end(&crossing);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_growing_value_is_written_when_it_is_whole),
        TEST(it_is_written_to_a_slot_that_was_granted_before),
        TEST(a_value_whose_growth_fails_declines_its_slot),
        TEST(a_value_whose_connection_ends_is_sent_over_tcp),
        TEST(a_connection_may_end_at_any_moment_of_the_growth),
        TEST(the_receivers_step_may_end_before_the_write),
        TEST(a_peer_may_be_lost_before_the_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
