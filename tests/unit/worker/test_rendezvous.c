/* The rendezvous: within a task, and between two tasks over a real connection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <pthread.h>

#include "tests/unit/state_drawing.h"
#include "tests/unit/worker/two_tasks.h"
#include "worker/exchange/rendezvous_internal.h"

static struct loop *loop;
static struct test_task a, b;

static int setup(void **state) {
    loop = loop_new();
    task_init(&a, loop, "/job:worker/replica:0/task:0");
    task_init(&b, loop, "/job:ps/replica:0/task:0");
    tasks_meet(&a, &b);
    return 0;
}

static int teardown(void **state) {
    tasks_fini(&a, &b);
    return 0;
}

static bool start(struct rendezvous *rendezvous, const struct plan_channel *channel,
                  uint64_t frame_iter, struct wait *wait) {
    memset(wait, 0, sizeof(*wait));
    wait->recv.on_value = wait_on_value;
    return rendezvous_recv_start(rendezvous, channel, frame_iter, &wait->recv, &wait->value);
}

static struct plan_channel to_b(uint32_t edge, enum dtype dtype) {
    return (struct plan_channel){
        .edge = edge, .tensor_name = "x:0", .peer_task = b.name, .dtype = dtype};
}
static struct plan_channel from_a(uint32_t edge, enum dtype dtype) {
    return (struct plan_channel){
        .edge = edge, .tensor_name = "x:0", .peer_task = a.name, .dtype = dtype};
}
static struct plan_channel within_a(uint32_t edge, enum dtype dtype) { return from_a(edge, dtype); }

static void make_floats(struct tensor *t, int64_t n, float seed) {
    *t = TENSOR_INIT;
    assert_null(tensor_new(allocator_host(), DT_FLOAT, (struct shape){1, &n}, t));
    for (int64_t i = 0; i < n; i++)
        ((float *)tensor_data(t))[i] = seed + (float)i;
}

static void check_floats(const struct tensor *t, int64_t n, float seed) {
    assert_int_equal(t->dtype, DT_FLOAT);
    assert_int_equal(t->n_elements, n);
    for (int64_t i = 0; i < n; i++)
        assert_true(((const float *)tensor_cdata(t))[i] == seed + (float)i);
}

static void send_floats(struct rendezvous *rendezvous, struct plan_channel channel,
                        uint64_t frame_iter, int64_t n, float seed) {
    struct tensor t;
    make_floats(&t, n, seed);
    assert_null(rendezvous_send(rendezvous, &channel, frame_iter, &t));
    assert_int_equal(t.storage, TENSOR_NONE);
    rendezvous_flush(rendezvous);
}

static void expect_failure(struct wait *wait, enum status_code code, const char *words) {
    assert_int_equal(wait->n_calls, 1);
    assert_int_equal(status_code(wait->status), code);
    if (!strstr(status_message(wait->status), words))
        fail_msg("\"%s\" does not say \"%s\"", status_message(wait->status), words);
    status_unref(wait->status);
}

static void end(struct test_task *task, struct rendezvous *rendezvous, uint64_t step_id) {
    rendezvous_end_step(task->rendezvous, step_id);
    rendezvous_unref(rendezvous);
}

static void the_drawing_of_slots_is_their_table(void **state) {
    assert_drawing_is_table(TEST_SOURCE_ROOT "/worker/exchange/rendezvous_internal.h",
                            "states of a slot", &slot_machine);
}

/* ---- within a task ---- */

static void a_value_waits_for_its_receive(void **state) {
    struct rendezvous *step = rendezvous_open(a.rendezvous, 1, NULL);
    struct plan_channel channel = within_a(1, DT_FLOAT);
    struct wait wait;
    send_floats(step, channel, 5, 3, 1);
    assert_true(start(step, &channel, 5, &wait));
    check_floats(&wait.value, 3, 1);
    assert_int_equal(wait.n_calls, 0);
    end(&a, step, 1);
}

