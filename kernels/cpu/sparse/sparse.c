/* Reads, checks and orders sparse tensors; see sparse.h. */
#include "kernels/cpu/sparse/sparse.h"

#include <stdlib.h>

#include "kernels/kernel.h"
#include "kernels/support/cancel.h"

struct status *sparse_init(const struct tensor *indices, const struct tensor *values,
                           const struct tensor *shape, struct sparse *ret) {
    if (indices->rank != 2)
        return status_invalid("Input indices should be a matrix but received shape: %s",
                              TENSOR_SHAPE_TEXT(indices));
    if (values->rank != 1)
        return status_invalid("Input values should be a vector but received shape: %s",
                              TENSOR_SHAPE_TEXT(values));
    if (shape->rank != 1)
        return status_invalid("Input shape should be a vector but received shape: %s",
                              TENSOR_SHAPE_TEXT(shape));
    if (tensor_dim(indices, 0) != values->n_elements)
        return status_invalid("Number of values must match first dimension of indices: indices and "
                              "values rows (indexing dimension) must "
                              "match. (indices = %lld, values = %lld)",
                              (long long)tensor_dim(indices, 0), (long long)values->n_elements);
    if (tensor_dim(indices, 1) != shape->n_elements || shape->n_elements > SHAPE_MAX_RANK)
        return status_invalid("Shape rank must be SparseTensor rank. Number of dimensions must "
                              "match second dimension of indices. Got %lld "
                              "dimensions, indices shape: %s",
                              (long long)shape->n_elements, TENSOR_SHAPE_TEXT(indices));
    *ret = (struct sparse){.values = values,
                           .indices = tensor_cdata(indices),
                           .dims = tensor_cdata(shape),
                           .n = values->n_elements,
                           .rank = (int)shape->n_elements};
    return NULL;
}

struct status *sparse_of_inputs(const struct kernel_ctx *ctx, int first, struct sparse *ret) {
    return sparse_init(&ctx->inputs[first], &ctx->inputs[first + 1], &ctx->inputs[first + 2], ret);
}

struct status *sparse_check_dims(const int64_t *dims, int64_t rank, int64_t *ret_n) {
    if (rank > SHAPE_MAX_RANK)
        return status_invalid("Too many dimensions: %lld", (long long)rank);
    return shape_n_elements((struct shape){(int)rank, dims}, ret_n);
}

/* ---- checks ---- */

static COLD struct status *bad_entry(const struct sparse *sparse, int64_t i, const char *what) {
    struct str text = STR_INIT;
    str_addf(&text, "indices[%lld] = [", (long long)i);
    for (int d = 0; d < sparse->rank; d++)
        str_addf(&text, d ? ",%lld" : "%lld", (long long)sparse_at(sparse, i)[d]);
    str_addf(&text, "] is %s", what);
    struct status *st = status_invalid("%s", str_text(&text));
    str_fini(&text);
    return st;
}

static bool is_inside(const struct sparse *sparse, int64_t i) {
    for (int d = 0; d < sparse->rank; d++)
        if (sparse_at(sparse, i)[d] < 0 || sparse_at(sparse, i)[d] >= sparse->dims[d])
            return false;
    return true;
}

struct status *sparse_check(const struct sparse *sparse, unsigned wants) {
    for (int64_t i = 0; i < sparse->n; i++) {
        TRY(kernel_loop_check(i + 1));
        if ((wants & SPARSE_INSIDE) && !is_inside(sparse, i)) {
            struct status *st = bad_entry(sparse, i, "out of bounds: need 0 <= index < ");
            return status_suffix_take(st, "%s",
                                      SHAPE_TEXT((struct shape){sparse->rank, sparse->dims}));
        }
        int order =
            (wants & SPARSE_ORDERED) && i > 0
                ? sparse_compare(sparse_at(sparse, i - 1), sparse_at(sparse, i), sparse->rank)
                : -1;
        if (order > 0)
            return bad_entry(sparse, i,
                             "out of order. Many sparse ops require sorted indices. Use "
                             "`tf.sparse.reorder` to create a "
                             "correctly ordered copy.");
        if (order == 0)
            return bad_entry(sparse, i, "repeated");
    }
    return NULL;
}

