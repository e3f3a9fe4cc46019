/* Derivatives of connectionist temporal classification: CTCLoss gives its own as an output. */
#include "common/gradients/gradient.h"

// clang-format off
static const struct gradient_row rows[] = {
    LATER_GRADIENT("CTCLoss"),
    NO_GRADIENT("CTCGreedyDecoder"),
    NO_GRADIENT("CTCBeamSearchDecoder"),
};
// clang-format on

const struct gradient_list ctc_gradients = {rows, ARRAY_LEN(rows)};
