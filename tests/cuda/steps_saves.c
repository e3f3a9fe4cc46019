/* Mode of cuda_steps: a save of variables that are on a GPU holds up no update of them, and writes
 * the values of its moment. */
#include "tests/cuda/steps.h"

#include <dirent.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* A resource variable of 1 MB, a reference variable of 2 MB (larger than what the copier of waits
 * copies), and one on the CPU. */
#define VARIABLES                                                             \
    "r = VarHandleOp() {dtype=float, shape=[262144], shared_name=\"r\"} @G\n" \
    "v = VariableV2() {dtype=int64, shape=[262144], shared_name=\"sv\"} @G\n" \
    "c = VarHandleOp() {dtype=float, shape=[2], shared_name=\"c\"} @C\n"      \
    "s = Const() {dtype=int32, value=int32[1]{262144}} @C\n"                  \
    "one = Const() {dtype=float, value=float[]{1}} @C\n"                      \
    "two = Const() {dtype=int64, value=int64[]{2}} @C\n"                      \
    "ones = Fill(s, one) {T=float, index_type=int32} @G\n"                    \
    "twos = Fill(s, two) {T=int64, index_type=int32} @G\n"                    \
    "three = Const() {dtype=float, value=float[2]{3, 3}} @C\n"

static const struct program set = {"set",
                                   {0},
                                   0,
                                   VARIABLES "a = AssignVariableOp(r, ones) {dtype=float} @G\n"
                                             "b = Assign(v, twos) {T=int64} @G\n"
                                             "d = AssignVariableOp(c, three) {dtype=float} @C\n"};
static const struct program update = {"update",
                                      {0},
                                      0,
                                      VARIABLES
                                      "a = AssignAddVariableOp(r, ones) {dtype=float} @G\n"
                                      "b = AssignAdd(v, twos) {T=int64} @G\n"
                                      "d = AssignAddVariableOp(c, three) {dtype=float} @C\n"};
static const struct program look = {"look",
                                    {0},
                                    3,
                                    VARIABLES "x = ReadVariableOp(r) {dtype=float} @G\n"
                                              "y = Identity(v) {T=int64} @G\n"
                                              "z = ReadVariableOp(c) {dtype=float} @C\n"
                                              "f = _MrFetch(x) {T=float, index=0}\n"
                                              "g = _MrFetch(y) {T=int64, index=1}\n"
                                              "h = _MrFetch(z) {T=float, index=2}\n"};

#define NAMES                                                               \
    "n = Const() {dtype=string, value=string[3]{\"r\", \"v\", \"c\"}} @C\n" \
    "k = Const() {dtype=string, value=string[3]{\"\", \"\", \"\"}} @C\n"

static const char save_text[] =
    VARIABLES NAMES "p = Const() {dtype=string, value=string[]{\"%s/saved\"}} @C\n"
                    "x = ReadVariableOp(r) {dtype=float} @G\n"
                    "z = ReadVariableOp(c) {dtype=float} @C\n"
                    "save = SaveV2(p, n, k, x, v, z) {dtypes=[float,int64,float]} @C\n";
static const char restore_text[] =
    NAMES "p = Const() {dtype=string, value=string[]{\"%s/saved\"}} @C\n"
          "back = RestoreV2(p, n, k) {dtypes=[float,int64,float]} @C\n"
          "f = _MrFetch(back) {T=float, index=0}\n"
          "g = _MrFetch(back:1) {T=int64, index=1}\n"
          "h = _MrFetch(back:2) {T=float, index=2}\n";

/* ---- steps ---- */

static sem_t is_taken;
static _Atomic int n_taken;

static void on_inputs_taken(struct execution *execution) {
    atomic_fetch_add(&n_taken, 1);
    sem_post(&is_taken);
}

/* False: the save has not said within a minute that it holds its values. */
static bool await_taken(void) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 60;
    return sem_timedwait(&is_taken, &until) == 0;
}

static bool is_well(const char *name, struct status *st_take) {
    bool is_ok = !st_take;
    printf("%s: %s\n", name, st_take ? status_message(st_take) : "ok");
    status_unref(st_take);
    return is_ok;
}

