/* Launches gathers and other kernels of picks.cu. */
#include "kernels/cuda/ops/engine_internal.h"

static struct gpu_stem gather_stem = {"gather"};
static struct gpu_stem gather_slices_stem = {"gather_slices"};
static struct gpu_stem one_hot_stem = {"one_hot"};
static struct gpu_stem renumber_stem = {"renumber"};
static struct gpu_stem band_stem = {"band"};
static struct gpu_stem reverse_sequence_stem = {"reverse_sequence"};
static struct gpu_stem conjugate_stem = {"conjugate"};
static struct gpu_stem range_stem = {"range"};
static struct gpu_stem mirror_grad_stem = {"mirror_grad"};

struct status *engine_gather(struct kernel_ctx *ctx, const struct device_gather *gather) {
    size_t size = engine_widen(gather->element_bytes, gather->len,
                               (uintptr_t)gather->to | (uintptr_t)gather->from);
    int64_t by = (int64_t)(size / gather->element_bytes);
    struct gather_args args = {
        .to = gather->to,
        .from = gather->from,
        .indices = gather->indices,
        .index = engine_index(gather->index_dtype),
        .n_outer = gather->n_outer,
        .n_axis = gather->n_axis,
        .n_picked = gather->n_picked,
        .len = gather->len / by,
    };
    args.n = gather->n_batch * gather->n_outer * gather->n_picked * args.len;
    return engine_launch_for(ctx, &gather_stem, gpu_size_suffix(size), args.n, &args);
}

struct status *engine_gather_slices(struct kernel_ctx *ctx, const struct device_slices *slices,
                                    size_t element_bytes, char *to, const char *from) {
    size_t size = engine_widen(element_bytes, slices->len, (uintptr_t)to | (uintptr_t)from);
    struct gather_slices_args args = {to, from, 0, engine_slices(slices)};
    args.slices.len /= (int64_t)(size / element_bytes);
    args.n = slices->n_rows * args.slices.len;
    return engine_launch_for(ctx, &gather_slices_stem, gpu_size_suffix(size), args.n, &args);
}

struct status *engine_one_hot(struct kernel_ctx *ctx, const struct device_one_hot *one_hot) {
    struct one_hot_args args = {
        .to = one_hot->to,
        .indices = one_hot->indices,
        .index = engine_index(one_hot->index_dtype),
        .on = engine_scalar(&one_hot->on),
        .off = engine_scalar(&one_hot->off),
        .n = one_hot->prefix * one_hot->depth * one_hot->suffix,
        .depth = one_hot->depth,
        .suffix = one_hot->suffix,
    };
    return engine_launch_for(ctx, &one_hot_stem, gpu_size_suffix(one_hot->element_bytes), args.n,
                             &args);
}

struct status *engine_renumber(struct kernel_ctx *ctx, const struct device_renumber *renumber) {
    _Static_assert((int)RENUMBER_MOST == (int)DEVICE_MAX_NUMBERS, "both count numbers");
    struct renumber_args args = {.to = renumber->to,
                                 .from = renumber->from,
                                 .n = renumber->n,
                                 .n_numbers = renumber->n_numbers};
    memcpy(args.numbers, renumber->numbers, sizeof args.numbers);
    return engine_launch_for(ctx, &renumber_stem, gpu_dtype_suffix(renumber->dtype), args.n, &args);
}

struct status *engine_band(struct kernel_ctx *ctx, const struct device_band *band) {
    struct band_args args = {
        .to = band->to,
        .from = band->from,
        .n = band->n_matrices * band->n_rows * band->n_cols,
        .n_rows = band->n_rows,
        .n_cols = band->n_cols,
        .lower = band->lower,
        .upper = band->upper,
    };
    return engine_launch_for(ctx, &band_stem, gpu_size_suffix(band->element_bytes), args.n, &args);
}

struct status *engine_reverse_sequence(struct kernel_ctx *ctx,
                                       const struct device_reverse_sequence *reverse) {
    size_t size = engine_widen(reverse->element_bytes, reverse->inner,
                               (uintptr_t)reverse->to | (uintptr_t)reverse->from);
    struct reverse_sequence_args args = {
        .to = reverse->to,
        .from = reverse->from,
        .lengths = reverse->lengths,
        .length = engine_index(reverse->length_dtype),
        .n_steps = reverse->n_steps,
        .middle = reverse->middle,
        .n_batch = reverse->n_batch,
        .inner = reverse->inner / (int64_t)(size / reverse->element_bytes),
        .batch_is_first = reverse->batch_is_first,
    };
    args.n = reverse->outer * args.n_steps * args.middle * args.n_batch * args.inner;
    return engine_launch_for(ctx, &reverse_sequence_stem, gpu_size_suffix(size), args.n, &args);
}

struct status *engine_conjugate(struct kernel_ctx *ctx, enum dtype dtype, void *at, int64_t n) {
    struct conjugate_args args = {at, n};
    return engine_launch_for(ctx, &conjugate_stem, gpu_dtype_suffix(dtype), n, &args);
}

struct status *engine_range(struct kernel_ctx *ctx, enum dtype dtype, const void *start,
                            const void *delta, void *to, int64_t n) {
    struct range_args args = {.to = to, .n = n};
    memcpy(&args.start, start, dtype_size(dtype));
    memcpy(&args.delta, delta, dtype_size(dtype));
    return engine_launch_for(ctx, &range_stem, gpu_dtype_suffix(dtype), n, &args);
}

struct status *engine_mirror_grad(struct kernel_ctx *ctx, const struct device_mirror *mirror) {
    _Static_assert((int)MIRROR_MAX_RANK == (int)DEVICE_MOVE_LOOPS, "both count dimensions");
    struct mirror_args args = {.to = mirror->to,
                               .from = mirror->from,
                               .n = 1,
                               .rank = mirror->rank,
                               .offset = mirror->offset};
    for (int i = 0; i < mirror->rank; i++) {
        args.n *= mirror->dims[i];
        args.dims[i] = mirror->dims[i];
        args.before[i] = mirror->before[i];
        args.after[i] = mirror->after[i];
    }
    return engine_launch_for(ctx, &mirror_grad_stem, gpu_dtype_suffix(mirror->dtype), args.n,
                             &args);
}
