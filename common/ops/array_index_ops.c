/* Lists the ops of the array family with indices, distinct values, sequences and partitions. */
#include <math.h>

#include "common/ops/op_def.h"

/* ---- Gather ---- */

static struct status *gather_of(struct shape_inference *ctx, const struct tensor *axis_value,
                                bool axis_known, int64_t batch_dims) {
    struct shape params = ctx->in[0], indices = ctx->in[1], out;
    TRY(shape_require_rank_at_least(ctx, 0, 1));
    if (batch_dims < INT32_MIN || batch_dims > INT32_MAX)
        return status_invalid("Attr batch_dims has value %lld out of range for an int32",
                              (long long)batch_dims);
    if (batch_dims < 0 && indices.rank >= 0)
        batch_dims += indices.rank;
    if (!axis_known) {
        int64_t rank = (int64_t)params.rank - 1 + indices.rank - batch_dims;
        if (params.rank >= 0 && indices.rank >= 0 && batch_dims >= 0 && rank >= 0 &&
            rank <= SHAPE_MAX_RANK)
            ctx->out[0] = shape_unknown_of_rank(ctx, (int)rank);
        return NULL;
    }
    int64_t axis = axis_value ? tensor_index_at(axis_value, 0) : 0;
    if (params.rank < 0 || indices.rank < 0)
        return NULL;
    if (axis < -(int64_t)params.rank || axis >= params.rank)
        return status_invalid(
            "Shape must be at least rank %llu but is rank %d",
            axis < 0 ? 0 - (unsigned long long)axis : (unsigned long long)axis + 1, params.rank);
    axis += axis < 0 ? params.rank : 0;
    if (batch_dims < 0 || batch_dims > indices.rank)
        return status_invalid("Expected batch_dims in the range [0, %d], but got %lld",
                              indices.rank, (long long)batch_dims);
    if (batch_dims > axis) /* the kernel reports it */
        return NULL;
    TRY(shape_concat(ctx, shape_sub(ctx, params, 0, (int)axis),
                     shape_sub(ctx, indices, (int)batch_dims, -1), &out));
    return shape_concat(ctx, out, shape_sub(ctx, params, (int)axis + 1, -1), &ctx->out[0]);
}

static struct status *shape_of_gather(struct shape_inference *ctx) {
    return gather_of(ctx, NULL, true, 0);
}

static struct status *shape_of_gather_v2(struct shape_inference *ctx) {
    int64_t batch_dims;
    TRY(shape_require_rank(ctx, 2, 0, NULL));
    TRY(node_get_i(ctx->node, "batch_dims", &batch_dims));
    return gather_of(ctx, ctx->in_values[2], ctx->in_values[2] != NULL, batch_dims);
}

static struct status *shape_of_gather_nd(struct shape_inference *ctx) {
    struct shape params = ctx->in[0], indices = ctx->in[1];
    TRY(shape_require_rank_at_least(ctx, 1, 1));
    if (indices.rank < 0 || indices.dims[indices.rank - 1] < 0 || params.rank < 0)
        return NULL;
    int64_t depth = indices.dims[indices.rank - 1];
    if (depth > params.rank)
        return status_invalid("indices.shape[-1] must be <= params.rank, but saw indices shape %s "
                              "and params shape %s",
                              SHAPE_TEXT(indices), SHAPE_TEXT(params));
    return shape_concat(ctx, shape_sub(ctx, indices, 0, indices.rank - 1),
                        shape_sub(ctx, params, (int)depth, -1), &ctx->out[0]);
}

/* ---- ScatterNd ---- */

