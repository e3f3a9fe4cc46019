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

/* ---- reductions, softmax: of the elements, in the shape of the whole ---- */

/* (indices, values, shape, axes). In the reduced gradient, which has 1 for each reduced axis, the
 * coordinates along these axes are 0. */
static void sparse_reduce_sum_grad(struct gradient_ctx *g) {
    struct node_input shape = gradient_cast(g, IN(2), DT_INT32), rank = OP("Size", shape);
    struct node_input axes = OP("FloorMod", RESHAPE(IN(3), I32S(-1)), rank), all = RANGE(rank);
    struct node_input ones = OP("OnesLike", axes), kept = OP("OnesLike", shape);
    struct node_input kept_shape = OP("DynamicStitch", all, axes, shape, ones);
    struct node_input is_kept = OP("DynamicStitch", all, axes, kept, ZEROS(axes));
    struct node_input indices = MUL(IN(0), gradient_cast(g, is_kept, DT_INT64));
    SET(1, OP("GatherNd", RESHAPE(DY(0), kept_shape), indices));
}

/* (indices, values, shape): y (dy - Σ y dy), summed along the last axis. */
static void sparse_softmax_grad(struct gradient_ctx *g) {
    struct node_input y = OUT(0);
    struct node_input sums = OP_WITH("SparseReduceSum", ATTRS(ATTR_B("keep_dims", true)), IN(0),
                                     MUL(y, DY(0)), IN(2), I32S(-1));
    SET(1, MUL(y, OP("SparseDenseCwiseAdd", IN(0), DY(0), IN(2), NEG(sums))));
}

/* ---- a sparse tensor with a dense one that is broadcast to its shape ---- */

/* (indices, values, shape, dense): the coordinates in the dense one of each element. */
static struct node_input dense_indices(struct gradient_ctx *g) {
    struct node_input shape = SHAPE_AS(IN(3), IN(2)), begin, mask;
    begin = SUB(OP("Size", IN(2)), OP("Size", shape));
    begin = CONCAT(I32S(0), RESHAPE(begin, I32S(1)));
    mask = gradient_cast(g, OP("NotEqual", shape, OP("OnesLike", shape)), DT_INT64);
    return MUL(OP("Slice", IN(0), begin, I32S(-1, -1)), mask);
}

static void set_dense(struct gradient_ctx *g, struct node_input indices, struct node_input parts) {
    SET(3, OP("ScatterNd", indices, parts, SHAPE_AS(IN(3), indices)));
}

static void sparse_dense_cwise_mul_grad(struct gradient_ctx *g) {
    struct node_input indices = dense_indices(g);
    SET(1, MUL(DY(0), CONJ(OP("GatherNd", IN(3), indices))));
    set_dense(g, indices, MUL(DY(0), CONJ(IN(1))));
}

static void sparse_dense_cwise_div_grad(struct gradient_ctx *g) {
    struct node_input indices = dense_indices(g), by = CONJ(OP("GatherNd", IN(3), indices));
    SET(1, DIV(DY(0), by));
    set_dense(g, indices, MUL(DY(0), DIV(NEG(CONJ(IN(1))), SQUARE(by))));
}

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("SparseReorder", sparse_reorder_grad),
    GRADIENT("SparseToDense", sparse_to_dense_grad),
    GRADIENT("SparseTensorDenseAdd", sparse_tensor_dense_add_grad),
    GRADIENT("SparseTensorDenseMatMul", sparse_tensor_dense_mat_mul_grad),
    GRADIENT("SparseFillEmptyRows", sparse_fill_empty_rows_grad),
    GRADIENT("SparseAdd", sparse_add_grad),
    GRADIENT("SparseSlice", sparse_slice_grad),
    NO_GRADIENT("SparseReshape"),
    NO_GRADIENT("SparseConcat"),
    UNDEFINED_GRADIENT("SparseSplit"),
    UNDEFINED_GRADIENT("SparseSliceGrad"),
    UNDEFINED_GRADIENT("SparseFillEmptyRowsGrad"),
    UNDEFINED_GRADIENT("SparseDenseCwiseAdd"),
    GRADIENT("SparseDenseCwiseMul", sparse_dense_cwise_mul_grad),
    GRADIENT("SparseDenseCwiseDiv", sparse_dense_cwise_div_grad),
    NO_GRADIENT("SparseAddGrad"),
    UNDEFINED_GRADIENT("SparseSparseMaximum"),
    UNDEFINED_GRADIENT("SparseSparseMinimum"),
    GRADIENT("SparseReduceSum", sparse_reduce_sum_grad),
    UNDEFINED_GRADIENT("SparseReduceSumSparse"),
    UNDEFINED_GRADIENT("SparseReduceMax"),
    UNDEFINED_GRADIENT("SparseReduceMaxSparse"),
    GRADIENT("SparseSoftmax", sparse_softmax_grad),
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
    UNDEFINED_GRADIENT("SparseSegmentSumGradV2"),
    UNDEFINED_GRADIENT("SparseSegmentMeanGradV2"),
    UNDEFINED_GRADIENT("SparseSegmentSqrtNGradV2"),
};
// clang-format on

const struct gradient_list sparse_gradients = {rows, ARRAY_LEN(rows)};
