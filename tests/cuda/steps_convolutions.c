/* Modes of cuda_steps: how a convolution finds its engine. */
#include "tests/cuda/steps.h"

#include <stdio.h>

/* A convolution with 4 channels out, of which the best engine wants a workspace. */
#define CONVOLUTION(size, after)                                                            \
    FEED "s = Const() {dtype=int32, value=int32[4]{1, " size ", 8, 1}} @C\n"                \
         "m = Reshape(x, s) {T=float, Tshape=int32} @G\n"                                   \
         "f = Const() {dtype=float, value=float[2,3,1,4]{2, …}} @G\n"                     \
         "c = Conv2D(m, f" after ") {T=float, strides=[1, 1, 1, 1], padding=\"SAME\"} @G\n" \
         "y = _MrFetch(c) {T=float, index=0}\n"

static const struct program plain = {"convolution", {64}, 1, CONVOLUTION("8", "")};
static const struct program larger = {"larger", {128}, 1, CONVOLUTION("16", "")};
static const struct program another = {"another", {192}, 1, CONVOLUTION("24", "")};

/* 64 of 96 MiB are held until the convolution is enqueued. */
static const struct program beside_large = {
    "beside a large value",
    {64},
    1,
    CONVOLUTION("8", ", ^large") "n = Const() {dtype=int32, value=int32[1]{16777216}} @C\n"
                                 "large = Empty(n) {dtype=float} @G\n"
                                 "r = Shape(large, ^c) {T=float} @G\n"
                                 "z = _MrFetch(r) {T=int32, index=1}\n"};

/* The best engine wants more than is left, and then more than the device's limit. */
bool run_workspace(void) {
    driver.set_workspace(INT64_C(64) << 20);
    bool is_well = run_program(&beside_large);
    driver.set_workspace(INT64_C(200) << 20);
    is_well &= run_program(&larger);
    driver.set_workspace(0);
    return is_well;
}

static struct run planned;

static void *start_planned(void *arg) {
    start_plan(&planned, &plain, arg); /* this thread makes the plan of the convolution, too */
    return NULL;
}

/* cuDNN takes its time to make a plan, and other steps run meanwhile. Their work is captured, which
 * looks for cuDNN's handle. */
