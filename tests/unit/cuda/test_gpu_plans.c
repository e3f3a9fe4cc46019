/* cuDNN has a plan for each convolution of common networks, on five architectures. No GPU is
 * needed, because cuDNN is told what the GPU is like, by public figures. Skipped without cuDNN. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/base.h"
#include "kernels/cpu/nn/conv.h"
#include "kernels/cuda/dnn.h"

/* LeakSanitizer asks for this. NVIDIA's libraries keep what they make when a process first uses
 * them, and are closed before the end, so that no suppression finds their names. */
int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return 1; }

/* ---- architectures ---- */

static const struct gpu {
    int version, n_multiprocessors, threads, blocks, shared, reserved, l2, clock, memory_clock;
    int64_t memory;
    const char *name;
} gpus[] = {
    {750, 40, 1024, 16, 65536, 0, 4 << 20, 1590000, 5001000, 16LL << 30, "Tesla T4"},
    {800, 108, 2048, 32, 166912, 1024, 40 << 20, 1410000, 1215000, 40LL << 30, "A100"},
    {890, 58, 1536, 24, 101376, 1024, 48 << 20, 2040000, 6251000, 24LL << 30, "L4"},
    {900, 132, 2048, 32, 232448, 1024, 50 << 20, 1980000, 2619000, 80LL << 30, "H100"},
    {1000, 148, 2048, 32, 232448, 1024, 126 << 20, 1965000, 3996000, 180LL << 30, "B200"},
};

static void describe(const struct gpu *gpu, char *json, size_t size) {
    int n = snprintf(
        json, size,
        "{\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
        "\"regsPerBlock\":65536,\"multiProcessorCount\":%d,\"warpSize\":32,"
        "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":%d,"
        "\"reservedSharedMemoryPerBlock\":%d,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":%d,"
        "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":%d,\"pciDeviceId\":0,\"isTccDriver\":0,"
        "\"supportCoopLaunch\":1,\"smClockRateKHz\":%d,\"memClockRateKHz\":%d,"
        "\"l2CacheSize\":%d,\"deviceName\":\"%s\",\"deviceVer\":%d,\"driverVer\":13000,"
        "\"cudaDeviceId\":0,\"totalGlobalMem\":%lld}",
        gpu->n_multiprocessors, gpu->shared, gpu->reserved, gpu->blocks, gpu->threads, gpu->clock,
        gpu->memory_clock, gpu->l2, gpu->name, gpu->version, (long long)gpu->memory);
    assert_true(n > 0 && (size_t)n < size);
}

/* ---- convolutions ---- */

static const struct convolution {
    const char *name;
    struct conv_shape shape;
    bool is_channels_first;
} convolutions[] = {
    {"3 by 3",
     {8, 64, 128, 1, {1, 56, 56}, {1, 56, 56}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}}},
    {"channels first",
     {8, 64, 128, 1, {1, 56, 56}, {1, 56, 56}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}},
     true},
    {"the first layer of AlexNet",
     {8, 3, 96, 1, {1, 224, 224}, {1, 56, 56}, {1, 11, 11}, {1, 4, 4}, {1, 1, 1}, {0, 3, 3}}},
    {"one more pixel of padding after than before",
     {8, 32, 64, 1, {1, 112, 112}, {1, 56, 56}, {1, 3, 3}, {1, 2, 2}, {1, 1, 1}, {0, 0, 0}}},
    {"a pixel",
     {8, 256, 64, 1, {1, 28, 28}, {1, 28, 28}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0}}},
    {"dilated",
     {4, 32, 32, 1, {1, 30, 30}, {1, 30, 30}, {1, 3, 3}, {1, 1, 1}, {1, 2, 2}, {0, 2, 2}}},
    {"groups",
     {4, 64, 64, 4, {1, 28, 28}, {1, 28, 28}, {1, 3, 3}, {1, 1, 1}, {1, 1, 1}, {0, 1, 1}}},
    {"a volume",
     {2, 16, 32, 1, {8, 28, 28}, {8, 28, 28}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}}},
};

