/* The plugin's export: opens the driver and its devices, and adds the kernels (gpu_plugin.h). */
#include "kernels/cuda/rows/gpu_plugin.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "kernels/cuda/activity.h"
#include "kernels/cuda/blas.h"
#include "kernels/cuda/compiler.h"
#include "kernels/cuda/dnn.h"
#include "kernels/cuda/gpu_host_memory.h"
#include "kernels/cuda/gpu_peers.h"
#include "kernels/cuda/images.h"
#include "kernels/cuda/ops/engine.h"
// clang-format off
#include "kernels/cuda/ops/families.h"
// clang-format on

static struct driver_api api;
static int driver_version;
static struct str left_out = STR_INIT; /* devices that cannot run the kernels, and why */

/* What we compute, with its functions. */
// clang-format off
#define GPU_KERNEL(op, attr, types, flags, ...) {op, attr, types, flags, __VA_ARGS__},
static const struct gpu_implementation implementations[] = {
#include "kernels/cuda/rows/implementations.inc"
};
// clang-format on

_Static_assert((int)GPU_MEMORY_MAX_USERS == (int)GPU_MAX_DEVICES, "all devices may be peers");

/* Notes a device that cannot run the kernels. */
static void leave_out_take(struct status *st) {
    log_event(EVENT_GPU_TROUBLE, "not used: %s", status_message(st));
    str_addf(&left_out, "; not used: %s", status_message(st));
    status_unref(st);
}

static void connect_working(struct gpu_device *const *gpus, int n) {
    struct gpu_device *working[GPU_MAX_DEVICES];
    int n_working = 0;
    for (int i = 0; i < n; i++)
        if (!atomic_load(&gpus[i]->failure))
            working[n_working++] = gpus[i];
    gpu_peers_connect(working, n_working);
}

static struct status *open_devices(const struct gpu_plugin_options *options,
                                   const struct driver_checker *checker, struct device *devices,
                                   int *ret_n) {
    int n = 0;
    TRY(driver_status(api.cuDeviceGetCount(&n), "cuDeviceGetCount"));
    n = MIN(n, GPU_MAX_DEVICES);
    struct gpu_device *gpus[GPU_MAX_DEVICES];
    gpu_host_memory_open();
    for (int i = 0; i < n; i++) {
        struct gpu_device_options device_options = {
            .api = &api,
            .checker = checker && !checker->is_null ? checker : NULL,
            .engine = &gpu_engine,
            .ordinal = i,
            .memory_limit_bytes = options->memory_limit_bytes,
            .n_copy_threads = options->n_copy_threads,
            .has_graphs = options->has_graphs};
        struct status *st = gpu_device_new(&device_options, &gpus[*ret_n]);
        if (st) {
            leave_out_take(st);
            continue;
        }
        gpu_device_bind(gpus[*ret_n], &devices[*ret_n]);
        ++*ret_n;
    }
    connect_working(gpus, *ret_n);
    return *ret_n > 0
               ? NULL
               : status_unavailable("the CUDA driver finds no device%s", str_text(&left_out));
}

static void plugin_close(struct device *devices, int n) {
    gpu_host_memory_close();
    for (int i = 0; i < n; i++)
        gpu_device_stop(devices[i].state);
    for (int i = 0; i < n; i++)
        gpu_device_free(devices[i].state);
}

static struct status *plugin_open(const struct gpu_plugin_options *options, struct device *devices,
                                  int *ret_n) {
    const struct driver_checker *checker;
    *ret_n = 0;
    TRY(driver_open("libcuda.so.1", &api, &checker));
    TRY(driver_status(api.cuDriverGetVersion(&driver_version), "cuDriverGetVersion"));
    gpu_blas_open(options->libraries, options->allow_tf32, checker ? checker->library : NULL);
    gpu_dnn_open(options->libraries, options->allow_tf32, checker ? checker->library : NULL);
    gpu_compiler_open(options->libraries, checker ? checker->library : NULL);
    gpu_activity_setup(checker ? NULL : options->libraries, !options->has_activities);
    if (n_gpu_images == 0 && !checker)
        return status_unavailable("the plugin was built without nvcc, so it has no kernels");
    struct status *st = open_devices(options, checker, devices, ret_n);
    if (st) {
        plugin_close(devices, *ret_n);
        *ret_n = 0;
    }
    return st;
}

static void plugin_describe(struct str *out) {
    str_addf(out, "driver for CUDA %d.%d%s", driver_version / 1000, driver_version % 1000 / 10,
             str_text(&left_out));
    if (gpu_blas_missing())
        str_addf(out, "; no matrix products, because cuBLASLt is missing: %s", gpu_blas_missing());
    if (gpu_dnn_missing())
        str_addf(out, "; no convolutions, because cuDNN is missing: %s", gpu_dnn_missing());
    if (gpu_compiler_missing())
        str_addf(out, "; fused programs are not compiled, because NVRTC is missing: %s",
                 gpu_compiler_missing());
    gpu_activity_describe(out);
}

/* found by dlsym */
extern __attribute__((visibility("default"))) const struct gpu_plugin gpu_plugin_export;
const struct gpu_plugin gpu_plugin_export = {.abi = GPU_PLUGIN_ABI_HERE,
                                             .version = MILLRACE_VERSION,
                                             .implementations = implementations,
                                             .n_implementations = ARRAY_LEN(implementations),
                                             .open = plugin_open,
                                             .close = plugin_close,
                                             .describe = plugin_describe};
