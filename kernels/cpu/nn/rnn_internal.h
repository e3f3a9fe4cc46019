/* What the files of the recurrent cells share. rnn_kernels.c lists the rows. Everything is computed
 * in float; half is widened first. */
#ifndef MILLRACE_KERNELS_CPU_NN_RNN_INTERNAL_H
#define MILLRACE_KERNELS_CPU_NN_RNN_INTERNAL_H

#include "kernels/cpu/nn/rnn.h"

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
kernel_fn lstm_cell_compute, lstm_block_compute;
/* rnn_lstm_grad.c */
kernel_fn lstm_cell_grad_compute, lstm_block_grad_compute;
/* rnn_gru.c */
kernel_fn gru_cell_compute, gru_cell_grad_compute;

#endif
