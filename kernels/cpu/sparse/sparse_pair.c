/* Merges two sparse tensors of one shape whose entries are in order: SparseAdd with its gradient,
 * SparseSparseMaximum and SparseSparseMinimum. */
#include <complex.h>
#include <stdlib.h>

#include "kernels/cpu/sparse/sparse.h"
#include "kernels/kernel.h"
#include "kernels/support/cancel.h"
#include "kernels/support/update.h"

extern const struct kernel_list sparse_pair_kernels;

/* ---- merging ---- */

/* One position of the merged tensor. It has an entry of a, of b, or of both; -1 where a side has
 * none. */
struct pair {
    int64_t a, b;
};

/* Merges into `to`, which has room for all entries. Returns how many positions there are. */
static int64_t merge(const struct sparse *a, const struct sparse *b, struct pair *to) {
    int64_t i = 0, j = 0, n = 0;
    while (i < a->n || j < b->n) {
        int order = i >= a->n   ? 1
                    : j >= b->n ? -1
                                : sparse_compare(sparse_at(a, i), sparse_at(b, j), a->rank);
        to[n++] = (struct pair){order <= 0 ? i : -1, order >= 0 ? j : -1};
        i += order <= 0;
        j += order >= 0;
    }
    return n;
}

static struct status *check_pair(const struct sparse *a, const struct sparse *b) {
    int64_t n_dense;
    if (a->rank != b->rank)
        return status_invalid("Operands do not have the same ranks; got shapes: %s and %s",
                              SHAPE_TEXT((struct shape){a->rank, a->dims}),
                              SHAPE_TEXT((struct shape){b->rank, b->dims}));
    for (int d = 0; d < a->rank; d++)
        if (a->dims[d] != b->dims[d])
            return status_invalid(
                "Operands' shapes do not match: got %lld and %lld for dimension %d",
                (long long)a->dims[d], (long long)b->dims[d], d);
    return sparse_check_dims(a->dims, a->rank, &n_dense);
}

static struct status *merge_alloc(const struct sparse *a, const struct sparse *b,
                                  struct pair **ret_pairs, int64_t *ret_n) {
    struct pair *pairs = malloc(((size_t)a->n + (size_t)b->n + 1) * sizeof(*pairs));
    if (!pairs)
        return status_exhausted("OOM: %lld merged sparse entries", (long long)(a->n + b->n));
    *ret_pairs = pairs;
    *ret_n = merge(a, b, pairs);
    return NULL;
}

static const int64_t *pair_place(const struct sparse *a, const struct sparse *b, struct pair pair) {
    return pair.a >= 0 ? sparse_at(a, pair.a) : sparse_at(b, pair.b);
}

static const char *value_at(const struct sparse *sparse, int64_t i) {
    return (const char *)tensor_cdata(sparse->values) +
           (size_t)i * dtype_size((enum dtype)sparse->values->dtype);
}

/* *to = op(a, b), where a missing entry counts as 0. An element has at most 16 bytes. */
static void combine(update_fn *fn, const struct sparse *a, const struct sparse *b, struct pair pair,
                    char *to) {
    static const char zero[16] __attribute__((aligned(16)));
    fn(to, pair.a >= 0 ? value_at(a, pair.a) : zero, pair.b >= 0 ? value_at(b, pair.b) : zero, 1,
       1);
}

/* ---- SparseAdd ---- */

