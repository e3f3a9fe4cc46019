/* Lists the sparse family: tensors as indices, values and shape. Their number of entries is mostly
 * unknown before they run. */
#include "common/ops/sparse_shapes.h"

/* ---- one sparse tensor ---- */

static struct status *shape_reorder(struct shape_inference *ctx) {
    TRY(require_ranks(ctx, "mvv"));
    ctx->out[0] = ctx->in[0].rank < 0 ? matrix_of(ctx, -1, -1) : ctx->in[0];
    ctx->out[1] = ctx->in[1].rank < 0 ? vector_of(ctx, -1) : ctx->in[1];
    return NULL;
}

static struct status *shape_reshape(struct shape_inference *ctx) {
    TRY(require_ranks(ctx, "mvv"));
    ctx->out[0] = matrix_of(ctx, dim_of(ctx->in[0], 0), dim_of(ctx->in[2], 0));
    ctx->out[1] = ctx->in[2].rank < 0 ? vector_of(ctx, -1) : ctx->in[2];
    return NULL;
}

static struct status *shape_of_values(struct shape_inference *ctx) {
    TRY(require_ranks(ctx, "mvv"));
    ctx->out[0] = ctx->in[1].rank < 0 ? vector_of(ctx, -1) : ctx->in[1];
    return NULL;
}

static struct status *shape_cwise(struct shape_inference *ctx) {
    TRY(require_ranks(ctx, "m"));
    ctx->out[0] = vector_of(ctx, dim_of(ctx->in[0], 0));
    return NULL;
}

static struct status *shape_reduce(struct shape_inference *ctx) {
    const struct tensor *dims = ctx->in_values[2], *axes = ctx->in_values[3];
    bool keeps = false, is_reduced[SHAPE_MAX_RANK] = {false};
    int64_t out[SHAPE_MAX_RANK];
    int rank = 0;
    TRY(node_get_b(ctx->node, "keep_dims", &keeps));
    if (!dims || !axes || dims->rank != 1 || dims->n_elements > SHAPE_MAX_RANK)
        return NULL;
    int64_t in_rank = dims->n_elements;
    for (int64_t i = 0; i < axes->n_elements; i++) {
        int64_t axis = tensor_index_at(axes, i);
        if (axis < -in_rank || axis >= in_rank) /* the kernel reports it */
            return NULL;
        is_reduced[axis < 0 ? axis + in_rank : axis] = true;
    }
    for (int d = 0; d < in_rank; d++) {
        int64_t size = tensor_index_at(dims, d);
        if (!is_reduced[d] || keeps)
            out[rank++] = is_reduced[d] ? 1 : MAX(size, (int64_t)-1);
    }
    ctx->out[0] = shape_make(ctx, rank, out);
    return NULL;
}

static struct status *shape_slice(struct shape_inference *ctx) {
    set_sparse(ctx, 0, -1, ctx->in[2]);
    return NULL;
}

static struct status *shape_slice_grad(struct shape_inference *ctx) {
    TRY(require_ranks(ctx, ".m"));
    ctx->out[0] = vector_of(ctx, dim_of(ctx->in[1], 0));
    return NULL;
}

/* Outputs of one kind are adjacent: all indices, all values, all shapes. */
static struct status *shape_split(struct shape_inference *ctx) {
    int n = ctx->node->n_outputs / 3;
    for (int i = 0; i < n; i++) {
        ctx->out[i] = matrix_of(ctx, -1, dim_of(ctx->in[3], 0));
        ctx->out[n + i] = vector_of(ctx, -1);
        ctx->out[2 * n + i] = ctx->in[3];
    }
    return NULL;
}

static struct status *shape_concat_sparse(struct shape_inference *ctx) {
    int n = ctx->node->n_data / 3;
    int64_t total = 0, columns = -1, rows;
    struct shape shape = SHAPE_UNKNOWN;
    for (int i = 0; i < n; i++) {
        TRY(shape_require_rank(ctx, i, 2, NULL));
        TRY(shape_require_rank(ctx, n + i, 1, NULL));
        TRY(shape_require_rank(ctx, 2 * n + i, 1, NULL));
        TRY(shape_merge_dims(dim_of(ctx->in[i], 0), dim_of(ctx->in[n + i], 0), &rows));
        TRY(shape_merge_dims(columns, dim_of(ctx->in[i], 1), &columns));
        TRY(shape_merge(ctx, shape, ctx->in[2 * n + i], &shape));
        if (rows < 0 || total < 0 || add_overflows_i64(total, rows, &total))
            total = -1;
    }
    ctx->out[0] = matrix_of(ctx, total, columns);
    ctx->out[1] = vector_of(ctx, total);
    ctx->out[2] = shape.rank < 0 ? vector_of(ctx, -1) : shape;
    return NULL;
}