int64_t sparse_run_end(const struct sparse *sparse, int64_t begin, int n_dims) {
    int64_t end = begin + 1;
    while (end < sparse->n &&
           sparse_compare(sparse_at(sparse, begin), sparse_at(sparse, end), n_dims) == 0)
        end++;
    return end;
}

/* ---- order ---- */

struct ordering {
    const struct sparse *sparse;
    const int *by;
    int n_by;
};

static inline int compare(const struct ordering *ordering, int64_t i, int64_t j) {
    const int64_t *a = sparse_at(ordering->sparse, i), *b = sparse_at(ordering->sparse, j);
    if (!ordering->by)
        return sparse_compare(a, b, ordering->n_by);
    for (int k = 0; k < ordering->n_by; k++) {
        int d = ordering->by[k];
        if (a[d] != b[d])
            return a[d] < b[d] ? -1 : 1;
    }
    return 0;
}

static bool is_ordered(const struct ordering *ordering) {
    for (int64_t i = 1; i < ordering->sparse->n && pool_goes_on(i); i++)
        if (compare(ordering, i - 1, i) > 0)
            return false;
    return true;
}

/* Merges the sorted runs [begin, middle) and [middle, end). */
static void merge(const struct ordering *ordering, const int64_t *from, int64_t *to, int64_t begin,
                  int64_t middle, int64_t end) {
    int64_t a = begin, b = middle;
    for (int64_t i = begin; i < end && pool_goes_on(i); i++)
        to[i] = b >= end || (a < middle && compare(ordering, from[a], from[b]) <= 0) ? from[a++]
                                                                                     : from[b++];
}

struct status *sparse_order(const struct sparse *sparse, const int *by, int n_by,
                            int64_t **ret_order) {
    const struct ordering ordering = {sparse, by, n_by};
    int64_t n = sparse->n, *from = malloc(((size_t)n + 1) * sizeof(*from)), *to = NULL;
    struct status *st = NULL;
    if (!from)
        goto oom;
    for (int64_t i = 0; i < n; i++)
        from[i] = i;
    if (!is_ordered(&ordering)) {
        to = malloc(((size_t)n + 1) * sizeof(*to));
        if (!to)
            goto oom;
        for (int64_t width = 1; width < n && !st; width *= 2) {
            for (int64_t begin = 0; begin < n && pool_goes_on(begin); begin += 2 * width)
                merge(&ordering, from, to, begin, MIN(begin + width, n), MIN(begin + 2 * width, n));
            int64_t *swap = from;
            from = to;
            to = swap;
            st = kernel_loop_check(0); /* else it may not be whole */
        }
    }
    free(to);
    if (st) {
        free(from);
        return st;
    }
    *ret_order = from;
    return NULL;
oom:
    free(from);
    return status_exhausted("OOM: the order of %lld sparse entries", (long long)n);
}

/* ---- making ---- */

struct status *sparse_alloc(struct kernel_ctx *ctx, int first, int64_t n, int rank,
                            enum dtype dtype, const int64_t *dims) {
    int64_t n_dims = rank;
    TRY(kernel_alloc(ctx, first, DT_INT64, (struct shape){2, (int64_t[]){n, rank}}));
    TRY(kernel_alloc(ctx, first + 1, dtype, (struct shape){1, &n}));
    if (!dims)
        return NULL;
    TRY(kernel_alloc(ctx, first + 2, DT_INT64, (struct shape){1, &n_dims}));
    if (rank > 0)
        memcpy(tensor_data(&ctx->outputs[first + 2]), dims, (size_t)rank * sizeof(*dims));
    return NULL;
}

struct status *sparse_rows_of_inputs(const struct kernel_ctx *ctx, struct sparse *ret) {
    int64_t n_dense;
    TRY(sparse_of_inputs(ctx, 0, ret));
    if (ret->rank < 2)
        return status_invalid("Rank of input SparseTensor should be > 1, but saw rank: %d",
                              ret->rank);
    TRY(sparse_check_dims(ret->dims, ret->rank, &n_dense));
    return sparse_check(ret, SPARSE_INSIDE | SPARSE_ORDERED);
}
