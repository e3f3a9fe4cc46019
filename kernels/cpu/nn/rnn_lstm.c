/* Runs LSTMBlockCell, BlockLSTM and BlockLSTMV2: one step, or a sequence, of an LSTM with optional
 * peepholes [Graves 2013, arXiv 1308.0850].
 *
 *   x        T [batch, inputs], or [steps, batch, inputs]
 *   cs_prev, h_prev   T [batch, cells]
 *   w, b     T [inputs + cells, 4 · cells], [4 · cells]: gates in the order i, ci, f, o; V2: i, f,
 *            ci, o
 *   wci, wcf, wco     T [cells], read with use_peephole only
 *   i, cs, f, o, ci, co, h   T [batch, cells], or [steps, batch, cells]; zeros from seq_len_max on
 *
 *   i = σ(zi + cs_prev · wci)   f = σ(zf + forget_bias + cs_prev · wcf)   ci = tanh zc
 *   cs = clip(i · ci + f · cs_prev)   o = σ(zo + cs · wco)   co = tanh cs   h = o · co
 *
 * The products of x with the weights are one matrix product for all steps.
 * Errors   INVALID_ARGUMENT   ranks and sizes that do not fit */
#ifndef __clang__
#pragma GCC optimize("no-trapping-math")
#endif

#include "kernels/cpu/nn/rnn_internal.h"
#include "kernels/support/vmath.h"
#include "kernels/support/scratch.h"

/* ---- one step ---- */

struct lstm_step {
    const struct lstm_state *state;
    int64_t n_cells;
    const float *z, *cs_prev, *wci, *wcf, *wco, *b;
    float *i, *cs, *f, *o, *ci, *co, *h; /* [batch, cells] */
};

VECTOR_CLONES
static void gate_rows(const struct lstm_step *s, int64_t begin, int64_t end) {
    const int64_t n = s->n_cells;
    const struct lstm_order order = s->state->order;
    const float forget_bias = s->state->forget_bias,
                limit = s->state->cell_clip > 0 ? s->state->cell_clip : INFINITY;
    const float peep = s->state->uses_peephole ? 1 : 0;
    const float *wci = peep != 0 ? s->wci : s->b, *wcf = peep != 0 ? s->wcf : s->b,
                *wco = peep != 0 ? s->wco : s->b;
    const float *bi = s->b + order.i * n, *bc = s->b + order.ci * n, *bf = s->b + order.f * n,
                *bo = s->b + order.o * n;
    for (int64_t row = begin; row < end; row++) {
        const float *z = s->z + row * 4 * n, *cs_prev = s->cs_prev + row * n;
        const float *zi = z + order.i * n, *zc = z + order.ci * n, *zf = z + order.f * n,
                    *zo = z + order.o * n;
        float *i = s->i + row * n, *cs = s->cs + row * n, *f = s->f + row * n, *o = s->o + row * n;
        float *ci = s->ci + row * n, *co = s->co + row * n, *h = s->h + row * n;
        _Pragma("GCC ivdep") for (int64_t c = 0; c < n; c++) {
            float before = cs_prev[c];
            float in_gate = vsigmoid_f32(zi[c] + bi[c] + (peep != 0 ? before * wci[c] : 0));
            float forget =
                vsigmoid_f32(zf[c] + bf[c] + forget_bias + (peep != 0 ? before * wcf[c] : 0));
            float input = vtanh_f32(zc[c] + bc[c]);
            float cell = input * in_gate + before * forget;
            cell = cell > limit ? limit : cell < -limit ? -limit : cell;
            float out_gate = vsigmoid_f32(zo[c] + bo[c] + (peep != 0 ? cell * wco[c] : 0));
            float squashed = vtanh_f32(cell);
            i[c] = in_gate, cs[c] = cell, f[c] = forget, o[c] = out_gate, ci[c] = input,
            co[c] = squashed, h[c] = out_gate * squashed;
        }
    }
}

static void gate_range(void *arg, int64_t begin, int64_t end) { gate_rows(arg, begin, end); }

/* Runs steps [0, length). z already holds the products with x. */
static void run_steps(const struct kernel_ctx *ctx, const struct lstm_state *state,
                      struct lstm_sizes sizes, const float *const *in, float *const *out,
                      float *z) {
    int64_t step = sizes.batch * sizes.n_cells, width = 4 * sizes.n_cells;
    const float *cs_prev = in[1], *h_prev = in[2];
    for (int64_t t = 0; t < sizes.length; t++) {
        struct lstm_step s = {state,
                              sizes.n_cells,
                              z + t * sizes.batch * width,
                              cs_prev,
                              in[4],
                              in[5],
                              in[6],
                              in[7],
                              out[0] + t * step,
                              out[1] + t * step,
                              out[2] + t * step,
                              out[3] + t * step,
                              out[4] + t * step,
                              out[5] + t * step,
                              out[6] + t * step};
        rnn_multiply(ctx, &(struct rnn_product){.m = sizes.batch,
                                                .n = width,
                                                .k = sizes.n_cells,
                                                .a = h_prev,
                                                .lda = sizes.n_cells,
                                                .b = in[3] + sizes.n_inputs * width,
                                                .ldb = width,
                                                .c = z + t * sizes.batch * width,
                                                .ldc = width,
                                                .adds = true});
        pool_parallel_for(ctx->pool, sizes.batch, (double)sizes.n_cells * 4, gate_range, &s);
        cs_prev = s.cs;
        h_prev = s.h;
    }
}

static struct status *run(struct kernel_ctx *ctx, const struct lstm_state *state,
                          struct lstm_sizes sizes, int first_input) {
    struct rnn_operands operands;
    struct tensor scratch = TENSOR_INIT;
    int64_t width = 4 * sizes.n_cells, rows = sizes.length * sizes.batch;
    float *z;
    struct status *st = NULL;
    TRY_OUT(rnn_open(ctx, &operands));
    TRY_OUT(scratch_new(ctx, DT_FLOAT, rows, width, &scratch, &z));
    const float *const *in = (const float *const *)(operands.in + first_input);
    memset(z, 0, (size_t)(rows * width) * sizeof(*z));
    rnn_multiply(ctx, &(struct rnn_product){.m = rows,
                                            .n = width,
                                            .k = sizes.n_inputs,
                                            .a = in[0],
                                            .lda = sizes.n_inputs,
                                            .b = in[3],
                                            .ldb = width,
                                            .c = z,
                                            .ldc = width});
    run_steps(ctx, state, sizes, in, operands.out, z);
    int64_t step = sizes.batch * sizes.n_cells;
    for (int i = 0; i < 7; i++)
        memset(operands.out[i] + sizes.length * step, 0,
               (size_t)((sizes.n_steps - sizes.length) * step) * sizeof(float));
out:
    tensor_clear(&scratch);
    rnn_close(ctx, &operands, st == NULL);
    return st;
}

static enum kernel_result compute(struct kernel_ctx *ctx, bool is_block) {
    struct lstm_sizes sizes;
    KERNEL_TRY(ctx, lstm_begin(ctx, is_block, &sizes));
    if (ctx->outputs[0].n_elements != 0)
        KERNEL_TRY(ctx, run(ctx, ctx->instance->state, sizes, is_block));
    return KERNEL_DONE;
}

enum kernel_result lstm_cell_compute(struct kernel_ctx *ctx) { return compute(ctx, false); }
enum kernel_result lstm_block_compute(struct kernel_ctx *ctx) { return compute(ctx, true); }
