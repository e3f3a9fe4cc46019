/* Runs SparseFillEmptyRows and RaggedFillEmptyRows, which put a default value into each empty row,
 * and their gradients. The ragged form has only the entries' row numbers. */
#include "kernels/cpu/sparse/sparse_fill.h"

#include <stdlib.h>

#include "kernels/support/update.h"
#include "kernels/support/cancel.h"

extern const struct kernel_list sparse_fill_kernels;

static struct status *check_filler(const struct tensor *filler) {
    return filler->rank == 0 ? NULL
                             : status_invalid("default_value must be a scalar, saw: %s",
                                              TENSOR_SHAPE_TEXT(filler));
}

static struct status *read_sparse(const struct kernel_ctx *ctx, struct sparse_fill *job) {
    struct sparse in;
    TRY(sparse_of_inputs(ctx, 0, &in));
    TRY(check_filler(&ctx->inputs[3]));
    if (in.rank == 0)
        return status_invalid("Dense shape cannot be empty.");
    *job = (struct sparse_fill){.values = in.values,
                                .filler = &ctx->inputs[3],
                                .indices = in.indices,
                                .n = in.n,
                                .n_rows = in.dims[0],
                                .rank = in.rank};
    return NULL;
}

static struct status *read_ragged(const struct kernel_ctx *ctx, struct sparse_fill *job) {
    const struct tensor *rows = &ctx->inputs[0], *values = &ctx->inputs[1],
                        *n_rows = &ctx->inputs[2];
    if (rows->rank != 1)
        return status_invalid("value_rowids must be a vector, saw: %s", TENSOR_SHAPE_TEXT(rows));
    if (values->rank != 1)
        return status_invalid("values must be a vector, saw: %s", TENSOR_SHAPE_TEXT(values));
    if (rows->n_elements != values->n_elements)
        return status_invalid(
            "The length of `values` (%lld) must match the length of `value_rowids` (%lld).",
            (long long)values->n_elements, (long long)rows->n_elements);
    if (n_rows->rank != 0)
        return status_invalid("nrows must be a scalar, saw: %s", TENSOR_SHAPE_TEXT(n_rows));
    TRY(check_filler(&ctx->inputs[3]));
    *job = (struct sparse_fill){.values = values,
                                .filler = &ctx->inputs[3],
                                .indices = tensor_cdata(rows),
                                .n = rows->n_elements,
                                .n_rows = tensor_index_at(n_rows, 0),
                                .rank = 1,
                                .is_ragged = true};
    return NULL;
}

struct status *sparse_fill_read(const struct kernel_ctx *ctx, struct sparse_fill *ret) {
    return node_is_op(ctx->instance->node, "RaggedFillEmptyRows") ? read_ragged(ctx, ret)
                                                                  : read_sparse(ctx, ret);
}

struct status *sparse_fill_row_error(const struct sparse_fill *job, int64_t i, int64_t row) {
    if (job->n_rows == 0)
        return status_invalid(
            "Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = %lld",
            (long long)job->n);
    return status_invalid("indices(%lld, 0) is invalid: %lld is not in [0, %lld)", (long long)i,
                          (long long)row, (long long)job->n_rows);
}

/* Counts the entries of each row, in next[row]. */
static struct status *count_rows(const struct sparse_fill *job, int64_t *next) {
    if (job->n_rows == 0 && job->n > 0)
        return sparse_fill_row_error(job, 0, 0);
    memset(next, 0, (size_t)job->n_rows * sizeof(*next));
    for (int64_t i = 0; i < job->n; i++) {
        TRY(kernel_loop_check(i));
        int64_t row = job->indices[i * job->rank];
        if (row < 0 || row >= job->n_rows)
            return sparse_fill_row_error(job, i, row);
        next[row]++;
    }
    return NULL;
}

/* Changes next[row] to the output position of the row's first entry. Returns how many entries there
 * will be. */
static int64_t place_rows(const struct sparse_fill *job, int64_t *next, bool *is_empty) {
    int64_t total = 0;
    for (int64_t row = 0; row < job->n_rows && pool_goes_on(row + 1); row++) {
        int64_t count = next[row];
        is_empty[row] = count == 0;
        next[row] = total;
        total += MAX(count, (int64_t)1);
    }
    return total;
}

