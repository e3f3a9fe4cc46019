/* Differentiates ops on sparse tensors with respect to the values of their elements; indices and
 * shapes have no gradient. */
#include "common/gradients/build.h"

/* (indices, values, shape): finds the input element of each output element. */
static void sparse_reorder_grad(struct gradient_ctx *g) {
    struct node_input numbers = RANGE(gradient_element(g, SHAPE(IN(0)), 0));
    struct node_input from = SECOND(OP("SparseReorder", IN(0), numbers, IN(2)));
    SET(1, OP("GatherV2", DY(1), OP("InvertPermutation", from), I32(0)));
}

/* (indices, shape, values, default): the default value fills everything but the elements. One value
 * may be for all elements. */
static void sparse_to_dense_grad(struct gradient_ctx *g) {
    struct node_input dy = DY(0), values = OP("GatherNd", dy, IN(0)), all = RANGE(OP("Rank", dy));
    SET(3, SUB(SUM(dy, all), SUM(values, RANGE(OP("Rank", values)))));
    SET_SUM(2, values);
}

/* (indices, values, shape, dense) */
static void sparse_tensor_dense_add_grad(struct gradient_ctx *g) {
    SET(1, OP("GatherNd", DY(0), IN(0)));
    SET(3, DY(0));
}

/* One column of the indices. */
static struct node_input column(struct gradient_ctx *g, struct node_input indices, int32_t i) {
    return OP_WITH(
        "StridedSlice",
        ATTRS(ATTR_I("begin_mask", 1), ATTR_I("end_mask", 1), ATTR_I("shrink_axis_mask", 2)),
        indices, I32S(0, i), I32S(0, i + 1), I32S(1, 1));
}

/* (indices, values, shape, b): op(A) op(B). The value at (i, j) gets row i of dy times row j of
 * op(B). */
static void sparse_tensor_dense_mat_mul_grad(struct gradient_ctx *g) {
    bool adj_a = gradient_attr_b(g, "adjoint_a"), adj_b = gradient_attr_b(g, "adjoint_b");
    struct node_input b = adj_b ? gradient_adjoint(g, IN(3)) : IN(3);
    struct node_input db = OP_WITH("SparseTensorDenseMatMul", ATTRS(ATTR_B("adjoint_a", !adj_a)),
                                   IN(0), IN(1), IN(2), DY(0));
    struct node_input of_dy = OP("GatherV2", DY(0), column(g, IN(0), adj_a ? 1 : 0), I32(0));
    struct node_input of_b = OP("GatherV2", b, column(g, IN(0), adj_a ? 0 : 1), I32(0));
    struct node_input values = adj_a ? MUL(CONJ(of_dy), of_b) : MUL(of_dy, CONJ(of_b));
    SET(1, SUM(values, I32(1)));
    SET(3, adj_b ? gradient_adjoint(g, db) : db);
}

/* (indices, values, shape, default) */
static void sparse_fill_empty_rows_grad(struct gradient_ctx *g) {
    struct node_input made = OP("SparseFillEmptyRowsGrad", OUT(3), DY(1));
    SET(1, made);
    SET(3, SECOND(made));
}

/* (a's indices, values, shape, b's, threshold) */
static void sparse_add_grad(struct gradient_ctx *g) {
    struct node_input made = OP("SparseAddGrad", DY(1), IN(0), IN(3), OUT(0));
    SET(1, made);
    SET(4, SECOND(made));
}

/* (indices, values, shape, start, size) */
static void sparse_slice_grad(struct gradient_ctx *g) {
    SET(1, OP("SparseSliceGrad", DY(1), IN(0), IN(3), OUT(0)));
}

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    LATER_GRADIENT("SparseTensorToCSRSparseMatrix"),
    LATER_GRADIENT("DenseToCSRSparseMatrix"),
    LATER_GRADIENT("CSRSparseMatrixToSparseTensor"),
    LATER_GRADIENT("CSRSparseMatrixToDense"),
    NO_GRADIENT("CSRSparseMatrixComponents"),
    NO_GRADIENT("SparseMatrixNNZ"),
    LATER_GRADIENT("SparseMatrixTranspose"),
    LATER_GRADIENT("SparseMatrixMatMul"),
    LATER_GRADIENT("SparseMatrixSparseMatMul"),
    GRADIENT("SparseReorder", sparse_reorder_grad),
    GRADIENT("SparseToDense", sparse_to_dense_grad),
    GRADIENT("SparseTensorDenseAdd", sparse_tensor_dense_add_grad),
    GRADIENT("SparseTensorDenseMatMul", sparse_tensor_dense_mat_mul_grad),
    GRADIENT("SparseFillEmptyRows", sparse_fill_empty_rows_grad),
    GRADIENT("SparseAdd", sparse_add_grad),
    GRADIENT("SparseSlice", sparse_slice_grad),
    NO_GRADIENT("SparseReshape"),
    LATER_GRADIENT("SparseConcat"),
    LATER_GRADIENT("SparseSplit"),
    NO_GRADIENT("SparseSliceGrad"),
    NO_GRADIENT("SparseFillEmptyRowsGrad"),
    LATER_GRADIENT("SparseDenseCwiseAdd"),
    LATER_GRADIENT("SparseDenseCwiseMul"),
    LATER_GRADIENT("SparseDenseCwiseDiv"),
    NO_GRADIENT("SparseAddGrad"),
    LATER_GRADIENT("SparseSparseMaximum"),
    LATER_GRADIENT("SparseSparseMinimum"),
    LATER_GRADIENT("SparseReduceSum"),
    NO_GRADIENT("SparseReduceSumSparse"),
    NO_GRADIENT("SparseReduceMax"),
    NO_GRADIENT("SparseReduceMaxSparse"),
    LATER_GRADIENT("SparseSoftmax"),
    NO_GRADIENT("SparseCross"),
    NO_GRADIENT("SparseCrossV2"),
    NO_GRADIENT("SparseCrossHashed"),
    NO_GRADIENT("SerializeSparse"),
    NO_GRADIENT("SerializeManySparse"),
    NO_GRADIENT("DeserializeSparse"),
    NO_GRADIENT("DeserializeManySparse"),
    NO_GRADIENT("AddSparseToTensorsMap"),
    NO_GRADIENT("AddManySparseToTensorsMap"),
    NO_GRADIENT("TakeManySparseFromTensorsMap"),
    NO_GRADIENT("EditDistance"),
    NO_GRADIENT("SparseSegmentSumGradV2"),
    NO_GRADIENT("SparseSegmentMeanGradV2"),
    NO_GRADIENT("SparseSegmentSqrtNGradV2"),
};
// clang-format on

const struct gradient_list sparse_gradients = {rows, ARRAY_LEN(rows)};
