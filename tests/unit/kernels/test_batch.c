/* Batching across steps: which requests form a batch, by size and by time; what a cancelled step
 * leaves behind; functions that are called and cancelled. Time advances only by the test, and the
 * functions are of this file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "kernels/host/data/unbatch.h"
#include "tests/unit/kernels/kernel_test.h"

enum { TIMEOUT_MS = 20000 };

/* ---- a function that ends when the test says so: y = x + 1, int32 ---- */

struct fake_function {
    struct function base;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct function_call *under_way;
    struct function_call *cancelled; /* before it was called */
    struct status *why;              /* of that */
    bool is_patient;                 /* calls wait for finish_call */
    bool is_wrong;                   /* the result has a row too many */
    _Atomic int n_calls, n_cancelled, n_prepared, n_finished;
    int64_t last_rows;
};
static struct fake_function fake;

static struct status *find_function(struct kernel_ctx *ctx, const char *attr,
                                    struct function **ret) {
    object_ref(&fake.base.object);
    *ret = &fake.base;
    return NULL;
}

static void prepare(struct function_call *call) { fake.n_prepared++; }
static void finish(struct function_call *call) { fake.n_finished++; }

static void compute(struct function_call *call) {
    int64_t n = tensor_dim(&call->args[0], 0), dims[1] = {n + fake.is_wrong};
    fake.last_rows = n;
    assert_null(
        tensor_new_zeroed(allocator_host(), DT_INT32, (struct shape){1, dims}, &call->rets[0]));
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)tensor_data(&call->rets[0]))[i] =
            ((const int32_t *)tensor_cdata(&call->args[0]))[i] + 1;
}

static enum kernel_result call_function(struct function_call *call) {
    pthread_mutex_lock(&fake.lock);
    fake.n_calls++;
    bool is_cancelled = fake.cancelled == call, is_patient = fake.is_patient && !is_cancelled;
    if (is_cancelled)
        call->status = status_ref(fake.why);
    else if (is_patient)
        fake.under_way = call;
    else
        compute(call);
    pthread_cond_broadcast(&fake.changed);
    pthread_mutex_unlock(&fake.lock);
    return is_patient ? KERNEL_PENDING : KERNEL_DONE;
}

static struct function_call *wait_for_call(void) {
    pthread_mutex_lock(&fake.lock);
    while (!fake.under_way)
        pthread_cond_wait(&fake.changed, &fake.lock);
    struct function_call *call = fake.under_way;
    pthread_mutex_unlock(&fake.lock);
    return call;
}

static struct function_call *take_call(void) {
    struct function_call *call = wait_for_call();
    fake.under_way = NULL;
    return call;
}

static void finish_call(void) {
    struct function_call *call = take_call();
    compute(call);
    call->on_done(call);
}

/* Ends the call inside of the cancellation, as a function may that waits. A call that comes later
 * ends at once. */
static void cancel_function(struct function_call *call, struct status *why) {
    pthread_mutex_lock(&fake.lock);
    fake.n_cancelled++;
    bool is_under_way = fake.under_way == call;
    if (is_under_way) {
        fake.under_way = NULL;
    } else {
        status_unref(fake.why);
        fake.why = status_ref(why);
        fake.cancelled = call;
    }
    pthread_mutex_unlock(&fake.lock);
    if (!is_under_way)
        return;
    call->status = status_ref(why);
    call->on_done(call);
}

static void no_free(struct object *object) {}
static const struct object_type fake_type = {.name = "fake function", .free = no_free};

static void fake_init(struct test_host *host) {
    static const uint8_t types[] = {DT_INT32};
    memset(&fake, 0, sizeof(fake));
    object_init(&fake.base.object, &fake_type);
    pthread_mutex_init(&fake.lock, NULL);
    pthread_cond_init(&fake.changed, NULL);
    host->host.function_find = find_function;
    host->host.function_prepare = prepare;
    host->host.function_call = call_function;
    host->host.function_cancel = cancel_function;
    host->host.function_finish = finish;
    fake.base.host = &host->host;
    fake.base.name = "plus_one";
    fake.base.arg_types = fake.base.ret_types = types;
    fake.base.n_args = fake.base.n_rets = 1;
}

