/* Computes the gradients of SparseSegmentSum, SparseSegmentMean and SparseSegmentSqrtN for their
 * data. Each row of the gradient is scaled as its segment was, and scattered to the data rows that
 * the segment summed. The V2 forms leave out data rows that no index names: row i of their output
 * belongs to the i-th smallest of the different indices, which are a second output. */
#include "kernels/cpu/math/math_segment.h"

#include <stdlib.h>

#include "common/base/pool_sort.h"
#include "kernels/support/cancel.h"
#include "kernels/support/counting_checks.h"
#include "kernels/support/half_blocks.h"

struct sparse_grad_job {
    enum dtype dtype;
    int64_t inner;
    const char *grad;
    char *out; /* doubles for DT_DOUBLE, else floats */
};

static void scatter_row(const struct sparse_grad_job *job, int64_t to_row, int64_t from_row,
                        double scale) {
    if (job->dtype == DT_DOUBLE) {
        const double *from = (const double *)(const void *)job->grad + from_row * job->inner;
        double *to = (double *)(void *)job->out + to_row * job->inner;
        for (int64_t j = 0; j < job->inner; j++)
            to[j] += from[j] * scale;
        return;
    }
    float *to = (float *)(void *)job->out + to_row * job->inner, block[HALF_BLOCK];
    for (int64_t done = 0; done < job->inner; done += HALF_BLOCK) {
        int64_t n = MIN(job->inner - done, HALF_BLOCK);
        const float *from = (const float *)(const void *)job->grad + from_row * job->inner + done;
        if (job->dtype != DT_FLOAT) {
            half_block_load(
                job->dtype, block,
                (const uint16_t *)(const void *)job->grad + from_row * job->inner + done, n);
            from = block;
        }
        for (int64_t j = 0; j < n; j++)
            to[done + j] += from[j] * (float)scale;
    }
}

/* Checks the elements of ids and indices. */
static struct status *check_rows(const struct kernel_ctx *ctx, int64_t n_rows) {
    const struct tensor *grad = &ctx->inputs[0], *indices = &ctx->inputs[1], *ids = &ctx->inputs[2];
    int64_t n_segments = tensor_dim(grad, 0);
    if (ids->n_elements > 0 && tensor_index_at(ids, ids->n_elements - 1) >= n_segments)
        return status_invalid("Invalid number of segments");
    for (int64_t i = 0; i < ids->n_elements; i++) {
        TRY(kernel_loop_check(i + 1));
        int64_t id = tensor_index_at(ids, i), index = tensor_index_at(indices, i);
        if (id < 0 || id >= n_segments)
            return status_invalid("Segment id %lld out of range [0, %lld).", (long long)id,
                                  (long long)n_segments);
        if (index < 0 || index >= n_rows)
            return status_invalid("Index %lld out of range [0, %lld).", (long long)index,
                                  (long long)n_rows);
    }
    return NULL;
}

