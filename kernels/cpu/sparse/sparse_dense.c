/* Combines sparse tensors with dense ones: SparseToDense, SparseTensorDenseAdd,
 * SparseDenseCwiseAdd, Mul and Div. Each entry is turned into an offset into the dense tensor. */
#include "kernels/cpu/sparse/sparse_dense.h"

#include <stdlib.h>

#include "kernels/cpu/sparse/sparse.h"
#include "kernels/kernel.h"
#include "kernels/support/dims.h"
#include "kernels/support/cancel.h"
#include "kernels/support/update.h"

extern const struct kernel_list sparse_dense_kernels;

/* ---- SparseToDense ---- */

struct status *sparse_to_dense_init(struct kernel_init *init) {
    return kernel_init_bool_attr(init, "validate_indices");
}

struct status *sparse_to_dense_check(const struct kernel_ctx *ctx, struct sparse_to_dense *ret) {
    struct sparse_to_dense *job = ret;
    const struct tensor *indices = &ctx->inputs[0], *sizes = &ctx->inputs[1];
    job->indices = indices;
    job->values = &ctx->inputs[2];
    job->filler = &ctx->inputs[3];
    if (indices->rank > 2)
        return status_invalid("sparse_indices should be a scalar, vector, or matrix, got shape %s",
                              TENSOR_SHAPE_TEXT(indices));
    job->n = indices->rank > 0 ? tensor_dim(indices, 0) : 1;
    job->n_dims = indices->rank > 1 ? tensor_dim(indices, 1) : 1;
    if (sizes->rank != 1)
        return status_invalid("output_shape must be rank 1, got shape %s",
                              TENSOR_SHAPE_TEXT(sizes));
    if (sizes->n_elements != job->n_dims || job->n_dims > SHAPE_MAX_RANK)
        return status_invalid("output_shape has incorrect number of elements: %lld should be: %lld",
                              (long long)sizes->n_elements, (long long)job->n_dims);
    if (job->values->rank != 0 && (job->values->rank != 1 || job->values->n_elements != job->n))
        return status_invalid("sparse_values has incorrect shape %s, should be [] or [%lld]",
                              TENSOR_SHAPE_TEXT(job->values), (long long)job->n);
    if (job->filler->rank != 0)
        return status_invalid("default_value should be a scalar.");
    for (int d = 0; d < (int)job->n_dims; d++)
        job->dims[d] = tensor_index_at(sizes, d);
    return NULL;
}

struct status *sparse_to_dense_bounds_error(const struct sparse_to_dense *job, int64_t i, int d,
                                            int64_t at) {
    return status_invalid("indices[%lld] is out of bounds: dimension %d has value %lld, need "
                          "0 <= index < %lld",
                          (long long)i, d, (long long)at, (long long)job->dims[d]);
}

struct status *sparse_to_dense_order_error(int64_t i, bool is_repeated) {
    return status_invalid("indices[%lld] is %s", (long long)i,
                          is_repeated ? "repeated" : "out of order");
}

/* Turns entries into offsets. Offsets have the same order as coordinates. */
static struct status *to_offsets(const struct sparse_to_dense *job, bool validates,
                                 int64_t *offsets) {
    for (int64_t i = 0; i < job->n; i++) {
        int64_t at[SHAPE_MAX_RANK];
        for (int d = 0; d < (int)job->n_dims; d++) {
            at[d] = tensor_index_at(job->indices, i * job->n_dims + d);
            if (at[d] < 0 || at[d] >= job->dims[d])
                return sparse_to_dense_bounds_error(job, i, d, at[d]);
        }
        offsets[i] = sparse_offset(at, job->dims, (int)job->n_dims);
        if (validates && i > 0 && offsets[i] <= offsets[i - 1])
            return sparse_to_dense_order_error(i, offsets[i] == offsets[i - 1]);
    }
    return NULL;
}

