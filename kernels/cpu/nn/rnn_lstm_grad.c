/* Runs LSTMBlockCellGrad, BlockLSTMGrad and BlockLSTMGradV2.
 *
 * The cell's: x … b and the seven values of the step (without h), cs_grad, h_grad →
 *     cs_prev_grad, dicfo [batch, 4 · cells] (the gradient before the gates), wci_grad,
 *     wcf_grad, wco_grad
 * The sequence's: seq_len_max, x … b, all seven values, cs_grad, h_grad
 *     → x_grad, cs_prev_grad, h_prev_grad, w_grad, wci_grad, wcf_grad, wco_grad, b_grad
 *
 * A clipped cell passes its gradient on, as in TensorFlow. Steps run backwards and keep dicfo. The
 * gradients of x and w are one matrix product each for all steps.
 * Errors   INVALID_ARGUMENT   ranks and sizes that do not fit */
#ifndef __clang__
#pragma GCC optimize("no-trapping-math")
#endif

#include "kernels/cpu/nn/rnn_internal.h"
#include "kernels/support/scratch.h"

struct grad_step {
    const struct lstm_state *state;
    int64_t n_cells;
    const float *cs_prev, *wci, *wcf, *wco;
    const float *i, *cs, *f, *o, *ci, *co, *cs_grad, *h_grad;
    const float *cs_later, *h_later; /* the gradients from the next step; NULL at the last one */
    float *cs_prev_grad, *dicfo;
};

/* cs_prev_grad may be cs_later, because each element is read before it is written. */
VECTOR_CLONES
static void grad_rows(const struct grad_step *s, int64_t begin, int64_t end) {
    const int64_t n = s->n_cells;
    const struct lstm_order order = s->state->order;
    const bool peep = s->state->uses_peephole;
    for (int64_t at = begin * n; at < end * n; at++) {
        int64_t row = at / n, c = at % n;
        float *d = s->dicfo + row * 4 * n + c;
        float i = s->i[at], f = s->f[at], o = s->o[at], ci = s->ci[at], co = s->co[at],
              before = s->cs_prev[at];
        float dh = s->h_grad[at] + (s->h_later ? s->h_later[at] : 0),
              dcs_in = s->cs_grad[at] + (s->cs_later ? s->cs_later[at] : 0);
        float d_o = o * (1 - o) * co * dh;
        float dcs = (1 - co * co) * dh * o + dcs_in + (peep ? d_o * s->wco[c] : 0);
        float df = f * (1 - f) * dcs * before, di = i * (1 - i) * dcs * ci;
        d[order.i * n] = di;
        d[order.ci * n] = (1 - ci * ci) * dcs * i;
        d[order.f * n] = df;
        d[order.o * n] = d_o;
        s->cs_prev_grad[at] = dcs * f + (peep ? di * s->wci[c] + df * s->wcf[c] : 0);
    }
}

static void grad_range(void *arg, int64_t begin, int64_t end) { grad_rows(arg, begin, end); }

/* wci_grad += Σ di · cs_prev, wcf_grad += Σ df · cs_prev, wco_grad += Σ do · cs over the batch */
static void add_peephole_grads(const struct grad_step *s, int64_t batch, float *wci, float *wcf,
                               float *wco) {
    int64_t n = s->n_cells;
    const struct lstm_order order = s->state->order;
    for (int64_t row = 0; row < batch; row++) {
        const float *d = s->dicfo + row * 4 * n;
        for (int64_t c = 0; c < n; c++) {
            wci[c] += d[order.i * n + c] * s->cs_prev[row * n + c];
            wcf[c] += d[order.f * n + c] * s->cs_prev[row * n + c];
            wco[c] += d[order.o * n + c] * s->cs[row * n + c];
        }
    }
}

/* ---- the cell ---- */

static struct status *run_cell(struct kernel_ctx *ctx, const struct lstm_state *state,
                               struct lstm_sizes sizes) {
    struct rnn_operands p;
    struct status *st = NULL;
    TRY_OUT(rnn_open(ctx, &p));
    const float *const *in = (const float *const *)p.in;
    struct grad_step s = {.state = state,
                          .n_cells = sizes.n_cells,
                          .cs_prev = in[1],
                          .wci = in[4],
                          .wcf = in[5],
                          .wco = in[6]};
    s.i = in[8], s.cs = in[9], s.f = in[10], s.o = in[11], s.ci = in[12], s.co = in[13],
    s.cs_grad = in[14], s.h_grad = in[15];
    s.cs_prev_grad = p.out[0], s.dicfo = p.out[1];
    pool_parallel_for(ctx->pool, sizes.batch, (double)sizes.n_cells * 3, grad_range, &s);
    for (int i = 2; i < 5; i++)
        memset(p.out[i], 0, (size_t)sizes.n_cells * sizeof(float));
    if (state->uses_peephole)
        add_peephole_grads(&s, sizes.batch, p.out[2], p.out[3], p.out[4]);
out:
    rnn_close(ctx, &p, st == NULL);
    return st;
}

enum kernel_result lstm_cell_grad_compute(struct kernel_ctx *ctx) {
    struct lstm_sizes sizes;
    KERNEL_TRY(ctx, lstm_begin_grad(ctx, false, &sizes));
    KERNEL_TRY(ctx, run_cell(ctx, ctx->instance->state, sizes));
    return KERNEL_DONE;
}