static void a_receive_waits_for_its_value(void **state) {
    struct rendezvous *step = rendezvous_open(a.rendezvous, 1, NULL);
    struct plan_channel channel = within_a(1, DT_FLOAT);
    struct wait wait, other;
    assert_false(start(step, &channel, 5, &wait));
    assert_false(start(step, &channel, 6, &other)); /* another iteration is another key */
    send_floats(step, channel, 5, 30, 1);
    assert_int_equal(wait.n_calls, 1);
    assert_int_equal(other.n_calls, 0);
    check_floats(&wait.value, 30, 1);
    tensor_clear(&wait.value);
    send_floats(step, channel, 6, 3, 2);
    check_floats(&other.value, 3, 2);
    end(&a, step, 1);
}

static void many_keys_meet(void **state) {
    enum { N = 2000 };
    struct rendezvous *step = rendezvous_open(a.rendezvous, 1, NULL);
    struct wait *waits = calloc(N, sizeof(*waits));
    for (int i = 0; i < N; i += 2) {
        struct plan_channel channel = within_a((uint32_t)i % 7, DT_FLOAT);
        assert_false(start(step, &channel, (uint64_t)i, &waits[i]));
    }
    for (int i = 0; i < N; i++)
        send_floats(step, within_a((uint32_t)i % 7, DT_FLOAT), (uint64_t)i, 1, (float)i);
    for (int i = 0; i < N; i++) {
        struct plan_channel channel = within_a((uint32_t)i % 7, DT_FLOAT);
        if (i % 2 == 0)
            assert_int_equal(waits[i].n_calls, 1);
        else
            assert_true(start(step, &channel, (uint64_t)i, &waits[i]));
        check_floats(&waits[i].value, 1, (float)i);
    }
    free(waits);
    end(&a, step, 1);
}

static void a_second_value_for_a_key_is_an_error(void **state) {
    struct rendezvous *step = rendezvous_open(a.rendezvous, 1, NULL);
    struct plan_channel channel = within_a(1, DT_FLOAT);
    struct tensor t;
    send_floats(step, channel, 0, 1, 1);
    make_floats(&t, 1, 2);
    struct status *st = rendezvous_send(step, &channel, 0, &t);
    assert_int_equal(status_code(st), STATUS_INTERNAL);
    status_unref(st);
    end(&a, step, 1);
}

static void a_value_of_another_type_fails_the_receive(void **state) {
    struct rendezvous *step = rendezvous_open(a.rendezvous, 1, NULL);
    struct plan_channel channel = within_a(1, DT_INT64);
    struct wait wait;
    assert_false(start(step, &channel, 0, &wait));
    send_floats(step, channel, 0, 1, 1);
    expect_failure(&wait, STATUS_INTERNAL, "carries int64, but a value of float arrived");
    end(&a, step, 1);
}

static void an_abort_ends_waits_now_and_later(void **state) {
    struct rendezvous *step = rendezvous_open(a.rendezvous, 1, NULL);
    struct plan_channel channel = within_a(1, DT_FLOAT);
    struct wait now, later;
    struct status *why = status_unavailable("the sky fell");
    assert_false(start(step, &channel, 0, &now));
    rendezvous_abort(step, why);
    expect_failure(&now, STATUS_UNAVAILABLE, "the sky fell");
    assert_false(start(step, &channel, 1, &later));
    assert_int_equal(later.n_calls, 0); /* never inside the call */
    TURN_UNTIL(loop, later.n_calls == 1);
    expect_failure(&later, STATUS_UNAVAILABLE, "the sky fell");
    status_unref(why);
    end(&a, step, 1);
}

/* ---- ended steps ---- */

static void an_ended_step_is_not_opened_again(void **state) {
    struct rendezvous *step = rendezvous_open(a.rendezvous, 7, NULL);
    end(&a, step, 7);
    assert_null(rendezvous_open(a.rendezvous, 7, NULL));
    assert_true(rendezvous_is_ended(a.rendezvous, 7));
    rendezvous_prune(a.rendezvous, 1, 100);
    assert_true(rendezvous_is_ended(a.rendezvous, 99));
    assert_null(rendezvous_open(a.rendezvous, 99, NULL));
    assert_false(rendezvous_is_ended(a.rendezvous, 100));
}