static bool run_to_end(const struct program *program, struct run *run) {
    struct plan *plan = plan_of(program);
    start_plan(run, program, plan);
    bool is_ok = is_well(program->name, end_plan(run));
    plan_unref(plan);
    return is_ok;
}

/* Runs a program that fetches the three variables. Have they the values after n updates? */
static bool has_values(const struct program *program, int n) {
    struct run run;
    bool is_ok = run_to_end(program, &run);
    for (int64_t i = 0; is_ok && i < run.fetches[0].n_elements; i++)
        is_ok = ((const float *)tensor_cdata(&run.fetches[0]))[i] == 1.0f * (float)(n + 1) &&
                ((const int64_t *)tensor_cdata(&run.fetches[1]))[i] == 2 * (n + 1);
    is_ok = is_ok && ((const float *)tensor_cdata(&run.fetches[2]))[1] == 3.0f * (float)(n + 1);
    run_clear(&run);
    printf("%s: the values after %d updates: %s\n", program->name, n, is_ok ? "yes" : "no");
    return is_ok;
}

/* ---- gates ---- */

/* Nothing that is enqueued runs. */
static void hold_device(bool is_held) { CHECK(driver.hold(is_held) == 0); }
/* Copies to the host do not go on, but the device does. */
static void hold_copies(bool is_held) { CHECK(driver.block("cuMemcpyDtoHAsync", is_held) == 0); }

/* Saves while the gate is closed, and updates the variables meanwhile. The update must have been
 * enqueued before the gate opens; if `ends`, it must have ended. */
static bool save_and_update(const struct program *save, void (*gate)(bool is_held), bool ends) {
    struct run saving, updating;
    struct plan *plans[] = {plan_of(save), plan_of(&update)};
    int before = atomic_load(&n_taken);
    gate(true);
    start_saving(&saving, save, plans[0], on_inputs_taken);
    bool is_ok = await_taken() && !ending_has_come(&saving.end);
    unsigned long n = driver.count("cuLaunchKernel");
    start_plan(&updating, &update, plans[1]);
    await_calls("cuLaunchKernel", n + 4); /* two fills, two additions */
    if (ends)
        is_ok &= is_well("update before the copies", end_plan(&updating));
    is_ok &= !ending_has_come(&saving.end);
    gate(false);
    if (!ends)
        is_ok &= is_well("update", end_plan(&updating));
    is_ok &= is_well("save", end_plan(&saving));
    is_ok &= atomic_load(&n_taken) == before + 1;
    run_clear(&saving);
    run_clear(&updating);
    plan_unref(plans[0]);
    plan_unref(plans[1]);
    return is_ok;
}

void make_folder(char folder[FOLDER_BYTES]) {
    const char *temporary = getenv("TMPDIR");
    int n = snprintf(folder, FOLDER_BYTES, "%s/cuda_steps.XXXXXX",
                     temporary && *temporary ? temporary : "/tmp");
    CHECK(n < FOLDER_BYTES && mkdtemp(folder));
}

void remove_folder(const char *folder) {
    DIR *entries = opendir(folder);
    CHECK(entries);
    for (struct dirent *entry; (entry = readdir(entries));)
        if (entry->d_name[0] != '.')
            CHECK(unlinkat(dirfd(entries), entry->d_name, 0) == 0);
    closedir(entries);
    CHECK(rmdir(folder) == 0);
}

bool run_saves(void) {
    char folder[FOLDER_BYTES], save[sizeof save_text + sizeof folder],
        restore[sizeof restore_text + sizeof folder];
    struct run run;
    make_folder(folder);
    snprintf(save, sizeof save, save_text, folder);
    snprintf(restore, sizeof restore, restore_text, folder);
    const struct program saving = {"save", {0}, 0, save}, restoring = {"restore", {0}, 3, restore};
    sem_init(&is_taken, 0, 0);
    bool is_ok = run_to_end(&set, &run) && save_and_update(&saving, hold_device, false) &&
                 has_values(&restoring, 0) && has_values(&look, 1) &&
                 save_and_update(&saving, hold_copies, true) && has_values(&restoring, 1) &&
                 has_values(&look, 2);
    sem_destroy(&is_taken);
    remove_folder(folder);
    return is_ok;
}
