/* Plans that use a device with a memory of its own: where copies are put, as golden text, and what
 * an execution does about the device, with the fake device of fake_device.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "common/graph/references.h"
#include "tests/unit/worker/ending.h"
#include "tests/unit/worker/fake_device.h"
#include "worker/container.h"
#include "worker/executor/executor.h"

static const char CPU[] = "/job:worker/replica:0/task:0/device:CPU:0";
static const char FAKE[] = "/job:worker/replica:0/task:0/device:FAKE:0";

static struct pool *pool;
static struct container_table *containers;
static struct fake_device *fake;
static struct device devices[2];

/* Devices are written @C and @F in the texts below. */
static void expand_devices(struct graph *graph) {
    for (int i = 0; i < graph->n_nodes; i++)
        graph->nodes[i]->device = strcmp(graph->nodes[i]->device, "F") == 0 ? FAKE : CPU;
}

static void parse(const char *text, struct graph *graph) {
    graph_init(graph);
    struct status *st = graph_parse(text, graph);
    if (st)
        fail_msg("%s", status_message(st));
    expand_devices(graph);
}

static struct plan_options plan_options(void) {
    return (struct plan_options){.devices = devices, .n_devices = 2, .host = &executor_host};
}

/* ---- where copies are put ---- */

static void shorten(const struct graph *graph, struct str *out) {
    for (int i = 0; i < graph->n_nodes; i++) {
        const struct node *node = graph->nodes[i];
        if (node->is_removed)
            continue;
        str_addf(out, "%s = %s(", node->name, node->op_name);
        for (int k = 0; k < node->n_inputs; k++) {
            const struct node_input *in = &node->inputs[k];
            str_addf(out, "%s%s%s", k > 0 ? ", " : "", in->index == CONTROL_EDGE ? "^" : "",
                     in->src->name);
            if (in->index > 0)
                str_addf(out, ":%d", in->index);
        }
        str_addf(out, ")%s%s\n", strcmp(node->device, FAKE) == 0 ? " @F" : "",
                 node_attr(node, "_keeps_inline") ? " inline" : "");
    }
}

static void expect_copies(const char *text, const char *expected) {
    struct graph graph;
    struct graph_consumers consumers;
    struct plan_options options = plan_options();
    struct str shown = STR_INIT;
    parse(text, &graph);
    graph_consumers_init(&consumers, &graph);
    bool *is_reference = graph_find_references(&graph, &consumers);
    graph_consumers_fini(&consumers);
    struct status *st = plan_add_copies(&graph, &options, is_reference);
    if (st)
        fail_msg("%s", status_message(st));
    shorten(&graph, &shown);
    assert_string_equal(str_text(&shown), expected);
    str_fini(&shown);
    free(is_reference);
    graph_fini(&graph);
}

static void one_copy_serves_all_consumers_of_an_output(void **state) {
    expect_copies("x = _MrFeed() {T=float, index=0}\n"
                  "a = Mul(x, x) {T=float} @F\n"
                  "b = Mul(x, a) {T=float} @F\n"
                  "c = Mul(b, b) {T=float} @C\n"
                  "y = _MrFetch(b) {T=float, index=0}\n"
                  "z = _MrFetch(c) {T=float, index=1}\n",
                  "x = _MrFeed()\n"
                  "a = Mul(_copy, _copy) @F\n"
                  "b = Mul(_copy, a) @F\n"
                  "c = Mul(_copy_1, _copy_1)\n"
                  "y = _MrFetch(_copy_1)\n"
                  "z = _MrFetch(c)\n"
                  "_copy = _MrCopy(x) @F\n"
                  "_copy_1 = _MrCopy(b) @F\n");
}

static void host_arguments_are_not_copied(void **state) {
    expect_copies("x = _MrFeed() {T=float, index=0}\n"
                  "s = Shape(x) {T=float} @F\n"
                  "t = AddV2(s, s) {T=int32} @F\n"
                  "r = Reshape(x, t) {T=float} @F\n"
                  "y = _MrFetch(r) {T=float, index=0}\n",
                  "x = _MrFeed()\n"
                  "s = Shape(_copy) @F\n"
                  "t = AddV2(s, s) @F\n"
                  "r = Reshape(_copy, t) @F\n"
                  "y = _MrFetch(_copy_1)\n"
                  "_copy = _MrCopy(x) @F\n"
                  "_copy_1 = _MrCopy(r) @F\n");
}

