/* Modes of cuda_steps: a call of the driver or of a library does what a thread that captures may
 * not do, so the capture fails. The step has enqueued its work before, and the device works. And
 * several threads capture and replay in turn. */
#include "tests/cuda/steps.h"

#include <stdio.h>

static const struct refusal {
    const char *call;
    const struct program *init, *step;
} refusals[] = {
    {"cuLaunchKernel", &mlp_init, &mlp_step},
    {"cublasLtMatmul", &mlp_init, &wide_step},
    {"cudnnBackendExecute", &net_init, &net_step},
};

/* The convolutions that were in the capture end segments from then on, and what is between them is
 * captured. */
static bool convolutions_are_left_out(void) {
    bool is_well = counted_last(DEVICE_ENDS_LIBRARY) > 0 && counted_last(DEVICE_WORK_REPLAYED) > 0;
    if (!is_well)
        printf("%llu segments end at a convolution, %llu parts are replayed\n",
               (unsigned long long)counted_last(DEVICE_ENDS_LIBRARY),
               (unsigned long long)counted_last(DEVICE_WORK_REPLAYED));
    return is_well;
}

static bool train_with_refusal(const struct refusal *refusal) {
    uint64_t expected[N_TRAINED], hashes[N_TRAINED];
    bool is_well = train_hashed(refusal->init, refusal->step, true, expected) == 0;
    uint64_t n_failed = counted(DEVICE_FAILED);
    CHECK(driver.refuse(refusal->call) == 0);
    is_well &= train_hashed(refusal->init, refusal->step, false, hashes) == 0;
    is_well &= hashes_are_equal(refusal->call, expected, hashes);
    is_well &= counted(DEVICE_FAILED) == n_failed + 1;
    is_well &= !device_failure(&devices[N_CPUS]);
    if (refusal->step == &net_step)
        is_well &= convolutions_are_left_out();
    printf("%s within a capture: %s\n", refusal->call, is_well ? "ok" : "wrong");
    return is_well;
}

bool run_refused_captures(void) {
    bool is_well = true;
    for (size_t i = 0; i < ARRAY_LEN(refusals); i++)
        is_well &= train_with_refusal(&refusals[i]);
    return is_well;
}

/* ---- several threads ---- */

struct learner {
    const struct program *init, *step;
    uint64_t expected[N_TRAINED];
    bool is_well;
    pthread_t thread;
};

static void *learn(void *arg) {
    enum { N_TIMES = 3 };
    struct learner *learner = arg;
    uint64_t hashes[N_TRAINED];
    learner->is_well = true;
    for (int i = 0; i < N_TIMES; i++)
        learner->is_well &= train_hashed(learner->init, learner->step, false, hashes) == 0 &&
                            hashes_are_equal(learner->step->name, learner->expected, hashes);
    return NULL;
}

/* Their steps part each other's segments, and replace each other's places in memory. */
bool run_segments_at_once(void) {
    struct learner learners[] = {
        {&mlp_init, &mlp_step}, {&net_init, &net_step}, {&mlp_init, &mlp_step}};
    bool is_well = true;
    for (size_t i = 0; i < ARRAY_LEN(learners); i++)
        is_well &=
            train_hashed(learners[i].init, learners[i].step, true, learners[i].expected) == 0;
    for (size_t i = 0; i < ARRAY_LEN(learners); i++)
        CHECK(pthread_create(&learners[i].thread, NULL, learn, &learners[i]) == 0);
    for (size_t i = 0; i < ARRAY_LEN(learners); i++) {
        pthread_join(learners[i].thread, NULL);
        is_well &= learners[i].is_well;
    }
    printf("at once: %s, %llu replays, %llu captures, %llu segments ended at another step\n",
           is_well ? "ok" : "wrong", (unsigned long long)counted(DEVICE_REPLAYS),
           (unsigned long long)counted(DEVICE_CAPTURES),
           (unsigned long long)counted(DEVICE_ENDS_OTHER_STEP));
    return is_well;
}
