/* Runs GRUBlockCell and its gradient: one step of a gated recurrent unit [Cho et al. 2014, arXiv
 * 1406.1078].
 *
 *   x, h_prev    float [batch, inputs], [batch, cells]
 *   w_ru, b_ru   float [inputs + cells, 2 · cells], [2 · cells]: reset gate, then update gate
 *   w_c, b_c     float [inputs + cells, cells], [cells]
 *
 *   r, u = σ([x, h_prev] · w_ru + b_ru)
 *   c = tanh([x, h_prev · r] · w_c + b_c)
 *   h = u · h_prev + (1 - u) · c
 *
 * Errors   INVALID_ARGUMENT   ranks and sizes that do not fit */
#ifndef __clang__
#pragma GCC optimize("no-trapping-math")
#endif

#include "kernels/cpu/nn/rnn_internal.h"
#include "kernels/support/vmath.h"
#include "kernels/support/scratch.h"

/* c = x · w[:inputs] + h · w[inputs:], where w has `width` columns. */
static void project(const struct kernel_ctx *ctx, struct gru_sizes s, const float *x,
                    const float *h, const float *w, int64_t width, float *c) {
    struct rnn_product p = {.m = s.batch,
                            .n = width,
                            .k = s.n_inputs,
                            .a = x,
                            .lda = s.n_inputs,
                            .b = w,
                            .ldb = width,
                            .c = c,
                            .ldc = width};
    rnn_multiply(ctx, &p);
    p.k = p.lda = s.n_cells;
    p.a = h;
    p.b = w + s.n_inputs * width;
    p.adds = true;
    rnn_multiply(ctx, &p);
}

VECTOR_CLONES
static void gates(const float *z, const float *b, const float *h_prev, int64_t n, float *r,
                  float *u, float *reset) {
    _Pragma("GCC ivdep") for (int64_t c = 0; c < n; c++) {
        r[c] = vsigmoid_f32(z[c] + b[c]);
        u[c] = vsigmoid_f32(z[n + c] + b[n + c]);
        reset[c] = r[c] * h_prev[c];
    }
}

VECTOR_CLONES
static void outputs(const float *z, const float *b, const float *h_prev, const float *u, int64_t n,
                    float *c, float *h) {
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {
        c[i] = vtanh_f32(z[i] + b[i]);
        h[i] = u[i] * h_prev[i] + (1 - u[i]) * c[i];
    }
}

enum kernel_result gru_cell_compute(struct kernel_ctx *ctx) {
    const struct tensor *t = ctx->inputs;
    struct gru_sizes s;
    KERNEL_TRY(ctx, gru_begin(ctx, &s));
    float *out[4];
    for (int i = 0; i < 4; i++)
        out[i] = tensor_data(&ctx->outputs[i]);
    if (t[1].n_elements == 0)
        return KERNEL_DONE;
    const float *x = tensor_cdata(&t[0]), *h_prev = tensor_cdata(&t[1]);
    int64_t n = s.n_cells;
    struct tensor scratch = TENSOR_INIT;
    float *z, *reset;
    KERNEL_TRY(ctx, scratch_new(ctx, DT_FLOAT, s.batch, 3 * n, &scratch, &z));
    reset = z + s.batch * 2 * n;
    project(ctx, s, x, h_prev, tensor_cdata(&t[2]), 2 * n, z);
    for (int64_t row = 0; row < s.batch; row++)
        gates(z + row * 2 * n, tensor_cdata(&t[4]), h_prev + row * n, n, out[0] + row * n,
              out[1] + row * n, reset + row * n);
    project(ctx, s, x, reset, tensor_cdata(&t[3]), n, z);
    for (int64_t row = 0; row < s.batch; row++)
        outputs(z + row * n, tensor_cdata(&t[5]), h_prev + row * n, out[1] + row * n, n,
                out[2] + row * n, out[3] + row * n);
    tensor_clear(&scratch);
    return KERNEL_DONE;
}

/* ---- gradient ---- */

/* c[batch, columns] = d[batch, width] · rowsᵀ, where `rows` are `columns` rows of a weight matrix
 * with `width` columns. */
static void project_back(const struct kernel_ctx *ctx, struct gru_sizes s, const float *d,
                         const float *rows, int64_t width, int64_t columns, bool adds, float *c) {
    rnn_multiply(ctx, &(struct rnn_product){.m = s.batch,
                                            .n = columns,
                                            .k = width,
                                            .a = d,
                                            .lda = width,
                                            .b = rows,
                                            .ldb = width,
                                            .trans_b = true,
                                            .c = c,
                                            .ldc = columns,
                                            .adds = adds});
}

/* d_x, d_h_prev, d_c_bar [batch, cells], d_r_bar_u_bar [batch, 2 · cells]. The last two are
 * gradients before tanh and before the gates. */
enum kernel_result gru_cell_grad_compute(struct kernel_ctx *ctx) {
    const struct tensor *t = ctx->inputs;
    struct gru_sizes s;
    KERNEL_TRY(ctx, gru_begin_grad(ctx, &s));
    int64_t n = s.n_cells;
    float *out[4];
    for (int i = 0; i < 4; i++)
        out[i] = tensor_data(&ctx->outputs[i]);
    const float *h_prev = tensor_cdata(&t[1]), *w_ru = tensor_cdata(&t[2]),
                *w_c = tensor_cdata(&t[3]);
    const float *r = tensor_cdata(&t[6]), *u = tensor_cdata(&t[7]), *c = tensor_cdata(&t[8]),
                *dh = tensor_cdata(&t[9]);
    float *d_x = out[0], *d_h_prev = out[1], *d_c = out[2], *d_ru = out[3];
    for (int64_t i = 0; i < s.batch * n; i++)
        d_c[i] = dh[i] * (1 - u[i]) * (1 - c[i] * c[i]);
    project_back(ctx, s, d_c, w_c, n, s.n_inputs, false, d_x);
    /* the gradient of r · h_prev */
    project_back(ctx, s, d_c, w_c + s.n_inputs * n, n, n, false, d_h_prev);
    for (int64_t i = 0; i < s.batch * n; i++) {
        float *gate = d_ru + i / n * 2 * n + i % n, reset = d_h_prev[i];
        gate[0] = reset * h_prev[i] * r[i] * (1 - r[i]);
        gate[n] = dh[i] * (h_prev[i] - c[i]) * u[i] * (1 - u[i]);
        d_h_prev[i] = reset * r[i] + dh[i] * u[i];
    }
    project_back(ctx, s, d_ru, w_ru, 2 * n, s.n_inputs, true, d_x);
    project_back(ctx, s, d_ru, w_ru + s.n_inputs * 2 * n, 2 * n, n, true, d_h_prev);
    return KERNEL_DONE;
}
