/* Multiplies matrices by compressed rows: SparseMatrixMatMul with a dense matrix, and
 * SparseMatrixSparseMatMul. */
#include <stdlib.h>

#include "common/base/pool_sort.h"
#include "kernels/cpu/sparse/csr.h"
#include "kernels/support/cancel.h"

extern const struct kernel_list csr_matmul_kernels;

/* How an operand is used. */
struct form {
    bool is_transposed, is_conjugated;
};

static struct status *form_of(const struct node *node, const char *transpose, const char *adjoint,
                              struct form *ret) {
    bool is_transposed = false, is_adjoint = false;
    TRY(node_get_b(node, transpose, &is_transposed));
    TRY(node_get_b(node, adjoint, &is_adjoint));
    if (is_transposed && is_adjoint)
        return status_invalid("Only one of %s and %s may be true.", adjoint, transpose);
    *ret = (struct form){is_transposed || is_adjoint, is_adjoint};
    return NULL;
}

/* The matrix of an input in the wanted form. */
static struct status *operand(struct kernel_ctx *ctx, int input, enum dtype dtype, struct form form,
                              struct csr *ret) {
    struct csr csr = {0};
    TRY(csr_of_input(ctx, input, dtype, &csr));
    if (!form.is_transposed) {
        *ret = csr;
        return NULL;
    }
    struct status *st = csr_transpose(ctx, &csr, form.is_conjugated, ret);
    csr_fini(&csr);
    return st;
}

/* ---- with a dense matrix ---- */

struct dense_job {
    const struct csr *a;
    const void *b;
    void *out;
    enum dtype dtype;
    struct form b_form, out_form;
    int64_t n_cols; /* of the product */
};

/* A row of the product; lane j of `sums` is its column j. */
static void dense_row(const struct dense_job *job, int64_t batch, int64_t row,
                      double complex *sums) {
    const struct csr *a = job->a;
    int64_t n = job->n_cols, k_size = a->n_cols, end, i = csr_row(a, batch, row, &end);
    for (int64_t j = 0; j < n; j++)
        sums[j] = 0;
    for (; i < end; i++) {
        double complex x = c128_load(a->dtype, a->values, i);
        int64_t k = a->col[i], base = batch * k_size * n;
        for (int64_t j = 0; j < n; j++) {
            int64_t at = base + (job->b_form.is_transposed ? j * k_size + k : k * n + j);
            double complex y = c128_load(job->dtype, job->b, at);
            sums[j] += x * (job->b_form.is_conjugated ? conj(y) : y);
        }
    }
    for (int64_t j = 0; j < n; j++) {
        int64_t base = batch * a->n_rows * n;
        int64_t at = base + (job->out_form.is_transposed ? j * a->n_rows + row : row * n + j);
        c128_store(job->dtype, job->out, at, job->out_form.is_conjugated ? conj(sums[j]) : sums[j]);
    }
}

static void dense_range(void *arg, int64_t begin, int64_t end) {
    const struct dense_job *job = arg;
    double complex *sums = xcalloc((size_t)job->n_cols + 1, sizeof(*sums));
    for (int64_t i = begin; i < end; i++)
        dense_row(job, i / job->a->n_rows, i % job->a->n_rows, sums);
    free(sums);
}

static struct status *check_dense(const struct csr *a, const struct tensor *b, struct form form,
                                  int64_t *ret_n_cols) {
    if (b->rank != a->rank)
        return status_invalid("Ranks of a and b must match: %d and %d", a->rank, b->rank);
    if (a->rank == 3 && tensor_dim(b, 0) != a->n_batches)
        return status_invalid(
            "Batch sizes of A and B do not agree.  Batch sizes are: %lld vs. %lld",
            (long long)a->n_batches, (long long)tensor_dim(b, 0));
    int64_t inner = tensor_dim(b, b->rank - (form.is_transposed ? 1 : 2));
    if (inner != a->n_cols)
        return status_invalid("Inner dimensions of A and B do not agree.  Inner dimensions are: "
                              "%lld vs. %lld",
                              (long long)a->n_cols, (long long)inner);
    *ret_n_cols = tensor_dim(b, b->rank - (form.is_transposed ? 2 : 1));
    return NULL;
}