/* The updates must be [rows of indices…, what each row points at…]. */
static struct status *check_scatter(struct shape_inference *ctx, struct shape out,
                                    struct shape indices, struct shape updates) {
    if (out.rank == 0 && ctx->in_values[0])
        return status_invalid("Shape must be at least rank 1 but is rank 0");
    if (indices.rank < 1 || indices.dims[indices.rank - 1] < 0 || updates.rank < 0 || out.rank < 0)
        return NULL;
    int64_t depth = indices.dims[indices.rank - 1];
    int n_rows = indices.rank - 1;
    if (depth > out.rank) /* the kernel reports it */
        return NULL;
    if (updates.rank != n_rows + out.rank - depth)
        return status_invalid("Shape of updates must be rank %lld but is rank %d",
                              (long long)(n_rows + out.rank - depth), updates.rank);
    struct shape merged;
    struct status *st = shape_merge(ctx, shape_sub(ctx, indices, 0, n_rows),
                                    shape_sub(ctx, updates, 0, n_rows), &merged);
    if (!st)
        st = shape_merge(ctx, shape_sub(ctx, out, (int)depth, -1),
                         shape_sub(ctx, updates, n_rows, -1), &merged);
    return status_prefix_take(st, "Dimensions of indices, updates and output must match: ");
}

static struct status *shape_of_scatter_nd(struct shape_inference *ctx) {
    TRY(shape_from_input(ctx, 2, &ctx->out[0]));
    return check_scatter(ctx, ctx->out[0], ctx->in[0], ctx->in[1]);
}

static struct status *shape_of_tensor_scatter(struct shape_inference *ctx) {
    ctx->out[0] = ctx->in[0];
    return check_scatter(ctx, ctx->in[0], ctx->in[1], ctx->in[2]);
}

/* ---- distinct values ---- */

static struct status *shape_of_unique_with_counts(struct shape_inference *ctx) {
    ctx->out[0] = shape_unknown_of_rank(ctx, 1);
    ctx->out[1] = ctx->in[0];
    ctx->out[2] = shape_unknown_of_rank(ctx, 1);
    return NULL;
}

static struct status *shape_of_unique(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 0, 1, NULL));
    ctx->out[0] = shape_unknown_of_rank(ctx, 1);
    ctx->out[1] = ctx->in[0];
    return NULL;
}

static struct status *shape_of_unique_v2(struct shape_inference *ctx) {
    struct shape in = ctx->in[0];
    const struct tensor *axis = ctx->in_values[1];
    ctx->out[1] = shape_unknown_of_rank(ctx, 1);
    if (ctx->node->n_outputs > 2)
        ctx->out[2] = shape_unknown_of_rank(ctx, 1);
    if (in.rank < 0)
        return NULL;
    ctx->out[0] = shape_unknown_of_rank(ctx, in.rank);
    if (!axis)
        return NULL;
    if (axis->rank != 1)
        return status_invalid("axis expects a 1D vector.");
    if (axis->n_elements == 0) {
        TRY(shape_require_rank(ctx, 0, 1, &ctx->out[1]));
        return NULL;
    }
    int64_t at = tensor_index_at(axis, 0);
    if (axis->n_elements > 1 || at < -(int64_t)in.rank || at >= in.rank)
        return status_invalid("axis expects one element in [%d, %d)", -in.rank, in.rank);
    at += at < 0 ? in.rank : 0;
    int64_t *dims = arena_memdup(ctx->arena, in.dims, (size_t)in.rank * sizeof(*dims)),
            n = dims[at];
    dims[at] = -1;
    ctx->out[0] = (struct shape){in.rank, dims};
    ctx->out[1] = shape_make(ctx, 1, &n);
    return NULL;
}

static struct status *shape_of_list_diff(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 0, 1, NULL));
    TRY(shape_require_rank(ctx, 1, 1, NULL));
    ctx->out[0] = ctx->out[1] = shape_unknown_of_rank(ctx, 1);
    return NULL;
}

static struct status *shape_of_where(struct shape_inference *ctx) {
    int64_t dims[2] = {-1, ctx->in[0].rank < 0 ? -1 : ctx->in[0].rank};
    ctx->out[0] = shape_make(ctx, 2, dims);
    return NULL;
}

/* ---- sequences ---- */