static void the_memory_of_ended_steps_holds_for_each_master(void **state) {
    struct step_ids ids;
    uint64_t first = 1ull << STEP_SEQUENCE_BITS, second = 2ull << STEP_SEQUENCE_BITS;
    step_ids_init(&ids);
    for (uint64_t i = 0; i < 5000; i += 2)
        step_ids_end(&ids, first | i);
    for (uint64_t i = 0; i < 5000; i++)
        assert_int_equal(step_ids_is_ended(&ids, first | i), i % 2 == 0);
    assert_false(step_ids_is_ended(&ids, second | 2));
    step_ids_prune(&ids, first | 4001);
    assert_true(step_ids_is_ended(&ids, first | 3999));
    assert_false(step_ids_is_ended(&ids, first | 4001));
    assert_true(step_ids_is_ended(&ids, first | 4002));
    step_ids_end(&ids, first | (4001 + (uint64_t)STEP_WINDOW_MAX)); /* the window slides */
    assert_true(step_ids_is_ended(&ids, first | 4001));
    assert_false(step_ids_is_ended(&ids, first | 4003));
    step_ids_prune(&ids, first | 1ull << 39);
    assert_true(step_ids_is_ended(&ids, first | ((1ull << 39) - 1)));
    step_ids_forget(&ids, step_id_master(first));
    assert_false(step_ids_is_ended(&ids, first | 2));
    step_ids_fini(&ids);
}

/* ---- between tasks ---- */

static void check_crossing(int64_t n, bool recv_first) {
    struct plan_channel out = to_b(3, DT_FLOAT), in = from_a(3, DT_FLOAT);
    static uint64_t step_id = 100;
    step_id++;
    struct rendezvous *sender = rendezvous_open(a.rendezvous, step_id, NULL),
                      *receiver = rendezvous_open(b.rendezvous, step_id, NULL);
    struct wait wait = {0};
    peer_connect(a.other);
    if (recv_first)
        assert_false(start(receiver, &in, 9, &wait));
    send_floats(sender, out, 9, n, 4);
    if (!recv_first) {
        struct tensor last; /* what was sent after it has come: so has it, or its announcement */
        make_floats(&last, 1, 0);
        struct plan_channel out_2 = to_b(4, DT_FLOAT), in_2 = from_a(4, DT_FLOAT);
        struct wait second;
        assert_null(rendezvous_send(sender, &out_2, 9, &last));
        rendezvous_flush(sender);
        if (!start(receiver, &in_2, 9, &second))
            TURN_UNTIL(loop, second.n_calls == 1);
        tensor_clear(&second.value);
        if (start(receiver, &in, 9, &wait))
            wait.n_calls = 1;
    }
    TURN_UNTIL(loop, wait.n_calls == 1);
    assert_null(wait.status);
    check_floats(&wait.value, n, 4);
    tensor_clear(&wait.value);
    assert_int_equal(a.n_lost + b.n_lost, 0);
    assert_int_equal(atomic_load(&b.rendezvous->in_flight_bytes), 0);
    end(&a, sender, step_id);
    end(&b, receiver, step_id);
}

static void small_and_large_values_cross(void **state) {
    static const int64_t sizes[] = {
        0,      1, 4, 5, 1000, RENDEZVOUS_PUSH_LIMIT_BYTES / 4, RENDEZVOUS_PUSH_LIMIT_BYTES / 4 + 1,
        1000000};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        check_crossing(sizes[i], true);
        check_crossing(sizes[i], false);
    }
}

static void a_dead_value_crosses(void **state) {
    struct plan_channel out = to_b(3, DT_FLOAT), in = from_a(3, DT_FLOAT);
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL),
                      *receiver = rendezvous_open(b.rendezvous, 1, NULL);
    struct wait wait;
    struct tensor dead;
    peer_connect(a.other);
    tensor_init_dead(&dead);
    assert_false(start(receiver, &in, 0, &wait));
    assert_null(rendezvous_send(sender, &out, 0, &dead));
    rendezvous_flush(sender);
    TURN_UNTIL(loop, wait.n_calls == 1);
    assert_int_equal(wait.value.storage, TENSOR_DEAD);
    end(&a, sender, 1);
    end(&b, receiver, 1);
}

