/* Finds the kernels of the image and enqueues them (gpu_kernel.h). */
#include <stdlib.h>

#include "kernels/cuda/gpu_device.h"
#include "kernels/cuda/stores_args.h"

/* ---- names ---- */

const char *gpu_dtype_suffix(enum dtype dtype) {
    static const char *const suffixes[DT_N_TYPES] = {
        [DT_HALF] = "f16",  [DT_BFLOAT16] = "bf16", [DT_FLOAT] = "f32",      [DT_DOUBLE] = "f64",
        [DT_INT8] = "i8",   [DT_INT16] = "i16",     [DT_INT32] = "i32",      [DT_INT64] = "i64",
        [DT_UINT8] = "u8",  [DT_UINT16] = "u16",    [DT_UINT32] = "u32",     [DT_UINT64] = "u64",
        [DT_BOOL] = "bool", [DT_COMPLEX64] = "c64", [DT_COMPLEX128] = "c128"};
    return dtype < DT_N_TYPES ? suffixes[dtype] : NULL;
}

const char *gpu_size_suffix(size_t size_bytes) {
    switch (size_bytes) {
    case 1:
        return "b1";
    case 2:
        return "b2";
    case 4:
        return "b4";
    case 8:
        return "b8";
    case 16:
        return "b16";
    default:
        return NULL;
    }
}

/* ---- functions ---- */

struct gpu_device *gpu_of(const struct kernel_ctx *ctx) {
    return gpu_of_allocator(ctx->instance->allocator);
}

struct gpu_device *gpu_of_init(const struct kernel_init *init) {
    return gpu_of_allocator(init->allocator);
}

static struct status *load_function(struct gpu_device *gpu, const char *name,
                                    struct gpu_function **ret) {
    CUfunction function;
    const char *call;
    CUresult error = gpu_images_find(gpu, name, &function, &call);
    if (error == CUDA_ERROR_NOT_FOUND)
        return status_unimplemented("The plugin for GPUs has no kernel '%s'", name);
    TRY(gpu_check(gpu, error, call));
    *ret = xcalloc(1, sizeof **ret);
    (*ret)->function = function;
    (*ret)->name = xstrdup(name);
    return NULL;
}

struct status *gpu_function_find(struct gpu_device *gpu, const char *name,
                                 const struct gpu_function **ret) {
    TRY(gpu_lock_only(gpu));
    struct status *st = NULL;
    struct gpu_function *function = strmap_get(&gpu->functions, name);
    if (!function) {
        st = load_function(gpu, name, &function);
        if (!st)
            strmap_put(&gpu->functions, function->name, function);
    }
    gpu_unlock(gpu);
    if (!st)
        *ret = function;
    return st;
}

const char *gpu_function_name(const struct gpu_function *function) { return function->name; }

static unsigned stem_number(struct gpu_stem *stem) {
    static _Atomic unsigned n_stems;
    unsigned number = atomic_load_explicit(&stem->number, memory_order_relaxed);
    if (likely(number > 0))
        return number;
    unsigned next = atomic_fetch_add(&n_stems, 1) + 1;
    CHECK(next < GPU_MAX_STEMS);
    return atomic_compare_exchange_strong(&stem->number, &number, next) ? next : number;
}

static const struct gpu_found *list_find(const struct gpu_found *found, const char *suffix) {
    while (found && strcmp(found->suffix, suffix) != 0)
        found = found->next;
    return found;
}

static COLD struct status *stem_load(struct gpu_device *gpu, struct gpu_stem *stem,
                                     const char *suffix, const struct gpu_function **ret) {
    struct str name = STR_INIT;
    str_addf(&name, "%s_%s", stem->name, suffix);
    struct status *st = gpu_function_find(gpu, str_text(&name), ret);
    str_fini(&name);
    TRY(st);
    TRY(gpu_lock_only(gpu));
    _Atomic(struct gpu_found *) *first = &gpu->found[stem_number(stem)];
    struct gpu_found *list = atomic_load_explicit(first, memory_order_relaxed);
    if (!list_find(list, suffix)) {
        struct gpu_found *found = xcalloc(1, sizeof *found);
        CHECK(strlen(suffix) < sizeof found->suffix);
        memcpy(found->suffix, suffix, strlen(suffix) + 1);
        found->function = *ret;
        found->next = list;
        atomic_store_explicit(first, found, memory_order_release);
    }
    gpu_unlock(gpu);
    return NULL;
}

