/* A part of a step sends values and ends, and their connection is lost before the other part
 * begins. The other part must not wait for these values. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/worker/two_tasks.h"
#include "worker/exchange/peer_internal.h"
#include "worker/exchange/rendezvous_internal.h"

static struct loop *loop;
static struct test_task a, b;

static int setup_with(int64_t heartbeat_ms) {
    loop = loop_new();
    task_init(&a, loop, "/job:worker/replica:0/task:0");
    task_init(&b, loop, "/job:ps/replica:0/task:0");
    peer_table_set_heartbeat(a.peers, heartbeat_ms);
    tasks_meet(&a, &b);
    peer_connect(a.other);
    LOOP_UNTIL(loop, b.other->channels[CHANNEL_CONTROL] != NULL);
    return 0;
}

static int setup(void **state) { return setup_with(20); }
static int setup_patient(void **state) { return setup_with(1000); }

static int teardown(void **state) {
    tasks_fini(&a, &b);
    return 0;
}

/* A whole part at `a`: sends n floats to `b` and ends. */
static void run_sender(uint64_t step, int64_t n) {
    struct tensor value;
    value_make(&value, allocator_host(), n, 1);
    task_send(&a, b.name, step, 3, &value);
    tensor_clear(&value);
    rendezvous_end_step(a.rendezvous, step);
}

/* Without having read what has come. */
static void break_connection_at_b(void) {
    struct transport_channel *channel = b.other->channels[CHANNEL_CONTROL];
    channel->transport->close(channel, status_unavailable("cut"));
    LOOP_UNTIL(loop, a.n_lost == 1 && b.n_lost == 1);
}

static void expect_lost(struct wait *wait) {
    LOOP_UNTIL(loop, wait->n_calls == 1);
    assert_int_equal(status_code(wait->status), STATUS_UNAVAILABLE);
    assert_non_null(strstr(status_message(wait->status), a.name));
    assert_non_null(strstr(status_message(wait->status), "may have been lost"));
    status_unref(wait->status);
}

static void a_step_that_comes_after_the_loss_fails(void **state) {
    struct wait wait;
    run_sender(7, 10);
    break_connection_at_b();
    peer_connect(b.other); /* as its RunGraph does */
    task_receive(&b, a.name, 7, 3, &wait);
    expect_lost(&wait);
    rendezvous_end_step(b.rendezvous, 7);
}

static void a_step_that_comes_after_others_have_connected_fails(void **state) {
    struct wait wait;
    run_sender(7, 10);
    break_connection_at_b();
    peer_connect(a.other);
    LOOP_UNTIL(loop, b.rendezvous->steps.n_entries == 1); /* it has been told */
    task_receive(&b, a.name, 7, 3, &wait);
    expect_lost(&wait);
    rendezvous_end_step(b.rendezvous, 7);
}

/* The sender's part ends while nobody looks at the connection, and a step after it is well. */
static void steps_after_the_loss_are_not_touched(void **state) {
    struct wait wait;
    run_sender(7, 10);
    break_connection_at_b();
    peer_connect(a.other);
    run_sender(8, 10);
    LOOP_UNTIL(loop, b.rendezvous->steps.n_entries == 2);
    task_receive(&b, a.name, 8, 3, &wait);
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_null(wait.status);
    assert_true(value_holds(&wait.value, 10, 1));
    tensor_clear(&wait.value);
    rendezvous_end_step(b.rendezvous, 7);
    rendezvous_end_step(b.rendezvous, 8);
}

/* The step was meant for the new process, and was sent to the old one, whose end nobody saw. */
static void a_step_sent_to_the_process_before_a_restart_fails(void **state) {
    struct test_task c;
    struct wait wait;
    struct peer *same;
    task_init(&c, loop, b.name); /* b is gone from now on */
    assert_null(
        peer_table_know(c.peers, a.name, "127.0.0.1:1", a.address, a.incarnation, &c.other));
    assert_null(peer_table_know(a.peers, b.name, "127.0.0.1:1", c.address, c.incarnation, &same));
    run_sender(7, 10);
    peer_connect(c.other);
    task_receive(&c, a.name, 7, 3, &wait);
    expect_lost(&wait);
    rendezvous_end_step(b.rendezvous, 7);
    rendezvous_end_step(c.rendezvous, 7);
    task_fini(&c);
}

