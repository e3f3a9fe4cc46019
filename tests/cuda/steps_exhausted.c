/* Mode of cuda_steps: memory runs out in each phase of a step. The step fails with
 * RESOURCE_EXHAUSTED and names the node and how many bytes it wanted. It does not wait for memory,
 * because nobody is going to free any. All memory that it took is given back, and the same step
 * succeeds once there is memory.
 *
 *   memory of the device   a variable holds 95 of the 96 MiB: feeds, copies between devices,
 *                          outputs of kernels, work that is held back
 *   pinned memory          the driver refuses it once: feeds, fetches, saves */
#include "tests/cuda/steps.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"

#define HOG(device)                                                                              \
    "v = VarHandleOp() {dtype=float, shape=[24903680], shared_name=\"hog " device "\"} @" device \
    "\n"
#define TAKE(device)                                           \
    HOG(device)                                                \
    "s = Const() {dtype=int32, value=int32[1]{24903680}} @C\n" \
    "e = Empty(s) {dtype=float} @" device "\n"                 \
    "a = AssignVariableOp(v, e) {dtype=float} @" device "\n"

static const struct program take[] = {{"take G", {0}, 0, TAKE("G")}, {"take H", {0}, 0, TAKE("H")}};
static const struct program release[] = {
    {"release G", {0}, 0, HOG("G") "d = DestroyResourceOp(v) {} @G\n"},
    {"release H", {0}, 0, HOG("H") "d = DestroyResourceOp(v) {} @H\n"}};

enum { LARGE = 1 << 19, /* floats: 2 MiB */ COPIED = 2200000 /* three pieces */ };

/* The 2 MiB come after work that has been captured. */
static const struct program replayed = {"replayed",
                                        {64},
                                        1,
                                        FEED "a1 = Mul(x, x) {T=float} @G\n"
                                             "a2 = Mul(a1, x) {T=float} @G\n"
                                             "a3 = AddV2(a2, a1) {T=float} @G\n"
                                             "a4 = Mul(a3, a2) {T=float} @G\n"
                                             "a5 = AddV2(a4, a1) {T=float} @G\n"
                                             "s = Const() {dtype=int32, value=int32[1]{524288}} "
                                             "@C\n"
                                             "late = Fill(s, one, ^a3) {T=float, index_type=int32} "
                                             "@G\n"
                                             "one = Const() {dtype=float, value=float[]{1}} @C\n"
                                             "k = Const() {dtype=int32, value=int32[1]{0}} @C\n"
                                             "r = Sum(late, k) {T=float, Tidx=int32} @G\n"
                                             "z = Mul(a5, r) {T=float} @G\n"
                                             "y = _MrFetch(z) {T=float, index=0}\n"};

#define SUM(device)                                     \
    "k = Const() {dtype=int32, value=int32[1]{0}} @C\n" \
    "r = Sum(a, k) {T=float, Tidx=int32} @" device "\n" \
    "y = _MrFetch(r) {T=float, index=0}\n"
#define FILL                                                 \
    "s = Const() {dtype=int32, value=int32[1]{524288}} @C\n" \
    "one = Const() {dtype=float, value=float[]{1}} @C\n"     \
    "a = Fill(s, one) {T=float, index_type=int32} @G\n"

static const struct program set_saved = {
    "set",
    {COPIED},
    0,
    FEED "v = VarHandleOp() {dtype=float, shape=[2200000], shared_name=\"saved\"} @H\n"
         "a = AssignVariableOp(v, x) {dtype=float} @H\n"};
static const struct program destroy_saved = {
    "destroy",
    {0},
    0,
    "v = VarHandleOp() {dtype=float, shape=[2200000], shared_name=\"saved\"} @H\n"
    "d = DestroyResourceOp(v) {} @H\n"};
static const char save_text[] =
    "v = VarHandleOp() {dtype=float, shape=[2200000], shared_name=\"saved\"} @H\n"
    "a = ReadVariableOp(v) {dtype=float} @H\n"
    "n = Const() {dtype=string, value=string[1]{\"v\"}} @C\n"
    "k = Const() {dtype=string, value=string[1]{\"\"}} @C\n"
    "p = Const() {dtype=string, value=string[]{\"%s/saved\"}} @C\n"
    "save = SaveV2(p, n, k, a) {dtypes=[float]} @C\n";

/* A program that lacks memory once: what holds the device's memory meanwhile, or the piece of
 * pinned memory that the driver refuses. Pieces are kept, so the order matters. */