struct status *gpu_stem_find(struct gpu_device *gpu, struct gpu_stem *stem, const char *suffix,
                             const struct gpu_function **ret) {
    if (unlikely(!stem->name || !suffix))
        return status_unimplemented("The plugin for GPUs has no kernel '%s_%s'",
                                    stem->name ? stem->name : "?", suffix ? suffix : "?");
    const struct gpu_found *found = list_find(
        atomic_load_explicit(&gpu->found[stem_number(stem)], memory_order_acquire), suffix);
    if (unlikely(!found))
        return stem_load(gpu, stem, suffix, ret);
    *ret = found->function;
    return NULL;
}

void gpu_functions_free(struct gpu_device *gpu) {
    size_t cursor = 0;
    struct span name;
    void *value;
    while (strmap_next(&gpu->functions, &cursor, &name, &value)) {
        free(((struct gpu_function *)value)->name);
        free(value);
    }
    strmap_fini(&gpu->functions);
    for (size_t i = 0; i < ARRAY_LEN(gpu->found); i++)
        for (struct gpu_found *found = gpu->found[i], *next; found; found = next) {
            next = found->next;
            free(found);
        }
}

struct status *gpu_init_function(struct kernel_init *init) {
    const struct node *node = init->node;
    uint8_t dtype = node->n_data > 0 ? node->in_types[0] : node->out_types[0];
    const char *suffix = gpu_dtype_suffix(dtype_base((enum dtype)dtype));
    const struct gpu_function *function;
    struct str name = STR_INIT;
    if (!suffix)
        return status_unimplemented("No kernel for a GPU takes the type %s",
                                    dtype_name((enum dtype)dtype));
    str_addf(&name, "%s_%s", (const char *)init->arg, suffix);
    struct status *st = gpu_function_find(gpu_of_init(init), str_text(&name), &function);
    str_fini(&name);
    if (!st)
        init->state = (void *)(uintptr_t)function;
    return st;
}

void gpu_no_fini(void *state) {}

/* ---- launches ---- */

struct gpu_grid gpu_grid_for(const struct kernel_ctx *ctx, int64_t n) {
    int64_t n_blocks = (n + GPU_BLOCK_THREADS - 1) / GPU_BLOCK_THREADS;
    int64_t most = gpu_of(ctx)->n_busy_blocks;
    return (struct gpu_grid){(unsigned)MAX(MIN(n_blocks, most), 1), GPU_BLOCK_THREADS, 0};
}

/* Adds what the node was about. The executor adds its name. */
static struct status *about(const char *what, struct status *st) {
    return likely(!st) ? NULL : status_suffix_take(st, " (%s)", what);
}

struct status *gpu_add_work(struct kernel_ctx *ctx, struct gpu_work *work) {
    struct gpu_device *gpu = gpu_of(ctx);
    work->node = ctx->instance->node->name;
    TRY(gpu_lock_only(gpu));
    struct status *st = gpu_segments_add(gpu, ctx->host_data, work);
    gpu_unlock(gpu);
    return st;
}

static struct status *enqueue_launch(struct gpu_device *gpu, const struct gpu_work *work,
                                     CUstream stream) {
    void *arguments[] = {(void *)(uintptr_t)work->args};
    const struct gpu_grid *grid = &work->grid;
    CUresult error =
        gpu->api->cuLaunchKernel(work->function->function, grid->n_blocks, 1, 1, grid->n_threads, 1,
                                 1, grid->shared_bytes, stream, arguments, NULL);
    return about(work->function->name, gpu_check(gpu, error, "cuLaunchKernel"));
}

struct status *gpu_launch_nodes(struct kernel_ctx *ctx, const struct gpu_function *function,
                                struct gpu_grid grid, const void *args, size_t args_bytes,
                                const char *nodes) {
    struct gpu_work work = {.enqueue = enqueue_launch,
                            .function = function,
                            .grid = grid,
                            .args = args,
                            .args_bytes = (uint32_t)args_bytes,
                            .nodes = nodes};
    return gpu_add_work(ctx, &work);
}

struct status *gpu_launch_bytes(struct kernel_ctx *ctx, const struct gpu_function *function,
                                struct gpu_grid grid, const void *args, size_t args_bytes) {
    return gpu_launch_nodes(ctx, function, grid, args, args_bytes, NULL);
}

enum kernel_result gpu_run_bytes(struct kernel_ctx *ctx, const struct gpu_function *function,
                                 struct gpu_grid grid, const void *args, size_t args_bytes) {
    KERNEL_TRY(ctx, gpu_launch_bytes(ctx, function, grid, args, args_bytes));
    return KERNEL_DONE;
}

struct bytes_args {
    CUdeviceptr to, from;
    size_t size_bytes;
};

static struct status *enqueue_zero(struct gpu_device *gpu, const struct gpu_work *work,
                                   CUstream stream) {
    const struct bytes_args *args = work->args;
    CUresult error = gpu->api->cuMemsetD8Async(args->to, 0, args->size_bytes, stream);
    return about("zeroes", gpu_check(gpu, error, "cuMemsetD8Async"));
}

