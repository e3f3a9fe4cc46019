/* Lists the ragged family: values, and splits that say where rows end. */
#include "common/ops/sparse_shapes.h"

static struct status *shape_range(struct shape_inference *ctx) {
    int64_t n = -1;
    bool is_open = false, has_vector = false;
    for (int i = 0; i < 3; i++) {
        struct shape in = ctx->in[i];
        if (in.rank > 1)
            return status_invalid("Shape must be at most rank 1 but is rank %d", in.rank);
        is_open |= in.rank < 0;
        if (in.rank == 1) {
            has_vector = true;
            TRY(shape_merge_dims(n, in.dims[0], &n));
        }
    }
    n = has_vector ? n : is_open ? -1 : 1;
    ctx->out[0] = vector_of(ctx, n < 0 || n == INT64_MAX ? -1 : n + 1);
    ctx->out[1] = vector_of(ctx, -1);
    return NULL;
}

static struct status *shape_gather(struct shape_inference *ctx) {
    int n_splits = ctx->node->n_data - 2, n_out = ctx->node->n_outputs - 1;
    struct shape values = ctx->in[n_splits], indices = ctx->in[n_splits + 1];
    for (int i = 0; i < n_splits; i++)
        TRY(shape_require_rank(ctx, i, 1, NULL));
    TRY(shape_require_rank_at_least(ctx, n_splits, 1));
    TRY(shape_require_rank(ctx, n_splits + 1, n_out - n_splits + 1, &indices));
    for (int i = 0; i < n_out; i++)
        ctx->out[i] = vector_of(ctx, -1);
    return values.rank < 0 ? NULL
                           : shape_concat(ctx, vector_of(ctx, -1), shape_sub(ctx, values, 1, -1),
                                          &ctx->out[n_out]);
}

/* Splits must be vectors, and values must have rows. */
static struct status *require_ragged(struct shape_inference *ctx, int n_splits) {
    TRY(shape_require_rank_at_least(ctx, n_splits, 1));
    for (int i = 0; i < n_splits; i++)
        TRY(shape_require_rank(ctx, i, 1, NULL));
    return NULL;
}

static struct status *shape_to_variant(struct shape_inference *ctx) {
    int n_splits = ctx->node->n_data - 1;
    bool is_batched = false;
    TRY(node_get_b(ctx->node, "batched_input", &is_batched));
    TRY(require_ragged(ctx, n_splits));
    int64_t n = n_splits > 0 ? dim_of(ctx->in[0], 0) - 1 : dim_of(ctx->in[0], 0);
    ctx->out[0] = is_batched ? vector_of(ctx, MAX(n, (int64_t)-1)) : SHAPE_SCALAR;
    return NULL;
}

static struct status *shape_from_variant(struct shape_inference *ctx) {
    int64_t own_rank = -1;
    int n_splits = ctx->node->n_outputs - 1;
    TRY(node_get_i(ctx->node, "input_ragged_rank", &own_rank));
    if (own_rank > n_splits && ctx->in[0].rank >= 0)
        return status_invalid("rank must be >= 0");
    if (own_rank >= 0 && own_rank <= n_splits)
        TRY(shape_require_rank(ctx, 0, n_splits - (int)own_rank, NULL));
    for (int i = 0; i < n_splits; i++)
        ctx->out[i] = vector_of(ctx, -1);
    return NULL;
}

static struct status *shape_variant_grad(struct shape_inference *ctx) {
    return shape_from_input(ctx, 2, &ctx->out[0]);
}

static struct status *shape_to_sparse(struct shape_inference *ctx) {
    int n_splits = ctx->node->n_data - 1;
    struct shape values = ctx->in[n_splits];
    int64_t n = -1;
    TRY(require_ragged(ctx, n_splits));
    if (shape_is_full(values))
        TRY(shape_n_elements(values, &n));
    set_sparse(ctx, 0, n, vector_of(ctx, values.rank < 0 ? -1 : values.rank + n_splits));
    return NULL;
}

static struct status *check_partitions(struct shape_inference *ctx, int *ret_ragged_rank) {
    const struct attr_value *names;
    int n = 0, n_tensors = ctx->node->n_data - 3;
    TRY(node_get_list(ctx->node, "row_partition_types", &names, &n));
    bool has_size = n > 0 && span_is(names[0].s, "FIRST_DIM_SIZE");
    for (int i = 0; i < n; i++) {
        bool is_size = span_is(names[i].s, "FIRST_DIM_SIZE"),
             is_ids = span_is(names[i].s, "VALUE_ROWIDS");
        if (!is_size && !is_ids && !span_is(names[i].s, "ROW_SPLITS"))
            return status_invalid("Unknown string for partition info type: %.*s",
                                  (int)MIN(names[i].s.len, (size_t)64), names[i].s.data);
        if (i > 0 && is_size)
            return status_invalid("FIRST_DIM_SIZE must be first");
        if (i == 0 && is_ids)
            return status_invalid("VALUE_ROWIDS cannot be first");
    }
    if (n == 0)
        return status_invalid("Partition info types should not be empty");
    if (has_size && (n < 2 || !span_is(names[1].s, "VALUE_ROWIDS")))
        return status_invalid("FIRST_DIM_SIZE must be followed by VALUE_ROWIDS");
    if (n != n_tensors)
        return status_invalid("Number of row partition tensors (%d) does not equal the number of "
                              "row partition types(%d).",
                              n_tensors, n);
    for (int i = 0; i < n; i++)
        TRY(shape_require_rank(ctx, 3 + i, i > 0 || !has_size, NULL));
    *ret_ragged_rank = n - has_size;
    return NULL;
}

