/* Modes of cuda_steps: steps that find no memory, wait for it, or say who holds it. */
#include "tests/cuda/steps.h"

#include <stdio.h>

#include "common/base/clock.h"

/* Takes 64 of the 96 MiB until its value has been copied to the host. */
static const struct program holder = {"holder",
                                      {0},
                                      1,
                                      "s = Const() {dtype=int32, value=int32[1]{16777216}} @C\n"
                                      "big = Empty(s) {dtype=float} @G\n"
                                      "y = _MrFetch(big) {T=float, index=0}\n"};
/* Launches one kernel, and then asks for 48 MiB. */
static const struct program waiter = {"waiter",
                                      {64},
                                      1,
                                      FEED
                                      "a = Mul(x, x) {T=float} @G\n"
                                      "s = Const() {dtype=int32, value=int32[1]{12582912}} @C\n"
                                      "late = Empty(s, ^a) {dtype=float} @G\n"
                                      "r = Shape(late) {T=float} @G\n"
                                      "y = _MrFetch(r) {T=int32, index=0}\n"};

/* Fails for lack of memory while it holds six values. */
static const struct program five_holders = {
    "five holders",
    {0},
    1,
    "f = Const() {dtype=float, value=float[]{1}} @C\n"
    "s1 = Const() {dtype=int32, value=int32[1]{262144}} @C\n"
    "s2 = Const() {dtype=int32, value=int32[1]{524288}} @C\n"
    "s3 = Const() {dtype=int32, value=int32[1]{786432}} @C\n"
    "s4 = Const() {dtype=int32, value=int32[1]{1048576}} @C\n"
    "s5 = Const() {dtype=int32, value=int32[1]{1310720}} @C\n"
    "s6 = Const() {dtype=int32, value=int32[1]{1572864}} @C\n"
    "s7 = Const() {dtype=int32, value=int32[1]{40000000}} @C\n"
    "h3 = Fill(s3, f) {T=float, index_type=int32} @G\n"
    "h1 = Fill(s1, f) {T=float, index_type=int32} @G\n"
    "h6 = Fill(s6, f) {T=float, index_type=int32} @G\n"
    "h2 = Fill(s2, f) {T=float, index_type=int32} @G\n"
    "h5 = Fill(s5, f) {T=float, index_type=int32} @G\n"
    "h4 = Fill(s4, f) {T=float, index_type=int32} @G\n"
    "h7 = Fill(s7, f, ^h1, ^h2, ^h3, ^h4, ^h5, ^h6) {T=float, index_type=int32} @G\n"
    "k = Const() {dtype=int32, value=int32[]{0}} @C\n"
    "c = ConcatV2(h1, h2, h3, h4, h5, h6, h7, k) {T=float, N=7, Tidx=int32} @G\n"
    "y = _MrFetch(c) {T=float, index=0}\n",
    " of 100663296 bytes in use. 160000000 bytes are more than the limit of 100663296; "
    "the largest blocks: 6291456 bytes by h6, 5242880 bytes by h5, 4194304 bytes by h4, "
    "3145728 bytes by h3, 2097152 bytes by h2; the driver has "};

struct pair {
    struct run first, second;
    struct plan *plans[2];
    pthread_t thread; /* starts the second step, and waits for memory */
    void *table;      /* the second step's containers */
};

static void *start_second(void *arg) {
    struct pair *pair = arg;
    containers = container_table_new();
    start_plan(&pair->second, &waiter, pair->plans[1]);
    return containers;
}

/* The device is held, and both steps are under way: the first one's value is to be copied, for
 * which an event is recorded, and the second one finds no memory. */
static void start_both(struct pair *pair) {
    struct status *st = make_plan(&holder, false, &pair->plans[0]);
    CHECK(!st);
    st = make_plan(&waiter, false, &pair->plans[1]);
    CHECK(!st);
    unsigned long n_launched = driver.count("cuLaunchKernel"),
                  n_recorded = driver.count("cuEventRecord");
    CHECK(driver.hold(1) == 0);
    start_plan(&pair->first, &holder, pair->plans[0]);
    await_calls("cuEventRecord", n_recorded + 1);
    CHECK(pthread_create(&pair->thread, NULL, start_second, pair) == 0);
    await_calls("cuLaunchKernel", n_launched + 1);
}

/* Did the first step succeed, and the second one, or did that fail as expected? */
static bool end_both(struct pair *pair, const char *expected) {
    struct status *st = end_plan(&pair->first), *other = end_plan(&pair->second);
    printf("holder: %s\nwaiter: %s\n", st ? status_message(st) : "ok",
           other ? status_message(other) : "ok");
    bool is_well = !st && (expected ? other && strstr(status_message(other), expected) : !other);
    status_unref(st);
    status_unref(other);
    run_clear(&pair->first);
    run_clear(&pair->second);
    plan_unref(pair->plans[0]);
    plan_unref(pair->plans[1]);
    container_table_free(pair->table);
    return is_well;
}

/* A step that finds no memory waits for another one to give some back. */
bool run_waiting(void) {
    struct pair pair;
    start_both(&pair);
    CHECK(driver.hold(0) == 0);
    CHECK(pthread_join(pair.thread, &pair.table) == 0);
    return end_both(&pair, NULL);
}

/* It waits for ten seconds, and then fails and says who holds the memory. The thread that has
 * started the step waits with it. */
bool run_patience(void) {
    struct pair pair;
    int64_t begin_ns = clock_now_ns();
    start_both(&pair);
    CHECK(pthread_join(pair.thread, &pair.table) == 0);
    bool is_patient = clock_now_ns() - begin_ns >= INT64_C(10000000000);
    printf("waited for %s ten seconds\n", is_patient ? "at least" : "less than");
    CHECK(driver.hold(0) == 0);
    return end_both(&pair, "the largest blocks: 67108864 bytes by big") && is_patient;
}

bool run_holders(void) { return run_program(&five_holders); }
