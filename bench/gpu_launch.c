/* What a node on a GPU costs the host: the executor's work, the kernel's host code, the allocator,
 * the launch. The driver is the simulated one in its mode "null", whose calls return at once.
 *
 *   bench/gpu_launch [--nodes N] [--repeat R] [--only TEXT]
 *
 * Each row is a chain of N nodes. The first row is a chain of equal length on the CPU, whose
 * kernels do next to nothing: what a row costs above it is the price of a launched node. Figures
 * are those of the fastest step of R repeats, which take turns. With --only the rows whose names
 * have TEXT run alone, so that a profiler's counts are theirs; the last line says of how many
 * nodes. */
#define PROGRAM "bench/gpu_launch"
#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "bench/bench_graph.h"
#include "common/base/clock.h"
#include "kernels/cuda/rows/gpu_plugin.h"
#include "tests/unit/worker/ending.h"
#include "worker/container.h"
#include "worker/executor/executor.h"

static const char CPU[] = "/job:worker/replica:0/task:0/device:CPU:0";
static const char GPU[] = "/job:worker/replica:0/task:0/device:GPU:0";
static struct device devices[1 + GPU_MAX_DEVICES];
static struct container_table *containers;

/* ---- graphs ---- */

static struct node *zeros(struct graph *graph, struct shape shape, const char *device) {
    struct tensor value = TENSOR_INIT;
    die(tensor_new_zeroed(allocator_host(), DT_FLOAT, shape, &value));
    struct node *node = add_const(graph, "Const", &value, device);
    tensor_clear(&value);
    return node;
}

static struct node *floats(struct graph *graph, int64_t n, const char *device) {
    int64_t dims[] = {n / 8, 8};
    return zeros(graph, n > 1 ? (struct shape){2, dims} : SHAPE_SCALAR, device);
}

static void add_chain(struct graph *graph, int n, const char *device, int64_t size) {
    struct node *one = floats(graph, size, device), *at = floats(graph, size, device);
    for (int i = 0; i < n; i++) {
        struct node *node = add_node(graph, "AddV2", "AddV2", device);
        node_set_attr_type(graph, node, "T", DT_FLOAT);
        node_add_input(graph, node, at, 0);
        node_add_input(graph, node, one, 0);
        die(node_finish(graph, node));
        at = node;
    }
}

static void cpu_chain(struct graph *graph, int n) { add_chain(graph, n, CPU, 1); }
static void gpu_chain(struct graph *graph, int n) { add_chain(graph, n, GPU, 64); }

static void transposes(struct graph *graph, int n) {
    struct tensor order = TENSOR_INIT;
    int64_t two = 2;
    die(tensor_new(allocator_host(), DT_INT32, (struct shape){1, &two}, &order));
    ((int32_t *)tensor_data(&order))[0] = 1;
    ((int32_t *)tensor_data(&order))[1] = 0;
    struct node *perm = add_const(graph, "Const", &order, CPU), *at = floats(graph, 64, GPU);
    tensor_clear(&order);
    for (int i = 0; i < n; i++) {
        struct node *node = add_node(graph, "Transpose", "Transpose", GPU);
        node_set_attr_type(graph, node, "T", DT_FLOAT);
        node_set_attr_type(graph, node, "Tperm", DT_INT32);
        node_add_input(graph, node, at, 0);
        node_add_input(graph, node, perm, 0);
        die(node_finish(graph, node));
        at = node;
    }
}

/* A value in [1, 8, 8, 4] and a filter that keeps its shape; cuDNN wants the filter transposed, so
 * a node launches a kernel and runs a plan. */
static void convolutions(struct graph *graph, int n) {
    int64_t image[] = {1, 8, 8, 4}, window[] = {3, 3, 4, 4};
    struct attr_value ones[4], strides = {.type = ATTR_LIST_INT, .list = {ones, 4}};
    struct node *at = zeros(graph, (struct shape){4, image}, GPU),
                *filter = zeros(graph, (struct shape){4, window}, GPU);
    for (int i = 0; i < 4; i++)
        ones[i] = (struct attr_value){.type = ATTR_INT, .i = 1};
    for (int i = 0; i < n; i++) {
        struct node *node = add_node(graph, "Conv2D", "Conv2D", GPU);
        node_set_attr_type(graph, node, "T", DT_FLOAT);
        node_set_attr(graph, node, "strides", &strides);
        node_set_attr_s(graph, node, "padding", "SAME");
        node_add_input(graph, node, at, 0);
        node_add_input(graph, node, filter, 0);
        die(node_finish(graph, node));
        at = node;
    }
}

static void products(struct graph *graph, int n) {
    int64_t dims[] = {8, 8};
    struct node *at = zeros(graph, (struct shape){2, dims}, GPU),
                *weights = zeros(graph, (struct shape){2, dims}, GPU);
    for (int i = 0; i < n; i++) {
        struct node *node = add_node(graph, "MatMul", "MatMul", GPU);
        node_set_attr_type(graph, node, "T", DT_FLOAT);
        node_add_input(graph, node, at, 0);
        node_add_input(graph, node, weights, 0);
        die(node_finish(graph, node));
        at = node;
    }
}

static const struct row {
    const char *name;
    void (*build)(struct graph *graph, int n);
    bool is_in_place;
} rows[] = {
    {"AddV2 of scalars on the CPU", cpu_chain, true},
    {"AddV2 in place", gpu_chain, true},
    {"AddV2 with a fresh output", gpu_chain, false},
    {"Transpose, by the engine", transposes, true},
    {"MatMul", products, true},
    {"Conv2D", convolutions, true},
};

