/* Checks sparse gradients (indices, values, shape), merges two lists of rows, and makes the outputs
 * of a take. */
#include <stdlib.h>

#include "kernels/host/resources/accumulator.h"

static const int64_t *indices_of(const struct tensor *t) { return tensor_cdata(t); }

/* ---- checks ---- */

static struct status *check_forms(const struct sparse_gradient *g) {
    if (g->indices->rank != 1)
        return status_invalid("Input indices should be vector but received shape: %s",
                              TENSOR_SHAPE_TEXT(g->indices));
    if (g->shape->rank != 1)
        return status_invalid("Input shape should be a vector but received shape: %s",
                              TENSOR_SHAPE_TEXT(g->shape));
    if (g->values->rank == 0)
        return status_invalid("Values cannot be 0-dimensional.");
    if (g->indices->n_elements != tensor_dim(g->values, 0))
        return status_invalid("Expected %lld non-empty input values, got %lld",
                              (long long)g->indices->n_elements,
                              (long long)tensor_dim(g->values, 0));
    return NULL;
}

static struct status *check_given_shape(struct shape declared, const struct sparse_gradient *g) {
    const int64_t *given = tensor_cdata(g->shape);
    if (!g->has_shape)
        return NULL;
    if (declared.rank > g->shape->n_elements)
        return status_invalid("Shape mismatch: expected shape rank at least %d, got %lld",
                              declared.rank, (long long)g->shape->n_elements);
    for (int d = 0; d < declared.rank; d++)
        if (declared.dims[d] != -1 && declared.dims[d] != given[d])
            return status_invalid("Shape mismatch: expected shape dim %d to be %lld, got %lld", d,
                                  (long long)declared.dims[d], (long long)given[d]);
    return NULL;
}

static struct status *check_indices(struct shape declared, const struct sparse_gradient *g) {
    for (int64_t i = 0; declared.rank > 0 && declared.dims[0] != -1 && i < g->indices->n_elements;
         i++)
        if (indices_of(g->indices)[i] >= declared.dims[0])
            return status_invalid("Shape mismatch: index of slice %lld exceeded limits of shape; "
                                  "index is %lld exceeded %lld",
                                  (long long)i, (long long)indices_of(g->indices)[i],
                                  (long long)declared.dims[0]);
    return NULL;
}

/* Checks dimensions from 1 on, where `expected` knows them. */
static struct status *check_row_shape(struct shape expected, const struct tensor *values) {
    for (int d = 1; d < expected.rank; d++)
        if (expected.dims[d] != -1 && expected.dims[d] != tensor_dim(values, d))
            return status_invalid("Shape mismatch: expected values dim %d to be %lld, got %lld", d,
                                  (long long)expected.dims[d], (long long)tensor_dim(values, d));
    return NULL;
}

struct status *accumulator_check_sparse(const struct accumulator *accumulator,
                                        const struct sparse_gradient *g) {
    const struct tensor *sum = &accumulator->sum.values;
    TRY(check_forms(g));
    TRY(check_given_shape(accumulator->shape, g));
    TRY(check_indices(accumulator->shape, g));
    if (accumulator->sum.n_gradients > 0) {
        if (sum->rank != g->values->rank)
            return status_invalid("Shape mismatch: expected values rank %d, got %d", sum->rank,
                                  g->values->rank);
        return check_row_shape(tensor_shape(sum), g->values);
    }
    if (accumulator->shape.rank > g->values->rank)
        return status_invalid("Shape mismatch: expected values rank at least %d, got %d",
                              accumulator->shape.rank, g->values->rank);
    return check_row_shape(accumulator->shape, g->values);
}

/* ---- merge ---- */

/* Walks two lists side by side. The smaller index is first, and equal indices become one row. */
struct merge {
    const int64_t *a, *b;
    int64_t n_a, n_b, i, j;
};

/* Moves to the next row, which is row *from_a, row *from_b (-1 where a list has none), or both.
 * False at the end. */
static bool merge_next(struct merge *m, int64_t *from_a, int64_t *from_b) {
    if (m->i == m->n_a && m->j == m->n_b)
        return false;
    bool has_both = m->i < m->n_a && m->j < m->n_b;
    bool takes_a = m->j == m->n_b || (has_both && m->a[m->i] <= m->b[m->j]);
    bool takes_b = m->i == m->n_a || (has_both && m->b[m->j] <= m->a[m->i]);
    *from_a = takes_a ? m->i++ : -1;
    *from_b = takes_b ? m->j++ : -1;
    return true;
}