static void a_constant_gets_a_twin_and_no_copy(void **state) {
    expect_copies("c = Const() {dtype=float, value=float[8]{1, …}} @F\n"
                  "x = _MrFeed() {T=float, index=0}\n"
                  "a = Mul(c, c) {T=float} @F\n"
                  "b = Mul(c, x) {T=float} @C\n"
                  "d = Const() {dtype=float, value=float[8]{2, …}} @C\n"
                  "e = Mul(a, d) {T=float} @F\n",
                  "c = Const() @F\n"
                  "x = _MrFeed()\n"
                  "a = Mul(c, c) @F\n"
                  "b = Mul(c_1, x)\n"
                  "e = Mul(a, d_1) @F\n"
                  "c_1 = Const()\n"
                  "d_1 = Const() @F\n");
}

static void a_list_is_handed_on_where_its_ops_are(void **state) {
    expect_copies("x = _MrFeed() {T=float, index=0}\n"
                  "n = _MrFeed() {T=int32, index=1}\n"
                  "l = TensorListFromTensor(x, n) {element_dtype=float, shape_type=int32} @C\n"
                  "i = Identity(l) {T=variant} @F\n"
                  "s = TensorListStack(i, n) {element_dtype=float} @C\n"
                  "k = TensorListFromTensor(x, n) {element_dtype=float, shape_type=int32} @F\n"
                  "j = Identity(k) {T=variant} @F\n"
                  "g = TensorListGetItem(j, n, n) {element_dtype=float} @F\n"
                  "a = TensorListLength(j) @C\n"
                  "r = TensorListStack(j, n) {element_dtype=float} @C\n",
                  "x = _MrFeed()\n"
                  "n = _MrFeed()\n"
                  "l = TensorListFromTensor(x, n)\n"
                  "i = Identity(l)\n"
                  "s = TensorListStack(i, n)\n"
                  "k = TensorListFromTensor(_copy, n) @F\n"
                  "j = Identity(k) @F\n"
                  "g = TensorListGetItem(j, n, n) @F\n"
                  "a = TensorListLength(j)\n"
                  "r = TensorListStack(_copy_1, n)\n"
                  "_copy = _MrCopy(x) @F\n"
                  "_copy_1 = _MrCopy(j) @F\n");
}

/* The int32 row of Reshape asks for host memory, and yet the value stays where it is. */
static void a_view_is_where_its_value_is(void **state) {
    expect_copies("n = _MrFeed() {T=int32, index=0}\n"
                  "g = TensorListGetItem(l, n, n) {element_dtype=int32} @F\n"
                  "x = _MrFeed() {T=int32, index=1}\n"
                  "l = TensorListFromTensor(x, n) {element_dtype=int32, shape_type=int32} @F\n"
                  "r = Reshape(g, n) {T=int32} @F\n"
                  "k = TensorListFromTensor(r, n) {element_dtype=int32, shape_type=int32} @F\n"
                  "s = Reshape(n, n) {T=int32} @F\n"
                  "y = _MrFetch(r) {T=int32, index=0}\n"
                  "z = _MrFetch(s) {T=int32, index=1}\n",
                  "n = _MrFeed()\n"
                  "g = TensorListGetItem(l, n, n) @F\n"
                  "x = _MrFeed()\n"
                  "l = TensorListFromTensor(_copy, n) @F\n"
                  "r = Reshape(g, n) @F\n"
                  "k = TensorListFromTensor(r, n) @F\n"
                  "s = Reshape(n, n) @F\n"
                  "y = _MrFetch(_copy_1)\n"
                  "z = _MrFetch(s)\n"
                  "_copy = _MrCopy(x) @F\n"
                  "_copy_1 = _MrCopy(r) @F\n");
}

static void a_predicate_of_host_nodes_is_handed_on_by_the_host(void **state) {
    expect_copies("n = _MrFeed() {T=int32, index=0}\n"
                  "x = _MrFeed() {T=float, index=1}\n"
                  "a = Less(n, n) {T=int32} @F\n"
                  "i = Identity(a) {T=bool} @F\n"
                  "s = Switch(n, i) {T=int32} @C\n"
                  "b = Less(x, x) {T=float} @F\n"
                  "j = Identity(b) {T=bool} @F\n"
                  "t = Switch(n, j) {T=int32} @C\n",
                  "n = _MrFeed()\n"
                  "x = _MrFeed()\n"
                  "a = Less(n, n) @F\n"
                  "i = Identity(a)\n"
                  "s = Switch(n, i)\n"
                  "b = Less(_copy, _copy) @F\n"
                  "j = Identity(b) @F\n"
                  "t = Switch(n, _copy_1)\n"
                  "_copy = _MrCopy(x) @F\n"
                  "_copy_1 = _MrCopy(j) @F\n");
}

