/* The recurrent family: block cells of LSTM and GRU. */
#include "common/ops/op_def.h"

/* [batch, cells] of a step, from x and cs_prev; with the steps before for a sequence. */
static struct status *shape_lstm(struct shape_inference *ctx) {
    bool is_block = strncmp(ctx->node->op_name, "Block", 5) == 0;
    struct shape x, cs_prev;
    TRY(shape_require_rank(ctx, is_block, is_block ? 3 : 2, &x));
    TRY(shape_require_rank(ctx, is_block + 1, 2, &cs_prev));
    int64_t dims[3] = {is_block ? x.dims[0] : -1, x.dims[is_block], cs_prev.dims[1]};
    if (is_block && ctx->in[0].rank > 0)
        return status_invalid("Shape must be rank 0 but is rank %d", ctx->in[0].rank);
    for (int i = 0; i < 7; i++)
        ctx->out[i] = shape_make(ctx, is_block ? 3 : 2, dims + !is_block);
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

/* The gradients of x … b have their shapes. */
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
    {"LSTMBlockCell", "one step of an LSTM", shape_lstm},
    {"LSTMBlockCellGrad", "gradient of LSTMBlockCell", shape_lstm_cell_grad},
    {"BlockLSTM", "an LSTM over a sequence", shape_lstm},
    {"BlockLSTMV2", "an LSTM over a sequence, gates in another order", shape_lstm},
    {"BlockLSTMGrad", "gradient of BlockLSTM", shape_lstm_block_grad},
    {"BlockLSTMGradV2", "gradient of BlockLSTMV2", shape_lstm_block_grad},
    {"GRUBlockCell", "one step of a gated recurrent unit", shape_gru},
    {"GRUBlockCellGrad", "gradient of GRUBlockCell", shape_gru_grad},
};
// clang-format on

const struct op_def_list rnn_ops = {rows, ARRAY_LEN(rows)};
