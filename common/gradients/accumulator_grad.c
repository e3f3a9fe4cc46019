/* Derivatives of the accumulator family: none. They collect gradients. */
#include "common/gradients/gradient.h"

extern const struct gradient_list accumulator_gradients;

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("ConditionalAccumulator"),
    NO_GRADIENT("ResourceConditionalAccumulator"),
    NO_GRADIENT("SparseConditionalAccumulator"),
    NO_GRADIENT("AccumulatorApplyGradient"),
    NO_GRADIENT("ResourceAccumulatorApplyGradient"),
    NO_GRADIENT("AccumulatorTakeGradient"),
    NO_GRADIENT("ResourceAccumulatorTakeGradient"),
    NO_GRADIENT("AccumulatorNumAccumulated"),
    NO_GRADIENT("ResourceAccumulatorNumAccumulated"),
    NO_GRADIENT("AccumulatorSetGlobalStep"),
    NO_GRADIENT("ResourceAccumulatorSetGlobalStep"),
    NO_GRADIENT("SparseAccumulatorApplyGradient"),
    NO_GRADIENT("SparseAccumulatorTakeGradient"),
};
// clang-format on

const struct gradient_list accumulator_gradients = {rows, ARRAY_LEN(rows)};
