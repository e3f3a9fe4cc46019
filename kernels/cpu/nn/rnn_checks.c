/* Checks the inputs of recurrent cells and allocates their outputs (kernels/cpu/nn/rnn.h). */
#include "kernels/cpu/nn/rnn.h"

#include <stdlib.h>

const struct lstm_order lstm_icfo = {.i = 0, .ci = 1, .f = 2, .o = 3};
const struct lstm_order lstm_ifco = {.i = 0, .f = 1, .ci = 2, .o = 3};

/* ---- LSTM ---- */

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

/* Checks x and what follows it, up to b. */
static struct status *check_lstm(const struct tensor *t, bool is_block, struct lstm_sizes *ret) {
    const struct tensor *x = &t[0], *cs_prev = &t[1];
    int64_t width;
    if (x->rank != (is_block ? 3 : 2))
        return status_invalid("x must be rank %d but is rank %d", is_block ? 3 : 2, x->rank);
    if (cs_prev->rank != 2)
        return status_invalid("cs_prev must be rank 2 but is rank %d", cs_prev->rank);
    *ret = (struct lstm_sizes){.n_steps = is_block ? tensor_dim(x, 0) : 1,
                               .batch = tensor_dim(x, is_block ? 1 : 0),
                               .n_inputs = tensor_dim(x, is_block ? 2 : 1),
                               .n_cells = tensor_dim(cs_prev, 1),
                               .length = 1};
    TRY(require_matrix(cs_prev, "cs_prev", ret->batch, ret->n_cells));
    TRY(require_matrix(&t[2], "h_prev", ret->batch, ret->n_cells));
    if (mul_overflows_i64(ret->n_cells, 4, &width))
        return status_invalid("cell_size %lld is too large", (long long)ret->n_cells);
    TRY(require_matrix(&t[3], "w", ret->n_inputs + ret->n_cells, width));
    for (int i = 4; i < 7; i++) /* also those that are not used */
        TRY(require_vector(&t[i], i == 4 ? "wci" : i == 5 ? "wcf" : "wco", ret->n_cells));
    return require_vector(&t[7], "b", width);
}

static struct status *check_length(const struct tensor *t, int64_t n_steps, int64_t *ret) {
    if (t->rank != 0)
        return status_invalid("seq_len_max must be a scalar, but has rank %d", t->rank);
    *ret = tensor_index_at(t, 0);
    if (*ret < 0 || *ret > n_steps)
        return status_invalid("seq_len_max %lld is not in [0, %lld]", (long long)*ret,
                              (long long)n_steps);
    return NULL;
}

static struct status *require_shape(const struct tensor *t, const char *what,
                                    struct shape expected) {
    if (shape_equal(tensor_shape(t), expected))
        return NULL;
    return status_invalid("%s should have shape %s, but has %s", what, SHAPE_TEXT(expected),
                          SHAPE_TEXT(tensor_shape(t)));
}

struct status *lstm_begin(struct kernel_ctx *ctx, bool is_block, struct lstm_sizes *ret) {
    const struct lstm_state *state = ctx->instance->state;
    TRY(check_lstm(ctx->inputs + is_block, is_block, ret));
    if (is_block)
        TRY(check_length(&ctx->inputs[0], ret->n_steps, &ret->length));
    int64_t dims[3] = {ret->n_steps, ret->batch, ret->n_cells};
    for (int i = 0; i < 7; i++)
        TRY(kernel_alloc(ctx, i, state->dtype, (struct shape){is_block ? 3 : 2, dims + !is_block}));
    return NULL;
}

static struct status *begin_cell_grad(struct kernel_ctx *ctx, struct lstm_sizes *ret) {
    static const char *const names[] = {"i", "cs", "f", "o", "ci", "co", "cs_grad", "h_grad"};
    const struct lstm_state *state = ctx->instance->state;
    TRY(check_lstm(ctx->inputs, false, ret));
    int64_t dims[2] = {ret->batch, ret->n_cells}, wide[2] = {ret->batch, 4 * ret->n_cells};
    for (int i = 0; i < 8; i++)
        TRY(require_shape(&ctx->inputs[8 + i], names[i], (struct shape){2, dims}));
    TRY(kernel_alloc(ctx, 0, state->dtype, (struct shape){2, dims}));
    TRY(kernel_alloc(ctx, 1, state->dtype, (struct shape){2, wide}));
    for (int i = 2; i < 5; i++)
        TRY(kernel_alloc(ctx, i, state->dtype, (struct shape){1, &ret->n_cells}));
    return NULL;
}

