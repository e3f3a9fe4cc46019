/* Lists the CPU kernels of recurrent cells. */
#include "kernels/cpu/nn/rnn_internal.h"

#define LSTM_TYPES (DTYPE_BIT(DT_HALF) | DTYPE_BIT(DT_FLOAT))
#define GRU_TYPES DTYPE_BIT(DT_FLOAT)

// clang-format off
#define LSTM(op, function, order) {op, {{"T", LSTM_TYPES}}, function, lstm_init, .arg = &(order)}

static const struct kernel_def rows[] = {
    LSTM("LSTMBlockCell",     lstm_cell_compute,       lstm_icfo),
    LSTM("LSTMBlockCellGrad", lstm_cell_grad_compute,  lstm_icfo),
    LSTM("BlockLSTM",         lstm_block_compute,      lstm_icfo),
    LSTM("BlockLSTMV2",       lstm_block_compute,      lstm_ifco),
    LSTM("BlockLSTMGrad",     lstm_block_grad_compute, lstm_icfo),
    LSTM("BlockLSTMGradV2",   lstm_block_grad_compute, lstm_ifco),
    {"GRUBlockCell",     {{"T", GRU_TYPES}}, gru_cell_compute},
    {"GRUBlockCellGrad", {{"T", GRU_TYPES}}, gru_cell_grad_compute},
};
// clang-format on

const struct kernel_list rnn_kernels = {rows, ARRAY_LEN(rows)};