/* ---- nodes that are executed one by one ---- */

struct fixture {
    struct test_host *host;
    struct test_graph graph;
};

#define SMALL "num_batch_threads=1, max_batch_size=3, batch_timeout_micros=1000"
#define LATE "num_batch_threads=1, max_batch_size=100, batch_timeout_micros=1000"

static struct status *fixture_make(struct fixture *f, const char *attrs, int n_outputs) {
    struct str text = STR_INIT, types = STR_INIT;
    for (int i = 0; i < n_outputs; i++)
        str_add(&types, i > 0 ? ",int32" : "int32");
    str_addf(&text,
             "x = Placeholder() {dtype=int32}\ni = Placeholder() {dtype=int64}\n"
             "b = Batch(x) {T=[int32], grad_timeout_micros=0, %s}\n"
             "f = BatchFunction(x) {Tin=[int32], Tcaptured=[], Tout=[%s], f=&plus_one, %s}\n"
             "h = BatchFunction(x) {Tin=[int32], Tcaptured=[], Tout=[%s], f=&another, "
             "shared_name=\"f\", %s}\n"
             "u = Unbatch(x, i, i) {T=int32, timeout_micros=500}\n"
             "g = UnbatchGrad(x, i, x, i) {T=int32}\n",
             /* Batch splits nothing */
             strstr(attrs, "splitting") ? SMALL : attrs, str_text(&types), attrs, str_text(&types),
             attrs);
    f->host = test_host_new(2);
    fake_init(f->host);
    test_graph_init(&f->graph, f->host);
    struct status *st = graph_parse(str_text(&text), &f->graph.graph);
    if (!st)
        st = test_graph_prepare(&f->graph);
    if (st)
        fail_msg("%s", status_message(st));
    for (int i = 0; i < f->graph.graph.n_nodes; i++)
        if (!node_is_op(f->graph.graph.nodes[i], "Placeholder"))
            st = st ? st
                    : kernel_instance_init(&f->graph.instances[i], f->graph.graph.nodes[i], "CPU",
                                           TEST_DEVICE, allocator_host(), &f->host->host);
    str_fini(&text);
    str_fini(&types);
    return st;
}

static void fixture_init(struct fixture *f, const char *attrs) {
    struct status *st = fixture_make(f, attrs, 1);
    if (st)
        fail_msg("%s", status_message(st));
}

/* Nothing is left: neither alarms nor calls. */
static void fixture_fini(struct fixture *f) {
    assert_int_equal(alarm_clock_run(f->host->alarms), INT64_MAX);
    assert_int_equal(fake.n_prepared, fake.n_finished);
    status_unref(fake.why);
    test_graph_fini(&f->graph);
    test_host_free(f->host);
    assert_int_equal(atomic_load(&fake.base.object.n_refs), 1);
}

struct execution {
    struct test_step step;
    struct test_call call;
};

static void begin(struct execution *e, struct fixture *f, const char *node,
                  const char *const *inputs) {
    struct tensor values[4] = {0};
    int n = 0;
    for (; inputs[n]; n++) {
        struct span text = span_of(inputs[n]);
        assert_null(tensor_parse(&text, allocator_host(), &values[n]));
    }
    test_step_init(&e->step, f->host);
    test_call_start(&e->call, &e->step, &f->graph.instances[graph_find(&f->graph.graph, node)->id],
                    values);
    while (n > 0)
        tensor_clear(&values[--n]);
}
#define BEGIN(e, f, node, ...) begin(e, f, node, (const char *const[]){__VA_ARGS__, NULL})

static bool is_done(struct execution *e) { return test_call_is_done(&e->call); }
static void cancel(struct execution *e) {
    test_step_cancel(&e->step, status_new(STATUS_ABORTED, "by the test"));
}

static void end(struct execution *e) {
    test_call_fini(&e->call);
    test_step_fini(&e->step);
}