static void check_strings(int64_t n, size_t len) {
    static uint64_t step_id = 500;
    step_id++;
    struct plan_channel out = to_b(3, DT_STRING), in = from_a(3, DT_STRING);
    struct rendezvous *sender = rendezvous_open(a.rendezvous, step_id, NULL),
                      *receiver = rendezvous_open(b.rendezvous, step_id, NULL);
    struct tensor t = TENSOR_INIT;
    struct wait wait;
    char *text = malloc(len);
    memset(text, 's', len);
    assert_null(tensor_new(allocator_host(), DT_STRING, (struct shape){1, &n}, &t));
    for (int64_t i = 0; i < n; i++)
        tensor_set_string(&t, i, text, len - (size_t)i % 2);
    assert_false(start(receiver, &in, 0, &wait));
    assert_null(rendezvous_send(sender, &out, 0, &t));
    rendezvous_flush(sender);
    TURN_UNTIL(loop, wait.n_calls == 1);
    assert_null(wait.status);
    assert_int_equal(wait.value.dtype, DT_STRING);
    assert_int_equal(wait.value.n_elements, n);
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(tensor_string(&wait.value, i).len, len - (size_t)i % 2);
    tensor_clear(&wait.value);
    free(text);
    end(&a, sender, step_id);
    end(&b, receiver, step_id);
}

static void strings_cross_small_and_large(void **state) {
    peer_connect(a.other);
    check_strings(3, 10);
    check_strings(100, 5000);
}

/* ---- much text, on the pool ---- */

struct text_send {
    struct text_encoding encoding;
    struct plan_channel channel;
    struct tensor value;
    _Atomic int n_encoded;
    enum status_code code;
};

static void on_encoded(struct text_encoding *encoding, struct status *status_take,
                       struct buffer *proto_take) {
    struct text_send *send = CONTAINER_OF(encoding, struct text_send, encoding);
    bool is_offered = false;
    send->code = status_code(status_take);
    if (status_take)
        status_unref(status_take);
    else /* without an offer, nobody is told of the grant */
        assert_null(rendezvous_send_encoded(encoding->rendezvous, &send->channel, 0, &send->value,
                                            proto_take, NULL, &is_offered));
    atomic_fetch_add(&send->n_encoded, 1);
}

struct text_wait {
    struct rendezvous_recv recv;
    struct tensor value;
    _Atomic int n_calls;
};

static void on_text(struct rendezvous_recv *recv, struct status *status_take,
                    struct tensor *value_take) {
    struct text_wait *wait = CONTAINER_OF(recv, struct text_wait, recv);
    assert_null(status_take);
    assert_true(pool_is_current()); /* the loop did not decode it */
    tensor_move(&wait->value, value_take);
    atomic_fetch_add(&wait->n_calls, 1);
}

static void make_texts(struct tensor *t, int64_t n) {
    char text[32];
    *t = TENSOR_INIT;
    assert_null(tensor_new(allocator_host(), DT_STRING, (struct shape){1, &n}, t));
    for (int64_t i = 0; i < n; i++)
        tensor_set_string(t, i, text,
                          (size_t)snprintf(text, sizeof(text), "text %lld", (long long)i));
}

static void start_text(struct text_send *send, struct rendezvous *rendezvous, int64_t n) {
    send->channel = to_b(3, DT_STRING);
    send->encoding.on_encoded = on_encoded;
    make_texts(&send->value, n);
    assert_true(rendezvous_encodes_apart(rendezvous, &send->channel, &send->value));
    text_encoding_start(&send->encoding, rendezvous, &send->value);
}

