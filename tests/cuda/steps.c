/* Runs steps on two simulated GPUs through the plugin, the planner and the executor, as a worker
 * does: constants, feeds, kernels, matrix products, copies within and between devices, variables,
 * large values, and memory that runs out.
 *
 *   cuda_steps PLUGIN         the programs
 *   cuda_steps PLUGIN ahead   a step that is far ahead of a device which is held back
 *   cuda_steps PLUGIN parted  a step gives up its thread while its work is held back
 *   cuda_steps PLUGIN warm    the calls of the driver that a warm step makes
 *   cuda_steps PLUGIN many    the programs, by several threads at once
 *   cuda_steps PLUGIN kept    products and convolutions that several threads compute again
 *   cuda_steps PLUGIN forgotten  more kinds of products than a device keeps
 *   cuda_steps PLUGIN waiting   a step that waits for memory, and gets it
 *   cuda_steps PLUGIN patience  a step that waits for memory, and gets none for ten seconds
 *   cuda_steps PLUGIN holders   a step that finds no memory, and says who holds it
 *   cuda_steps PLUGIN compiled   fused programs while they are compiled, which may fail
 *   cuda_steps PLUGIN exhausted  steps that find no memory in each of their phases
 *   cuda_steps PLUGIN traced  a traced step, with times of the device
 *   cuda_steps PLUGIN activities   traced training steps, whose rows are printed
 *   cuda_steps PLUGIN "activities left out"   the same, with convolutions that are not captured
 *   cuda_steps PLUGIN "activities at once"   traced steps of several threads
 *   cuda_steps PLUGIN "lost activities"   the devices are lost in a traced step
 *   cuda_steps PLUGIN workspace  convolutions whose best engine wants more memory than there is
 *   cuda_steps PLUGIN planning   a convolution is planned while others enqueue
 *   cuda_steps PLUGIN engines    a convolution whose best engine fails
 *   cuda_steps PLUGIN synced     what follows a SyncDevice waits for the device
 *   cuda_steps PLUGIN hang       a wait for the device does not return
 *   cuda_steps PLUGIN "hanging copies"   copies between devices do not end
 *   cuda_steps PLUGIN "hanging launch"   a launch does not return
 *   cuda_steps PLUGIN "lost PHASE"   the devices are lost in a phase of a step
 *   cuda_steps PLUGIN segments   training loops whose work is replayed as CUDA graphs
 *   cuda_steps PLUGIN "segment failures"   calls about graphs fail
 *   cuda_steps PLUGIN "segments at once"   training loops of several threads on one GPU
 *   cuda_steps PLUGIN "refused captures"   calls fail because their thread captures
 *   cuda_steps PLUGIN transfers  copies through shared memory and between devices, counted
 *   cuda_steps PLUGIN arriving   values that are copied to a GPU while they arrive
 *   cuda_steps PLUGIN "failing peer"   a device fails while another one copies to it
 *   cuda_steps PLUGIN closing    the devices are closed while they copy to each other
 *   cuda_steps PLUGIN team       large copies by several threads, whose calls fail
 *   cuda_steps PLUGIN "hanging team"   a call of such a thread does not return
 *   cuda_steps PLUGIN rdma       a value is written from one GPU into the other by RDMA
 *   cuda_steps PLUGIN "rdma failures"   the driver cannot export or flush
 *   cuda_steps PLUGIN saves      variables are updated while a save copies them
 *   cuda_steps PLUGIN size    a step that is cancelled while an output's size is on its way
 *
 * Each program is planned and run until it has succeeded twice, and its values are those of the
 * CPU. Prints a line for each attempt ("mlp: ok", "mlp: failed: MESSAGE"), for the memory that is
 * still in use at the end ("in use: 0"), and for each call of the driver, cuBLASLt and cuDNN
 * ("cuMemFree 3"). After a sticky failure of a device the programs keep failing; each is then tried
 * twice, and a step on the CPU must still succeed. MILLRACE_SIM_FAIL says which call fails
 * (tests/cuda/run_failures.py). MILLRACE_STEPS_COPY_THREADS is how many threads make a large copy
 * (default 3, whatever the machine has). */
#include "tests/cuda/steps.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

const char *const device_names[3] = {"/job:worker/replica:0/task:0/device:CPU:0",
                                     "/job:worker/replica:0/task:0/device:GPU:0",
                                     "/job:worker/replica:0/task:0/device:GPU:1"};
struct device devices[N_CPUS + GPU_MAX_DEVICES];
int n_devices = N_CPUS;
int n_copy_threads = 3;
bool is_copy_left;
struct pool *pool;
_Thread_local struct container_table *containers;
struct sim_driver driver;

static void find_driver(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    CHECK(library);
    *(void **)&driver.count = dlsym(library, "simCallCount");
    *(void **)&driver.hold = dlsym(library, "simHold");
    *(void **)&driver.block = dlsym(library, "simBlockCall");
    *(void **)&driver.fail = dlsym(library, "simFailCall");
    *(void **)&driver.refuse = dlsym(library, "simRefuseCaptured");
    *(void **)&driver.kill = dlsym(library, "simKillAtCall");
    *(void **)&driver.fail_device = dlsym(library, "simFailDevice");
    *(void **)&driver.set_workspace = dlsym(library, "simSetWorkspace");
    *(void **)&driver.on_flush = dlsym(library, "simOnFlush");
    CHECK(driver.count && driver.hold && driver.block && driver.fail && driver.refuse &&
          driver.kill && driver.fail_device && driver.set_workspace && driver.on_flush);
}

void await_calls(const char *call, unsigned long n) {
    while (driver.count(call) < n)
        sched_yield();
}

