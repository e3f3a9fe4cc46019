/* What the files of the recurrent family share: rnn_kernels.c lists the rows. All of it computes
 * in float; half is widened first. */
#ifndef MILLRACE_KERNELS_CPU_NN_RNN_INTERNAL_H
#define MILLRACE_KERNELS_CPU_NN_RNN_INTERNAL_H

#include "kernels/kernel.h"

enum { RNN_MAX_OPERANDS = 18 };

/* The inputs and outputs of a kernel as floats. */
struct rnn_operands {
    const void *in[RNN_MAX_OPERANDS];
    float *out[RNN_MAX_OPERANDS];
    struct tensor scratch_in[RNN_MAX_OPERANDS], scratch_out[RNN_MAX_OPERANDS];
};
/* Outputs must be allocated. rnn_close rounds the outputs and frees the scratch; after a failure
 * of rnn_open, too. */
struct status *rnn_open(const struct kernel_ctx *ctx, struct rnn_operands *operands) MUST_USE;
void rnn_close(struct kernel_ctx *ctx, struct rnn_operands *operands, bool stores);

/* c[m,n] = op(a) · op(b), or added to it, split over the pool. Leading dimensions as in struct
 * gemm. */
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

/* Where each gate's block of columns stands in the weights, in blocks of n_cells. */
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
/* The inputs from x on: x, cs_prev, h_prev, w, wci, wcf, wco, b; n_steps of 1 where x is a
 * matrix. Errors: INVALID_ARGUMENT. */
struct status *lstm_check_inputs(const struct lstm_state *state, const struct tensor *t,
                                 bool is_block, struct lstm_sizes *ret) MUST_USE;
/* seq_len_max. Errors: INVALID_ARGUMENT beyond [0, n_steps]. */
struct status *lstm_check_length(const struct tensor *t, int64_t n_steps, int64_t *ret) MUST_USE;

#endif
