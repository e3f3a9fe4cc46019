/* The compute functions of sorted segments: SegmentSum, SparseSegmentMean, their gradients, and
 * weighted counts, which are sums of segments too.
 *
 * The ids are sorted, so a segment is a run of rows. The gradients scatter: rows are sorted by
 * where they are added, and each run of them is reduced. No atomics are used. */
#include "kernels/cuda/ops/segments.h"

#include <stdlib.h>

#include "kernels/cuda/ops/engine_internal.h"
#include "kernels/cuda/ops/order.h"
#include "kernels/cuda/ops/select.h"
#include "kernels/cuda/ops/sized_job.h"
#include "kernels/support/counting_checks.h"
#include "kernels/support/dims.h"

static struct gpu_stem runs_stem = {"runs"};
static struct gpu_stem group_stem = {"group"};

const struct segments_op segments_sum = {.op = UPDATE_ADD};
const struct segments_op segments_mean = {.op = UPDATE_ADD, .scale = SEGMENTS_MEAN};
const struct segments_op segments_prod = {.op = UPDATE_MUL};
const struct segments_op segments_min = {.op = UPDATE_MIN};
const struct segments_op segments_max = {.op = UPDATE_MAX};
const struct segments_op segments_sparse_sum = {.op = UPDATE_ADD, .is_sparse = true};
const struct segments_op segments_sparse_mean = {
    .op = UPDATE_ADD, .scale = SEGMENTS_MEAN, .is_sparse = true};
const struct segments_op segments_sparse_sqrt_n = {
    .op = UPDATE_ADD, .scale = SEGMENTS_SQRT_N, .is_sparse = true};

/* ---- runs ---- */

static int64_t power_of_two_from(int64_t n, int64_t most) {
    int64_t power = 1;
    while (power < n && power < most)
        power *= 2;
    return power;
}

struct gpu_grid segments_grid(int64_t n_segments, int64_t inner, int64_t n_places,
                              int64_t *ret_width, int64_t *ret_n_lanes) {
    int64_t width = power_of_two_from(inner, ORDER_THREADS),
            n_lanes = power_of_two_from(n_places / n_segments + 1, ORDER_THREADS / width),
            n_groups = ORDER_THREADS / (width * n_lanes);
    int64_t n_units = (n_segments + n_groups - 1) / n_groups * ((inner + width - 1) / width);
    *ret_width = width;
    *ret_n_lanes = n_lanes;
    return (struct gpu_grid){.n_blocks = (unsigned)MIN(n_units, (int64_t)1 << 16),
                             .n_threads = ORDER_THREADS};
}

struct status *segments_run(struct kernel_ctx *ctx, enum dtype dtype, struct runs_args *args,
                            int64_t n_places) {
    struct gpu_grid grid =
        segments_grid(args->n_segments, args->inner, n_places, &args->width, &args->n_lanes);
    return engine_launch(ctx, &runs_stem, gpu_dtype_suffix(dtype), grid, args);
}

/* ---- SegmentX, SparseSegmentX, SparseSegmentXWithNumSegments ---- */

struct segments_job {
    struct sized_job job;
    struct buffer *last; /* the last id */
};

static void segments_fini(struct sized_job *base) {
    buffer_unref(CONTAINER_OF(base, struct segments_job, job)->last);
}

static const struct segments_op *op_of(const struct kernel_ctx *ctx) {
    return ctx->instance->def->arg;
}

static const struct tensor *ids_of(const struct kernel_ctx *ctx) {
    return kernel_input(ctx, op_of(ctx)->is_sparse ? 2 : 1);
}

static struct status *check(const struct kernel_ctx *ctx) {
    const struct tensor *data = kernel_input(ctx, 0), *ids = ids_of(ctx);
    bool is_sparse = op_of(ctx)->is_sparse;
    if (is_sparse && ctx->inputs[1].rank != 1)
        return status_invalid("indices should be a vector.");
    if (ids->rank != 1)
        return status_invalid("segment_ids should be a vector.");
    if (data->rank < 1)
        return is_sparse ? status_invalid("Shape must be at least rank 1")
                         : status_invalid("input must be at least rank 1");
    if (is_sparse && ids->n_elements != ctx->inputs[1].n_elements)
        return status_invalid("segment_ids and indices should have same size.");
    if (!is_sparse && ids->n_elements != tensor_dim(data, 0))
        return status_invalid("segment_ids should be the same size as dimension 0 of input.");
    return NULL;
}

/* Makes output 0: n_rows rows like those of `data`. */
static struct status *alloc_rows(struct kernel_ctx *ctx, const struct tensor *data, int64_t n_rows,
                                 int64_t *ret_inner) {
    struct dims dims;
    dims_set(&dims, tensor_shape(data));
    dims.at[0] = n_rows;
    TRY(kernel_alloc(ctx, 0, (enum dtype)data->dtype, dims_shape(&dims)));
    *ret_inner = ctx->outputs[0].n_elements > 0 ? dims_product(dims.at, 1, dims.rank) : 1;
    return NULL;
}

