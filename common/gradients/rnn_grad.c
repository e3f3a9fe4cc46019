/* Derivatives of the recurrent family. */
#include "common/gradients/gradient.h"

// clang-format off
static const struct gradient_row rows[] = {
    NO_GRADIENT("LSTMBlockCell"),     /* TensorFlow has none either: its layers differentiate through BlockLSTM or by hand */
    NO_GRADIENT("LSTMBlockCellGrad"),
    LATER_GRADIENT("BlockLSTM"),
    LATER_GRADIENT("BlockLSTMV2"),
    NO_GRADIENT("BlockLSTMGrad"),
    NO_GRADIENT("BlockLSTMGradV2"),
    NO_GRADIENT("GRUBlockCell"),      /* as LSTMBlockCell */
    NO_GRADIENT("GRUBlockCellGrad"),
};
// clang-format on

const struct gradient_list rnn_gradients = {rows, ARRAY_LEN(rows)};
