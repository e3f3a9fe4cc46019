/* RDMA between two tasks: connections, values, registered memory, and what is sent over TCP where
 * one of the two cannot use RDMA. */
#include "tests/unit/worker/rdma_pair.h"

/* ---- bring-up and values ---- */

static void a_large_value_is_written_into_place(void **state) {
    connect_both();
    check_crosses(&a, &b, 7);
    assert_true(task_says(&a, "\"transport\":\"rdma\"") && task_says(&b, "\"transport\":\"rdma\""));
    assert_true(task_says(&a, "\"written\":1,\"written_bytes\":1200004,\"received\":0"));
    assert_true(task_says(&b, "\"received\":1,\"received_bytes\":1200004,\"tcp_instead\":0"));
    assert_true(task_says(&a, "\"bulk\":false") && task_says(&b, "\"bulk\":false"));
}

static void the_other_direction_has_a_connection_of_its_own(void **state) {
    connect_both();
    check_crosses(&b, &a, 8);
    assert_true(task_says(&a, "\"written\":0") && task_says(&a, "\"received\":1,") &&
                task_says(&b, "\"written\":1,"));
}

static void both_ends_may_connect_at_once(void **state) {
    peer_connect(a.other);
    peer_connect(b.other);
    LOOP_UNTIL(loop, task_says(&a, READY_TO) && task_says(&a, READY_FROM) &&
                         task_says(&b, READY_TO) && task_says(&b, READY_FROM));
    check_crosses(&a, &b, 9);
    check_crosses(&b, &a, 10);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static void the_receiver_is_the_only_holder(void **state) {
    struct tensor value;
    struct wait wait;
    connect_both();
    make(&value, 3);
    receive(&b, &a, 7, &wait);
    send_value(&a, &b, 7, &value);
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_true(tensor_is_sole(&wait.value));
    tensor_clear(&wait.value);
    tensor_clear(&value);
}

static void a_grant_waits_for_the_probe_of_the_connection(void **state) {
    struct tensor value;
    struct wait wait;
    fake_verbs.is_held = true;
    make(&value, 4);
    peer_connect(a.other);
    receive(&b, &a, 7, &wait);
    send_value(&a, &b, 7, &value);
    LOOP_UNTIL(loop, fake_verbs.n_waiting == 2); /* both probes */
    assert_int_equal(wait.n_calls, 0);
    fake_verbs.is_held = false;
    fake_verbs_run(-1);
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_true(holds(&wait.value, 4) && task_says(&b, "\"received\":1,"));
    tensor_clear(&wait.value);
    tensor_clear(&value);
}

static void strings_are_written_as_their_protos(void **state) {
    struct tensor value = TENSOR_INIT;
    struct wait wait;
    int64_t n = 3;
    char *text = xmalloc(100000);
    memset(text, 'x', 100000);
    connect_both();
    assert_null(tensor_new(allocator_host(), DT_STRING, (struct shape){1, &n}, &value));
    for (int i = 0; i < 3; i++)
        tensor_set_string(&value, i, text, 100000);
    receive(&b, &a, 7, &wait);
    send_value(&a, &b, 7, &value);
    LOOP_UNTIL(loop, wait.n_calls == 1);
    assert_true(task_says(&b, "\"received\":1,") && wait.value.dtype == DT_STRING &&
                wait.value.n_elements == 3);
    assert_int_equal(tensor_string(&wait.value, 2).len, 100000);
    tensor_clear(&wait.value);
    tensor_clear(&value);
    free(text);
}

static void values_are_split_at_the_devices_largest_message(void **state) {
    connect_both();
    fake_verbs.largest_write_bytes = 0;
    uint64_t before = fake_verbs.n_writes, numbers = fake_verbs.n_numbers;
    check_crosses(&a, &b, 7);
    assert_int_equal(fake_verbs.largest_write_bytes, 65536);
    assert_int_equal(fake_verbs.n_writes - before, (1200004 + 65535) / 65536);
    assert_int_equal(fake_verbs.n_numbers - numbers, 1); /* the last piece alone */
}

/* More at a time than the queue pair holds pieces, and than places may be granted. */
static void many_values_at_once_all_arrive(void **state) {
    enum { N = 300 };
    static struct wait waits[N];
    struct tensor value;
    connect_both();
    make(&value, 5);
    for (uint32_t i = 0; i < N; i++)
        task_receive(&b, a.name, 7, i, &waits[i]);
    for (uint32_t i = 0; i < N; i++)
        task_send(&a, b.name, 7, i, &value);
    for (int i = 0; i < N; i++) {
        LOOP_UNTIL(loop, waits[i].n_calls == 1);
        assert_true(holds(&waits[i].value, 5));
        tensor_clear(&waits[i].value);
    }
    assert_true(fake_verbs.n_writes > 256);
    LOOP_UNTIL(loop, tensor_is_sole(&value));
    tensor_clear(&value);
}

/* ---- registered memory ---- */

static void a_value_sent_again_is_registered_once(void **state) {
    struct tensor value;
    struct wait wait;
    connect_both();
    make(&value, 6);
    for (uint64_t step = 7; step < 12; step++) {
        receive(&b, &a, step, &wait);
        send_value(&a, &b, step, &value);
        LOOP_UNTIL(loop, wait.n_calls == 1);
        tensor_clear(&wait.value);
    }
    LOOP_UNTIL(loop, tensor_is_sole(&value));
    struct str page = STR_INIT;
    peer_table_describe_rdma(a.peers, &page);
    if (buffer_is_recycled(value.buffer)) /* not in a hostile build */
        assert_non_null(strstr(str_text(&page), "\"kept\":1,\"kept_bytes\":1200004"));
    str_fini(&page);
    tensor_clear(&value);
}

static void memory_that_goes_back_to_the_system_is_withdrawn_first(void **state) {
    connect_both();
    check_crosses(&b, &a, 7); /* the allocator tells one device of a process: here the second one */
    LOOP_UNTIL(loop, fake_verbs.n_regions <= 1);
    allocator_host_trim();
    assert_int_equal(fake_verbs.n_regions, 0);
    check_crosses(&b, &a, 8);
}

/* ---- one of the two cannot ---- */

static void without_memory_to_register_the_value_comes_over_tcp(void **state) {
    connect_both();
    fake_verbs.n_registrations_to_fail = 1;
    check_crosses(&a, &b, 7);
    assert_true(task_says(&b, "\"received\":0,\"received_bytes\":0,\"tcp_instead\":1") &&
                task_says(&a, "\"bulk\":true"));
    check_crosses(&a, &b, 8);
    assert_true(task_says(&b, "\"received\":1,"));
}

static void a_sender_that_cannot_register_declines_and_pushes(void **state) {
    connect_both();
    allocator_host_trim();
    fake_verbs.n_sources_to_fail = 1;
    check_crosses(&a, &b, 7);
    assert_true(task_says(&a, "\"written\":0") && task_says(&a, "\"tcp_instead\":1") &&
                task_says(&b, "\"tcp_instead\":1"));
    check_crosses(&a, &b, 8);
    assert_true(task_says(&a, "\"written\":1,"));
}

static void a_peer_without_rdma_gets_the_value_over_tcp(void **state) {
    check_crosses(&a, &b, 7);
    LOOP_UNTIL(loop, task_says(&a, "\"to\":\"it says: switched off\""));
    assert_true(task_says(&a, "\"transport\":\"tcp\"") && task_says(&a, "\"mode\":\"prefer\"") &&
                task_says(&b, "\"mode\":\"off\""));
    check_crosses(&b, &a, 8);
    assert_int_equal(a.n_lost + b.n_lost, 0);
}

static void required_rdma_that_the_peer_refuses_is_an_error(void **state) {
    struct wait wait;
    receive(&b, &a, 7, &wait);
    peer_connect(a.other);
    LOOP_UNTIL(loop, a.n_lost == 1 && b.n_lost >= 1);
    assert_int_equal(a.lost_code, STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(str_text(&a.lost_why),
                           "RDMA is required here (--rdma=require), but there is none to task "
                           "/job:worker/replica:0/task:0: it says: switched off"));
    rendezvous_end_step(b.rendezvous, 7);
    assert_int_equal(wait.n_calls, 1);
    status_unref(wait.status);
}

static int setup_a_alone(void **state) {
    mode_b = RDMA_OFF;
    setup(state);
    mode_b = RDMA_PREFER;
    return 0;
}
static int setup_a_requires(void **state) {
    mode_a = RDMA_REQUIRE;
    setup_a_alone(state);
    mode_a = RDMA_PREFER;
    return 0;
}
static int setup_both_require(void **state) {
    mode_a = mode_b = RDMA_REQUIRE;
    setup(state);
    mode_a = mode_b = RDMA_PREFER;
    return 0;
}

static void required_on_both_ends_it_works(void **state) {
    connect_both();
    check_crosses(&a, &b, 7);
    check_crosses(&b, &a, 8);
    assert_true(task_says(&b, "\"received\":1,") && task_says(&a, "\"received\":1,"));
}

/* What the task says of its link to the other one. */
static struct link_report report_of(struct test_task *task) {
    struct str reply = STR_INIT;
    struct link_report report;
    peer_table_report_links(task->peers, &reply);
    struct span rest = {reply.data, reply.len};
    assert_true(link_report_next(&rest, &report));
    assert_int_equal(report.way, LINK_WAY_RDMA);
    report.task = (struct span){NULL, 0}; /* of the reply */
    str_fini(&reply);
    return report;
}

static void written_values_measure_the_link(void **state) {
    static const int64_t n = 1 << 20;
    struct tensor value;
    struct wait wait;
    connect_both();
    check_crosses(&a, &b, 6); /* too small to tell */
    assert_true(report_of(&a).bytes_per_second == 0);
    assert_null(tensor_new_zeroed(allocator_host(), DT_FLOAT, (struct shape){1, &n}, &value));
    receive(&b, &a, 7, &wait);
    send_value(&a, &b, 7, &value);
    LOOP_UNTIL(loop, wait.n_calls == 1);
    LOOP_UNTIL(loop, report_of(&a).bytes_per_second > 0);
    assert_true(report_of(&a).bytes_per_second > 1000000);
    tensor_clear(&wait.value);
    tensor_clear(&value);
    rendezvous_end_step(a.rendezvous, 7);
    rendezvous_end_step(b.rendezvous, 7);
}

static void a_queue_pair_that_cannot_be_made_leaves_tcp(void **state) {
    static const char *const calls[] = {"create_cq", "create_qp", "modify_qp", "alloc_pd"};
    for (uint64_t i = 0; i < ARRAY_LEN(calls); i++) {
        fake_verbs.failing_call = calls[i];
        check_crosses(&a, &b, 10 + 2 * i);
        check_crosses(&b, &a, 11 + 2 * i);
        assert_true(task_says(&a, "\"received\":0,\"received_bytes\":0") &&
                    task_says(&b, "\"received\":0,\"received_bytes\":0"));
        fake_verbs.failing_call = NULL;
        teardown(state);
        setup(state);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_large_value_is_written_into_place),
        TEST(the_other_direction_has_a_connection_of_its_own),
        TEST(both_ends_may_connect_at_once),
        TEST(the_receiver_is_the_only_holder),
        TEST(a_grant_waits_for_the_probe_of_the_connection),
        TEST(strings_are_written_as_their_protos),
        TEST_WITH(values_are_split_at_the_devices_largest_message, setup_small_messages),
        TEST_WITH(many_values_at_once_all_arrive, setup_small_messages),
        TEST(a_value_sent_again_is_registered_once),
        TEST(memory_that_goes_back_to_the_system_is_withdrawn_first),
        TEST(without_memory_to_register_the_value_comes_over_tcp),
        TEST(a_sender_that_cannot_register_declines_and_pushes),
        TEST_WITH(a_peer_without_rdma_gets_the_value_over_tcp, setup_a_alone),
        TEST_WITH(required_rdma_that_the_peer_refuses_is_an_error, setup_a_requires),
        TEST_WITH(required_on_both_ends_it_works, setup_both_require),
        TEST(written_values_measure_the_link),
        TEST(a_queue_pair_that_cannot_be_made_leaves_tcp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
