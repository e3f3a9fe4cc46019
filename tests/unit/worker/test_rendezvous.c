/* The rendezvous: within a task, and between two tasks over a real connection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <pthread.h>

#include "rpc/daemon/page.h"
#include "tests/unit/state_drawing.h"
#include "tests/unit/worker/rendezvous_pair.h"

static void the_drawing_of_slots_is_their_table(void **state) {
    assert_drawing_is_table(TEST_SOURCE_ROOT "/worker/exchange/rendezvous_internal.h",
                            "states of a slot", &slot_machine);
}

/* ---- within a task ---- */

static void a_value_waits_for_its_receive(void **state) {
    struct rendezvous *step = rendezvous_open(a.rendezvous, 1, NULL, NULL);
    struct plan_channel channel = within_a(1, DT_FLOAT);
    struct wait wait;
    send_floats(step, channel, 5, 3, 1);
    assert_true(start(step, &channel, 5, &wait));
    assert_true(value_holds(&wait.value, 3, 1));
    assert_int_equal(wait.n_calls, 0);
    end(&a, step, 1);
}

static void a_receive_waits_for_its_value(void **state) {
    struct rendezvous *step = rendezvous_open(a.rendezvous, 1, NULL, NULL);
    struct plan_channel channel = within_a(1, DT_FLOAT);
    struct wait wait, other;
    assert_false(start(step, &channel, 5, &wait));
    assert_false(start(step, &channel, 6, &other)); /* another iteration is another key */
    send_floats(step, channel, 5, 30, 1);
    assert_int_equal(wait.n_calls, 1);
    assert_int_equal(other.n_calls, 0);
    assert_true(value_holds(&wait.value, 30, 1));
    tensor_clear(&wait.value);
    send_floats(step, channel, 6, 3, 2);
    assert_true(value_holds(&other.value, 3, 2));
    end(&a, step, 1);
}

static void many_keys_meet(void **state) {
    enum { N = 2000 };
    struct rendezvous *step = rendezvous_open(a.rendezvous, 1, NULL, NULL);
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
        assert_true(value_holds(&waits[i].value, 1, (float)i));
    }
    free(waits);
    end(&a, step, 1);
}

static void a_second_value_for_a_key_is_an_error(void **state) {
    struct rendezvous *step = rendezvous_open(a.rendezvous, 1, NULL, NULL);
    struct plan_channel channel = within_a(1, DT_FLOAT);
    struct tensor t;
    send_floats(step, channel, 0, 1, 1);
    value_make(&t, allocator_host(), 1, 2);
    struct status *st = rendezvous_send(step, &channel, 0, &t);
    assert_int_equal(status_code(st), STATUS_INTERNAL);
    status_unref(st);
    end(&a, step, 1);
}

static void a_value_of_another_type_fails_the_receive(void **state) {
    struct rendezvous *step = rendezvous_open(a.rendezvous, 1, NULL, NULL);
    struct plan_channel channel = within_a(1, DT_INT64);
    struct wait wait;
    assert_false(start(step, &channel, 0, &wait));
    send_floats(step, channel, 0, 1, 1);
    expect_failure(&wait, STATUS_INTERNAL, "carries int64, but a value of float arrived");
    end(&a, step, 1);
}

static void an_abort_ends_waits_now_and_later(void **state) {
    struct rendezvous *step = rendezvous_open(a.rendezvous, 1, NULL, NULL);
    struct plan_channel channel = within_a(1, DT_FLOAT);
    struct wait now, later;
    struct status *why = status_unavailable("the sky fell");
    assert_false(start(step, &channel, 0, &now));
    rendezvous_abort(step, why);
    expect_failure(&now, STATUS_UNAVAILABLE, "the sky fell");
    assert_false(start(step, &channel, 1, &later));
    assert_int_equal(later.n_calls, 0); /* never inside the call */
    LOOP_UNTIL(loop, later.n_calls == 1);
    expect_failure(&later, STATUS_UNAVAILABLE, "the sky fell");
    status_unref(why);
    end(&a, step, 1);
}

