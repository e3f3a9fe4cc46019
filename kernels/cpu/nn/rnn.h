/* What the kernels of recurrent cells check and allocate before they touch an element. The kernels
 * of GPUs use it too. All errors are INVALID_ARGUMENT for ranks and sizes that do not fit, or those
 * of kernel_alloc. Any thread. */
#ifndef MILLRACE_KERNELS_CPU_NN_RNN_H
#define MILLRACE_KERNELS_CPU_NN_RNN_H

#include "kernels/kernel.h"

/* ---- LSTM ---- */

/* Where the columns of each gate begin in the weights, in blocks of n_cells columns. */
struct lstm_order {
    int i, ci, f, o;
};
/* The arg of a row: the order of LSTMBlockCell and BlockLSTM, and that of BlockLSTMV2. */
extern const struct lstm_order lstm_icfo, lstm_ifco;

struct lstm_state { /* of the node */
    float forget_bias, cell_clip;
    bool uses_peephole;
    struct lstm_order order;
    enum dtype dtype;
};
struct lstm_sizes {
    int64_t n_steps, batch, n_inputs, n_cells; /* n_steps is 1 for a cell */
    int64_t length;                            /* seq_len_max, at most n_steps; 1 for a cell */
};

/* The outputs of the sequence's gradient: those of x … b, in their order. */
enum lstm_grad_output {
    LSTM_X_GRAD,
    LSTM_CS_PREV_GRAD,
    LSTM_H_PREV_GRAD,
    LSTM_W_GRAD,
    LSTM_WCI_GRAD,
    LSTM_WCF_GRAD,
    LSTM_WCO_GRAD,
    LSTM_B_GRAD,
    LSTM_N_GRADS,
};

struct status *lstm_init(struct kernel_init *init) MUST_USE;
/* Check the inputs and allocate the outputs. is_block: a sequence, whose input 0 is seq_len_max, in
 * host memory. */
struct status *lstm_begin(struct kernel_ctx *ctx, bool is_block, struct lstm_sizes *ret) MUST_USE;
struct status *lstm_begin_grad(struct kernel_ctx *ctx, bool is_block,
                               struct lstm_sizes *ret) MUST_USE;

/* ---- GRU ---- */

struct gru_sizes {
    int64_t batch, n_inputs, n_cells;
};

struct status *gru_begin(struct kernel_ctx *ctx, struct gru_sizes *ret) MUST_USE;
struct status *gru_begin_grad(struct kernel_ctx *ctx, struct gru_sizes *ret) MUST_USE;

#endif
