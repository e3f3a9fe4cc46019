/* Mode of cuda_steps: a step gives up its thread while its work is held back for a graph, and other
 * tasks come first. The device gets the work before they run.
 *
 *   step     a1 … a40 held back │ e: maps memory │ a41 … held back ─ end of the slice
 *   thread 0                      the call hangs for a slice         second task ─ the step
 *   thread 1                      first task, which does not end */
#include "tests/cuda/steps.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/base/pool.h"

enum {
    N_CHAIN = 200,
    N_BEFORE = 40,
    SMALL = 16,
    LARGE = 9000000, /* floats: more than is mapped */
    N_WARM = 5,      /* the chain is replayed then */
};
static const int64_t MORE_THAN_A_SLICE_NS = 5000000;

static char *text_of(void) {
    struct str text = STR_INIT;
    str_add(&text, FEED "n = _MrFeed() {T=float, index=1}\n"
                        "s = Shape(n) {T=float, out_type=int32} @C\n"
                        "a0 = Mul(x, x, ^s) {T=float} @G\n");
    for (int i = 1; i <= N_CHAIN; i++)
        str_addf(&text, "a%d = AddV2(a%d, x%s) {T=float} @G\n", i, i - 1,
                 i == N_BEFORE + 1 ? ", ^e" : "");
    str_addf(&text, "e = Empty(s, ^a%d) {dtype=float} @G\n", N_BEFORE);
    str_addf(&text, "y = _MrFetch(a%d) {T=float, index=0}\n", N_CHAIN);
    return str_detach(&text);
}

/* Starts a step on a thread of the pool, where steps have slices. */
struct starter {
    struct pool_task task;
    struct run run;
    const struct program *program;
    struct plan *plan;
    _Atomic bool has_started;
};

static void on_start(struct pool_task *task) {
    struct starter *starter = CONTAINER_OF(task, struct starter, task);
    start_plan(&starter->run, starter->program, starter->plan);
    atomic_store(&starter->has_started, true);
}

static void start(struct starter *starter, const struct program *program, struct plan *plan) {
    *starter = (struct starter){.task.run = on_start, .program = program, .plan = plan};
    pool_submit(pool, &starter->task);
}

static bool ends_well(struct starter *starter) {
    while (!atomic_load(&starter->has_started))
        sched_yield();
    struct status *st = end_plan(&starter->run);
    float first = st ? 0 : *(const float *)tensor_cdata(&starter->run.fetches[0]);
    bool is_well = !st && first == 16 - 4 * N_CHAIN;
    printf("parted: %s, the first value is %.1f\n", st ? status_message(st) : "ok", (double)first);
    status_unref(st);
    run_clear(&starter->run);
    return is_well;
}

/* Parts of the chain, and those of them that the driver has. */
struct progress {
    uint64_t n_parts, n_given;
};

static struct progress progress_now(void) {
    return (struct progress){counted(DEVICE_WORK),
                             counted(DEVICE_WORK_REPLAYED) + driver.count("cuLaunchKernel")};
}

struct other {
    struct pool_task task;
    struct progress progress;
    _Atomic bool has_begun, may_end;
};

static _Atomic int n_others; /* that have not ended, and so may read their struct */

static void on_other(struct pool_task *task) {
    struct other *other = CONTAINER_OF(task, struct other, task);
    other->progress = progress_now();
    atomic_store(&other->has_begun, true);
    while (!atomic_load(&other->may_end))
        sched_yield();
    atomic_fetch_sub(&n_others, 1);
}

static void await_begun(const struct other *other) {
    while (!atomic_load(&other->has_begun))
        sched_yield();
}

static void pass_a_slice(void) {
    int64_t until_ns = clock_now_ns() + MORE_THAN_A_SLICE_NS;
    while (clock_now_ns() < until_ns)
        sched_yield();
}

/* What has become of a step when a task of others runs in its middle. */
static struct progress progress_before_others(const struct program *program, struct plan *plan,
                                              bool *ret_is_well) {
    struct starter step;
    struct other others[2] = {{.task.run = on_other}, {.task.run = on_other}};
    struct progress before = progress_now(), *then = &others[1].progress;
    unsigned long n_calls = driver.count("cuMemCreate");
    CHECK(driver.block("cuMemCreate", 1) == 0);
    start(&step, program, plan);
    await_calls("cuMemCreate", n_calls + 1);
    atomic_store(&n_others, (int)ARRAY_LEN(others));
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        pool_submit(pool, &others[i].task);
    await_begun(&others[0]);
    pass_a_slice();
    CHECK(driver.block("cuMemCreate", 0) == 0);
    await_begun(&others[1]);
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        atomic_store(&others[i].may_end, true);
    while (atomic_load(&n_others) > 0)
        sched_yield();
    *ret_is_well = ends_well(&step);
    return (struct progress){then->n_parts - before.n_parts, then->n_given - before.n_given};
}

/* The chain is replayed in the last of these steps. */
static bool is_replayed(const struct program *program, struct plan *plan) {
    struct starter warm;
    struct progress before = {0};
    uint64_t n_replayed = 0;
    bool is_well = true;
    for (int i = 0; i < N_WARM; i++) {
        before = progress_now();
        n_replayed = counted(DEVICE_WORK_REPLAYED);
        start(&warm, program, plan);
        is_well &= ends_well(&warm);
    }
    uint64_t n_parts = progress_now().n_parts - before.n_parts;
    n_replayed = counted(DEVICE_WORK_REPLAYED) - n_replayed;
    printf("parted: %llu of %llu parts are replayed\n", (unsigned long long)n_replayed,
           (unsigned long long)n_parts);
    return is_well && n_replayed == n_parts;
}

bool run_parted(void) {
    char *text = text_of();
    const struct program program = {"parted", {64, SMALL}, 1, text},
                         larger = {"parted", {64, LARGE}, 1, text};
    struct plan *plan = plan_of(&program);
    struct progress found = {0};
    bool is_right = false, is_well = is_replayed(&program, plan);
    if (is_well) /* otherwise the step may fail before it does what is waited for */
        found = progress_before_others(&larger, plan, &is_right);
    printf("parted: of %llu parts the driver has %llu while other tasks run\n",
           (unsigned long long)found.n_parts, (unsigned long long)found.n_given);
    plan_unref(plan);
    free(text);
    return is_well && is_right && found.n_parts > N_BEFORE && found.n_parts < N_CHAIN &&
           found.n_given == found.n_parts;
}
