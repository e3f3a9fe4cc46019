/* Modes of cuda_steps: traced training steps, whose rows are printed for run_activities.py. With
 * MILLRACE_STEPS_TRACE=auto CUPTI tells the times, otherwise events do. */
#include "tests/cuda/steps.h"

#include <stdio.h>

#include "common/base/clock.h"

enum { N_WARM = 8, N_TRACED = 4, N_THREADS = 3, N_AT_ONCE = 12, SLACK_NS = 1000 };

static uint64_t replays(void) {
    uint64_t counts[N_DEVICE_COUNTS];
    devices[N_CPUS].ops->counts(&devices[N_CPUS], counts);
    return counts[DEVICE_REPLAYS];
}

/* Prints the device's rows in the order of the trace. Returns whether their times can be. */
static bool print_rows(const struct step_stats *stats, int64_t begin_ns) {
    const struct node_stats *all = NULL; /* the node's row, before those of its activities */
    int64_t now_ns = clock_now_ns();
    bool is_well = true;
    for (size_t i = 0; i < stats->n_nodes; i++) {
        const struct node_stats *row = &stats->nodes[i];
        const char *stream = row->stream ? strstr(row->stream, "GPU:0/stream:") : NULL;
        if (!row->stream)
            continue;
        bool is_row_well = stream && row->start_ns >= begin_ns - SLACK_NS &&
                           row->end_ns >= row->start_ns && row->end_ns <= now_ns;
        if (row->activity)
            is_row_well &= all && all->node == row->node && row->start_ns >= all->start_ns &&
                           row->end_ns <= all->end_ns && !strstr(stream, "stream:all");
        else
            all = row;
        printf("row %s %s %s %lld %lld%s\n", row->node->node->name,
               stream ? stream + strlen("GPU:0/") : "-", row->activity ? row->activity : "-",
               (long long)(row->start_ns - begin_ns), (long long)(row->end_ns - begin_ns),
               is_row_well ? "" : " wrong");
        is_well &= is_row_well;
    }
    return is_well;
}

static bool run_traced_step(const struct program *program, struct plan *plan) {
    struct run run;
    int64_t begin_ns = clock_now_ns();
    uint64_t before = replays();
    start_traced(&run, program, plan);
    struct status *st = end_plan(&run);
    printf("step of %s: %s, %llu replays\n", program->name, st ? status_message(st) : "ok",
           (unsigned long long)(replays() - before));
    bool is_well = !st && print_rows(run.execution.stats, begin_ns);
    status_unref(st);
    step_stats_free(run.execution.stats);
    run_clear(&run);
    return is_well;
}

static struct status *run_step(const struct program *program, struct plan *plan) {
    struct run run;
    start_plan(&run, program, plan);
    struct status *st = end_plan(&run);
    run_clear(&run);
    return st;
}

static bool train(const struct program *init, const struct program *program) {
    struct training training;
    bool is_well = true;
    struct status *st = training_begin(&training, init, program);
    for (int i = 0; i < N_WARM && !st; i++)
        st = run_step(program, training.plan);
    for (int i = 0; i < N_TRACED && !st; i++)
        is_well &= run_traced_step(program, training.plan);
    if (!st) /* and nothing is left of the traces */
        st = run_step(program, training.plan);
    if (st)
        printf("%s: %s\n", program->name, status_message(st));
    is_well &= !st;
    status_unref(st);
    training_end(&training);
    return is_well;
}

bool run_activities(void) { return train(&mlp_init, &mlp_step) & train(&net_init, &net_step); }

/* The same, with convolutions that no graph has. */
bool run_activities_left_out(void) {
    CHECK(driver.refuse("cudnnBackendExecute") == 0);
    return run_activities();
}

/* ---- several traced steps at once ---- */

/* Are the rows of all steps those of the first one? */
static bool trace_some(const struct program *init, const struct program *program) {
    struct training training;
    size_t n_expected = 0;
    bool is_well = true;
    struct status *st = training_begin(&training, init, program);
    for (int i = 0; i < N_AT_ONCE && !st; i++) {
        struct run run;
        int64_t begin_ns = clock_now_ns();
        size_t n_rows = 0;
        start_traced(&run, program, training.plan);
        st = end_plan(&run);
        const struct step_stats *stats = run.execution.stats;
        for (size_t k = 0; k < stats->n_nodes && !st; k++) {
            const struct node_stats *row = &stats->nodes[k];
            n_rows += row->stream && !row->activity;
            is_well &= !row->stream ||
                       (row->start_ns >= begin_ns - SLACK_NS && row->end_ns >= row->start_ns);
        }
        n_expected = i == 0 ? n_rows : n_expected;
        is_well &= st || (n_rows == n_expected && n_rows > 0);
        step_stats_free(run.execution.stats);
        run_clear(&run);
    }
    printf("at once: %s, %zu rows\n",
           st        ? status_message(st)
           : is_well ? "ok"
                     : "wrong rows",
           n_expected);
    is_well &= !st;
    status_unref(st);
    training_end(&training);
    return is_well;
}

static void *run_thread(void *arg) {
    bool *ret_is_well = arg;
    *ret_is_well = trace_some(&mlp_init, &mlp_step);
    return NULL;
}

bool run_activities_at_once(void) {
    pthread_t threads[N_THREADS];
    bool is_well[N_THREADS], are_well = true;
    for (int i = 0; i < N_THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, run_thread, &is_well[i]) == 0);
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        are_well &= is_well[i];
    }
    return are_well;
}

/* The device is lost while a traced step is under way: the step fails, and its trace is freed. */
bool run_lost_activities(void) {
    struct plan *plan = NULL;
    struct run run;
    struct status *st = make_plan(&programs[0], false, &plan);
    CHECK(!st);
    CHECK(driver.kill("cuLaunchKernel", 2) == 0);
    start_traced(&run, &programs[0], plan);
    st = end_plan(&run);
    bool has_failed = st != NULL;
    printf("lost: %s\n", st ? status_message(st) : "nothing failed");
    status_unref(st);
    step_stats_free(run.execution.stats);
    run_clear(&run);
    plan_unref(plan);
    return has_failed;
}
