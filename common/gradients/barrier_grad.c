/* Derivatives of the barrier family: none. Barriers carry tensors between steps. */
#include "common/gradients/gradient.h"

extern const struct gradient_list barrier_gradients;

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("Barrier"),
    NO_GRADIENT("BarrierInsertMany"),
    NO_GRADIENT("BarrierTakeMany"),
    NO_GRADIENT("BarrierClose"),
    NO_GRADIENT("BarrierReadySize"),
    NO_GRADIENT("BarrierIncompleteSize"),
};
// clang-format on

const struct gradient_list barrier_gradients = {rows, ARRAY_LEN(rows)};
