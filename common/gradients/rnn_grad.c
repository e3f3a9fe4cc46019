/* Differentiates recurrent cells over many steps: ops of their own compute the gradients. */
#include "common/gradients/build.h"

/* (seq_len_max, x, cs_prev, h_prev, w, wci, wcf, wco, b) → (i, cs, f, o, ci, co, h) */
static void block_lstm(struct gradient_ctx *g, const char *op) {
    enum { N_INPUTS = 9, N_OUTPUTS = 7, CS = 1, H = 6 };
    struct node_input inputs[N_INPUTS + N_OUTPUTS + 2];
    for (int i = 0; i < N_INPUTS; i++)
        inputs[i] = IN(i);
    for (int i = 0; i < N_OUTPUTS; i++)
        inputs[N_INPUTS + i] = OUT(i);
    inputs[N_INPUTS + N_OUTPUTS] = DY(CS);
    inputs[N_INPUTS + N_OUTPUTS + 1] = DY(H);
    struct node_input made = gradient_op(g, op, true, NULL, (int)ARRAY_LEN(inputs), inputs);
    for (int i = 1; i < N_INPUTS; i++)
        SET(i, gradient_second(made, i - 1));
}

static void block_lstm_grad(struct gradient_ctx *g) { block_lstm(g, "BlockLSTMGrad"); }
static void block_lstm_v2_grad(struct gradient_ctx *g) { block_lstm(g, "BlockLSTMGradV2"); }

/* ---- rows ---- */

// clang-format off
static const struct gradient_row rows[] = {
    GRADIENT("BlockLSTM", block_lstm_grad),
    GRADIENT("BlockLSTMV2", block_lstm_v2_grad),
    /* TensorFlow has none either: its layers differentiate through BlockLSTM or by hand */
    UNDEFINED_GRADIENT("LSTMBlockCell"),
    UNDEFINED_GRADIENT("LSTMBlockCellGrad"),
    UNDEFINED_GRADIENT("BlockLSTMGrad"),
    UNDEFINED_GRADIENT("BlockLSTMGradV2"),
    UNDEFINED_GRADIENT("GRUBlockCell"),
    UNDEFINED_GRADIENT("GRUBlockCellGrad"),
};
// clang-format on

const struct gradient_list rnn_gradients = {rows, ARRAY_LEN(rows)};