static void much_text_is_encoded_and_decoded_on_the_pool(void **state) {
    enum { N_TEXTS = 300000 };
    struct pool *pool = pool_new(2);
    rendezvous_table_set_pool(a.rendezvous, pool);
    rendezvous_table_set_pool(b.rendezvous, pool);
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 900, NULL),
                      *receiver = rendezvous_open(b.rendezvous, 900, NULL);
    struct text_send *send = aligned_alloc(64, sizeof(*send));
    struct text_wait *wait = aligned_alloc(64, sizeof(*wait));
    struct plan_channel in = from_a(3, DT_STRING);
    memset(send, 0, sizeof(*send));
    memset(wait, 0, sizeof(*wait));
    wait->recv.on_value = on_text;
    peer_connect(a.other);
    assert_false(rendezvous_recv_start(receiver, &in, 0, &wait->recv, &wait->value));
    start_text(send, sender, N_TEXTS);
    TURN_UNTIL(loop, atomic_load(&wait->n_calls) == 1 && atomic_load(&send->n_encoded) == 1);
    assert_int_equal(wait->value.n_elements, N_TEXTS);
    assert_memory_equal(tensor_string(&wait->value, N_TEXTS - 1).data, "text 299999", 11);
    tensor_clear(&wait->value);
    tensor_clear(&send->value);
    end(&a, sender, 900);
    end(&b, receiver, 900);
    pool_free(pool);
    free(wait);
    free(send);
}

static void an_abort_ends_the_encoding(void **state) {
    struct pool *pool = pool_new(1);
    rendezvous_table_set_pool(a.rendezvous, pool);
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 901, NULL);
    struct text_send *send = aligned_alloc(64, sizeof(*send));
    struct status *why = status_new(STATUS_CANCELLED, "cancelled by the test");
    memset(send, 0, sizeof(*send));
    peer_connect(a.other);
    rendezvous_abort(sender, why);
    start_text(send, sender, 100000);
    pool_free(pool); /* runs what is queued */
    assert_int_equal(atomic_load(&send->n_encoded), 1);
    assert_int_equal(send->code, STATUS_CANCELLED);
    status_unref(why);
    tensor_clear(&send->value);
    rendezvous_table_set_pool(a.rendezvous, NULL);
    end(&a, sender, 901);
    free(send);
}

static void what_comes_before_its_step_is_opened_waits(void **state) {
    struct plan_channel out = to_b(3, DT_FLOAT), in = from_a(3, DT_FLOAT),
                        out_2 = to_b(4, DT_FLOAT), in_2 = from_a(4, DT_FLOAT);
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL);
    struct wait wait, second;
    peer_connect(a.other);
    send_floats(sender, out, 0, 100, 1);
    send_floats(sender, out_2, 0, 100000, 2); /* announced, not granted before the step is opened */
    TURN_UNTIL(loop, atomic_load(&b.rendezvous->early_bytes) > 0);
    for (int i = 0; i < 5; i++)
        loop_turn(loop);
    assert_int_equal(atomic_load(&b.rendezvous->in_flight_bytes), 0);
    struct rendezvous *receiver = rendezvous_open(b.rendezvous, 1, NULL);
    assert_int_equal(atomic_load(&b.rendezvous->early_bytes), 0);
    assert_true(start(receiver, &in, 0, &wait));
    check_floats(&wait.value, 100, 1);
    tensor_clear(&wait.value);
    if (!start(receiver, &in_2, 0, &second))
        TURN_UNTIL(loop, second.n_calls == 1);
    check_floats(&second.value, 100000, 2);
    tensor_clear(&second.value);
    end(&a, sender, 1);
    end(&b, receiver, 1);
}

static void what_nobody_opens_is_dropped_in_the_end(void **state) {
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL);
    peer_connect(a.other);
    send_floats(sender, to_b(3, DT_FLOAT), 0, 100, 1);
    TURN_UNTIL(loop, atomic_load(&b.rendezvous->early_bytes) > 0);
    rendezvous_expire(b.rendezvous, INT64_MAX);
    assert_int_equal(atomic_load(&b.rendezvous->early_bytes), 0);
    assert_null(rendezvous_open(b.rendezvous, 1, NULL));
    struct rendezvous *second = rendezvous_open(a.rendezvous, 2, NULL);
    send_floats(second, to_b(3, DT_FLOAT), 0, 100, 1);
    TURN_UNTIL(loop, atomic_load(&b.rendezvous->early_bytes) > 0);
    rendezvous_prune(b.rendezvous, 0, 3); /* the master says that it has ended */
    assert_int_equal(atomic_load(&b.rendezvous->early_bytes), 0);
    end(&a, sender, 1);
    end(&a, second, 2);
}

