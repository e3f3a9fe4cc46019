/* Runs steps on two simulated GPUs through the plugin, the planner and the executor, as a worker
 * does: constants, feeds, kernels, matrix products, copies within and between devices, variables,
 * large values, and memory that runs out.
 *
 *   cuda_steps PLUGIN         the programs
 *   cuda_steps PLUGIN ahead   a step that is far ahead of a device which is held back
 *   cuda_steps PLUGIN warm    the calls of the driver that a warm step makes
 *   cuda_steps PLUGIN many    the programs, by several threads at once
 *   cuda_steps PLUGIN waiting   a step that waits for memory, and gets it
 *   cuda_steps PLUGIN patience  a step that waits for memory, and gets none for ten seconds
 *   cuda_steps PLUGIN holders   a step that finds no memory, and says who holds it
 *   cuda_steps PLUGIN size    a step that is cancelled while an output's size is on its way
 *
 * Each program is planned and run until it has succeeded twice, and its values are those of the
 * CPU. Prints a line for each attempt ("mlp: ok", "mlp: failed: MESSAGE"), for the memory that is
 * still in use at the end ("in use: 0"), and for each call of the driver and of
 * cuBLASLt ("cuMemFree 3"). After a
 * sticky failure of a device the programs keep failing; each is then tried twice, and a step on the
 * CPU must still succeed. MILLRACE_SIM_FAIL says which call fails (tests/cuda/run_failures.py). */
#include <dlfcn.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/graph/graph_text.h"
#include "kernels/cuda/driver_api.h"
#include "kernels/cuda/rows/gpu_plugin.h"
#include "tests/unit/worker/ending.h"
#include "worker/container.h"
#include "worker/executor/executor.h"

enum { N_CPUS = 1, MAX_TRIES = 2, MAX_FETCHES = 4 };

static const char *const names[] = {"/job:worker/replica:0/task:0/device:CPU:0",
                                    "/job:worker/replica:0/task:0/device:GPU:0",
                                    "/job:worker/replica:0/task:0/device:GPU:1"};

static struct device devices[N_CPUS + GPU_MAX_DEVICES];
static int n_devices = N_CPUS;
static struct pool *pool;
static _Thread_local struct container_table *containers; /* its variables are the thread's own */

struct program {
    const char *name;
    int n_fed[2]; /* floats of each feed; 0: there is none */
    int n_fetches;
    const char *text;             /* devices are written @C, @G and @H */
    const char *expected_failure; /* part of the message; NULL: it succeeds */
};

#define FEED "x = _MrFeed() {T=float, index=0}\n"
static const struct program programs[] = {
    {"elementwise",
     {64},
     1,
     FEED "c = Const() {dtype=float, value=float[64]{3, …}} @G\n"
          "a = Mul(x, c) {T=float} @G\n"
          "b = AddV2(a, c) {T=float} @G\n"
          "z = ZerosLike(b) {T=float} @G\n"
          "d = AddV2(b, z) {T=float} @G\n"
          "y = _MrFetch(d) {T=float, index=0}\n"},
    {"products",
     {64},
     2,
     FEED "s = Const() {dtype=int32, value=int32[2]{8, 8}} @C\n"
          "m = Reshape(x, s) {T=float, Tshape=int32} @G\n"
          "p = MatMul(m, m) {T=float, transpose_b=true} @G\n"
          "i = Const() {dtype=int32, value=int32[2]{1, 0}} @C\n"
          "t = Transpose(p, i) {T=float, Tperm=int32} @G\n"
          "k = Const() {dtype=int32, value=int32[1]{0}} @C\n"
          "r = Sum(t, k) {T=float, Tidx=int32} @G\n"
          "y = _MrFetch(r) {T=float, index=0}\n"
          "w = _MrFetch(t) {T=float, index=1}\n"},
    {"many products",
     {64},
     1,
     FEED "s = Const() {dtype=int32, value=int32[3]{2, 4, 8}} @C\n"
          "m = Reshape(x, s) {T=float, Tshape=int32} @G\n"
          "p = BatchMatMulV2(m, m) {T=float, adj_y=true} @G\n"
          "y = _MrFetch(p) {T=float, index=0}\n"},
    {"large values",
     {2200000},
     1, /* three pieces of a copy each way */
     FEED "s = Const() {dtype=int32, value=int32[2]{2, 1100000}} @C\n"
          "a = Reshape(x, s) {T=float, Tshape=int32} @G\n"
          "y = _MrFetch(a) {T=float, index=0}\n"},
    {"two devices",
     {4096},
     1,
     FEED "a = Mul(x, x) {T=float} @G\n"
          "b = AddV2(a, x) {T=float} @H\n"
          "c = AddV2(b, a) {T=float} @G\n"
          "y = _MrFetch(c) {T=float, index=0}\n"},
    {"variables",
     {64},
     1,
     FEED "v = VariableV2() {dtype=float, shape=[64], shared_name=\"v\"} @G\n"
          "a = Assign(v, x) {T=float} @G\n"
          "h = Const() {dtype=float, value=float[]{0.5}} @G\n"
          "u = ApplyGradientDescent(a, h, x) {T=float} @G\n"
          "y = _MrFetch(u) {T=float, index=0}\n"},
    {"many inputs",
     {16},
     1,
     FEED
     "k = Const() {dtype=int32, value=int32[]{0}} @C\n"
     "a = AddN(x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, "
     "x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, "
     "x, x, x, x, x, x, x, x, x, x, x, x, x, x) {T=float, N=70} @G\n"
     "b = ConcatV2(a, x, k) {T=float, N=2, Tidx=int32} @G\n"
     "y = _MrFetch(b) {T=float, index=0}\n"},
    {"out of memory",
     {0},
     1,
     "s = Const() {dtype=int32, value=int32[1]{40000000}} @C\n"
     "f = Const() {dtype=float, value=float[]{1}} @C\n"
     "big = Fill(s, f) {T=float, index_type=int32} @G\n"
     "k = Const() {dtype=int32, value=int32[1]{0}} @C\n"
     "r = Sum(big, k) {T=float, Tidx=int32} @G\n"
     "y = _MrFetch(r) {T=float, index=0}\n",
     "OOM when allocating tensor with shape[40000000] and type float"},
};

