/* gpu_rates: what launches, allocations and copies of a GPU cost, beside the bare driver's calls. A
 * part of tools/gpu_run.
 *
 *   GRAPH_EVAL_GPU=PLUGIN gpu_rates GRAPHDEF COPY_MIB
 *   GRAPH_EVAL_GPU=PLUGIN gpu_rates GRAPHDEF replay      only what replayed segments cost
 *
 * The graph has a Const "x" and an op "y" of it that launches one kernel. Prints JSON: times in ns,
 * rates in bytes a second, medians of rounds. A figure that cannot be measured is null: a simulated
 * driver has no kernel for the bare launch. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/gpu_pieces.h"
#include "common/base/clock.h"
#include "common/graph/graph_proto.h"
#include "kernels/cuda/driver_api.h"
#include "tests/tools/test_device.h"
#include "tests/tools/test_host.h"

/* Fewer launches than a driver queues without blocking. */
enum { ROUNDS = 41, LAUNCHES = 500, BLOCKS = 1000, COPIES = 7, BLOCK_BYTES = 4096 };

/* Parts of two segments: an MLP's training step, and twice as many. A round has several, since
 * the clock is coarse beside one. */
enum { PARTS = 29, MORE_PARTS = 2 * PARTS, SEGMENTS = 4, WARM_SEGMENTS = 5 };

/* The bare launch has an argument as large as an elementwise kernel's. */
enum { ARGS_BYTES = 64 };
static const char nothing_ptx[] = ".version 7.0\n"
                                  ".target sm_75\n"
                                  ".address_size 64\n"
                                  ".visible .entry nothing(.param .align 8 .b8 args[64]) { ret; }";

struct bench {
    struct driver_api api;
    struct device *device;
    CUstream stream;
    char *pinned;
    CUdeviceptr memory[2];
    size_t copy_bytes;
};

static void must(struct status *st) {
    if (!st)
        return;
    fprintf(stderr, "gpu_rates: %s\n", status_message(st));
    exit(70);
}

static void must_call(CUresult error, const char *what) {
    if (error == CUDA_SUCCESS)
        return;
    fprintf(stderr, "gpu_rates: %s failed with %d\n", what, (int)error);
    exit(70);
}

static int compare_double(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, size_t n) {
    qsort(values, n, sizeof *values, compare_double);
    return values[n / 2];
}

static void print(const char *name, double value) {
    if (isnan(value))
        printf(", \"%s\": null", name);
    else
        printf(", \"%s\": %.6g", name, value);
}

/* ---- set up ---- */

static void open_driver(struct bench *bench) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    CHECK(library); /* the plugin has opened it */
#define DRIVER_CALL(name, symbol, arguments) *(void **)&bench->api.name = dlsym(library, #symbol);
#include "kernels/cuda/driver_calls.inc"
    CUdevice device;
    CUcontext context;
    must_call(bench->api.cuDeviceGet(&device, 0), "cuDeviceGet");
    must_call(bench->api.cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    must_call(bench->api.cuCtxSetCurrent(context), "cuCtxSetCurrent");
    must_call(bench->api.cuStreamCreateWithPriority(&bench->stream, CU_STREAM_NON_BLOCKING, 0),
              "cuStreamCreateWithPriority");
    must_call(bench->api.cuMemHostAlloc((void **)&bench->pinned, bench->copy_bytes, 0),
              "cuMemHostAlloc");
    for (int i = 0; i < 2; i++)
        must_call(bench->api.cuMemAlloc(&bench->memory[i], bench->copy_bytes), "cuMemAlloc");
    memset(bench->pinned, 1, bench->copy_bytes);
}

/* The kernel's instance, and its input in the device's memory. */
static const struct kernel_instance *prepare(struct test_graph *graph, const char *path,
                                             struct device *device, struct tensor *input) {
    struct graph_limits limits;
    struct str bytes = STR_INIT;
    struct tensor value = TENSOR_INIT;
    const char *x = "x:0", *y = "y";
    char chunk[4096];
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "gpu_rates: cannot read %s\n", path);
        exit(66);
    }
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, file)) > 0;)
        str_add_bytes(&bytes, chunk, n);
    fclose(file);
    graph_limits_default(&limits);
    must(graph_add_graphdef(&graph->graph, (struct span){bytes.data, bytes.len}, &limits));
    must(test_graph_prepare(graph));
    must(test_graph_run(graph, NULL, 0, &x, 1, &y, 1, &value));
    must(test_device_upload(device, &value, input));
    tensor_clear(&value);
    str_fini(&bytes);
    for (int i = 0; i < graph->graph.n_nodes; i++)
        if (strcmp(graph->graph.nodes[i]->name, "y") == 0)
            return &graph->instances[i];
    CHECK(false);
    return NULL;
}