static enum kernel_result sparse_to_dense(struct kernel_ctx *ctx) {
    struct sparse_to_dense job;
    KERNEL_TRY(ctx, sparse_to_dense_check(ctx, &job));
    enum dtype dtype = (enum dtype)job.values->dtype;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, dtype, (struct shape){(int)job.n_dims, job.dims}));
    struct tensor *out = &ctx->outputs[0];
    int64_t *offsets = malloc(((size_t)job.n + 1) * sizeof(*offsets));
    struct status *st =
        offsets ? to_offsets(&job, *(const bool *)ctx->instance->state, offsets)
                : status_exhausted("OOM: offsets of %lld sparse entries", (long long)job.n);
    if (!st && out->n_elements > 0) {
        update_fn *assign = update_find(UPDATE_ASSIGN, dtype);
        assign(tensor_data(out), NULL, tensor_cdata(job.filler), out->n_elements, 0);
        struct scatter_job scatter = {.fn = assign,
                                      .dtype = dtype,
                                      .params = tensor_data(out),
                                      .updates = tensor_cdata(job.values),
                                      .update_step = job.values->rank,
                                      .offsets = offsets,
                                      .n_slices = job.n,
                                      .slice_len = 1};
        st = scatter_run(ctx->pool, &scatter);
    }
    free(offsets);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- SparseTensorDenseAdd ---- */

static struct status *check_dense_add(const struct kernel_ctx *ctx) {
    const struct tensor *indices = &ctx->inputs[0], *values = &ctx->inputs[1],
                        *sizes = &ctx->inputs[2], *b = &ctx->inputs[3];
    if (indices->rank != 2)
        return status_invalid("Input a_indices should be a matrix but received shape: %s",
                              TENSOR_SHAPE_TEXT(indices));
    if (values->rank != 1 || sizes->rank != 1)
        return status_invalid(
            "Inputs a_values and a_shape should be vectors but received shapes: %s and %s",
            TENSOR_SHAPE_TEXT(values), TENSOR_SHAPE_TEXT(sizes));
    if (values->n_elements != tensor_dim(indices, 0))
        return status_invalid("Dimensions %lld and %lld are not compatible",
                              (long long)values->n_elements, (long long)tensor_dim(indices, 0));
    if (sizes->n_elements != tensor_dim(indices, 1))
        return status_invalid("Dimensions %lld and %lld are not compatible",
                              (long long)sizes->n_elements, (long long)tensor_dim(indices, 1));
    if (sizes->n_elements != b->rank)
        return status_invalid("Two operands have different ranks; received: %lld and %d",
                              (long long)sizes->n_elements, b->rank);
    for (int d = 0; d < b->rank; d++)
        if (tensor_index_at(sizes, d) != tensor_dim(b, d))
            return status_invalid("Dimension %d does not equal (no broadcasting is supported): "
                                  "sparse side %lld vs dense side %lld",
                                  d, (long long)tensor_index_at(sizes, d),
                                  (long long)tensor_dim(b, d));
    return NULL;
}

static struct status *dense_add_offsets(const struct kernel_ctx *ctx, int64_t *offsets) {
    const struct tensor *indices = &ctx->inputs[0], *b = &ctx->inputs[3];
    for (int64_t i = 0; i < tensor_dim(indices, 0); i++) {
        TRY(kernel_loop_check(i));
        offsets[i] = 0;
        for (int d = 0; d < b->rank; d++) {
            int64_t at = tensor_index_at(indices, i * b->rank + d);
            if (at < 0 || at >= tensor_dim(b, d))
                return status_invalid("Sparse tensor has some invalid index on dimension %d: %lld "
                                      "is not in [0, %lld)",
                                      d, (long long)at, (long long)tensor_dim(b, d));
            offsets[i] = offsets[i] * tensor_dim(b, d) + at;
        }
    }
    return NULL;
}