/* ---- running ---- */

struct run {
    struct plan *plan;
    struct execution execution;
    struct tensor feeds[2] __attribute__((aligned(64)));
    struct tensor fetches[MAX_FETCHES] __attribute__((aligned(64)));
    struct ending end;
};

static const char *device_of(const char *letter, bool is_on_cpu) {
    if (is_on_cpu || *letter == 'C' || *letter == '\0')
        return names[0];
    return names[*letter == 'G' ? 1 : 2];
}

static struct status *make_plan(const struct program *program, bool is_on_cpu, struct plan **ret) {
    struct graph graph;
    struct plan_options options = {
        .devices = devices, .n_devices = n_devices, .host = &executor_host};
    graph_init(&graph);
    struct status *st = graph_parse(program->text, &graph);
    CHECK(!st);
    for (int i = 0; i < graph.n_nodes; i++)
        graph.nodes[i]->device = device_of(graph.nodes[i]->device, is_on_cpu);
    st = plan_new(&graph, &options, ret);
    graph_fini(&graph);
    return st;
}

static void on_done(struct execution *execution, struct status *status_take) {
    ending_tell(&CONTAINER_OF(execution, struct run, execution)->end, status_take);
}

static void feed(struct run *run, const struct program *program) {
    for (int i = 0; i < 2 && program->n_fed[i] > 0; i++) {
        int64_t n = program->n_fed[i];
        struct status *st =
            tensor_new(allocator_host(), DT_FLOAT, (struct shape){1, &n}, &run->feeds[i]);
        CHECK(!st);
        for (int64_t k = 0; k < n; k++)
            ((float *)tensor_data(&run->feeds[i]))[k] = (float)(k % 13) - 4;
    }
}

static void start_plan(struct run *run, const struct program *program, struct plan *plan) {
    static _Atomic uint64_t n_steps;
    *run = (struct run){.plan = plan, .end = ENDING_INIT};
    feed(run, program);
    execution_init(&run->execution);
    run->execution.plan = plan;
    run->execution.step_id = atomic_fetch_add(&n_steps, 1) + 1;
    run->execution.feeds = run->feeds;
    run->execution.fetches = run->fetches;
    run->execution.containers = containers;
    run->execution.pool = pool;
    run->execution.on_done = on_done;
    execution_start(&run->execution);
}

/* The fetches are the caller's. */
static struct status *end_plan(struct run *run) {
    ending_wait(&run->end);
    execution_fini(&run->execution);
    for (int i = 0; i < 2; i++)
        tensor_clear(&run->feeds[i]);
    return run->end.status;
}

static struct status *run_plan(struct run *run, const struct program *program, struct plan *plan) {
    start_plan(run, program, plan);
    return end_plan(run);
}

static void run_clear(struct run *run) {
    for (int i = 0; i < MAX_FETCHES; i++)
        tensor_clear(&run->fetches[i]);
}

