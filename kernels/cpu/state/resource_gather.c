/* Runs ResourceGather and ResourceGatherNd: reads rows or slices of a variable without a copy of
 * the whole.
 *
 * A snapshot would make the next update copy the whole variable. So a result that is small against
 * the variable is gathered under the variable's lock. Only a result about as large as the variable
 * is gathered from a snapshot. */
#include <stdlib.h>

#include "kernels/kernel.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/variable_input.h"
#include "kernels/variable.h"

extern const struct kernel_list resource_gather_kernels;

struct gather_state {
    enum dtype dtype;
    int64_t batch_dims;
};

static struct status *gather_init(struct kernel_init *init) {
    struct gather_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_type(init->node, "dtype", &state->dtype));
    if (node_attr(init->node, "batch_dims"))
        TRY(node_get_i(init->node, "batch_dims", &state->batch_dims));
    return NULL;
}

/* Gathers n_slices slices of slice_len elements from `from`. Slice s is at offsets[s]; without
 * offsets, slice s is the row that indices[s] names within its batch. */
struct gather_job {
    enum dtype dtype;
    size_t slice_bytes;
    int64_t slice_len;
    const char *from;
    char *to;
    const struct tensor *indices;
    /* how many indices, and elements of the variable, one batch has */
    int64_t n_per_batch, batch_len;
    const int64_t *offsets;
    int64_t n_slices;
};

static void gather_range(void *arg, int64_t begin, int64_t end) {
    const struct gather_job *job = arg;
    size_t size = dtype_size(job->dtype);
    for (int64_t s = begin; s < end; s++) {
        int64_t offset = job->offsets ? job->offsets[s]
                                      : s / job->n_per_batch * job->batch_len +
                                            tensor_index_at(job->indices, s) * job->slice_len;
        const char *from = job->from + (size_t)offset * size;
        char *to = job->to + (size_t)s * job->slice_bytes;
        if (dtype_is_object(job->dtype))
            elements_copy(job->dtype, to, from, job->slice_len);
        else
            memcpy(to, from, job->slice_bytes);
    }
}

static void gather_run(struct kernel_ctx *ctx, struct gather_job *job) {
    job->slice_bytes = (size_t)job->slice_len * dtype_size(job->dtype);
    if (job->n_slices == 0 || job->slice_len == 0)
        return;
    if (ctx->pool && (size_t)job->n_slices * job->slice_bytes > 256 * 1024)
        pool_parallel_for(ctx->pool, job->n_slices, 5 + 0.1 * (double)job->slice_bytes,
                          gather_range, job);
    else
        gather_range(job, 0, job->n_slices);
}

/* Finds the variable and runs `body` on its value: under the lock, or on a snapshot when the result
 * is large. */
typedef struct status *gather_fn(struct kernel_ctx *ctx, const struct tensor *params,
                                 const struct tensor *indices);