static int compare_rows(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Makes the sorted list of the different indices: malloc'd, *ret_n of them. */
static struct status *different_indices(const struct tensor *indices, int64_t **ret_rows,
                                        int64_t *ret_n) {
    int64_t n = indices->n_elements, n_different = 0,
            *rows = malloc(((size_t)n + 1) * sizeof(*rows));
    if (!rows)
        return status_exhausted("OOM when ordering %lld indices", (long long)n);
    for (int64_t i = 0; i < n && pool_goes_on(i + 1); i++)
        rows[i] = tensor_index_at(indices, i);
    if (!pool_sort(rows, n, sizeof(*rows), compare_rows)) {
        free(rows);
        return kernel_loop_check(0);
    }
    for (int64_t i = 0; i < n && pool_goes_on(i + 1); i++)
        if (i == 0 || rows[i] != rows[i - 1])
            rows[n_different++] = rows[i];
    *ret_rows = rows;
    *ret_n = n_different;
    return NULL;
}

static struct status *put_different_indices(struct kernel_ctx *ctx, const int64_t *rows,
                                            int64_t n) {
    enum dtype dtype = (enum dtype)ctx->inputs[1].dtype;
    TRY(kernel_alloc(ctx, 1, dtype, (struct shape){1, &n}));
    for (int64_t i = 0; i < n; i++) {
        if (dtype == DT_INT32)
            ((int32_t *)tensor_data(&ctx->outputs[1]))[i] = (int32_t)rows[i];
        else
            ((int64_t *)tensor_data(&ctx->outputs[1]))[i] = rows[i];
    }
    return NULL;
}

/* In the compact form rows[i] is the data row of output row i, else rows is NULL. */
static struct status *scatter_rows(struct kernel_ctx *ctx, struct sparse_grad_job *job,
                                   enum segment_scale scale, const int64_t *rows, int64_t n_rows) {
    const struct tensor *grad = &ctx->inputs[0], *indices = &ctx->inputs[1], *ids = &ctx->inputs[2];
    struct tensor *out = &ctx->outputs[0];
    int64_t n_segments = tensor_dim(grad, 0),
            *counts = calloc((size_t)n_segments + 1, sizeof(*counts));
    float *wide =
        dtype_is_narrow_float(job->dtype) ? calloc((size_t)out->n_elements, sizeof(*wide)) : NULL;
    if (!counts || (dtype_is_narrow_float(job->dtype) && !wide)) {
        free(counts);
        free(wide);
        return status_exhausted("OOM when scattering %lld elements", (long long)out->n_elements);
    }
    job->out = wide ? (char *)wide : tensor_data(out);
    pool_clear(job->out, (size_t)out->n_elements * (wide ? sizeof(*wide) : dtype_size(job->dtype)));
    for (int64_t i = 0; i < ids->n_elements && pool_goes_on(i + 1); i++)
        counts[tensor_index_at(ids, i)]++;
    for (int64_t i = 0; i < ids->n_elements && pool_goes_on(i); i++) {
        int64_t id = tensor_index_at(ids, i), to = tensor_index_at(indices, i);
        double n = (double)counts[id];
        if (rows)
            to = (const int64_t *)bsearch(&to, rows, (size_t)n_rows, sizeof(*rows), compare_rows) -
                 rows;
        scatter_row(job, to, id,
                    scale == SCALE_NONE   ? 1
                    : scale == SCALE_MEAN ? 1 / n
                                          : 1 / sqrt(n));
    }
    if (wide)
        half_block_store(job->dtype, tensor_data(out), wide, out->n_elements);
    free(counts);
    free(wide);
    return NULL;
}

static enum kernel_result sparse_grad_compute(struct kernel_ctx *ctx) {
    const struct tensor *grad = &ctx->inputs[0];
    enum segment_scale scale = *(const enum segment_scale *)ctx->instance->def->arg;
    bool is_compact = ctx->instance->n_outputs == 2;
    int64_t n_rows, *rows = NULL;
    struct status *st = NULL;
    KERNEL_TRY(ctx, segment_grad_check(ctx, &n_rows));
    KERNEL_TRY(ctx, check_rows(ctx, n_rows));
    struct sparse_grad_job job = {.dtype = (enum dtype)grad->dtype, .grad = tensor_cdata(grad)};
    if (is_compact) {
        TRY_OUT(different_indices(&ctx->inputs[1], &rows, &n_rows));
        TRY_OUT(put_different_indices(ctx, rows, n_rows));
    }
    TRY_OUT(segment_alloc(ctx, job.dtype, n_rows, grad, 1, &job.inner));
    if (ctx->outputs[0].n_elements > 0)
        st = scatter_rows(ctx, &job, scale, rows, n_rows);
out:
    free(rows);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

static const enum segment_scale scale_sum = SCALE_NONE, scale_mean = SCALE_MEAN,
                                scale_sqrt_n = SCALE_SQRT_N;
#define GRAD_ROW(op, name)                                                                       \
    {                                                                                            \
        (op), {{"T", DTYPES_REAL_FLOAT}, {"Tidx", DTYPES_INDEX}, {"Tsegmentids", DTYPES_INDEX}}, \
            sparse_grad_compute, .arg = &(name)                                                  \
    }
static const struct kernel_def rows[] = {
    GRAD_ROW("SparseSegmentSumGrad", scale_sum),
    GRAD_ROW("SparseSegmentMeanGrad", scale_mean),
    GRAD_ROW("SparseSegmentSqrtNGrad", scale_sqrt_n),
    GRAD_ROW("SparseSegmentSumGradV2", scale_sum),
    GRAD_ROW("SparseSegmentMeanGradV2", scale_mean),
    GRAD_ROW("SparseSegmentSqrtNGradV2", scale_sqrt_n),
};
const struct kernel_list math_segment_grad_kernels = {rows, ARRAY_LEN(rows)};