static void end_failed(struct execution *e, enum status_code code, const char *words) {
    struct status *st = test_call_wait(&e->call, TIMEOUT_MS);
    if (status_code(st) != code || !strstr(status_message(st), words))
        fail_msg("expected %s \"%s\", got %s: %s", status_code_name(code), words,
                 status_code_name(status_code(st)), status_message(st));
    status_unref(st);
    end(e);
}

/* Output 0 prints so. */
static void end_ok(struct execution *e, const char *expected) {
    struct status *st = test_call_wait(&e->call, TIMEOUT_MS);
    struct str text = STR_INIT;
    if (st)
        fail_msg("%s", status_message(st));
    tensor_print(&e->call.ctx.outputs[0], INT64_MAX, &text);
    assert_string_equal(str_text(&text), expected);
    str_fini(&text);
    end(e);
}

/* ---- Batch ---- */

static void test_full_batch_goes_at_once(void **state) {
    struct fixture f;
    struct execution a, b;
    fixture_init(&f, SMALL);
    BEGIN(&a, &f, "b", "int32[2]{1, 2}");
    assert_false(is_done(&a));
    BEGIN(&b, &f, "b", "int32[1]{3}");
    struct status *st = test_call_wait(&b.call, TIMEOUT_MS);
    assert_null(st);
    const int64_t *index = tensor_cdata(&b.call.ctx.outputs[1]);
    assert_int_equal(tensor_dim(&b.call.ctx.outputs[1], 0), 2);
    assert_int_equal(index[1], 0);
    assert_int_equal(index[2], 2);
    assert_int_equal(index[4], 2);
    assert_int_equal(index[5], 3);
    /* the last entry's own key */
    assert_int_equal(index[3], *(const int64_t *)tensor_cdata(&b.call.ctx.outputs[2]));
    end_ok(&b, "int32[3]{1, 2, 3}");
    end_ok(&a, "int32[0]{}");
    fixture_fini(&f);
}

static void test_time_closes_a_batch(void **state) {
    struct fixture f;
    struct execution a, b;
    fixture_init(&f, LATE ", allowed_batch_sizes=[4, 100]");
    BEGIN(&a, &f, "b", "int32[1]{7}");
    test_host_advance(f.host, 600);
    BEGIN(&b, &f, "b", "int32[1]{8}");
    test_host_advance(f.host, 399);
    assert_false(is_done(&a) || is_done(&b));
    test_host_advance(f.host, 1); /* since the first came */
    end_ok(&b, "int32[4]{7, 8, 7, 7}");
    end_ok(&a, "int32[0]{}");
    fixture_fini(&f);
}

static void test_what_does_not_fit_begins_the_next(void **state) {
    struct fixture f;
    struct execution a, b;
    fixture_init(&f, SMALL);
    BEGIN(&a, &f, "b", "int32[2]{1, 2}");
    BEGIN(&b, &f, "b", "int32[2]{3, 4}");
    end_ok(&a, "int32[2]{1, 2}");
    assert_false(is_done(&b));
    test_host_advance(f.host, 1000);
    end_ok(&b, "int32[2]{3, 4}");
    fixture_fini(&f);
}

static void test_too_many_batches_wait(void **state) {
    struct fixture f;
    struct execution a, b, c;
    fixture_init(&f, SMALL ", max_enqueued_batches=1");
    BEGIN(&a, &f, "b", "int32[2]{1, 2}");
    BEGIN(&b, &f, "b", "int32[2]{3, 4}");
    end_failed(&b, STATUS_UNAVAILABLE,
               "is full; currently 1 batches enqueued and max_enqueued_batches is 1");
    BEGIN(&c, &f, "b", "int32[4]{0, 0, 0, 0}");
    end_failed(&c, STATUS_INVALID_ARGUMENT,
               "Task size 4 is larger than maximum input batch size 3");
    test_host_advance(f.host, 1000);
    end_ok(&a, "int32[2]{1, 2}");
    fixture_fini(&f);
}