static struct status *segments_fill(struct kernel_ctx *ctx, int64_t n_rows) {
    const struct segments_op *op = op_of(ctx);
    const struct tensor *data = kernel_input(ctx, 0), *ids = ids_of(ctx);
    struct runs_args args = {.op = (int64_t)op->op,
                             .scale = (int64_t)op->scale,
                             .n_segments = n_rows,
                             .n_rows = tensor_dim(data, 0)};
    struct buffer *firsts = NULL;
    TRY(alloc_rows(ctx, data, n_rows, &args.inner));
    if (ctx->outputs[0].n_elements == 0)
        return NULL;
    args.out = tensor_data(&ctx->outputs[0]);
    args.data = tensor_cdata(data);
    args.rows = op->is_sparse ? tensor_cdata(&ctx->inputs[1]) : NULL;
    args.row_index = engine_index((enum dtype)ctx->inputs[1].dtype);
    TRY(order_longs(ctx, n_rows + 1, &firsts));
    args.firsts = order_longs_of(firsts);
    struct status *st = order_bounds(ctx, tensor_cdata(ids), engine_index((enum dtype)ids->dtype),
                                     ids->n_elements, n_rows, order_longs_of(firsts));
    if (!st)
        st = segments_run(ctx, (enum dtype)data->dtype, &args, ids->n_elements);
    buffer_unref(firsts);
    return st;
}

static struct status *segments_finish(struct sized_job *base, const void *sizes) {
    enum dtype dtype = (enum dtype)ids_of(base->ctx)->dtype;
    int64_t last = dtype == DT_INT32 ? *(const int32_t *)sizes : *(const int64_t *)sizes;
    if (last < 0 || last == INT64_MAX)
        return status_invalid("Segment id %lld out of range, possibly because 'segment_ids' input "
                              "is not sorted.",
                              (long long)last);
    return segments_fill(base->ctx, last + 1);
}

/* The number of rows is one more than the last id. */
static enum kernel_result read_last(struct kernel_ctx *ctx) {
    const struct tensor *ids = ids_of(ctx);
    size_t size = dtype_size((enum dtype)ids->dtype);
    struct segments_job *job = xcalloc(1, sizeof *job);
    job->job = (struct sized_job){.ctx = ctx, .finish = segments_finish, .fini = segments_fini};
    struct status *st = gpu_scratch(ctx, size, &job->last);
    if (!st)
        st = gpu_copy_within(ctx, job->last->data,
                             (const char *)tensor_cdata(ids) + (size_t)(ids->n_elements - 1) * size,
                             size);
    return sized_job_end_take(&job->job, st, job->last, size);
}

enum kernel_result segments_compute(struct kernel_ctx *ctx) {
    int64_t n_rows = 0;
    KERNEL_TRY(ctx, check(ctx));
    if (ctx->instance->n_inputs == (op_of(ctx)->is_sparse ? 4 : 3)) {
        const struct tensor *n = kernel_input(ctx, ctx->instance->n_inputs - 1);
        if (n->rank != 0)
            return kernel_fail(ctx, status_invalid("num_segments should be a scalar, not shape %s",
                                                   TENSOR_SHAPE_TEXT(n)));
        n_rows = tensor_index_at(n, 0);
        if (n_rows < 0)
            return kernel_fail(ctx, status_invalid("segment ids must be >= 0"));
    } else if (ids_of(ctx)->n_elements > 0) {
        return read_last(ctx);
    }
    KERNEL_TRY(ctx, segments_fill(ctx, n_rows));
    return KERNEL_DONE;
}

/* ---- SparseSegmentXGrad, and V2, whose rows are those that an index names ---- */

struct grad_job {
    struct sized_job job;
    struct order_sort sort;
    struct buffer *firsts, *row_firsts, *heads, *total;
    struct runs_args args;
};

static void grad_fini(struct sized_job *base) {
    struct grad_job *grad = CONTAINER_OF(base, struct grad_job, job);
    order_sort_fini(&grad->sort);
    buffer_unref(grad->firsts);
    buffer_unref(grad->row_firsts);
    buffer_unref(grad->heads);
    buffer_unref(grad->total);
}

