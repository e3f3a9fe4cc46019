/* Two tasks for tests of pre-grants, with values that a sends and b receives: over a device made of
 * memory (RDMA) or over TCP. */
#ifndef MILLRACE_TESTS_UNIT_WORKER_PREGRANT_PAIR_H
#define MILLRACE_TESTS_UNIT_WORKER_PREGRANT_PAIR_H

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

static inline void connect_both(void) {
    peer_connect(a.other);
    if (a.peers->rdma.device)
        LOOP_UNTIL(loop, peer_pregrant_way(b.other) == PEER_PREGRANT_WRITE &&
                             task_says(&a, "\"to\":\"ready\",\"from\":\"ready\",\"written\""));
    else
        LOOP_UNTIL(loop, peer_pregrant_way(b.other) == PEER_PREGRANT_PUSH);
}

static inline int begin(enum rdma_mode mode) {
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
static inline int setup_half(void **state) {
    fake_verbs_reset();
    in_use_before = atomic_load(&allocator_host()->in_use_bytes);
    loop = loop_new();
    task_start_rdma(&a, loop, "/job:ps/replica:0/task:0", RDMA_OFF);
    task_start_rdma(&b, loop, "/job:worker/replica:0/task:0", RDMA_PREFER);
    tasks_meet_over_tcp(&a, &b);
    connect_both();
    return 0;
}

static inline int setup_rdma(void **state) { return begin(RDMA_PREFER); }
static inline int setup_require(void **state) { return begin(RDMA_REQUIRE); }
static inline int setup_tcp(void **state) { return begin(RDMA_OFF); }

static inline bool is_rdma(void) { return a.peers->rdma.device != NULL; }

/* Whatever has happened, nothing is granted, held, registered or in memory any more. */
static inline int teardown(void **state) {
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

static inline struct plan_channel channel_of(uint32_t edge) {
    return (struct plan_channel){.edge = edge,
                                 .tensor_name = "v:0",
                                 .peer_task = a.name,
                                 .dtype = DT_FLOAT,
                                 .shape = {1, dims},
                                 .slot_bytes = N_BYTES};
}

/* As a step's Recv starts; the channel outlives the step. */
static inline void receive_edge(uint64_t step, const struct plan_channel *channel,
                                struct session_credit *credit, struct wait *wait) {
    struct rendezvous *rendezvous = rendezvous_open(b.rendezvous, step, credit, NULL);
    memset(wait, 0, sizeof(*wait));
    wait->recv.on_value = wait_on_value;
    if (rendezvous_recv_start(rendezvous, channel, 0, &wait->recv, &wait->value))
        wait->n_calls = 1;
    rendezvous_flush(rendezvous);
    rendezvous_unref(rendezvous);
}

static struct plan_channel one;
static inline void receive(uint64_t step, struct wait *wait) {
    one = channel_of(1);
    receive_edge(step, &one, NULL, wait);
}

static inline void open_at_sender(uint64_t step) {
    rendezvous_unref(rendezvous_open(a.rendezvous, step, NULL, NULL));
}
static inline void send_value(uint64_t step, const struct tensor *value) {
    task_send(&a, b.name, step, 1, value);
}
static inline void make(struct tensor *t, float seed) {
    value_make(t, allocator_host(), N_FLOATS, seed);
}

static inline int n_held(void) { return atomic_load(peer_n_pending_pregrants(a.other)); }
static inline int64_t pregrant_bytes(void) { return atomic_load(&b.rendezvous->pregrant_bytes); }
static inline int64_t n_sent(void) { return metric_get(&worker_pregranted_sent_total); }
static inline int64_t n_arrived(void) { return metric_get(&worker_pregranted_received_total); }

static inline void end_both(uint64_t step) {
    rendezvous_end_step(a.rendezvous, step);
    rendezvous_end_step(b.rendezvous, step);
}

static inline void expect(struct wait *wait, float seed) {
    LOOP_UNTIL(loop, wait->n_calls == 1);
    assert_null(wait->status);
    assert_true(value_holds(&wait->value, N_FLOATS, seed));
    assert_true(tensor_is_sole(&wait->value));
    tensor_clear(&wait->value);
}

static inline void release(struct tensor *value) {
    LOOP_UNTIL(loop, tensor_is_sole(value));
    tensor_clear(value);
}

/* The grant is at the sender before the value is: the best case. */
static inline void check_goes_ahead(uint64_t step) {
    struct tensor value;
    struct wait wait;
    int64_t sent = n_sent(), arrived = n_arrived();
    open_at_sender(step);
    receive(step, &wait);
    assert_int_equal(pregrant_bytes(), N_BYTES);
    LOOP_UNTIL(loop, n_held() == 1);
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

static inline const struct peer_pending_write *prepared(void) {
    return LIST_ENTRY(b.other->rdma.prepared.next, struct peer_pending_write, link);
}

static inline bool is_prepared(void) {
    return task_says(&b, "\"prepared\":1") && prepared()->write.state == RDMA_GRANTED;
}

static inline struct str announce_meta(const struct tensor *value) {
    struct str meta = STR_INIT;
    edge_message_write(&meta, 1, 0, value, 0);
    return meta;
}

/* As if the peer had sent it. */
static inline struct status *task_hears(struct rendezvous_table *table, struct peer *peer,
                                        struct wire_message *message) {
    struct edge_message edge;
    TRY(edge_message_read(message->meta, &edge));
    return rendezvous_receiver.on_message(table, peer, message, &edge);
}

static inline struct status *tell_b(enum wire_type type, uint64_t step, const struct str *meta) {
    struct wire_message message = {.type = type, .id = step, .meta = {meta->data, meta->len}};
    return task_hears(b.rendezvous, b.other, &message);
}

static inline void expect_end(struct wait *wait) {
    assert_int_equal(wait->n_calls, 1);
    assert_non_null(wait->status);
    status_unref(wait->status);
}

#define RDMA(name) \
    { #name " (rdma)", name, setup_rdma, teardown, NULL }
#define REQUIRE(name) \
    { #name " (rdma required)", name, setup_require, teardown, NULL }
#define TCP(name) \
    { #name " (tcp)", name, setup_tcp, teardown, NULL }

#endif
