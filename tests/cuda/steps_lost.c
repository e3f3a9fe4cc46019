/* Mode of cuda_steps: the device process is killed in a phase of a step, as if the devices had
 * fallen off the bus. The step and all later ones on a device fail with UNAVAILABLE, no step
 * hangs, and all memory is given back.
 *
 * The phases here need work before them. What the programs of steps_programs.c do, which is feeds,
 * launches, libraries, copies, fetches and the devices' end, is killed by run_failures.py. */
#include "tests/cuda/steps.h"

#include <stdio.h>
#include <stdlib.h>

#include "kernels/support/swap.h"

enum { N_FLOATS = 2200000 /* three pieces of a copy */, N_WARM = 5 };

#define REPEATED(last)                       \
    FEED "a1 = Mul(x, x) {T=float} @G\n"     \
         "a2 = Mul(a1, x) {T=float} @G\n"    \
         "a3 = AddV2(a2, a1) {T=float} @G\n" \
         "a4 = Mul(a3, a2) {T=float} @G\n"   \
         "a5 = AddV2(a4, a1) {T=float} @G\n" last

static const struct program repeated = {
    "repeated", {64}, 1, REPEATED("y = _MrFetch(a5) {T=float, index=0}\n")};

#define VARIABLE "v = VarHandleOp() {dtype=float, shape=[2200000], shared_name=\"v\"} @G\n"
static const struct program set = {
    "set", {N_FLOATS}, 0, FEED VARIABLE "a = AssignVariableOp(v, x) {dtype=float} @G\n"};
static const char save_text[] =
    VARIABLE "a = ReadVariableOp(v) {dtype=float} @G\n"
             "n = Const() {dtype=string, value=string[1]{\"v\"}} @C\n"
             "k = Const() {dtype=string, value=string[1]{\"\"}} @C\n"
             "p = Const() {dtype=string, value=string[]{\"%s/saved\"}} @C\n"
             "save = SaveV2(p, n, k, a) {dtypes=[float]} @C\n";

/* 64 of the 96 MiB are held, so what is pushed moves to the host's memory. */
static const struct program hold = {
    "hold",
    {0},
    0,
    "h = VarHandleOp() {dtype=float, shape=[16777216], shared_name=\"h\"} @G\n"
    "s = Const() {dtype=int32, value=int32[1]{16777216}} @C\n"
    "e = Empty(s) {dtype=float} @G\n"
    "a = AssignVariableOp(h, e) {dtype=float} @G\n"};
static const struct program swapped = {"swapped",
                                       {N_FLOATS},
                                       1,
                                       FEED
                                       "c = Const() {dtype=int32, value=int32[]{5}} @C\n"
                                       "h = StackV2(c) {elem_type=float} @G\n"
                                       "push = StackPushV2(h, x) {T=float, swap_memory=true} @G\n"
                                       "pop = StackPopV2(h, ^push) {elem_type=float} @G\n"
                                       "y = _MrFetch(pop) {T=float, index=0}\n"};

/* Is queued for the compiler at its third run. */
static const struct program fused = {
    "fused",
    {64},
    1,
    FEED "c = _MrFused(x) {Tin=[float], Tout=[float], program=[&Mul{T=float}, &Neg{T=float}], "
         "names=[\"m\", \"c\"], operands=[0, 0, 1], results=[1]} @G\n"
         "y = _MrFetch(c) {T=float, index=0}\n"};

static const struct phase {
    const char *name;
    const struct program *before; /* NULL: nothing */
    int n_before;
    const struct program *step; /* NULL: the save */
    const char *call;
    unsigned long nth; /* from the step's beginning */
    bool is_beside;    /* by the compiler's thread: the step itself may succeed */
} phases[] = {
    {"capture begin", &repeated, 2, &repeated, "cuStreamBeginCapture", 1},
    {"capture", &repeated, 2, &repeated, "cuStreamGetCaptureInfo", 2},
    {"capture end", &repeated, 2, &repeated, "cuStreamEndCapture", 1},
    {"instantiation", &repeated, 2, &repeated, "cuGraphInstantiate", 1},
    {"replay", &repeated, N_WARM, &repeated, "cuGraphLaunch", 1},
    {"save", &set, 1, NULL, "cuMemcpyDtoHAsync", 1},
    {"save in pieces", &set, 1, NULL, "cuMemcpyDtoHAsync", 3},
    {"save waits", &set, 1, NULL, "cuEventSynchronize", 1},
    {"swap out", &hold, 1, &swapped, "cuMemcpyDtoHAsync", 1},
    {"swap out in pieces", &hold, 1, &swapped, "cuMemcpyDtoHAsync", 3},
    {"swap in", &hold, 1, &swapped, "cuMemcpyHtoDAsync", 4},
    {"swap in in pieces", &hold, 1, &swapped, "cuMemcpyHtoDAsync", 6},
    {"compilation", &fused, 2, &fused, "nvrtcCompileProgram", 1, true},
    {"code", &fused, 2, &fused, "cuLibraryLoadData", 1, true},
    {"code's function", &fused, 2, &fused, "cuKernelGetFunction", 1, true},
};

static const struct phase *phase_find(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(phases); i++)
        if (strcmp(phases[i].name, name) == 0)
            return &phases[i];
    for (size_t i = 0; i < ARRAY_LEN(phases); i++)
        printf("phase %s\n", phases[i].name);
    return NULL;
}

/* Runs a step, and prints as run_failures.py reads it. */
static struct status *step(const struct program *program, struct plan *plan) {
    struct run run;
    start_plan(&run, program, plan);
    struct status *st = end_plan(&run);
    printf("%s: %s%s\n", program->name, st ? "failed: " : "ok", st ? status_message(st) : "");
    run_clear(&run);
    return st;
}

static bool is_lost(struct status *st_take) {
    bool is = status_code(st_take) == STATUS_UNAVAILABLE;
    status_unref(st_take);
    return is;
}

static bool run_before(const struct phase *phase, struct plan *plan) {
    bool is_ok = true;
    struct plan *before = !phase->before                 ? NULL
                          : phase->before == phase->step ? plan_ref(plan)
                                                         : plan_of(phase->before);
    for (int i = 0; i < phase->n_before && is_ok; i++) {
        struct status *st = step(phase->before, before);
        is_ok = !st;
        status_unref(st);
    }
    plan_unref(before);
    return is_ok;
}

bool run_lost(const char *name) {
    char folder[FOLDER_BYTES], text[sizeof save_text + sizeof folder];
    const struct phase *phase = phase_find(name);
    if (!phase)
        return false;
    make_folder(folder);
    snprintf(text, sizeof text, save_text, folder);
    const struct program save = {"save", {0}, 0, text},
                         *program = phase->step ? phase->step : &save;
    struct plan *plan = plan_of(program), *later = plan_of(&programs[0]);
    swap_add_device(&devices[N_CPUS]);
    bool is_well = run_before(phase, plan);
    CHECK(driver.kill(phase->call, phase->nth) == 0);
    unsigned long n = driver.count(phase->call);
    struct status *st = step(program, plan);
    is_well &= is_lost(st) || phase->is_beside;
    if (phase->is_beside)
        await_calls(phase->call, n + phase->nth);
    if (driver.count(phase->call) < n + phase->nth) {
        printf("%s: the step does not call %s\n", name, phase->call);
        is_well = false;
    }
    is_well &= is_lost(step(program, plan));
    is_well &= is_lost(step(&programs[0], later));
    plan_unref(plan);
    plan_unref(later);
    swap_remove_device(&devices[N_CPUS]);
    remove_folder(folder);
    return is_well;
}