/* Sorts the rows by where they are added, and counts the rows of each segment. */
static struct status *grad_prepare(struct kernel_ctx *ctx, struct grad_job *grad, int64_t n_rows) {
    const struct tensor *indices = &ctx->inputs[1], *ids = &ctx->inputs[2];
    const struct segments_op *op = op_of(ctx);
    int64_t n_segments = tensor_dim(&ctx->inputs[0], 0);
    grad->sort.n = indices->n_elements;
    TRY(order_index_keys(ctx, &grad->sort, (enum dtype)indices->dtype, tensor_cdata(indices),
                         n_rows));
    TRY(order_sort_run(ctx, &grad->sort));
    grad->args = (struct runs_args){.data = tensor_cdata(&ctx->inputs[0]),
                                    .positions = order_positions_of(&grad->sort),
                                    .rows = tensor_cdata(ids),
                                    .row_index = engine_index((enum dtype)ids->dtype),
                                    .op = UPDATE_ADD,
                                    .scale = (int64_t)op->scale,
                                    .n_rows = n_segments};
    if (op->scale == SEGMENTS_SUM)
        return NULL;
    TRY(order_longs(ctx, n_segments + 1, &grad->row_firsts));
    grad->args.row_firsts = order_longs_of(grad->row_firsts);
    return order_bounds(ctx, tensor_cdata(ids), grad->args.row_index, ids->n_elements, n_segments,
                        order_longs_of(grad->row_firsts));
}

static struct status *grad_run(struct kernel_ctx *ctx, struct grad_job *grad, int64_t n_rows) {
    TRY(alloc_rows(ctx, &ctx->inputs[0], n_rows, &grad->args.inner));
    if (ctx->outputs[0].n_elements == 0)
        return NULL;
    grad->args.out = tensor_data(&ctx->outputs[0]);
    grad->args.n_segments = n_rows;
    grad->args.firsts = order_longs_of(grad->firsts);
    return segments_run(ctx, (enum dtype)ctx->inputs[0].dtype, &grad->args, grad->sort.n);
}

static struct status *grad_dense(struct kernel_ctx *ctx, struct grad_job *grad, int64_t n_rows) {
    TRY(grad_prepare(ctx, grad, n_rows));
    TRY(order_longs(ctx, n_rows + 1, &grad->firsts));
    TRY(order_bounds(ctx, grad->sort.keys->data,
                     grad->sort.key_bytes == 4 ? BOUNDS_U32 : BOUNDS_U64, grad->sort.n, n_rows,
                     order_longs_of(grad->firsts)));
    return grad_run(ctx, grad, n_rows);
}

static struct status *grad_finish(struct sized_job *base, const void *sizes) {
    struct grad_job *grad = CONTAINER_OF(base, struct grad_job, job);
    struct kernel_ctx *ctx = base->ctx;
    int64_t n_rows = *(const int64_t *)sizes;
    enum dtype dtype = kernel_out_dtype(ctx, 1);
    TRY(kernel_alloc(ctx, 1, dtype, (struct shape){1, &n_rows}));
    TRY(grad_run(ctx, grad, n_rows));
    if (n_rows == 0)
        return NULL;
    struct group_keys_args args = {.keys = grad->sort.keys->data,
                                   .starts = order_longs_of(grad->firsts),
                                   .to = tensor_data(&ctx->outputs[1]),
                                   .n_groups = n_rows,
                                   .key_bytes = (int64_t)grad->sort.key_bytes,
                                   .to_bytes = (int64_t)dtype_size(dtype)};
    return engine_launch_for(ctx, &group_stem, "keys", n_rows, &args);
}

static struct status *grad_compact(struct kernel_ctx *ctx, struct grad_job *grad, int64_t n_rows) {
    int64_t n = ctx->inputs[1].n_elements;
    TRY(grad_prepare(ctx, grad, n_rows));
    TRY(order_longs(ctx, n + 1, &grad->firsts));
    TRY(order_longs(ctx, n + 1, &grad->heads));
    TRY(order_longs(ctx, 1, &grad->total));
    struct select_bounds bounds = {UINT64_MAX, (uint64_t)n_rows};
    return select_groups(ctx, &grad->sort, &bounds, order_longs_of(grad->heads),
                         order_longs_of(grad->firsts), NULL, order_longs_of(grad->total));
}

enum kernel_result segments_grad(struct kernel_ctx *ctx) {
    bool is_compact = ctx->instance->n_outputs > 1;
    int64_t n_rows, inner;
    KERNEL_TRY(ctx, segment_grad_check(ctx, &n_rows));
    if (ctx->inputs[1].n_elements == 0) {
        int64_t none = 0;
        KERNEL_TRY(ctx, alloc_rows(ctx, &ctx->inputs[0], is_compact ? 0 : n_rows, &inner));
        if (is_compact)
            KERNEL_TRY(ctx,
                       kernel_alloc(ctx, 1, kernel_out_dtype(ctx, 1), (struct shape){1, &none}));
        KERNEL_TRY(
            ctx, gpu_zero(ctx, tensor_data(&ctx->outputs[0]), tensor_size_bytes(&ctx->outputs[0])));
        return KERNEL_DONE;
    }
    struct grad_job *grad = xcalloc(1, sizeof *grad);
    grad->job = (struct sized_job){.ctx = ctx, .finish = grad_finish, .fini = grad_fini};
    struct status *st =
        is_compact ? grad_compact(ctx, grad, n_rows) : grad_dense(ctx, grad, n_rows);
    if (is_compact)
        return sized_job_end_take(&grad->job, st, grad->total, sizeof(int64_t));
    grad_fini(&grad->job);
    free(grad);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}
