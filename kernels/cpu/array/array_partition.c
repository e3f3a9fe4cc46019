/* Distributes rows to several outputs, and collects them again: DynamicPartition, DynamicStitch. */
#include <stdlib.h>

#include "common/base/pool_cancel.h"
#include "common/tensor/element.h"
#include "kernels/cpu/array/array_index.h"
#include "kernels/support/cancel.h"
#include "kernels/support/dims.h"
#include "kernels/support/moves.h"
#include "kernels/support/strided.h"

static bool starts_with(const struct tensor *t, const struct tensor *prefix) {
    if (t->rank < prefix->rank)
        return false;
    for (int i = 0; i < prefix->rank; i++) {
        if (tensor_dim(t, i) != tensor_dim(prefix, i))
            return false;
    }
    return true;
}

/* Counts the slices of each partition. */
static struct status *count_parts(const struct tensor *partitions, int n_parts, int64_t *counts) {
    const int32_t *at = tensor_cdata(partitions);
    POOL_PIECES (begin, end, 0, partitions->n_elements) {
        for (int64_t i = begin; i < end; i++) {
            if (at[i] < 0 || at[i] >= n_parts)
                return status_invalid("partitions%s = %d is not in [0, %d)",
                                      SHAPE_INDEX_TEXT(tensor_shape(partitions), i), at[i],
                                      n_parts);
            counts[at[i]]++;
        }
    }
    return NULL;
}

static enum kernel_result dynamic_partition(struct kernel_ctx *ctx) {
    const struct tensor *data = kernel_input(ctx, 0), *partitions = kernel_input(ctx, 1);
    int n_parts = ctx->instance->n_outputs;
    if (!starts_with(data, partitions))
        return kernel_fail(ctx,
                           status_invalid("data.shape must start with partitions.shape, got "
                                          "data.shape = %s, partitions.shape = %s",
                                          TENSOR_SHAPE_TEXT(data), TENSOR_SHAPE_TEXT(partitions)));
    int64_t *counts = xcalloc((size_t)n_parts, sizeof(*counts));
    struct status *st = count_parts(partitions, n_parts, counts);
    struct dims dims;
    dims.rank = 1 + data->rank - partitions->rank;
    for (int i = 1; i < dims.rank; i++)
        dims.at[i] = tensor_dim(data, partitions->rank + i - 1);
    for (int p = 0; p < n_parts && !st; p++) {
        dims.at[0] = counts[p];
        counts[p] = 0;
        st = dims.rank > SHAPE_MAX_RANK
                 ? status_invalid("The parts would pass the rank limit of %d", SHAPE_MAX_RANK)
                 : kernel_alloc(ctx, p, tensor_dtype(data), dims_shape(&dims));
    }
    int64_t len = dims_product(dims.at, 1, dims.rank);
    const int32_t *at = tensor_cdata(partitions);
    if (!st)
        st = kernel_loop_check(0); /* else all slices have been counted */
    int64_t n = !st && len > 0 ? partitions->n_elements : 0;
    POOL_ROW_PIECES (begin, end, n, len)
        for (int64_t i = begin; i < end; i++)
            elements_copy(tensor_dtype(data),
                          tensor_at(&ctx->outputs[at[i]], counts[at[i]]++ * len),
                          tensor_cat(data, i * len), len);
    free(counts);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- DynamicStitch: merged[indices[n][i]] = data[n][i], later ones win ---- */

static struct status *stitch_check(const struct tensor *indices, const struct tensor *data, int n,
                                   int64_t *ret_max) {
    int64_t max = -1;
    for (int i = 0; i < n; i++) {
        if (!starts_with(&data[i], &indices[i]))
            return status_invalid("data[%d].shape = %s does not start with indices[%d].shape = %s",
                                  i, TENSOR_SHAPE_TEXT(&data[i]), i,
                                  TENSOR_SHAPE_TEXT(&indices[i]));
        int extra = data[i].rank - indices[i].rank, extra0 = data[0].rank - indices[0].rank;
        bool is_same = extra == extra0;
        for (int d = 0; is_same && d < extra; d++)
            is_same = tensor_dim(&data[i], indices[i].rank + d) ==
                      tensor_dim(&data[0], indices[0].rank + d);
        if (!is_same)
            return status_invalid("Need data[0].shape[%d:] = data[%d].shape[%d:], got "
                                  "data[0].shape = %s, data[%d].shape = %s, indices[0].shape = %s, "
                                  "indices[%d].shape = %s",
                                  indices[0].rank, i, indices[i].rank, TENSOR_SHAPE_TEXT(&data[0]),
                                  i, TENSOR_SHAPE_TEXT(&data[i]), TENSOR_SHAPE_TEXT(&indices[0]), i,
                                  TENSOR_SHAPE_TEXT(&indices[i]));
        const int32_t *at = tensor_cdata(&indices[i]);
        POOL_PIECES (begin, end, 0, indices[i].n_elements) {
            for (int64_t k = begin; k < end; k++) {
                if (at[k] < 0)
                    return status_invalid("indices[%lld] is out of range", (long long)k);
                max = MAX(max, at[k]);
            }
        }
    }
    *ret_max = max;
    return NULL;
}

/* Where a row of the output is copied from. */
struct stitch_source {
    int input; /* -1: no index names the row */
    int64_t row;
};

/* Copies of one launch must not write the same row, so the last index that names a row is found
 * first. Rows that follow each other on both sides are one copy. */
static struct status *stitch_on_device(struct kernel_ctx *ctx, int n, int64_t n_rows, int64_t len) {
    const struct tensor *indices = ctx->inputs, *data = ctx->inputs + n;
    struct stitch_source *sources = malloc((size_t)n_rows * sizeof(*sources) + 1);
    if (!sources)
        return status_exhausted("OOM: %lld rows of a stitch", (long long)n_rows);
    for (int64_t row = 0; row < n_rows; row++)
        sources[row] = (struct stitch_source){-1, 0};
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; k < indices[i].n_elements; k++)
            sources[((const int32_t *)tensor_cdata(&indices[i]))[k]] = (struct stitch_source){i, k};
    struct moves moves;
    moves_begin(&moves, ctx, tensor_dtype(&data[0]));
    for (int64_t row = 0, n_run = 1; row < n_rows; row += n_run, n_run = 1) {
        const struct stitch_source *first = &sources[row];
        while (row + n_run < n_rows && first[n_run].input == first->input &&
               first[n_run].row == first->row + n_run)
            n_run++;
        if (first->input < 0)
            continue;
        struct strided s;
        strided_init(&s);
        strided_add(&s, n_run * len, 1, 1);
        moves_add(&moves, &s, tensor_at(&ctx->outputs[0], row * len),
                  tensor_cat(&data[first->input], first->row * len));
    }
    free(sources);
    return moves_end(&moves);
}

