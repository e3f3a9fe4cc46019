/* A worker's service: from RegisterGraph to RunDone, between two tasks, and all the ways a step
 * may be cut short. */
#include "tests/unit/worker/master_end.h"

/* ---- graphs and steps ---- */

static void a_fed_value_is_fetched(void **state) {
    uint64_t graph = register_graph(&to_worker, &worker, FEED_TO_FETCH, NULL);
    static const int64_t sizes[] = {1, 3, 100, 5000, 100000};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct tensor feed = TENSOR_INIT, fetch = TENSOR_INIT;
        uint64_t step_id = ++next_step;
        assert_null(tensor_new(allocator_host(), DT_FLOAT, (struct shape){1, &sizes[i]}, &feed));
        for (int64_t k = 0; k < sizes[i]; k++)
            ((float *)tensor_data(&feed))[k] = (float)k;
        int n = to_worker.n_messages;
        send_run(&to_worker, graph, step_id, &feed, 1, false);
        await_message(&to_worker, n + 1);
        assert_int_equal(take_done(&to_worker, step_id, &fetch, 1, NULL), 0);
        assert_true(tensor_equal(&feed, &fetch));
        tensor_clear(&feed);
        tensor_clear(&fetch);
    }
    assert_int_equal(worker_service_n_steps(worker.service), 0);
}

static void strings_are_fed_and_fetched(void **state) {
    uint64_t graph = register_graph(&to_worker, &worker,
                                    "feed = _MrFeed() {T=string, index=0}\n"
                                    "fetch = _MrFetch(feed) {T=string, index=0}\n",
                                    NULL);
    struct tensor feed = TENSOR_INIT, fetch = TENSOR_INIT;
    int64_t n = 2;
    assert_null(tensor_new(allocator_host(), DT_STRING, (struct shape){1, &n}, &feed));
    tensor_set_string(&feed, 0, "hello", 5);
    tensor_set_string(&feed, 1, "world", 5);
    send_run(&to_worker, graph, ++next_step, &feed, 1, false);
    await_message(&to_worker, 3);
    assert_int_equal(take_done(&to_worker, next_step, &fetch, 1, NULL), 0);
    assert_true(tensor_equal(&feed, &fetch));
    tensor_clear(&feed);
    tensor_clear(&fetch);
}

static void a_dead_value_is_fetched_as_dead(void **state) {
    uint64_t graph = register_graph(&to_worker, &worker,
                                    "p = Const() {dtype=bool, value=bool[]{true}}\n"
                                    "c = Const() {dtype=float, value=float[]{1}}\n"
                                    "s = Switch(c, p) {T=float}\n"
                                    "f0 = _MrFetch(s:0) {T=float, index=0}\n"
                                    "f1 = _MrFetch(s:1) {T=float, index=1}\n",
                                    NULL);
    struct tensor fetches[2] = {TENSOR_INIT, TENSOR_INIT};
    send_run(&to_worker, graph, ++next_step, NULL, 0, false);
    await_message(&to_worker, 3);
    assert_int_equal(take_done(&to_worker, next_step, fetches, 2, NULL), 0);
    assert_int_equal(fetches[0].storage, TENSOR_DEAD);
    expect_text(&fetches[1], "float[]{1}");
}

static void a_failing_node_is_named_and_the_failure_is_the_tasks_own(void **state) {
    uint64_t graph = register_graph(&to_worker, &worker,
                                    "c = Const() {dtype=float, value=float[]{1}}\n"
                                    "bad = Abs(c) {T=float}\n"
                                    "fetch = _MrFetch(bad) {T=float, index=0}\n",
                                    NULL);
    send_run(&to_worker, graph, ++next_step, NULL, 0, false);
    expect_code(&to_worker, 3, next_step, STATUS_OUT_OF_RANGE, "{{node bad}}");
    assert_false(is_derived(&to_worker));
}

