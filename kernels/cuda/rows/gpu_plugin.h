/* The plugin for GPUs, millrace-cuda.so: what it exports, and how a worker loads it.
 *
 * The plugin holds all that knows CUDA. It is loaded by dlopen, uses the worker's own functions
 * (the worker exports its symbols), and is never unloaded. Because both sides share struct tensor
 * and struct device, they must come from one build: the numbers of struct gpu_plugin_abi say so. */
#ifndef MILLRACE_KERNELS_CUDA_ROWS_GPU_PLUGIN_H
#define MILLRACE_KERNELS_CUDA_ROWS_GPU_PLUGIN_H

#include "kernels/cuda/rows/gpu_rows.h"
#include "kernels/device.h"
#include "kernels/host.h"

enum { GPU_PLUGIN_ABI = 6, GPU_MAX_DEVICES = 16 };

struct gpu_plugin_options {
    const char *plugin; /* its path; NULL: millrace-cuda.so beside the program */
    /* where cuBLASLt, cuDNN, NVRTC and CUPTI are, DIR:DIR…; NULL: the system's path */
    const char *libraries;
    int64_t memory_limit_bytes; /* of each device; 0: 92 % of what is free */
    int n_copy_threads;         /* of a large copy, at most 4; 0: by the number of cores */
    bool allow_tf32;            /* matrix products of float may round their inputs to TF32 */
    bool has_graphs;            /* equal work of steps is replayed as CUDA graphs */
    bool has_activities;        /* CUPTI tells the times of traced steps, where it can be used */
};

/* The sizes of what both sides share. */
struct gpu_plugin_abi {
    uint32_t number;
    uint32_t tensor, buffer, allocator, device, device_copy, kernel_def, kernel_ctx,
        kernel_instance, kernel_init, kernel_host;
};
#define GPU_PLUGIN_ABI_HERE                                                                        \
    {                                                                                              \
        GPU_PLUGIN_ABI, sizeof(struct tensor), sizeof(struct buffer), sizeof(struct allocator),    \
            sizeof(struct device), sizeof(struct device_copy), sizeof(struct kernel_def),          \
            sizeof(struct kernel_ctx), sizeof(struct kernel_instance), sizeof(struct kernel_init), \
            sizeof(struct kernel_host)                                                             \
    }

/* What the plugin exports, under the name "gpu_plugin_export". */
struct gpu_plugin {
    struct gpu_plugin_abi abi;
    const char *version;                              /* MILLRACE_VERSION of its build */
    const struct gpu_implementation *implementations; /* its kernels (gpu_rows.h) */
    size_t n_implementations;
    /* Opens the driver and its devices, at most GPU_MAX_DEVICES. Before threads start, once a
     * process. Fills devices[0 … *ret_n), whose names and incarnations the caller has set. A
     * device that cannot be opened (it is busy, broken or full) is among them, so that the others
     * keep their numbers: device_failure() says why. One that cannot run the kernels has no number.
     * Errors: UNAVAILABLE with what is missing, in words for /statusz. */
    struct status *(*open)(const struct gpu_plugin_options *options, struct device *devices,
                           int *ret_n);
    /* Ends the threads of the devices. Nothing may use them any more. */
    void (*close)(struct device *devices, int n);
    /* A list of what works and what does not ("driver 13.0; no cuBLASLt: …"). */
    void (*describe)(struct str *out);
};

/* Looks for the plugin and the driver. With both, loads the plugin, opens its devices as
 * plugin.open does, and adds its kernels to the registry as those of the type "GPU". Errors:
 * UNAVAILABLE with what is missing: the file, the driver, a symbol, an equal build, a device. */
struct status *gpu_plugin_open(const struct gpu_plugin_options *options, struct device *devices,
                               int *ret_n, const struct gpu_plugin **ret) MUST_USE;

#endif
