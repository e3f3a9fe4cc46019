/* Steps that are cancelled at random moments: a loop over two tasks, with queues and a
 * conditional in its body, and a wait outside.
 *
 *   worker   while: enqueue, dequeue, a cond, send ─► ... ◄─ recv
 *            at the same time: a dequeue of 5 from a queue of 3, which waits
 *   ps       the loop's other part: recv the predicate, recv, Neg, send
 *
 * At every moment both runs end once, soon, and with the cancel's message. The queues keep the
 * right elements, and a build with sanitizers finds no leak. MILLRACE_CANCEL_POINTS is the number
 * of moments (default 300), MILLRACE_SEED their seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include <pthread.h>

#include "common/base/clock.h"
#include "common/graph/graph_text.h"
#include "tests/unit/worker/two_tasks.h"
#include "worker/container.h"
#include "worker/executor/executor.h"

enum { PIPE_CAPACITY = 3, STOCK = 3, BOUND_MS = 2000 };

/* ---- the graphs ---- */

#define EDGE(type, number, from, to)                          \
    "{T=" type ", edge=" #number ", src_device=\"/job:" from  \
    "/replica:0/task:0/device:CPU:0\", dst_device=\"/job:" to \
    "/replica:0/task:0/device:CPU:0\", tensor_name=\"x:0\"}\n"
#define CONSTANT(name, value) name " = Const() {dtype=int32, value=int32[]{" value "}}\n"
#define QUEUES                                                                   \
    "pipe = FIFOQueueV2() {component_types=[int32], shapes=[[]], capacity=3, "   \
    "shared_name=\"pipe\"}\n"                                                    \
    "stock = FIFOQueueV2() {component_types=[int32], shapes=[[]], capacity=10, " \
    "shared_name=\"stock\"}\n"

/* It counts up to two thousand million: nobody waits for that. */
static const char worker_text[] = QUEUES CONSTANT("zero", "0") CONSTANT("one", "1")
    CONSTANT("two", "2") CONSTANT("five", "5") CONSTANT(
        "many",
        "2000000000") "batch = QueueDequeueManyV2(stock, five) {component_types=[int32]}\n"
                      "e = Enter(zero) {T=int32, frame_name=\"w\", parallel_iterations=4}\n"
                      "limit = Enter(many) {T=int32, frame_name=\"w\", is_constant=true, "
                      "parallel_iterations=4}\n"
                      "step = Enter(one) {T=int32, frame_name=\"w\", is_constant=true, "
                      "parallel_iterations=4}\n"
                      "even = Enter(two) {T=int32, frame_name=\"w\", is_constant=true, "
                      "parallel_iterations=4}\n"
                      "q = Enter(pipe) {T=resource, frame_name=\"w\", is_constant=true, "
                      "parallel_iterations=4}\n"
                      "m = Merge(e, n) {T=int32, N=2}\n"
                      "less = Less(m, limit) {T=int32}\n"
                      "p = LoopCond(less)\n"
                      "send_p = _MrSend(p) " EDGE(
                          "bool", 2, "worker",
                          "ps") "s = Switch(m, p) {T=int32}\n"
                                "b = Identity(s:1) {T=int32}\n"
                                "in = QueueEnqueueV2(q, b) {Tcomponents=[int32]}\n"
                                "out = QueueDequeueV2(q, ^b) {component_types=[int32]}\n"
                                "rest = FloorMod(out, even) {T=int32}\n"
                                "odd = Equal(rest, step) {T=int32}\n"
                                "way = Switch(out, odd) {T=int32}\n"
                                "left = Neg(way) {T=int32}\n"
                                "right = Identity(way:1) {T=int32}\n"
                                "met = Merge(left, right) {T=int32, N=2}\n"
                                "send = _MrSend(met) " EDGE(
                                    "int32", 0, "worker",
                                    "ps") "back = _MrRecv(^b) " EDGE("int32", 1, "ps",
                                                                     "worker") "next = AddV2(b, "
                                                                               "step, ^back, ^in) "
                                                                               "{T=int32}\n"
                                                                               "n = "
                                                                               "NextIteration(next)"
                                                                               " {T=int32}\n"
                                                                               "x = Exit(s) "
                                                                               "{T=int32}\n"
                                                                               "fetch = "
                                                                               "_MrFetch(x) "
                                                                               "{T=int32, "
                                                                               "index=0}\n"
                                                                               "fetch_batch = "
                                                                               "_MrFetch(batch) "
                                                                               "{T=int32, "
                                                                               "index=1}\n";