struct status *gpu_zero(struct kernel_ctx *ctx, void *to, size_t size_bytes) {
    struct bytes_args args = {.to = (CUdeviceptr)to, .size_bytes = size_bytes};
    struct gpu_work work = {.enqueue = enqueue_zero, .args = &args, .args_bytes = sizeof args};
    return size_bytes == 0 ? NULL : gpu_add_work(ctx, &work);
}

static struct status *enqueue_copy(struct gpu_device *gpu, const struct gpu_work *work,
                                   CUstream stream) {
    const struct bytes_args *args = work->args;
    CUresult error = gpu->api->cuMemcpyDtoDAsync(args->to, args->from, args->size_bytes, stream);
    return about("bytes", gpu_check(gpu, error, "cuMemcpyDtoDAsync"));
}

struct status *gpu_copy_within(struct kernel_ctx *ctx, void *to, const void *from,
                               size_t size_bytes) {
    struct bytes_args args = {(CUdeviceptr)to, (CUdeviceptr)from, size_bytes};
    struct gpu_work work = {.enqueue = enqueue_copy, .args = &args, .args_bytes = sizeof args};
    return size_bytes == 0 ? NULL : gpu_add_work(ctx, &work);
}

/* ---- bytes of the host ---- */

static struct status *store(struct gpu_device *gpu, const void *owner, const char *node,
                            CUdeviceptr to, const void *from, size_t size_bytes) {
    static struct gpu_stem stem = {"store", 0};
    const struct gpu_function *function;
    TRY(gpu_stem_find(gpu, &stem, "bytes", &function));
    struct store_args args;
    args.to = (void *)to;
    args.size_bytes = (int64_t)size_bytes;
    memcpy(args.bytes, from, size_bytes);
    memset(args.bytes + size_bytes, 0, sizeof args.bytes - size_bytes); /* compared as bytes */
    unsigned n_warps = ((unsigned)size_bytes + 31) / 32;
    struct gpu_work work = {.enqueue = enqueue_launch,
                            .function = function,
                            .grid = {1, MIN(n_warps * 32, GPU_BLOCK_THREADS), 0},
                            .args = &args,
                            .args_bytes = sizeof args,
                            .node = node};
    TRY(gpu_lock_only(gpu));
    struct status *st = gpu_segments_add(gpu, owner, &work);
    gpu_unlock(gpu);
    return st;
}

struct status *gpu_copy_small(struct gpu_device *gpu, const void *owner, const char *node,
                              CUdeviceptr to, const void *from, size_t size_bytes,
                              enum device_count *ret_path) {
    if (gpu->segments.is_on && owner && size_bytes <= STORE_BYTES) {
        *ret_path = DEVICE_FROM_HOST_LAUNCHED;
        return store(gpu, owner, node, to, from, size_bytes);
    }
    *ret_path = DEVICE_FROM_HOST_STAGED;
    TRY(gpu_lock(gpu));
    struct status *st = gpu_stage_in(gpu, to, from, size_bytes);
    gpu_unlock(gpu);
    return st;
}

/* ---- scratch memory ---- */

struct status *gpu_scratch(struct kernel_ctx *ctx, size_t size_bytes, struct buffer **ret) {
    struct gpu_device *gpu = gpu_of(ctx);
    uint64_t free_number;
    TRY(about("scratch memory", gpu_buffer_new(gpu, size_bytes, gpu->compute, ret, &free_number)));
    gpu->allocator.device_memory->set_holder(*ret, ctx->instance->node->name);
    return NULL;
}

struct status *gpu_scratch_now(struct kernel_ctx *ctx, size_t size_bytes, struct buffer **ret) {
    struct gpu_device *gpu = gpu_of(ctx);
    uint64_t free_number;
    TRY(about("scratch memory",
              gpu_buffer_try_new(gpu, size_bytes, gpu->compute, ret, &free_number)));
    gpu->allocator.device_memory->set_holder(*ret, ctx->instance->node->name);
    return NULL;
}

struct status *gpu_stage(struct kernel_ctx *ctx, const void *from, size_t size_bytes,
                         struct buffer **ret) {
    struct buffer *made = NULL;
    TRY(gpu_scratch(ctx, size_bytes, &made));
    enum device_count path; /* tables are not counted */
    struct status *st = gpu_copy_small(gpu_of(ctx), ctx->host_data, ctx->instance->node->name,
                                       (CUdeviceptr)made->data, from, size_bytes, &path);
    if (st)
        buffer_unref(made);
    else
        *ret = made;
    return about("a table", st);
}