static void what_was_acknowledged_survives_the_loss(void **state) {
    struct wait wait;
    run_sender(7, 10);
    assert_int_equal(a.other->unacknowledged.n_entries, 1);
    LOOP_UNTIL(loop, a.other->unacknowledged.n_entries == 0);
    break_connection_at_b();
    peer_connect(a.other);
    run_sender(8, 10);
    LOOP_UNTIL(loop, b.rendezvous->steps.n_entries == 2);
    task_receive(&b, a.name, 7, 3, &wait);
    assert_int_equal(wait.n_calls, 1);
    assert_null(wait.status);
    assert_true(value_holds(&wait.value, 10, 1));
    tensor_clear(&wait.value);
    rendezvous_end_step(b.rendezvous, 7);
    rendezvous_end_step(b.rendezvous, 8);
}

/* A ping that went out before the end acknowledges nothing of what came after it. */
static void a_running_step_is_never_acknowledged(void **state) {
    struct tensor value;
    value_make(&value, allocator_host(), 10, 1);
    task_send(&a, b.name, 7, 3, &value);
    uint64_t pinged = a.other->heartbeat.ping_id;
    LOOP_UNTIL(loop, a.other->heartbeat.ping_id > pinged + 2);
    assert_int_equal(a.other->unacknowledged.n_entries, 1);
    rendezvous_end_step(a.rendezvous, 7);
    LOOP_UNTIL(loop, a.other->unacknowledged.n_entries == 0);
    tensor_clear(&value);
    rendezvous_end_step(b.rendezvous, 7);
}

static void a_step_that_has_ended_there_is_left_alone(void **state) {
    run_sender(7, 10);
    LOOP_UNTIL(loop, b.rendezvous->steps.n_entries == 1);
    rendezvous_end_step(b.rendezvous, 7);
    break_connection_at_b();
    peer_connect(a.other);
    LOOP_UNTIL(loop, a.other->unacknowledged.n_entries == 0);
    assert_int_equal(b.rendezvous->steps.n_entries, 0);
}

/* What came early is more than may be kept: the steps that lose values fail, the others and the
 * connection do not. */
static void more_than_may_be_kept_early_fails_its_steps_only(void **state) {
    enum { N = 16 << 10 }; /* floats: 64 KiB */
    int64_t per_step = RENDEZVOUS_STEP_CREDIT_BYTES / (4 * N + RENDEZVOUS_VALUE_BYTES);
    int64_t n_steps = RENDEZVOUS_EARLY_MAX_BYTES / (per_step * 4 * N) + 4;
    struct tensor value;
    struct wait wait;
    value_make(&value, allocator_host(), N, 1);
    for (int64_t step = 1; step <= n_steps; step++) {
        for (int64_t i = 0; i < per_step; i++)
            task_send(&a, b.name, (uint64_t)step, (uint32_t)i, &value);
        rendezvous_end_step(a.rendezvous, (uint64_t)step);
        LOOP_UNTIL(loop, b.rendezvous->steps.n_entries == (size_t)step);
    }
    tensor_clear(&value);
    LOOP_UNTIL(loop, a.other->unacknowledged.n_entries == 0);
    assert_true(atomic_load(&b.rendezvous->early_bytes) <= RENDEZVOUS_EARLY_MAX_BYTES + (1 << 20));
    task_receive(&b, a.name, 1, 0, &wait);
    assert_true(wait.n_calls == 1 && !wait.status && value_holds(&wait.value, N, 1));
    tensor_clear(&wait.value);
    task_receive(&b, a.name, (uint64_t)n_steps, 0, &wait);
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_int_equal(status_code(wait.status), STATUS_UNAVAILABLE);
    assert_non_null(strstr(status_message(wait.status), "because more than 256 MiB"));
    status_unref(wait.status);
    for (int64_t step = 1; step <= n_steps; step++)
        rendezvous_end_step(b.rendezvous, (uint64_t)step);
    assert_int_equal(atomic_load(&b.rendezvous->early_bytes), 0);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_step_that_comes_after_the_loss_fails),
        TEST(a_step_that_comes_after_others_have_connected_fails),
        TEST(steps_after_the_loss_are_not_touched),
        TEST(a_step_sent_to_the_process_before_a_restart_fails),
        TEST(what_was_acknowledged_survives_the_loss),
        TEST(a_running_step_is_never_acknowledged),
        TEST(a_step_that_has_ended_there_is_left_alone),
        /* The loop is busy for long, so silence must not be taken for a loss. */
        cmocka_unit_test_setup_teardown(more_than_may_be_kept_early_fails_its_steps_only,
                                        setup_patient, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
