/* Picks slices by index: Gather, GatherV2, GatherNd. */
#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "common/tensor/element.h"
#include "kernels/cpu/array/array_index.h"
#include "kernels/support/dims.h"

/* ---- Gather ----
 *
 *   params   [batch…, outer…, axis, inner…]
 *   indices  [batch…, picked…]
 *   output   [batch…, outer…, picked…, inner…]                                       */

struct gather {
    int axis, batch_dims;
    int64_t n_batch, n_outer, n_picked, n_axis, len; /* len: elements of inner */
};

static struct status *gather_read(const struct tensor *params, const struct tensor *indices,
                                  int64_t axis, int64_t batch_dims, struct gather *ret) {
    if (params->rank < 1)
        return status_invalid("params must be at least 1 dimensional");
    if (axis < -(int64_t)params->rank || axis >= params->rank)
        return status_invalid("Expected axis in the range [%d, %d), but got %lld", -params->rank,
                              params->rank, (long long)axis);
    axis += axis < 0 ? params->rank : 0;
    if (batch_dims < -(int64_t)indices->rank || batch_dims > indices->rank)
        return status_invalid("Expected batch_dims in the range [%d, %d], but got %lld",
                              -indices->rank, indices->rank, (long long)batch_dims);
    batch_dims += batch_dims < 0 ? indices->rank : 0;
    if (batch_dims >= params->rank)
        return status_invalid("batch_dims (%lld) must be less than rank(params) (%d).",
                              (long long)batch_dims, params->rank);
    if (batch_dims > axis)
        return status_invalid("batch_dims (%lld) must be less than or equal to axis (%lld).",
                              (long long)batch_dims, (long long)axis);
    for (int i = 0; i < batch_dims; i++) {
        if (tensor_dim(params, i) != tensor_dim(indices, i))
            return status_invalid(
                "params.shape[%d]: %lld should be equal to indices.shape[%d]: %lld", i,
                (long long)tensor_dim(params, i), i, (long long)tensor_dim(indices, i));
    }
    const int64_t *dims = tensor_dims(params);
    *ret = (struct gather){
        .axis = (int)axis,
        .batch_dims = (int)batch_dims,
        .n_batch = dims_product(dims, 0, (int)batch_dims),
        .n_outer = dims_product(dims, (int)batch_dims, (int)axis),
        .n_picked = dims_product(tensor_dims(indices), (int)batch_dims, indices->rank),
        .n_axis = dims[axis],
        .len = dims_product(dims, (int)axis + 1, params->rank),
    };
    return NULL;
}

static struct status *gather_shape(const struct gather *gather, const struct tensor *params,
                                   const struct tensor *indices, struct dims *ret) {
    ret->rank = 0;
    bool fits = true;
    for (int i = 0; i < gather->axis; i++)
        fits &= dims_add(ret, tensor_dim(params, i));
    for (int i = gather->batch_dims; i < indices->rank; i++)
        fits &= dims_add(ret, tensor_dim(indices, i));
    for (int i = gather->axis + 1; i < params->rank; i++)
        fits &= dims_add(ret, tensor_dim(params, i));
    return fits ? NULL
                : status_invalid("The gathered tensor would pass the rank limit of %d",
                                 SHAPE_MAX_RANK);
}

static inline __attribute__((always_inline)) int64_t
flatten_loop(enum dtype dtype, const void *data, const struct gather *gather, int64_t *at) {
    int64_t first_bad = -1;
    for (int64_t b = 0; b < gather->n_batch && pool_goes_on(b + 1); b++) {
        POOL_PIECES (begin, end, 0, gather->n_picked) {
            for (int64_t i = begin; i < end; i++) {
                int64_t index = index_of(dtype, data, b * gather->n_picked + i);
                if (unlikely((uint64_t)index >= (uint64_t)gather->n_axis) && first_bad < 0)
                    first_bad = b * gather->n_picked + i;
                at[b * gather->n_outer * gather->n_picked + i] = index;
            }
        }
    }
    return first_bad;
}

