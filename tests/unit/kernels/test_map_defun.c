/* MapDefun: rows side by side, and what a failure does to the others. Functions are this file's. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "tests/unit/kernels/kernel_test.h"

enum { TIMEOUT_MS = 20000 };

/* y = x + 1; a row of 7 fails, a negative one waits until it is cancelled. */
static struct {
    struct function base;
    _Atomic int n_waiting, n_cancelled, n_prepared, n_finished;
} fake;

static struct status *find_function(struct kernel_ctx *ctx, const char *attr,
                                    struct function **ret) {
    object_ref(&fake.base.object);
    *ret = &fake.base;
    return NULL;
}

static struct status *fresh_function(struct function *function, struct object **scope,
                                     struct function **ret) {
    object_ref(&function->object);
    *ret = function;
    return NULL;
}

static void prepare(struct function_call *call) { fake.n_prepared++; }
static void finish(struct function_call *call) { fake.n_finished++; }

static enum kernel_result call_function(struct function_call *call) {
    int32_t x = *(const int32_t *)tensor_cdata(&call->args[0]);
    if (x < 0) {
        fake.n_waiting++;
        return KERNEL_PENDING;
    }
    if (x == 7) {
        call->status = status_invalid("seven");
        return KERNEL_DONE;
    }
    assert_null(tensor_new_zeroed(allocator_host(), DT_INT32, SHAPE_SCALAR, &call->rets[0]));
    *(int32_t *)tensor_data(&call->rets[0]) = x + 1;
    return KERNEL_DONE;
}

static void cancel_function(struct function_call *call, struct status *why) {
    fake.n_cancelled++;
    call->status = status_new(STATUS_CANCELLED, "cut short");
    call->on_done(call);
}

static void no_free(struct object *object) {}
static const struct object_type fake_type = {.name = "fake function", .free = no_free};
static struct pool *no_pool(struct kernel_ctx *ctx) { return NULL; }

static void run(const char *rows, const char *expected, enum status_code code) {
    static const uint8_t types[] = {DT_INT32};
    struct test_host *host = test_host_new(2);
    struct test_graph graph;
    struct test_step step;
    struct test_call call;
    struct tensor input = TENSOR_INIT;
    struct span text = span_of(rows);
    memset(&fake, 0, sizeof(fake));
    object_init(&fake.base.object, &fake_type);
    host->host.function_find = find_function;
    host->host.function_fresh = fresh_function;
    host->host.function_prepare = prepare;
    host->host.function_call = call_function;
    host->host.function_cancel = cancel_function;
    host->host.function_finish = finish;
    host->host.io_pool = no_pool;
    fake.base.host = &host->host;
    fake.base.name = "plus_one";
    fake.base.arg_types = fake.base.ret_types = types;
    fake.base.n_args = fake.base.n_rets = 1;
    test_graph_init(&graph, host);
    struct status *st = graph_parse("x = Placeholder() {dtype=int32}\n"
                                    "m = MapDefun(x) {Targuments=[int32], Tcaptured=[], "
                                    "output_types=[int32], output_shapes=[[]], "
                                    "f=&plus_one}\n",
                                    &graph.graph);
    if (!st)
        st = test_graph_prepare(&graph);
    if (st)
        fail_msg("%s", status_message(st));
    struct kernel_instance *instance = &graph.instances[graph_find(&graph.graph, "m")->id];
    assert_null(kernel_instance_init(instance, graph_find(&graph.graph, "m"), "CPU", TEST_DEVICE,
                                     allocator_host(), &host->host));
    assert_null(tensor_parse(&text, allocator_host(), &input));
    test_step_init(&step, host);
    test_call_start(&call, &step, instance, &input);
    tensor_clear(&input);
    st = test_call_wait(&call, TIMEOUT_MS);
    assert_int_equal(status_code(st), code);
    if (st) {
        assert_non_null(strstr(status_message(st), expected));
    } else {
        struct str printed = STR_INIT;
        tensor_print(&call.ctx.outputs[0], INT64_MAX, &printed);
        assert_string_equal(str_text(&printed), expected);
        str_fini(&printed);
    }
    status_unref(st);
    test_call_fini(&call);
    test_step_fini(&step);
    test_graph_fini(&graph);
    test_host_free(host);
    assert_int_equal(fake.n_prepared, fake.n_finished);
    assert_int_equal(atomic_load(&fake.base.object.n_refs), 1);
}

static void test_rows(void **state) {
    run("int32[3]{1, 2, 3}", "int32[3]{2, 3, 4}", STATUS_OK);
    run("int32[20]{0, 1, 2, 3, 4, 5, 6, 17, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}",
        "int32[20]{1, 2, 3, 4, 5, 6, 7, 18, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}",
        STATUS_OK);
}

static void test_a_failure_cancels_the_others(void **state) {
    run("int32[5]{-1, -2, 3, 7, -3}", "seven", STATUS_INVALID_ARGUMENT);
    assert_int_equal(fake.n_waiting, 2); /* none begins after it */
    assert_int_equal(fake.n_cancelled, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_a_failure_cancels_the_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
