/* One large value from task a to task b over TCP, which the test fills as a device's copy would:
 * for tests of values that are sent, or handed on, while they grow. */
#ifndef MILLRACE_TESTS_UNIT_WORKER_GROWING_PAIR_H
#define MILLRACE_TESTS_UNIT_WORKER_GROWING_PAIR_H

#include "common/tensor/growing_buffer.h"
#include "tests/unit/worker/rendezvous_pair.h"
#include "worker/exchange/peer_internal.h"

enum { MIB = 1 << 20, PIECE = PEER_PIECE_BYTES, N_PIECES = 5, SIZE = 18 * MIB, EDGE = 3 };
static const int64_t n_floats = SIZE / (int64_t)sizeof(float);

static inline int setup_tcp(void **state) {
    setup(state);
    task_listen_tcp(&a, "127.0.0.1");
    task_listen_tcp(&b, "127.0.0.1");
    tasks_meet_over_tcp(&a, &b);
    return 0;
}

/* One value from a to b in a step of its own. The test fills it. */
struct crossing {
    uint64_t step;
    struct rendezvous *sender, *receiver;
    struct plan_channel out, in;
    struct wait wait;
    struct tensor source; /* what the value will hold */
    struct buffer *growing;
    uint64_t n_received; /* pieces, before */
};

static inline void connect_tasks(void) {
    if (a.other->channels[CHANNEL_CONTROL])
        return;
    peer_connect(a.other);
    LOOP_UNTIL(loop, a.other->takes_pieces && b.other->takes_pieces);
}

static inline struct crossing crossing_begin(void) {
    static uint64_t step = 500;
    struct crossing crossing = {
        .step = ++step, .out = to_b(EDGE, DT_FLOAT), .in = from_a(EDGE, DT_FLOAT)};
    connect_tasks();
    crossing.sender = rendezvous_open(a.rendezvous, step, NULL, NULL);
    crossing.receiver = rendezvous_open(b.rendezvous, step, NULL, NULL);
    value_make(&crossing.source, allocator_host(), n_floats, (float)step);
    crossing.growing = growing_buffer_new(allocator_host(), SIZE);
    crossing.n_received = b.other->streams.n_pieces_received;
    return crossing;
}

static inline void crossing_send(struct crossing *crossing) {
    struct tensor value = TENSOR_INIT;
    assert_null(tensor_view(crossing->growing, crossing->growing->data, DT_FLOAT,
                            tensor_shape(&crossing->source), &value));
    assert_null(rendezvous_send(crossing->sender, &crossing->out, 0, &value));
    rendezvous_flush(crossing->sender);
}

static inline void crossing_start(struct crossing *crossing) {
    assert_false(start(crossing->receiver, &crossing->in, 0, &crossing->wait));
    rendezvous_flush(crossing->receiver);
    crossing_send(crossing);
}

/* The first n_bytes are there. */
static inline void fill(struct crossing *crossing, size_t n_bytes) {
    size_t begin = growing_buffer_filled(crossing->growing);
    memcpy(crossing->growing->data + begin, crossing->source.data + begin, n_bytes - begin);
    growing_buffer_advance(crossing->growing, n_bytes);
}

static inline void fill_to_the_end(struct crossing *crossing) {
    fill(crossing, SIZE);
    growing_buffer_end(crossing->growing, NULL);
}

static inline void await_pieces(const struct crossing *crossing, uint64_t n) {
    LOOP_UNTIL(loop, b.other->streams.n_pieces_received == crossing->n_received + n);
}

static inline void crossing_end(struct crossing *crossing) {
    tensor_clear(&crossing->wait.value);
    tensor_clear(&crossing->source);
    end(&a, crossing->sender, crossing->step);
    end(&b, crossing->receiver, crossing->step);
    LOOP_UNTIL(loop, buffer_is_sole(crossing->growing)); /* nothing is sent from it any more */
    buffer_unref(crossing->growing);
    assert_true(list_is_empty(&b.other->streams.arrivals));
    assert_int_equal(atomic_load(&b.rendezvous->in_flight_bytes), 0);
}

static inline void expect_whole(struct crossing *crossing) {
    LOOP_UNTIL(loop, crossing->wait.n_calls == 1);
    assert_null(crossing->wait.status);
    assert_true(value_holds(&crossing->wait.value, n_floats, (float)crossing->step));
}

#define TEST_TCP(name) cmocka_unit_test_setup_teardown(name, setup_tcp, teardown)

#endif