/* ---- launches and allocations ---- */

static void launch(const struct kernel_instance *instance, struct test_host *host,
                   const struct tensor *input) {
    struct tensor in = TENSOR_INIT, out = TENSOR_INIT;
    tensor_copy(&in, input);
    struct kernel_ctx ctx = {
        .inputs = &in, .outputs = &out, .instance = instance, .host = &host->host};
    CHECK(instance->compute(&ctx) == KERNEL_DONE);
    must(ctx.status);
    tensor_clear(&in);
    tensor_clear(&out);
}

static void measure_launches(struct bench *bench, const struct kernel_instance *instance,
                             struct test_host *host, const struct tensor *input) {
    double rounds[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        int64_t began = clock_now_ns();
        for (int i = 0; i < LAUNCHES; i++)
            launch(instance, host, input);
        rounds[r] = (double)(clock_now_ns() - began) / LAUNCHES;
        must(test_device_wait(bench->device));
    }
    print("kernel_ns", median(rounds, ROUNDS));
}

/* ---- replayed segments ---- */

static void run_segment(struct bench *bench, const struct kernel_instance *instance,
                        struct test_host *host, const struct tensor *input, int n_parts) {
    for (int i = 0; i < n_parts; i++)
        launch(instance, host, input);
    must(bench->device->ops->flush(bench->device, NULL));
}

static uint64_t n_replays(struct device *device) {
    uint64_t counts[N_DEVICE_COUNTS];
    device->ops->counts(device, counts);
    return counts[DEVICE_REPLAYS];
}

/* How long the host is busy with a segment, in ns; NAN if segments were not replayed. */
static double segment_ns(struct bench *bench, const struct kernel_instance *instance,
                         struct test_host *host, const struct tensor *input, int n_parts) {
    double rounds[ROUNDS];
    for (int i = 0; i < WARM_SEGMENTS; i++)
        run_segment(bench, instance, host, input, n_parts);
    must(test_device_wait(bench->device));
    uint64_t before = n_replays(bench->device);
    for (int r = 0; r < ROUNDS; r++) {
        int64_t began = clock_now_ns();
        for (int i = 0; i < SEGMENTS; i++)
            run_segment(bench, instance, host, input, n_parts);
        rounds[r] = (double)(clock_now_ns() - began) / SEGMENTS;
        must(test_device_wait(bench->device));
    }
    bool is_replayed = n_replays(bench->device) - before == (uint64_t)ROUNDS * SEGMENTS;
    return is_replayed ? median(rounds, ROUNDS) : NAN;
}

/* The kernels' host code runs for each part, replayed or not; the rest is what a replay costs. */
static void measure_replays(struct bench *bench, const struct kernel_instance *instance,
                            struct test_host *host, const struct tensor *input) {
    /* the longer one first, else it would be replayed as two of the shorter one */
    double many = segment_ns(bench, instance, host, input, MORE_PARTS);
    double few = segment_ns(bench, instance, host, input, PARTS);
    double part = (many - few) / (MORE_PARTS - PARTS);
    printf("{\"replay_parts\": %d", PARTS);
    print("replay_part_ns", part);
    print("replay_ns", few - PARTS * part);
    print("replay_whole_ns", few);
    printf("}\n");
}

static void measure_bare_launches(struct bench *bench) {
    double rounds[ROUNDS];
    char args[ARGS_BYTES] = {0};
    void *arguments[] = {args};
    CUlibrary library;
    CUkernel kernel;
    CUfunction function;
    if (bench->api.cuLibraryLoadData(&library, nothing_ptx, NULL, NULL, 0, NULL, NULL, 0) ||
        bench->api.cuLibraryGetKernel(&kernel, library, "nothing") ||
        bench->api.cuKernelGetFunction(&function, kernel)) {
        printf(", \"bare_launch_ns\": null");
        return;
    }
    for (int r = 0; r < ROUNDS; r++) {
        int64_t began = clock_now_ns();
        for (int i = 0; i < LAUNCHES; i++)
            must_call(bench->api.cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, bench->stream,
                                                arguments, NULL),
                      "cuLaunchKernel");
        rounds[r] = (double)(clock_now_ns() - began) / LAUNCHES;
        must_call(bench->api.cuStreamSynchronize(bench->stream), "cuStreamSynchronize");
    }
    print("bare_launch_ns", median(rounds, ROUNDS));
}

static void measure_allocations(struct bench *bench) {
    double rounds[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        int64_t began = clock_now_ns();
        for (int i = 0; i < BLOCKS; i++) {
            struct buffer *buffer = buffer_alloc(bench->device->allocator, BLOCK_BYTES);
            CHECK(buffer);
            buffer_unref(buffer);
        }
        rounds[r] = (double)(clock_now_ns() - began) / BLOCKS;
    }
    print("alloc_free_ns", median(rounds, ROUNDS));
}

