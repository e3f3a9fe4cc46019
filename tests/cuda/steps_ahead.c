/* Modes of cuda_steps: what calls a warm step makes, a step that is far ahead of its device, and
 * one that is cancelled while the size of an output is on its way. */
#include "tests/cuda/steps.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- the calls of a warm step ---- */

enum {
    N_CALLS = 0
#define DRIVER_CALL(name, symbol, arguments) +1
#include "kernels/cuda/driver_calls.inc"
};

static const struct call_row {
    const char *name;
    int n; /* of the fifth step of the first program; a wait may find that all has ended */
} warm_calls[] = {
    {"cuGraphLaunch", 1}, /* the feed, the kernels and the fetch */
    {"cuEventRecord", 2},
    {"cuEventSynchronize", 2},
};

static int warm_calls_of(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(warm_calls); i++)
        if (strcmp(warm_calls[i].name, name) == 0)
            return warm_calls[i].n;
    return 0;
}

static void count_calls(unsigned long counts[N_CALLS]) {
    int i = 0;
#define DRIVER_CALL(name, symbol, arguments) counts[i++] = driver.count(#name);
#include "kernels/cuda/driver_calls.inc"
}

static void *plan_once(void *arg) {
    struct plan *plan;
    struct status *st = make_plan(&programs[0], false, &plan);
    CHECK(!st);
    plan_unref(plan);
    return NULL;
}

/* Functions are found once, also for plans of other threads that have ended. */
static bool finds_functions_once(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, plan_once, NULL) == 0);
    pthread_join(thread, NULL);
    unsigned long n = driver.count("cuLibraryGetKernel");
    plan_once(NULL);
    unsigned long n_again = driver.count("cuLibraryGetKernel") - n;
    printf("functions that are looked for again: %lu\n", n_again);
    return n_again == 0;
}

bool run_warm(void) {
    static const char *const call_names[] = {
#define DRIVER_CALL(name, symbol, arguments) #name,
#include "kernels/cuda/driver_calls.inc"
    };
    unsigned long before[N_CALLS], after[N_CALLS];
    struct plan *plan = NULL;
    bool is_well = finds_functions_once();
    for (int i = 0; i < 5; i++) {
        count_calls(before);
        struct status *st = attempt(&programs[0], &plan, NULL);
        CHECK(!st);
        count_calls(after);
    }
    plan_unref(plan);
    for (int i = 0; i < N_CALLS; i++) {
        unsigned long n = after[i] - before[i], most = (unsigned long)warm_calls_of(call_names[i]);
        if (n > most || (n < most && strncmp(call_names[i], "cuEvent", 7) != 0)) {
            printf("a warm step calls %s %lu times, not %lu\n", call_names[i], n, most);
            is_well = false;
        }
    }
    return is_well;
}

/* ---- a step that is far ahead ---- */

enum { N_CHAIN = 1500, MOST_AHEAD = 600 };

static char *chain_text(void) {
    struct str text = STR_INIT;
    str_add(&text, FEED "a0 = Mul(x, x) {T=float} @G\n");
    for (int i = 1; i <= N_CHAIN; i++)
        str_addf(&text, "a%d = AddV2(a%d, x) {T=float} @G\n", i, i - 1);
    str_addf(&text, "y = _MrFetch(a%d) {T=float, index=0}\n", N_CHAIN);
    return str_detach(&text);
}

/* The device is held; returns when the step has paused, which shows as a wait for an event. */
static void start_ahead(struct run *run, const struct program *program, struct plan *plan) {
    unsigned long n_waits = driver.count("cuEventSynchronize");
    CHECK(driver.hold(1) == 0);
    start_plan(run, program, plan);
    while (driver.count("cuEventSynchronize") == n_waits)
        sched_yield();
}

#define GPU "/job:worker/replica:0/task:0/device:GPU:0"

/* Does /stepz say what the step waits for? */
static bool names_wait(struct run *run, const char *expected) {
    struct str waits = STR_INIT;
    execution_describe_waits(&run->execution, 1000, &waits);
    bool is_named = strstr(str_text(&waits), expected) != NULL;
    if (!is_named)
        printf("the step waits for: %s\n", str_text(&waits));
    str_fini(&waits);
    return is_named;
}

/* Where a step pauses does not end its segments: all of it is replayed, in as many graphs as it has
 * 256 parts. The feed is too large to be one of them, so the pause is inside of a segment. */
