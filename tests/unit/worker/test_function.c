/* Functions that kernels call: tables, calls that end at once and later, cancellation,
 * recursion, fresh state; with kernels of this file on a device type of their own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/graph/graph_proto.h"
#include "common/graph/graph_text.h"
#include "tests/unit/worker/ending.h"
#include "tests/unit/worker/odd_kernels.h"
#include "worker/container.h"
#include "worker/executor/executor.h"
#include "worker/executor/function.h"

static const char DEVICE[] = "/job:worker/replica:0/task:0/device:TEST:0";
static struct device device;
static struct pool *pool;
static struct container_table *containers;

/* ---- kernels ---- */

/* Inv: one more than the last time: state. */
static enum kernel_result count(struct kernel_ctx *ctx) {
    float *n = ctx->instance->state;
    tensor_init_scalar_f32(&ctx->outputs[0], ++*n);
    return KERNEL_DONE;
}

static struct status *count_init(struct kernel_init *init) {
    init->state = xcalloc(1, sizeof(float));
    return NULL;
}

/* Abs: hands out the function of its attr "f" by this variable. */
static struct function *found;

static enum kernel_result find(struct kernel_ctx *ctx) {
    KERNEL_TRY(ctx, ctx->host->function_find(ctx, "_f", &found));
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

/* Exp: calls the function of its attr "_f" with its input, and so on until that says no. */
struct nested {
    struct function_call call;
    struct kernel_ctx *ctx;
    struct tensor arg, ret;
};

static void nested_end(struct nested *nested) {
    struct kernel_ctx *ctx = nested->ctx;
    if (nested->call.status)
        kernel_fail(ctx, nested->call.status);
    else
        tensor_move(&ctx->outputs[0], &nested->ret);
    ctx->host->function_finish(&nested->call);
    object_unref(&nested->call.function->object);
    tensor_clear(&nested->arg);
    free(nested);
}

static void on_nested(struct function_call *call) {
    struct nested *nested = CONTAINER_OF(call, struct nested, call);
    struct kernel_ctx *ctx = nested->ctx;
    nested_end(nested);
    ctx->host->done(ctx);
}

static enum kernel_result call_function(struct kernel_ctx *ctx) {
    struct function *function = NULL;
    KERNEL_TRY(ctx, ctx->host->function_find(ctx, "_f", &function));
    struct nested *nested = aligned_alloc(_Alignof(struct nested), sizeof(*nested));
    memset(nested, 0, sizeof(*nested));
    tensor_copy(&nested->arg, &ctx->inputs[0]);
    nested->ctx = ctx;
    nested->call = (struct function_call){.function = function,
                                          .args = &nested->arg,
                                          .n_args = 1,
                                          .rets = &nested->ret,
                                          .on_done = on_nested};
    ctx->host->function_prepare(&nested->call);
    if (ctx->host->function_call(&nested->call) == KERNEL_PENDING)
        return KERNEL_PENDING;
    nested_end(nested);
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def test_rows[] = {
    {.op = "Neg", .compute = neg_later, .flags = KERNEL_ASYNC},
    {.op = "Square", .compute = wait_for_cancel, .flags = KERNEL_ASYNC},
    {.op = "Inv", .compute = count, .init = count_init,
     .flags = KERNEL_STATEFUL | KERNEL_SESSION_STATE},
    {.op = "Abs", .compute = find},
    {.op = "Exp", .compute = call_function, .flags = KERNEL_ASYNC},
};
// clang-format on
static const struct kernel_list test_list = {test_rows, ARRAY_LEN(test_rows)};

/* ---- graphs as text ---- */

/* A function of that name: a function_source, whose bytes the caller frees. "_f" attrs are
 * strings in text, so they are set here: all nodes that may call anything call `calls`. */
static void parse(const char *text, const char *calls, struct graph *graph) {
    graph_init(graph);
    struct status *st = graph_parse(text, graph);
    if (st)
        fail_msg("%s", status_message(st));
    for (int i = 0; i < graph->n_nodes; i++) {
        struct attr_func func = {.name = calls};
        struct attr_value value = {.type = ATTR_FUNC, .func = &func};
        graph->nodes[i]->device = DEVICE;
        if (node_is_op(graph->nodes[i], "Abs") || node_is_op(graph->nodes[i], "Exp"))
            node_set_attr(graph, graph->nodes[i], "_f", &value);
    }
}

static struct function_table *table_new(const char *name, const char *text, const char *calls) {
    struct graph graph;
    struct str bytes = STR_INIT, key = STR_INIT;
    const struct plan_options options = {
        .devices = &device, .n_devices = 1, .host = &executor_host};
    struct function_table *table = NULL;
    parse(text, calls, &graph);
    graph_to_graphdef(&graph, NULL, &bytes);
    str_addf(&key, "%s#0@%s", name, DEVICE);
    const struct function_source source = {str_text(&key), name, {str_text(&bytes), bytes.len}};
    struct status *st = function_table_new(&options, &source, 1, &table);
    if (st)
        fail_msg("%s", status_message(st));
    graph_fini(&graph);
    str_fini(&bytes);
    str_fini(&key);
    return table;
}

/* ---- a step that ends ---- */

struct fixture {
    struct execution run;
    struct tensor fetch __attribute__((aligned(64)));
    struct ending end;
};

static void step_done(struct execution *run, struct status *status_take) {
    ending_tell(&CONTAINER_OF(run, struct fixture, run)->end, status_take);
}

/* Runs "x -> op -> fetch" with x = 3 beside the table; the step holds no reference on the table
 * after. */
static struct status *run_step(const char *op, const char *calls, struct function_table *table,
                               float *ret) {
    struct fixture f = {.end = ENDING_INIT};
    const struct plan_options options = {
        .devices = &device, .n_devices = 1, .host = &executor_host, .functions = table};
    struct graph graph;
    struct plan *plan = NULL;
    struct str text = STR_INIT;
    str_addf(&text,
             "x = Const() {dtype=float, value=float[]{3}}\ny = %s(x) {T=float}\nz = _MrFetch(y) "
             "{T=float, index=0}\n",
             op);
    parse(str_text(&text), calls, &graph);
    struct status *st = plan_new(&graph, &options, &plan);
    if (st)
        fail_msg("%s", status_message(st));
    graph_fini(&graph);
    str_fini(&text);
    execution_init(&f.run);
    f.run.plan = plan;
    f.run.step_id = 1;
    f.run.fetches = &f.fetch;
    f.run.containers = containers;
    f.run.pool = pool;
    f.run.on_done = step_done;
    execution_start(&f.run);
    ending_wait(&f.end);
    if (!f.end.status)
        *ret = *(const float *)tensor_cdata(&f.fetch);
    tensor_clear(&f.fetch);
    execution_fini(&f.run);
    plan_unref(plan);
    return f.end.status;
}

static struct function *find_function(const char *name, const char *text) {
    struct function_table *table = table_new(name, text, "");
    float ignored;
    assert_null(run_step("Abs", name, table, &ignored));
    function_table_unref(table); /* the function keeps it */
    return found;
}

/* ---- one call ---- */

struct caller {
    struct function_call call;
    struct tensor arg, ret;
    struct ending end;
} __attribute__((aligned(64)));

static void call_done(struct function_call *call) {
    ending_tell(&CONTAINER_OF(call, struct caller, call)->end, NULL); /* the status is the call's */
}

static void caller_init(struct caller *caller, struct function *function, float arg) {
    *caller = (struct caller){.end = ENDING_INIT};
    tensor_init_scalar_f32(&caller->arg, arg);
    caller->call = (struct function_call){.function = function,
                                          .args = &caller->arg,
                                          .n_args = 1,
                                          .rets = &caller->ret,
                                          .on_done = call_done};
    function->host->function_prepare(&caller->call);
}

static float caller_result(struct caller *caller) {
    if (caller->call.status)
        fail_msg("%s", status_message(caller->call.status));
    float v = *(const float *)tensor_cdata(&caller->ret);
    tensor_clear(&caller->ret);
    caller->call.function->host->function_finish(&caller->call);
    return v;
}

static float call_with(struct function *function, float arg) {
    struct caller caller;
    caller_init(&caller, function, arg);
    if (function->host->function_call(&caller.call) == KERNEL_PENDING)
        ending_wait(&caller.end);
    return caller_result(&caller);
}

#define BODY(op)                                \
    "a = _MrFeed() {T=float, index=0}\nb = " op \
    "(a) {T=float}\nr = _MrFetch(b) {T=float, index=0}\n"

/* ---- tests ---- */

static void test_ends_at_once(void **state) {
    struct function *f = find_function("f", BODY("Identity"));
    struct caller caller;
    assert_int_equal(f->n_args, 1);
    assert_int_equal(f->n_rets, 1);
    assert_int_equal(f->arg_types[0], DT_FLOAT);
    caller_init(&caller, f, 5);
    assert_int_equal(f->host->function_call(&caller.call), KERNEL_DONE);
    assert_true(caller_result(&caller) == 5);
    assert_false(caller.end.is_done); /* on_done is for those that are pending */
    for (int i = 0; i < 1000; i++)
        assert_true(call_with(f, (float)i) == (float)i);
    object_unref(&f->object);
}

static void test_ends_later(void **state) {
    struct function *f = find_function("f", BODY("Neg"));
    for (int i = 0; i < 200; i++)
        assert_true(call_with(f, (float)i) == -(float)i);
    object_unref(&f->object);
}

static void test_is_cancelled(void **state) {
    struct function *f = find_function("f", BODY("Square"));
    struct status *why = status_new(STATUS_CANCELLED, "no longer wanted");
    for (int before = 0; before < 2; before++) { /* before it is called, and after */
        struct caller caller;
        caller_init(&caller, f, 1);
        if (before)
            f->host->function_cancel(&caller.call, why);
        bool is_pending = f->host->function_call(&caller.call) == KERNEL_PENDING;
        assert_true(is_pending == !before);
        if (!before)
            f->host->function_cancel(&caller.call, why);
        if (is_pending)
            ending_wait(&caller.end);
        assert_int_equal(status_code(caller.call.status), STATUS_CANCELLED);
        f->host->function_cancel(&caller.call, why); /* too late, and harmless */
        status_unref(caller.call.status);
        f->host->function_finish(&caller.call);
    }
    status_unref(why);
    object_unref(&f->object);
}

static void test_refuses_arguments(void **state) {
    struct function *f = find_function("f", BODY("Identity"));
    struct caller caller;
    caller_init(&caller, f, 1);
    tensor_init_scalar_i32(&caller.arg, 1);
    assert_int_equal(f->host->function_call(&caller.call), KERNEL_DONE);
    assert_int_equal(status_code(caller.call.status), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(status_message(caller.call.status), "int32, which should be float"));
    status_unref(caller.call.status);
    f->host->function_finish(&caller.call);
    caller_init(&caller, f, 1);
    caller.call.n_args = 0;
    assert_int_equal(f->host->function_call(&caller.call), KERNEL_DONE);
    assert_int_equal(status_code(caller.call.status), STATUS_INVALID_ARGUMENT);
    status_unref(caller.call.status);
    f->host->function_finish(&caller.call);
    object_unref(&f->object);
}

static void test_unknown_function(void **state) {
    struct function_table *table = table_new("f", BODY("Identity"), "");
    float ignored;
    struct status *st = run_step("Abs", "g", table, &ignored);
    assert_int_equal(status_code(st), STATUS_NOT_FOUND);
    assert_non_null(strstr(status_message(st), "Function g is not defined."));
    status_unref(st);
    st = run_step("Abs", "f", NULL, &ignored);
    assert_int_equal(status_code(st), STATUS_NOT_FOUND);
    status_unref(st);
    function_table_unref(table);
}

static void test_calls_from_a_step(void **state) {
    static const char *const ops[] = {"Identity", "Neg"};
    static const float wanted[] = {3, -3};
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        char body[256];
        snprintf(body, sizeof(body),
                 "a = _MrFeed() {T=float, index=0}\nb = %s(a) {T=float}\nr = _MrFetch(b) {T=float, "
                 "index=0}\n",
                 ops[i]);
        struct function_table *table = table_new("f", body, "");
        float v = 0;
        assert_null(run_step("Exp", "f", table, &v));
        assert_true(v == wanted[i]);
        function_table_unref(table);
    }
}

static void test_recursion_ends(void **state) {
    struct function_table *table = table_new("f", BODY("Exp"), "f"); /* f(x) = f(x) */
    float ignored;
    struct status *st = run_step("Exp", "f", table, &ignored);
    assert_int_equal(status_code(st), STATUS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(status_message(st), "Functions call each other more than 64 deep"));
    status_unref(st);
    function_table_unref(table);
}

static void test_fresh_state(void **state) {
    struct function *f = find_function("f", BODY("Inv")), *a = NULL, *b = NULL, *again = NULL;
    struct object *scope_a = NULL, *scope_b = NULL;
    assert_true(call_with(f, 0) == 1);
    assert_true(call_with(f, 0) == 2);
    assert_null(f->host->function_fresh(f, &scope_a, &a));
    assert_null(f->host->function_fresh(f, &scope_b, &b));
    assert_true(call_with(a, 0) == 1);
    assert_true(call_with(b, 0) == 1);
    assert_null(f->host->function_fresh(f, &scope_a, &again)); /* the same scope: the same state */
    assert_true(call_with(again, 0) == 2);
    assert_true(call_with(f, 0) == 3);
    object_unref(&again->object);
    assert_null(f->host->function_fresh(a, &scope_b, &again)); /* fresh already */
    assert_ptr_equal(again, a);
    object_unref(&again->object);
    object_unref(&f->object);
    assert_true(call_with(a, 0) == 3);
    object_unref(&a->object);
    object_unref(&b->object);
    object_unref(scope_a);
    object_unref(scope_b);
}

static void test_without_state_it_is_its_own(void **state) {
    struct function *f = find_function("f", BODY("Identity")), *fresh = NULL;
    struct object *scope = NULL;
    assert_null(f->host->function_fresh(f, &scope, &fresh));
    assert_ptr_equal(fresh, f);
    assert_null(scope);
    object_unref(&fresh->object);
    object_unref(&f->object);
}

static int setup(void **state) {
    static const struct kernel_list *const lists[] = {&test_list};
    kernel_add_device_type("TEST", lists, 1);
    device.full_name = xstrdup(DEVICE);
    device.type = "TEST";
    device.allocator = allocator_host();
    assert_null(device_name_parse(span_of(DEVICE), &device.name));
    pool = pool_new(2);
    containers = container_table_new();
    return 0;
}

static int teardown(void **state) {
    pool_free(pool);
    container_table_free(containers);
    free(device.full_name);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends_at_once),
        cmocka_unit_test(test_ends_later),
        cmocka_unit_test(test_is_cancelled),
        cmocka_unit_test(test_refuses_arguments),
        cmocka_unit_test(test_unknown_function),
        cmocka_unit_test(test_calls_from_a_step),
        cmocka_unit_test(test_recursion_ends),
        cmocka_unit_test(test_fresh_state),
        cmocka_unit_test(test_without_state_it_is_its_own),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
