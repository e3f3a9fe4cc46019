/* Runs of the executor from text graphs on a device TEST of one task, with the CPU's kernels and
 * the test's own. */
#ifndef MILLRACE_TESTS_UNIT_WORKER_TEXT_RUN_H
#define MILLRACE_TESTS_UNIT_WORKER_TEXT_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/graph/graph_text.h"
#include "kernels/cost.h"
#include "tests/unit/worker/ending.h"
#include "worker/container.h"
#include "worker/executor/executor.h"

static const char DEVICE[] = "/job:worker/replica:0/task:0/device:TEST:0";
static struct device device;
static struct pool *pool;
static struct container_table *containers;

struct fixture {
    struct plan *plan;
    struct execution run;
    struct tensor fetches[4] __attribute__((aligned(64)));
    struct tensor feeds[4] __attribute__((aligned(64)));
    struct ending end;
};

static inline void on_done(struct execution *run, struct status *status_take) {
    ending_tell(&CONTAINER_OF(run, struct fixture, run)->end, status_take);
}

static inline struct status *make_plan(const char *text, struct plan **ret) {
    struct graph graph;
    struct plan_options options = {.devices = &device, .n_devices = 1, .host = &executor_host};
    graph_init(&graph);
    struct status *st = graph_parse(text, &graph);
    for (int i = 0; !st && i < graph.n_nodes; i++)
        graph.nodes[i]->device = DEVICE;
    if (!st)
        st = plan_new(&graph, &options, ret);
    graph_fini(&graph);
    return st;
}

static inline void start(struct fixture *f) {
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

static inline void await(struct fixture *f) {
    ending_wait(&f->end);
    assert_int_equal(f->end.n_done, 1);
    execution_fini(&f->run);
}

static inline void open_fixture(struct fixture *f, const char *text) {
    *f = (struct fixture){.end = ENDING_INIT};
    struct status *st = make_plan(text, &f->plan);
    if (st)
        fail_msg("%s", status_message(st));
}

static inline void close_fixture(struct fixture *f) {
    for (int i = 0; i < 4; i++) {
        tensor_clear(&f->fetches[i]);
        tensor_clear(&f->feeds[i]);
    }
    status_unref(f->end.status);
    plan_unref(f->plan);
}

static inline void expect_fetch(const struct fixture *f, int i, const char *text) {
    struct str printed = STR_INIT;
    if (f->end.status)
        fail_msg("%s", status_message(f->end.status));
    if (f->fetches[i].storage == TENSOR_DEAD)
        str_add(&printed, "dead");
    else
        tensor_print(&f->fetches[i], 16, &printed);
    assert_string_equal(str_text(&printed), text);
    str_fini(&printed);
}

/* Runs the text several times on one plan, since a recycled execution must behave like a new one,
 * and compares fetch 0. */
static inline void expect_result(const char *text, const char *result) {
    struct fixture f;
    open_fixture(&f, text);
    for (int i = 0; i < 3; i++) {
        start(&f);
        await(&f);
        expect_fetch(&f, 0, result);
        tensor_clear(&f.fetches[0]);
    }
    close_fixture(&f);
}

static inline void expect_failure(const char *text, enum status_code code, const char *words) {
    struct fixture f;
    open_fixture(&f, text);
    for (int i = 0; i < 3; i++) {
        start(&f);
        await(&f);
        assert_int_equal(status_code(f.end.status), code);
        if (!strstr(status_message(f.end.status), words))
            fail_msg("'%s' lacks '%s'", status_message(f.end.status), words);
        assert_int_equal(f.fetches[0].storage, TENSOR_NONE);
        status_unref(f.end.status);
        f.end.status = NULL;
    }
    close_fixture(&f);
}

/* Before the first test; `own` rows and costs come before the CPU's. */
static inline void text_runs_begin(const struct kernel_list *own,
                                   const struct cost_list *own_costs) {
    /* the registry keeps it */
    const struct kernel_list **lists = xcalloc(n_cpu_kernel_lists + 1, sizeof *lists);
    lists[0] = own;
    for (size_t i = 0; i < n_cpu_kernel_lists; i++)
        lists[i + 1] = cpu_kernel_lists[i];
    kernel_add_device_type("TEST", lists, n_cpu_kernel_lists + 1);
    cost_add_device_type("TEST", (const struct cost_list *[]){own_costs, &cpu_costs}, 2);
    status_unref(device_name_parse(span_of(DEVICE), &device.name));
    device.full_name = (char *)DEVICE;
    device.type = "TEST";
    device.allocator = allocator_host();
    pool = pool_new(2);
    containers = container_table_new();
}

static inline int text_runs_end(void **state) {
    pool_free(pool);
    container_table_free(containers);
    return 0;
}

#endif