static const char ps_text[] =
    CONSTANT("zero", "0") "e = Enter(zero) {T=int32, frame_name=\"w\", parallel_iterations=4}\n"
                          "m = Merge(e, n) {T=int32, N=2}\n"
                          "recv_p = _MrRecv(^m) " EDGE(
                              "bool", 2, "worker",
                              "ps") "p = LoopCond(recv_p)\n"
                                    "s = Switch(m, p) {T=int32}\n"
                                    "b = Identity(s:1) {T=int32}\n"
                                    "recv = _MrRecv(^b) " EDGE(
                                        "int32", 0, "worker",
                                        "ps") "g = Neg(recv) {T=int32}\n"
                                              "send = _MrSend(g) " EDGE(
                                                  "int32", 1, "ps",
                                                  "worker") "n = NextIteration(b) {T=int32}\n";

/* What is in the queues; the stock is put back. */
static const char check_text[] = QUEUES CONSTANT(
    "three", "3") "size = QueueSizeV2(pipe) {}\n"
                  "taken = QueueDequeueManyV2(stock, three) {component_types=[int32]}\n"
                  "put = QueueEnqueueManyV2(stock, taken) {Tcomponents=[int32]}\n"
                  "piped = QueueDequeueManyV2(pipe, size) {component_types=[int32]}\n"
                  "stocked = QueueSizeV2(stock, ^put) {}\n"
                  "fetch = _MrFetch(taken) {T=int32, index=0}\n"
                  "fetch_size = _MrFetch(stocked) {T=int32, index=1}\n"
                  "fetch_piped = _MrFetch(piped) {T=int32, index=2}\n";

static const char fill_text[] =
    QUEUES "three = Const() {dtype=int32, value=int32[3]{1, 2, 3}}\n"
           "put = QueueEnqueueManyV2(stock, three) {Tcomponents=[int32]}\n";

/* ---- a task's part of a step ---- */

struct part {
    struct test_task task;
    struct device device;
    struct container_table *containers;
    struct plan *plan;
    struct rendezvous *rendezvous;
    struct execution run;
    struct tensor fetches[3] __attribute__((aligned(64)));
    _Atomic int n_done;
    struct status *status;
};

static struct loop *loop;
static struct pool *pool;
static struct part worker, ps;

static void on_done(struct execution *run, struct status *status_take) {
    struct part *part = CONTAINER_OF(run, struct part, run);
    part->status = status_take;
    atomic_fetch_add(&part->n_done, 1);
}

static struct plan *make_plan(struct part *part, const char *text) {
    struct graph graph;
    struct plan *plan = NULL;
    struct plan_options options = {
        .devices = &part->device, .n_devices = 1, .host = &executor_host};
    graph_init(&graph);
    struct status *st = graph_parse(text, &graph);
    for (int i = 0; !st && i < graph.n_nodes; i++)
        graph.nodes[i]->device = part->device.full_name;
    if (!st)
        st = plan_new(&graph, &options, &plan);
    graph_fini(&graph);
    if (st)
        fail_msg("%s", status_message(st));
    return plan;
}

static void begin(struct part *part, struct plan *plan, uint64_t step_id) {
    atomic_store(&part->n_done, 0);
    execution_init(&part->run);
    part->run.plan = plan;
    part->run.step_id = step_id;
    part->run.fetches = part->fetches;
    part->run.containers = part->containers;
    part->run.pool = pool;
    part->run.inline_budget_ns = 50000;
    part->run.on_done = on_done;
    part->run.rendezvous = part->rendezvous =
        rendezvous_open(part->task.rendezvous, step_id, NULL, NULL);
    execution_start(&part->run);
}

static void end(struct part *part) {
    assert_int_equal(atomic_load(&part->n_done), 1);
    rendezvous_end_step(part->task.rendezvous, part->run.step_id);
    rendezvous_unref(part->rendezvous);
    execution_fini(&part->run);
}

/* A small step on the worker, which ends well. */
static void run_whole(struct plan *plan, uint64_t step_id) {
    begin(&worker, plan, step_id);
    LOOP_UNTIL(loop, atomic_load(&worker.n_done) > 0);
    end(&worker);
    if (worker.status)
        fail_msg("%s", status_message(worker.status));
}

static void part_init(struct part *part, const char *job, const char *text) {
    char name[64];
    snprintf(name, sizeof name, "/job:%s/replica:0/task:0/device:CPU:0", job);
    part->device =
        (struct device){.full_name = xstrdup(name), .type = "CPU", .allocator = allocator_host()};
    assert_null(device_name_parse(span_of(name), &part->device.name));
    part->containers = container_table_new();
    part->plan = make_plan(part, text);
}

static void part_fini(struct part *part) {
    plan_unref(part->plan);
    container_table_free(part->containers);
    free((void *)(uintptr_t)part->device.full_name);
}

static int setup(void **state) {
    loop = loop_new();
    pool = pool_new(2);
    task_init(&worker.task, loop, "/job:worker/replica:0/task:0");
    task_init(&ps.task, loop, "/job:ps/replica:0/task:0");
    tasks_meet(&worker.task, &ps.task);
    peer_connect(worker.task.other);
    peer_connect(ps.task.other);
    part_init(&worker, "worker", worker_text);
    part_init(&ps, "ps", ps_text);
    return 0;
}