static void plan_all(enum dtype dtype, int least_version, int64_t most_workspace_bytes) {
    if (gpu_dnn_missing())
        skip();
    for (size_t g = 0; g < ARRAY_LEN(gpus); g++) {
        char json[2048];
        describe(&gpus[g], json, sizeof json);
        for (size_t i = 0; i < ARRAY_LEN(convolutions) && gpus[g].version >= least_version; i++) {
            for (int d = 0; d < CONV_N_DIRECTIONS; d++) {
                struct conv_job job = {.direction = (enum conv_direction)d,
                                       .dtype = dtype,
                                       .is_channels_first = convolutions[i].is_channels_first,
                                       .shape = &convolutions[i].shape};
                int64_t workspace_bytes = -1;
                struct status *st =
                    gpu_dnn_plan_for(json, &job, most_workspace_bytes, &workspace_bytes);
                if (st)
                    fail_msg("%s, direction %d on %s: %s", convolutions[i].name, d, gpus[g].name,
                             status_message(st));
                assert_in_range(workspace_bytes, 0, most_workspace_bytes);
            }
        }
    }
}

static void float_has_plans(void **state) { plan_all(DT_FLOAT, 0, 512 << 20); }
static void half_has_plans(void **state) { plan_all(DT_HALF, 0, 512 << 20); }
static void bfloat16_has_plans(void **state) { plan_all(DT_BFLOAT16, 800, 512 << 20); }
static void double_has_plans(void **state) { plan_all(DT_DOUBLE, 0, 512 << 20); }

static void open_library(bool allow_tf32) {
    gpu_dnn_open("/usr/local/cuda/lib:/usr/local/cuda/lib64", allow_tf32, NULL);
}

static void float_has_plans_without_tf32(void **state) {
    open_library(false);
    plan_all(DT_FLOAT, 0, 512 << 20);
    open_library(true);
}

/* What makes it worth to keep the client's format. */
static void channels_last_need_no_copy(void **state) {
    if (gpu_dnn_missing())
        skip();
    for (size_t g = 0; g < ARRAY_LEN(gpus); g++) {
        char json[2048];
        int64_t workspace_bytes;
        struct conv_job job = {
            .direction = CONV_FORWARD, .dtype = DT_HALF, .shape = &convolutions[0].shape};
        if (gpus[g].version != 900 && gpus[g].version != 1000)
            continue;
        describe(&gpus[g], json, sizeof json);
        assert_null(gpu_dnn_plan_for(json, &job, 512 << 20, &workspace_bytes));
        assert_in_range(workspace_bytes, 0, 4096);
    }
}

/* Another engine takes the place of one that wants more than there is; if none wants less, the
 * status says how much is wanted. */
static void less_memory_has_other_plans(void **state) {
    int n_smaller = 0, n_refused = 0;
    if (gpu_dnn_missing())
        skip();
    for (size_t i = 0; i < ARRAY_LEN(convolutions); i++) {
        char json[2048];
        int64_t best_bytes, bytes = -1;
        struct conv_job job = {.direction = CONV_BACKPROP_FILTER,
                               .dtype = DT_FLOAT,
                               .is_channels_first = convolutions[i].is_channels_first,
                               .shape = &convolutions[i].shape};
        describe(&gpus[1], json, sizeof json);
        assert_null(gpu_dnn_plan_for(json, &job, INT64_MAX, &best_bytes));
        if (best_bytes == 0)
            continue;
        struct status *st = gpu_dnn_plan_for(json, &job, best_bytes - 1, &bytes);
        if (st) {
            assert_int_equal(status_code(st), STATUS_RESOURCE_EXHAUSTED);
            n_refused++;
        } else {
            assert_in_range(bytes, 0, best_bytes - 1);
            n_smaller++;
        }
        status_unref(st);
    }
    print_message("%d have a smaller plan, %d have none\n", n_smaller, n_refused);
    assert_true(n_smaller > 0);
}

static int begin(void **state) {
    open_library(true);
    if (gpu_dnn_missing())
        print_message("no cuDNN: %s\n", gpu_dnn_missing());
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float_has_plans),
        cmocka_unit_test(half_has_plans),
        cmocka_unit_test(bfloat16_has_plans),
        cmocka_unit_test(double_has_plans),
        cmocka_unit_test(channels_last_need_no_copy),
        cmocka_unit_test(less_memory_has_other_plans),
        cmocka_unit_test(float_has_plans_without_tf32),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
