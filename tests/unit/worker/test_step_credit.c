/* Credit of a step: a part that is faster than its other half has to wait with what it pushes and
 * with what is granted to it, and all its values arrive. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/worker/two_tasks.h"
#include "worker/exchange/rendezvous_internal.h"

enum { STEP = 7, EDGE = 3 };

static struct loop *loop;
static struct test_task a, b;
static struct rendezvous *sender;
static struct plan_channel channel;

/* A Send that had to wait for its grant. */
struct offer {
    struct rendezvous_recv recv;
    bool is_granted;
};

static int setup(void **state) {
    loop = loop_new();
    task_init(&a, loop, "/job:worker/replica:0/task:0");
    task_init(&b, loop, "/job:ps/replica:0/task:0");
    tasks_meet(&a, &b);
    peer_connect(a.other);
    LOOP_UNTIL(loop, task_says(&b, "\"transport\":\"unix\""));
    sender = rendezvous_open(a.rendezvous, STEP, NULL, NULL);
    channel = (struct plan_channel){.edge = EDGE, .tensor_name = "x:0", .peer_task = b.name};
    return 0;
}

static int teardown(void **state) {
    rendezvous_unref(sender);
    rendezvous_end_step(a.rendezvous, STEP);
    rendezvous_end_step(b.rendezvous, STEP);
    assert_int_equal(a.n_lost + b.n_lost, 0);
    tasks_fini(&a, &b);
    return 0;
}

static bool try_send(uint64_t iteration, struct tensor *value) {
    bool is_sent;
    struct status *st = rendezvous_try_send(sender, &channel, iteration, value, &is_sent);
    assert_null(st);
    rendezvous_flush(sender);
    return is_sent;
}

static void on_granted(struct rendezvous_recv *recv, struct status *status_take,
                       struct tensor *value_take) {
    CONTAINER_OF(recv, struct offer, recv)->is_granted = !status_take;
    status_unref(status_take);
}

static void offer_value(uint64_t iteration, struct tensor *value, struct offer *ret) {
    bool is_offered;
    *ret = (struct offer){.recv.on_value = on_granted};
    assert_null(
        rendezvous_send_or_offer(sender, &channel, iteration, value, &ret->recv, &is_offered));
    assert_true(is_offered);
    rendezvous_flush(sender);
}

static void receive(uint64_t iteration, struct wait *wait) {
    struct plan_channel in = {.edge = EDGE, .tensor_name = "x:0", .peer_task = a.name};
    struct rendezvous *receiver = rendezvous_open(b.rendezvous, STEP, NULL, NULL);
    memset(wait, 0, sizeof(*wait));
    wait->recv.on_value = wait_on_value;
    if (rendezvous_recv_start(receiver, &in, iteration, &wait->recv, &wait->value))
        wait->n_calls = 1;
    rendezvous_flush(receiver);
    rendezvous_unref(receiver);
    LOOP_UNTIL(loop, wait->n_calls == 1);
    assert_null(wait->status);
}

static void receive_floats(uint64_t iteration, int64_t n) {
    struct wait wait;
    receive(iteration, &wait);
    assert_true(value_holds(&wait.value, n, (float)iteration));
    tensor_clear(&wait.value);
}

/* What was said on the connection before has been heard at the other end. */
static void settle(struct test_task *from, struct test_task *to, uint64_t marker) {
    struct tensor value;
    struct wait wait;
    value_make(&value, allocator_host(), 1, 0);
    task_send(from, to->name, marker, 0, &value);
    task_receive(to, from->name, marker, 0, &wait);
    LOOP_UNTIL(loop, wait.n_calls == 1);
    tensor_clear(&wait.value);
    tensor_clear(&value);
    rendezvous_end_step(from->rendezvous, marker);
    rendezvous_end_step(to->rendezvous, marker);
}

/* Pushes values of n floats until there is no credit. Returns how many went. */
static uint64_t push_all(int64_t n) {
    for (uint64_t i = 0;; i++) {
        struct tensor value;
        value_make(&value, allocator_host(), n, (float)i);
        bool is_sent = try_send(i, &value);
        tensor_clear(&value);
        if (!is_sent)
            return i;
    }
}

static void a_sender_is_held_back_and_goes_on_when_its_values_are_taken(void **state) {
    enum { N = 1000 };
    uint64_t n = push_all(N);
    int64_t cost = 4 * N + RENDEZVOUS_VALUE_BYTES;
    assert_int_equal(n, RENDEZVOUS_STEP_CREDIT_BYTES / cost);
    settle(&a, &b, 100);
    for (uint64_t i = 0; i < n / 2 + 1; i++)
        receive_floats(i, N);
    settle(&b, &a, 101); /* the Credit has come */
    struct tensor value;
    value_make(&value, allocator_host(), N, (float)n);
    assert_true(try_send(n, &value));
    for (uint64_t i = n / 2 + 1; i <= n; i++)
        receive_floats(i, N);
}

/* A step of less than half the credit costs no message more. */
static void a_short_step_needs_no_credit_message(void **state) {
    enum { N = 1000, VALUES = 100 };
    for (uint64_t i = 0; i < VALUES; i++) {
        struct tensor value;
        value_make(&value, allocator_host(), N, (float)i);
        assert_true(try_send(i, &value));
    }
    for (uint64_t i = 0; i < VALUES; i++)
        receive_floats(i, N);
    settle(&b, &a, 100);
    assert_int_equal(sender->peers[0].pushed_bytes,
                     VALUES * (4 * N + RENDEZVOUS_VALUE_BYTES)); /* nothing was given back */
}