/* ---- copies ---- */

enum direction { TO_DEVICE, TO_HOST, WITHIN };

static double bare_copy_rate(struct bench *bench, enum direction direction) {
    double rates[COPIES];
    size_t n = bench->copy_bytes;
    for (int i = 0; i < COPIES; i++) {
        int64_t began = clock_now_ns();
        CUresult error =
            direction == TO_DEVICE
                ? bench->api.cuMemcpyHtoDAsync(bench->memory[0], bench->pinned, n, bench->stream)
            : direction == TO_HOST
                ? bench->api.cuMemcpyDtoHAsync(bench->pinned, bench->memory[0], n, bench->stream)
                : bench->api.cuMemcpyDtoDAsync(bench->memory[1], bench->memory[0], n,
                                               bench->stream);
        must_call(error, "a copy");
        must_call(bench->api.cuStreamSynchronize(bench->stream), "cuStreamSynchronize");
        rates[i] = (double)n / ((double)(clock_now_ns() - began) / 1e9);
    }
    return median(rates, COPIES);
}

/* What a feed and a fetch of one large tensor get. */
static void measure_tensor_copies(struct bench *bench) {
    double to_device[COPIES], to_host[COPIES];
    int64_t n = (int64_t)bench->copy_bytes;
    for (int i = 0; i < COPIES; i++) {
        struct tensor value = TENSOR_INIT, there = TENSOR_INIT, back = TENSOR_INIT;
        must(tensor_new(allocator_host(), DT_UINT8, (struct shape){1, &n}, &value));
        memset(tensor_data(&value), i, (size_t)n);
        int64_t began = clock_now_ns();
        must(test_device_upload(bench->device, &value, &there));
        must(test_device_wait(bench->device));
        int64_t uploaded = clock_now_ns();
        must(test_device_download(bench->device, &there, &back));
        int64_t ended = clock_now_ns();
        CHECK(memcmp(tensor_cdata(&value), tensor_cdata(&back), (size_t)n) == 0);
        to_device[i] = (double)n / ((double)(uploaded - began) / 1e9);
        to_host[i] = (double)n / ((double)(ended - uploaded) / 1e9);
        tensor_clear(&value);
        tensor_clear(&there);
        tensor_clear(&back);
    }
    print("feed_rate", median(to_device, COPIES));
    print("fetch_rate", median(to_host, COPIES));
}

/* What a value gets on its way from one GPU over a link to another. */
static void measure_links(struct bench *bench) {
    struct pieces_rates rates;
    measure_pieces(bench->device, bench->copy_bytes, &rates);
    print("sent_whole_rate", rates.sent_whole);
    print("sent_in_pieces_rate", rates.sent_in_pieces);
    print("received_whole_rate", rates.received_whole);
    print("received_in_pieces_rate", rates.received_in_pieces);
    print("link_rate", rates.link);
}

static void measure_all(struct bench *bench, const struct kernel_instance *instance,
                        struct test_host *host, const struct tensor *input) {
    open_driver(bench);
    printf("{\"copy_bytes\": %zu", bench->copy_bytes);
    measure_launches(bench, instance, host, input);
    measure_bare_launches(bench);
    measure_allocations(bench);
    print("pinned_to_device_rate", bare_copy_rate(bench, TO_DEVICE));
    print("pinned_to_host_rate", bare_copy_rate(bench, TO_HOST));
    print("within_rate", bare_copy_rate(bench, WITHIN));
    measure_tensor_copies(bench);
    measure_links(bench);
    printf("}\n");
}

int main(int argc, char **argv) {
    bool is_replay = argc == 3 && strcmp(argv[2], "replay") == 0;
    if (is_replay)
        setenv("GRAPH_EVAL_GRAPHS", "1", 1);
    struct bench bench = {.device = test_device()};
    if (argc != 3 || !bench.device) {
        fprintf(stderr, "usage: GRAPH_EVAL_GPU=PLUGIN gpu_rates GRAPHDEF COPY_MIB|replay\n");
        return 64;
    }
    bench.copy_bytes = (size_t)strtoul(argv[2], NULL, 10) << 20;
    struct test_host *host = test_host_new(0);
    struct test_graph graph;
    struct tensor input = TENSOR_INIT;
    test_graph_init(&graph, host);
    const struct kernel_instance *instance = prepare(&graph, argv[1], bench.device, &input);
    (is_replay ? measure_replays : measure_all)(&bench, instance, host, &input);
    tensor_clear(&input);
    test_graph_fini(&graph);
    test_host_free(host);
    return 0;
}
