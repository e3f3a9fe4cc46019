/* The compute functions of LSTMBlockCellGrad, BlockLSTMGrad and BlockLSTMGradV2 (rnn.h). Steps run
 * backwards and keep dicfo, from which sums and products over all steps make the other
 * gradients. */
#include "kernels/cuda/ops/rnn_internal.h"

static struct gpu_stem grad_stem = {"lstm_grad"};
static struct gpu_stem columns_stem = {"rnn_columns"}, merge_stem = {"rnn_merge"};

/* Rows that a thread adds up, at least, and blocks that keep a device busy. */
enum { ROWS_OF_THREAD = 8, MOST_BLOCKS = 512 };

/* The inputs from x on; then cs_grad and h_grad, behind H in a sequence only. */
enum { X, CS_PREV, H_PREV, W, WCI, WCF, WCO, B, I, CS, F, O, CI, CO, H };

static int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Sums columns in the form that rnn_args.h describes. At least one row and one column. */
static struct status *sum_columns(struct kernel_ctx *ctx, enum dtype dtype,
                                  struct rnn_columns_args args) {
    args.width = 1;
    while (args.width < RNN_MAX_WIDTH && args.width < args.n_columns)
        args.width *= 2;
    int64_t n_groups = divided_up(args.n_columns, args.width);
    int64_t wanted = divided_up(args.n_rows, RNN_THREADS / args.width * ROWS_OF_THREAD);
    args.n_chunks = MIN(wanted, MAX(MOST_BLOCKS / n_groups, (int64_t)1));
    args.chunk = divided_up(args.n_rows, args.n_chunks);
    args.n_chunks = divided_up(args.n_rows, args.chunk);
    struct buffer *sums;
    TRY(gpu_scratch(ctx, (size_t)(args.n_chunks * args.n_columns) * sizeof(float), &sums));
    args.sums = (float *)(void *)sums->data;
    struct gpu_grid grid = {.n_blocks = (unsigned)(args.n_chunks * n_groups),
                            .n_threads = RNN_THREADS};
    struct status *st = engine_launch(ctx, &columns_stem, gpu_dtype_suffix(dtype), grid, &args);
    if (!st)
        st = engine_launch_for(ctx, &merge_stem, gpu_dtype_suffix(dtype), args.n_columns, &args);
    buffer_unref(sums);
    return st;
}

/* wci_grad = Σ di · cs_prev, wcf_grad = Σ df · cs_prev, wco_grad = Σ do · cs, over all rows of
 * dicfo. A row's cs_prev is the cs of the step before. `out`: the three gradients. */
static struct status *sum_peepholes(struct kernel_ctx *ctx, const struct lstm_state *state,
                                    const struct lstm_sizes *sizes, const struct tensor *in,
                                    const void *dicfo, struct tensor *out) {
    const struct rnn_order order = rnn_order_of(&state->order, sizes->n_cells);
    struct rnn_columns_args args = {.d = dicfo,
                                    .n_rows = sizes->length * sizes->batch,
                                    .row_len = 4 * sizes->n_cells,
                                    .n_columns = sizes->n_cells,
                                    .before = tensor_cdata(&in[CS_PREV]),
                                    .rest = tensor_cdata(&in[CS]),
                                    .n_before = sizes->batch};
    args.first = order.i;
    args.out = tensor_data(&out[0]);
    TRY(sum_columns(ctx, state->dtype, args));
    args.first = order.f;
    args.out = tensor_data(&out[1]);
    TRY(sum_columns(ctx, state->dtype, args));
    args.first = order.o;
    args.out = tensor_data(&out[2]);
    args.before = args.rest; /* cs of the step itself */
    args.n_before = args.n_rows;
    return sum_columns(ctx, state->dtype, args);
}

