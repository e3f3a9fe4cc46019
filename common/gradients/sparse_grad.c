/* Derivatives of ops on sparse tensors: for their values; indices and shapes have none. */
#include "common/gradients/gradient.h"

extern const struct gradient_list sparse_gradients;

// clang-format off
static const struct gradient_row rows[] = {
    LATER_GRADIENT("SparseReorder"),
    NO_GRADIENT("SparseReshape"),
    LATER_GRADIENT("SparseConcat"),
    LATER_GRADIENT("SparseSplit"),
    LATER_GRADIENT("SparseSlice"),
    NO_GRADIENT("SparseSliceGrad"),
    LATER_GRADIENT("SparseFillEmptyRows"),
    NO_GRADIENT("SparseFillEmptyRowsGrad"),
    LATER_GRADIENT("SparseToDense"),
    LATER_GRADIENT("SparseTensorDenseAdd"),
    LATER_GRADIENT("SparseDenseCwiseAdd"),
    LATER_GRADIENT("SparseDenseCwiseMul"),
    LATER_GRADIENT("SparseDenseCwiseDiv"),
    LATER_GRADIENT("SparseTensorDenseMatMul"),
    LATER_GRADIENT("SparseMatMul"),
    LATER_GRADIENT("SparseAdd"),
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