static void a_late_arrival_is_dropped(void **state) {
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL),
                      *receiver = rendezvous_open(b.rendezvous, 1, NULL);
    peer_connect(a.other);
    end(&b, receiver, 1);
    send_floats(sender, to_b(3, DT_FLOAT), 0, 100, 1);
    send_floats(sender, to_b(4, DT_FLOAT), 0, 100000, 1);
    check_crossing(1, true);
    assert_int_equal(b.rendezvous->steps.n_entries, 0);
    end(&a, sender, 1);
}

static void a_full_budget_delays_grants_and_all_arrive(void **state) {
    enum { N = 20, ELEMENTS = 50000 };
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL),
                      *receiver = rendezvous_open(b.rendezvous, 1, NULL);
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
            loop_turn(loop);
            assert_true(atomic_load(&b.rendezvous->in_flight_bytes) <= ELEMENTS * 4 * 2);
        }
        check_floats(&waits[i].value, ELEMENTS, (float)i);
        tensor_clear(&waits[i].value);
    }
    for (uint32_t i = N / 2; i < N; i++) {
        struct plan_channel in = from_a(i, DT_FLOAT);
        if (!start(receiver, &in, 0, &waits[i]))
            TURN_UNTIL(loop, waits[i].n_calls == 1);
        check_floats(&waits[i].value, ELEMENTS, (float)i);
        tensor_clear(&waits[i].value);
    }
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
        senders[i] = rendezvous_open(a.rendezvous, i + 1, NULL);
        receivers[i] = rendezvous_open(b.rendezvous, i + 1, NULL);
        assert_false(start(receivers[i], &in, 0, &waits[i]));
        send_floats(senders[i], to_b(1, DT_FLOAT), 0, 100000, 1);
    }
    TURN_UNTIL(loop, waits[0].n_calls == 1 && waits[1].n_calls == 1);
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
        senders[i] = rendezvous_open(a.rendezvous, i + 1, NULL);
        receivers[i] = rendezvous_open(b.rendezvous, i + 1, flows[i % 2]);
        assert_false(start(receivers[i], &in, 0, &waits[i]));
        send_floats(senders[i], to_b(1, DT_FLOAT), 0, ELEMENTS, (float)i);
    }
    while (n_done < N) {
        loop_turn(loop);
        assert_true(atomic_load(&b.rendezvous->in_flight_bytes) <= 2 * BYTES); /* a peer's share */
        assert_true(atomic_load(peer_in_flight_bytes(b.other)) <= 2 * BYTES);
        n_done = 0;
        for (int i = 0; i < N; i++)
            n_done += waits[i].n_calls;
    }
    assert_int_equal(atomic_load(peer_in_flight_bytes(b.other)), 0);
    for (uint64_t i = 0; i < N; i++) {
        check_floats(&waits[i].value, ELEMENTS, (float)i);
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
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL),
                      *receiver = rendezvous_open(b.rendezvous, 1, NULL);
    struct rendezvous *large_sender = rendezvous_open(a.rendezvous, 2, NULL),
                      *large_receiver = rendezvous_open(b.rendezvous, 2, NULL);
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
            TURN_UNTIL(loop, small[i % 2].n_calls == 1);
        tensor_clear(&small[i % 2].value);
    }
    check_floats(&large.value, LARGE, 2);
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
        senders[i] = rendezvous_open(a.rendezvous, i + 1, NULL);
        receivers[i] = rendezvous_open(b.rendezvous, i + 1, NULL);
        assert_false(start(receivers[i], &in, 0, &waits[i]));
        send_floats(senders[i], to_b(1, DT_FLOAT), 0, 100000, (float)i);
    }
    TURN_UNTIL(loop, atomic_load(&b.rendezvous->claim) != NULL);
    for (int i = 0; i < 10; i++)
        loop_turn(loop);
    assert_ptr_equal(atomic_load(&b.rendezvous->claim), receivers[0]);
    rendezvous_abort(receivers[0], why); /* the next in line has it */
    expect_failure(&waits[0], STATUS_CANCELLED, "no more");
    assert_ptr_equal(atomic_load(&b.rendezvous->claim), receivers[1]);
    atomic_fetch_sub(&b.rendezvous->in_flight_bytes, 1000);
    rendezvous_next_turns(b.rendezvous);
    TURN_UNTIL(loop, waits[1].n_calls == 1 && waits[2].n_calls == 1);
    for (uint64_t i = 0; i < 3; i++) {
        tensor_clear(&waits[i].value);
        end(&a, senders[i], i + 1);
        end(&b, receivers[i], i + 1);
    }
    status_unref(why);
}