static void statistics_come_when_asked_for(void **state) {
    uint64_t graph = register_graph(&to_worker, &worker, FEED_TO_FETCH, NULL);
    struct tensor feed, fetch = TENSOR_INIT;
    tensor_init_scalar_f32(&feed, 2);
    send_run(&to_worker, graph, ++next_step, &feed, 1, true);
    await_message(&to_worker, 3);
    assert_int_equal(take_done(&to_worker, next_step, &fetch, 1, NULL), 0);
    struct run_done_message done;
    assert_null(run_done_read(to_worker.last.meta, &done));
    struct span stats = {NULL, done.trace_size_bytes};
    assert_true(stats.len > 0 && stats.len <= to_worker.last.payload_len);
    stats.data = to_worker.last.payload->data + to_worker.last.payload_len - stats.len;
    assert_non_null(memmem(stats.data, stats.len, worker.device_name, strlen(worker.device_name)));
    assert_non_null(memmem(stats.data, stats.len, "pass = Identity(", 16));
}

static void a_graph_that_cannot_be_built_says_why(void **state) {
    struct str why = STR_INIT;
    assert_int_equal(
        register_graph(&to_worker, &worker,
                       "a = Const() {dtype=float, value=float[]{1}}\nx = Cholesky(a) {T=float}\n",
                       &why),
        0);
    assert_non_null(strstr(str_text(&why), "Cholesky"));
    assert_non_null(strstr(str_text(&why), "{{node x}}"));
    str_fini(&why);
}

static void a_large_graph_is_built_off_the_loop(void **state) {
    struct str text = STR_INIT;
    str_add(&text, "feed = _MrFeed() {T=float, index=0}\nn0 = Identity(feed) {T=float}\n");
    for (int i = 1; i < 500; i++)
        str_addf(&text, "n%d = Identity(n%d) {T=float}\n", i, i - 1);
    str_add(&text, "fetch = _MrFetch(n499) {T=float, index=0}\n");
    uint64_t graph = register_graph(&to_worker, &worker, text.data, NULL);
    struct tensor feed, fetch = TENSOR_INIT;
    tensor_init_scalar_f32(&feed, 2);
    send_run(&to_worker, graph, ++next_step, &feed, 1, false);
    await_message(&to_worker, 3);
    assert_int_equal(take_done(&to_worker, next_step, &fetch, 1, NULL), 0);
    expect_text(&fetch, "float[]{2}");
    str_fini(&text);
}

static void a_run_that_does_not_fit_its_graph_is_refused(void **state) {
    uint64_t graph = register_graph(&to_worker, &worker, FEED_TO_FETCH, NULL);
    struct tensor feeds[2];
    send_run(&to_worker, 999, ++next_step, NULL, 0, false);
    expect_code(&to_worker, 3, next_step, STATUS_ABORTED, "Graph handle 999 is not registered");
    send_run(&to_worker, graph, ++next_step, NULL, 0, false);
    expect_code(&to_worker, 4, next_step, STATUS_INVALID_ARGUMENT, "0 feeds");
    tensor_init_scalar_i64(&feeds[0], 2);
    tensor_init_scalar_i64(&feeds[1], 2);
    send_run(&to_worker, graph, ++next_step, feeds, 1, false);
    expect_code(&to_worker, 5, next_step, STATUS_INVALID_ARGUMENT,
                "feed 0 is int64, but the graph expects float");
    tensor_init_scalar_f32(&feeds[0], 2);
    send_run(&to_worker, graph, ++next_step, feeds, 2, false);
    expect_code(&to_worker, 6, next_step, STATUS_INVALID_ARGUMENT, "more feeds than the 1");
}

static void feeds_beyond_the_limit_fail_their_step_and_not_the_connection(void **state) {
    uint64_t graph = register_graph(&to_worker, &worker, FEED_TO_FETCH, NULL);
    struct tensor feed = TENSOR_INIT, fetch = TENSOR_INIT;
    int64_t n = 100000;
    worker.service->options.max_feed_bytes = 1000;
    assert_null(tensor_new_zeroed(allocator_host(), DT_FLOAT, (struct shape){1, &n}, &feed));
    send_run(&to_worker, graph, ++next_step, &feed, 1, false);
    expect_code(&to_worker, 3, next_step, STATUS_RESOURCE_EXHAUSTED,
                "takes at most 1000 bytes for feeds");
    tensor_clear(&feed);
    tensor_init_scalar_f32(&feed, 2);
    send_run(&to_worker, graph, ++next_step, &feed, 1, false);
    await_message(&to_worker, 4);
    assert_int_equal(take_done(&to_worker, next_step, &fetch, 1, NULL), 0);
    expect_text(&fetch, "float[]{2}");
}