static void small_host_values_go_along_with_the_launch(void **state) {
    expect_copies("half = Const() {dtype=float, value=float[]{0.5}} @C\n"
                  "x = _MrFeed() {T=float, index=0}\n"
                  "a = Mul(x, half) {T=float} @F\n"
                  "b = AddV2(a, half) {T=float} @F\n"
                  "d = AddV2(b, x) {T=float} @F\n",
                  "half = Const()\n"
                  "x = _MrFeed()\n"
                  "a = Mul(_copy, half_1) @F\n"
                  "b = AddV2(a, half) @F\n"
                  "d = AddV2(b, _copy_1) @F\n"
                  "_copy = _MrCopy(x) @F\n"
                  "half_1 = Const() @F\n"
                  "_copy_1 = _MrCopy(x) @F inline\n");
}

static void loops_copy_before_they_begin_and_before_they_go_on(void **state) {
    expect_copies("x = _MrFeed() {T=float, index=0}\n"
                  "k = _MrFeed() {T=float, index=1}\n"
                  "e = Enter(x) {T=float, frame_name=\"loop\"} @C\n"
                  "i = Enter(k) {T=float, frame_name=\"loop\", is_constant=true} @C\n"
                  "m = Merge(e, n) {T=float, N=2} @F\n"
                  "l = Less(m, i) {T=float} @F\n"
                  "p = LoopCond(l) @C\n"
                  "s = Switch(m, p) {T=float} @F\n"
                  "b = Mul(s:1, i) {T=float} @C\n"
                  "n = NextIteration(b) {T=float} @C\n"
                  "o = Exit(s) {T=float} @F\n"
                  "y = _MrFetch(o) {T=float, index=0}\n",
                  "x = _MrFeed()\n"
                  "k = _MrFeed()\n"
                  "e = Enter(x)\n"
                  "i = Enter(k)\n"
                  "m = Merge(e_1, n_1) @F\n"
                  "l = Less(m, i_1) @F\n"
                  "p = LoopCond(_copy_3)\n"
                  "s = Switch(m, p) @F\n"
                  "b = Mul(_copy_4, i)\n"
                  "n = NextIteration(b)\n"
                  "o = Exit(s) @F\n"
                  "y = _MrFetch(_copy_5)\n"
                  "_copy = _MrCopy(x) @F\n"
                  "e_1 = Enter(_copy) @F\n"
                  "_copy_1 = _MrCopy(b) @F\n"
                  "n_1 = NextIteration(_copy_1) @F\n"
                  "_copy_2 = _MrCopy(k) @F\n"
                  "i_1 = Enter(_copy_2) @F\n"
                  "_copy_3 = _MrCopy(l) @F\n"
                  "_copy_4 = _MrCopy(s:1) @F\n"
                  "_copy_5 = _MrCopy(o) @F\n");
}

static void a_reference_is_copied_when_its_consumer_would_read_it(void **state) {
    expect_copies("v = VariableV2() {dtype=float, shape=[8]} @F\n"
                  "x = _MrFeed() {T=float, index=0}\n"
                  "a = Assign(v, x) {T=float} @F\n"
                  "r = Identity(v) {T=float} @F\n"
                  "b = Mul(r, r, ^a) {T=float} @C\n"
                  "y = _MrFetch(r) {T=float, index=0}\n",
                  "v = VariableV2() @F\n"
                  "x = _MrFeed()\n"
                  "a = Assign(v, _copy) @F\n"
                  "r = Identity(v) @F\n"
                  "b = Mul(_copy_1, _copy_2, ^a)\n"
                  "y = _MrFetch(r)\n"
                  "_copy = _MrCopy(x) @F\n"
                  "_copy_1 = _MrCopy(r, ^a) @F\n"
                  "_copy_2 = _MrCopy(r, ^a) @F\n");
}