static enum kernel_result dynamic_stitch(struct kernel_ctx *ctx) {
    int n = ctx->instance->n_inputs / 2;
    const struct tensor *indices = ctx->inputs, *data = ctx->inputs + n;
    int64_t max = -1;
    KERNEL_TRY(ctx, stitch_check(indices, data, n, &max));
    KERNEL_TRY(ctx, kernel_loop_check(0)); /* else all indices have been checked */
    struct dims dims;
    dims.rank = 1;
    dims.at[0] = max + 1;
    for (int i = indices[0].rank; i < data[0].rank; i++) {
        if (!dims_add(&dims, tensor_dim(&data[0], i)))
            return kernel_fail(
                ctx, status_invalid("The output would pass the rank limit of %d", SHAPE_MAX_RANK));
    }
    enum dtype dtype = tensor_dtype(&data[0]);
    /* Rows that no index names are zeros. */
    KERNEL_TRY(ctx, kernel_alloc_zeroed(ctx, 0, dtype, dims_shape(&dims)));
    int64_t len = dims_product(dims.at, 1, dims.rank);
    if (kernel_is_for_device(ctx)) {
        if (len > 0)
            KERNEL_TRY(ctx, stitch_on_device(ctx, n, max + 1, len));
        return KERNEL_DONE;
    }
    for (int i = 0; i < n && len > 0; i++) {
        const int32_t *at = tensor_cdata(&indices[i]);
        POOL_ROW_PIECES (begin, end, indices[i].n_elements, len)
            for (int64_t k = begin; k < end; k++)
                strided_copy_run(dtype, tensor_at(&ctx->outputs[0], at[k] * len),
                                 tensor_cat(&data[i], k * len), len, NULL);
    }
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "DynamicPartition", .compute = dynamic_partition},
    {.op = "DynamicStitch", .compute = dynamic_stitch},
    {.op = "ParallelDynamicStitch", .compute = dynamic_stitch},
};
// clang-format on

const struct kernel_list array_partition_kernels = {rows, ARRAY_LEN(rows)};