static void test_cancelled_leaves_its_batch(void **state) {
    struct fixture f;
    struct execution a, b;
    fixture_init(&f, SMALL);
    BEGIN(&a, &f, "b", "int32[2]{1, 2}");
    cancel(&a);
    end_failed(&a, STATUS_ABORTED, "by the test");
    assert_int_equal(alarm_clock_run(f.host->alarms), INT64_MAX); /* nobody waits for a time */
    BEGIN(&b, &f, "b", "int32[3]{4, 5, 6}");
    end_ok(&b, "int32[3]{4, 5, 6}");
    fixture_fini(&f);
}

/* ---- BatchFunction ---- */

static void test_function_gets_all_rows(void **state) {
    struct fixture f;
    struct execution a, b;
    fixture_init(&f, SMALL);
    BEGIN(&a, &f, "f", "int32[2]{1, 2}");
    BEGIN(&b, &f, "f", "int32[1]{3}");
    end_ok(&a, "int32[2]{2, 3}");
    end_ok(&b, "int32[1]{4}");
    assert_int_equal(fake.n_calls, 1);
    assert_int_equal(fake.last_rows, 3);
    fixture_fini(&f);
}

static void test_functions_are_not_mixed(void **state) {
    struct fixture f;
    struct execution a, b, c;
    fixture_init(&f, SMALL);
    BEGIN(&a, &f, "f", "int32[2]{1, 2}");
    BEGIN(&b, &f, "h", "int32[1]{3}"); /* of the same batcher */
    assert_false(is_done(&a) || is_done(&b));
    BEGIN(&c, &f, "f", "int32[1]{4}");
    end_ok(&a, "int32[2]{2, 3}");
    end_ok(&c, "int32[1]{5}");
    assert_false(is_done(&b));
    test_host_advance(f.host, 1000);
    end_ok(&b, "int32[1]{4}");
    assert_int_equal(fake.n_calls, 2);
    fixture_fini(&f);
}

static void test_calls_wait_for_a_slot(void **state) {
    struct fixture f;
    struct execution a, b, c;
    fixture_init(&f, SMALL);
    fake.is_patient = true;
    BEGIN(&a, &f, "f", "int32[3]{1, 2, 3}");
    wait_for_call();
    BEGIN(&b, &f, "f", "int32[1]{4}");
    test_host_advance(f.host, 2000); /* due, but the one slot is taken */
    BEGIN(&c, &f, "f", "int32[1]{5}");
    finish_call();
    end_ok(&a, "int32[3]{2, 3, 4}");
    finish_call();
    end_ok(&b, "int32[1]{5}");
    end_ok(&c, "int32[1]{6}");
    assert_int_equal(fake.n_calls, 2);
    fixture_fini(&f);
}

static void test_cancelled_during_a_call(void **state) {
    struct fixture f;
    struct execution a, b;
    fixture_init(&f, SMALL);
    fake.is_patient = true;
    BEGIN(&a, &f, "f", "int32[2]{1, 2}");
    BEGIN(&b, &f, "f", "int32[1]{3}");
    wait_for_call();
    cancel(&a);
    end_failed(&a, STATUS_ABORTED, "by the test");
    assert_int_equal(fake.n_cancelled, 0); /* another still wants it */
    finish_call();
    end_ok(&b, "int32[1]{4}");
    BEGIN(&a, &f, "f", "int32[2]{1, 2}");
    BEGIN(&b, &f, "f", "int32[1]{3}");
    wait_for_call();
    cancel(&a);
    cancel(&b);
    end_failed(&a, STATUS_ABORTED, "by the test");
    end_failed(&b, STATUS_ABORTED, "by the test");
    assert_int_equal(fake.n_cancelled, 1);
    fixture_fini(&f);
}

static void test_large_input_is_split(void **state) {
    struct fixture f;
    struct execution a, b;
    fixture_init(&f, "num_batch_threads=2, max_batch_size=8, batch_timeout_micros=1000, "
                     "allowed_batch_sizes=[2], "
                     "enable_large_batch_splitting=true");
    BEGIN(&a, &f, "f", "int32[5]{1, 2, 3, 4, 5}");
    BEGIN(&b, &f, "f", "int32[3]{6, 7, 8}");
    end_ok(&a, "int32[5]{2, 3, 4, 5, 6}");
    end_ok(&b, "int32[3]{7, 8, 9}");
    assert_int_equal(fake.n_calls, 4);
    BEGIN(&a, &f, "f", "int32[3]{1, 2, 3}");
    cancel(&a); /* one part may be running, the other waits */
    end_failed(&a, STATUS_ABORTED, "by the test");
    fixture_fini(&f);
}

