/* Kernels that run long stop when their step is cancelled, unless they have effects. */
#include "kernels/kernel.h"
#include "tests/unit/worker/text_run.h"

/* A loop of a million ranges of about a millisecond each, by their costs. The first one cancels the
 * step. */
static struct fixture *to_cancel;
static _Atomic int n_ranges;

static void cancel_first(void *arg, int64_t begin, int64_t end) {
    (void)arg, (void)begin, (void)end;
    if (atomic_fetch_add(&n_ranges, 1) > 0)
        return;
    struct status *why = status_new(STATUS_CANCELLED, "not wanted");
    execution_cancel(&to_cancel->run, why);
    status_unref(why);
}

static enum kernel_result run_long(struct kernel_ctx *ctx) {
    pool_parallel_for(ctx->pool, 100000, 1e7, cancel_first, NULL);
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

static _Atomic int n_consumed;

static enum kernel_result consume(struct kernel_ctx *ctx) {
    n_consumed++;
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

static const struct kernel_def rows[] = {
    {.op = "Abs", .compute = run_long},
    {.op = "Square", .compute = run_long, .flags = KERNEL_STATEFUL},
    {.op = "Neg", .compute = consume},
};
static const struct kernel_list list = {rows, ARRAY_LEN(rows)};
static const struct cost_row cost_rows[] = {
    {.op = "Abs", .ns_per_call = 1e9f, .ns_per_element = 1},
    {.op = "Square", .ns_per_call = 1e9f, .ns_per_element = 1},
};
static const struct cost_list costs = {cost_rows, ARRAY_LEN(cost_rows)};

static int setup(void **state) {
    text_runs_begin(&list, &costs);
    return 0;
}

static void run(const char *op) {
    struct fixture f;
    struct str text = STR_INIT;
    str_addf(&text,
             "c = Const() {dtype=float, value=float[2]{1, 2}}\n"
             "long = %s(c) {T=float}\n"
             "next = Neg(long) {T=float}\n"
             "fetch = _MrFetch(next) {T=float, index=0}\n",
             op);
    open_fixture(&f, str_text(&text));
    to_cancel = &f;
    n_ranges = n_consumed = 0;
    start(&f);
    await(&f);
    assert_int_equal(status_code(f.end.status), STATUS_CANCELLED);
    assert_int_equal(n_consumed, 0); /* nobody sees what is incomplete */
    close_fixture(&f);
    str_fini(&text);
}

static void a_long_kernel_without_effects_stops(void **state) {
    run("Abs");
    assert_true(n_ranges <= 4); /* one for each thread, and one that had just begun */
}

static void a_kernel_with_effects_runs_to_its_end(void **state) {
    run("Square");
    assert_true(n_ranges > 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_kernel_without_effects_stops),
        cmocka_unit_test(a_kernel_with_effects_runs_to_its_end),
    };
    return cmocka_run_group_tests(tests, setup, text_runs_end);
}
