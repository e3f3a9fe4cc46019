/* Differentiates connectionist temporal classification. CTCLoss itself outputs its gradient. */
#include "common/gradients/build.h"

/* The second output of the op is the gradient, by time, batch and class. */
static void ctc_loss_grad(struct gradient_ctx *g) { SET(0, MUL(EXPAND(DY(0), -1), OUT(1))); }

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("CTCLoss", ctc_loss_grad),
    NO_GRADIENT("CTCGreedyDecoder"),
    NO_GRADIENT("CTCBeamSearchDecoder"),
};
// clang-format on

const struct gradient_list ctc_gradients = {rows, ARRAY_LEN(rows)};