static void a_step_runs_once(void **state) {
    uint64_t graph = register_graph(&to_worker, &worker, WAITING, NULL), done = ++next_step;
    send_run(&to_worker, graph, done, NULL, 0, false);
    LOOP_UNTIL(loop, n_waiting == 1);
    send_run(&to_worker, graph, done, NULL, 0, false);
    expect_code(&to_worker, 3, done, STATUS_ALREADY_EXISTS, "is running here already");
    send_cancel(&to_worker, done);
    expect_code(&to_worker, 4, done, STATUS_CANCELLED, "not wanted");
    send_run(&to_worker, graph, done, NULL, 0, false);
    expect_code(&to_worker, 5, done, STATUS_ABORTED, "has ended here already");
}

static void a_cancelled_step_ends_with_the_masters_words(void **state) {
    uint64_t graph = register_graph(&to_worker, &worker, WAITING, NULL);
    send_run(&to_worker, graph, ++next_step, NULL, 0, false);
    LOOP_UNTIL(loop, n_waiting == 1);
    send_cancel(&to_worker, next_step);
    expect_code(&to_worker, 3, next_step, STATUS_CANCELLED, "not wanted");
    assert_true(is_derived(&to_worker));
    assert_int_equal(n_waiting, 0);
    send_cancel(&to_worker, next_step); /* crossed with RunDone: harmless */
    wire_send(to_worker.conn, &(struct wire_out){.type = WIRE_PING});
    await_message(&to_worker, 4);
    assert_int_equal(to_worker.last.type, WIRE_PONG);
    assert_int_equal(worker.service->early_cancels.n_entries, 0);
}

static void a_cancel_may_overtake_its_run(void **state) {
    uint64_t graph = register_graph(&to_worker, &worker, WAITING, NULL);
    send_cancel(&to_worker, ++next_step);
    send_run(&to_worker, graph, next_step, NULL, 0, false);
    expect_code(&to_worker, 3, next_step, STATUS_CANCELLED, "not wanted");
    assert_true(is_derived(&to_worker));
    assert_int_equal(n_waiting, 0);
}

static void a_deadline_is_kept_when_the_master_forgets(void **state) {
    uint64_t graph = register_graph(&to_worker, &worker, WAITING, NULL);
    send_run(&to_worker, graph, ++next_step, NULL, 0, false);
    LOOP_UNTIL(loop, n_waiting == 1);
    steps_expire(worker.service, INT64_MAX - 1); /* none was given */
    assert_int_equal(n_waiting, 1);
    LIST_ENTRY(worker.service->runs.next, struct graph_run, link)->deadline_ns = 1;
    steps_expire(worker.service, INT64_MAX - 1);
    expect_code(&to_worker, 3, next_step, STATUS_DEADLINE_EXCEEDED, "deadline");
}

static void it_tells_what_steps_wait_for(void **state) {
    uint64_t graph = register_graph(&to_worker, &worker, WAITING, NULL);
    struct str page = STR_INIT;
    send_run(&to_worker, graph, ++next_step, NULL, 0, false);
    LOOP_UNTIL(loop, n_waiting == 1);
    int n = to_worker.n_messages;
    wire_send(to_worker.conn, &(struct wire_out){.type = WIRE_GET_STEPS, .id = 9});
    await_message(&to_worker, n + 1);
    assert_int_equal(to_worker.last.type, WIRE_STEPS);
    Millrace__Steps *steps = millrace__steps__unpack(NULL, to_worker.last.meta.len,
                                                     (const uint8_t *)to_worker.last.meta.data);
    assert_non_null(steps);
    assert_int_equal(steps->n_step, 1);
    assert_int_equal(steps->step[0]->step_id, next_step);
    assert_non_null(strstr(steps->step[0]->waits, "w (Square) for "));
    millrace__steps__free_unpacked(steps, NULL);
    worker_service_describe_steps(worker.service, &page);
    assert_non_null(strstr(str_text(&page), "w (Square) for "));
    str_fini(&page);
    send_cancel(&to_worker, next_step);
    expect_code(&to_worker, n + 2, next_step, STATUS_CANCELLED, "not wanted");
}

