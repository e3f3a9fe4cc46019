/* Converts operands of recurrent cells to floats, and runs their matrix products on the pool. */
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/nn/rnn_internal.h"
#include "kernels/cpu/nn/widen.h"

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
    struct matmul whole;
    struct matmul_division division;
};

static void product_range(void *arg, int64_t begin, int64_t end) {
    const struct product_job *job = arg;
    matmul_run_units(DT_FLOAT, &job->whole, &job->division, begin, end);
}

void rnn_multiply(const struct kernel_ctx *ctx, const struct rnn_product *p) {
    if (p->m == 0 || p->n == 0)
        return;
    struct product_job job = {.whole = {p->m, p->n, p->k, p->a, p->b, p->c, p->lda, p->ldb, p->ldc,
                                        p->trans_a, p->trans_b, p->adds}};
    job.division = matmul_divide(DT_FLOAT, &job.whole, p->m >= p->n);
    double units = (double)job.division.n_units,
           cost_ns = (double)p->m * (double)p->n * (double)p->k / units * 0.02 + 100;
    pool_parallel_for(ctx->pool, job.division.n_units, cost_ns, product_range, &job);
}