/* A step with very many edges: what is announced is not searched for among all that wait. */
static void announcements_do_not_search_all_that_waits(void **state) {
    enum { WAITING = 5000, OFFERS = 100 };
    static struct wait waits[WAITING];
    static struct offer offers[OFFERS];
    struct plan_channel in = {.edge = EDGE, .tensor_name = "x:0", .peer_task = a.name};
    struct rendezvous *receiver = rendezvous_open(b.rendezvous, STEP, NULL, NULL);
    memset(waits, 0, sizeof(waits));
    for (uint64_t i = 0; i < WAITING; i++) {
        waits[i].recv.on_value = wait_on_value;
        assert_false(
            rendezvous_recv_start(receiver, &in, 1000000 + i, &waits[i].recv, &waits[i].value));
    }
    uint64_t n = push_all(1000);
    for (uint64_t i = 0; i < OFFERS; i++) {
        struct tensor value;
        value_make(&value, allocator_host(), 1000, 1);
        offer_value(n + i, &value, &offers[i]);
    }
    LOOP_UNTIL(loop, offers[OFFERS - 1].is_granted);
    assert_true(receiver->n_considered >= OFFERS);
    assert_true(receiver->n_considered <= 10 * OFFERS);
    rendezvous_unref(receiver);
    rendezvous_end_step(b.rendezvous, STEP);
    for (size_t i = 0; i < WAITING; i++) {
        assert_int_equal(waits[i].n_calls, 1);
        status_unref(waits[i].status);
    }
}

/* Announced for want of credit: of every kind that is pushed else. */
static void every_kind_of_small_value_can_wait_for_its_grant(void **state) {
    struct tensor dead, empty, text, floats;
    struct offer offers[4];
    struct wait wait;
    uint64_t n = push_all(0);
    tensor_init_dead(&dead);
    value_make(&empty, allocator_host(), 0, 0);
    text = TENSOR_INIT;
    assert_null(tensor_new(allocator_host(), DT_STRING, (struct shape){0, NULL}, &text));
    tensor_set_string(&text, 0, "some words", 10);
    value_make(&floats, allocator_host(), 500, (float)(n + 3));
    assert_false(try_send(n, &dead));
    assert_int_equal(dead.storage, TENSOR_DEAD);
    assert_false(try_send(n + 1, &empty));
    assert_false(try_send(n + 2, &text));
    assert_false(try_send(n + 3, &floats));
    offer_value(n, &dead, &offers[0]);
    offer_value(n + 1, &empty, &offers[1]);
    offer_value(n + 2, &text, &offers[2]);
    offer_value(n + 3, &floats, &offers[3]);
    settle(&a, &b, 100);
    for (int i = 0; i < 4; i++)
        assert_false(offers[i].is_granted); /* nobody has opened the step */
    receive(n, &wait);
    assert_int_equal(wait.value.storage, TENSOR_DEAD);
    tensor_clear(&wait.value);
    receive(n + 1, &wait);
    assert_int_equal(wait.value.n_elements, 0);
    tensor_clear(&wait.value);
    receive(n + 2, &wait);
    assert_true(span_is(tensor_string(&wait.value, 0), "some words"));
    tensor_clear(&wait.value);
    receive_floats(n + 3, 500);
    for (int i = 0; i < 4; i++)
        assert_true(offers[i].is_granted);
}

/* Announced values that no Recv waits for are granted up to a bound, and on as they are taken. */
static void what_nobody_waits_for_is_granted_up_to_a_bound(void **state) {
    enum { N = 1 << 20, OFFERS = 40 }; /* floats: 4 MiB each */
    struct offer offers[OFFERS];
    uint64_t n_granted = 0;
    rendezvous_unref(rendezvous_open(b.rendezvous, STEP, NULL, NULL));
    for (uint64_t i = 0; i < OFFERS; i++) {
        struct tensor value;
        value_make(&value, allocator_host(), N, (float)i);
        offer_value(i, &value, &offers[i]);
    }
    uint64_t most = RENDEZVOUS_UNWANTED_MAX_BYTES / (4 * N + RENDEZVOUS_VALUE_BYTES);
    while (n_granted < most) {
        loop_iterate(loop);
        n_granted = 0;
        for (int i = 0; i < OFFERS; i++)
            n_granted += offers[i].is_granted;
    }
    settle(&a, &b, 100);
    settle(&b, &a, 101);
    n_granted = 0;
    for (int i = 0; i < OFFERS; i++)
        n_granted += offers[i].is_granted;
    assert_int_equal(n_granted, most);
    for (uint64_t i = 0; i < OFFERS; i++)
        receive_floats(i, N);
    for (int i = 0; i < OFFERS; i++)
        assert_true(offers[i].is_granted);
    assert_int_equal(atomic_load(&b.rendezvous->in_flight_bytes), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_sender_is_held_back_and_goes_on_when_its_values_are_taken),
        TEST(a_short_step_needs_no_credit_message),
        TEST(announcements_do_not_search_all_that_waits),
        TEST(every_kind_of_small_value_can_wait_for_its_grant),
        TEST(what_nobody_waits_for_is_granted_up_to_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