static struct status *shape_fill_rows(struct shape_inference *ctx) {
    struct shape indices = ctx->in[0];
    int64_t n = -1;
    TRY(require_ranks(ctx, "mvvs"));
    TRY(shape_merge_dims(dim_of(indices, 0), dim_of(ctx->in[1], 0), &n));
    TRY(shape_merge_dims(dim_of(indices, 1), dim_of(ctx->in[2], 0), &(int64_t){0}));
    const struct tensor *dims = ctx->in_values[2];
    int64_t n_rows = dims && dims->n_elements > 0 ? MAX(tensor_index_at(dims, 0), (int64_t)-1) : -1;
    ctx->out[0] =
        matrix_of(ctx, -1, dim_of(indices, 1) >= 0 ? dim_of(indices, 1) : dim_of(ctx->in[2], 0));
    ctx->out[1] = vector_of(ctx, -1);
    ctx->out[2] = vector_of(ctx, n_rows);
    ctx->out[3] = vector_of(ctx, n);
    return NULL;
}

struct status *shape_fill_rows_grad(struct shape_inference *ctx) {
    TRY(require_ranks(ctx, "vv"));
    ctx->out[0] = vector_of(ctx, dim_of(ctx->in[0], 0));
    ctx->out[1] = SHAPE_SCALAR;
    return NULL;
}

/* ---- a sparse tensor with a dense one ---- */

static struct status *shape_to_dense(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 1, 1, NULL));
    return shape_from_input(ctx, 1, &ctx->out[0]);
}

static struct status *shape_dense_add(struct shape_inference *ctx) {
    ctx->out[0] = ctx->in[3];
    return NULL;
}

static struct status *shape_sparse_matmul(struct shape_inference *ctx) {
    struct shape a, b;
    bool adjoint_a = false, adjoint_b = false;
    TRY(require_ranks(ctx, "mvv"));
    TRY(node_get_b(ctx->node, "adjoint_a", &adjoint_a));
    TRY(node_get_b(ctx->node, "adjoint_b", &adjoint_b));
    TRY(shape_from_input(ctx, 2, &a));
    TRY(shape_require_rank(ctx, 3, 2, &b));
    if (a.rank >= 0 && a.rank != 2)
        return status_invalid("Shape must be rank 2 but is rank %d", a.rank);
    TRY(shape_merge_dims(dim_of(a, !adjoint_a), dim_of(b, adjoint_b), &(int64_t){0}));
    ctx->out[0] = matrix_of(ctx, dim_of(a, adjoint_a), dim_of(b, !adjoint_b));
    return NULL;
}

static struct status *shape_hinted_matmul(struct shape_inference *ctx) {
    bool transpose_a = false, transpose_b = false;
    TRY(node_get_b(ctx->node, "transpose_a", &transpose_a));
    TRY(node_get_b(ctx->node, "transpose_b", &transpose_b));
    TRY(require_ranks(ctx, "mm"));
    TRY(shape_merge_dims(dim_of(ctx->in[0], !transpose_a), dim_of(ctx->in[1], transpose_b),
                         &(int64_t){0}));
    ctx->out[0] = matrix_of(ctx, dim_of(ctx->in[0], transpose_a), dim_of(ctx->in[1], !transpose_b));
    return NULL;
}

/* ---- two sparse tensors ---- */

static struct status *shape_add(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 2, 1, NULL));
    set_sparse(ctx, 0, -1, ctx->in[2]);
    return NULL;
}

static struct status *shape_add_grad(struct shape_inference *ctx) {
    TRY(require_ranks(ctx, ".mm"));
    ctx->out[0] = vector_of(ctx, dim_of(ctx->in[1], 0));
    ctx->out[1] = vector_of(ctx, dim_of(ctx->in[2], 0));
    return NULL;
}

static struct status *shape_extremum(struct shape_inference *ctx) {
    TRY(require_ranks(ctx, "mvvmvv"));
    ctx->out[0] = matrix_of(ctx, -1, -1);
    ctx->out[1] = vector_of(ctx, -1);
    return NULL;
}