static struct status *write_rows(struct kernel_ctx *ctx, const struct sparse_fill *job,
                                 int64_t *next, int64_t total) {
    struct shape places = job->is_ragged ? (struct shape){1, &total}
                                         : (struct shape){2, (int64_t[]){total, job->rank}};
    TRY(kernel_loop_check(0)); /* else the rows may not have their places */
    TRY(kernel_alloc(ctx, 0, DT_INT64, places));
    TRY(kernel_alloc(ctx, 1, (enum dtype)job->values->dtype, (struct shape){1, &total}));
    TRY(kernel_alloc(ctx, 3, DT_INT64, (struct shape){1, &job->n}));
    int64_t *to = tensor_data(&ctx->outputs[0]), *map = tensor_data(&ctx->outputs[3]);
    const bool *is_empty = tensor_cdata(&ctx->outputs[2]);
    pool_clear(to, tensor_size_bytes(&ctx->outputs[0]));
    for (int64_t row = 0; row < job->n_rows && pool_goes_on(row + 1); row++) {
        if (is_empty[row]) {
            to[next[row] * job->rank] = row;
            sparse_copy_value(&ctx->outputs[1], next[row], job->filler, 0);
        }
    }
    for (int64_t i = 0; i < job->n && pool_goes_on(i); i++) {
        int64_t at = next[job->indices[i * job->rank]]++;
        memcpy(to + at * job->rank, job->indices + i * job->rank, (size_t)job->rank * sizeof(*to));
        sparse_copy_value(&ctx->outputs[1], at, job->values, i);
        map[i] = at;
    }
    return NULL;
}

static enum kernel_result fill_empty_rows(struct kernel_ctx *ctx) {
    struct sparse_fill job;
    KERNEL_TRY(ctx, sparse_fill_read(ctx, &job));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 2, DT_BOOL, (struct shape){1, &job.n_rows}));
    /* the memory is the device's, because a shape may claim any number of rows */
    struct tensor next = TENSOR_INIT;
    KERNEL_TRY(
        ctx, tensor_new(ctx->instance->allocator, DT_INT64, (struct shape){1, &job.n_rows}, &next));
    struct status *st = count_rows(&job, tensor_data(&next));
    if (!st)
        st = write_rows(ctx, &job, tensor_data(&next),
                        place_rows(&job, tensor_data(&next), tensor_data(&ctx->outputs[2])));
    tensor_clear(&next);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- gradients ---- */

struct status *sparse_fill_grad_check(const struct tensor *map, const struct tensor *grad) {
    if (map->rank != 1)
        return status_invalid("reverse_index_map must be a vector, saw: %s",
                              TENSOR_SHAPE_TEXT(map));
    if (grad->rank != 1)
        return status_invalid("grad_values must be a vector, saw: %s", TENSOR_SHAPE_TEXT(grad));
    return NULL;
}

/* The gradient of an entry is that of its new position. All other gradients belong to filled
 * positions, and their sum is the default value's gradient. */
static enum kernel_result fill_empty_rows_grad(struct kernel_ctx *ctx) {
    const struct tensor *map = &ctx->inputs[0], *grad = &ctx->inputs[1];
    enum dtype dtype = (enum dtype)grad->dtype;
    size_t size = dtype_size(dtype);
    KERNEL_TRY(ctx, sparse_fill_grad_check(map, grad));
    int64_t n = map->n_elements, n_full = grad->n_elements;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, dtype, (struct shape){1, &n}));
    KERNEL_TRY(ctx,
               tensor_new_zeroed(ctx->instance->allocator, dtype, SHAPE_SCALAR, &ctx->outputs[1]));
    bool *is_taken = calloc((size_t)n_full + 1, sizeof(*is_taken));
    struct status *st =
        is_taken ? NULL : status_exhausted("OOM: marks of %lld gradients", (long long)n_full);
    for (int64_t i = 0; !st && i < n && pool_goes_on(i + 1); i++) {
        int64_t at = tensor_index_at(map, i);
        if (at < 0 || at >= n_full) {
            st = status_invalid("Elements in reverse index must be in [0, %lld) but got %lld",
                                (long long)n_full, (long long)at);
            break;
        }
        is_taken[at] = true;
        sparse_copy_value(&ctx->outputs[0], i, grad, at);
    }
    update_fn *add = update_find(UPDATE_ADD, dtype);
    char *sum = tensor_data(&ctx->outputs[1]);
    for (int64_t i = 0; !st && i < n_full && pool_goes_on(i + 1); i++)
        if (!is_taken[i])
            add(sum, sum, (const char *)tensor_cdata(grad) + (size_t)i * size, 1, 1);
    free(is_taken);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

#define VALUE_TYPES (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPES_OBJECT)
// clang-format off
static const struct kernel_def rows[] = {
    {.op = "SparseFillEmptyRows", .constraints = {{"T", VALUE_TYPES}}, .compute = fill_empty_rows},
    {.op = "RaggedFillEmptyRows", .constraints = {{"T", VALUE_TYPES}}, .compute = fill_empty_rows},
    {.op = "SparseFillEmptyRowsGrad", .constraints = {{"T", DTYPES_NUMBER}},
        .compute = fill_empty_rows_grad},
    {.op = "RaggedFillEmptyRowsGrad", .constraints = {{"T", DTYPES_NUMBER}},
        .compute = fill_empty_rows_grad},
};
// clang-format on

const struct kernel_list sparse_fill_kernels = {rows, ARRAY_LEN(rows)};