static void the_page_shows_what_a_step_waits_for(void **state) {
    struct str page = STR_INIT;
    uint64_t graph = register_graph(&to_worker, &worker, WAITING, NULL);
    send_run(&to_worker, graph, ++next_step, NULL, 0, false);
    LOOP_UNTIL(loop, n_waiting == 1);
    worker_service_describe(worker.service, 100, &page);
    assert_non_null(strstr(page.data, "\"live_steps\":1"));
    assert_non_null(strstr(page.data, "w (Square) for"));
    str_fini(&page);
}

/* Every step is a row of the page, or counted in the last one. */
static void assert_page_is_limited(int n_steps, size_t max_bytes) {
    static const char more[] = ",{\"more\":";
    struct str page = STR_INIT;
    int n_rows = 0;
    worker_service_page_steps(worker.service, &page);
    assert_true(page.len < max_bytes);
    for (const char *row = page.data; (row = strstr(row, "{\"step\":")); row++)
        n_rows++;
    const char *last = strstr(page.data, more);
    assert_non_null(last);
    assert_true(n_rows > 0);
    assert_int_equal(n_rows + strtol(last + sizeof(more) - 1, NULL, 10), n_steps);
    str_fini(&page);
}

static void the_page_of_steps_has_a_limit(void **state) {
    enum { NAME_BYTES = 240, N_NODES = 200, N_STEPS = 40, N_SMALL = 70, MAX_BYTES = 600000 };
    struct str text = STR_INIT;
    str_add(&text, "c = Const() {dtype=float, value=float[]{1}}\n");
    for (int i = 0; i < N_NODES; i++)
        str_addf(&text, "w%0*d = Square(c) {T=float}\nf%d = _MrFetch(w%0*d) {T=float, index=%d}\n",
                 NAME_BYTES, i, i, NAME_BYTES, i, i);
    uint64_t large = register_graph(&to_worker, &worker, text.data, NULL);
    uint64_t small = register_graph(&to_worker, &worker, WAITING, NULL);
    str_fini(&text);
    for (int i = 0; i < N_STEPS; i++)
        send_run(&to_worker, large, ++next_step, NULL, 0, false);
    LOOP_UNTIL(loop, n_waiting == N_STEPS * N_NODES);
    assert_page_is_limited(N_STEPS, MAX_BYTES); /* by its bytes */
    for (int i = 0; i < N_SMALL; i++)
        send_run(&to_worker, small, ++next_step, NULL, 0, false);
    LOOP_UNTIL(loop, n_waiting == N_STEPS * N_NODES + N_SMALL);
    assert_page_is_limited(N_STEPS + N_SMALL, MAX_BYTES); /* and by its rows */
}

/* ---- two tasks ---- */

static void start_ps(void) {
    start_worker(&ps, "ps");
    connect_to(&to_ps, &ps);
}

#define EDGE(number, from, to)                                 \
    "{T=float, edge=" #number ", src_device=\"/job:" from      \
    "/replica:0/task:0/device:TEST:0\", dst_device=\"/job:" to \
    "/replica:0/task:0/device:TEST:0\", tensor_name=\"x:0\"}\n"