static void a_reference_is_copied_after_the_data_that_its_consumer_waits_for(void **state) {
    expect_copies("v = VariableV2() {dtype=float, shape=[8]} @F\n"
                  "x = _MrFeed() {T=float, index=0}\n"
                  "a = Assign(v, x) {T=float} @F\n"
                  "r = Identity(v) {T=float} @F\n"
                  "two = Const(^a) {dtype=float, value=float[8]{2, …}} @C\n"
                  "b = Mul(r, two) {T=float} @C\n"
                  "y = _MrFetch(b) {T=float, index=0}\n",
                  "v = VariableV2() @F\n"
                  "x = _MrFeed()\n"
                  "a = Assign(v, _copy) @F\n"
                  "r = Identity(v) @F\n"
                  "two = Const(^a)\n"
                  "b = Mul(_copy_1, two)\n"
                  "y = _MrFetch(b)\n"
                  "_copy = _MrCopy(x) @F\n"
                  "_copy_1 = _MrCopy(r, ^two) @F\n");
}

/* ---- executions ---- */

struct fixture {
    struct plan *plan;
    struct execution run;
    struct tensor fetches[2] __attribute__((aligned(64)));
    struct tensor feeds[2] __attribute__((aligned(64)));
    struct ending end;
    struct tensor handed_out __attribute__((aligned(64)));
};

static void on_done(struct execution *run, struct status *status_take) {
    ending_tell(&CONTAINER_OF(run, struct fixture, run)->end, status_take);
}

static void open_fixture(struct fixture *f, const char *text) {
    struct graph graph;
    struct plan_options options = plan_options();
    *f = (struct fixture){.end = ENDING_INIT};
    parse(text, &graph);
    struct status *st = plan_new(&graph, &options, &f->plan);
    if (st)
        fail_msg("%s", status_message(st));
    graph_fini(&graph);
}

static void feed(struct fixture *f, int i, int n, float value) {
    int64_t dims[] = {n};
    tensor_clear(&f->feeds[i]);
    struct status *st = tensor_new(allocator_host(), DT_FLOAT,
                                   n ? (struct shape){1, dims} : SHAPE_SCALAR, &f->feeds[i]);
    assert_null(st);
    for (int64_t k = 0; k < f->feeds[i].n_elements; k++)
        ((float *)tensor_data(&f->feeds[i]))[k] = value;
}

static void start(struct fixture *f) {
    ending_reset(&f->end);
    execution_init(&f->run);
    f->run.plan = f->plan;
    f->run.feeds = f->feeds;
    f->run.fetches = f->fetches;
    f->run.containers = containers;
    f->run.pool = pool;
    f->run.on_done = on_done;
    execution_start(&f->run);
}

static void await(struct fixture *f) {
    ending_wait(&f->end);
    assert_int_equal(f->end.n_done, 1);
    execution_fini(&f->run);
}

static void expect_fetched(struct fixture *f, int i, float value) {
    if (f->end.status)
        fail_msg("%s", status_message(f->end.status));
    assert_true(tensor_has_value(&f->fetches[i]) && !tensor_is_on_device(&f->fetches[i]));
    for (int64_t k = 0; k < f->fetches[i].n_elements; k++)
        assert_float_equal(((const float *)tensor_cdata(&f->fetches[i]))[k], value, 0);
    tensor_clear(&f->fetches[i]);
}

static void close_fixture(struct fixture *f) {
    for (int i = 0; i < 2; i++) {
        tensor_clear(&f->fetches[i]);
        tensor_clear(&f->feeds[i]);
    }
    status_unref(f->end.status);
    plan_unref(f->plan);
}

static const char CHAIN[] = "x = _MrFeed() {T=float, index=0}\n"
                            "c = Const() {dtype=float, value=float[8]{3, …}} @F\n"
                            "a = Mul(x, c) {T=float} @F\n"
                            "b = AddV2(a, c) {T=float} @F\n"
                            "y = _MrFetch(b) {T=float, index=0}\n";

static void a_chain_makes_one_copy_each_way(void **state) {
    struct fixture f;
    open_fixture(&f, CHAIN);
    for (int i = 0; i < 3; i++) {
        struct fake_counts before = fake_device_counts(fake);
        feed(&f, 0, 8, (float)i);
        start(&f);
        await(&f);
        expect_fetched(&f, 0, (float)i * 3 + 3);
        struct fake_counts after = fake_device_counts(fake);
        assert_int_equal(after.in - before.in, 1);
        assert_int_equal(after.out - before.out, 1);
        assert_int_equal(after.launches - before.launches, 2);
        assert_int_equal(after.uploads, before.uploads);
    }
    close_fixture(&f);
    assert_int_equal(fake_device_n_buffers(fake), 0);
}