/* One step backwards. h_later is NULL at the last one. */
static struct status *run_step(struct kernel_ctx *ctx, const struct lstm_state *state,
                               const struct lstm_sizes *sizes, const struct tensor *in, int64_t t,
                               struct lstm_grad_args args) {
    enum dtype dtype = state->dtype;
    int64_t n = sizes->n_cells, step = sizes->batch * n, first = t * step;
    const struct tensor *grads = &in[in[X].rank == 3 ? H + 1 : H];
    args.cs_prev =
        t == 0 ? tensor_cdata(&in[CS_PREV]) : rnn_at(tensor_cdata(&in[CS]), dtype, first - step);
    args.i = rnn_at(tensor_cdata(&in[I]), dtype, first);
    args.f = rnn_at(tensor_cdata(&in[F]), dtype, first);
    args.o = rnn_at(tensor_cdata(&in[O]), dtype, first);
    args.ci = rnn_at(tensor_cdata(&in[CI]), dtype, first);
    args.co = rnn_at(tensor_cdata(&in[CO]), dtype, first);
    args.cs_grad = rnn_at(tensor_cdata(&grads[0]), dtype, first);
    args.h_grad = rnn_at(tensor_cdata(&grads[1]), dtype, first);
    if (state->uses_peephole) {
        args.wci = tensor_cdata(&in[WCI]);
        args.wcf = tensor_cdata(&in[WCF]);
        args.wco = tensor_cdata(&in[WCO]);
    }
    args.n = step;
    args.cells = gpu_divisor_of(n, step + 1);
    args.order = rnn_order_of(&state->order, n);
    return engine_launch_for(ctx, &grad_stem, gpu_dtype_suffix(dtype), step, &args);
}

static struct status *zero_outputs(struct kernel_ctx *ctx, int first, int end) {
    for (int i = first; i < end; i++)
        TRY(gpu_zero(ctx, tensor_data(&ctx->outputs[i]), tensor_size_bytes(&ctx->outputs[i])));
    return NULL;
}

/* ---- the cell ---- */

static struct status *run_cell(struct kernel_ctx *ctx, const struct lstm_sizes *sizes) {
    const struct lstm_state *state = ctx->instance->state;
    struct tensor *out = ctx->outputs;
    if (sizes->batch == 0 || sizes->n_cells == 0)
        return zero_outputs(ctx, 0, 5);
    struct lstm_grad_args args = {.cs_prev_grad = tensor_data(&out[0]),
                                  .dicfo = tensor_data(&out[1])};
    TRY(run_step(ctx, state, sizes, ctx->inputs, 0, args));
    return state->uses_peephole ? sum_peepholes(ctx, state, sizes, ctx->inputs, args.dicfo, &out[2])
                                : zero_outputs(ctx, 2, 5);
}

enum kernel_result lstm_cell_grad_on_gpu(struct kernel_ctx *ctx) {
    struct lstm_sizes sizes;
    KERNEL_TRY(ctx, lstm_begin_grad(ctx, false, &sizes));
    KERNEL_TRY(ctx, run_cell(ctx, &sizes));
    return KERNEL_DONE;
}

/* ---- the sequence ---- */

/* Runs backwards through the steps. The results are dicfo of all steps, and the gradients of
 * cs_prev and h_prev. */
static struct status *run_backwards(struct kernel_ctx *ctx, const struct lstm_sizes *sizes,
                                    const struct tensor *in, char *dicfo, float *carry) {
    const struct lstm_state *state = ctx->instance->state;
    enum dtype dtype = state->dtype;
    int64_t n = sizes->n_cells, width = 4 * n;
    struct lstm_grad_args args = {.cs_prev_grad = tensor_data(&ctx->outputs[LSTM_CS_PREV_GRAD]),
                                  .carry = carry};
    for (int64_t t = sizes->length - 1; t >= 0; t--) {
        args.dicfo = rnn_at(dicfo, dtype, t * sizes->batch * width);
        TRY(run_step(ctx, state, sizes, in, t, args));
        struct device_products back = {
            .dtype = dtype,
            .x = args.dicfo,
            .y = rnn_at(tensor_cdata(&in[W]), dtype, sizes->n_inputs * width),
            .out = tensor_data(&ctx->outputs[LSTM_H_PREV_GRAD]),
            .m = sizes->batch,
            .n = n,
            .k = width,
            .transposes_y = true};
        TRY(rnn_multiply_on_gpu(ctx, back));
        args.h_later = back.out;
    }
    return NULL;
}

/* The gradient of x; that of steps from seq_len_max on is zero. */
static struct status *grad_of_x(struct kernel_ctx *ctx, const struct lstm_sizes *sizes,
                                const struct tensor *in, const char *dicfo) {
    const struct lstm_state *state = ctx->instance->state;
    struct tensor *out = &ctx->outputs[LSTM_X_GRAD];
    int64_t rows = sizes->length * sizes->batch, done = rows * sizes->n_inputs;
    struct device_products product = {.dtype = state->dtype,
                                      .x = dicfo,
                                      .y = tensor_cdata(&in[W]),
                                      .out = tensor_data(out),
                                      .m = rows,
                                      .n = sizes->n_inputs,
                                      .k = 4 * sizes->n_cells,
                                      .transposes_y = true};
    TRY(rnn_multiply_on_gpu(ctx, product));
    return gpu_zero(ctx, rnn_at(tensor_data(out), state->dtype, done),
                    (size_t)(out->n_elements - done) * dtype_size(state->dtype));
}

