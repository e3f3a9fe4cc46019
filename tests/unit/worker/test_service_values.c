/* Feeds, fetches and traces that take long: the loop serves others meanwhile, and a cancel takes
 * effect. */
#include <semaphore.h>

#include "tests/unit/worker/master_end.h"

#define STRINGS_FEED_TO_FETCH                \
    "feed = _MrFeed() {T=string, index=0}\n" \
    "pass = Identity(feed) {T=string}\n"     \
    "fetch = _MrFetch(pass) {T=string, index=0}\n"

/* ---- a pool that does nothing for a while ---- */

struct blocker {
    struct pool_task task;
    sem_t *go_on;
};

static sem_t go_on;
static struct blocker blockers[2]; /* one for each thread of the pool */

static void block(struct pool_task *task) {
    while (sem_wait(CONTAINER_OF(task, struct blocker, task)->go_on) != 0)
        ;
}

static void block_pool(void) {
    assert_int_equal(sem_init(&go_on, 0, 0), 0);
    for (size_t i = 0; i < ARRAY_LEN(blockers); i++) {
        blockers[i] = (struct blocker){{.run = block}, &go_on};
        pool_submit(pool, &blockers[i].task);
    }
}

static void unblock_pool(void) {
    for (size_t i = 0; i < ARRAY_LEN(blockers); i++)
        sem_post(&go_on);
}

/* The worker answers a ping, and nothing else: it has not done what waits for the pool. */
static void expect_pong_only(int n) {
    wire_send(to_worker.conn, &(struct wire_out){.type = WIRE_PING});
    await_message(&to_worker, n);
    assert_int_equal(to_worker.n_messages, n);
    assert_int_equal(to_worker.last.type, WIRE_PONG);
}

static struct tensor many_strings(int64_t n) {
    struct tensor t = TENSOR_INIT;
    char text[32];
    assert_null(tensor_new(allocator_host(), DT_STRING, (struct shape){1, &n}, &t));
    for (int64_t i = 0; i < n; i++) {
        int len = snprintf(text, sizeof(text), "string %lld", (long long)i);
        tensor_set_string(&t, i, text, (size_t)len);
    }
    return t;
}

/* ---- feeds ---- */

static void many_strings_are_fed_and_fetched(void **state) {
    uint64_t graph = register_graph(&to_worker, &worker, STRINGS_FEED_TO_FETCH, NULL);
    struct tensor feed = many_strings(100000), fetch = TENSOR_INIT;
    send_run(&to_worker, graph, ++next_step, &feed, 1, false);
    await_message(&to_worker, 3);
    assert_int_equal(take_done(&to_worker, next_step, &fetch, 1, NULL), 0);
    assert_true(tensor_equal(&feed, &fetch));
    tensor_clear(&feed);
    tensor_clear(&fetch);
    LOOP_UNTIL(loop, worker_service_n_steps(worker.service) == 0);
}

static void the_loop_does_not_decode_many_strings(void **state) {
    uint64_t graph = register_graph(&to_worker, &worker, STRINGS_FEED_TO_FETCH, NULL);
    struct tensor feed = many_strings(20000), fetch = TENSOR_INIT;
    block_pool();
    send_run(&to_worker, graph, ++next_step, &feed, 1, false);
    expect_pong_only(3);
    unblock_pool();
    await_message(&to_worker, 4);
    assert_int_equal(take_done(&to_worker, next_step, &fetch, 1, NULL), 0);
    assert_true(tensor_equal(&feed, &fetch));
    tensor_clear(&feed);
    tensor_clear(&fetch);
}

static void a_step_is_cancelled_before_its_feeds_are_decoded(void **state) {
    uint64_t graph = register_graph(&to_worker, &worker, STRINGS_FEED_TO_FETCH, NULL);
    struct tensor feed = many_strings(20000);
    block_pool();
    send_run(&to_worker, graph, ++next_step, &feed, 1, false);
    send_cancel(&to_worker, next_step);
    expect_pong_only(3);
    unblock_pool();
    expect_code(&to_worker, 4, next_step, STATUS_CANCELLED, "not wanted");
    assert_true(is_derived(&to_worker));
    tensor_clear(&feed);
}

static void many_strings_that_are_malformed_fail_their_step(void **state) {
    uint64_t graph = register_graph(&to_worker, &worker, FEED_TO_FETCH, NULL);
    struct tensor feed = many_strings(20000), fetch = TENSOR_INIT;
    send_run(&to_worker, graph, ++next_step, &feed, 1, false);
    expect_code(&to_worker, 3, next_step, STATUS_INVALID_ARGUMENT,
                "feed 0 is string, but the graph expects float");
    tensor_clear(&feed);
    tensor_init_scalar_f32(&feed, 2); /* the connection lives */
    send_run(&to_worker, graph, ++next_step, &feed, 1, false);
    await_message(&to_worker, 4);
    assert_int_equal(take_done(&to_worker, next_step, &fetch, 1, NULL), 0);
    expect_text(&fetch, "float[]{2}");
}

/* ---- fetches ---- */

static uint64_t register_constant_strings(int n) {
    struct str text = STR_INIT;
    str_addf(&text, "c = Const() {dtype=string, value=string[%d]{", n);
    for (int i = 0; i < n; i++)
        str_addf(&text, "%s\"s%d\"", i ? ", " : "", i);
    str_add(&text, "}}\nfetch = _MrFetch(c) {T=string, index=0}\n");
    uint64_t graph = register_graph(&to_worker, &worker, str_text(&text), NULL);
    str_fini(&text);
    return graph;
}