/* Each tensor of the list is copied, the device has them all, and the list on the CPU keeps its
 * own. */
static void a_list_is_copied_with_its_tensors(void **state) {
    struct fixture f;
    open_fixture(&f, "x = _MrFeed() {T=float, index=0}\n"
                     "s = Const() {dtype=int32, value=int32[0]{}} @C\n"
                     "i = Const() {dtype=int32, value=int32[]{5}} @C\n"
                     "l = TensorListFromTensor(x, s) {element_dtype=float, shape_type=int32} @C\n"
                     "g = TensorListGetItem(l, i, s) {element_dtype=float} @F\n"
                     "h = TensorListGetItem(l, i, s) {element_dtype=float} @C\n"
                     "y = _MrFetch(g) {T=float, index=0}\n"
                     "z = _MrFetch(h) {T=float, index=1}\n");
    struct fake_counts before = fake_device_counts(fake);
    feed(&f, 0, 8, 7);
    start(&f);
    await(&f);
    expect_fetched(&f, 0, 7);
    expect_fetched(&f, 1, 7);
    struct fake_counts after = fake_device_counts(fake);
    assert_int_equal(after.in - before.in, 8);
    assert_int_equal(after.out - before.out, 1);
    close_fixture(&f);
    assert_int_equal(fake_device_n_buffers(fake), 0);
}

/* While the device does nothing, all its nodes run: they are done once they are enqueued. */
static void nodes_are_done_when_they_are_enqueued(void **state) {
    struct fixture f;
    open_fixture(&f, CHAIN);
    struct fake_counts before = fake_device_counts(fake);
    fake_device_hold(fake);
    feed(&f, 0, 8, 1);
    start(&f);
    while (fake_device_counts(fake).out == before.out)
        sched_yield();
    assert_false(f.end.is_done);
    assert_int_equal(fake_device_counts(fake).launches - before.launches, 2);
    fake_device_release(fake);
    await(&f);
    expect_fetched(&f, 0, 6);
    close_fixture(&f);
}

/* Nothing is fetched, and yet the step ends only when the device has done its work. */
static void a_step_ends_when_its_device_has(void **state) {
    struct fixture f;
    open_fixture(&f, "c = Const() {dtype=float, value=float[8]{3, …}} @F\n"
                     "a = Mul(c, c) {T=float} @F\n");
    struct fake_counts before = fake_device_counts(fake);
    fake_device_hold(fake);
    start(&f);
    while (fake_device_counts(fake).launches == before.launches)
        sched_yield();
    fake_device_fail(fake, status_internal("an illegal address"));
    fake_device_release(fake);
    await(&f);
    assert_non_null(f.end.status);
    assert_string_equal(status_message(f.end.status), "an illegal address");
    start(&f);
    await(&f);
    assert_null(f.end.status);
    close_fixture(&f);
}

static const char LONG_CHAIN[] = "x = _MrFeed() {T=float, index=0}\n"
                                 "c = Const() {dtype=float, value=float[8]{2, …}} @F\n"
                                 "a1 = Mul(x, c) {T=float} @F\n"
                                 "a2 = Mul(a1, c) {T=float} @F\n"
                                 "a3 = Mul(a2, c) {T=float} @F\n"
                                 "a4 = Mul(a3, c) {T=float} @F\n"
                                 "a5 = Mul(a4, c) {T=float} @F\n"
                                 "a6 = Mul(a5, c) {T=float} @F\n"
                                 "a7 = Mul(a6, c) {T=float} @F\n"
                                 "a8 = Mul(a7, c) {T=float} @F\n"
                                 "a9 = Mul(a8, c) {T=float} @F\n"
                                 "y = _MrFetch(a9) {T=float, index=0}\n";

static const char CPU_CHAIN[] = "x = _MrFeed() {T=float, index=0}\n"
                                "a = Mul(x, x) {T=float} @C\n"
                                "y = _MrFetch(a) {T=float, index=0}\n";

/* Starts a step that pauses: the device is held, and takes four entries. Returns how many kernels
 * had been launched before. */
static int start_paused(struct fixture *f) {
    int n_launches = fake_device_counts(fake).launches;
    open_fixture(f, LONG_CHAIN);
    fake_device_limit(fake, 4);
    fake_device_hold(fake);
    feed(f, 0, 8, 1);
    start(f);
    fake_device_await_pause(fake);
    return n_launches;
}