/* SparseMatrixMatMul: product = a·b, each transposed or adjoint where the attrs say so; the product
 * may be transposed and conjugated.
 *   a  a matrix of T, or a batch    b  T [(batches,) k, n]
 * Errors   INVALID_ARGUMENT   ranks, sizes; transposed and adjoint at once
 * Cost     2·entries·n flops */
static struct status *dense_product(struct kernel_ctx *ctx, struct dense_job *job) {
    const struct tensor *b = kernel_input(ctx, 1);
    TRY(check_dense(job->a, b, job->b_form, &job->n_cols));
    int64_t rows = job->a->n_rows, n_batches = job->a->n_batches;
    bool is_out_transposed = job->out_form.is_transposed;
    const int64_t dims[] = {n_batches, is_out_transposed ? job->n_cols : rows,
                            is_out_transposed ? rows : job->n_cols};
    job->dtype = (enum dtype)b->dtype;
    job->b = tensor_cdata(b);
    TRY(kernel_alloc(ctx, 0, job->dtype, (struct shape){job->a->rank, dims + (3 - job->a->rank)}));
    job->out = tensor_data(&ctx->outputs[0]);
    if (rows * n_batches == 0)
        return NULL;
    double per_row = (double)job->a->n_entries / (double)(rows * n_batches) + 1;
    pool_parallel_for(ctx->pool, rows * n_batches, 2 * per_row * (double)job->n_cols, dense_range,
                      job);
    return NULL;
}

