/* What the compute functions of a GPU's kernels use: functions of the device, launches, fills,
 * scratch memory.
 *
 * A compute function enqueues work on the device's compute stream and answers KERNEL_DONE. What it
 * enqueues runs after everything that was enqueued before, by any thread, so it never waits. The
 * data pointers of tensors in the device's memory are addresses of the device: the host hands them
 * to kernels and never follows them.
 *
 *     static enum kernel_result relu_compute(struct kernel_ctx *ctx) {
 *         const struct tensor *x = kernel_input(ctx, 0);
 *         const void *from = x->data;
 *         KERNEL_TRY(ctx, kernel_forward_or_alloc(ctx, 0, 0, dtype, tensor_shape(x)));
 *         struct unary_args args = {from, ctx->outputs[0].data, n};
 *         return gpu_run(ctx, ctx->instance->state, gpu_grid_for(ctx, n), &args);
 *     }
 *
 * Outputs come from kernel_alloc and kernel_forward_or_alloc. Nothing is launched for zero
 * elements: an output without elements is finished once it is made.
 *
 * Threads: any, unless a comment says otherwise. */
#ifndef MILLRACE_KERNELS_CUDA_GPU_KERNEL_H
#define MILLRACE_KERNELS_CUDA_GPU_KERNEL_H

#include "kernels/device.h"

struct gpu_device;
struct gpu_function; /* a kernel of the plugin's image on one device; lives as long as it */

enum { GPU_BLOCK_THREADS = 256, GPU_MAX_ARGS_BYTES = 4000 };

struct gpu_device *gpu_of(const struct kernel_ctx *ctx);
struct gpu_device *gpu_of_init(const struct kernel_init *init);

/* ---- when a plan is made ---- */

/* Returns the suffix of a dtype in the names of kernels: "f16", "bf16", "f32", "f64", "i8" … "i64",
 * "u8" … "u64", "bool", "c64", "c128". NULL for other dtypes. */
const char *gpu_dtype_suffix(enum dtype dtype);
/* Returns the suffix of a size in bytes: "b1", "b2", "b4", "b8", "b16". NULL for others. */
const char *gpu_size_suffix(size_t size_bytes);
/* Finds the kernel NAME of the image. Errors: UNIMPLEMENTED naming it; the driver's. */
struct status *gpu_function_find(struct gpu_device *gpu, const char *name,
                                 const struct gpu_function **ret) MUST_USE;
const char *gpu_function_name(const struct gpu_function *function);
/* The kernels STEM_SUFFIX of the image, for one stem: a static record beside what launches them.
 * Each device keeps the functions that it has found for it, so that a launch looks up no name. */
struct gpu_stem {
    const char *name;
    _Atomic unsigned number; /* among all stems; 0 until the first use */
};
/* Finds the kernel of a stem with a suffix of at most 7 letters. Errors: those of
 * gpu_function_find; a NULL suffix is that of a dtype without kernels. Cost: a few ns after the
 * first call. */
struct status *gpu_stem_find(struct gpu_device *gpu, struct gpu_stem *stem, const char *suffix,
                             const struct gpu_function **ret) MUST_USE;
/* An init that wants one function: STEM_SUFFIX, where STEM is the row's arg (a string) and SUFFIX
 * that of the first input's dtype, or of the first output's if there is no input. The state is the
 * function; the row's fini must be gpu_no_fini. */
struct status *gpu_init_function(struct kernel_init *init) MUST_USE;
void gpu_no_fini(void *state);

/* ---- when a node runs ---- */

struct gpu_grid {
    unsigned n_blocks, n_threads; /* of a block: a multiple of 32, at most 1,024 */
    unsigned shared_bytes;        /* dynamic shared memory, at most 48 KiB */
};
/* Returns a grid for n pieces of work: as many blocks of GPU_BLOCK_THREADS threads as are needed,
 * but no more than keep the device busy. Kernels loop: for (i = first; i < n; i +=
 * n_threads_of_grid). */
struct gpu_grid gpu_grid_for(const struct kernel_ctx *ctx, int64_t n);

