/* Two tasks with a rendezvous each, over a real connection, and helpers to send and receive floats:
 * for tests of the rendezvous. */
#ifndef MILLRACE_TESTS_UNIT_WORKER_RENDEZVOUS_PAIR_H
#define MILLRACE_TESTS_UNIT_WORKER_RENDEZVOUS_PAIR_H

#include "tests/unit/worker/two_tasks.h"
#include "worker/exchange/rendezvous_internal.h"

static struct loop *loop;
static struct test_task a, b;

static inline int setup(void **state) {
    loop = loop_new();
    task_init(&a, loop, "/job:worker/replica:0/task:0");
    task_init(&b, loop, "/job:ps/replica:0/task:0");
    tasks_meet(&a, &b);
    return 0;
}

static inline int teardown(void **state) {
    tasks_fini(&a, &b);
    return 0;
}

static inline bool start(struct rendezvous *rendezvous, const struct plan_channel *channel,
                         uint64_t frame_iter, struct wait *wait) {
    memset(wait, 0, sizeof(*wait));
    wait->recv.on_value = wait_on_value;
    return rendezvous_recv_start(rendezvous, channel, frame_iter, &wait->recv, &wait->value);
}

static inline struct plan_channel to_b(uint32_t edge, enum dtype dtype) {
    return (struct plan_channel){
        .edge = edge, .tensor_name = "x:0", .peer_task = b.name, .dtype = dtype};
}
static inline struct plan_channel from_a(uint32_t edge, enum dtype dtype) {
    return (struct plan_channel){
        .edge = edge, .tensor_name = "x:0", .peer_task = a.name, .dtype = dtype};
}
static inline struct plan_channel within_a(uint32_t edge, enum dtype dtype) {
    return from_a(edge, dtype);
}

static inline void send_floats(struct rendezvous *rendezvous, struct plan_channel channel,
                               uint64_t frame_iter, int64_t n, float seed) {
    struct tensor t;
    value_make(&t, allocator_host(), n, seed);
    assert_null(rendezvous_send(rendezvous, &channel, frame_iter, &t));
    assert_int_equal(t.storage, TENSOR_NONE);
    rendezvous_flush(rendezvous);
}

static inline void expect_failure(struct wait *wait, enum status_code code, const char *words) {
    assert_int_equal(wait->n_calls, 1);
    assert_int_equal(status_code(wait->status), code);
    if (!strstr(status_message(wait->status), words))
        fail_msg("\"%s\" does not say \"%s\"", status_message(wait->status), words);
    status_unref(wait->status);
}

static inline void end(struct test_task *task, struct rendezvous *rendezvous, uint64_t step_id) {
    rendezvous_end_step(task->rendezvous, step_id);
    rendezvous_unref(rendezvous);
}

static inline void check_crossing(int64_t n, bool recv_first) {
    struct plan_channel out = to_b(3, DT_FLOAT), in = from_a(3, DT_FLOAT);
    static uint64_t step_id = 100;
    step_id++;
    struct rendezvous *sender = rendezvous_open(a.rendezvous, step_id, NULL, NULL),
                      *receiver = rendezvous_open(b.rendezvous, step_id, NULL, NULL);
    struct wait wait = {0};
    peer_connect(a.other);
    if (recv_first)
        assert_false(start(receiver, &in, 9, &wait));
    send_floats(sender, out, 9, n, 4);
    if (!recv_first) {
        struct tensor last; /* what was sent after it has come: so has it, or its announcement */
        value_make(&last, allocator_host(), 1, 0);
        struct plan_channel out_2 = to_b(4, DT_FLOAT), in_2 = from_a(4, DT_FLOAT);
        struct wait second;
        assert_null(rendezvous_send(sender, &out_2, 9, &last));
        rendezvous_flush(sender);
        if (!start(receiver, &in_2, 9, &second))
            LOOP_UNTIL(loop, second.n_calls == 1);
        tensor_clear(&second.value);
        if (start(receiver, &in, 9, &wait))
            wait.n_calls = 1;
    }
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_null(wait.status);
    assert_true(value_holds(&wait.value, n, 4));
    tensor_clear(&wait.value);
    assert_int_equal(a.n_lost + b.n_lost, 0);
    assert_int_equal(atomic_load(&b.rendezvous->in_flight_bytes), 0);
    end(&a, sender, step_id);
    end(&b, receiver, step_id);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