static bool pauses_part_nothing(const char *text) {
    enum { N_STEPS = 6, N_PARTS = N_CHAIN + 2, N_GRAPHS = (N_PARTS + 255) / 256 };
    const struct program program = {"parted chain", {512}, 1, text};
    uint64_t before[N_DEVICE_COUNTS], after[N_DEVICE_COUNTS];
    struct plan *plan = NULL;
    struct run run;
    struct status *st = make_plan(&program, false, &plan);
    CHECK(!st);
    bool is_well = true;
    for (int i = 0; i < N_STEPS; i++) {
        devices[N_CPUS].ops->counts(&devices[N_CPUS], before);
        start_ahead(&run, &program, plan);
        CHECK(driver.hold(0) == 0);
        st = end_plan(&run);
        is_well &= !st && *(const float *)tensor_cdata(&run.fetches[0]) == 16 - 4 * N_CHAIN;
        status_unref(st);
        run_clear(&run);
        devices[N_CPUS].ops->counts(&devices[N_CPUS], after);
    }
    uint64_t n_replays = after[DEVICE_REPLAYS] - before[DEVICE_REPLAYS],
             n_replayed = after[DEVICE_WORK_REPLAYED] - before[DEVICE_WORK_REPLAYED],
             n_parts = after[DEVICE_WORK] - before[DEVICE_WORK];
    printf("parted chain: %llu of %llu parts in %llu replays\n", (unsigned long long)n_replayed,
           (unsigned long long)n_parts, (unsigned long long)n_replays);
    plan_unref(plan);
    return is_well && n_replays == N_GRAPHS && n_parts == N_PARTS && n_replayed == n_parts;
}

bool run_ahead(void) {
    char *text = chain_text();
    const struct program program = {"chain", {64}, 1, text};
    struct plan *plan = NULL;
    struct run run;
    struct status *st = make_plan(&program, false, &plan);
    CHECK(!st);
    unsigned long n_before = driver.count("cuLaunchKernel");
    start_ahead(&run, &program, plan);
    unsigned long n_ahead = driver.count("cuLaunchKernel") - n_before;
    bool is_well = n_ahead < MOST_AHEAD && run_program(&on_cpu) && !run.end.is_done;
    is_well &= names_wait(&run, "waits for " GPU " to catch up for ");
    CHECK(driver.hold(0) == 0);
    st = end_plan(&run);
    printf("chain: %s, %lu launches ahead\n", st ? status_message(st) : "ok", n_ahead);
    is_well &= !st;
    float first = st ? 0 : *(const float *)tensor_cdata(&run.fetches[0]);
    is_well &= first == 16 - 4 * N_CHAIN;
    run_clear(&run);
    status_unref(st);

    n_before = driver.count("cuLaunchKernel");
    start_ahead(&run, &program, plan);
    struct status *why = status_new(STATUS_CANCELLED, "not wanted");
    execution_cancel(&run.execution, why);
    status_unref(why);
    CHECK(driver.hold(0) == 0);
    st = end_plan(&run);
    n_ahead = driver.count("cuLaunchKernel") - n_before;
    printf("cancelled: %s, %lu launches\n", st ? status_message(st) : "ok", n_ahead);
    is_well &= status_code(st) == STATUS_CANCELLED && n_ahead < MOST_AHEAD;
    status_unref(st);
    run_clear(&run);
    plan_unref(plan);
    is_well &= pauses_part_nothing(text);
    free(text);
    return is_well;
}

/* ---- an output whose size is on its way ---- */

/* A step is cancelled while the size of an output is on its way to the host. */
bool run_cancelled_size(void) {
    static const struct program program = {
        "size", {64}, 1, FEED "w = Where(x) {T=float} @G\ny = _MrFetch(w) {T=int64, index=0}\n"};
    struct plan *plan = NULL;
    struct run run;
    struct status *st = make_plan(&program, false, &plan);
    CHECK(!st);
    unsigned long n = driver.count("cuMemcpyDtoHAsync");
    CHECK(driver.hold(1) == 0);
    start_plan(&run, &program, plan);
    await_calls("cuMemcpyDtoHAsync", n + 1);
    struct status *why = status_new(STATUS_CANCELLED, "not wanted");
    execution_cancel(&run.execution, why);
    status_unref(why);
    CHECK(driver.hold(0) == 0);
    st = end_plan(&run);
    printf("cancelled: %s\n", st ? status_message(st) : "ok");
    bool is_well = status_code(st) == STATUS_CANCELLED;
    status_unref(st);
    run_clear(&run);
    plan_unref(plan);
    return is_well;
}