static int teardown(void **state) {
    part_fini(&worker);
    part_fini(&ps);
    pool_free(pool);
    task_fini(&worker.task);
    task_fini(&ps.task);
    loop_end(loop);
    return 0;
}

/* ---- the moments ---- */

static uint64_t seed = 11;
static uint64_t n_executed; /* nodes, over all steps */

static uint64_t draw(uint64_t n) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed >> 33) % n;
}

static uint64_t number_of(const char *variable, uint64_t otherwise) {
    const char *text = getenv(variable);
    return text && text[0] ? strtoull(text, NULL, 10) : otherwise;
}

/* As many moments early as late: from nothing at all to some dozens of iterations. */
static void let_it_run(void) {
    uint64_t until = (uint64_t)1 << draw(16);
    for (volatile uint64_t spin = 0; spin < until; spin++)
        ;
    for (uint64_t turns = draw(4) > 0 ? draw((uint64_t)1 << draw(9)) : 0; turns > 0; turns--)
        uv_run(loop_uv(loop), UV_RUN_NOWAIT);
}

static int64_t cancel_at_a_moment(uint64_t step_id) {
    struct status *why = status_new(STATUS_CANCELLED, "at random");
    struct part *first = draw(2) ? &worker : &ps, *second = first == &worker ? &ps : &worker;
    begin(first, first->plan, step_id);
    if (draw(4) == 0)
        let_it_run();
    begin(second, second->plan, step_id);
    let_it_run();
    int64_t asked_ns = clock_now_ns();
    execution_cancel(&first->run, why);
    if (draw(2))
        let_it_run();
    execution_cancel(&second->run, why);
    status_unref(why);
    LOOP_UNTIL(loop, atomic_load(&worker.n_done) > 0 && atomic_load(&ps.n_done) > 0);
    int64_t took_ns = clock_now_ns() - asked_ns;
    n_executed += worker.run.n_executed + ps.run.n_executed;
    end(&worker);
    end(&ps);
    return took_ns;
}

static void expect_cancelled(struct part *part) {
    assert_int_equal(status_code(part->status), STATUS_CANCELLED);
    assert_non_null(strstr(status_message(part->status), "at random"));
    status_unref(part->status);
    part->status = NULL;
    for (size_t i = 0; i < ARRAY_LEN(part->fetches); i++)
        assert_int_equal(part->fetches[i].storage, TENSOR_NONE);
}

/* The stock is whole and in order; the pipe has at most its capacity, in the order of the loop. */
static void expect_whole_queues(struct plan *check, uint64_t step_id) {
    struct str text = STR_INIT;
    run_whole(check, step_id);
    tensor_print(&worker.fetches[0], 8, &text);
    assert_string_equal(str_text(&text), "int32[3]{1, 2, 3}");
    assert_int_equal(*(const int32_t *)tensor_cdata(&worker.fetches[1]), STOCK);
    const int32_t *piped = tensor_cdata(&worker.fetches[2]);
    assert_true(worker.fetches[2].n_elements <= PIPE_CAPACITY);
    for (int64_t i = 1; i < worker.fetches[2].n_elements; i++)
        assert_true(piped[i] > piped[i - 1]);
    for (size_t i = 0; i < ARRAY_LEN(worker.fetches); i++)
        tensor_clear(&worker.fetches[i]);
    str_fini(&text);
}

static void whenever_a_step_is_cancelled_it_ends_and_leaves_its_queues_whole(void **state) {
    struct plan *fill = make_plan(&worker, fill_text), *check = make_plan(&worker, check_text);
    uint64_t n_points = number_of("MILLRACE_CANCEL_POINTS", 300), step_id = 0;
    int64_t longest_ns = 0;
    seed = number_of("MILLRACE_SEED", seed);
    run_whole(fill, ++step_id);
    for (uint64_t i = 0; i < n_points; i++) {
        int64_t took_ns = cancel_at_a_moment(++step_id);
        longest_ns = MAX(longest_ns, took_ns);
        assert_true(took_ns < BOUND_MS * INT64_C(1000000));
        expect_cancelled(&worker);
        expect_cancelled(&ps);
        if (i % 10 == 0)
            expect_whole_queues(check, ++step_id);
    }
    expect_whole_queues(check, ++step_id);
    print_message("%llu moments after %.0f nodes on average; the slowest end took %.2f ms\n",
                  (unsigned long long)n_points, (double)n_executed / (double)n_points,
                  (double)longest_ns / 1e6);
    assert_true(n_executed > 100 * n_points); /* the loop went round, or the test says nothing */
    plan_unref(fill);
    plan_unref(check);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whenever_a_step_is_cancelled_it_ends_and_leaves_its_queues_whole),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
