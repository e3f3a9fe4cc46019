/* Converts matrices by compressed rows from sparse and dense tensors and back, and computes with
 * them: CSRSparseMatrix…, SparseMatrix…. */
#include <stdlib.h>

#include "kernels/cpu/sparse/csr.h"
#include "kernels/support/cancel.h"

extern const struct kernel_list csr_kernels;

/* ---- from sparse and dense tensors ---- */

struct entries {
    const struct tensor *indices; /* int64 [n, rank] */
    int64_t dims[3];
    int rank;
};

static struct status *check_entries(const struct entries *entries) {
    const struct tensor *indices = entries->indices;
    if (indices->rank != 2 || tensor_dim(indices, 1) != entries->rank)
        return status_invalid("indices must be a matrix with %d columns, but have the shape %s",
                              entries->rank, TENSOR_SHAPE_TEXT(indices));
    for (int64_t i = 0; i < indices->n_elements; i++) {
        TRY(kernel_loop_check(i + 1));
        int64_t index = tensor_index_at(indices, i), size = entries->dims[i % entries->rank];
        if (index < 0 || index >= size)
            return status_invalid("Index %lld of entry %lld is out of bounds: the size is %lld",
                                  (long long)index, (long long)(i / entries->rank),
                                  (long long)size);
    }
    return NULL;
}

/* Fills a fresh matrix with entries in any order; those of a row stay in order. source[i] is the
 * entry at place i of the matrix. */
static void place_entries(const struct entries *entries, struct csr *to, int64_t *source) {
    const int64_t *at = tensor_cdata(entries->indices);
    int rank = entries->rank;
    int64_t n_rows = to->n_rows + 1;
    for (int64_t i = 0; i < to->n_entries && pool_goes_on(i); i++) {
        int64_t b = rank == 3 ? at[i * rank] : 0;
        to->batch[b + 1]++;
        to->row[b * n_rows + at[i * rank + rank - 2] + 1]++;
    }
    for (int64_t b = 0; b < to->n_batches; b++) {
        to->batch[b + 1] += to->batch[b];
        for (int64_t r = 0; r < to->n_rows; r++)
            to->row[b * n_rows + r + 1] += to->row[b * n_rows + r];
    }
    for (int64_t i = 0; i < to->n_entries && pool_goes_on(i); i++) {
        int64_t b = rank == 3 ? at[i * rank] : 0;
        int64_t place = to->batch[b] + to->row[b * n_rows + at[i * rank + rank - 2]]++;
        to->col[place] = (int32_t)at[i * rank + rank - 1];
        source[place] = i;
    }
    for (int64_t b = 0; b < to->n_batches; b++) { /* each begin has become its row's end */
        for (int64_t r = to->n_rows; r > 0; r--)
            to->row[b * n_rows + r] = to->row[b * n_rows + r - 1];
        to->row[b * n_rows] = 0;
    }
}

static struct status *from_entries(struct kernel_ctx *ctx, const struct entries *entries,
                                   enum dtype dtype, struct csr *ret, int64_t **ret_source) {
    int64_t n = tensor_dim(entries->indices, 0);
    int64_t *source = malloc(((size_t)n + 1) * sizeof(*source));
    if (!source)
        return status_exhausted("Out of memory for %lld entries", (long long)n);
    struct status *st = csr_new(ctx, dtype, entries->rank, entries->dims, n, ret);
    if (st) {
        free(source);
        return st;
    }
    place_entries(entries, ret, source);
    *ret_source = source;
    return NULL;
}

/* SparseTensorToCSRSparseMatrix.
 *   indices  int64 [entries, rank]    values  T [entries]    dense_shape  int64 [rank], rank 2 or 3
 * Errors   INVALID_ARGUMENT   shapes; an index out of bounds */