/* The output has the larger size of each dimension but the last. */
static struct status *shape_distance(struct shape_inference *ctx) {
    TRY(require_ranks(ctx, "mvvmvv"));
    const struct tensor *a = ctx->in_values[2], *b = ctx->in_values[5];
    int64_t dims[SHAPE_MAX_RANK];
    if (!a || !b || a->rank != 1 || b->rank != 1)
        return NULL;
    if (a->n_elements != b->n_elements || a->n_elements < 1)
        return status_invalid("Num elements of hypothesis_shape does not match num elements of "
                              "truth_shape: %lld vs. %lld",
                              (long long)a->n_elements, (long long)b->n_elements);
    if (a->n_elements > SHAPE_MAX_RANK)
        return NULL;
    int rank = (int)a->n_elements - 1;
    for (int d = 0; d < rank; d++)
        dims[d] = MAX(MAX(tensor_index_at(a, d), tensor_index_at(b, d)), (int64_t)-1);
    ctx->out[0] = shape_make(ctx, rank, dims);
    return NULL;
}

/* ---- crosses, kept and serialized ones ---- */

static struct status *shape_cross(struct shape_inference *ctx) {
    set_sparse(ctx, 0, -1, vector_of(ctx, 2));
    return NULL;
}

static struct status *shape_serialize(struct shape_inference *ctx) {
    TRY(require_ranks(ctx, "mvv"));
    ctx->out[0] = vector_of(ctx, 3);
    return NULL;
}

static struct status *shape_serialize_many(struct shape_inference *ctx) {
    TRY(require_ranks(ctx, "mvv"));
    ctx->out[0] = matrix_of(ctx, -1, 3);
    return NULL;
}

static struct status *shape_deserialize(struct shape_inference *ctx) {
    struct shape in = ctx->in[0];
    if (node_is_op(ctx->node, "DeserializeManySparse"))
        TRY(shape_require_rank(ctx, 0, 2, NULL));
    TRY(shape_require_rank_at_least(ctx, 0, 1));
    if (in.rank > 0 && in.dims[in.rank - 1] >= 0 && in.dims[in.rank - 1] != 3)
        return status_invalid("Dimension must be 3 but is %lld", (long long)in.dims[in.rank - 1]);
    set_sparse(ctx, 0, -1, SHAPE_UNKNOWN);
    return NULL;
}

static struct status *shape_add_to_map(struct shape_inference *ctx) {
    TRY(require_ranks(ctx, "mvv"));
    ctx->out[0] =
        node_is_op(ctx->node, "AddSparseToTensorsMap") ? SHAPE_SCALAR : vector_of(ctx, -1);
    return NULL;
}

static struct status *shape_take_from_map(struct shape_inference *ctx) {
    TRY(require_ranks(ctx, "v"));
    set_sparse(ctx, 0, -1, SHAPE_UNKNOWN);
    return NULL;
}

/* ---- segments ---- */

static struct status *shape_segment_grad_v2(struct shape_inference *ctx) {
    struct shape grad = ctx->in[0];
    TRY(shape_require_rank_at_least(ctx, 0, 1));
    TRY(require_ranks(ctx, ".vvs"));
    TRY(shape_merge_dims(dim_of(ctx->in[1], 0), dim_of(ctx->in[2], 0), &(int64_t){0}));
    ctx->out[1] = vector_of(ctx, -1);
    return grad.rank < 0
               ? NULL
               : shape_concat(ctx, vector_of(ctx, -1), shape_sub(ctx, grad, 1, -1), &ctx->out[0]);
}

/* ---- matrices by compressed rows: their sizes are not inferred ---- */

static struct status *shape_csr_entries(struct shape_inference *ctx) {
    ctx->out[0] = shape_unknown_of_rank(ctx, 2);
    ctx->out[1] = shape_unknown_of_rank(ctx, 1);
    ctx->out[2] = shape_unknown_of_rank(ctx, 1);
    return NULL;
}

