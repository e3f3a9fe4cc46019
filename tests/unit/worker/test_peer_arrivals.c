/* Large values whose stripes arrive: a Recv for a device gets the value when its first bytes are
 * there, in every order of the stripes. A sender that breaks the rules half-way, a step that ends
 * and a peer that is lost end the growth with one failure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/worker/growing_pair.h"

/* A crossing whose receiver takes growing values. */
static struct crossing begin(void) {
    struct crossing crossing = crossing_begin();
    crossing.in.takes_growing = true;
    return crossing;
}

/* Returns what the Recv was given before the value was whole. */
static struct buffer *expect_growing(struct crossing *crossing) {
    LOOP_UNTIL(loop, crossing->wait.n_calls == 1);
    assert_null(crossing->wait.status);
    struct buffer *buffer = crossing->wait.value.buffer;
    assert_true(buffer_is_growing(buffer));
    assert_int_equal(tensor_size_bytes(&crossing->wait.value), SIZE);
    return buffer;
}

static void expect_filled(const struct buffer *buffer, size_t n_bytes) {
    LOOP_UNTIL(loop, growing_buffer_filled(buffer) >= n_bytes);
    assert_int_equal(growing_buffer_filled(buffer), n_bytes);
}

static void expect_end(const struct crossing *crossing) {
    const struct buffer *buffer = crossing->wait.value.buffer;
    LOOP_UNTIL(loop, !buffer_is_growing(buffer));
    assert_null(growing_buffer_failure(buffer));
    assert_true(value_holds(&crossing->wait.value, n_floats, (float)crossing->step));
}

/* The growth has failed with the reason, and names the tensor and its sender. */
static void expect_growth_failure(const struct crossing *crossing, enum status_code code,
                                  const char *why) {
    struct buffer *buffer = crossing->wait.value.buffer;
    LOOP_UNTIL(loop, growing_buffer_failure(buffer) != NULL);
    struct status *failure = growing_buffer_failure(buffer);
    const char *parts[] = {"x:0", a.name, why};
    assert_int_equal(status_code(failure), code);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        if (!strstr(status_message(failure), parts[i]))
            fail_msg("\"%s\" does not say \"%s\"", status_message(failure), parts[i]);
    assert_true(growing_buffer_filled(buffer) < SIZE);
    assert_int_equal(crossing->wait.n_calls, 1); /* the Recv was told once */
}

/* ---- values that arrive ---- */