struct status *lstm_begin_grad(struct kernel_ctx *ctx, bool is_block, struct lstm_sizes *ret) {
    static const char *const names[] = {"i", "cs", "f", "o", "ci", "co", "h", "cs_grad", "h_grad"};
    const struct lstm_state *state = ctx->instance->state;
    const struct tensor *t = ctx->inputs;
    if (!is_block)
        return begin_cell_grad(ctx, ret);
    TRY(check_lstm(t + 1, true, ret));
    TRY(check_length(&t[0], ret->n_steps, &ret->length));
    int64_t dims[3] = {ret->n_steps, ret->batch, ret->n_cells};
    for (int i = 0; i < 9; i++)
        TRY(require_shape(&t[9 + i], names[i], (struct shape){3, dims}));
    for (int i = 0; i < LSTM_N_GRADS; i++) /* peepholes that are not used keep their own shape */
        TRY(kernel_alloc(ctx, i, state->dtype, tensor_shape(&t[1 + i])));
    return NULL;
}

/* ---- GRU ---- */

static struct status *require_gru(const struct tensor *t, const char *what, int64_t rows,
                                  int64_t columns) {
    bool is_matrix = columns >= 0;
    if (t->rank != (is_matrix ? 2 : 1))
        return status_invalid("Rank of %s must be %d, got %d", what, is_matrix ? 2 : 1, t->rank);
    if (tensor_dim(t, 0) != rows)
        return status_invalid("%s.dim_size(0) != %lld: got %lld", what, (long long)rows,
                              (long long)tensor_dim(t, 0));
    if (is_matrix && tensor_dim(t, 1) != columns)
        return status_invalid("%s.dim_size(1) != %lld: got %lld", what, (long long)columns,
                              (long long)tensor_dim(t, 1));
    return NULL;
}

static struct status *check_gru(const struct tensor *t, bool is_gradient, struct gru_sizes *s) {
    static const char *const names[] = {"r", "u", "c", "d_h"};
    if (t[0].rank != 2 || t[1].rank != 2)
        return status_invalid("Rank of %s must be 2, got %d", t[0].rank != 2 ? "x" : "h_prev",
                              t[t[0].rank != 2 ? 0 : 1].rank);
    *s = (struct gru_sizes){tensor_dim(&t[0], 0), tensor_dim(&t[0], 1), tensor_dim(&t[1], 1)};
    if (s->n_cells > INT64_MAX / 8)
        return status_invalid("cell_size %lld is too large", (long long)s->n_cells);
    TRY(require_gru(&t[1], "h_prev", s->batch, s->n_cells));
    TRY(require_gru(&t[2], "w_ru", s->n_inputs + s->n_cells, 2 * s->n_cells));
    TRY(require_gru(&t[3], "w_c", s->n_inputs + s->n_cells, s->n_cells));
    TRY(require_gru(&t[4], "b_ru", 2 * s->n_cells, -1));
    TRY(require_gru(&t[5], "b_c", s->n_cells, -1));
    for (int i = 0; i < 4 && is_gradient; i++)
        TRY(require_gru(&t[6 + i], names[i], s->batch, s->n_cells));
    return NULL;
}

struct status *gru_begin(struct kernel_ctx *ctx, struct gru_sizes *ret) {
    TRY(check_gru(ctx->inputs, false, ret));
    for (int i = 0; i < 4; i++)
        TRY(kernel_alloc(ctx, i, DT_FLOAT, tensor_shape(&ctx->inputs[1])));
    return NULL;
}

struct status *gru_begin_grad(struct kernel_ctx *ctx, struct gru_sizes *ret) {
    const struct tensor *x = &ctx->inputs[0], *h_prev = &ctx->inputs[1];
    TRY(check_gru(ctx->inputs, true, ret));
    int64_t wide[2] = {ret->batch, 2 * ret->n_cells};
    const struct shape shapes[4] = {
        tensor_shape(x), tensor_shape(h_prev), tensor_shape(h_prev), {2, wide}};
    for (int i = 0; i < 4; i++)
        TRY(kernel_alloc(ctx, i, DT_FLOAT, shapes[i]));
    return NULL;
}