static struct status *shape_csr_vectors(struct shape_inference *ctx) {
    for (int i = 0; i < 3; i++)
        ctx->out[i] = shape_unknown_of_rank(ctx, 1);
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"SparseTensorToCSRSparseMatrix", "a sparse tensor as a matrix by compressed rows",
     shape_scalar},
    {"DenseToCSRSparseMatrix", "chosen elements as a matrix by compressed rows", shape_scalar},
    {"CSRSparseMatrixToSparseTensor", "a matrix by compressed rows as a sparse tensor",
     shape_csr_entries},
    {"CSRSparseMatrixToDense", "a matrix by compressed rows as a dense one", shape_unknown},
    {"CSRSparseMatrixComponents", "row pointers, columns and values of a matrix",
     shape_csr_vectors},
    {"SparseMatrixNNZ", "the number of a matrix' entries", shape_unknown},
    {"SparseMatrixTranspose", "the transpose of a matrix by compressed rows", shape_scalar},
    {"SparseMatrixMatMul", "a matrix by compressed rows times a dense one", shape_unknown},
    {"SparseMatrixSparseMatMul", "the product of two matrices by compressed rows", shape_scalar},
    {"SparseReorder", "the entries in row-major order", shape_reorder},
    {"SparseReshape", "the indices of the entries under another shape", shape_reshape},
    {"SparseConcat", "sparse tensors one after the other along a dimension", shape_concat_sparse},
    {"SparseSplit", "a sparse tensor cut along a dimension into parts of nearly one size",
     shape_split},
    {"SparseSlice", "the part of a sparse tensor from a corner on", shape_slice},
    {"SparseSliceGrad", "SparseSlice's gradient for its values", shape_slice_grad},
    {"SparseFillEmptyRows", "a sparse tensor with a default value in each row that had none",
     shape_fill_rows},
    {"SparseFillEmptyRowsGrad",
     "SparseFillEmptyRows' gradients for its values and its default value", shape_fill_rows_grad},
    {"SparseToDense", "a tensor of a default value, with values at given places", shape_to_dense},
    {"SparseTensorDenseAdd", "a dense tensor plus a sparse one", shape_dense_add},
    {"SparseDenseCwiseAdd",
     "the entries of a sparse tensor plus those of a dense one at their places", shape_cwise},
    {"SparseDenseCwiseMul",
     "the entries of a sparse tensor times those of a dense one at their places", shape_cwise},
    {"SparseDenseCwiseDiv",
     "the entries of a sparse tensor over those of a dense one at their places", shape_cwise},
    {"SparseTensorDenseMatMul", "a sparse matrix times a dense one", shape_sparse_matmul},
    {"SparseMatMul", "the product of two dense matrices that hold many zeros", shape_hinted_matmul},
    {"SparseAdd", "the sum of two sparse tensors, without what is below a threshold", shape_add},
    {"SparseAddGrad", "SparseAdd's gradients for both sides' values", shape_add_grad},
    {"SparseSparseMaximum", "the larger of two sparse tensors, place by place", shape_extremum},
    {"SparseSparseMinimum", "the smaller of two sparse tensors, place by place", shape_extremum},
    {"SparseReduceSum", "the sum of the entries along axes", shape_reduce},
    {"SparseReduceSumSparse", "the sum of the entries along axes, as a sparse tensor",
     shape_unknown},
    {"SparseReduceMax", "the largest of the entries along axes", shape_reduce},
    {"SparseReduceMaxSparse", "the largest of the entries along axes, as a sparse tensor",
     shape_unknown},
    {"SparseSoftmax", "softmax over the entries along the last dimension", shape_of_values},
    {"SparseCross", "every combination of one value of each feature, row by row, as text or hash",
     shape_cross},
    {"SparseCrossV2", "every combination of one value of each feature, row by row, as text",
     shape_cross},
    {"SparseCrossHashed", "every combination of one value of each feature, row by row, as hash",
     shape_cross},
    {"SerializeSparse", "a sparse tensor as three strings or variants", shape_serialize},
    {"SerializeManySparse", "each row of a sparse tensor as three strings or variants",
     shape_serialize_many},
    {"DeserializeSparse", "the sparse tensor that strings or variants hold, stacked",
     shape_deserialize},
    {"DeserializeManySparse", "the sparse tensor that rows of strings hold, stacked",
     shape_deserialize},
    {"AddSparseToTensorsMap", "keeps a sparse tensor under a number", shape_add_to_map},
    {"AddManySparseToTensorsMap", "keeps each row of a sparse tensor under a number",
     shape_add_to_map},
    {"TakeManySparseFromTensorsMap", "takes sparse tensors that were kept, stacked",
     shape_take_from_map},
    {"EditDistance", "the least number of changes from one sequence to another", shape_distance},
    {"SparseSegmentSumGradV2", "SparseSegmentSum's gradient for the data rows that were used",
     shape_segment_grad_v2},
    {"SparseSegmentMeanGradV2", "SparseSegmentMean's gradient for the data rows that were used",
     shape_segment_grad_v2},
    {"SparseSegmentSqrtNGradV2", "SparseSegmentSqrtN's gradient for the data rows that were used",
     shape_segment_grad_v2},
};
// clang-format on

const struct op_def_list sparse_ops = {rows, ARRAY_LEN(rows)};
