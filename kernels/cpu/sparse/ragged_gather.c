/* Runs RaggedGather: picks rows of a ragged tensor by number. */
#include <stdlib.h>

#include "kernels/cpu/sparse/ragged.h"
#include "kernels/support/cancel.h"

extern const struct kernel_list ragged_gather_kernels;

struct gather_job {
    const struct tensor *splits, *values, *indices; /* n_splits tensors of splits */
    int n_splits;
    struct tensor *out; /* the outputs' splits, then the values */
    int n_out;
    int64_t n_values;
};

static struct status *check_indices(const struct gather_job *job) {
    const struct tensor *splits = job->splits;
    if (splits->rank < 1)
        return status_invalid("Split tensors must not be scalars");
    int64_t n = tensor_dim(splits, 0) - 1;
    for (int64_t i = 0; i < job->indices->n_elements; i++) {
        TRY(kernel_loop_check(i));
        int64_t index = tensor_index_at(job->indices, i);
        if (index < 0 || index >= n)
            return status_invalid("indices[%lld] = %lld is not in [0, %lld)", (long long)i,
                                  (long long)index, (long long)n);
    }
    return NULL;
}

/* Makes the splits of dimensions that are not ragged: each dimension of indices except the first
 * has rows of one length. */
static struct status *make_regular_splits(struct kernel_ctx *ctx, const struct gather_job *job) {
    const struct tensor *indices = job->indices;
    enum dtype dtype = (enum dtype)job->splits->dtype;
    int64_t n_rows = 1;
    for (int d = 0; d + 1 < indices->rank; d++) {
        n_rows *= tensor_dim(indices, d);
        int64_t row_len = tensor_dim(indices, d + 1), n_splits = n_rows + 1;
        TRY(kernel_alloc(ctx, d, dtype, (struct shape){1, &n_splits}));
        for (int64_t i = 0; i <= n_rows; i++)
            tensor_set_index(&job->out[d], i, i * row_len);
    }
    return NULL;
}

/* Makes the splits of output dimension `dim` from the gathered rows. begins and ends hold each
 * row's range in that dimension, and are then changed to its range in the next. */
static struct status *gather_splits(struct kernel_ctx *ctx, struct gather_job *job, int dim,
                                    int64_t *begins, int64_t *ends) {
    const struct tensor *splits = &job->splits[dim];
    int output = dim + job->indices->rank - 1;
    enum dtype dtype = (enum dtype)splits->dtype;
    int64_t n = job->indices->n_elements, n_splits = 1, total = 0, at = 0;
    for (int64_t i = 0; i < n; i++) {
        TRY(kernel_loop_check(i));
        if (add_overflows_i64(n_splits, ends[i] - begins[i], &n_splits))
            return status_invalid("The gathered rows are too many to count");
    }
    if (output >= 0) { /* a scalar index removes the outermost dimension */
        TRY(kernel_alloc(ctx, output, dtype, (struct shape){1, &n_splits}));
        tensor_set_index(&job->out[output], at++, 0);
    }
    for (int64_t i = 0; i < n; i++) {
        TRY(kernel_loop_check(i));
        int64_t first = tensor_index_at(splits, begins[i]), last = tensor_index_at(splits, ends[i]);
        for (int64_t j = begins[i]; output >= 0 && j < ends[i]; j++)
            tensor_set_index(&job->out[output], at++,
                             total + tensor_index_at(splits, j + 1) - first);
        if (add_overflows_i64(total, last - first, &total) ||
            (dtype == DT_INT32 && total > INT32_MAX))
            return status_invalid("The gathered values are too many for splits of type %s",
                                  dtype_name(dtype));
        begins[i] = first;
        ends[i] = last;
    }
    job->n_values = total;
    return NULL;
}

static struct status *gather_values(struct kernel_ctx *ctx, const struct gather_job *job,
                                    const int64_t *begins, const int64_t *ends) {
    const struct tensor *values = job->values;
    enum dtype dtype = (enum dtype)values->dtype;
    int64_t row_len = ragged_row_len(values), dims[SHAPE_MAX_RANK],
            size = (int64_t)dtype_size(dtype);
    memcpy(dims, tensor_dims(values), values->rank * sizeof(*dims));
    dims[0] = job->n_values;
    TRY(kernel_alloc(ctx, job->n_out, dtype, (struct shape){values->rank, dims}));
    char *to = tensor_data(&job->out[job->n_out]);
    enum { ROWS_PER_POLL = 1024 };
    for (int64_t i = 0; i < job->indices->n_elements && values->n_elements > 0; i++) {
        if (i % ROWS_PER_POLL == 0)
            TRY(kernel_check_cancelled(ctx));
        int64_t n = (ends[i] - begins[i]) * row_len;
        elements_copy(dtype, to, (const char *)tensor_cdata(values) + begins[i] * row_len * size,
                      n);
        to += n * size;
    }
    return NULL;
}

static enum kernel_result ragged_gather(struct kernel_ctx *ctx) {
    int n_splits = ctx->instance->n_inputs - 2;
    struct gather_job job = {.splits = ctx->inputs,
                             .values = &ctx->inputs[n_splits],
                             .indices = &ctx->inputs[n_splits + 1],
                             .n_splits = n_splits,
                             .out = ctx->outputs,
                             .n_out = ctx->instance->n_outputs - 1};
    KERNEL_TRY(ctx, check_indices(&job));
    if (job.values->rank < 1)
        return kernel_fail(ctx, status_invalid("params.rank must be nonzero"));
    KERNEL_TRY(ctx, ragged_check_nested(job.splits, n_splits, job.values, false));
    if (job.indices->rank - 1 + n_splits != job.n_out)
        return kernel_fail(
            ctx, status_invalid(
                     "OUTPUT_RAGGED_RANK is %d, but indices of rank %d give a ragged rank of %d",
                     job.n_out, job.indices->rank, job.indices->rank - 1 + n_splits));
    struct status *st = NULL;
    int64_t n = job.indices->n_elements, *begins = malloc((2 * (size_t)n + 1) * sizeof(*begins)),
            *ends = begins + n;
    if (!begins) {
        st = status_exhausted("OOM: the rows of %lld indices", (long long)n);
        goto out;
    }
    for (int64_t i = 0; i < n; i++) {
        begins[i] = tensor_index_at(job.indices, i);
        ends[i] = begins[i] + 1;
    }
    TRY_OUT(make_regular_splits(ctx, &job));
    for (int d = 0; d < n_splits; d++)
        TRY_OUT(gather_splits(ctx, &job, d, begins, ends));
    TRY_OUT(gather_values(ctx, &job, begins, ends));
out:
    free(begins);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

#define VALUE_TYPES (DTYPES_NUMBER | DTYPES_QUANTIZED | DTYPE_BIT(DT_BOOL) | DTYPE_BIT(DT_STRING))
static const struct kernel_def rows[] = {
    {.op = "RaggedGather",
     .constraints = {{"Tindices", DTYPES_INDEX},
                     {"Tsplits", DTYPES_INDEX},
                     {"Tvalues", VALUE_TYPES}},
     .compute = ragged_gather},
};

const struct kernel_list ragged_gather_kernels = {rows, ARRAY_LEN(rows)};