static enum kernel_result sparse_tensor_dense_add(struct kernel_ctx *ctx) {
    const struct tensor *values = &ctx->inputs[1], *b = &ctx->inputs[3];
    enum dtype dtype = (enum dtype)b->dtype;
    KERNEL_TRY(ctx, check_dense_add(ctx));
    int64_t n = values->n_elements, *offsets = malloc(((size_t)n + 1) * sizeof(*offsets));
    struct status *st = offsets
                            ? dense_add_offsets(ctx, offsets)
                            : status_exhausted("OOM: offsets of %lld sparse entries", (long long)n);
    if (!st)
        st = tensor_is_sole(b) ? NULL : tensor_clone(ctx->instance->allocator, b, &ctx->outputs[0]);
    if (!st) {
        if (!tensor_has_value(&ctx->outputs[0]))
            kernel_pass(ctx, 3, 0);
        struct scatter_job scatter = {.fn = update_find(UPDATE_ADD, dtype),
                                      .dtype = dtype,
                                      .params = tensor_data(&ctx->outputs[0]),
                                      .updates = tensor_cdata(values),
                                      .update_step = 1,
                                      .offsets = offsets,
                                      .n_slices = n,
                                      .slice_len = 1};
        st = scatter_run(ctx->pool, &scatter);
    }
    free(offsets);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- SparseDenseCwiseAdd, SparseDenseCwiseMul, SparseDenseCwiseDiv ---- */

/* The dense side is stretched to the sparse one, and the sparse side is never stretched. */
static struct status *check_cwise(const struct sparse *a, const struct tensor *b) {
    int64_t n_dense;
    TRY(sparse_check_dims(a->dims, a->rank, &n_dense));
    bool fits = b->rank <= a->rank;
    for (int d = 0; fits && d < b->rank; d++) {
        int64_t mine = a->dims[a->rank - b->rank + d], theirs = tensor_dim(b, d);
        fits = theirs == 1 || theirs == mine;
    }
    if (!fits)
        return status_invalid("SparseDenseBinaryOpShared broadcasts dense to sparse only; got "
                              "incompatible shapes: %s vs. %s",
                              SHAPE_TEXT((struct shape){a->rank, a->dims}), TENSOR_SHAPE_TEXT(b));
    for (int64_t i = 0; i < a->n; i++)
        for (int d = 0; d < a->rank; d++)
            if (sparse_at(a, i)[d] < 0 || sparse_at(a, i)[d] >= a->dims[d])
                return status_invalid("Provided indices are out-of-bounds w.r.t. dense side with "
                                      "broadcasted shape: %lld is not in [0, %lld)",
                                      (long long)sparse_at(a, i)[d], (long long)a->dims[d]);
    return NULL;
}

static enum kernel_result sparse_dense_cwise(struct kernel_ctx *ctx) {
    enum update_op op = *(const enum update_op *)ctx->instance->def->arg;
    const struct tensor *b = &ctx->inputs[3];
    struct sparse a;
    enum dtype dtype = (enum dtype)b->dtype;
    KERNEL_TRY(ctx, sparse_of_inputs(ctx, 0, &a));
    KERNEL_TRY(ctx, check_cwise(&a, b));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, dtype, (struct shape){1, &a.n}));
    int skipped = a.rank - b->rank;
    for (int64_t i = 0; i < a.n; i++) {
        int64_t offset = 0;
        for (int d = 0; d < b->rank; d++)
            offset = offset * tensor_dim(b, d) +
                     (tensor_dim(b, d) == 1 ? 0 : sparse_at(&a, i)[skipped + d]);
        sparse_copy_value(&ctx->outputs[0], i, b, offset);
    }
    void *out = tensor_data(&ctx->outputs[0]);
    KERNEL_TRY(ctx, update_run(ctx->pool, update_find(op, dtype), dtype, out,
                               tensor_cdata(a.values), out, a.n));
    return KERNEL_DONE;
}

static const enum update_op cwise_add = UPDATE_ADD, cwise_mul = UPDATE_MUL, cwise_div = UPDATE_DIV;
#define TO_DENSE_TYPES                                                                 \
    (DTYPES_NUMBER | DTYPE_BIT(DT_BOOL) | DTYPE_BIT(DT_STRING) | DTYPE_BIT(DT_QINT8) | \
     DTYPE_BIT(DT_QUINT8) | DTYPE_BIT(DT_QINT16) | DTYPE_BIT(DT_QUINT16))
// clang-format off
#define CWISE(name, formula) {.op = (name), .constraints = {{"T", DTYPES_REAL}}, \
    .compute = sparse_dense_cwise, .arg = &(formula)}
static const struct kernel_def rows[] = {
    {.op = "SparseToDense", .constraints = {{"T", TO_DENSE_TYPES}, {"Tindices", DTYPES_INDEX}},
        .compute = sparse_to_dense, .init = sparse_to_dense_init},
    {.op = "SparseTensorDenseAdd", .constraints =
        {{"T", DTYPES_NUMBER}, {"Tindices", DTYPES_INDEX}}, .compute = sparse_tensor_dense_add},
    CWISE("SparseDenseCwiseAdd", cwise_add),
    CWISE("SparseDenseCwiseMul", cwise_mul),
    CWISE("SparseDenseCwiseDiv", cwise_div),
};
// clang-format on

const struct kernel_list sparse_dense_kernels = {rows, ARRAY_LEN(rows)};