static bool is_near(const struct tensor *a, const struct tensor *b) {
    if (a->n_elements != b->n_elements)
        return false;
    const float *x = tensor_cdata(a), *y = tensor_cdata(b);
    for (int64_t i = 0; i < a->n_elements; i++)
        if (!(fabsf(x[i] - y[i]) <= 1e-4f * (1 + fabsf(y[i]))))
            return false;
    return true;
}

/* ---- programs ---- */

/* One attempt. NULL: it ended as it should. */
static struct status *attempt(const struct program *program, struct plan **plan,
                              const struct run *expected) {
    struct run run;
    if (!*plan)
        TRY(make_plan(program, false, plan));
    struct status *st = run_plan(&run, program, *plan);
    if (!st && expected)
        for (int i = 0; i < program->n_fetches && !st; i++)
            if (!is_near(&run.fetches[i], &expected->fetches[i]))
                st = status_internal("a wrong value");
    run_clear(&run);
    if (program->expected_failure && st && strstr(status_message(st), program->expected_failure)) {
        status_unref(st);
        return NULL;
    }
    return !st && program->expected_failure ? status_internal("it does not fail") : st;
}

/* False: it did not succeed twice. */
static bool run_program(const struct program *program) {
    struct run expected;
    struct plan *cpu_plan = NULL, *plan = NULL;
    bool has_values = !program->expected_failure;
    if (has_values) {
        struct status *st = make_plan(program, true, &cpu_plan);
        CHECK(!st);
        st = run_plan(&expected, program, cpu_plan);
        CHECK(!st);
    }
    int n_ok = 0;
    for (int tries = 0; n_ok < 2 && tries < 2 + MAX_TRIES; tries++) {
        struct status *st = attempt(program, &plan, has_values ? &expected : NULL);
        printf("%s: %s%s\n", program->name, st ? "failed: " : "ok", st ? status_message(st) : "");
        n_ok += !st;
        status_unref(st);
    }
    if (has_values)
        run_clear(&expected);
    plan_unref(plan);
    plan_unref(cpu_plan);
    return n_ok == 2;
}

/* ---- the driver ---- */

static struct {
    unsigned long (*count)(const char *call);
    CUresult (*hold)(int is_held);
} driver;

static void find_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(library);
    *(void **)&driver.count = dlsym(library, "simCallCount");
    *(void **)&driver.hold = dlsym(library, "simHold");
    CHECK(driver.count && driver.hold);
}

static void print_calls(void) {
#define DRIVER_CALL(name, symbol, arguments) printf("call " #name " %lu\n", driver.count(#name));
#include "kernels/cuda/driver_calls.inc"
#define BLAS_CALL(name, arguments) printf("call " #name " %lu\n", driver.count(#name));
#include "kernels/cuda/blas_calls.inc"
}

/* ---- the calls of a warm step ---- */

enum {
    N_CALLS = 0
#define DRIVER_CALL(name, symbol, arguments) +1
#include "kernels/cuda/driver_calls.inc"
};