static enum kernel_result from_sparse(struct kernel_ctx *ctx) {
    const struct tensor *values = kernel_input(ctx, 1), *shape = kernel_input(ctx, 2);
    struct entries entries = {.indices = kernel_input(ctx, 0)};
    int64_t *source = NULL;
    struct csr to = {0};
    if (shape->rank != 1 || shape->n_elements < 2 || shape->n_elements > 3)
        return kernel_fail(ctx, status_invalid("SparseTensor must have rank 2 or 3; but indices "
                                               "has rank: %lld",
                                               (long long)shape->n_elements));
    entries.rank = (int)shape->n_elements;
    for (int i = 0; i < entries.rank; i++)
        entries.dims[i] = tensor_index_at(shape, i);
    KERNEL_TRY(ctx, check_entries(&entries));
    if (values->rank != 1 || values->n_elements != tensor_dim(entries.indices, 0))
        return kernel_fail(ctx, status_invalid("values must be a vector of %lld, but have the "
                                               "shape %s",
                                               (long long)tensor_dim(entries.indices, 0),
                                               TENSOR_SHAPE_TEXT(values)));
    KERNEL_TRY(ctx, from_entries(ctx, &entries, (enum dtype)values->dtype, &to, &source));
    for (int64_t i = 0; i < to.n_entries && pool_goes_on(i); i++)
        c128_store(to.dtype, to.values, i, c128_load(to.dtype, tensor_cdata(values), source[i]));
    free(source);
    csr_output(ctx, &to);
    return KERNEL_DONE;
}

/* DenseToCSRSparseMatrix: the elements at the indices.
 *   dense_input  T, a matrix or a batch of them    indices  int64 [entries, rank]
 * Errors   INVALID_ARGUMENT   shapes; an index out of bounds */
static enum kernel_result from_dense(struct kernel_ctx *ctx) {
    const struct tensor *dense = kernel_input(ctx, 0);
    struct entries entries = {.indices = kernel_input(ctx, 1), .rank = dense->rank};
    int64_t *source = NULL;
    struct csr to = {0};
    if (dense->rank != 2 && dense->rank != 3)
        return kernel_fail(
            ctx, status_invalid("params must have rank 2 or 3; but got rank: %d", dense->rank));
    for (int i = 0; i < dense->rank; i++)
        entries.dims[i] = tensor_dim(dense, i);
    KERNEL_TRY(ctx, check_entries(&entries));
    KERNEL_TRY(ctx, from_entries(ctx, &entries, (enum dtype)dense->dtype, &to, &source));
    for (int64_t i = 0; i < to.n_entries && pool_goes_on(i); i++) {
        const int64_t *at =
            (const int64_t *)tensor_cdata(entries.indices) + source[i] * entries.rank;
        int64_t offset = 0;
        for (int d = 0; d < entries.rank; d++)
            offset = offset * entries.dims[d] + at[d];
        c128_store(to.dtype, to.values, i, c128_load(to.dtype, tensor_cdata(dense), offset));
    }
    free(source);
    csr_output(ctx, &to);
    return KERNEL_DONE;
}

/* ---- kernels of one matrix ---- */

typedef struct status *csr_fn(struct kernel_ctx *ctx, const struct csr *csr);

