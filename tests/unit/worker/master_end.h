/* A worker's service, with the test as its master: two workers, the master's ends of their
 * connections, and what it sends and gets. */
#ifndef MILLRACE_TESTS_UNIT_WORKER_MASTER_END_H
#define MILLRACE_TESTS_UNIT_WORKER_MASTER_END_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_proto.h"
#include "common/graph/graph_text.h"
#include "common/tensor/tensor_proto.h"
#include "proto/worker.pb-c.h"
#include "tests/unit/rpc/loop_until.h"
#include "tests/unit/worker/odd_kernels.h"
#include "worker/service/service_internal.h"

/* ---- kernels ---- */

static const struct kernel_def test_rows[] = {
    {.op = "Square", .compute = wait_for_cancel, .flags = KERNEL_ASYNC},
    {.op = "Abs", .compute = always_fail},
};
static const struct kernel_list test_list = {test_rows, ARRAY_LEN(test_rows)};

/* ---- two workers ---- */

struct test_worker {
    char task[64], device_name[80];
    struct device device;
    struct worker_service *service;
    char address[64];
};

/* ---- the master's end of a connection ---- */

struct master_end {
    struct wire_conn *conn;
    uint64_t incarnation; /* of the master; 0: MASTER */
    int n_messages, n_closed;
    struct wire_message last; /* payload: one reference */
    struct str last_meta;
    enum status_code closed_code;
    struct str closed_why;
};

static struct loop *loop;
static struct pool *pool;
static struct test_worker worker, ps;
static struct master_end to_worker, to_ps;
static uint64_t next_step;
enum { MASTER = 4711 };

static inline void on_message(void *owner, struct wire_conn *conn, struct wire_message *message) {
    struct master_end *end = owner;
    end->n_messages++;
    buffer_unref(end->last.payload);
    end->last = *message;
    message->payload = NULL;
    str_clear(&end->last_meta);
    str_add_bytes(&end->last_meta, message->meta.data, message->meta.len);
    end->last.meta = (struct span){end->last_meta.data, end->last_meta.len};
}

static inline void on_closed(void *owner, struct wire_conn *conn, struct status *why) {
    struct master_end *end = owner;
    end->n_closed++;
    end->closed_code = status_code(why);
    str_add(&end->closed_why, status_message(why));
}

static const struct wire_handlers handlers = {.on_message = on_message, .on_closed = on_closed};

static inline void end_fini(struct master_end *end) {
    if (!end->conn)
        return;
    wire_conn_close(end->conn, NULL);
    LOOP_UNTIL(loop, end->n_closed > 0);
    wire_conn_unref(end->conn);
    buffer_unref(end->last.payload);
    str_fini(&end->last_meta);
    str_fini(&end->closed_why);
    memset(end, 0, sizeof(*end));
}

static inline void start_worker(struct test_worker *w, const char *job) {
    struct worker_options options;
    memset(w, 0, sizeof(*w));
    snprintf(w->task, sizeof(w->task), "/job:%s/replica:0/task:0", job);
    snprintf(w->device_name, sizeof(w->device_name), "%s/device:TEST:0", w->task);
    w->device = (struct device){.full_name = w->device_name,
                                .type = "TEST",
                                .allocator = allocator_host(),
                                .incarnation = 5};
    assert_null(device_name_parse(span_of(w->device_name), &w->device.name));
    worker_options_default(&options);
    options.task = w->task;
    options.listen = "127.0.0.1:0";
    options.devices = &w->device;
    options.n_devices = 1;
    options.pool = pool;
    options.graph_grace_ms = 0;
    struct status *st = worker_service_new(loop, &options, &w->service);
    if (st)
        fail_msg("%s", status_message(st));
    snprintf(w->address, sizeof(w->address), "127.0.0.1:%d", worker_service_port(w->service));
}

static inline void mark_freed(void *arg) { *(bool *)arg = true; }

static inline void stop_worker(struct test_worker *w) {
    bool is_freed = false;
    if (!w->service)
        return;
    worker_service_free(w->service, mark_freed, &is_freed);
    LOOP_UNTIL(loop, is_freed);
    w->service = NULL;
}