/* Computes the source slice of each output slice, in units of `len` elements. Returns the position
 * of the first bad index, or -1. */
static int64_t gather_flatten(const struct tensor *indices, const struct gather *gather,
                              int64_t *at) {
    const void *data = tensor_cdata(indices);
    enum dtype dtype = tensor_dtype(indices);
    int64_t bad = dtype == DT_INT32   ? flatten_loop(DT_INT32, data, gather, at)
                  : dtype == DT_INT64 ? flatten_loop(DT_INT64, data, gather, at)
                                      : flatten_loop(DT_INT16, data, gather, at);
    if (bad >= 0)
        return bad;
    /* Goes from the last outer position to the first, because position 0 of each batch holds the
     * plain indices until the others are computed from them. */
    for (int64_t b = 0; b < gather->n_batch; b++) {
        int64_t *first = at + b * gather->n_outer * gather->n_picked;
        for (int64_t o = gather->n_outer - 1; o >= 0; o--) {
            int64_t base = (b * gather->n_outer + o) * gather->n_axis;
            POOL_PIECES (begin, end, 0, gather->n_picked)
                for (int64_t i = begin; i < end; i++)
                    first[o * gather->n_picked + i] = first[i] + base;
        }
    }
    return -1;
}

static struct status *gather_on_device(struct kernel_ctx *ctx, const struct gather *gather) {
    const struct tensor *params = kernel_input(ctx, 0), *indices = kernel_input(ctx, 1);
    struct device_gather job = {
        .to = tensor_data(&ctx->outputs[0]),
        .from = tensor_cdata(params),
        .indices = tensor_cdata(indices),
        .index_dtype = tensor_dtype(indices),
        .element_bytes = dtype_size(tensor_dtype(params)),
        .n_batch = gather->n_batch,
        .n_outer = gather->n_outer,
        .n_axis = gather->n_axis,
        .n_picked = gather->n_picked,
        .len = gather->len,
    };
    return ctx->instance->engine->gather(ctx, &job);
}

enum { STACK_INDICES = 64 };

static enum kernel_result gather_run(struct kernel_ctx *ctx, int64_t axis, int64_t batch_dims) {
    const struct tensor *params = kernel_input(ctx, 0), *indices = kernel_input(ctx, 1);
    struct gather gather = {0};
    struct dims dims;
    KERNEL_TRY(ctx, gather_read(params, indices, axis, batch_dims, &gather));
    KERNEL_TRY(ctx, gather_shape(&gather, params, indices, &dims));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(params), dims_shape(&dims)));
    if (ctx->outputs[0].n_elements == 0)
        /* nothing is picked, and as in TensorFlow the indices are not checked */
        return KERNEL_DONE;
    if (kernel_is_for_device(ctx)) {
        KERNEL_TRY(ctx, gather_on_device(ctx, &gather));
        return KERNEL_DONE;
    }
    int64_t n = gather.n_batch * gather.n_outer * gather.n_picked, stack[STACK_INDICES];
    int64_t *at = n <= STACK_INDICES ? stack : malloc((size_t)n * sizeof(*at));
    if (!at)
        return kernel_fail(ctx, status_exhausted("OOM: %lld indices of a gather", (long long)n));
    int64_t bad = gather_flatten(indices, &gather, at);
    if (bad >= 0)
        kernel_fail(ctx, status_invalid("indices%s = %lld is not in [0, %lld)",
                                        SHAPE_INDEX_TEXT(tensor_shape(indices), bad),
                                        (long long)tensor_int_at(indices, bad),
                                        (long long)gather.n_axis));
    else
        index_copy_slices(tensor_dtype(params), tensor_data(&ctx->outputs[0]), tensor_cdata(params),
                          at, n, gather.len, ctx->pool);
    if (at != stack)
        free(at);
    return KERNEL_DONE;
}

static enum kernel_result gather_v1(struct kernel_ctx *ctx) { return gather_run(ctx, 0, 0); }

static struct status *gather_v2_init(struct kernel_init *init) {
    return kernel_init_int_attr(init, "batch_dims");
}