static struct status *check_default(struct shape value, struct shape values) {
    if (value.rank < 0 || values.rank < 0)
        return NULL;
    if (value.rank >= values.rank)
        return status_invalid(
            "default_value.rank = %d  must be less than rt_input.flat_values.rank = %d", value.rank,
            values.rank);
    for (int i = 0; i < value.rank; i++) {
        int64_t mine = value.dims[i], theirs = values.dims[i + 1];
        if (mine >= 0 && theirs >= 0 && mine != 1 && mine != theirs)
            return status_invalid("default_value.shape and rt_input.flat_values.shape are "
                                  "incompatible: %lld vs. %lld in dimension %d",
                                  (long long)mine, (long long)theirs, i);
    }
    return NULL;
}

static struct status *shape_to_tensor(struct shape_inference *ctx) {
    struct shape asked, values = ctx->in[1];
    int ragged_rank = 0;
    TRY(shape_from_input_or_scalar(ctx, 0, &asked));
    TRY(check_partitions(ctx, &ragged_rank));
    TRY(check_default(ctx->in[2], values));
    if (values.rank < 0) {
        ctx->out[0] = asked;
        return NULL;
    }
    int rank = ragged_rank + values.rank;
    if (rank > SHAPE_MAX_RANK || (asked.rank >= 0 && asked.rank != rank))
        return status_invalid(
            "rt_input.shape and shape=%s are incompatible: rt_input.rank = %d but shape.rank = %d",
            SHAPE_TEXT(asked), rank, asked.rank);
    int64_t dims[SHAPE_MAX_RANK];
    for (int i = 0; i < rank; i++) {
        dims[i] = asked.rank < 0 ? -1 : asked.dims[i];
        int64_t own = i > ragged_rank ? values.dims[i - ragged_rank] : -1;
        if (dims[i] >= 0 && own >= 0 && dims[i] != own)
            return status_invalid("rt_input.shape and shape=%s are incompatible: "
                                  "rt_input.shape[%d] = %lld but shape[%d] = %lld",
                                  SHAPE_TEXT(asked), i, (long long)own, i, (long long)dims[i]);
        dims[i] = dims[i] >= 0 ? dims[i] : own;
    }
    ctx->out[0] = shape_make(ctx, rank, dims);
    return NULL;
}

static struct status *count_list(const struct node *node, const char *attr, int *ret) {
    const struct attr_value *values;
    return node_get_list(node, attr, &values, ret);
}

/* The size of the batch, where an input gives it. */
static struct status *shape_ragged_cross(struct shape_inference *ctx) {
    int n_ragged = 0, n_sparse = 0, n_dense = 0;
    int64_t n = -1;
    TRY(count_list(ctx->node, "ragged_values_types", &n_ragged));
    TRY(count_list(ctx->node, "sparse_values_types", &n_sparse));
    TRY(count_list(ctx->node, "dense_types", &n_dense));
    /* Nsparse and the lists of the splits' types have lengths of their own */
    if (2 * n_ragged + 3 * n_sparse + n_dense != ctx->node->n_data)
        return status_invalid("The features' types ask for %d inputs, but there are %d",
                              2 * n_ragged + 3 * n_sparse + n_dense, ctx->node->n_data);
    for (int i = 0; i < n_ragged; i++) {
        int64_t n_splits = dim_of(ctx->in[n_ragged + i], 0);
        TRY(shape_require_rank(ctx, n_ragged + i, 1, NULL));
        TRY(shape_merge_dims(n, n_splits > 0 ? n_splits - 1 : -1, &n));
    }
    for (int i = 0; i < n_dense; i++) {
        int input = 2 * n_ragged + 3 * n_sparse + i;
        TRY(shape_require_rank(ctx, input, 2, NULL));
        TRY(shape_merge_dims(n, dim_of(ctx->in[input], 0), &n));
    }
    ctx->out[0] = vector_of(ctx, -1);
    ctx->out[1] = vector_of(ctx, n < 0 || n == INT64_MAX ? -1 : n + 1);
    return NULL;
}