/* Computes the count in the arithmetic of the dtype, as the kernel does. */
static struct status *range_of_real(struct shape_inference *ctx, const struct tensor *start,
                                    const struct tensor *limit, const struct tensor *delta) {
    double count, by;
    if (start->dtype == DT_DOUBLE) {
        by = *(const double *)tensor_cdata(delta);
        count = ceil(fabs(
            (*(const double *)tensor_cdata(limit) - *(const double *)tensor_cdata(start)) / by));
    } else {
        float by_f = *(const float *)tensor_cdata(delta);
        count = ceilf(fabsf(
            (*(const float *)tensor_cdata(limit) - *(const float *)tensor_cdata(start)) / by_f));
        by = by_f;
    }
    if (by == 0)
        return status_invalid("Requires delta != 0");
    int64_t n = count < 9.2e18 ? (int64_t)count : -1;
    ctx->out[0] = shape_make(ctx, 1, &n);
    return NULL;
}

static struct status *shape_of_range(struct shape_inference *ctx) {
    for (int i = 0; i < 3; i++)
        TRY(shape_require_rank(ctx, i, 0, NULL));
    ctx->out[0] = shape_unknown_of_rank(ctx, 1);
    const struct tensor *start = ctx->in_values[0], *limit = ctx->in_values[1],
                        *delta = ctx->in_values[2];
    if (!start || !limit || !delta)
        return NULL;
    if (start->dtype == DT_FLOAT || start->dtype == DT_DOUBLE)
        return range_of_real(ctx, start, limit, delta);
    if (start->dtype != DT_INT32 && start->dtype != DT_INT64)
        return NULL;
    int64_t first = tensor_index_at(start, 0), end = tensor_index_at(limit, 0),
            by = tensor_index_at(delta, 0);
    if (by == 0)
        return status_invalid("Requires delta != 0");
    if (by > 0 ? first > end : first < end)
        return status_invalid("Requires start %s limit when delta %s 0: %lld/%lld",
                              by > 0 ? "<=" : ">=", by > 0 ? ">" : "<", (long long)first,
                              (long long)end);
    uint64_t span = by > 0 ? (uint64_t)end - (uint64_t)first : (uint64_t)first - (uint64_t)end,
             step = by > 0 ? (uint64_t)by : 0 - (uint64_t)by;
    int64_t n = (int64_t)(span / step + (span % step != 0));
    if (n >= 0)
        ctx->out[0] = shape_make(ctx, 1, &n);
    return NULL;
}

static struct status *shape_of_lin_space(struct shape_inference *ctx) {
    for (int i = 0; i < 3; i++)
        TRY(shape_require_rank(ctx, i, 0, NULL));
    int64_t n = ctx->in_values[2] ? tensor_index_at(ctx->in_values[2], 0) : -1;
    if (ctx->in_values[2] && n <= 0)
        return status_invalid("Requires num > 0: %lld", (long long)n);
    ctx->out[0] = shape_make(ctx, 1, &n);
    return NULL;
}

static struct status *shape_of_one_hot(struct shape_inference *ctx) {
    int64_t axis, depth = -1;
    TRY(node_get_i(ctx->node, "axis", &axis));
    TRY(shape_require_rank(ctx, 1, 0, NULL)); /* the kernel compares the two values */
    if (axis < -1)
        return status_invalid("axis must be >= -1");
    if (ctx->in_values[1]) {
        depth = tensor_index_at(ctx->in_values[1], 0);
        if (depth < 0)
            return status_invalid(
                "Dimension size, given by scalar input 1, must be non-negative but is %lld",
                (long long)depth);
    }
    struct shape in = ctx->in[0], head;
    if (in.rank < 0 || axis > in.rank) /* too large, which the kernel reports */
        return NULL;
    int at = axis == -1 ? in.rank : (int)axis;
    TRY(shape_concat(ctx, shape_sub(ctx, in, 0, at), shape_make(ctx, 1, &depth), &head));
    return shape_concat(ctx, head, shape_sub(ctx, in, at, -1), &ctx->out[0]);
}

/* ---- partitions ---- */

