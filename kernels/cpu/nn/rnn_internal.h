/* What the files of the recurrent cells share. rnn_kernels.c lists the rows. Everything is computed
 * in float; half is widened first. */
#ifndef MILLRACE_KERNELS_CPU_NN_RNN_INTERNAL_H
#define MILLRACE_KERNELS_CPU_NN_RNN_INTERNAL_H

#include "kernels/kernel.h"

enum { RNN_MAX_OPERANDS = 18 };

/* A kernel's inputs and outputs as floats. */
struct rnn_operands {
    const void *in[RNN_MAX_OPERANDS];
    float *out[RNN_MAX_OPERANDS];
    struct tensor scratch_in[RNN_MAX_OPERANDS], scratch_out[RNN_MAX_OPERANDS];
};
/* rnn_open widens the inputs; the outputs must be allocated. rnn_close rounds the outputs and frees
 * the scratch memory; call it also when rnn_open failed. */
struct status *rnn_open(const struct kernel_ctx *ctx, struct rnn_operands *operands) MUST_USE;
void rnn_close(struct kernel_ctx *ctx, struct rnn_operands *operands, bool stores);

/* c[m,n] = op(a) · op(b), or added to c; split over the pool. Leading dimensions are those of
 * struct matmul. */
struct rnn_product {
    int64_t m, n, k;
    const float *a, *b;
    float *c;
    int64_t lda, ldb, ldc;
    bool trans_a, trans_b, adds;
};
void rnn_multiply(const struct kernel_ctx *ctx, const struct rnn_product *product);

/* rnn_lstm.c */
struct status *lstm_init(struct kernel_init *init);
kernel_fn lstm_cell_compute, lstm_block_compute;
/* rnn_lstm_grad.c */
kernel_fn lstm_cell_grad_compute, lstm_block_grad_compute;
/* rnn_gru.c */
kernel_fn gru_cell_compute, gru_cell_grad_compute;

/* ---- what the LSTM files share ---- */

/* Where the columns of each gate begin in the weights, in blocks of n_cells columns. */
struct lstm_order {
    int i, ci, f, o;
};
struct lstm_state {
    float forget_bias, cell_clip;
    bool uses_peephole;
    struct lstm_order order;
    enum dtype dtype;
};
struct lstm_sizes {
    int64_t n_steps, batch, n_inputs, n_cells;
};
/* Checks the inputs from x on: x, cs_prev, h_prev, w, wci, wcf, wco, b. n_steps is 1 when x is a
 * matrix. Errors: INVALID_ARGUMENT. */
struct status *lstm_check_inputs(const struct tensor *t, bool is_block,
                                 struct lstm_sizes *ret) MUST_USE;
/* Reads seq_len_max. Errors: INVALID_ARGUMENT when it is not in [0, n_steps]. */
struct status *lstm_check_length(const struct tensor *t, int64_t n_steps, int64_t *ret) MUST_USE;

#endif