static void print_calls(void) {
#define DRIVER_CALL(name, symbol, arguments) printf("call " #name " %lu\n", driver.count(#name));
#include "kernels/cuda/driver_calls.inc"
#define BLAS_CALL(name, arguments) printf("call " #name " %lu\n", driver.count(#name));
#include "kernels/cuda/blas_calls.inc"
#define DNN_CALL(name, arguments) printf("call " #name " %lu\n", driver.count(#name));
#include "kernels/cuda/dnn_calls.inc"
}

/* ---- all programs at once ---- */

static void *run_all(void *arg) {
    _Atomic int *n_failed = arg;
    containers = container_table_new();
    for (size_t i = 0; i < n_programs; i++)
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

/* What is found once for a kind of product or convolution is found again by whoever asks, also by
 * other threads, and while the kinds of others are looked for. */
static bool run_kept(void) {
    static const char *const calls[] = {"cublasLtMatmulAlgoGetHeuristic", /* a new product */
                                        "cudnnBackendGetAttribute"};      /* a new convolution */
    unsigned long before[ARRAY_LEN(calls)];
    bool is_well = true;
    for (size_t i = 0; i < n_programs; i++)
        is_well &= run_program(&programs[i]);
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        before[i] = driver.count(calls[i]);
    is_well &= run_threads() == 0;
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        unsigned long n = driver.count(calls[i]) - before[i];
        printf("%s: called %lu times for kinds that are known\n", calls[i], n);
        is_well &= n == 0;
    }
    return is_well;
}

static const struct mode {
    const char *name;
    bool (*run)(void);
} modes[] = {
    {"ahead", run_ahead},
    {"parted", run_parted},
    {"warm", run_warm},
    {"kept", run_kept},
    {"forgotten", run_forgotten},
    {"waiting", run_waiting},
    {"patience", run_patience},
    {"holders", run_holders},
    {"exhausted", run_exhausted},
    {"compiled", run_compiled},
    {"size", run_cancelled_size},
    {"traced", run_traced},
    {"activities", run_activities},
    {"activities left out", run_activities_left_out},
    {"activities at once", run_activities_at_once},
    {"lost activities", run_lost_activities},
    {"workspace", run_workspace},
    {"planning", run_planning},
    {"engines", run_engines},
    {"synced", run_synced},
    {"hang", run_hang},
    {"hanging launch", run_hanging_launch},
    {"hanging copies", run_hanging_copies},
    {"described", run_described},
    {"rdma", run_rdma},
    {"rdma failures", run_rdma_failures},
    {"saves", run_saves},
    {"segments", run_segments},
    {"segment failures", run_segment_failures},
    {"refused captures", run_refused_captures},
    {"segments at once", run_segments_at_once},
    {"transfers", run_transfers},
    {"arriving", run_arriving},
    {"failing peer", run_failing_peer},
    {"closing", run_closing},
    {"team", run_team},
    {"hanging team", run_hanging_team},
};

static bool (*mode_find(const char *name))(void) {
    for (size_t i = 0; i < ARRAY_LEN(modes); i++)
        if (strcmp(modes[i].name, name) == 0)
            return modes[i].run;
    return NULL;
}

/* A copy between devices may outlive its step, and a copier's thread then releases what it held. */
static long long in_use_at_the_end(const struct device *device) {
    enum { PATIENCE_S = 20 };
    time_t deadline = time(NULL) + PATIENCE_S;
    long long in_use;
    while ((in_use = (long long)atomic_load(&device->allocator->in_use_bytes)) != 0 &&
           time(NULL) < deadline)
        sched_yield();
    return in_use;
}

static void print_description(const struct gpu_plugin *plugin) {
    struct str text = STR_INIT;
    plugin->describe(&text);
    printf("described: %s\n", str_text(&text));
    str_fini(&text);
}

int main(int argc, char **argv) {
    const char *threads = getenv("MILLRACE_STEPS_COPY_THREADS"),
               *trace = getenv("MILLRACE_STEPS_TRACE");
    if (threads)
        n_copy_threads = (int)strtol(threads, NULL, 10);
    struct gpu_plugin_options options = {.plugin = argc > 1 ? argv[1] : NULL,
                                         .memory_limit_bytes = 96 << 20,
                                         .n_copy_threads = n_copy_threads,
                                         .allow_tf32 = true,
                                         .has_graphs = true,
                                         .has_activities = trace && strcmp(trace, "auto") == 0};
    const struct gpu_plugin *plugin = NULL;
    int n_gpus = 0, n_failed = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < N_CPUS + 2; i++) {
        devices[i] =
            (struct device){.full_name = xstrdup(device_names[i]), .type = i > 0 ? "GPU" : "CPU"};
        struct status *st = device_name_parse(span_of(device_names[i]), &devices[i].name);
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
    bool (*const run)(void) = mode_find(mode);
    if (is_open && run)
        n_failed += !run();
    else if (is_open && strncmp(mode, "lost ", 5) == 0)
        n_failed += !run_lost(mode + 5);
    else if (is_open && strcmp(mode, "many") == 0)
        n_failed += run_threads();
    else
        for (size_t i = 0; i < n_programs && is_open; i++)
            n_failed += !run_program(&programs[i]);
    if (is_open && !*mode)
        n_failed += !run_transfers_program() + !run_arriving_program();
    n_failed += !run_program(&on_cpu);
    if (is_open)
        print_description(plugin);
    container_table_free(containers);
    for (int i = N_CPUS; i < n_devices && !is_copy_left; i++)
        printf("in use: %lld\n", in_use_at_the_end(&devices[i]));
    if (is_open)
        plugin->close(&devices[N_CPUS], n_gpus);
    n_failed += !end_transfers();
    n_failed += !end_closing();
    n_failed += !end_team();
    pool_free(pool);
    print_calls();
    printf("programs that did not end well: %d\n", n_failed);
    return 0;
}
