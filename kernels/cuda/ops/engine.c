/* The engine's table, and what its files share: functions by name, grids, arguments. */
#include "kernels/cuda/ops/engine.h"

#include "kernels/cuda/blas.h"
#include "kernels/cuda/ops/engine_internal.h"
#include "kernels/cuda/ops/reductions.h"

const struct device_engine gpu_engine = {
    .stage = gpu_stage,
    .zero = engine_zero,
    .copy = gpu_copy_within,
    .move = engine_move,
    .gather = engine_gather,
    .gather_slices = engine_gather_slices,
    .scatter = engine_scatter,
    .segments = engine_segments,
    .update = engine_update,
    .train = engine_train,
    .random = engine_random,
    .advance = engine_advance,
    .multinomial = engine_multinomial,
    .gamma = engine_gamma,
    .parameterized = engine_parameterized,
    .mirror_grad = engine_mirror_grad,
    .one_hot = engine_one_hot,
    .renumber = engine_renumber,
    .band = engine_band,
    .reverse_sequence = engine_reverse_sequence,
    .conjugate = engine_conjugate,
    .range = engine_range,
    .sum_rows = reduction_sum_rows,
    .multiply = gpu_multiply,
    .pool = engine_pool,
    .convolve = engine_convolve,
    .depthwise = engine_depthwise,
    .batch_norm = engine_batch_norm,
    .batch_norm_grad = engine_batch_norm_grad,
    .lrn = engine_lrn,
};

struct status *engine_launch_bytes(struct kernel_ctx *ctx, struct gpu_stem *stem,
                                   const char *suffix, struct gpu_grid grid, const void *args,
                                   size_t args_bytes) {
    const struct gpu_function *function;
    TRY(gpu_stem_find(gpu_of(ctx), stem, suffix, &function));
    return gpu_launch_bytes(ctx, function, grid, args, args_bytes);
}

/* Every group reads all indices, so there are no more groups than slices, or than keep a device
 * busy. Rows that are long and few are split among blocks by columns, and stacks among blocks. */
enum { OWNER_MAX_BLOCKS = 512, OWNER_PART_LEN = 1024 };

struct gpu_grid engine_owner_grid(const struct pick_slices *slices, int64_t *ret_n_groups,
                                  int64_t *ret_n_parts) {
    int64_t n_slices = 1, n_stacks = MAX(slices->n_stacks, (int64_t)1);
    for (int64_t i = 0; i < slices->depth && n_slices < OWNER_MAX_BLOCKS; i++)
        n_slices *= MIN(slices->dims[i], (int64_t)OWNER_MAX_BLOCKS);
    int64_t n_groups =
        MIN(MIN(slices->n_rows / n_stacks, n_slices), MAX(OWNER_MAX_BLOCKS / n_stacks, (int64_t)1));
    n_groups = MAX(n_groups, 1);
    int64_t n_parts = (slices->len + OWNER_PART_LEN - 1) / OWNER_PART_LEN;
    n_parts = MIN(MAX(n_parts, 1), MAX(OWNER_MAX_BLOCKS / n_groups, 1));
    *ret_n_groups = n_groups;
    *ret_n_parts = n_parts;
    n_stacks = MIN(n_stacks, MAX(OWNER_MAX_BLOCKS / (n_groups * n_parts), (int64_t)1));
    return (struct gpu_grid){.n_blocks = (unsigned)(n_groups * n_parts * n_stacks),
                             .n_threads = GPU_BLOCK_THREADS};
}

struct pick_scalar engine_scalar(const struct device_scalar *scalar) {
    struct pick_scalar result = {.at = scalar->at};
    memcpy(result.value, scalar->value, sizeof result.value);
    return result;
}

int64_t engine_index(enum dtype dtype) {
    return dtype == DT_INT32   ? PICK_INT32
           : dtype == DT_INT64 ? PICK_INT64
           : dtype == DT_UINT8 ? PICK_UINT8
                               : PICK_INT8;
}

struct pick_slices engine_slices(const struct device_slices *slices) {
    _Static_assert((int)PICKS_MAX_DEPTH == (int)DEVICE_MAX_DEPTH, "both count coordinates");
    struct pick_slices result = {.indices = slices->indices,
                                 .index = engine_index(slices->index_dtype),
                                 .wraps = slices->wraps,
                                 .depth = slices->depth,
                                 .n_rows = slices->n_rows,
                                 .len = slices->len};
    memcpy(result.dims, slices->dims, sizeof result.dims);
    return result;
}

size_t engine_widen(size_t element_bytes, int64_t len, uintptr_t addresses) {
    size_t size = 16;
    while (size > element_bytes &&
           (addresses % size != 0 || (uint64_t)len * element_bytes % size != 0))
        size /= 2;
    return size;
}