static void test_bounds_of_what_is_split(void **state) {
    enum { N_OUTPUTS = 100, N_ROWS = 20000 };
    struct fixture f;
    struct execution a;
    struct str rows = STR_INIT;
    assert_null(fixture_make(&f,
                             "num_batch_threads=1, max_batch_size=100000, batch_timeout_micros=0, "
                             "allowed_batch_sizes=[1], "
                             "max_enqueued_batches=-1, enable_large_batch_splitting=true",
                             N_OUTPUTS));
    str_addf(&rows, "int32[%d]{", N_ROWS);
    for (int i = 0; i < N_ROWS; i++)
        str_add(&rows, i > 0 ? ", 1" : "1");
    str_add(&rows, "}");
    BEGIN(&a, &f, "f", str_text(&rows));
    end_failed(&a, STATUS_RESOURCE_EXHAUSTED, "20000 batches with 1 inputs and 100 outputs each");
    assert_int_equal(fake.n_calls, 0);
    str_fini(&rows);
    fixture_fini(&f);
    fixture_init(&f, "num_batch_threads=1, max_batch_size=-1, batch_timeout_micros=1000, "
                     "enable_large_batch_splitting=true");
    BEGIN(&a, &f, "f", "int32[4611686018427387905,0]{}");
    end_failed(&a, STATUS_RESOURCE_EXHAUSTED, "4611686018427387905 rows");
    BEGIN(&a, &f, "f", "int32[1]{1}");
    test_host_advance(f.host, 1000);
    end_ok(&a, "int32[1]{2}");
    fixture_fini(&f);
}

static void test_trims_down(void **state) {
    struct fixture f;
    struct execution a, b, c;
    fixture_init(&f, "num_batch_threads=1, max_batch_size=8, batch_timeout_micros=1000, "
                     "allowed_batch_sizes=[2, 8], "
                     "enable_large_batch_splitting=true, batch_padding_policy=\"BATCH_DOWN\"");
    fake.is_patient = true;
    BEGIN(&a, &f, "f", "int32[1]{1}");
    BEGIN(&b, &f, "f", "int32[1]{2}");
    BEGIN(&c, &f, "f", "int32[1]{3}");
    test_host_advance(f.host, 1000);
    finish_call();
    assert_int_equal(fake.last_rows, 2);
    end_ok(&a, "int32[1]{2}");
    end_ok(&b, "int32[1]{3}");
    finish_call();
    assert_int_equal(fake.last_rows, 2); /* padded */
    end_ok(&c, "int32[1]{4}");
    test_host_advance(f.host, 1000);
    fixture_fini(&f);
}

static void test_sizes_that_no_batch_has(void **state) {
    static const char *const sizes[] = {"[-4, 8]", "[0, 8]"};
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct fixture f;
        struct execution a, b;
        struct str attrs = STR_INIT;
        str_addf(&attrs,
                 "num_batch_threads=3, max_batch_size=8, batch_timeout_micros=1000, "
                 "enable_large_batch_splitting=true, "
                 "batch_padding_policy=\"BATCH_DOWN\", allowed_batch_sizes=%s",
                 sizes[i]);
        fixture_init(&f, str_text(&attrs));
        fake.is_patient = true;
        BEGIN(&a, &f, "f", "int32[1]{1}");
        BEGIN(&b, &f, "f", "int32[1]{2}");
        test_host_advance(f.host, 1000);
        finish_call();
        assert_int_equal(fake.last_rows, 8); /* padded to the one that there is */
        end_ok(&a, "int32[1]{2}");
        end_ok(&b, "int32[1]{3}");
        str_fini(&attrs);
        fixture_fini(&f);
    }
}