static struct status *shape_count_dense(struct shape_inference *ctx) {
    set_sparse(ctx, 0, -1, vector_of(ctx, ctx->in[0].rank));
    return NULL;
}

static struct status *shape_count_sparse(struct shape_inference *ctx) {
    int64_t rank = dim_of(ctx->in[2], 0);
    /* rows are counted once, whatever dimensions are inside them */
    bool is_known = rank <= 2 && rank == dim_of(ctx->in[0], 1);
    set_sparse(ctx, 0, -1, vector_of(ctx, is_known ? rank : -1));
    return NULL;
}

static struct status *shape_count_ragged(struct shape_inference *ctx) {
    set_sparse(ctx, 0, -1, vector_of(ctx, 2));
    return NULL;
}

/* The size of a scalar input's value, or -1. */
static struct status *size_of_input(struct shape_inference *ctx, int input, int64_t *ret) {
    const struct tensor *value = ctx->in_values[input];
    TRY(shape_require_rank(ctx, input, 0, NULL));
    *ret = value ? tensor_index_at(value, 0) : -1;
    *ret = MAX(*ret, (int64_t)-1); /* the kernel refuses negative values */
    return NULL;
}

static struct status *shape_sparse_bincount(struct shape_inference *ctx) {
    const struct tensor *dims = ctx->in_values[2];
    int64_t size;
    TRY(size_of_input(ctx, 3, &size));
    if (!dims || dims->rank != 1)
        return NULL;
    if (dims->n_elements > 2)
        return status_invalid("Shape must be at most rank 2 but is rank %lld",
                              (long long)dims->n_elements);
    if (dims->n_elements == 1)
        ctx->out[0] = vector_of(ctx, size);
    if (dims->n_elements == 2)
        ctx->out[0] = matrix_of(ctx, MAX(tensor_index_at(dims, 0), (int64_t)-1), size);
    return NULL;
}

static struct status *shape_ragged_bincount(struct shape_inference *ctx) {
    int64_t size = -1, n_splits = dim_of(ctx->in[0], 0);
    if (ctx->in[2].rank == 0) /* the kernel refuses other values */
        TRY(size_of_input(ctx, 2, &size));
    ctx->out[0] = matrix_of(ctx, n_splits > 0 ? n_splits - 1 : -1, size);
    return NULL;
}

static struct status *shape_fill_rows(struct shape_inference *ctx) {
    const struct tensor *n_rows = ctx->in_values[2];
    int64_t n = -1;
    TRY(require_ranks(ctx, "vvss"));
    TRY(shape_merge_dims(dim_of(ctx->in[0], 0), dim_of(ctx->in[1], 0), &n));
    ctx->out[0] = ctx->out[1] = vector_of(ctx, -1);
    ctx->out[2] = vector_of(ctx, n_rows ? MAX(tensor_index_at(n_rows, 0), (int64_t)-1) : -1);
    ctx->out[3] = vector_of(ctx, n);
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"RaggedRange", "rows of numbers, each from a start to a limit", shape_range},
    {"RaggedGather", "rows of a ragged tensor by number", shape_gather},
    {"RaggedTensorToVariant", "a ragged tensor in a variant, or each of its rows",
     shape_to_variant},
    {"RaggedTensorFromVariant", "the ragged tensor that variants hold, stacked",
     shape_from_variant},
    {"RaggedTensorToVariantGradient", "RaggedTensorToVariant's gradient for its values",
     shape_variant_grad},
    {"RaggedTensorToTensor", "a ragged tensor with its rows filled up to one length",
     shape_to_tensor},
    {"RaggedTensorToSparse", "a ragged tensor as a sparse one", shape_to_sparse},
    {"RaggedCross", "every combination of one value of each feature, row by row",
     shape_ragged_cross},
    {"DenseCountSparseOutput", "how often each integer occurs, row by row, as a sparse matrix",
     shape_count_dense},
    {"SparseCountSparseOutput",
     "how often each integer occurs among sparse entries, row by row, as a sparse matrix",
     shape_count_sparse},
    {"RaggedCountSparseOutput", "how often each integer occurs in ragged rows, as a sparse matrix",
     shape_count_ragged},
    {"SparseBincount",
     "how often each integer occurs among sparse entries, or the sum of its weights, row by row",
     shape_sparse_bincount},
    {"RaggedBincount", "how often each integer occurs in ragged rows, or the sum of its weights",
     shape_ragged_bincount},
    {"RaggedFillEmptyRows", "ragged rows with a default value in each that had none",
     shape_fill_rows},
    {"RaggedFillEmptyRowsGrad",
     "RaggedFillEmptyRows' gradients for its values and its default value", shape_fill_rows_grad},
};
// clang-format on

const struct op_def_list ragged_ops = {rows, ARRAY_LEN(rows)};