static void check_handing_on(struct crossing crossing) {
    uint64_t n_handed_on = b.other->streams.n_handed_on;
    crossing_start(&crossing);
    fill(&crossing, PIECE);
    struct buffer *buffer = expect_growing(&crossing);
    for (int i = 1; i < N_PIECES; i++) {
        expect_filled(buffer, (size_t)i * PIECE);
        assert_memory_equal(buffer->data, crossing.source.data, (size_t)i * PIECE);
        assert_true(atomic_load(&b.rendezvous->in_flight_bytes) == SIZE || crossing.in.slot_bytes);
        if (i + 1 < N_PIECES)
            fill(&crossing, (size_t)(i + 1) * PIECE);
    }
    fill_to_the_end(&crossing);
    expect_end(&crossing);
    assert_int_equal(b.other->streams.n_handed_on, n_handed_on + 1);
    crossing_end(&crossing);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static void a_value_for_a_device_is_handed_on_with_its_first_piece(void **state) {
    check_handing_on(begin());
    check_handing_on(begin());
}

static void one_for_a_cpu_is_handed_on_whole(void **state) {
    struct crossing crossing = crossing_begin();
    crossing_start(&crossing);
    fill(&crossing, 3 * PIECE);
    await_pieces(&crossing, 3);
    assert_int_equal(crossing.wait.n_calls, 0);
    fill_to_the_end(&crossing);
    expect_whole(&crossing);
    assert_false(buffer_is_growing(crossing.wait.value.buffer));
    assert_int_equal(b.other->streams.n_handed_on, 0);
    crossing_end(&crossing);
}

static void a_recv_that_starts_late_gets_what_is_there(void **state) {
    struct crossing crossing = begin();
    crossing_send(&crossing); /* it is granted although no Recv waits */
    fill(&crossing, 2 * PIECE);
    await_pieces(&crossing, 2);
    assert_false(start(crossing.receiver, &crossing.in, 0, &crossing.wait));
    fill(&crossing, 3 * PIECE);
    expect_filled(expect_growing(&crossing), 3 * PIECE);
    fill_to_the_end(&crossing);
    expect_end(&crossing);
    crossing_end(&crossing);
}

static void a_pregranted_value_is_handed_on_too(void **state) {
    struct crossing crossing = begin();
    crossing.in.shape = tensor_shape(&crossing.source);
    crossing.in.slot_bytes = SIZE;
    check_handing_on(crossing);
    assert_int_equal(atomic_load(&b.rendezvous->pregrant_bytes), 0);
}

static void a_value_over_several_sockets_is_handed_on_too(void **state) {
    peer_table_set_streams(a.peers, 3);
    check_handing_on(begin());
    LOOP_UNTIL(loop, a.other->streams.greeted == (1u << 3) - 2);
    for (int i = 0; i < 3; i++)
        check_handing_on(begin());
}

static void a_second_receive_of_it_is_an_error(void **state) {
    struct crossing crossing = begin();
    struct wait second;
    crossing_start(&crossing);
    fill(&crossing, PIECE);
    expect_growing(&crossing);
    assert_false(start(crossing.receiver, &crossing.in, 0, &second));
    LOOP_UNTIL(loop, second.n_calls == 1);
    expect_failure(&second, STATUS_INTERNAL, "two receives of x:0");
    fill_to_the_end(&crossing);
    expect_end(&crossing);
    crossing_end(&crossing);
}

static void the_page_names_it(void **state) {
    struct crossing crossing = begin();
    struct str page = STR_INIT;
    crossing_start(&crossing);
    fill(&crossing, PIECE);
    expect_growing(&crossing);
    rendezvous_table_page(b.rendezvous, true, &page);
    assert_non_null(strstr(str_text(&page), "arriving, and copied to a device meanwhile"));
    assert_non_null(strstr(str_text(&page), "x:0"));
    str_fini(&page);
    fill_to_the_end(&crossing);
    expect_end(&crossing);
    crossing_end(&crossing);
}

/* ---- what ends a value half-way ---- */

/* Two of its pieces have arrived. */
static void half_way(struct crossing *crossing) {
    *crossing = begin();
    crossing_start(crossing);
    fill(crossing, 2 * PIECE);
    expect_filled(expect_growing(crossing), 2 * PIECE);
}

static void an_abort_of_the_step_ends_it(void **state) {
    struct crossing crossing;
    half_way(&crossing);
    struct status *why = status_new(STATUS_CANCELLED, "the session was closed");
    rendezvous_abort(crossing.receiver, why);
    status_unref(why);
    expect_growth_failure(&crossing, STATUS_CANCELLED, "the session was closed");
    assert_int_equal(atomic_load(&b.rendezvous->in_flight_bytes), 0);
    fill_to_the_end(&crossing); /* what still comes is dropped */
    await_pieces(&crossing, N_PIECES);
    LOOP_UNTIL(loop, list_is_empty(&b.other->streams.arrivals));
    LOOP_UNTIL(loop, buffer_is_sole(crossing.wait.value.buffer));
    crossing_end(&crossing);
    assert_int_equal(a.n_lost + b.n_lost, 0);
    check_handing_on(begin());
}

static void so_does_the_end_of_the_step(void **state) {
    struct crossing crossing;
    half_way(&crossing);
    rendezvous_end_step(b.rendezvous, crossing.step);
    struct status *failure = growing_buffer_failure(crossing.wait.value.buffer);
    assert_int_equal(status_code(failure), STATUS_CANCELLED);
    fill_to_the_end(&crossing);
    LOOP_UNTIL(loop, list_is_empty(&b.other->streams.arrivals));
    crossing_end(&crossing);
}

static void and_a_failure_at_the_sender(void **state) {
    struct crossing crossing;
    half_way(&crossing);
    struct status *why = status_internal("the device is gone");
    growing_buffer_end(crossing.growing, why);
    status_unref(why);
    expect_growth_failure(&crossing, STATUS_INTERNAL, "the device is gone");
    LOOP_UNTIL(loop, list_is_empty(&b.other->streams.arrivals));
    crossing_end(&crossing);
    assert_int_equal(a.n_lost + b.n_lost, 0);
    check_handing_on(begin());
}

/* As the task does when it loses the peer. */
static void abort_as_lost(struct crossing *crossing) {
    LOOP_UNTIL(loop, a.n_lost == 1 && b.n_lost == 1);
    struct status *why = status_new(b.lost_code, "%s", str_text(&b.lost_why));
    rendezvous_abort(crossing->receiver, why);
    status_unref(why);
}

static void and_the_loss_of_its_sender(void **state) {
    struct crossing crossing;
    half_way(&crossing);
    struct transport_channel *bulk = b.other->channels[CHANNEL_BULK];
    bulk->transport->close(bulk, status_unavailable("cut"));
    abort_as_lost(&crossing);
    expect_growth_failure(&crossing, STATUS_UNAVAILABLE, "cut");
    growing_buffer_end(crossing.growing, NULL);
    LOOP_UNTIL(loop, buffer_is_sole(crossing.wait.value.buffer));
    crossing_end(&crossing);
    a.n_lost = b.n_lost = 0;
    check_handing_on(begin());
}

static void and_the_end_of_the_receiving_task(void **state) {
    struct crossing crossing;
    half_way(&crossing);
    rendezvous_end_step(b.rendezvous, crossing.step);
    rendezvous_unref(crossing.receiver);
    rendezvous_table_free(b.rendezvous);
    peer_table_free(b.peers);
    b.rendezvous = NULL;
    b.peers = NULL;
    assert_non_null(growing_buffer_failure(crossing.wait.value.buffer));
    growing_buffer_end(crossing.growing, NULL);
    LOOP_UNTIL(loop, a.n_lost == 1 && buffer_is_sole(crossing.growing));
    LOOP_UNTIL(loop, buffer_is_sole(crossing.wait.value.buffer));
    buffer_unref(crossing.growing);
    tensor_clear(&crossing.wait.value);
    tensor_clear(&crossing.source);
    end(&a, crossing.sender, crossing.step);
}

/* ---- stripes by hand: task a is granted the value, and the test sends what it likes ---- */

/* What is wrong with a message. All zero: a right piece. */
struct oddity {
    enum wire_type type; /* 0: a Stripe */
    int64_t more_total, more_stripe, more_payload, more_dims;
    enum dtype dtype;
    bool is_dead, has_proto;
    size_t payload_bytes; /* of a Push */
};

static void write_push(struct str *out, const struct crossing *crossing,
                       const struct oddity *oddity) {
    struct tensor value = TENSOR_INIT;
    int64_t n = n_floats + oddity->more_dims;
    if (oddity->is_dead) {
        tensor_init_dead(&value);
        edge_message_write(out, EDGE, 0, &value, 0);
        return;
    }
    if (oddity->has_proto) { /* edge, frame and a TensorMeta with a TensorProto */
        static const char meta[] = {0x1a, 0x06, 0x08, 0x01, 0x2a, 0x02, 0x08, 0x01};
        edge_message_write(out, EDGE, 0, NULL, 0);
        str_add_bytes(out, meta, sizeof(meta));
        return;
    }
    edge_message_write_expected(out, EDGE, 0, oddity->dtype ? oddity->dtype : DT_FLOAT,
                                (struct shape){1, &n}, (size_t)n * sizeof(float));
}

static void send_piece(const struct crossing *crossing, unsigned index,
                       const struct oddity *oddity) {
    struct str push = STR_INIT;
    uint8_t meta[512];
    Millrace__Stripe stripe = MILLRACE__STRIPE__INIT;
    size_t begin = (size_t)index * PIECE, size = MIN((size_t)PIECE, SIZE - begin);
    write_push(&push, crossing, oddity);
    stripe.total_bytes = (uint64_t)(SIZE + oddity->more_total);
    stripe.stripe_bytes = (uint64_t)(PIECE + oddity->more_stripe);
    stripe.n_stripes = (unsigned)((stripe.total_bytes - 1) / stripe.stripe_bytes + 1);
    stripe.index = index;
    stripe.push = (ProtobufCBinaryData){.len = push.len, .data = (uint8_t *)push.data};
    struct wire_out out = {
        .type = WIRE_STRIPE,
        .id = crossing->step,
        .meta = {(char *)meta, millrace__stripe__pack(&stripe, meta)},
        .extra = {crossing->source.data + begin, size + (size_t)oddity->more_payload}};
    if (oddity->type == WIRE_PUSH) {
        out.type = WIRE_PUSH;
        out.meta = (struct span){push.data, push.len};
        out.extra = (struct span){crossing->source.data, oddity->payload_bytes};
    }
    assert_true(peer_queue(a.other, CHANNEL_BULK, &out));
    peer_flush(a.other, CHANNEL_BULK);
    str_fini(&push);
}

static void granted(struct crossing *crossing) {
    *crossing = begin();
    crossing_start(crossing);
    LOOP_UNTIL(loop, crossing->sender->n_slots == 0); /* the grant is there */
}

/* Task a sends nothing more of the value, and says nothing of it. */
static void crossing_forget(struct crossing *crossing) {
    a.other->takes_pieces = false;
    struct status *why = status_internal("never filled");
    growing_buffer_end(crossing->growing, why);
    status_unref(why);
    LOOP_UNTIL(loop, buffer_is_sole(crossing->growing));
    a.other->takes_pieces = true;
    crossing_end(crossing);
}

static void pieces_may_come_in_any_order(void **state) {
    static const unsigned orders[][N_PIECES] = {
        {4, 3, 2, 1, 0}, {1, 0, 2, 4, 3}, {0, 2, 4, 3, 1}, {4, 0, 1, 3, 2}, {0, 1, 2, 3, 4}};
    for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
        struct crossing crossing;
        granted(&crossing);
        bool is_there[N_PIECES] = {false};
        for (int k = 0; k < N_PIECES; k++) {
            send_piece(&crossing, orders[i][k], &(struct oddity){0});
            await_pieces(&crossing, (uint64_t)k + 1);
            is_there[orders[i][k]] = true;
            unsigned n_front = 0;
            while (n_front < N_PIECES && is_there[n_front])
                n_front++;
            if (n_front == 0 || k + 1 == N_PIECES)
                continue;
            struct buffer *buffer = expect_growing(&crossing);
            expect_filled(buffer, (size_t)n_front * PIECE);
            assert_memory_equal(buffer->data, crossing.source.data, (size_t)n_front * PIECE);
        }
        LOOP_UNTIL(loop, crossing.wait.n_calls == 1);
        if (orders[i][N_PIECES - 1] != 0)
            expect_end(&crossing);
        else
            expect_whole(&crossing);
        crossing_forget(&crossing);
    }
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

/* After two right pieces, one that breaks the rules. */
static void check_refused(unsigned index, struct oddity oddity) {
    struct crossing crossing;
    granted(&crossing);
    send_piece(&crossing, 0, &(struct oddity){0});
    send_piece(&crossing, 1, &(struct oddity){0});
    expect_filled(expect_growing(&crossing), 2 * PIECE);
    send_piece(&crossing, index, &oddity);
    abort_as_lost(&crossing);
    expect_growth_failure(&crossing, b.lost_code, a.name);
    assert_int_equal(b.other->streams.n_arrivals, 0);
    LOOP_UNTIL(loop, buffer_is_sole(crossing.wait.value.buffer));
    crossing_forget(&crossing);
    a.n_lost = b.n_lost = 0;
    check_handing_on(begin());
}

static void a_piece_that_comes_twice_is_refused(void **state) {
    check_refused(0, (struct oddity){0});
    check_refused(1, (struct oddity){0});
}
static void so_is_one_of_another_total(void **state) {
    check_refused(2, (struct oddity){.more_total = -4});
    check_refused(2, (struct oddity){.more_total = 4});
}
static void so_is_one_of_another_division(void **state) {
    check_refused(2, (struct oddity){.more_stripe = -(1 << 20), .more_payload = -(1 << 20)});
}
static void so_is_one_that_is_too_short(void **state) {
    check_refused(2, (struct oddity){.more_payload = -1});
    check_refused(4, (struct oddity){.more_payload = -(2 << 20) + 1});
}
static void so_is_one_that_is_too_long(void **state) {
    check_refused(1 + 1, (struct oddity){.more_payload = 1});
}
static void so_is_one_of_another_shape(void **state) {
    check_refused(2, (struct oddity){.more_dims = -1});
}
static void so_is_one_of_another_type(void **state) {
    check_refused(2, (struct oddity){.dtype = DT_INT32});
}
static void so_is_the_whole_value_in_its_place(void **state) {
    check_refused(2, (struct oddity){.type = WIRE_PUSH, .payload_bytes = SIZE});
}
static void so_is_a_small_value_in_its_place(void **state) {
    check_refused(
        2, (struct oddity){.type = WIRE_PUSH, .payload_bytes = 40, .more_dims = 10 - n_floats});
}
static void so_is_a_dead_value_in_its_place(void **state) {
    check_refused(2, (struct oddity){.type = WIRE_PUSH, .is_dead = true});
}

/* A value that is not what was announced is handed on whole, as a Push is, or refused then. */
static void check_only_whole(struct oddity oddity, const char *error) {
    struct crossing crossing;
    granted(&crossing);
    uint64_t n_handed_on = b.other->streams.n_handed_on;
    for (unsigned i = 0; i < N_PIECES; i++) {
        assert_int_equal(crossing.wait.n_calls, 0);
        send_piece(&crossing, i, &oddity);
        await_pieces(&crossing, i + 1);
    }
    LOOP_UNTIL(loop, crossing.wait.n_calls == 1);
    if (error)
        expect_failure(&crossing.wait, STATUS_INTERNAL, error);
    else
        assert_null(crossing.wait.status);
    assert_int_equal(b.other->streams.n_handed_on, n_handed_on);
    crossing_forget(&crossing);
    assert_int_equal(a.n_lost + b.n_lost, 0);
    check_handing_on(begin());
}

static void a_value_of_another_shape_is_handed_on_whole(void **state) {
    check_only_whole((struct oddity){.more_dims = -1}, NULL);
}
static void so_is_one_of_another_type_as_an_error(void **state) {
    check_only_whole((struct oddity){.dtype = DT_INT32}, "carries float");
}
static void so_is_a_dead_one_with_bytes(void **state) {
    check_only_whole((struct oddity){.is_dead = true}, NULL);
}
static void so_is_one_whose_meta_has_a_tensorproto(void **state) {
    check_only_whole((struct oddity){.has_proto = true}, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST_TCP(a_value_for_a_device_is_handed_on_with_its_first_piece),
        TEST_TCP(one_for_a_cpu_is_handed_on_whole),
        TEST_TCP(a_recv_that_starts_late_gets_what_is_there),
        TEST_TCP(a_pregranted_value_is_handed_on_too),
        TEST_TCP(a_value_over_several_sockets_is_handed_on_too),
        TEST_TCP(a_second_receive_of_it_is_an_error),
        TEST_TCP(the_page_names_it),
        TEST_TCP(an_abort_of_the_step_ends_it),
        TEST_TCP(so_does_the_end_of_the_step),
        TEST_TCP(and_a_failure_at_the_sender),
        TEST_TCP(and_the_loss_of_its_sender),
        TEST_TCP(and_the_end_of_the_receiving_task),
        TEST_TCP(pieces_may_come_in_any_order),
        TEST_TCP(a_piece_that_comes_twice_is_refused),
        TEST_TCP(so_is_one_of_another_total),
        TEST_TCP(so_is_one_of_another_division),
        TEST_TCP(so_is_one_that_is_too_short),
        TEST_TCP(so_is_one_that_is_too_long),
        TEST_TCP(so_is_one_of_another_shape),
        TEST_TCP(so_is_one_of_another_type),
        TEST_TCP(so_is_the_whole_value_in_its_place),
        TEST_TCP(so_is_a_small_value_in_its_place),
        TEST_TCP(so_is_a_dead_value_in_its_place),
        TEST_TCP(a_value_of_another_shape_is_handed_on_whole),
        TEST_TCP(so_is_one_of_another_type_as_an_error),
        TEST_TCP(so_is_a_dead_one_with_bytes),
        TEST_TCP(so_is_one_whose_meta_has_a_tensorproto),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