static enum kernel_result gather_v2(struct kernel_ctx *ctx) {
    const struct tensor *axis = kernel_input(ctx, 2);
    if (axis->rank != 0)
        return kernel_fail(ctx, status_invalid("axis must be scalar"));
    return gather_run(ctx, tensor_index_at(axis, 0), *(const int64_t *)ctx->instance->state);
}

/* ---- GatherNd: the state is what to do with bad indices ---- */

static struct status *policy_init(struct kernel_init *init) {
    enum bad_index_policy policy;
    TRY(bad_index_policy_read(init->node, &policy));
    init->state = xmalloc(sizeof(policy));
    *(enum bad_index_policy *)init->state = policy;
    return NULL;
}

static enum kernel_result gather_nd(struct kernel_ctx *ctx) {
    const struct tensor *params = kernel_input(ctx, 0), *indices = kernel_input(ctx, 1);
    bool skips = *(const enum bad_index_policy *)ctx->instance->state == BAD_INDEX_IS_SKIPPED;
    if (params->rank < 1)
        return kernel_fail(ctx, status_invalid("params must be at least a vector"));
    if (indices->rank < 1)
        return kernel_fail(ctx, status_invalid("indices must be at least a vector"));
    int64_t depth = tensor_dim(indices, indices->rank - 1);
    if (depth > params->rank)
        return kernel_fail(
            ctx, status_invalid(
                     "index innermost dimension length must be <= params rank; saw: %lld vs. %d",
                     (long long)depth, params->rank));
    struct dims dims;
    dims.rank = 0;
    bool fits = true;
    for (int i = 0; i < indices->rank - 1; i++)
        fits &= dims_add(&dims, tensor_dim(indices, i));
    for (int i = (int)depth; i < params->rank; i++)
        fits &= dims_add(&dims, tensor_dim(params, i));
    if (!fits)
        return kernel_fail(
            ctx,
            status_invalid("The gathered tensor would pass the rank limit of %d", SHAPE_MAX_RANK));
    int64_t n;
    KERNEL_TRY(ctx, shape_n_elements((struct shape){indices->rank - 1, tensor_dims(indices)}, &n));
    int64_t len = dims_product(tensor_dims(params), (int)depth, params->rank);
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, tensor_dtype(params), dims_shape(&dims)));
    if (n == 0)
        return KERNEL_DONE;
    if (params->n_elements == 0)
        return kernel_fail(
            ctx,
            status_invalid("Requested more than 0 entries, but params is empty.  Params shape: %s",
                           TENSOR_SHAPE_TEXT(params)));
    if (kernel_is_for_device(ctx) && len > 0) {
        struct device_slices slices;
        KERNEL_TRY(ctx, device_slices_init(&slices, indices, (int)depth, tensor_shape(params), n));
        KERNEL_TRY(ctx, ctx->instance->engine->gather_slices(
                            ctx, &slices, dtype_size(tensor_dtype(params)),
                            tensor_data(&ctx->outputs[0]), tensor_cdata(params)));
        return KERNEL_DONE;
    }
    int64_t stack[STACK_INDICES],
        *at = n <= STACK_INDICES ? stack : malloc((size_t)n * sizeof(*at));
    if (!at)
        return kernel_fail(ctx, status_exhausted("OOM: %lld indices of a gather", (long long)n));
    int64_t bad = index_rows_flatten(indices, (int)depth, tensor_shape(params), n, at);
    if (bad >= 0 && !skips)
        kernel_fail(ctx,
                    index_row_bad(indices, (int)depth, bad, "param shape", tensor_shape(params)));
    else
        index_copy_slices(tensor_dtype(params), tensor_data(&ctx->outputs[0]), tensor_cdata(params),
                          at, n, len, ctx->pool);
    if (at != stack)
        free(at);
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "Gather", .compute = gather_v1},
    {.op = "GatherV2", .compute = gather_v2, .init = gather_v2_init},
    {.op = "GatherNd", .compute = gather_nd, .init = policy_init},
};
// clang-format on

const struct kernel_list array_gather_kernels = {rows, ARRAY_LEN(rows)};
