/* The compute functions of LSTMBlockCell, BlockLSTM and BlockLSTMV2 (rnn.h). */
#include <math.h>

#include "kernels/cuda/ops/rnn_internal.h"

static struct gpu_stem gates_stem = {"lstm_gates"};

/* The inputs from x on. */
enum { X, CS_PREV, H_PREV, W, WCI, WCF, WCO, B };
/* The outputs. */
enum { I, CS, F, O, CI, CO, H, N_OUTPUTS };

/* What the steps use. */
struct lstm_run {
    const struct lstm_state *state;
    const struct lstm_sizes *sizes;
    const struct tensor *in;
    char *out[N_OUTPUTS];
    struct buffer *from_x, *from_h, *carry;
};

static struct status *run_step(struct kernel_ctx *ctx, const struct lstm_run *run, int64_t t) {
    const struct lstm_state *state = run->state;
    const struct tensor *in = run->in;
    enum dtype dtype = state->dtype;
    int64_t n = run->sizes->n_cells, step = run->sizes->batch * n;
    const void *h_prev =
        t == 0 ? tensor_cdata(&in[H_PREV]) : rnn_at(run->out[H], dtype, (t - 1) * step);
    TRY(rnn_multiply_on_gpu(ctx, (struct device_products){.dtype = dtype,
                                                          .x = h_prev,
                                                          .y = rnn_at(tensor_cdata(&in[W]), dtype,
                                                                      run->sizes->n_inputs * 4 * n),
                                                          .out = run->from_h->data,
                                                          .m = run->sizes->batch,
                                                          .n = 4 * n,
                                                          .k = n}));
    struct lstm_gates_args args = {.from_h = run->from_h->data,
                                   .cs_prev = t == 0 ? tensor_cdata(&in[CS_PREV])
                                                     : rnn_at(run->out[CS], dtype, (t - 1) * step),
                                   .b = tensor_cdata(&in[B]),
                                   .n = step,
                                   .cells = gpu_divisor_of(n, step + 1),
                                   .order = rnn_order_of(&state->order, n),
                                   .forget_bias = state->forget_bias,
                                   .limit = state->cell_clip > 0 ? state->cell_clip : INFINITY};
    if (run->from_x)
        args.from_x = rnn_at(run->from_x->data, dtype, t * 4 * step);
    if (run->carry) {
        args.carry = (float *)(void *)run->carry->data;
        args.reads_carry = t > 0;
    }
    if (state->uses_peephole) {
        args.wci = tensor_cdata(&in[WCI]);
        args.wcf = tensor_cdata(&in[WCF]);
        args.wco = tensor_cdata(&in[WCO]);
    }
    void **outputs[N_OUTPUTS] = {&args.i, &args.cs, &args.f, &args.o, &args.ci, &args.co, &args.h};
    for (int i = 0; i < N_OUTPUTS; i++)
        *outputs[i] = rnn_at(run->out[i], dtype, t * step);
    return engine_launch_for(ctx, &gates_stem, gpu_dtype_suffix(dtype), step, &args);
}

static struct status *run_steps(struct kernel_ctx *ctx, struct lstm_run *run) {
    const struct lstm_sizes *sizes = run->sizes;
    enum dtype dtype = run->state->dtype;
    size_t size = dtype_size(dtype);
    int64_t width = 4 * sizes->n_cells, rows = sizes->length * sizes->batch;
    struct status *st = NULL;
    if (sizes->n_inputs > 0) {
        TRY_OUT(gpu_scratch(ctx, (size_t)(rows * width) * size, &run->from_x));
        TRY_OUT(rnn_multiply_on_gpu(ctx, (struct device_products){.dtype = dtype,
                                                                  .x = tensor_cdata(&run->in[X]),
                                                                  .y = tensor_cdata(&run->in[W]),
                                                                  .out = run->from_x->data,
                                                                  .m = rows,
                                                                  .n = width,
                                                                  .k = sizes->n_inputs}));
    }
    TRY_OUT(gpu_scratch(ctx, (size_t)(sizes->batch * width) * size, &run->from_h));
    if (dtype != DT_FLOAT)
        TRY_OUT(
            gpu_scratch(ctx, (size_t)(sizes->batch * sizes->n_cells) * sizeof(float), &run->carry));
    for (int64_t t = 0; t < sizes->length; t++)
        TRY_OUT(run_step(ctx, run, t));
out:
    buffer_unref(run->from_x);
    buffer_unref(run->from_h);
    buffer_unref(run->carry);
    return st;
}

static struct status *run_lstm(struct kernel_ctx *ctx, const struct lstm_sizes *sizes,
                               int first_input) {
    const struct lstm_state *state = ctx->instance->state;
    struct lstm_run run = {.state = state, .sizes = sizes, .in = ctx->inputs + first_input};
    int64_t step = sizes->batch * sizes->n_cells;
    for (int i = 0; i < N_OUTPUTS; i++)
        run.out[i] = tensor_data(&ctx->outputs[i]);
    if (sizes->length > 0)
        TRY(run_steps(ctx, &run));
    for (int i = 0; i < N_OUTPUTS; i++)
        TRY(gpu_zero(ctx, rnn_at(run.out[i], state->dtype, sizes->length * step),
                     (size_t)((sizes->n_steps - sizes->length) * step) * dtype_size(state->dtype)));
    return NULL;
}

static enum kernel_result compute(struct kernel_ctx *ctx, bool is_block) {
    struct lstm_sizes sizes;
    KERNEL_TRY(ctx, lstm_begin(ctx, is_block, &sizes));
    if (ctx->outputs[0].n_elements > 0)
        KERNEL_TRY(ctx, run_lstm(ctx, &sizes, is_block));
    return KERNEL_DONE;
}

enum kernel_result lstm_cell_on_gpu(struct kernel_ctx *ctx) { return compute(ctx, false); }
enum kernel_result lstm_block_on_gpu(struct kernel_ctx *ctx) { return compute(ctx, true); }