static enum kernel_result gather_from_variable(struct kernel_ctx *ctx, gather_fn *body) {
    const struct gather_state *state = ctx->instance->state;
    struct variable *variable = NULL;
    struct tensor snapshot = TENSOR_INIT;
    KERNEL_TRY(ctx, variable_of_input(ctx, 0, &variable));
    pthread_mutex_lock(&variable->lock);
    struct status *st = variable_check(variable, false, state->dtype);
    const struct tensor *params = &variable->value, *indices = &ctx->inputs[1];
    if (!st) {
        int64_t n_rows = params->rank > 0 ? tensor_dim(params, 0) : 0;
        if (indices->n_elements > n_rows / 4)
            tensor_copy(&snapshot, params);
        else
            st = body(ctx, params, indices);
    }
    pthread_mutex_unlock(&variable->lock);
    if (snapshot.storage != TENSOR_NONE)
        st = body(ctx, &snapshot, indices);
    tensor_clear(&snapshot);
    variable_unref(variable);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- ResourceGather: params [batch…, n, inner…], indices [batch…, i…] → [batch…, i…, inner…]
 * ---- */

static struct status *check_batch(const struct tensor *params, const struct tensor *indices,
                                  int64_t batch_dims) {
    if (batch_dims > indices->rank)
        return status_invalid("Expected batch_dims in the range [%d, %d], but got %lld",
                              -indices->rank, indices->rank, (long long)batch_dims);
    if (batch_dims >= params->rank)
        return status_invalid("batch_dims (%lld) must be less than rank(params) (%d).",
                              (long long)batch_dims, params->rank);
    for (int i = 0; i < batch_dims; i++) {
        if (tensor_dim(params, i) != tensor_dim(indices, i))
            return status_invalid(
                "params.shape[%d]: %lld should be equal to indices.shape[%d]: %lld", i,
                (long long)tensor_dim(params, i), i, (long long)tensor_dim(indices, i));
    }
    return NULL;
}

static struct status *gather_body(struct kernel_ctx *ctx, const struct tensor *params,
                                  const struct tensor *indices) {
    const struct gather_state *state = ctx->instance->state;
    if (params->rank < 1)
        return status_invalid("params must be at least 1 dimensional");
    int64_t batch_dims =
        state->batch_dims < 0 ? state->batch_dims + indices->rank : state->batch_dims;
    if (batch_dims < 0)
        return status_invalid("batch_dims is negative (%lld)", (long long)state->batch_dims);
    TRY(check_batch(params, indices, batch_dims));
    int batch = (int)batch_dims, rank = indices->rank + params->rank - batch - 1;
    if (rank > SHAPE_MAX_RANK)
        return status_invalid("Gathered shape of rank %d is beyond the limit of %d", rank,
                              SHAPE_MAX_RANK);
    if (!tensor_is_on_device(indices))
        TRY(indices_check(indices, tensor_dim(params, batch)));
    int64_t dims[SHAPE_MAX_RANK];
    for (int i = 0; i < rank; i++)
        dims[i] = i < indices->rank ? tensor_dim(indices, i)
                                    : tensor_dim(params, i - indices->rank + batch + 1);
    TRY(kernel_alloc(ctx, 0, state->dtype, (struct shape){rank, dims}));
    if (ctx->outputs[0].n_elements == 0)
        return NULL;
    /* The result is not empty, so the following products are parts of sizes that fit. */
    struct gather_job job = {.dtype = state->dtype,
                             .from = tensor_cdata(params),
                             .to = tensor_data(&ctx->outputs[0]),
                             .indices = indices,
                             .n_slices = indices->n_elements};
    job.slice_len = job.n_per_batch = 1;
    for (int i = batch + 1; i < params->rank; i++)
        job.slice_len *= tensor_dim(params, i);
    for (int i = batch; i < indices->rank; i++)
        job.n_per_batch *= tensor_dim(indices, i);
    job.batch_len = job.slice_len * tensor_dim(params, batch);
    if (kernel_is_for_device(ctx) && !dtype_is_object(state->dtype)) {
        struct device_gather gather = {.to = job.to,
                                       .from = job.from,
                                       .indices = tensor_cdata(indices),
                                       .index_dtype = (enum dtype)indices->dtype,
                                       .element_bytes = dtype_size(state->dtype),
                                       .n_batch = job.n_slices / job.n_per_batch,
                                       .n_outer = 1,
                                       .n_axis = tensor_dim(params, batch),
                                       .n_picked = job.n_per_batch,
                                       .len = job.slice_len};
        return ctx->instance->engine->gather(ctx, &gather);
    }
    gather_run(ctx, &job);
    return NULL;
}

static enum kernel_result gather(struct kernel_ctx *ctx) {
    return gather_from_variable(ctx, gather_body);
}

/* ---- ResourceGatherNd: indices [batch…, depth] → [batch…] + params.shape[depth:] ---- */

static COLD struct status *bad_coordinates(const struct kernel_ctx *ctx,
                                           const struct tensor *params,
                                           const struct tensor *indices, int64_t slice, int depth) {
    struct str text = STR_INIT;
    for (int i = 0; i < depth; i++)
        str_addf(&text, "%s%lld", i ? ", " : "",
                 (long long)tensor_index_at(indices, slice * depth + i));
    struct shape rows = {indices->rank - 1, tensor_dims(indices)};
    struct status *st =
        status_invalid("indices%s = [%s] does not index into param shape %s, node name: %s",
                       SHAPE_INDEX_TEXT(rows, slice), str_text(&text), TENSOR_SHAPE_TEXT(params),
                       ctx->instance->node->name);
    str_fini(&text);
    return st;
}

static struct status *gather_nd_copy(struct kernel_ctx *ctx, const struct tensor *params,
                                     const struct tensor *indices, int depth, int64_t n_slices,
                                     int64_t slice_len) {
    int64_t *offsets = malloc((size_t)n_slices * sizeof(*offsets) + 1);
    if (!offsets)
        return status_exhausted("Out of memory for the offsets of %lld slices of %s",
                                (long long)n_slices, ctx->instance->node->name);
    struct status *st = NULL;
    for (int64_t s = 0; s < n_slices && !st; s++) {
        int64_t offset = 0;
        for (int i = 0; i < depth && !st; i++) {
            int64_t index = tensor_index_at(indices, s * depth + i), dim = tensor_dim(params, i);
            if (unlikely(index < 0 || index >= dim))
                st = bad_coordinates(ctx, params, indices, s, depth);
            else
                offset = offset * dim + index;
        }
        offsets[s] = offset * slice_len;
    }
    struct gather_job job = {.dtype = (enum dtype)params->dtype,
                             .slice_len = slice_len,
                             .from = tensor_cdata(params),
                             .to = tensor_data(&ctx->outputs[0]),
                             .offsets = offsets,
                             .n_slices = n_slices};
    if (!st)
        gather_run(ctx, &job);
    free(offsets);
    return st;
}

static struct status *gather_nd_body(struct kernel_ctx *ctx, const struct tensor *params,
                                     const struct tensor *indices) {
    const struct gather_state *state = ctx->instance->state;
    if (params->rank < 1)
        return status_invalid("params must be at least a vector");
    if (indices->rank < 1)
        return status_invalid("indices must be at least a vector");
    int64_t depth = tensor_dim(indices, indices->rank - 1);
    if (depth > params->rank)
        return status_invalid(
            "index innermost dimension length must be <= params rank; saw: %lld vs. %d",
            (long long)depth, params->rank);
    int batch_rank = indices->rank - 1, rank = batch_rank + params->rank - (int)depth;
    if (rank > SHAPE_MAX_RANK)
        return status_invalid("Gathered shape of rank %d is beyond the limit of %d", rank,
                              SHAPE_MAX_RANK);
    int64_t dims[SHAPE_MAX_RANK], n_slices = 0, slice_len = 1;
    for (int i = 0; i < rank; i++)
        dims[i] = i < batch_rank ? tensor_dim(indices, i)
                                 : tensor_dim(params, i - batch_rank + (int)depth);
    TRY(shape_n_elements((struct shape){batch_rank, tensor_dims(indices)}, &n_slices));
    if (n_slices > 0 && params->n_elements == 0)
        return status_invalid(
            "Requested more than 0 entries, but params is empty.  Params shape: %s",
            TENSOR_SHAPE_TEXT(params));
    TRY(kernel_alloc(ctx, 0, state->dtype, (struct shape){rank, dims}));
    if (n_slices == 0)
        return NULL;
    for (int i = (int)depth; i < params->rank; i++)
        slice_len *= tensor_dim(params, i);
    if (kernel_is_for_device(ctx)) {
        struct device_slices slices;
        TRY(device_slices_init(&slices, indices, (int)depth, tensor_shape(params), n_slices));
        return slice_len > 0
                   ? ctx->instance->engine->gather_slices(ctx, &slices, dtype_size(state->dtype),
                                                          tensor_data(&ctx->outputs[0]),
                                                          tensor_cdata(params))
                   : NULL;
    }
    return gather_nd_copy(ctx, params, indices, (int)depth, n_slices, slice_len);
}

static enum kernel_result gather_nd(struct kernel_ctx *ctx) {
    return gather_from_variable(ctx, gather_nd_body);
}

#define TYPES_GATHER_ND (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPES_OBJECT)

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "ResourceGather", {{"dtype", TYPES_GATHER_ND | DTYPES_QUANTIZED},
        {"Tindices", DTYPES_INDEX}}, .compute = gather, .init = gather_init,
        .flags = KERNEL_STATEFUL},
    {.op = "ResourceGatherNd", {{"dtype", TYPES_GATHER_ND}, {"Tindices", DTYPES_INDEX}},
        .compute = gather_nd, .init = gather_init, .flags = KERNEL_STATEFUL},
};
// clang-format on

const struct kernel_list resource_gather_kernels = {rows, ARRAY_LEN(rows)};
