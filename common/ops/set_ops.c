/* Lists the set family: sets along the last dimension, and searches in sorted values. */
#include "common/ops/sparse_shapes.h"

static struct status *require_groups(struct shape a, struct shape b) {
    for (int i = 0; i < 2; i++) {
        int rank = i ? b.rank : a.rank;
        if (rank >= 0 && rank < 2)
            return status_invalid("Shape must be at least rank 2 but is rank %d", rank);
    }
    if (a.rank >= 0 && b.rank >= 0 && a.rank != b.rank)
        return status_invalid("Shapes must be equal rank, but are %d and %d", a.rank, b.rank);
    return NULL;
}

static void set_result(struct shape_inference *ctx, int64_t rank) {
    set_sparse(ctx, 0, -1, vector_of(ctx, rank));
}

static struct status *shape_dense_to_dense(struct shape_inference *ctx) {
    struct shape a = ctx->in[0], b = ctx->in[1], unused;
    TRY(require_groups(a, b));
    if (a.rank >= 0 && b.rank >= 0)
        TRY(shape_merge(ctx, shape_sub(ctx, a, 0, a.rank - 1), shape_sub(ctx, b, 0, b.rank - 1),
                        &unused));
    set_result(ctx, MAX(a.rank, b.rank));
    return NULL;
}

/* The rank that the inputs of a sparse tensor give, from `first` on. */
static struct status *sparse_rank(struct shape_inference *ctx, int first, int64_t *ret) {
    TRY(shape_require_rank(ctx, first, 2, NULL));
    TRY(shape_require_rank(ctx, first + 1, 1, NULL));
    TRY(shape_require_rank(ctx, first + 2, 1, NULL));
    TRY(shape_merge_dims(dim_of(ctx->in[first], 0), dim_of(ctx->in[first + 1], 0), &(int64_t){0}));
    return shape_merge_dims(dim_of(ctx->in[first], 1), dim_of(ctx->in[first + 2], 0), ret);
}

static struct status *shape_dense_to_sparse(struct shape_inference *ctx) {
    int64_t rank = -1;
    TRY(shape_require_rank_at_least(ctx, 0, 2));
    TRY(sparse_rank(ctx, 1, &rank));
    if (rank >= 0 && ctx->in[0].rank >= 0 && rank != ctx->in[0].rank)
        return status_invalid("Shapes must be equal rank, but are %d and %lld", ctx->in[0].rank,
                              (long long)rank);
    set_result(ctx, rank >= 0 ? rank : ctx->in[0].rank);
    return NULL;
}

static struct status *shape_sparse_to_sparse(struct shape_inference *ctx) {
    int64_t a = -1, b = -1;
    TRY(sparse_rank(ctx, 0, &a));
    TRY(sparse_rank(ctx, 3, &b));
    if (a >= 0 && b >= 0 && a != b)
        return status_invalid("Shapes must be equal rank, but are %lld and %lld", (long long)a,
                              (long long)b);
    set_result(ctx, MAX(a, b));
    return NULL;
}

static struct status *shape_set_size(struct shape_inference *ctx) {
    const struct tensor *dims = ctx->in_values[2];
    if (!dims || dims->rank != 1 || dims->n_elements < 1 || dims->n_elements > SHAPE_MAX_RANK)
        return NULL;
    int64_t out[SHAPE_MAX_RANK];
    for (int d = 0; d < (int)dims->n_elements - 1; d++)
        out[d] = MAX(tensor_index_at(dims, d), (int64_t)-1);
    ctx->out[0] = shape_make(ctx, (int)dims->n_elements - 1, out);
    return NULL;
}

static struct status *shape_bound(struct shape_inference *ctx) {
    TRY(require_ranks(ctx, "mm"));
    ctx->out[0] = ctx->in[1].rank < 0 ? matrix_of(ctx, -1, -1) : ctx->in[1];
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"DenseToDenseSetOperation", "differences, intersections or unions of sets, row by row",
     shape_dense_to_dense},
    {"DenseToSparseSetOperation",
     "differences, intersections or unions of dense and sparse sets, row by row",
     shape_dense_to_sparse},
    {"SparseToSparseSetOperation",
     "differences, intersections or unions of sparse sets, row by row", shape_sparse_to_sparse},
    {"SetSize", "the number of distinct values in each row", shape_set_size},
    {"LowerBound", "the first position for each value in its sorted row", shape_bound},
    {"UpperBound", "the last position for each value in its sorted row", shape_bound},
    {"Bucketize", "the index of the boundaries around each number", shape_same_as_input},
};
// clang-format on

const struct op_def_list set_ops = {rows, ARRAY_LEN(rows)};