static struct status *rows_new(const struct accumulator *accumulator, const struct tensor *like,
                               int64_t n, struct accumulated *ret) {
    int64_t dims[SHAPE_MAX_RANK];
    memcpy(dims, tensor_dims(like), (size_t)like->rank * sizeof(*dims));
    dims[0] = n;
    TRY(tensor_new(accumulator->allocator, accumulator->dtype, (struct shape){like->rank, dims},
                   &ret->values));
    ret->indices = calloc((size_t)n + 1, sizeof(*ret->indices));
    ret->counts = calloc((size_t)n + 1, sizeof(*ret->counts));
    if (ret->indices && ret->counts)
        return NULL;
    accumulated_clear(ret);
    return status_exhausted("Out of memory for the %lld rows of accumulator %s", (long long)n,
                            accumulator->name);
}

static struct status *take_first(struct accumulator *accumulator, const struct sparse_gradient *g) {
    struct accumulated *sum = &accumulator->sum;
    int64_t n = g->indices->n_elements;
    TRY(rows_new(accumulator, g->values, n, sum));
    memcpy(tensor_data(&sum->values), tensor_cdata(g->values), tensor_size_bytes(g->values));
    for (int64_t i = 0; i < n; i++) {
        sum->indices[i] = indices_of(g->indices)[i];
        sum->counts[i] = 1;
    }
    return NULL;
}

struct status *accumulator_merge_sparse(struct accumulator *accumulator,
                                        const struct sparse_gradient *g) {
    struct accumulated *sum = &accumulator->sum, merged = {0};
    if (sum->n_gradients == 0)
        return take_first(accumulator, g);
    struct merge start = {.a = sum->indices,
                          .b = indices_of(g->indices),
                          .n_a = tensor_dim(&sum->values, 0),
                          .n_b = g->indices->n_elements};
    struct merge m = start;
    int64_t n = 0, a, b;
    while (merge_next(&m, &a, &b))
        n++;
    TRY(rows_new(accumulator, g->values, n, &merged));
    int64_t row_len = n > 0 ? merged.values.n_elements / n : 0;
    size_t row_bytes = (size_t)row_len * dtype_size(accumulator->dtype);
    const char *rows_a = tensor_cdata(&sum->values), *rows_b = tensor_cdata(g->values);
    char *to = tensor_data(&merged.values);
    m = start;
    for (int64_t k = 0; merge_next(&m, &a, &b); k++, to += row_bytes) {
        merged.indices[k] = a >= 0 ? start.a[a] : start.b[b];
        merged.counts[k] = (a >= 0 ? sum->counts[a] : 0) + (b >= 0);
        memcpy(to, a >= 0 ? rows_a + (size_t)a * row_bytes : rows_b + (size_t)b * row_bytes,
               row_bytes);
        if (a >= 0 && b >= 0)
            accumulator_add(accumulator->dtype, to, rows_b + (size_t)b * row_bytes, row_len);
    }
    merged.n_gradients = sum->n_gradients;
    accumulated_clear(sum);
    *sum = merged;
    return NULL;
}

/* ---- take ---- */

static void divide_rows(const struct accumulator *accumulator, struct accumulated *taken) {
    int64_t n = tensor_dim(&taken->values, 0), row_len = n > 0 ? taken->values.n_elements / n : 0;
    char *row = tensor_data(&taken->values);
    for (int64_t i = 0; i < n; i++, row += (size_t)row_len * dtype_size(accumulator->dtype))
        accumulator_divide(accumulator->dtype, row, row_len, taken->counts[i]);
}

struct status *accumulator_finish_sparse(const struct accumulator *accumulator,
                                         struct accumulated *taken, struct kernel_ctx *ctx) {
    struct allocator *allocator = ctx->instance->allocator;
    int64_t n = tensor_dim(&taken->values, 0), rank = taken->values.rank;
    TRY(tensor_new(allocator, DT_INT64, (struct shape){1, &n}, &ctx->outputs[0]));
    memcpy(tensor_data(&ctx->outputs[0]), taken->indices, (size_t)n * sizeof(int64_t));
    TRY(tensor_new(allocator, DT_INT64, (struct shape){1, &rank}, &ctx->outputs[2]));
    int64_t *shape = tensor_data(&ctx->outputs[2]);
    for (int d = 0; d < rank; d++)
        shape[d] = tensor_dim(&taken->values, d);
    /* the declared size, because gradients need not have it */
    shape[0] = accumulator->shape.rank > 0 ? accumulator->shape.dims[0] : -1;
    if (accumulator->is_mean)
        divide_rows(accumulator, taken);
    tensor_move(&ctx->outputs[1], &taken->values);
    return NULL;
}