static struct status *shape_of_dynamic_partition(struct shape_inference *ctx) {
    struct shape data = ctx->in[0], partitions = ctx->in[1], head, out;
    if (data.rank < 0 || partitions.rank < 0)
        return NULL;
    if (data.rank < partitions.rank)
        return status_invalid("data.shape must start with partitions.shape, got %s and %s",
                              SHAPE_TEXT(data), SHAPE_TEXT(partitions));
    TRY(shape_merge(ctx, shape_sub(ctx, data, 0, partitions.rank), partitions, &head));
    TRY(shape_concat(ctx, shape_unknown_of_rank(ctx, 1), shape_sub(ctx, data, partitions.rank, -1),
                     &out));
    for (int i = 0; i < ctx->node->n_outputs; i++)
        ctx->out[i] = out;
    return NULL;
}

static struct status *shape_of_dynamic_stitch(struct shape_inference *ctx) {
    int n = ctx->node->n_data / 2;
    struct shape extra = SHAPE_UNKNOWN;
    int64_t max = -1;
    bool all_known = true;
    for (int i = 0; i < n; i++) {
        struct shape indices = ctx->in[i], data = ctx->in[n + i], head;
        const struct tensor *value = ctx->in_values[i];
        all_known &= value != NULL;
        for (int64_t k = 0; value && k < value->n_elements; k++)
            max = MAX(max, tensor_index_at(value, k));
        if (indices.rank < 0 || data.rank < 0)
            continue;
        if (data.rank < indices.rank)
            return status_invalid("data[%d].shape = %s does not start with indices[%d].shape = %s",
                                  i, SHAPE_TEXT(data), i, SHAPE_TEXT(indices));
        TRY(shape_merge(ctx, shape_sub(ctx, data, 0, indices.rank), indices, &head));
        TRY(shape_merge(ctx, extra, shape_sub(ctx, data, indices.rank, -1), &extra));
    }
    int64_t size = all_known ? max + 1 : -1;
    return shape_concat(ctx, shape_make(ctx, 1, &size), extra, &ctx->out[0]);
}

// clang-format off
static const struct op_def rows[] = {
    {"Gather", "slices picked by index along the first dimension", shape_of_gather},
    {"GatherV2", "slices picked by index along a dimension", shape_of_gather_v2},
    {"GatherNd", "slices picked by rows of indices", shape_of_gather_nd},
    {"ScatterNd", "slices added up at the rows of indices, zeros elsewhere", shape_of_scatter_nd},
    {"TensorScatterUpdate", "the input with slices replaced at the rows of indices",
     shape_of_tensor_scatter},
    {"TensorScatterAdd", "the input with slices added at the rows of indices",
     shape_of_tensor_scatter},
    {"TensorScatterSub", "the input with slices subtracted at the rows of indices",
     shape_of_tensor_scatter},
    {"TensorScatterMin", "the smaller of input and slices at the rows of indices",
     shape_of_tensor_scatter},
    {"TensorScatterMax", "the larger of input and slices at the rows of indices",
     shape_of_tensor_scatter},
    {"Unique",
     "distinct values in the order of first occurrence, and the index of each element's value",
     shape_of_unique},
    {"UniqueWithCounts", "distinct values, the index of each element's value, and counts",
     shape_of_unique_with_counts},
    {"UniqueV2", "distinct slices along a dimension, and the index of each slice",
     shape_of_unique_v2},
    {"UniqueWithCountsV2", "distinct slices along a dimension, the index of each slice, and counts",
     shape_of_unique_v2},
    {"ListDiff", "the values of one list that another does not have, and their positions",
     shape_of_list_diff},
    {"Where", "the coordinates of elements that are not zero", shape_of_where},
    {"Range", "numbers from start to below limit in steps of delta", shape_of_range},
    {"LinSpace", "evenly spaced numbers from start to stop", shape_of_lin_space},
    {"OneHot", "one value at each index along a new dimension, another value elsewhere",
     shape_of_one_hot},
    {"DynamicPartition", "sends each slice to the output that its number names",
     shape_of_dynamic_partition},
    {"DynamicStitch", "merges slices of several inputs by index; later ones win",
     shape_of_dynamic_stitch},
    {"ParallelDynamicStitch", "merges slices of several inputs by index", shape_of_dynamic_stitch},
};
// clang-format on

const struct op_def_list array_index_ops = {rows, ARRAY_LEN(rows)};
