/* Differentiates ops on ragged tensors with respect to their values; splits have no gradient. */
#include "common/gradients/gradient.h"

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("RaggedRange"),
    LATER_GRADIENT("RaggedGather"),
    LATER_GRADIENT("RaggedTensorToVariant"),
    LATER_GRADIENT("RaggedTensorFromVariant"),
    NO_GRADIENT("RaggedTensorToVariantGradient"),
    LATER_GRADIENT("RaggedTensorToTensor"),
    LATER_GRADIENT("RaggedTensorToSparse"),
    NO_GRADIENT("RaggedCross"),
    NO_GRADIENT("DenseCountSparseOutput"),
    NO_GRADIENT("SparseCountSparseOutput"),
    NO_GRADIENT("RaggedCountSparseOutput"),
    NO_GRADIENT("SparseBincount"),
    NO_GRADIENT("RaggedBincount"),
    LATER_GRADIENT("RaggedFillEmptyRows"),
    NO_GRADIENT("RaggedFillEmptyRowsGrad"),
};
// clang-format on

const struct gradient_list ragged_gradients = {rows, ARRAY_LEN(rows)};