/* A value goes from the worker to the ps and comes back. */
static void tensors_cross_and_come_back(void **state) {
    start_ps();
    uint64_t at_worker =
        register_graph(&to_worker, &worker,
                       "feed = _MrFeed() {T=float, index=0}\n"
                       "send = _MrSend(feed) " EDGE(0, "worker", "ps") "recv = _MrRecv() " EDGE(
                           1, "ps", "worker") "fetch = _MrFetch(recv) {T=float, index=0}\n",
                       NULL);
    uint64_t at_ps = register_graph(
        &to_ps, &ps,
        "recv = _MrRecv() " EDGE(0, "worker", "ps") "send = _MrSend(recv) " EDGE(1, "ps", "worker"),
        NULL);
    static const int64_t sizes[] = {1, 1000, 1000000};
    for (size_t i = 0; i < ARRAY_LEN(sizes) * 2; i++) {
        struct tensor feed = TENSOR_INIT, fetch = TENSOR_INIT;
        int64_t n = sizes[i / 2];
        uint64_t step_id = ++next_step;
        assert_null(tensor_new(allocator_host(), DT_FLOAT, (struct shape){1, &n}, &feed));
        for (int64_t k = 0; k < n; k++)
            ((float *)tensor_data(&feed))[k] = (float)k;
        int n_worker = to_worker.n_messages, n_ps = to_ps.n_messages;
        if (i % 2 == 0)
            send_run(&to_ps, at_ps, step_id, NULL, 0, false);
        send_run(&to_worker, at_worker, step_id, &feed, 1, false);
        if (i % 2 == 1)
            send_run(&to_ps, at_ps, step_id, NULL, 0, false);
        await_message(&to_worker, n_worker + 1);
        await_message(&to_ps, n_ps + 1);
        assert_int_equal(take_done(&to_worker, step_id, &fetch, 1, NULL), 0);
        assert_int_equal(take_done(&to_ps, step_id, NULL, 0, NULL), 0);
        assert_true(tensor_equal(&feed, &fetch));
        tensor_clear(&feed);
        tensor_clear(&fetch);
    }
}

static void a_lost_task_ends_the_steps_that_exchange_with_it(void **state) {
    start_ps();
    uint64_t receiving = register_graph(
        &to_worker, &worker,
        "recv = _MrRecv() " EDGE(1, "ps", "worker") "fetch = _MrFetch(recv) {T=float, index=0}\n",
        NULL);
    uint64_t at_ps = register_graph(
        &to_ps, &ps,
        "c = Const() {dtype=float, value=float[]{1}}\nsend = _MrSend(c) " EDGE(1, "ps", "worker"),
        NULL);
    uint64_t first = ++next_step, step_id = ++next_step;
    send_run(&to_ps, at_ps, first, NULL, 0, false);
    send_run(&to_worker, receiving, first, NULL, 0, false);
    await_message(&to_worker, 3);
    assert_int_equal(take_done(&to_worker, first, NULL, 0, NULL), 0);
    send_run(&to_worker, receiving, step_id, NULL, 0, false);
    LOOP_UNTIL(loop, worker_service_n_steps(worker.service) == 1);
    end_fini(&to_ps);
    stop_worker(&ps);
    expect_code(&to_worker, 4, step_id, STATUS_UNAVAILABLE, "/job:ps/replica:0/task:0");
    assert_false(is_derived(&to_worker));
    /* and the next one, which finds nobody there */
    send_run(&to_worker, receiving, ++next_step, NULL, 0, false);
    expect_code(&to_worker, 5, next_step, STATUS_UNAVAILABLE, "/job:ps/replica:0/task:0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(a_fed_value_is_fetched),
        TEST(strings_are_fed_and_fetched),
        TEST(a_dead_value_is_fetched_as_dead),
        TEST(a_failing_node_is_named_and_the_failure_is_the_tasks_own),
        TEST(statistics_come_when_asked_for),
        TEST(a_graph_that_cannot_be_built_says_why),
        TEST(a_large_graph_is_built_off_the_loop),
        TEST(a_run_that_does_not_fit_its_graph_is_refused),
        TEST(feeds_beyond_the_limit_fail_their_step_and_not_the_connection),
        TEST(a_step_runs_once),
        TEST(a_cancelled_step_ends_with_the_masters_words),
        TEST(a_cancel_may_overtake_its_run),
        TEST(a_deadline_is_kept_when_the_master_forgets),
        TEST(it_tells_what_steps_wait_for),
        TEST(the_page_shows_what_a_step_waits_for),
        TEST(the_page_of_steps_has_a_limit),
        TEST(tensors_cross_and_come_back),
        TEST(a_lost_task_ends_the_steps_that_exchange_with_it),
    };
    return RUN_SERVICE_TESTS(tests);
}
