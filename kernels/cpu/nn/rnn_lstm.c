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

#include <stdlib.h>

#include "kernels/cpu/nn/rnn_internal.h"
#include "kernels/support/vmath.h"
#include "kernels/support/scratch.h"

struct status *lstm_init(struct kernel_init *init) {
    struct lstm_state *state = xcalloc(1, sizeof(*state));
    const struct node *node = init->node;
    init->state = state;
    state->dtype = (enum dtype)node->out_types[0];
    state->order = *(const struct lstm_order *)init->arg;
    if (node_attr(node, "forget_bias"))
        TRY(node_get_f(node, "forget_bias", &state->forget_bias));
    if (node_attr(node, "cell_clip"))
        TRY(node_get_f(node, "cell_clip", &state->cell_clip));
    return node_get_b(node, "use_peephole", &state->uses_peephole);
}

/* ---- shapes ---- */

static struct status *require_matrix(const struct tensor *t, const char *what, int64_t rows,
                                     int64_t columns) {
    if (t->rank != 2)
        return status_invalid("%s must be rank 2 but is rank %d", what, t->rank);
    for (int i = 0; i < 2; i++) {
        int64_t wanted = i == 0 ? rows : columns;
        if (tensor_dim(t, i) != wanted)
            return status_invalid("%s.dim_size(%d) is %lld, but should be %lld", what, i,
                                  (long long)tensor_dim(t, i), (long long)wanted);
    }
    return NULL;
}

static struct status *require_vector(const struct tensor *t, const char *what, int64_t n) {
    if (t->rank != 1 || t->n_elements != n)
        return status_invalid("%s.dim_size(0) != %lld: it has rank %d and %lld elements", what,
                              (long long)n, t->rank, (long long)t->n_elements);
    return NULL;
}

struct status *lstm_check_inputs(const struct tensor *t, bool is_block, struct lstm_sizes *ret) {
    const struct tensor *x = &t[0], *cs_prev = &t[1];
    int64_t width;
    if (x->rank != (is_block ? 3 : 2))
        return status_invalid("x must be rank %d but is rank %d", is_block ? 3 : 2, x->rank);
    if (cs_prev->rank != 2)
        return status_invalid("cs_prev must be rank 2 but is rank %d", cs_prev->rank);
    *ret = (struct lstm_sizes){.n_steps = is_block ? tensor_dim(x, 0) : 1,
                               .batch = tensor_dim(x, is_block ? 1 : 0),
                               .n_inputs = tensor_dim(x, is_block ? 2 : 1),
                               .n_cells = tensor_dim(cs_prev, 1)};
    TRY(require_matrix(cs_prev, "cs_prev", ret->batch, ret->n_cells));
    TRY(require_matrix(&t[2], "h_prev", ret->batch, ret->n_cells));
    if (mul_overflows_i64(ret->n_cells, 4, &width))
        return status_invalid("cell_size %lld is too large", (long long)ret->n_cells);
    TRY(require_matrix(&t[3], "w", ret->n_inputs + ret->n_cells, width));
    for (int i = 4; i < 7; i++) /* also those that are not used */
        TRY(require_vector(&t[i], i == 4 ? "wci" : i == 5 ? "wcf" : "wco", ret->n_cells));
    return require_vector(&t[7], "b", width);
}

struct status *lstm_check_length(const struct tensor *t, int64_t n_steps, int64_t *ret) {
    if (t->rank != 0)
        return status_invalid("seq_len_max must be a scalar, but has rank %d", t->rank);
    *ret = tensor_index_at(t, 0);
    if (*ret < 0 || *ret > n_steps)
        return status_invalid("seq_len_max %lld is not in [0, %lld]", (long long)*ret,
                              (long long)n_steps);
    return NULL;
}

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
                      struct lstm_sizes sizes, int64_t length, const float *const *in,
                      float *const *out, float *z) {
    int64_t step = sizes.batch * sizes.n_cells, width = 4 * sizes.n_cells;
    const float *cs_prev = in[1], *h_prev = in[2];
    for (int64_t t = 0; t < length; t++) {
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
                          struct lstm_sizes sizes, int64_t length, int first_input) {
    struct rnn_operands operands;
    struct tensor scratch = TENSOR_INIT;
    int64_t width = 4 * sizes.n_cells, rows = length * sizes.batch;
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
    run_steps(ctx, state, sizes, length, in, operands.out, z);
    int64_t step = sizes.batch * sizes.n_cells;
    for (int i = 0; i < 7; i++)
        memset(operands.out[i] + length * step, 0,
               (size_t)((sizes.n_steps - length) * step) * sizeof(float));
out:
    tensor_clear(&scratch);
    rnn_close(ctx, &operands, st == NULL);
    return st;
}

static enum kernel_result compute(struct kernel_ctx *ctx, bool is_block) {
    const struct lstm_state *state = ctx->instance->state;
    struct lstm_sizes sizes;
    int64_t length = 1;
    KERNEL_TRY(ctx, lstm_check_inputs(ctx->inputs + is_block, is_block, &sizes));
    if (is_block)
        KERNEL_TRY(ctx, lstm_check_length(&ctx->inputs[0], sizes.n_steps, &length));
    int64_t dims[3] = {sizes.n_steps, sizes.batch, sizes.n_cells};
    for (int i = 0; i < 7; i++)
        KERNEL_TRY(ctx, kernel_alloc(ctx, i, state->dtype,
                                     (struct shape){is_block ? 3 : 2, dims + !is_block}));
    if (ctx->outputs[0].n_elements != 0)
        KERNEL_TRY(ctx, run(ctx, state, sizes, length, is_block));
    return KERNEL_DONE;
}

enum kernel_result lstm_cell_compute(struct kernel_ctx *ctx) { return compute(ctx, false); }
enum kernel_result lstm_block_compute(struct kernel_ctx *ctx) { return compute(ctx, true); }