static bool page_says(bool is_operator, const char *words) {
    struct str page = STR_INIT;
    page_open(&page, NULL, '{');
    rendezvous_table_page(a.rendezvous, is_operator, &page);
    bool is_said = strstr(str_text(&page), words) != NULL;
    str_fini(&page);
    return is_said;
}

static void the_page_tells_only_operators_what_aborted_a_step(void **state) {
    struct rendezvous *step = rendezvous_open(a.rendezvous, 1, NULL, NULL);
    struct status *why = status_invalid("secret\n\t [[{{node n}}]]");
    assert_false(page_says(true, "aborted"));
    rendezvous_abort(step, why);
    status_unref(why);
    assert_true(page_says(false, "\"aborted_code\":\"INVALID_ARGUMENT\",\"aborted_node\":\"n\""));
    assert_false(page_says(false, "secret"));
    assert_true(page_says(true, "secret"));
    end(&a, step, 1);
}

/* ---- ended steps ---- */

static void an_ended_step_is_not_opened_again(void **state) {
    struct rendezvous *step = rendezvous_open(a.rendezvous, 7, NULL, NULL);
    end(&a, step, 7);
    assert_null(rendezvous_open(a.rendezvous, 7, NULL, NULL));
    assert_true(rendezvous_is_ended(a.rendezvous, 7));
    rendezvous_prune(a.rendezvous, 1, 100);
    assert_true(rendezvous_is_ended(a.rendezvous, 99));
    assert_null(rendezvous_open(a.rendezvous, 99, NULL, NULL));
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
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL, NULL),
                      *receiver = rendezvous_open(b.rendezvous, 1, NULL, NULL);
    struct wait wait;
    struct tensor dead;
    peer_connect(a.other);
    tensor_init_dead(&dead);
    assert_false(start(receiver, &in, 0, &wait));
    assert_null(rendezvous_send(sender, &out, 0, &dead));
    rendezvous_flush(sender);
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_int_equal(wait.value.storage, TENSOR_DEAD);
    end(&a, sender, 1);
    end(&b, receiver, 1);
}

static void check_strings(int64_t n, size_t len) {
    static uint64_t step_id = 500;
    step_id++;
    struct plan_channel out = to_b(3, DT_STRING), in = from_a(3, DT_STRING);
    struct rendezvous *sender = rendezvous_open(a.rendezvous, step_id, NULL, NULL),
                      *receiver = rendezvous_open(b.rendezvous, step_id, NULL, NULL);
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
    LOOP_UNTIL(loop, wait.n_calls == 1);
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
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 900, NULL, NULL),
                      *receiver = rendezvous_open(b.rendezvous, 900, NULL, NULL);
    struct text_send *send = aligned_alloc(64, sizeof(*send));
    struct text_wait *wait = aligned_alloc(64, sizeof(*wait));
    struct plan_channel in = from_a(3, DT_STRING);
    memset(send, 0, sizeof(*send));
    memset(wait, 0, sizeof(*wait));
    wait->recv.on_value = on_text;
    peer_connect(a.other);
    assert_false(rendezvous_recv_start(receiver, &in, 0, &wait->recv, &wait->value));
    start_text(send, sender, N_TEXTS);
    LOOP_UNTIL(loop, atomic_load(&wait->n_calls) == 1 && atomic_load(&send->n_encoded) == 1);
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
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 901, NULL, NULL);
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
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL, NULL);
    struct wait wait, second;
    peer_connect(a.other);
    send_floats(sender, out, 0, 100, 1);
    send_floats(sender, out_2, 0, 100000, 2); /* announced, not granted before the step is opened */
    LOOP_UNTIL(loop, atomic_load(&b.rendezvous->early_bytes) > 0);
    for (int i = 0; i < 5; i++)
        loop_iterate(loop);
    assert_int_equal(atomic_load(&b.rendezvous->in_flight_bytes), 0);
    struct rendezvous *receiver = rendezvous_open(b.rendezvous, 1, NULL, NULL);
    assert_int_equal(atomic_load(&b.rendezvous->early_bytes), 0);
    assert_true(start(receiver, &in, 0, &wait));
    assert_true(value_holds(&wait.value, 100, 1));
    tensor_clear(&wait.value);
    if (!start(receiver, &in_2, 0, &second))
        LOOP_UNTIL(loop, second.n_calls == 1);
    assert_true(value_holds(&second.value, 100000, 2));
    tensor_clear(&second.value);
    end(&a, sender, 1);
    end(&b, receiver, 1);
}