static enum kernel_result with_matrix(struct kernel_ctx *ctx, csr_fn *fn) {
    const struct attr_value *type = node_attr(ctx->instance->node, "type");
    struct csr csr = {0};
    KERNEL_TRY(ctx, csr_of_input(ctx, 0, type ? type->dtype : DT_INVALID, &csr));
    struct status *st = fn(ctx, &csr);
    csr_fini(&csr);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

static struct status *to_dense_of(struct kernel_ctx *ctx, const struct csr *csr) {
    const int64_t dims[] = {csr->n_batches, csr->n_rows, csr->n_cols};
    TRY(tensor_new_zeroed(ctx->instance->allocator, csr->dtype,
                          (struct shape){csr->rank, dims + (3 - csr->rank)}, &ctx->outputs[0]));
    void *out = tensor_data(&ctx->outputs[0]);
    for (int64_t b = 0; b < csr->n_batches; b++)
        for (int64_t r = 0; r < csr->n_rows; r++) {
            int64_t end, i = csr_row(csr, b, r, &end);
            for (; i < end; i++)
                c128_store(csr->dtype, out, (b * csr->n_rows + r) * csr->n_cols + csr->col[i],
                           c128_load(csr->dtype, csr->values, i));
        }
    return NULL;
}
static enum kernel_result to_dense(struct kernel_ctx *ctx) { return with_matrix(ctx, to_dense_of); }

static struct status *to_sparse_of(struct kernel_ctx *ctx, const struct csr *csr) {
    const int64_t dims[] = {csr->n_entries, csr->rank};
    TRY(kernel_alloc(ctx, 0, DT_INT64, (struct shape){2, dims}));
    int64_t *index = tensor_data(&ctx->outputs[0]);
    for (int64_t b = 0; b < csr->n_batches; b++)
        for (int64_t r = 0; r < csr->n_rows; r++) {
            int64_t end, i = csr_row(csr, b, r, &end);
            for (; i < end; i++) {
                if (csr->rank == 3)
                    *index++ = b;
                *index++ = r;
                *index++ = csr->col[i];
            }
        }
    tensor_copy(&ctx->outputs[1], &csr->held->held[CSR_VALUES]);
    tensor_copy(&ctx->outputs[2], &csr->held->held[CSR_SHAPE]);
    return NULL;
}
static enum kernel_result to_sparse(struct kernel_ctx *ctx) {
    return with_matrix(ctx, to_sparse_of);
}

/* CSRSparseMatrixComponents: row pointers, column indices and values of the batch that input 1
 * names. */
static struct status *components_of(struct kernel_ctx *ctx, const struct csr *csr) {
    const struct tensor *index = kernel_input(ctx, 1);
    if (index->rank != 0)
        return status_invalid("index should be a scalar, but has the shape %s",
                              TENSOR_SHAPE_TEXT(index));
    int64_t b = tensor_index_at(index, 0);
    if (b < 0 || b >= csr->n_batches)
        return status_invalid("index (%lld) not in [0, %lld)", (long long)b,
                              (long long)csr->n_batches);
    int64_t first = csr->batch[b], n = csr->batch[b + 1] - first, n_rows = csr->n_rows + 1;
    TRY(kernel_alloc(ctx, 0, DT_INT32, (struct shape){1, &n_rows}));
    TRY(kernel_alloc(ctx, 1, DT_INT32, (struct shape){1, &n}));
    TRY(kernel_alloc(ctx, 2, csr->dtype, (struct shape){1, &n}));
    memcpy(tensor_data(&ctx->outputs[0]), csr->row + b * n_rows, (size_t)n_rows * sizeof(int32_t));
    memcpy(tensor_data(&ctx->outputs[1]), csr->col + first, (size_t)n * sizeof(int32_t));
    for (int64_t i = 0; i < n; i++)
        c128_store(csr->dtype, tensor_data(&ctx->outputs[2]), i,
                   c128_load(csr->dtype, csr->values, first + i));
    return NULL;
}
static enum kernel_result components(struct kernel_ctx *ctx) {
    return with_matrix(ctx, components_of);
}

static struct status *count_of(struct kernel_ctx *ctx, const struct csr *csr) {
    TRY(kernel_alloc(ctx, 0, DT_INT32, (struct shape){csr->rank - 2, &csr->n_batches}));
    int32_t *counts = tensor_data(&ctx->outputs[0]);
    for (int64_t b = 0; b < csr->n_batches; b++)
        counts[b] = csr->batch[b + 1] - csr->batch[b];
    return NULL;
}
static enum kernel_result count(struct kernel_ctx *ctx) { return with_matrix(ctx, count_of); }

static struct status *transpose_of(struct kernel_ctx *ctx, const struct csr *csr) {
    bool conjugate = false;
    struct csr to = {0};
    TRY(node_get_b(ctx->instance->node, "conjugate", &conjugate));
    TRY(csr_transpose(ctx, csr, conjugate, &to));
    csr_output(ctx, &to);
    return NULL;
}
static enum kernel_result transpose(struct kernel_ctx *ctx) {
    return with_matrix(ctx, transpose_of);
}

// clang-format off
#define TYPED(name, attr, fn) \
    {.op = (name), {{(attr), CSR_TYPES}}, .compute = (fn)}
static const struct kernel_def rows[] = {
    TYPED("SparseTensorToCSRSparseMatrix", "T", from_sparse),
    TYPED("DenseToCSRSparseMatrix", "T", from_dense),
    TYPED("CSRSparseMatrixToDense", "type", to_dense),
    TYPED("CSRSparseMatrixToSparseTensor", "type", to_sparse),
    TYPED("CSRSparseMatrixComponents", "type", components),
    {.op = "SparseMatrixNNZ", .compute = count},
    TYPED("SparseMatrixTranspose", "type", transpose),
};
// clang-format on

const struct kernel_list csr_kernels = {rows, ARRAY_LEN(rows)};