static enum kernel_result matmul(struct kernel_ctx *ctx) {
    const struct node *node = ctx->instance->node;
    struct form a_form;
    struct dense_job job = {0};
    struct csr a = {0};
    KERNEL_TRY(ctx, form_of(node, "transpose_a", "adjoint_a", &a_form));
    KERNEL_TRY(ctx, form_of(node, "transpose_b", "adjoint_b", &job.b_form));
    KERNEL_TRY(ctx, node_get_b(node, "transpose_output", &job.out_form.is_transposed));
    KERNEL_TRY(ctx, node_get_b(node, "conjugate_output", &job.out_form.is_conjugated));
    KERNEL_TRY(ctx, operand(ctx, 0, (enum dtype)ctx->instance->in_types[1], a_form, &a));
    job.a = &a;
    struct status *st = dense_product(ctx, &job);
    csr_fini(&a);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- two sparse matrices, row by row [Gustavson 1978] ---- */

struct pair {
    struct csr a, b, to;
    double complex *sums;  /* a row of the result */
    int32_t *seen, *found; /* by column: the row that has met it, plus 1; the row's columns */
    int32_t n_found;
    int64_t row_len; /* of b, on average */
};

static void pair_fini(struct pair *pair) {
    csr_fini(&pair->a);
    csr_fini(&pair->b);
    csr_fini(&pair->to);
    free(pair->sums);
    free(pair->seen);
    free(pair->found);
}

static void meet(struct pair *pair, int32_t stamp, int32_t col, double complex value) {
    if (pair->seen[col] != stamp) {
        pair->seen[col] = stamp;
        pair->sums[col] = 0;
        pair->found[pair->n_found++] = col;
    }
    pair->sums[col] += value;
}

/* False: nobody wants the result any more. */
static bool product_row(struct pair *pair, int64_t batch, int64_t row, int32_t stamp) {
    int64_t end, i = csr_row(&pair->a, batch, row, &end);
    for (; i < end; i++) {
        if (!pool_goes_on_rows(i, pair->row_len))
            return false;
        double complex x = c128_load(pair->a.dtype, pair->a.values, i);
        int64_t b_end, k = csr_row(&pair->b, batch, pair->a.col[i], &b_end);
        for (; k < b_end; k++)
            meet(pair, stamp, pair->b.col[k], x * c128_load(pair->b.dtype, pair->b.values, k));
    }
    return true;
}

static int compare_cols(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Visits all rows of the result: counts their entries, or writes them where `to` is made. Ends
 * early once nobody wants the result. */
static int64_t visit_rows(struct pair *pair, int64_t n_rows, int64_t n_cols) {
    int64_t n = 0, n_batches = pair->a.n_batches;
    memset(pair->seen, 0, ((size_t)n_cols + 1) * sizeof(*pair->seen));
    for (int64_t batch = 0; batch < n_batches; batch++) {
        for (int64_t row = 0; row < n_rows; row++) {
            pair->n_found = 0;
            if (!product_row(pair, batch, row, (int32_t)(batch * n_rows + row + 1)))
                return n;
            if (pair->to.held) {
                pool_sort(pair->found, pair->n_found, sizeof(int32_t), compare_cols);
                for (int32_t i = 0; i < pair->n_found; i++) {
                    pair->to.col[n + i] = pair->found[i];
                    c128_store(pair->to.dtype, pair->to.values, n + i, pair->sums[pair->found[i]]);
                }
                pair->to.row[batch * (n_rows + 1) + row + 1] =
                    (int32_t)(n + pair->n_found - pair->to.batch[batch]);
            }
            n += pair->n_found;
        }
        if (pair->to.held)
            pair->to.batch[batch + 1] = (int32_t)n;
    }
    return n;
}

/* The result has a's rows and b's columns. */
static struct status *pair_run(struct kernel_ctx *ctx, struct pair *pair) {
    int64_t n_rows = pair->a.n_rows, n_cols = pair->b.n_cols;
    const int64_t dims[] = {pair->a.n_batches, n_rows, n_cols};
    int rank = pair->a.rank;
    if (rank != pair->b.rank || pair->a.n_batches != pair->b.n_batches)
        return status_invalid("Ranks and batch sizes of a and b must match: %d with %lld, %d with "
                              "%lld",
                              rank, (long long)pair->a.n_batches, pair->b.rank,
                              (long long)pair->b.n_batches);
    pair->sums = malloc(((size_t)n_cols + 1) * sizeof(*pair->sums));
    pair->seen = malloc(((size_t)n_cols + 1) * sizeof(*pair->seen));
    pair->found = malloc(((size_t)n_cols + 1) * sizeof(*pair->found));
    if (!pair->sums || !pair->seen || !pair->found)
        return status_exhausted("Out of memory for a row of %lld columns", (long long)n_cols);
    pair->row_len = 1 + pair->b.n_entries / MAX(pair->b.n_rows * pair->b.n_batches, (int64_t)1);
    int64_t n = visit_rows(pair, n_rows, n_cols);
    TRY(kernel_loop_check(0));
    TRY(csr_new(ctx, pair->a.dtype, rank, dims + (3 - rank), n, &pair->to));
    visit_rows(pair, n_rows, n_cols);
    TRY(kernel_loop_check(0));
    csr_output(ctx, &pair->to);
    return NULL;
}

static struct status *product(struct kernel_ctx *ctx, struct pair *pair) {
    const struct node *node = ctx->instance->node;
    struct form a_form, b_form;
    enum dtype dtype = DT_INVALID;
    TRY(node_get_type(node, "type", &dtype));
    TRY(form_of(node, "transpose_a", "adjoint_a", &a_form));
    TRY(form_of(node, "transpose_b", "adjoint_b", &b_form));
    TRY(operand(ctx, 0, dtype, a_form, &pair->a));
    TRY(operand(ctx, 1, dtype, b_form, &pair->b));
    if (pair->a.n_cols != pair->b.n_rows)
        return status_invalid("Inner product dimensions of A and B do not agree.  Shapes are: "
                              "[%lld,%lld] vs. [%lld,%lld]",
                              (long long)pair->a.n_rows, (long long)pair->a.n_cols,
                              (long long)pair->b.n_rows, (long long)pair->b.n_cols);
    return pair_run(ctx, pair);
}

/* SparseMatrixSparseMatMul: a·b as a matrix, each transposed or adjoint where the attrs say so. An
 * entry that comes to zero stays.
 * Errors   INVALID_ARGUMENT   ranks, sizes, types */
static enum kernel_result sparse_matmul(struct kernel_ctx *ctx) {
    struct pair pair = {0};
    struct status *st = product(ctx, &pair);
    pair_fini(&pair);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "SparseMatrixMatMul", {{"T", CSR_TYPES}}, .compute = matmul},
    {.op = "SparseMatrixSparseMatMul", {{"type", CSR_TYPES}}, .compute = sparse_matmul},
};
// clang-format on

const struct kernel_list csr_matmul_kernels = {rows, ARRAY_LEN(rows)};