static void what_nobody_opens_is_dropped_in_the_end(void **state) {
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL, NULL);
    peer_connect(a.other);
    send_floats(sender, to_b(3, DT_FLOAT), 0, 100, 1);
    LOOP_UNTIL(loop, atomic_load(&b.rendezvous->early_bytes) > 0);
    rendezvous_expire(b.rendezvous, INT64_MAX);
    assert_int_equal(atomic_load(&b.rendezvous->early_bytes), 0);
    assert_null(rendezvous_open(b.rendezvous, 1, NULL, NULL));
    struct rendezvous *second = rendezvous_open(a.rendezvous, 2, NULL, NULL);
    send_floats(second, to_b(3, DT_FLOAT), 0, 100, 1);
    LOOP_UNTIL(loop, atomic_load(&b.rendezvous->early_bytes) > 0);
    rendezvous_prune(b.rendezvous, 0, 3); /* the master says that it has ended */
    assert_int_equal(atomic_load(&b.rendezvous->early_bytes), 0);
    end(&a, sender, 1);
    end(&a, second, 2);
}

static void a_late_arrival_is_dropped(void **state) {
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL, NULL),
                      *receiver = rendezvous_open(b.rendezvous, 1, NULL, NULL);
    peer_connect(a.other);
    end(&b, receiver, 1);
    send_floats(sender, to_b(3, DT_FLOAT), 0, 100, 1);
    send_floats(sender, to_b(4, DT_FLOAT), 0, 100000, 1);
    check_crossing(1, true);
    assert_int_equal(b.rendezvous->steps.n_entries, 0);
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
    struct rendezvous *sender = rendezvous_open(a.rendezvous, 1, NULL, NULL),
                      *receiver = rendezvous_open(b.rendezvous, 1, NULL, NULL);
    peer_connect(a.other);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        t[i].edge = i;
        t[i].sender = sender;
        t[i].receiver = receiver;
        assert_int_equal(pthread_create(&t[i].thread, NULL, send_all, &t[i]), 0);
        assert_int_equal(pthread_create(&receivers[i], NULL, receive_all, &t[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        LOOP_UNTIL(loop, all_came(&t[i]));
        pthread_join(t[i].thread, NULL);
        pthread_join(receivers[i], NULL);
        for (int k = 0; k < N_KEYS; k++) {
            assert_true(value_holds(&t[i].waits[k].value, k % 50 == 0 ? 30000 : 3, (float)k));
            tensor_clear(&t[i].waits[k].value);
        }
    }
    end(&a, sender, 1);
    end(&b, receiver, 1);
    free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_drawing_of_slots_is_their_table),
        TEST(a_value_waits_for_its_receive),
        TEST(a_receive_waits_for_its_value),
        TEST(many_keys_meet),
        TEST(a_second_value_for_a_key_is_an_error),
        TEST(a_value_of_another_type_fails_the_receive),
        TEST(an_abort_ends_waits_now_and_later),
        TEST(the_page_tells_only_operators_what_aborted_a_step),
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
        TEST(threads_send_and_receive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