static void memory_that_is_out_fails_the_step_and_not_the_connection(void **state) {
    struct allocator *small = allocator_host_new("small", 1000);
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL),
                      *receiver = rendezvous_open(b.rendezvous, 1, NULL);
    struct plan_channel in = from_a(1, DT_FLOAT);
    struct wait wait;
    b.rendezvous->allocator = small;
    peer_connect(a.other);
    assert_false(start(receiver, &in, 0, &wait));
    send_floats(sender, to_b(1, DT_FLOAT), 0, 100000, 1);
    TURN_UNTIL(loop, wait.n_calls == 1);
    expect_failure(&wait, STATUS_RESOURCE_EXHAUSTED, "400000 bytes");
    assert_int_equal(atomic_load(&b.rendezvous->in_flight_bytes), 0);
    end(&a, sender, 1);
    end(&b, receiver, 1);
    b.rendezvous->allocator = allocator_host();
    check_crossing(100000, true);
    allocator_host_free(small);
}

static void an_abort_drops_what_is_granted_and_its_bytes_are_read_past(void **state) {
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL),
                      *receiver = rendezvous_open(b.rendezvous, 1, NULL);
    struct status *why = status_new(STATUS_CANCELLED, "no more");
    peer_connect(a.other);
    send_floats(sender, to_b(1, DT_FLOAT), 0, 4000000, 1);
    TURN_UNTIL(loop, atomic_load(&b.rendezvous->in_flight_bytes) > 0);
    rendezvous_abort(receiver, why);
    assert_int_equal(atomic_load(&b.rendezvous->in_flight_bytes), 0);
    check_crossing(10, true);
    check_crossing(100000, true);
    status_unref(why);
    end(&a, sender, 1);
    end(&b, receiver, 1);
}

static void a_grant_is_good_for_one_message(void **state) {
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL),
                      *receiver = rendezvous_open(b.rendezvous, 1, NULL);
    struct plan_channel in = from_a(1, DT_FLOAT);
    struct wait wait;
    struct tensor like;
    struct str meta = STR_INIT;
    peer_connect(a.other);
    assert_false(start(receiver, &in, 0, &wait));
    send_floats(sender, to_b(1, DT_FLOAT), 0, 100000, 1);
    TURN_UNTIL(loop, atomic_load(&b.rendezvous->in_flight_bytes) > 0);
    make_floats(&like, 100000, 1);
    edge_message_write(&meta, 1, 0, &like, 0);
    struct wire_message push = {
        .type = WIRE_PUSH, .id = 1, .meta = {meta.data, meta.len}, .payload_len = 400000};
    struct edge_message edge = {.edge = 1};
    struct buffer *first = rendezvous_receiver.alloc(b.rendezvous, b.other, &push, &edge, 400000);
    assert_non_null(first);
    assert_null(rendezvous_receiver.alloc(b.rendezvous, b.other, &push, &edge, 400000));
    assert_true(rendezvous_receiver.is_wanted(b.rendezvous, b.other, 1, 1, 0));
    assert_false(rendezvous_receiver.is_wanted(b.rendezvous, b.other, 1, 2, 0));
    TURN_UNTIL(loop, b.n_lost == 1); /* the value itself comes: the second */
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
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL);
    struct plan_channel out = to_b(1, DT_FLOAT), nowhere = {.edge = 2,
                                                            .tensor_name = "y:0",
                                                            .peer_task = "/job:x/replica:0/task:0"};
    struct tensor t;
    make_floats(&t, 1, 1);
    struct status *st = rendezvous_send(sender, &out, 0, &t);
    assert_int_equal(status_code(st), STATUS_UNAVAILABLE);
    assert_non_null(strstr(status_message(st), b.name));
    status_unref(st);
    make_floats(&t, 1, 1);
    st = rendezvous_send(sender, &nowhere, 0, &t);
    assert_int_equal(status_code(st), STATUS_INTERNAL);
    status_unref(st);
    end(&a, sender, 1);
}