/* The paused step holds no thread: the pool has one, and another step runs on it. */
static void a_step_pauses_when_it_is_far_ahead_of_the_device(void **state) {
    struct fixture f, other;
    struct pool *usual = pool;
    pool = pool_new(1);
    struct fake_counts flushed = fake_device_counts(fake);
    int before = start_paused(&f);
    assert_true(fake_device_counts(fake).launches - before < 5);
    open_fixture(&other, CPU_CHAIN);
    feed(&other, 0, 8, 3);
    start(&other);
    await(&other);
    expect_fetched(&other, 0, 9);
    close_fixture(&other);
    assert_true(fake_device_counts(fake).launches - before < 5);
    fake_device_release(fake);
    await(&f);
    expect_fetched(&f, 0, 512);
    /* where it pauses must not part what the device does as one */
    assert_int_equal(fake_device_counts(fake).flushes_in_pauses, flushed.flushes_in_pauses);
    assert_true(fake_device_counts(fake).flushes > flushed.flushes);
    assert_int_equal(fake_device_counts(fake).launches - before, 9);
    close_fixture(&f);
    pool_free(pool);
    pool = usual;
    fake_device_limit(fake, 0);
    assert_int_equal(fake_device_n_buffers(fake), 0);
}

static void a_paused_step_can_be_cancelled(void **state) {
    struct fixture f;
    int before = start_paused(&f);
    struct status *why = status_new(STATUS_CANCELLED, "no longer wanted");
    execution_cancel(&f.run, why);
    status_unref(why);
    fake_device_release(fake);
    await(&f);
    assert_non_null(f.end.status);
    assert_string_equal(status_message(f.end.status), "no longer wanted");
    assert_true(fake_device_counts(fake).launches - before < 5);
    close_fixture(&f);
    fake_device_limit(fake, 0);
    assert_int_equal(fake_device_n_buffers(fake), 0);
}

static const char LOOP[] = "x = _MrFeed() {T=float, index=0}\n"
                           "k = _MrFeed() {T=float, index=1}\n"
                           "e = Enter(x) {T=float, frame_name=\"loop\"} @C\n"
                           "i = Enter(k) {T=float, frame_name=\"loop\", is_constant=true} @C\n"
                           "m = Merge(e, n) {T=float, N=2} @F\n"
                           "l = Less(m, i) {T=float} @F\n"
                           "p = LoopCond(l) @C\n"
                           "s = Switch(m, p) {T=float} @F\n"
                           "b = AddV2(s:1, s:1) {T=float} @C\n"
                           "n = NextIteration(b) {T=float} @C\n"
                           "o = Exit(s) {T=float} @F\n"
                           "y = _MrFetch(o) {T=float, index=0}\n";

static void a_loop_runs_on_both_devices(void **state) {
    struct fixture f;
    open_fixture(&f, LOOP);
    for (int i = 0; i < 3; i++) {
        feed(&f, 0, 0, 1);
        feed(&f, 1, 0, 100);
        start(&f);
        await(&f);
        expect_fetched(&f, 0, 128);
    }
    close_fixture(&f);
    assert_int_equal(fake_device_n_buffers(fake), 0);
}

/* A branch that is not taken makes no copies, and its dead value passes a copy. */
static void dead_values_pass_copies(void **state) {
    struct fixture f;
    open_fixture(&f, "x = _MrFeed() {T=float, index=0}\n"
                     "p = Const() {dtype=bool, value=bool[]{true}} @C\n"
                     "s = Switch(x, p) {T=float} @C\n"
                     "a = Mul(s:0, s:0) {T=float} @F\n"
                     "b = AddV2(s:1, s:1) {T=float} @F\n"
                     "m = Merge(a, b) {T=float, N=2} @C\n"
                     "y = _MrFetch(m) {T=float, index=0}\n");
    struct fake_counts before = fake_device_counts(fake);
    feed(&f, 0, 8, 2);
    start(&f);
    await(&f);
    expect_fetched(&f, 0, 4);
    assert_int_equal(fake_device_counts(fake).in - before.in, 1);
    assert_int_equal(fake_device_counts(fake).out - before.out, 1);
    close_fixture(&f);
}

