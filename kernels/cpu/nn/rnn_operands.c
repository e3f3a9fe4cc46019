/* Converts operands of recurrent cells to floats, and runs their matrix products on the pool. */
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/nn/rnn_internal.h"
#include "kernels/cpu/nn/widen.h"

enum { SHARE = 64 }; /* rows or columns of one share of a product */

struct status *rnn_open(const struct kernel_ctx *ctx, struct rnn_operands *operands) {
    memset(operands, 0, sizeof(*operands));
    CHECK(ctx->instance->n_inputs <= RNN_MAX_OPERANDS &&
          ctx->instance->n_outputs <= RNN_MAX_OPERANDS);
    for (int i = 0; i < ctx->instance->n_inputs; i++) {
        const struct tensor *t = &ctx->inputs[i];
        operands->in[i] = tensor_cdata(t);
        TRY(widen_operand(ctx, (enum dtype)t->dtype, t->n_elements, &operands->in[i],
                          &operands->scratch_in[i]));
    }
    for (int i = 0; i < ctx->instance->n_outputs; i++) {
        struct tensor *t = &ctx->outputs[i];
        TRY(widen_result(ctx, (enum dtype)t->dtype, t->n_elements, tensor_data(t),
                         &operands->out[i], &operands->scratch_out[i]));
    }
    return NULL;
}

void rnn_close(struct kernel_ctx *ctx, struct rnn_operands *operands, bool stores) {
    for (int i = 0; i < ctx->instance->n_outputs && stores; i++) {
        struct tensor *t = &ctx->outputs[i];
        narrow_result(ctx, (enum dtype)t->dtype, t->n_elements, tensor_data(t), operands->out[i]);
    }
    for (int i = 0; i < RNN_MAX_OPERANDS; i++) {
        tensor_clear(&operands->scratch_in[i]);
        tensor_clear(&operands->scratch_out[i]);
    }
}

struct product_job {
    const struct rnn_product *product;
    bool by_rows;
};

static void product_range(void *arg, int64_t begin, int64_t end) {
    const struct product_job *job = arg;
    const struct rnn_product *p = job->product;
    int64_t n = job->by_rows ? p->m : p->n, first = begin * SHARE,
            count = MIN(end * SHARE, n) - first;
    struct matmul g = {p->m,   p->n,   p->k,   p->a,       p->b,       p->c,
                       p->lda, p->ldb, p->ldc, p->trans_a, p->trans_b, p->adds};
    g.whole_m = p->m, g.whole_n = p->n;
    if (job->by_rows) {
        g.m = count;
        g.a = p->a + first * (p->trans_a ? 1 : p->lda);
        g.c = p->c + first * p->ldc;
    } else {
        g.n = count;
        g.b = p->b + first * (p->trans_b ? p->ldb : 1);
        g.c = p->c + first;
    }
    matmul_run(DT_FLOAT, &g);
}

void rnn_multiply(const struct kernel_ctx *ctx, const struct rnn_product *p) {
    struct product_job job = {p, p->m >= p->n};
    int64_t shares = ((job.by_rows ? p->m : p->n) + SHARE - 1) / SHARE;
    if (p->m == 0 || p->n == 0)
        return;
    double cost_ns = (double)p->m * (double)p->n * (double)p->k / (double)shares * 0.02 + 100;
    pool_parallel_for(ctx->pool, shares, cost_ns, product_range, &job);
}
