/* Lists the recurrent family: block cells of LSTM and GRU. */
#include "common/ops/op_def.h"

/* [batch, cells] of a step, from x and cs_prev. */
static struct status *shape_lstm_cell(struct shape_inference *ctx) {
    struct shape x, cs_prev;
    TRY(shape_require_rank(ctx, 0, 2, &x));
    TRY(shape_require_rank(ctx, 1, 2, &cs_prev));
    for (int i = 0; i < 7; i++)
        ctx->out[i] = shape_make(ctx, 2, (int64_t[]){x.dims[0], cs_prev.dims[1]});
    return NULL;
}

/* [steps, batch, cells] of a sequence; the bias, the last input, has four entries for each cell. */
static struct status *shape_lstm_block(struct shape_inference *ctx) {
    struct shape x, b;
    TRY(shape_require_rank(ctx, 1, 3, &x));
    TRY(shape_require_rank(ctx, ctx->node->n_data - 1, 1, &b));
    int64_t n = b.dims[0];
    if (n >= 0 && n % 4 != 0)
        return status_invalid("Dimension size must be evenly divisible by 4 but is %lld",
                              (long long)n);
    for (int i = 0; i < 7; i++)
        ctx->out[i] = shape_make(ctx, 3, (int64_t[]){x.dims[0], x.dims[1], n < 0 ? -1 : n / 4});
    return NULL;
}

static struct status *shape_lstm_cell_grad(struct shape_inference *ctx) {
    struct shape x, cs_prev;
    TRY(shape_require_rank(ctx, 0, 2, &x));
    TRY(shape_require_rank(ctx, 1, 2, &cs_prev));
    int64_t cells = cs_prev.dims[1], dims[2] = {x.dims[0], cells}, wide[2] = {x.dims[0], -1};
    if (cells >= 0 && mul_overflows_i64(cells, 4, &wide[1]))
        return status_invalid("cell_size %lld is too large", (long long)cells);
    ctx->out[0] = shape_make(ctx, 2, dims);
    ctx->out[1] = shape_make(ctx, 2, wide);
    for (int i = 2; i < 5; i++)
        ctx->out[i] = shape_make(ctx, 1, &cells);
    return NULL;
}

/* The gradients of x … b have the shapes of x … b. */
static struct status *shape_lstm_block_grad(struct shape_inference *ctx) {
    static const int ranks[] = {3, 2, 2, 2, 1, 1, 1, 1};
    for (int i = 0; i < 8; i++)
        TRY(shape_require_rank(ctx, 1 + i, ranks[i], &ctx->out[i]));
    return NULL;
}

static struct status *shape_gru(struct shape_inference *ctx) {
    struct shape x, h_prev;
    TRY(shape_require_rank(ctx, 0, 2, &x));
    TRY(shape_require_rank(ctx, 1, 2, &h_prev));
    int64_t dims[2] = {x.dims[0], h_prev.dims[1]};
    for (int i = 0; i < 4; i++)
        ctx->out[i] = shape_make(ctx, 2, dims);
    return NULL;
}

static struct status *shape_gru_grad(struct shape_inference *ctx) {
    struct shape x, h_prev;
    TRY(shape_require_rank(ctx, 0, 2, &x));
    TRY(shape_require_rank(ctx, 1, 2, &h_prev));
    int64_t cells = h_prev.dims[1], dims[2] = {x.dims[0], cells}, wide[2] = {x.dims[0], -1};
    if (cells >= 0 && mul_overflows_i64(cells, 2, &wide[1]))
        return status_invalid("cell_size %lld is too large", (long long)cells);
    ctx->out[0] = x;
    ctx->out[1] = ctx->out[2] = shape_make(ctx, 2, dims);
    ctx->out[3] = shape_make(ctx, 2, wide);
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"LSTMBlockCell", "one step of an LSTM", shape_lstm_cell},
    {"LSTMBlockCellGrad", "gradient of LSTMBlockCell", shape_lstm_cell_grad},
    {"BlockLSTM", "an LSTM over a sequence", shape_lstm_block},
    {"BlockLSTMV2", "an LSTM over a sequence, gates in another order", shape_lstm_block},
    {"BlockLSTMGrad", "gradient of BlockLSTM", shape_lstm_block_grad},
    {"BlockLSTMGradV2", "gradient of BlockLSTMV2", shape_lstm_block_grad},
    {"GRUBlockCell", "one step of a gated recurrent unit", shape_gru},
    {"GRUBlockCellGrad", "gradient of GRUBlockCell", shape_gru_grad},
};
// clang-format on

const struct op_def_list rnn_ops = {rows, ARRAY_LEN(rows)};