/* Is the magnitude of a value at least the threshold? False when either is NaN. */
static bool is_kept(enum dtype dtype, const void *value, const void *threshold) {
    int64_t v, least;
    switch (dtype) {
    case DT_FLOAT:
        return *(const float *)threshold <= __builtin_fabsf(*(const float *)value);
    case DT_DOUBLE:
        return *(const double *)threshold <= __builtin_fabs(*(const double *)value);
    case DT_COMPLEX64:
        return *(const float *)threshold <= cabsf(*(const float complex *)value);
    case DT_COMPLEX128:
        return *(const double *)threshold <= cabs(*(const double complex *)value);
    case DT_INT8:
        v = *(const int8_t *)value, least = *(const int8_t *)threshold;
        break;
    case DT_INT16:
        v = *(const int16_t *)value, least = *(const int16_t *)threshold;
        break;
    case DT_INT32:
        v = *(const int32_t *)value, least = *(const int32_t *)threshold;
        break;
    default:
        v = *(const int64_t *)value, least = *(const int64_t *)threshold;
    }
    return least <= 0 || (uint64_t)least <= (v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

/* Leaves out the sums that are too small, and closes the gaps. An entry that only one side has is
 * no sum, so it stays however small it is. */
static int64_t drop_small(const struct sparse *a, const struct sparse *b,
                          const struct tensor *threshold, struct pair *pairs, int64_t n) {
    enum dtype dtype = (enum dtype)a->values->dtype;
    update_fn *add = update_find(UPDATE_ADD, dtype);
    char sum[16] __attribute__((aligned(16)));
    int64_t kept = 0;
    for (int64_t i = 0; i < n && pool_goes_on(i + 1); i++) {
        bool is_sum = pairs[i].a >= 0 && pairs[i].b >= 0;
        if (is_sum)
            combine(add, a, b, pairs[i], sum);
        if (!is_sum || is_kept(dtype, sum, tensor_cdata(threshold)))
            pairs[kept++] = pairs[i];
    }
    return kept;
}

static struct status *write_pairs(struct kernel_ctx *ctx, const struct sparse *a,
                                  const struct sparse *b, const struct pair *pairs, int64_t n,
                                  enum update_op op, bool has_shape) {
    enum dtype dtype = (enum dtype)a->values->dtype;
    update_fn *fn = update_find(op, dtype);
    TRY(sparse_alloc(ctx, 0, n, a->rank, dtype, has_shape ? a->dims : NULL));
    int64_t *places = tensor_data(&ctx->outputs[0]);
    char *values = tensor_data(&ctx->outputs[1]);
    for (int64_t i = 0; i < n && pool_goes_on(i); i++) {
        memcpy(places + i * a->rank, pair_place(a, b, pairs[i]), (size_t)a->rank * sizeof(*places));
        combine(fn, a, b, pairs[i], values + (size_t)i * dtype_size(dtype));
    }
    return NULL;
}

/* Reads the sparse tensors of inputs 0 … 2 and 3 … 5. */
static struct status *read_pair(struct kernel_ctx *ctx, struct sparse *a, struct sparse *b) {
    TRY(sparse_of_inputs(ctx, 0, a));
    TRY(sparse_of_inputs(ctx, 3, b));
    return check_pair(a, b);
}

static enum kernel_result sparse_add(struct kernel_ctx *ctx) {
    const struct tensor *threshold = &ctx->inputs[6];
    struct sparse a, b;
    struct pair *pairs = NULL;
    int64_t n;
    KERNEL_TRY(ctx, read_pair(ctx, &a, &b));
    if (threshold->rank != 0)
        return kernel_fail(ctx,
                           status_invalid("The magnitude threshold must be a scalar: got shape %s",
                                          TENSOR_SHAPE_TEXT(threshold)));
    KERNEL_TRY(ctx, merge_alloc(&a, &b, &pairs, &n));
    n = drop_small(&a, &b, threshold, pairs, n);
    struct status *st = write_pairs(ctx, &a, &b, pairs, n, UPDATE_ADD, true);
    free(pairs);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

static enum kernel_result sparse_extremum(struct kernel_ctx *ctx) {
    struct sparse a, b;
    struct pair *pairs = NULL;
    int64_t n;
    KERNEL_TRY(ctx, read_pair(ctx, &a, &b));
    KERNEL_TRY(ctx, sparse_check(&a, SPARSE_INSIDE));
    KERNEL_TRY(ctx, sparse_check(&b, SPARSE_INSIDE));
    KERNEL_TRY(ctx, merge_alloc(&a, &b, &pairs, &n));
    struct status *st =
        write_pairs(ctx, &a, &b, pairs, n, *(const enum update_op *)ctx->instance->def->arg, false);
    free(pairs);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- SparseAddGrad ---- */

static struct status *check_add_grad(const struct kernel_ctx *ctx) {
    const struct tensor *grad = &ctx->inputs[0], *a = &ctx->inputs[1], *b = &ctx->inputs[2],
                        *sum = &ctx->inputs[3];
    if (a->rank != 2 || b->rank != 2 || sum->rank != 2)
        return status_invalid("Input indices should be matrices but received shapes: %s, %s and %s",
                              TENSOR_SHAPE_TEXT(a), TENSOR_SHAPE_TEXT(b), TENSOR_SHAPE_TEXT(sum));
    if (grad->rank != 1)
        return status_invalid("Input backprop_val_grad should be a vector but received shape: %s",
                              TENSOR_SHAPE_TEXT(grad));
    if (tensor_dim(a, 1) != tensor_dim(b, 1) || tensor_dim(a, 1) != tensor_dim(sum, 1) ||
        tensor_dim(a, 1) > SHAPE_MAX_RANK)
        return status_invalid("The densified operands should have the same ndims; for A, B, Sum "
                              "got: %lld, %lld, %lld",
                              (long long)tensor_dim(a, 1), (long long)tensor_dim(b, 1),
                              (long long)tensor_dim(sum, 1));
    if (grad->n_elements != tensor_dim(sum, 0))
        return status_invalid("# elements of backprop_val_grad and # rows of sum_indices should "
                              "match (#nnz of sum): got %lld and %lld",
                              (long long)grad->n_elements, (long long)tensor_dim(sum, 0));
    return NULL;
}

/* Makes the gradient of one operand: that of the sum's entry at the same coordinates, and zero
 * where the sum left it out. */
static struct status *add_grad_of(struct kernel_ctx *ctx, int operand) {
    const struct tensor *grad = &ctx->inputs[0], *indices = &ctx->inputs[1 + operand],
                        *sum = &ctx->inputs[3];
    int64_t n = tensor_dim(indices, 0), n_sum = tensor_dim(sum, 0), rank = tensor_dim(sum, 1);
    const int64_t *at = tensor_cdata(indices), *places = tensor_cdata(sum);
    TRY(tensor_new_zeroed(ctx->instance->allocator, (enum dtype)grad->dtype, (struct shape){1, &n},
                          &ctx->outputs[operand]));
    for (int64_t i = 0, k = 0; i < n && k < n_sum && pool_goes_on(i + k + 1);) {
        int order = sparse_compare(at + i * rank, places + k * rank, (int)rank);
        if (order == 0)
            sparse_copy_value(&ctx->outputs[operand], i, grad, k);
        i += order <= 0;
        k += order > 0;
    }
    return NULL;
}

static enum kernel_result sparse_add_grad(struct kernel_ctx *ctx) {
    KERNEL_TRY(ctx, check_add_grad(ctx));
    KERNEL_TRY(ctx, add_grad_of(ctx, 0));
    KERNEL_TRY(ctx, add_grad_of(ctx, 1));
    return KERNEL_DONE;
}

static const enum update_op op_max = UPDATE_MAX, op_min = UPDATE_MIN;
#define SUM_TYPES (DTYPES_SIGNED_INT | DTYPE_BIT(DT_FLOAT) | DTYPE_BIT(DT_DOUBLE) | DTYPES_COMPLEX)
// clang-format off
#define ADD(type, real) {.op = "SparseAdd", .constraints =                       \
    {{"T", DTYPE_BIT(type)}, {"Treal", DTYPE_BIT(real)}}, .compute = sparse_add}
static const struct kernel_def rows[] = {
    ADD(DT_FLOAT, DT_FLOAT), ADD(DT_DOUBLE, DT_DOUBLE), ADD(DT_INT64, DT_INT64),
        ADD(DT_INT32, DT_INT32), ADD(DT_INT16, DT_INT16),
    ADD(DT_INT8, DT_INT8), ADD(DT_COMPLEX64, DT_FLOAT), ADD(DT_COMPLEX128, DT_DOUBLE),
    {.op = "SparseAddGrad", .constraints = {{"T", SUM_TYPES}}, .compute = sparse_add_grad},
    {.op = "SparseSparseMaximum", .constraints = {{"T", DTYPES_REAL}}, .compute = sparse_extremum,
        .arg = &op_max},
    {.op = "SparseSparseMinimum", .constraints = {{"T", DTYPES_REAL}}, .compute = sparse_extremum,
        .arg = &op_min},
};
// clang-format on

const struct kernel_list sparse_pair_kernels = {rows, ARRAY_LEN(rows)};