static const struct shortage {
    const char *node, *size;
    struct program program;
    const struct program *holder, *release;
    unsigned long nth; /* 0: the device's memory is held */
} shortages[] = {
    {"{{node x}}",
     "4194304 bytes",
     {"the first feed", /* too large for the argument of a launch */
      {512},
      1,
      FEED "a = Mul(x, x) {T=float} @G\ny = _MrFetch(a) {T=float, index=0}\n"},
     .nth = 1},
    {"{{node a}}",
     "4194304 bytes",
     {"the first fetch", /* too large for the outbox */
      {0},
      1,
      "c = Const() {dtype=float, value=float[2048]{3, …}} @H\n"
      "a = Mul(c, c) {T=float} @H\n"
      "y = _MrFetch(a) {T=float, index=0}\n"},
     .nth = 1},
    {"{{node x}}",
     "4194304 bytes",
     {"a feed in pieces",
      {COPIED},
      1,
      FEED "b = Const() {dtype=int32, value=int32[1]{2199990}} @C\n"
           "n = Const() {dtype=int32, value=int32[1]{10}} @C\n"
           "a = Slice(x, b, n) {T=float, Index=int32} @G\n"
           "y = _MrFetch(a) {T=float, index=0}\n"},
     .nth = 2},
    {"{{node a}}",
     "4194304 bytes",
     {"a fetch in pieces",
      {COPIED},
      1,
      FEED "s = Const() {dtype=int32, value=int32[2]{2, 1100000}} @C\n"
           "a = Reshape(x, s) {T=float, Tshape=int32} @G\ny = _MrFetch(a) {T=float, index=0}\n"},
     .nth = 2},
    {"{{node a}}", "4194304 bytes", {"a save", {0}, 0, NULL}, &set_saved, &destroy_saved, .nth = 1},
    {"{{node x}}",
     "2097152 bytes",
     {"a large feed", {LARGE}, 1, FEED "a = Neg(x) {T=float} @G\n" SUM("G")},
     &take[0],
     &release[0]},
    {"{{node a}}",
     "2097152 bytes",
     {"a copy between devices", {0}, 1, FILL SUM("H")},
     &take[1],
     &release[1]},
    {"{{node a}}",
     "shape[524288] and type float (2097152 bytes)",
     {"a kernel's output", {0}, 1, FILL SUM("G")},
     &take[0],
     &release[0]},
};

static bool runs(const struct program *program, struct plan *plan) {
    struct run run;
    start_plan(&run, program, plan);
    struct status *st = end_plan(&run);
    printf("%s: %s\n", program->name, st ? status_message(st) : "ok");
    bool is_ok = !st;
    status_unref(st);
    run_clear(&run);
    return is_ok;
}

static bool runs_once(const struct program *program) {
    struct plan *plan = plan_of(program);
    bool is_ok = runs(program, plan);
    plan_unref(plan);
    return is_ok;
}

static int64_t in_use(void) {
    int64_t sum = 0;
    for (int i = N_CPUS; i < n_devices; i++)
        sum += atomic_load(&devices[i].allocator->in_use_bytes);
    return sum;
}

/* For so long a step waits for the memory of others. */
static const int64_t PATIENCE_NS = INT64_C(10000000000);

/* Does the step say at once that there is no memory, and is all that it took given back? */
static bool lacks_memory(const struct program *program, struct plan *plan, const char *node,
                         const char *size) {
    struct run run;
    int64_t before = in_use(), start_ns = clock_now_ns();
    start_plan(&run, program, plan);
    struct status *st = end_plan(&run);
    bool is_at_once = clock_now_ns() - start_ns < PATIENCE_NS;
    run_clear(&run);
    printf("%s: %s\n", program->name, st ? status_message(st) : "ok");
    if (!is_at_once)
        printf("%s: it has waited for memory\n", program->name);
    bool is_told = status_code(st) == STATUS_RESOURCE_EXHAUSTED &&
                   strstr(status_message(st), node) && strstr(status_message(st), size);
    if (!is_told)
        printf("%s: not RESOURCE_EXHAUSTED of \"%s\" with \"%s\"\n", program->name, node, size);
    status_unref(st);
    if (in_use() != before)
        printf("%s: %lld bytes are in use, and were %lld\n", program->name, (long long)in_use(),
               (long long)before);
    return is_at_once && is_told && in_use() == before;
}

static bool is_short(const struct shortage *shortage, const char *save) {
    struct program program = shortage->program;
    if (!program.text)
        program.text = save;
    struct plan *plan = plan_of(&program);
    bool is_well = !shortage->holder || runs_once(shortage->holder);
    if (shortage->nth > 0)
        CHECK(driver.fail("cuMemHostAlloc", shortage->nth, CUDA_ERROR_OUT_OF_MEMORY) == 0);
    is_well &= lacks_memory(&program, plan, shortage->node, shortage->size);
    if (shortage->release && shortage->nth == 0)
        is_well &= runs_once(shortage->release);
    is_well &= runs(&program, plan) && run_program(&programs[0]);
    if (shortage->release && shortage->nth > 0)
        is_well &= runs_once(shortage->release);
    plan_unref(plan);
    return is_well;
}

/* Work is held back when the memory runs out. */
static bool is_short_in_replay(void) {
    struct plan *plan = plan_of(&replayed);
    bool is_well = true;
    for (int i = 0; i < 5; i++)
        is_well &= runs(&replayed, plan);
    unsigned long n = driver.count("cuGraphLaunch");
    is_well &= runs_once(&take[0]) &&
               lacks_memory(&replayed, plan, "{{node late}}", "shape[524288]") &&
               runs_once(&release[0]);
    for (int i = 0; i < 5; i++)
        is_well &= runs(&replayed, plan);
    plan_unref(plan);
    if (driver.count("cuGraphLaunch") == n)
        printf("nothing is replayed after a lack of memory\n");
    return is_well && driver.count("cuGraphLaunch") > n;
}

bool run_exhausted(void) {
    char folder[FOLDER_BYTES], save[sizeof save_text + sizeof folder];
    bool is_well = true;
    make_folder(folder);
    snprintf(save, sizeof save, save_text, folder);
    for (size_t i = 0; i < ARRAY_LEN(shortages); i++)
        is_well &= is_short(&shortages[i], save);
    remove_folder(folder);
    return is_well & is_short_in_replay();
}