static void the_loop_does_not_encode_many_strings(void **state) {
    uint64_t graph = register_constant_strings(3000);
    struct tensor fetch = TENSOR_INIT;
    block_pool();
    send_run(&to_worker, graph, ++next_step, NULL, 0, false);
    expect_pong_only(3);
    unblock_pool();
    await_message(&to_worker, 4);
    assert_int_equal(take_done(&to_worker, next_step, &fetch, 1, NULL), 0);
    assert_int_equal(fetch.n_elements, 3000);
    assert_true(span_is(tensor_string(&fetch, 2999), "s2999"));
    tensor_clear(&fetch);
}

static void a_step_is_cancelled_while_its_fetches_are_encoded(void **state) {
    uint64_t graph = register_constant_strings(3000);
    block_pool();
    send_run(&to_worker, graph, ++next_step, NULL, 0, false);
    send_cancel(&to_worker, next_step);
    expect_pong_only(3);
    unblock_pool();
    expect_code(&to_worker, 4, next_step, STATUS_CANCELLED, "not wanted");
}

/* ---- traces ---- */

static void a_trace_says_what_it_leaves_out(void **state) {
    uint64_t handle = register_graph(&to_worker, &worker, FEED_TO_FETCH, NULL);
    struct plan *plan = graph_cache_find(worker.service->graphs, handle)->plan;
    struct node_stats rows[100];
    struct step_stats stats = {.nodes = rows, .n_nodes = ARRAY_LEN(rows), .plan = plan};
    struct stats_writer writer;
    for (uint32_t i = 0; i < plan->n_nodes; i++)
        if (strcmp(plan->nodes[i].node->name, "pass") == 0)
            for (size_t k = 0; k < ARRAY_LEN(rows); k++)
                rows[k] = (struct node_stats){.node = &plan->nodes[i]};
    for (int has_room = 0; has_room < 2; has_room++) {
        int64_t units;
        int n_calls = 0;
        stats_writer_init(&writer, &stats, worker.service->home, has_room ? 1 << 20 : 1000);
        do {
            units = 100;
            n_calls++;
        } while (!stats_writer_run(&writer, &units));
        assert_true(n_calls >= 10); /* in pieces */
        assert_non_null(memmem(writer.out.data, writer.out.len, "pass = Identity(", 16));
        assert_int_equal(memmem(writer.out.data, writer.out.len, " more rows: the trace", 21) !=
                             NULL,
                         !has_room);
        assert_true(has_room || writer.out.len < 2000);
        stats_writer_fini(&writer);
    }
}

static void a_trace_names_what_a_device_did_for_a_node(void **state) {
    uint64_t handle = register_graph(&to_worker, &worker, FEED_TO_FETCH, NULL);
    struct plan *plan = graph_cache_find(worker.service->graphs, handle)->plan;
    const struct plan_node *pass = plan->nodes;
    while (strcmp(pass->node->name, "pass") != 0)
        pass++;
    struct node_stats rows[] = {
        {.node = pass, .stream = "/device:GPU:0/stream:all"},
        {.node = pass, .stream = "/device:GPU:0/stream:7", .activity = "copy_f32"}};
    struct step_stats stats = {.nodes = rows, .n_nodes = ARRAY_LEN(rows), .plan = plan};
    struct stats_writer writer;
    int64_t units = 1000;
    stats_writer_init(&writer, &stats, worker.service->home, 1 << 20);
    assert_true(stats_writer_run(&writer, &units));
    const char *all = memmem(writer.out.data, writer.out.len, "/device:GPU:0/stream:all", 24),
               *own = memmem(writer.out.data, writer.out.len, "/device:GPU:0/stream:7", 22);
    assert_true(all && own && all < own);
    const char *end = writer.out.data + writer.out.len;
    assert_non_null(memmem(all, (size_t)(own - all), "pass:Identity", 13));
    assert_null(memmem(all, (size_t)(own - all), "copy_f32", 8));
    assert_non_null(memmem(own, (size_t)(end - own), "copy_f32@@pass:Identity#", 24));
    stats_writer_fini(&writer);
}

/* ---- graphs ---- */

static void a_graph_beyond_the_limit_is_refused_and_not_the_connection(void **state) {
    struct str why = STR_INIT;
    int64_t limit = worker.service->options.max_graph_bytes;
    worker.service->options.max_graph_bytes = 100;
    assert_int_equal(register_graph(&to_worker, &worker, FEED_TO_FETCH, &why), 0);
    assert_non_null(strstr(str_text(&why), "takes at most 100 bytes for the part of a graph"));
    assert_non_null(strstr(str_text(&why), worker.task));
    assert_int_equal(to_worker.n_closed, 0);
    worker.service->options.max_graph_bytes = limit;
    assert_int_not_equal(register_graph(&to_worker, &worker, FEED_TO_FETCH, NULL), 0);
    str_fini(&why);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(many_strings_are_fed_and_fetched),
        TEST(the_loop_does_not_decode_many_strings),
        TEST(a_step_is_cancelled_before_its_feeds_are_decoded),
        TEST(many_strings_that_are_malformed_fail_their_step),
        TEST(the_loop_does_not_encode_many_strings),
        TEST(a_step_is_cancelled_while_its_fetches_are_encoded),
        TEST(a_trace_says_what_it_leaves_out),
        TEST(a_trace_names_what_a_device_did_for_a_node),
        TEST(a_graph_beyond_the_limit_is_refused_and_not_the_connection),
    };
    return RUN_SERVICE_TESTS(tests);
}