static inline void send_hello(struct master_end *end, const char *task, uint64_t expected) {
    struct str hello = STR_INIT;
    peer_hello_write(&hello, task, MASTER, 0, expected);
    wire_send(end->conn, &(struct wire_out){.type = WIRE_HELLO, .meta = {hello.data, hello.len}});
    str_fini(&hello);
}

static inline void connect_to(struct master_end *end, struct test_worker *w) {
    end->conn = wire_connect(loop, w->address, &handlers, end);
    send_hello(end, "master", worker_service_incarnation(w->service));
    LOOP_UNTIL(loop, end->n_messages == 1 || end->n_closed);
    assert_int_equal(end->last.type, WIRE_HELLO);
}

static inline int setup(void **state) {
    loop = loop_new();
    pool = pool_new(2);
    memset(&to_worker, 0, sizeof(to_worker));
    memset(&to_ps, 0, sizeof(to_ps));
    start_worker(&worker, "worker");
    memset(&ps, 0, sizeof(ps));
    connect_to(&to_worker, &worker);
    return 0;
}

static inline int teardown(void **state) {
    end_fini(&to_worker);
    end_fini(&to_ps);
    stop_worker(&worker);
    stop_worker(&ps);
    loop_stop(loop);
    loop_run(loop);
    pool_free(pool);
    loop_free(loop);
    return 0;
}

/* ---- what a master sends ---- */

static inline void await_message(struct master_end *end, int n) {
    LOOP_UNTIL(loop, end->n_messages >= n || end->n_closed > 0);
}

/* The graph of `text`, every node on the worker's device; returns the handle, or 0 with the
 * answer in *ret_why. */
static inline uint64_t register_graph(struct master_end *end, struct test_worker *w,
                                      const char *text, struct str *ret_why) {
    struct graph graph;
    struct str graphdef = STR_INIT;
    graph_init(&graph);
    struct status *st = graph_parse(text, &graph);
    if (st)
        fail_msg("%s", status_message(st));
    for (int i = 0; i < graph.n_nodes; i++)
        graph.nodes[i]->device = w->device_name;
    graph_to_graphdef(&graph, NULL, &graphdef);
    graph_fini(&graph);

    Millrace__RegisterGraph request = MILLRACE__REGISTER_GRAPH__INIT;
    Millrace__Peer peers[2], *list[2] = {&peers[0], &peers[1]};
    struct test_worker *tasks[2] = {&worker, &ps};
    request.session = (char *)"session";
    request.master_incarnation = end->incarnation ? end->incarnation : MASTER;
    for (int i = 0; i < 2 && ps.service; i++) {
        millrace__peer__init(&peers[i]);
        peers[i].task = tasks[i]->task;
        peers[i].address = tasks[i]->address;
        peers[i].unix_address = (char *)(uintptr_t)worker_service_unix_address(tasks[i]->service);
        peers[i].incarnation = worker_service_incarnation(tasks[i]->service);
        request.n_peer = 2;
        request.peer = list;
    }
    uint8_t bytes[1024];
    size_t len = millrace__register_graph__pack(&request, bytes);
    int before = end->n_messages;
    wire_send(end->conn, &(struct wire_out){.type = WIRE_REGISTER_GRAPH,
                                            .id = 1,
                                            .meta = {(char *)bytes, len},
                                            .extra = {graphdef.data, graphdef.len}});
    str_fini(&graphdef);
    await_message(end, before + 1);
    assert_int_equal(end->last.type, WIRE_REGISTERED);
    Millrace__Registered *reply = millrace__registered__unpack(
        NULL, end->last.meta.len, (const uint8_t *)end->last.meta.data);
    assert_non_null(reply);
    uint64_t handle = reply->graph;
    if (ret_why)
        str_add(ret_why, reply->message);
    else if (reply->code)
        fail_msg("%s", reply->message);
    assert_int_equal(reply->code != 0, handle == 0);
    millrace__registered__free_unpacked(reply, NULL);
    return handle;
}