/* Launches a kernel. `args` points to the struct that its KERNEL declares, which is copied before
 * the call returns. The launch may be held back (gpu_segments.h); its failure is then the step's.
 * Errors: INTERNAL naming the kernel and the driver's error. */
#define gpu_launch(ctx, function, grid, args) \
    gpu_launch_bytes((ctx), (function), (grid), (args), GPU_ARGS_BYTES(args))
struct status *gpu_launch_bytes(struct kernel_ctx *ctx, const struct gpu_function *function,
                                struct gpu_grid grid, const void *args, size_t args_bytes) MUST_USE;
/* The same for a kernel that computes several nodes: `nodes` names them in a message about a launch
 * that was held back ("{{node a}}, {{node b}}"), and lives as long as the plan. */
struct status *gpu_launch_nodes(struct kernel_ctx *ctx, const struct gpu_function *function,
                                struct gpu_grid grid, const void *args, size_t args_bytes,
                                const char *nodes) MUST_USE;
/* Launches a kernel as the last thing that a compute function does, and returns the function's
 * result: KERNEL_DONE, with ctx->status set after a failure. */
#define gpu_run(ctx, function, grid, args) \
    gpu_run_bytes((ctx), (function), (grid), (args), GPU_ARGS_BYTES(args))
enum kernel_result gpu_run_bytes(struct kernel_ctx *ctx, const struct gpu_function *function,
                                 struct gpu_grid grid, const void *args, size_t args_bytes);
/* The size of the struct that a pointer leads to. A void pointer is an error. */
#define GPU_ARGS_BYTES(args) (sizeof *(args) / (sizeof *(args) > 1))
/* Enqueue: bytes are set to zero; bytes are copied within the device's memory. */
struct status *gpu_zero(struct kernel_ctx *ctx, void *to, size_t size_bytes) MUST_USE;
struct status *gpu_copy_within(struct kernel_ctx *ctx, void *to, const void *from,
                               size_t size_bytes) MUST_USE;
/* Allocates memory for intermediate results of a node. The caller releases it with buffer_unref
 * once the last kernel that uses it is enqueued. Work that is enqueued later may get the same
 * memory. */
struct status *gpu_scratch(struct kernel_ctx *ctx, size_t size_bytes, struct buffer **ret) MUST_USE;
/* The same without waiting for others that hold memory, for a caller that can do with less: fails
 * with RESOURCE_EXHAUSTED at once. */
struct status *gpu_scratch_now(struct kernel_ctx *ctx, size_t size_bytes,
                               struct buffer **ret) MUST_USE;
/* Allocates scratch memory and enqueues a copy of host bytes to it. The host bytes may be reused
 * when the call returns. For tables that are too long for a kernel's arguments, such as the
 * addresses of a thousand inputs. */
struct status *gpu_stage(struct kernel_ctx *ctx, const void *from, size_t size_bytes,
                         struct buffer **ret) MUST_USE;

/* Bytes that come back to the host, for asynchronous kernels whose output's size is computed on the
 * device. The kernel owns the record and answers KERNEL_PENDING. The reads of a step are handed
 * over one after another, in the order of their starts, each once the step has nothing else to run.
 * So a step's work comes in the same order each time, whenever the bytes arrive. */
struct gpu_read {
    struct device_copy copy; /* the device's */
    struct tensor value;     /* uint8 [size_bytes] in host memory, set before on_done */
    struct status *status;   /* the failure, which on_done takes */
    void (*on_done)(struct gpu_read *read); /* once, on any thread, never inside gpu_read_start */
    /* the device's (gpu_reads.c) */
    struct gpu_device *gpu;
    struct list link;
    uint8_t state;
};
/* Starts to copy the first size_bytes of `from`, of which the read holds a reference. */
void gpu_read_start(struct kernel_ctx *ctx, struct gpu_read *read, struct buffer *from,
                    size_t size_bytes);
/* The kernel has enqueued all that follows from the bytes, and is about to say that it is done. */
void gpu_read_end(struct gpu_read *read);

#endif