static void test_wrong_result(void **state) {
    struct fixture f;
    struct execution a;
    fixture_init(&f, SMALL);
    fake.is_wrong = true;
    BEGIN(&a, &f, "f", "int32[3]{1, 2, 3}");
    end_failed(&a, STATUS_FAILED_PRECONDITION,
               "0th dimension does not equal the sum of the 0th dimension sizes");
    fixture_fini(&f);
}

/* ---- Unbatch, UnbatchGrad ---- */

static void test_rows_find_their_steps(void **state) {
    struct fixture f;
    struct execution a, b, c;
    fixture_init(&f, SMALL);
    BEGIN(&a, &f, "u", "int32[0]{}", "int64[0,3]{}", "int64[]{5}");
    assert_false(is_done(&a));
    BEGIN(&b, &f, "u", "int32[4]{1, 2, 3, 4}", "int64[3,3]{5, 0, 1, 6, 1, 2, 7, 2, 3}",
          "int64[]{7}");
    end_ok(&a, "int32[1]{1}");
    end_ok(&b, "int32[1]{3}");
    BEGIN(&c, &f, "u", "int32[0]{}", "int64[0,3]{}", "int64[]{6}"); /* was there before */
    end_ok(&c, "int32[1]{2}");
    test_host_advance(f.host, 500);
    fixture_fini(&f);
}

static void test_unbatch_gives_up(void **state) {
    struct fixture f;
    struct execution a, b;
    fixture_init(&f, SMALL);
    BEGIN(&a, &f, "u", "int32[0]{}", "int64[0,3]{}", "int64[]{5}");
    BEGIN(&b, &f, "u", "int32[0]{}", "int64[0,3]{}", "int64[]{5}");
    end_failed(&b, STATUS_ALREADY_EXISTS, "Multiple session runs with the same batch key.");
    test_host_advance(f.host, 300);
    BEGIN(&b, &f, "u", "int32[0]{}", "int64[0,3]{}", "int64[]{6}");
    test_host_advance(f.host, 200);
    end_failed(&a, STATUS_DEADLINE_EXCEEDED, "Batched data did not arrive within timeout window.");
    assert_false(is_done(&b));
    cancel(&b);
    end_failed(&b, STATUS_CANCELLED, "Unbatch operation was cancelled");
    BEGIN(&a, &f, "u", "int32[2]{1, 2}", "int64[2,3]{8, 0, 1, 9, 1, 2}", "int64[]{9}");
    end_ok(&a, "int32[1]{2}");
    test_host_advance(f.host, 1000); /* the rows of 8 go */
    BEGIN(&a, &f, "u", "int32[0]{}", "int64[0,3]{}", "int64[]{8}");
    assert_false(is_done(&a));
    test_host_advance(f.host, 500);
    end_failed(&a, STATUS_DEADLINE_EXCEEDED, "timeout window");
    fixture_fini(&f);
}

static void test_each_wait_has_its_own_end(void **state) {
    struct fixture f;
    struct execution a, b;
    fixture_init(&f, SMALL);
    BEGIN(&a, &f, "u", "int32[0]{}", "int64[0,3]{}", "int64[]{5}");
    test_host_advance(f.host, 300);
    BEGIN(&b, &f, "u", "int32[0]{}", "int64[0,3]{}", "int64[]{6}");
    test_host_advance(f.host, 200);
    end_failed(&a, STATUS_DEADLINE_EXCEEDED, "timeout window");
    test_host_advance(f.host, 299);
    assert_false(is_done(&b));
    test_host_advance(f.host, 1);
    assert_true(is_done(&b));
    end_failed(&b, STATUS_DEADLINE_EXCEEDED, "timeout window");
    fixture_fini(&f);
}

