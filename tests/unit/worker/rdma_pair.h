/* Two tasks that write into each other's memory, over a device made of memory, for tests of RDMA
 * between tasks. */
#ifndef MILLRACE_TESTS_UNIT_WORKER_RDMA_PAIR_H
#define MILLRACE_TESTS_UNIT_WORKER_RDMA_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/worker/rdma_task.h"
#include "worker/exchange/peer_internal.h"

static struct loop *loop;
static struct test_task a, b;
static enum rdma_mode mode_a = RDMA_PREFER, mode_b = RDMA_PREFER;
static int64_t in_use_before;

static inline void start_with(enum rdma_mode first, enum rdma_mode second) {
    loop = loop_new();
    task_start_rdma(&a, loop, "/job:ps/replica:0/task:0", first);
    task_start_rdma(&b, loop, "/job:worker/replica:0/task:0", second);
    tasks_meet_over_tcp(&a, &b);
}

static inline int setup(void **state) {
    fake_verbs_reset();
    in_use_before = atomic_load(&allocator_host()->in_use_bytes);
    start_with(mode_a, mode_b);
    return 0;
}

/* Messages of at most 64 KiB, so that a value needs many. */
static inline int setup_small_messages(void **state) {
    fake_verbs_reset();
    fake_verbs.ports[0].max_message_bytes = 65536;
    in_use_before = atomic_load(&allocator_host()->in_use_bytes);
    start_with(RDMA_PREFER, RDMA_PREFER);
    return 0;
}

/* Checks that all registrations, queue pairs and memory have been freed, whatever has happened. */
static inline int teardown(void **state) {
    fake_verbs_let_register();
    tasks_fini(&a, &b);
    assert_int_equal(fake_verbs.n_regions, 0);
    assert_int_equal(fake_verbs.n_queue_pairs, 0);
    assert_int_equal(fake_verbs.n_domains, 0);
    assert_int_equal(atomic_load(&allocator_host()->in_use_bytes), in_use_before);
    return 0;
}

/* ---- values ---- */

static const int64_t n_floats = 300001; /* 1.2 MB and no round number */

static inline void receive(struct test_task *task, const struct test_task *from, uint64_t step,
                           struct wait *wait) {
    task_receive(task, from->name, step, 1, wait);
}
static inline void send_value(struct test_task *task, const struct test_task *to, uint64_t step,
                              const struct tensor *value) {
    task_send(task, to->name, step, 1, value);
}
static inline void make(struct tensor *t, float seed) {
    value_make(t, allocator_host(), n_floats, seed);
}
static inline bool holds(const struct tensor *t, float seed) {
    return value_holds(t, n_floats, seed);
}

#define READY_TO "\"to\":\"ready\",\"from\""
#define READY_FROM "\"from\":\"ready\",\"written\""

static inline void connect_both(void) {
    peer_connect(a.other);
    LOOP_UNTIL(loop, task_says(&a, READY_TO) && task_says(&a, READY_FROM) &&
                         task_says(&b, READY_TO) && task_says(&b, READY_FROM));
}

/* A value of a step of its own crosses and is right. */
static inline void check_crosses(struct test_task *from, struct test_task *to, uint64_t step) {
    struct tensor value;
    struct wait wait;
    make(&value, (float)step);
    peer_connect(from->other);
    receive(to, from, step, &wait);
    send_value(from, to, step, &value);
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_null(wait.status);
    assert_true(holds(&wait.value, (float)step));
    tensor_clear(&wait.value);
    LOOP_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
    rendezvous_end_step(from->rendezvous, step);
    rendezvous_end_step(to->rendezvous, step);
}

enum moment { REGISTERING, GRANTED, HALF_WRITTEN, WRITTEN };

/* Sends b a value in step 7 and brings it to that moment. */
static inline void bring_to(enum moment moment, float seed, struct tensor *value,
                            struct wait *wait) {
    connect_both();
    make(value, seed);
    fake_verbs.is_held = true;
    fake_verbs.is_registering_held = moment == REGISTERING;
    receive(&b, &a, 7, wait);
    send_value(&a, &b, 7, value);
    if (moment == REGISTERING)
        LOOP_UNTIL(loop, task_says(&b, "\"in_flight_bytes\":1200004"));
    else
        LOOP_UNTIL(loop, fake_verbs.n_waiting > 1);
    if (moment == HALF_WRITTEN)
        fake_verbs_run(2);
    if (moment == WRITTEN)
        fake_verbs_run(-1);
}

static inline void release(struct wait *wait) {
    if (wait->status)
        status_unref(wait->status);
    else
        tensor_clear(&wait->value);
}

static inline void end_step(struct test_task *task, uint64_t step) {
    rendezvous_end_step(task->rendezvous, step);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define TEST_WITH(name, its_setup) cmocka_unit_test_setup_teardown(name, its_setup, teardown)

#endif