/* ---- running ---- */

struct run {
    struct execution execution;
    struct ending end;
};

static void on_done(struct execution *execution, struct status *status_take) {
    ending_tell(&CONTAINER_OF(execution, struct run, execution)->end, status_take);
}

static void run_step(struct plan *plan, struct run *run) {
    static uint64_t n_steps;
    execution_init(&run->execution);
    run->execution.plan = plan;
    run->execution.step_id = ++n_steps;
    run->execution.containers = containers;
    run->execution.on_done = on_done;
    execution_start(&run->execution);
    ending_wait(&run->end);
    die(run->end.status);
    ending_reset(&run->end);
    execution_fini(&run->execution);
}

static int steps_of(int n) { return 1 + 200000 / n; } /* of one repeat */

static int64_t n_ran(int n, int repeat) { return (int64_t)n * steps_of(n) * (repeat + 1); }

/* Nanoseconds a node, of the fastest step. */
static double measure(struct plan *plan, int n, bool is_in_place) {
    struct run run = {.end = ENDING_INIT};
    int64_t best_ns = INT64_MAX;
    kernel_set_in_place(is_in_place);
    for (int i = 0; i < steps_of(n); i++) {
        int64_t start_ns = clock_now_ns();
        run_step(plan, &run);
        best_ns = MIN(best_ns, clock_now_ns() - start_ns);
    }
    return (double)best_ns / n;
}

static double measure_alloc(void) {
    enum { N_ROUNDS = 100, N = 2000, ALIVE = 8 };
    struct allocator *allocator = devices[1].allocator;
    struct buffer *alive[ALIVE] = {NULL};
    int64_t best_ns = INT64_MAX;
    for (int round = 0; round < N_ROUNDS; round++) {
        int64_t start_ns = clock_now_ns();
        for (int i = 0; i < N; i++) {
            buffer_unref(alive[i % ALIVE]);
            alive[i % ALIVE] = buffer_alloc(allocator, (size_t)(i % 7 + 1) * 4000);
        }
        best_ns = MIN(best_ns, clock_now_ns() - start_ns);
    }
    for (int i = 0; i < ALIVE; i++)
        buffer_unref(alive[i]);
    return (double)best_ns / N;
}

/* ---- the beginning ---- */

/* The library is found by its soname once it is loaded. */
static void open_gpu(void) {
    char self[PATH_MAX], path[PATH_MAX + 64], plugin_path[PATH_MAX + 64];
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    const char *folder = len > 0 ? (self[len] = '\0', dirname(self)) : ".";
    snprintf(path, sizeof path, "%s/../tests/cuda/sim/libcuda.so.1", folder);
    snprintf(plugin_path, sizeof plugin_path, "%s/../kernels/cuda/millrace-cuda.so", folder);
    setenv("MILLRACE_SIM_MODE", "null", 1);
    setenv("MILLRACE_SIM_DEVICES", "1", 1);
    if (!dlopen(path, RTLD_NOW | RTLD_LOCAL))
        die(status_unavailable("%s", dlerror()));
    struct gpu_plugin_options options = {.plugin = plugin_path};
    const struct gpu_plugin *plugin;
    int n;
    for (int i = 0; i < GPU_MAX_DEVICES; i++)
        devices[1 + i].full_name = (char *)(uintptr_t)GPU;
    die(device_name_parse(span_of(CPU), &devices[0].name));
    die(device_name_parse(span_of(GPU), &devices[1].name));
    devices[0].full_name = (char *)(uintptr_t)CPU;
    devices[0].type = "CPU";
    devices[0].allocator = allocator_host();
    die(gpu_plugin_open(&options, &devices[1], &n, &plugin));
}

int main(int argc, char **argv) {
    int n = 2000, repeat = 7;
    const char *only = "";
    struct plan *plans[ARRAY_LEN(rows)];
    double best[ARRAY_LEN(rows)] = {0}, alloc_ns = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--nodes") == 0)
            n = (int)strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--repeat") == 0)
            repeat = (int)strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--only") == 0)
            only = argv[i + 1];
    }
    open_gpu();
    containers = container_table_new();
    for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
        struct graph graph;
        struct plan_options options = {.devices = devices, .n_devices = 2, .host = &executor_host};
        graph_init(&graph);
        rows[r].build(&graph, n);
        die(plan_new(&graph, &options, &plans[r]));
        graph_fini(&graph);
    }
    for (int k = 0; k <= repeat; k++) { /* the first warms up */
        for (size_t r = 0; r < ARRAY_LEN(rows); r++) {
            double ns = strstr(rows[r].name, only) ? measure(plans[r], n, rows[r].is_in_place) : 0;
            best[r] = k < 2 ? ns : MIN(best[r], ns);
        }
        double ns = *only ? 0 : measure_alloc();
        alloc_ns = k < 2 ? ns : MIN(alloc_ns, ns);
    }
    for (size_t r = 0; r < ARRAY_LEN(rows); r++)
        if (best[r] > 0 && best[0] > 0)
            printf("%-30s %7.1f ns a node, %7.1f above the CPU's\n", rows[r].name, best[r],
                   best[r] - best[0]);
        else if (best[r] > 0)
            printf("%-30s %7.1f ns a node\n", rows[r].name, best[r]);
    if (!*only)
        printf("%-30s %7.1f ns\n", "alloc and free", alloc_ns);
    printf("%lld nodes of each row ran\n", (long long)n_ran(n, repeat));
    return 0;
}