/* ---- the sequence ---- */

/* Runs backwards through the steps. The results are dicfo of all steps, and cs_prev_grad and
 * h_prev_grad of the first step. */
static void run_backwards(const struct kernel_ctx *ctx, const struct lstm_state *state,
                          struct lstm_sizes sizes, const float *const *in, float *const *out,
                          float *dicfo) {
    int64_t step = sizes.batch * sizes.n_cells, width = 4 * sizes.n_cells;
    for (int64_t t = sizes.length - 1; t >= 0; t--) {
        bool is_last = t == sizes.length - 1;
        struct grad_step s = {
            .state = state, .n_cells = sizes.n_cells, .wci = in[5], .wcf = in[6], .wco = in[7]};
        s.cs_prev = t == 0 ? in[2] : in[10] + (t - 1) * step;
        s.i = in[9] + t * step, s.cs = in[10] + t * step, s.f = in[11] + t * step,
        s.o = in[12] + t * step, s.ci = in[13] + t * step;
        s.co = in[14] + t * step, s.cs_grad = in[16] + t * step, s.h_grad = in[17] + t * step;
        s.cs_later = is_last ? NULL : out[LSTM_CS_PREV_GRAD];
        s.h_later = is_last ? NULL : out[LSTM_H_PREV_GRAD];
        s.cs_prev_grad = out[LSTM_CS_PREV_GRAD];
        s.dicfo = dicfo + t * sizes.batch * width;
        pool_parallel_for(ctx->pool, sizes.batch, (double)sizes.n_cells * 3, grad_range, &s);
        if (state->uses_peephole)
            add_peephole_grads(&s, sizes.batch, out[LSTM_WCI_GRAD], out[LSTM_WCF_GRAD],
                               out[LSTM_WCO_GRAD]);
        rnn_multiply(ctx, &(struct rnn_product){.m = sizes.batch,
                                                .n = sizes.n_cells,
                                                .k = width,
                                                .a = s.dicfo,
                                                .lda = width,
                                                .b = in[4] + sizes.n_inputs * width,
                                                .ldb = width,
                                                .trans_b = true,
                                                .c = out[LSTM_H_PREV_GRAD],
                                                .ldc = sizes.n_cells});
    }
}

/* Computes the gradients of x, w and b from dicfo of all steps. */
static void finish(const struct kernel_ctx *ctx, struct lstm_sizes sizes, const float *const *in,
                   float *const *out, const float *dicfo) {
    int64_t width = 4 * sizes.n_cells, rows = sizes.length * sizes.batch;
    struct rnn_product x_grad = {.m = rows,
                                 .n = sizes.n_inputs,
                                 .k = width,
                                 .a = dicfo,
                                 .lda = width,
                                 .b = in[4],
                                 .ldb = width,
                                 .trans_b = true};
    x_grad.c = out[LSTM_X_GRAD], x_grad.ldc = sizes.n_inputs;
    rnn_multiply(ctx, &x_grad);
    struct rnn_product w_grad = {.m = sizes.n_inputs,
                                 .n = width,
                                 .k = rows,
                                 .a = in[1],
                                 .lda = sizes.n_inputs,
                                 .trans_a = true,
                                 .adds = true};
    w_grad.b = dicfo, w_grad.ldb = width, w_grad.c = out[LSTM_W_GRAD], w_grad.ldc = width;
    rnn_multiply(ctx, &w_grad);
    /* the rows of h: the one before the sequence, then those of all steps but the last */
    w_grad.m = sizes.n_cells;
    w_grad.lda = sizes.n_cells;
    w_grad.c += sizes.n_inputs * width;
    w_grad.a = in[3];
    w_grad.k = sizes.batch;
    rnn_multiply(ctx, &w_grad);
    w_grad.a = in[15];
    w_grad.k = rows - sizes.batch;
    w_grad.b = dicfo + sizes.batch * width;
    if (sizes.length > 1)
        rnn_multiply(ctx, &w_grad);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < width; c++)
            out[LSTM_B_GRAD][c] += dicfo[r * width + c];
}

static struct status *run_block(struct kernel_ctx *ctx, const struct lstm_state *state,
                                struct lstm_sizes sizes) {
    struct rnn_operands p;
    struct tensor scratch = TENSOR_INIT;
    float *dicfo;
    struct status *st = NULL;
    TRY_OUT(rnn_open(ctx, &p));
    TRY_OUT(scratch_new(ctx, DT_FLOAT, sizes.length * sizes.batch, 4 * sizes.n_cells, &scratch,
                        &dicfo));
    const float *const *in = (const float *const *)p.in;
    for (int i = 0; i < 8; i++)
        memset(p.out[i], 0, (size_t)ctx->outputs[i].n_elements * sizeof(float));
    run_backwards(ctx, state, sizes, in, p.out, dicfo);
    if (sizes.length > 0 && sizes.batch > 0)
        finish(ctx, sizes, in, p.out, dicfo);
out:
    tensor_clear(&scratch);
    rnn_close(ctx, &p, st == NULL);
    return st;
}

enum kernel_result lstm_block_grad_compute(struct kernel_ctx *ctx) {
    struct lstm_sizes sizes;
    KERNEL_TRY(ctx, lstm_begin_grad(ctx, true, &sizes));
    KERNEL_TRY(ctx, run_block(ctx, ctx->instance->state, sizes));
    return KERNEL_DONE;
}