/* Rows for keys first … first + n - 1: the step's own key is the last. */
static void begin_many(struct execution *e, struct fixture *f, int first, int n) {
    struct str rows = STR_INIT, index = STR_INIT, id = STR_INIT;
    str_addf(&rows, "int32[%d]{", n);
    str_addf(&index, "int64[%d,3]{", n);
    for (int i = 0; i < n; i++) {
        str_addf(&rows, i > 0 ? ", %d" : "%d", first + i);
        str_addf(&index, i > 0 ? ", %d, %d, %d" : "%d, %d, %d", first + i, i, i + 1);
    }
    str_add(&rows, "}");
    str_add(&index, "}");
    str_addf(&id, "int64[]{%d}", first + n - 1);
    BEGIN(e, f, "u", str_text(&rows), str_text(&index), str_text(&id));
    str_fini(&rows);
    str_fini(&index);
    str_fini(&id);
}

static void test_oldest_rows_go(void **state) {
    struct fixture f;
    struct execution a, b;
    fixture_init(&f, SMALL);
    begin_many(&a, &f, 0, UNBATCH_MAX_KEPT + 1);
    end_failed(&a, STATUS_RESOURCE_EXHAUSTED, "65537 rows");
    begin_many(&a, &f, 0, UNBATCH_MAX_KEPT);
    end_ok(&a, "int32[1]{65535}"); /* and one less is kept */
    begin_many(&a, &f, 100000, 11);
    end_ok(&a, "int32[1]{100010}");
    BEGIN(&a, &f, "u", "int32[0]{}", "int64[0,3]{}", "int64[]{9}");
    BEGIN(&b, &f, "u", "int32[0]{}", "int64[0,3]{}", "int64[]{10}");
    end_ok(&b, "int32[1]{10}");
    assert_false(is_done(&a));
    test_host_advance(f.host, 500);
    end_failed(&a, STATUS_DEADLINE_EXCEEDED, "timeout window");
    fixture_fini(&f);
}

static void test_gradients_have_an_end(void **state) {
    static const int64_t life_us = (int64_t)UNBATCH_GRADIENT_LIFE_S * 1000000;
    struct fixture f;
    struct execution a, b;
    fixture_init(&f, SMALL);
    /* nobody ever comes for it */
    BEGIN(&b, &f, "g", "int32[0]{}", "int64[0,3]{}", "int32[1]{20}", "int64[]{5}");
    end_ok(&b, "int32[0]{}");
    BEGIN(&a, &f, "g", "int32[2]{0, 0}", "int64[2,3]{8, 0, 1, 6, 1, 2}", "int32[1]{10}",
          "int64[]{6}");
    BEGIN(&b, &f, "g", "int32[0]{}", "int64[0,3]{}", "int32[1]{20}", "int64[]{5}");
    end_failed(&b, STATUS_INVALID_ARGUMENT, "Two runs with the same batch key.");
    BEGIN(&b, &f, "g", "int32[2]{0, 0}", "int64[2,3]{9, 0, 1, 9, 1, 2}", "int32[1]{10}",
          "int64[]{9}");
    end_failed(&b, STATUS_INVALID_ARGUMENT, "batch_index has key 9 twice");
    test_host_advance(f.host, life_us - 1);
    assert_false(is_done(&a));
    test_host_advance(f.host, 1);
    end_failed(&a, STATUS_DEADLINE_EXCEEDED, "No step has brought the gradient of key 8");
    /* all keys are free again */
    BEGIN(&b, &f, "g", "int32[1]{0}", "int64[1,3]{5, 0, 1}", "int32[1]{30}", "int64[]{5}");
    end_ok(&b, "int32[1]{30}");
    BEGIN(&a, &f, "g", "int32[2]{0, 0}", "int64[2,3]{8, 0, 1, 6, 1, 2}", "int32[1]{10}",
          "int64[]{6}");
    assert_false(is_done(&a));
    BEGIN(&b, &f, "g", "int32[0]{}", "int64[0,3]{}", "int32[1]{40}", "int64[]{8}");
    end_ok(&b, "int32[0]{}");
    end_ok(&a, "int32[2]{40, 10}");
    fixture_fini(&f);
}

