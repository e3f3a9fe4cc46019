/* A mode of cuda_steps: a traced step, whose times are those at which the device did the work. */
#include "tests/cuda/steps.h"

#include <stdio.h>

#include "common/base/clock.h"

enum { N_KERNELS = 4, ROUNDING_NS = 1000 };

/* Are the times of the device's rows after `begin_ns`, before now, and one after another? */
static bool check_rows(const struct step_stats *stats, int64_t begin_ns) {
    int64_t last_ns = begin_ns;
    int n_kernels = 0;
    bool is_well = true;
    for (size_t i = 0; i < stats->n_nodes; i++) {
        const struct node_stats *row = &stats->nodes[i];
        bool is_feed = row->node->kind == PLAN_COPY && stats->plan->copies[row->node->aux].dst;
        if (is_feed)
            is_well &= row->start_ns >= begin_ns - ROUNDING_NS && row->end_ns >= row->start_ns;
        if (!row->stream || row->activity)
            continue;
        printf("%s on %s: %.1f us after the release, for %.1f us\n", row->node->node->name,
               row->stream, (double)(row->start_ns - begin_ns) / 1e3,
               (double)(row->end_ns - row->start_ns) / 1e3);
        is_well &= row->start_ns >= last_ns - ROUNDING_NS && row->end_ns >= row->start_ns &&
                   row->end_ns <= clock_now_ns() && strstr(row->stream, "GPU:0/stream:all");
        last_ns = row->end_ns;
        n_kernels++;
    }
    return is_well && n_kernels == N_KERNELS;
}

/* The device is held until the host has enqueued everything, so no work has begun before. */
bool run_traced(void) {
    const struct program *program = &programs[0];
    struct plan *plan = NULL;
    struct run run;
    struct status *st = make_plan(program, false, &plan);
    CHECK(!st);
    unsigned long n_launched = driver.count("cuLaunchKernel"),
                  n_fetched = driver.count("cuMemcpyDtoHAsync");
    CHECK(driver.hold(1) == 0);
    start_traced(&run, program, plan);
    await_calls("cuLaunchKernel", n_launched + N_KERNELS - 1); /* the zeros are no launch */
    await_calls("cuMemcpyDtoHAsync", n_fetched + 1);
    int64_t release_ns = clock_now_ns();
    CHECK(driver.hold(0) == 0);
    st = end_plan(&run);
    bool is_well = !st && check_rows(run.execution.stats, release_ns);
    printf("traced: %s\n", st ? status_message(st) : is_well ? "ok" : "wrong times");
    status_unref(st);
    step_stats_free(run.execution.stats);
    run_clear(&run);
    plan_unref(plan);
    return is_well;
}