bool run_planning(void) {
    struct plan *plan = NULL;
    pthread_t thread;
    uint64_t hashes[N_TRAINED];
    struct status *st = make_plan(&plain, false, &plan);
    CHECK(!st);
    unsigned long n = driver.count("cudnnBackendFinalize");
    CHECK(driver.block("cudnnBackendFinalize", 1) == 0);
    CHECK(pthread_create(&thread, NULL, start_planned, plan) == 0);
    await_calls("cudnnBackendFinalize", n + 1);
    bool is_well = run_program(&programs[0]);
    is_well &=
        train_hashed(&mlp_init, &mlp_step, false, hashes) == 0 && counted(DEVICE_CAPTURES) > 0;
    CHECK(driver.block("cudnnBackendFinalize", 0) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    st = end_plan(&planned);
    printf("convolution: %s\n", st ? status_message(st) : "ok");
    is_well &= !st;
    status_unref(st);
    run_clear(&planned);
    plan_unref(plan);
    return is_well;
}

/* The nth descriptor of a new convolution cannot be finalised. */
static bool run_failing(const struct program *program, unsigned long nth) {
    struct plan *plan = NULL;
    unsigned long n = driver.count("cudnnBackendFinalize");
    CHECK(driver.fail("cudnnBackendFinalize", nth, CUDA_ERROR_UNKNOWN) == 0);
    struct status *st = attempt(program, &plan, NULL);
    printf("%s: %s\n", program->name, st ? status_message(st) : "ok");
    bool is_well = !st && driver.count("cudnnBackendFinalize") > n + nth;
    status_unref(st);
    plan_unref(plan);
    return is_well && run_program(program);
}

/* A step that repeats another one makes one call of cuDNN for its convolution: the one that runs
 * it. */
static bool run_again(const struct program *program) {
    static const char *const others[] = {"cudnnBackendCreateDescriptor", "cudnnBackendSetAttribute",
                                         "cudnnBackendFinalize", "cudnnBackendDestroyDescriptor"};
    unsigned long before[ARRAY_LEN(others)], n = 0;
    bool is_well = run_program(program);
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        before[i] = driver.count(others[i]);
    unsigned long n_run = driver.count("cudnnBackendExecute");
    is_well &= run_program(program);
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        n += driver.count(others[i]) - before[i];
    n_run = driver.count("cudnnBackendExecute") - n_run;
    printf("repeated: %lu convolutions, %lu other calls of cuDNN\n", n_run, n);
    return is_well && n_run > 0 && n == 0;
}

/* The heuristics' first mode, or the plan of the best engine, cannot be finalised, so the next
 * engine computes the same. */
bool run_engines(void) {
    enum { FIRST_MODE = 7, FIRST_PLAN }; /* after three tensors, window, operation and graph */
    bool is_well = run_failing(&another, FIRST_PLAN);
    return is_well && run_failing(&larger, FIRST_MODE) && run_again(&plain);
}

/* ---- SyncDevice ---- */

static const struct program reset_flag = {
    "reset",
    {0},
    1,
    "v = VariableV2() {dtype=float, shape=[], shared_name=\"flag\"} @C\n"
    "o = Const() {dtype=float, value=float[]{0}} @C\n"
    "a = Assign(v, o) {T=float} @C\n"
    "y = _MrFetch(a) {T=float, index=0}\n"};
static const struct program read_flag = {
    "read",
    {0},
    1,
    "v = VariableV2() {dtype=float, shape=[], shared_name=\"flag\"} @C\n"
    "r = Identity(v) {T=float} @C\n"
    "y = _MrFetch(r) {T=float, index=0}\n"};
static const struct program set_flag = {
    "set once the device has ended",
    {64},
    1,
    FEED "a = Mul(x, x) {T=float} @G\n"
         "s = SyncDevice(^a) @G\n"
         "v = VariableV2() {dtype=float, shape=[], shared_name=\"flag\"} @C\n"
         "o = Const(^s) {dtype=float, value=float[]{1}} @C\n"
         "b = Assign(v, o) {T=float} @C\n"
         "y = _MrFetch(b) {T=float, index=0}\n"};

static float run_on_cpu(const struct program *program) {
    struct plan *plan = NULL;
    struct run run;
    struct status *st = make_plan(program, true, &plan);
    CHECK(!st);
    start_plan(&run, program, plan);
    st = end_plan(&run);
    CHECK(!st);
    float value = *(const float *)tensor_cdata(&run.fetches[0]);
    run_clear(&run);
    plan_unref(plan);
    return value;
}

/* The device is held. Once a thread waits for it, the flag must not be set: without SyncDevice's
 * wait, the thread waits at the end of the step, after the flag was set. */
bool run_synced(void) {
    struct plan *plan = NULL;
    struct run run;
    bool is_well = run_on_cpu(&reset_flag) == 0;
    struct status *st = make_plan(&set_flag, false, &plan);
    CHECK(!st);
    unsigned long n = driver.count("cuEventSynchronize");
    CHECK(driver.hold(1) == 0);
    start_plan(&run, &set_flag, plan);
    await_calls("cuEventSynchronize", n + 1);
    float held = run_on_cpu(&read_flag);
    CHECK(driver.hold(0) == 0);
    st = end_plan(&run);
    float released = run_on_cpu(&read_flag);
    printf("flag: %g while the device is held, %g at the end: %s\n", held, released,
           st ? status_message(st) : "ok");
    is_well &= !st && held == 0 && released == 1;
    status_unref(st);
    run_clear(&run);
    plan_unref(plan);
    return is_well;
}