static void test_gradients_come_together(void **state) {
    struct fixture f;
    struct execution a, b, c;
    fixture_init(&f, SMALL);
    BEGIN(&a, &f, "g", "int32[2]{0, 0}", "int64[2,3]{5, 0, 1, 6, 1, 2}", "int32[1]{10}",
          "int64[]{6}");
    assert_false(is_done(&a));
    BEGIN(&c, &f, "g", "int32[2]{0, 0}", "int64[2,3]{5, 0, 1, 7, 1, 2}", "int32[1]{10}",
          "int64[]{7}");
    end_failed(&c, STATUS_INVALID_ARGUMENT, "Missing tensor wanted by more than one batch.");
    BEGIN(&b, &f, "g", "int32[0]{}", "int64[0,3]{}", "int32[1]{20}", "int64[]{5}");
    end_ok(&b, "int32[0]{}");
    end_ok(&a, "int32[2]{20, 10}");
    BEGIN(&a, &f, "g", "int32[2]{0, 0}", "int64[2,3]{5, 0, 1, 6, 1, 2}", "int32[1]{10}",
          "int64[]{6}");
    cancel(&a);
    end_failed(&a, STATUS_CANCELLED, "UnbatchGrad operation was cancelled");
    /* its key is free again */
    BEGIN(&a, &f, "g", "int32[1]{0}", "int64[1,3]{6, 0, 1}", "int32[1]{30}", "int64[]{6}");
    end_ok(&a, "int32[1]{30}");
    fixture_fini(&f);
}

/* ---- many at once ---- */

struct crowd {
    struct fixture *f;
    int seed;
};

static void *batch_and_cancel(void *arg) {
    const struct crowd *crowd = arg;
    unsigned random = (unsigned)crowd->seed;
    for (int i = 0; i < 300; i++) {
        struct execution e;
        BEGIN(&e, crowd->f, "f", "int32[1]{1}");
        if (rand_r(&random) % 3 == 0)
            cancel(&e);
        while (!is_done(&e))
            sched_yield();
        end(&e);
    }
    return NULL;
}

static void *turn_clock(void *arg) {
    struct crowd *crowd = arg;
    while (!atomic_load((_Atomic int *)&crowd->seed)) {
        test_host_advance(crowd->f->host, 500);
        sched_yield();
    }
    return NULL;
}

static void test_crowd(void **state) {
    struct fixture f;
    pthread_t threads[4], clock;
    struct crowd crowds[4], turner = {&f, 0};
    fixture_init(&f, "num_batch_threads=2, max_batch_size=3, batch_timeout_micros=1000, "
                     "max_enqueued_batches=1000");
    for (int i = 0; i < 4; i++) {
        crowds[i] = (struct crowd){&f, i + 1};
        pthread_create(&threads[i], NULL, batch_and_cancel, &crowds[i]);
    }
    pthread_create(&clock, NULL, turn_clock, &turner);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    atomic_store((_Atomic int *)&turner.seed, 1);
    pthread_join(clock, NULL);
    fixture_fini(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_batch_goes_at_once),
        cmocka_unit_test(test_time_closes_a_batch),
        cmocka_unit_test(test_what_does_not_fit_begins_the_next),
        cmocka_unit_test(test_too_many_batches_wait),
        cmocka_unit_test(test_cancelled_leaves_its_batch),
        cmocka_unit_test(test_function_gets_all_rows),
        cmocka_unit_test(test_functions_are_not_mixed),
        cmocka_unit_test(test_calls_wait_for_a_slot),
        cmocka_unit_test(test_cancelled_during_a_call),
        cmocka_unit_test(test_large_input_is_split),
        cmocka_unit_test(test_bounds_of_what_is_split),
        cmocka_unit_test(test_trims_down),
        cmocka_unit_test(test_sizes_that_no_batch_has),
        cmocka_unit_test(test_wrong_result),
        cmocka_unit_test(test_rows_find_their_steps),
        cmocka_unit_test(test_unbatch_gives_up),
        cmocka_unit_test(test_each_wait_has_its_own_end),
        cmocka_unit_test(test_oldest_rows_go),
        cmocka_unit_test(test_gradients_have_an_end),
        cmocka_unit_test(test_gradients_come_together),
        cmocka_unit_test(test_crowd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