static inline void send_run(struct master_end *end, uint64_t graph, uint64_t step_id,
                            const struct tensor *feeds, size_t n_feeds, bool collect_stats) {
    struct str meta = STR_INIT;
    const struct tensor *plain[8];
    size_t n_plain = 0;
    run_graph_write(&meta, &(struct run_graph_message){
                               .graph = graph,
                               .step_id = step_id,
                               .master_incarnation = end->incarnation ? end->incarnation : MASTER,
                               .collect_stats = collect_stats});
    for (size_t i = 0; i < n_feeds; i++) {
        run_graph_add_feed(&meta, &(struct step_feed){.value = &feeds[i]});
        if (!dtype_is_object((enum dtype)feeds[i].dtype))
            plain[n_plain++] = &feeds[i];
    }
    wire_send(end->conn, &(struct wire_out){.type = WIRE_RUN_GRAPH,
                                            .id = step_id,
                                            .meta = {meta.data, meta.len},
                                            .tensors = plain,
                                            .n_tensors = n_plain});
    str_fini(&meta);
}

/* The RunDone that came last: its code; fetches in ret (each to be cleared). */
static inline int take_done(struct master_end *end, uint64_t step_id, struct tensor *ret,
                            int n_fetches, struct str *ret_message) {
    assert_int_equal(end->n_closed, 0);
    assert_int_equal(end->last.type, WIRE_RUN_DONE);
    assert_int_equal(end->last.id, step_id);
    struct run_done_message done;
    struct span fetch;
    size_t offset = 0;
    int n = 0;
    assert_null(run_done_read(end->last.meta, &done));
    if (done.code && ret_message) {
        str_clear(ret_message);
        str_add_bytes(ret_message, done.message.data, done.message.len);
    }
    while (n < n_fetches && run_done_next_fetch(&done, &fetch)) {
        struct tensor_meta meta;
        assert_null(tensor_meta_read(fetch, &meta));
        assert_null(tensor_meta_take(&meta, &end->last, &offset, allocator_host(), &ret[n++]));
    }
    if (done.code == 0)
        assert_int_equal(n, n_fetches);
    return done.code;
}

static inline bool is_derived(struct master_end *end) {
    struct run_done_message done;
    assert_null(run_done_read(end->last.meta, &done));
    return done.is_derived;
}

static inline void expect_text(const struct tensor *t, const char *text) {
    struct str printed = STR_INIT;
    tensor_print(t, 16, &printed);
    assert_string_equal(str_text(&printed), text);
    str_fini(&printed);
}

static inline void expect_code(struct master_end *end, int n, uint64_t step_id, int code,
                               const char *words) {
    struct str message = STR_INIT;
    await_message(end, n);
    assert_int_equal(take_done(end, step_id, NULL, 0, &message), code);
    if (!strstr(str_text(&message), words))
        fail_msg("\"%s\" does not say \"%s\"", str_text(&message), words);
    str_fini(&message);
}

static inline void send_cancel(struct master_end *end, uint64_t step_id) {
    struct status *why = status_new(STATUS_CANCELLED, "not wanted");
    struct str meta = STR_INIT;
    cancel_step_write(&meta, step_id, why);
    status_unref(why);
    wire_send(
        end->conn,
        &(struct wire_out){.type = WIRE_CANCEL_STEP, .id = step_id, .meta = {meta.data, meta.len}});
    str_fini(&meta);
}

#define FEED_TO_FETCH                       \
    "feed = _MrFeed() {T=float, index=0}\n" \
    "pass = Identity(feed) {T=float}\n"     \
    "fetch = _MrFetch(pass) {T=float, index=0}\n"
#define WAITING                                     \
    "c = Const() {dtype=float, value=float[]{1}}\n" \
    "w = Square(c) {T=float}\n"                     \
    "fetch = _MrFetch(w) {T=float, index=0}\n"

/* All tests of a program, each with workers of its own. */
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define RUN_SERVICE_TESTS(tests)                                       \
    ({                                                                 \
        static const struct kernel_list *const lists[] = {&test_list}; \
        kernel_add_device_type("TEST", lists, ARRAY_LEN(lists));       \
        cmocka_run_group_tests(tests, NULL, NULL);                     \
    })

#endif