/* The variable is in the device's memory; its fetch shows the step's own update. */
static void variables_live_on_the_device(void **state) {
    struct fixture f;
    open_fixture(&f, "v = VariableV2() {dtype=float, shape=[8]} @F\n"
                     "x = _MrFeed() {T=float, index=0}\n"
                     "a = Assign(v, x) {T=float} @F\n");
    feed(&f, 0, 8, 0);
    start(&f);
    await(&f);
    assert_null(f.end.status);
    close_fixture(&f);
    open_fixture(&f, "v = VariableV2() {dtype=float, shape=[8]} @F\n"
                     "x = _MrFeed() {T=float, index=0}\n"
                     "a = Assign(v, x) {T=float} @F\n"
                     "b = AddV2(a, a) {T=float} @F\n"
                     "y = _MrFetch(v) {T=float, index=0}\n"
                     "z = _MrFetch(b) {T=float, index=1}\n");
    for (int i = 1; i < 4; i++) {
        feed(&f, 0, 8, (float)i);
        start(&f);
        await(&f);
        expect_fetched(&f, 0, (float)i);
        expect_fetched(&f, 1, (float)i * 2);
    }
    close_fixture(&f);
}

/* ---- tensors ---- */

static void a_small_device_value_is_never_inline(void **state) {
    struct allocator *allocator = fake_device_of(fake)->allocator;
    struct tensor a = TENSOR_INIT, view = TENSOR_INIT, copy = TENSOR_INIT, row = TENSOR_INIT;
    int64_t dims[] = {2, 1};
    assert_null(tensor_new_on_device(allocator, DT_FLOAT, (struct shape){2, dims}, &a));
    assert_true(tensor_is_on_device(&a));
    assert_null(tensor_reshape(&a, (struct shape){1, dims}, &view));
    assert_true(tensor_is_on_device(&view));
    assert_null(tensor_slice_rows(&a, 1, 2, &row));
    assert_true(tensor_is_on_device(&row));
    assert_null(tensor_clone(allocator, &a, &copy));
    assert_true(tensor_is_on_device(&copy) && copy.data != a.data);
    tensor_clear(&a);
    tensor_clear(&view);
    tensor_clear(&row);
    tensor_clear(&copy);
    int64_t none[] = {0};
    assert_null(tensor_new_on_device(allocator, DT_FLOAT, (struct shape){1, none}, &a));
    assert_int_equal(a.storage, TENSOR_INLINE);
    tensor_clear(&a);
}

static int begin(void **state) {
    fake_device_add_type();
    fake = fake_device_new(FAKE);
    devices[0] = (struct device){
        .full_name = (char *)(uintptr_t)CPU, .type = "CPU", .allocator = allocator_host()};
    status_unref(device_name_parse(span_of(CPU), &devices[0].name));
    devices[1] = *fake_device_of(fake);
    pool = pool_new(2);
    containers = container_table_new();
    return 0;
}

static int end(void **state) {
    container_table_free(containers);
    pool_free(pool);
    fake_device_free(fake);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_copy_serves_all_consumers_of_an_output),
        cmocka_unit_test(host_arguments_are_not_copied),
        cmocka_unit_test(a_constant_gets_a_twin_and_no_copy),
        cmocka_unit_test(a_list_is_handed_on_where_its_ops_are),
        cmocka_unit_test(a_view_is_where_its_value_is),
        cmocka_unit_test(a_predicate_of_host_nodes_is_handed_on_by_the_host),
        cmocka_unit_test(small_host_values_go_along_with_the_launch),
        cmocka_unit_test(loops_copy_before_they_begin_and_before_they_go_on),
        cmocka_unit_test(a_reference_is_copied_when_its_consumer_would_read_it),
        cmocka_unit_test(a_reference_is_copied_after_the_data_that_its_consumer_waits_for),
        cmocka_unit_test(a_chain_makes_one_copy_each_way),
        cmocka_unit_test(a_list_is_copied_with_its_tensors),
        cmocka_unit_test(nodes_are_done_when_they_are_enqueued),
        cmocka_unit_test(a_step_ends_when_its_device_has),
        cmocka_unit_test(a_step_pauses_when_it_is_far_ahead_of_the_device),
        cmocka_unit_test(a_paused_step_can_be_cancelled),
        cmocka_unit_test(a_loop_runs_on_both_devices),
        cmocka_unit_test(dead_values_pass_copies),
        cmocka_unit_test(variables_live_on_the_device),
        cmocka_unit_test(a_small_device_value_is_never_inline),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