/* ---- threads ---- */

enum { N_THREADS = 3, N_KEYS = 400 };

struct threaded {
    pthread_t thread;
    uint32_t edge;
    struct rendezvous *sender, *receiver;
    struct wait waits[N_KEYS];
};

static void *send_all(void *arg) {
    struct threaded *t = arg;
    for (uint64_t i = 0; i < N_KEYS; i++)
        send_floats(t->sender, to_b(t->edge, DT_FLOAT), i, i % 50 == 0 ? 30000 : 3, (float)i);
    return NULL;
}

static void *receive_all(void *arg) {
    struct threaded *t = arg;
    struct plan_channel in = from_a(t->edge, DT_FLOAT);
    for (uint64_t i = 0; i < N_KEYS; i++)
        if (start(t->receiver, &in, i, &t->waits[i]))
            t->waits[i].n_calls = 1;
    return NULL;
}

static bool all_came(struct threaded *t) {
    for (int i = 0; i < N_KEYS; i++)
        if (t->waits[i].n_calls == 0)
            return false;
    return true;
}

static void threads_send_and_receive(void **state) {
    struct threaded *t = calloc(N_THREADS, sizeof(*t));
    pthread_t receivers[N_THREADS];
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL),
                      *receiver = rendezvous_open(b.rendezvous, 1, NULL);
    peer_connect(a.other);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        t[i].edge = i;
        t[i].sender = sender;
        t[i].receiver = receiver;
        assert_int_equal(pthread_create(&t[i].thread, NULL, send_all, &t[i]), 0);
        assert_int_equal(pthread_create(&receivers[i], NULL, receive_all, &t[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        TURN_UNTIL(loop, all_came(&t[i]));
        pthread_join(t[i].thread, NULL);
        pthread_join(receivers[i], NULL);
        for (int k = 0; k < N_KEYS; k++) {
            check_floats(&t[i].waits[k].value, k % 50 == 0 ? 30000 : 3, (float)k);
            tensor_clear(&t[i].waits[k].value);
        }
    }
    end(&a, sender, 1);
    end(&b, receiver, 1);
    free(t);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_drawing_of_slots_is_their_table),
        TEST(a_value_waits_for_its_receive),
        TEST(a_receive_waits_for_its_value),
        TEST(many_keys_meet),
        TEST(a_second_value_for_a_key_is_an_error),
        TEST(a_value_of_another_type_fails_the_receive),
        TEST(an_abort_ends_waits_now_and_later),
        TEST(an_ended_step_is_not_opened_again),
        TEST(the_memory_of_ended_steps_holds_for_each_master),
        TEST(small_and_large_values_cross),
        TEST(a_dead_value_crosses),
        TEST(strings_cross_small_and_large),
        TEST(much_text_is_encoded_and_decoded_on_the_pool),
        TEST(an_abort_ends_the_encoding),
        TEST(what_comes_before_its_step_is_opened_waits),
        TEST(what_nobody_opens_is_dropped_in_the_end),
        TEST(a_late_arrival_is_dropped),
        TEST(a_full_budget_delays_grants_and_all_arrive),
        TEST(a_value_larger_than_the_budget_comes_when_it_is_all_that_is_awaited),
        TEST(many_steps_never_have_more_in_flight_than_the_budget),
        TEST(a_large_value_does_not_starve_among_small_ones),
        TEST(a_claim_goes_with_its_step),
        TEST(memory_that_is_out_fails_the_step_and_not_the_connection),
        TEST(an_abort_drops_what_is_granted_and_its_bytes_are_read_past),
        TEST(a_grant_is_good_for_one_message),
        TEST(sending_without_a_connection_is_unavailable),
        TEST(threads_send_and_receive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