/* The gradient of w: [x, h of the step before]ᵀ · dicfo. `h` is memory for the rows of h. */
static struct status *grad_of_w(struct kernel_ctx *ctx, const struct lstm_sizes *sizes,
                                const struct tensor *in, const char *dicfo, char *h) {
    const struct lstm_state *state = ctx->instance->state;
    enum dtype dtype = state->dtype;
    size_t size = dtype_size(dtype);
    int64_t n = sizes->n_cells, rows = sizes->length * sizes->batch, step = sizes->batch * n;
    struct device_products product = {.dtype = dtype,
                                      .x = tensor_cdata(&in[X]),
                                      .y = dicfo,
                                      .out = tensor_data(&ctx->outputs[LSTM_W_GRAD]),
                                      .m = sizes->n_inputs,
                                      .n = 4 * n,
                                      .k = rows,
                                      .transposes_x = true};
    if (sizes->n_inputs > 0)
        TRY(rnn_multiply_on_gpu(ctx, product));
    TRY(gpu_copy_within(ctx, h, tensor_cdata(&in[H_PREV]), (size_t)step * size));
    TRY(gpu_copy_within(ctx, rnn_at(h, dtype, step), tensor_cdata(&in[H]),
                        (size_t)((sizes->length - 1) * step) * size));
    product.x = h;
    product.out = rnn_at(product.out, dtype, sizes->n_inputs * 4 * n);
    product.m = n;
    return rnn_multiply_on_gpu(ctx, product);
}

static struct status *run_block(struct kernel_ctx *ctx, const struct lstm_sizes *sizes) {
    const struct lstm_state *state = ctx->instance->state;
    const struct tensor *in = ctx->inputs + 1;
    int64_t n = sizes->n_cells, rows = sizes->length * sizes->batch;
    size_t row_bytes = (size_t)n * dtype_size(state->dtype);
    struct buffer *dicfo = NULL, *carry = NULL, *h = NULL;
    struct status *st = NULL;
    if (rows == 0 || n == 0)
        return zero_outputs(ctx, 0, LSTM_N_GRADS);
    TRY_OUT(gpu_scratch(ctx, (size_t)rows * 4 * row_bytes, &dicfo));
    if (state->dtype != DT_FLOAT)
        TRY_OUT(gpu_scratch(ctx, (size_t)(sizes->batch * n) * sizeof(float), &carry));
    TRY_OUT(
        run_backwards(ctx, sizes, in, dicfo->data, carry ? (float *)(void *)carry->data : NULL));
    if (sizes->n_inputs > 0)
        TRY_OUT(grad_of_x(ctx, sizes, in, dicfo->data));
    TRY_OUT(gpu_scratch(ctx, (size_t)rows * row_bytes, &h));
    TRY_OUT(grad_of_w(ctx, sizes, in, dicfo->data, h->data));
    if (state->uses_peephole)
        TRY_OUT(sum_peepholes(ctx, state, sizes, in, dicfo->data, &ctx->outputs[LSTM_WCI_GRAD]));
    else
        TRY_OUT(zero_outputs(ctx, LSTM_WCI_GRAD, LSTM_WCO_GRAD + 1));
    TRY_OUT(sum_columns(ctx, state->dtype,
                        (struct rnn_columns_args){.d = dicfo->data,
                                                  .n_rows = rows,
                                                  .row_len = 4 * n,
                                                  .n_columns = 4 * n,
                                                  .out = tensor_data(&ctx->outputs[LSTM_B_GRAD])}));
out:
    buffer_unref(dicfo);
    buffer_unref(carry);
    buffer_unref(h);
    return st;
}

enum kernel_result lstm_block_grad_on_gpu(struct kernel_ctx *ctx) {
    struct lstm_sizes sizes;
    KERNEL_TRY(ctx, lstm_begin_grad(ctx, true, &sizes));
    KERNEL_TRY(ctx, run_block(ctx, &sizes));
    return KERNEL_DONE;
}
