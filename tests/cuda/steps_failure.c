/* Modes of cuda_steps: calls of the driver that do not return. */
#include "tests/cuda/steps.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>

static bool is_told(const char *what, struct status *st_take, const char *expected) {
    bool is_well = st_take && status_code(st_take) == STATUS_UNAVAILABLE &&
                   strstr(status_message(st_take), expected);
    printf("%s: %s\n", what, st_take ? status_message(st_take) : "ok");
    status_unref(st_take);
    return is_well;
}

static void probe_until(const _Atomic bool *has_ended) {
    struct device *gpu = &devices[N_CPUS];
    while (!atomic_load(has_ended)) {
        gpu->ops->probe(gpu, 1);
        sched_yield();
    }
}

struct hanging {
    struct run run;
    struct plan *plan;
    struct status *status;
    _Atomic bool has_ended;
};

static void *run_to_end(void *arg) {
    struct hanging *step = arg;
    start_plan(&step->run, &programs[0], step->plan);
    step->status = end_plan(&step->run);
    atomic_store(&step->has_ended, true);
    return NULL;
}

/* The plan's constants are copied to the device, so it is made while the device works. */
static void prepare(struct hanging *step) {
    struct status *st = make_plan(&programs[0], false, &step->plan);
    CHECK(!st);
}

static void begin(struct hanging *step, pthread_t *ret_thread) {
    CHECK(pthread_create(ret_thread, NULL, run_to_end, step) == 0);
}

static struct status *end(struct hanging *step, pthread_t thread) {
    CHECK(pthread_join(thread, NULL) == 0);
    run_clear(&step->run);
    plan_unref(step->plan);
    return step->status;
}

/* The device never does what it was told: waits for it end with UNAVAILABLE, and later steps fail
 * at once. */
bool run_hang(void) {
    struct hanging step = {.has_ended = false}, later = {.has_ended = false};
    pthread_t thread;
    prepare(&step);
    prepare(&later);
    CHECK(driver.block("cuEventSynchronize", 1) == 0);
    unsigned long n = driver.count("cuEventSynchronize");
    begin(&step, &thread);
    await_calls("cuEventSynchronize", n + 1);
    probe_until(&step.has_ended);
    bool is_well = is_told("step", end(&step, thread), "it has made no progress for");
    begin(&later, &thread);
    is_well &= is_told("later step", end(&later, thread), "has failed, so nothing runs on it");
    CHECK(driver.block("cuEventSynchronize", 0) == 0);
    return is_well;
}

/* Waits of the threads that make a large copy do not return: the copy ends. */
bool run_hanging_team(void) {
    struct tensor from = TENSOR_INIT, on_device = TENSOR_INIT, to = TENSOR_INIT;
    struct transfer transfer;
    int64_t n = 4 << 20;
    struct status *st = tensor_new_zeroed(allocator_host(), DT_FLOAT, (struct shape){1, &n}, &from);
    CHECK(!st);
    transfer_start(&transfer, 0, 1, NULL, &from, &on_device);
    st = transfer_end(&transfer);
    CHECK(!st);
    CHECK(driver.block("cuEventSynchronize", 1) == 0);
    unsigned long n_before = driver.count("cuEventSynchronize");
    transfer_start(&transfer, 1, 0, allocator_host(), &on_device, &to);
    await_calls("cuEventSynchronize", n_before + (unsigned long)n_copy_threads);
    probe_until(&transfer.has_ended);
    bool is_well = is_told("copy", transfer_end(&transfer), "it has made no progress for");
    CHECK(driver.block("cuEventSynchronize", 0) == 0);
    tensor_clear(&from);
    tensor_clear(&on_device);
    return is_well;
}

/* ---- copies between devices that hang ---- */

static const struct program *two_devices(void) {
    for (size_t i = 0; i < n_programs; i++)
        if (strcmp(programs[i].name, "two devices") == 0)
            return &programs[i];
    CHECK(!"there is none");
}

static bool waits_for(struct run *run, const char *what) {
    struct str waits = STR_INIT;
    execution_describe_waits(&run->execution, 1, &waits);
    bool is = strstr(str_text(&waits), what) != NULL;
    str_fini(&waits);
    return is;
}

/* Lets the devices do what is enqueued, by a call that is not blocked. */
static void *run_enqueued(void *arg) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CUresult (*retain)(CUcontext *, CUdevice), (*set_current)(CUcontext), (*synchronize)(void);
    *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    *(void **)&set_current = dlsym(library, "cuCtxSetCurrent");
    *(void **)&synchronize = dlsym(library, "cuCtxSynchronize");
    for (CUdevice d = 0; d < 2; d++) {
        CUcontext context;
        CHECK(retain(&context, d) == 0 && set_current(context) == 0 && synchronize() == 0);
    }
    return arg;
}

/* Two steps copy from GPU 0 to GPU 1 and back, and no wait for a device returns. GPU 0 is found to
 * hang, so the steps fail, and wait for GPU 1. Once that is found to hang, its copier ends the
 * copies that are queued, and then the steps' waits, without asking the driver. */
bool run_hanging_copies(void) {
    static const char *const calls[] = {"cuEventSynchronize", "cuStreamSynchronize"};
    struct run runs[2];
    struct plan *plans[2];
    pthread_t thread;
    struct device *first = &devices[N_CPUS], *second = &devices[N_CPUS + 1];
    bool is_well = true;
    for (int i = 0; i < 2; i++) {
        struct status *st = make_plan(two_devices(), false, &plans[i]);
        CHECK(!st);
    }
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        CHECK(driver.block(calls[i], 1) == 0);
    unsigned long n = driver.count("cuMemcpyPeerAsync");
    for (int i = 0; i < 2; i++)
        start_plan(&runs[i], two_devices(), plans[i]);
    await_calls("cuMemcpyPeerAsync", n + 4);
    for (int i = 0; i < 2; i++) /* for the fetch, so all else is enqueued */
        while (!waits_for(&runs[i], "\n"))
            sched_yield();
    CHECK(pthread_create(&thread, NULL, run_enqueued, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    while (!first->ops->failure(first))
        first->ops->probe(first, 1);
    for (int i = 0; i < 2; i++)
        while (!waits_for(&runs[i], "device:GPU:1 to end what is enqueued"))
            sched_yield();
    while (!second->ops->failure(second))
        second->ops->probe(second, 1);
    for (int i = 0; i < 2; i++) {
        is_well &= is_told("step", end_plan(&runs[i]), "it has made no progress for");
        run_clear(&runs[i]);
        plan_unref(plans[i]);
    }
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        CHECK(driver.block(calls[i], 0) == 0);
    return is_well;
}

/* A launch does not return, and its thread holds the device's lock: others do not wait for it. */
bool run_hanging_launch(void) {
    struct hanging step = {.has_ended = false}, other = {.has_ended = false};
    pthread_t threads[2];
    prepare(&step);
    prepare(&other);
    CHECK(driver.block("cuLaunchKernel", 1) == 0);
    unsigned long n = driver.count("cuLaunchKernel");
    begin(&step, &threads[0]);
    await_calls("cuLaunchKernel", n + 1);
    begin(&other, &threads[1]);
    probe_until(&other.has_ended);
    bool is_well = is_told("other step", end(&other, threads[1]), "it has made no progress for");
    CHECK(driver.block("cuLaunchKernel", 0) == 0);
    is_well &= is_told("step", end(&step, threads[0]), "has failed, so nothing runs on it");
    return is_well;
}
