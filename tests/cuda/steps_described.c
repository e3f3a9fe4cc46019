/* What steps wait for is described, as /stepz does, by a thread that nothing orders with them. */
#include "tests/cuda/steps.h"

#include <sched.h>
#include <stdio.h>

#include "common/base/str.h"

enum { N_STEPS = 100 };

struct describer {
    struct run *run;
    _Atomic bool has_begun, is_over;
};

static void *describe(void *arg) {
    struct describer *describer = arg;
    struct str waits = STR_INIT;
    do {
        str_clear(&waits);
        execution_describe_waits(&describer->run->execution, 4096, &waits);
        atomic_store_explicit(&describer->has_begun, true, memory_order_relaxed);
    } while (!atomic_load_explicit(&describer->is_over, memory_order_relaxed));
    str_fini(&waits);
    return NULL;
}

/* A step's device is held until the step is described, and its ends are described, too. */
bool run_described(void) {
    const struct program *program = &programs[0];
    struct plan *plan = plan_of(program);
    bool is_well = true;
    for (int i = 0; i < N_STEPS && is_well; i++) {
        struct run run;
        struct describer describer = {.run = &run};
        pthread_t thread;
        CHECK(driver.hold(1) == 0);
        start_plan(&run, program, plan);
        CHECK(pthread_create(&thread, NULL, describe, &describer) == 0);
        while (!atomic_load_explicit(&describer.has_begun, memory_order_relaxed))
            sched_yield();
        CHECK(driver.hold(0) == 0);
        ending_wait(&run.end);
        atomic_store_explicit(&describer.is_over, true, memory_order_relaxed);
        CHECK(pthread_join(thread, NULL) == 0);
        struct status *st = end_plan(&run);
        if (st)
            printf("%s: %s\n", program->name, status_message(st));
        is_well = !st;
        status_unref(st);
        run_clear(&run);
    }
    plan_unref(plan);
    return is_well;
}