static const struct call_row {
    const char *name;
    int n; /* of a warm step of the first program; a wait may find that all has ended */
} warm_calls[] = {
    {"cuMemcpyHtoDAsync", 1},                                                   /* the feed */
    {"cuLaunchKernel", 3},    {"cuMemsetD8Async", 1}, {"cuStreamWaitEvent", 1}, /* the fetch */
    {"cuMemcpyDtoHAsync", 1}, {"cuEventRecord", 3},   {"cuEventSynchronize", 2},
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

static bool run_warm(void) {
    static const char *const call_names[] = {
#define DRIVER_CALL(name, symbol, arguments) #name,
#include "kernels/cuda/driver_calls.inc"
    };
    unsigned long before[N_CALLS], after[N_CALLS];
    struct plan *plan = NULL;
    bool is_well = true;
    for (int i = 0; i < 4; i++) {
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

static const struct program on_cpu = {
    "cpu", {64}, 1, FEED "a = Mul(x, x) {T=float} @C\ny = _MrFetch(a) {T=float, index=0}\n"};

/* The device is held; returns when the step has paused, which shows as a wait for an event. */
static void start_ahead(struct run *run, const struct program *program, struct plan *plan) {
    unsigned long n_waits = driver.count("cuEventSynchronize");
    CHECK(driver.hold(1) == 0);
    start_plan(run, program, plan);
    while (driver.count("cuEventSynchronize") == n_waits)
        sched_yield();
}

static bool run_ahead(void) {
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
    free(text);
    return is_well;
}

/* ---- memory that others hold ---- */

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
    "the largest: 6291456 bytes by h6, 5242880 bytes by h5, 4194304 bytes by h4, "
    "3145728 bytes by h3, 2097152 bytes by h2\n"};

static void await_calls(const char *call, unsigned long n) {
    while (driver.count(call) < n)
        sched_yield();
}

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
static bool run_waiting(void) {
    struct pair pair;
    start_both(&pair);
    CHECK(driver.hold(0) == 0);
    CHECK(pthread_join(pair.thread, &pair.table) == 0);
    return end_both(&pair, NULL);
}

/* It waits for ten seconds, and then fails and says who holds the memory. The thread that has
 * started the step waits with it. */
static bool run_patience(void) {
    struct pair pair;
    int64_t begin_ns = clock_now_ns();
    start_both(&pair);
    CHECK(pthread_join(pair.thread, &pair.table) == 0);
    bool is_patient = clock_now_ns() - begin_ns >= INT64_C(10000000000);
    printf("waited for %s ten seconds\n", is_patient ? "at least" : "less than");
    CHECK(driver.hold(0) == 0);
    return end_both(&pair, "the largest: 67108864 bytes by big") && is_patient;
}

/* A step is cancelled while the size of an output is on its way to the host. */
static bool run_cancelled_size(void) {
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

/* ---- all programs at once ---- */

static void *run_all(void *arg) {
    _Atomic int *n_failed = arg;
    containers = container_table_new();
    for (size_t i = 0; i < ARRAY_LEN(programs); i++)
        if (!run_program(&programs[i]))
            atomic_fetch_add(n_failed, 1);
    container_table_free(containers);
    return NULL;
}

static int run_threads(void) {
    enum { N = 3 };
    pthread_t threads[N];
    _Atomic int n_failed = 0;
    for (int i = 0; i < N; i++)
        CHECK(pthread_create(&threads[i], NULL, run_all, &n_failed) == 0);
    for (int i = 0; i < N; i++)
        pthread_join(threads[i], NULL);
    return atomic_load(&n_failed);
}

int main(int argc, char **argv) {
    struct gpu_plugin_options options = {.plugin = argc > 1 ? argv[1] : NULL,
                                         .memory_limit_bytes = 96 << 20};
    const struct gpu_plugin *plugin = NULL;
    int n_gpus = 0, n_failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < N_CPUS + 2; i++) {
        devices[i] = (struct device){.full_name = xstrdup(names[i]), .type = i > 0 ? "GPU" : "CPU"};
        struct status *st = device_name_parse(span_of(names[i]), &devices[i].name);
        CHECK(!st);
    }
    for (int i = N_CPUS + 2; i < N_CPUS + GPU_MAX_DEVICES; i++)
        devices[i].full_name = xstrdup("unused");
    devices[0].allocator = allocator_host();
    pool = pool_new(2);
    containers = container_table_new();
    struct status *st = gpu_plugin_open(&options, &devices[N_CPUS], &n_gpus, &plugin);
    printf("open: %s%s\n", st ? "failed: " : "ok", st ? status_message(st) : "");
    bool is_open = !st;
    status_unref(st);
    n_devices += n_gpus;
    const char *mode = argc > 2 ? argv[2] : "";
    find_driver();
    if (is_open && strcmp(mode, "ahead") == 0)
        n_failed += !run_ahead();
    else if (is_open && strcmp(mode, "warm") == 0)
        n_failed += !run_warm();
    else if (is_open && strcmp(mode, "many") == 0)
        n_failed += run_threads();
    else if (is_open && strcmp(mode, "waiting") == 0)
        n_failed += !run_waiting();
    else if (is_open && strcmp(mode, "patience") == 0)
        n_failed += !run_patience();
    else if (is_open && strcmp(mode, "holders") == 0)
        n_failed += !run_program(&five_holders);
    else if (is_open && strcmp(mode, "size") == 0)
        n_failed += !run_cancelled_size();
    else
        for (size_t i = 0; i < ARRAY_LEN(programs) && is_open; i++)
            n_failed += !run_program(&programs[i]);
    n_failed += !run_program(&on_cpu);
    container_table_free(containers);
    for (int i = N_CPUS; i < n_devices; i++)
        printf("in use: %lld\n", (long long)atomic_load(&devices[i].allocator->in_use_bytes));
    if (is_open)
        plugin->close(&devices[N_CPUS], n_gpus);
    pool_free(pool);
    print_calls();
    printf("programs that did not end well: %d\n", n_failed);
    return 0;
}
