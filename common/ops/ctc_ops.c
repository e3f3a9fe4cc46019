/* Lists connectionist temporal classification: the loss of label sequences that are not aligned
 * with their inputs, and decoders. */
#include "common/ops/sparse_shapes.h"

static struct status *merge_dim(struct shape a, int a_dim, struct shape b, int b_dim,
                                int64_t *ret) {
    return shape_merge_dims(dim_of(a, a_dim), dim_of(b, b_dim), ret);
}

/* inputs [time, batch, classes], sequence_length [batch] at input `lengths`. */
static struct status *batch_of(struct shape_inference *ctx, int lengths, struct shape *ret_inputs,
                               int64_t *ret_batch) {
    struct shape length;
    TRY(shape_require_rank(ctx, 0, 3, ret_inputs));
    TRY(shape_require_rank(ctx, lengths, 1, &length));
    return merge_dim(*ret_inputs, 1, length, 0, ret_batch);
}

static struct status *shape_loss(struct shape_inference *ctx) {
    struct shape inputs, indices, values;
    int64_t batch, unused;
    TRY(shape_require_rank(ctx, 1, 2, &indices));
    TRY(shape_require_rank(ctx, 2, 1, &values));
    TRY(batch_of(ctx, 3, &inputs, &batch));
    TRY(merge_dim(indices, 0, values, 0, &unused));
    ctx->out[0] = vector_of(ctx, batch);
    ctx->out[1] = shape_make(ctx, 3, (int64_t[]){inputs.dims[0], batch, inputs.dims[2]});
    return NULL;
}

static struct status *shape_greedy(struct shape_inference *ctx) {
    struct shape inputs;
    int64_t batch;
    TRY(batch_of(ctx, 1, &inputs, &batch));
    ctx->out[0] = matrix_of(ctx, -1, 2);
    ctx->out[1] = vector_of(ctx, -1);
    ctx->out[2] = vector_of(ctx, 2);
    ctx->out[3] = matrix_of(ctx, batch, 1);
    return NULL;
}

static struct status *shape_beam_search(struct shape_inference *ctx) {
    struct shape inputs;
    int64_t batch, n;
    TRY(batch_of(ctx, 1, &inputs, &batch));
    TRY(node_get_i(ctx->node, "top_paths", &n));
    for (int i = 0; i < n && 3 * n < ctx->node->n_outputs; i++) {
        ctx->out[i] = matrix_of(ctx, -1, 2);
        ctx->out[n + i] = vector_of(ctx, -1);
        ctx->out[2 * n + i] = vector_of(ctx, 2);
    }
    ctx->out[ctx->node->n_outputs - 1] = matrix_of(ctx, batch, n);
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"CTCLoss",
     "-log of the probability of a label sequence under all alignments, and its gradient",
     shape_loss},
    {"CTCGreedyDecoder", "the likeliest class of each step, without repetitions and blanks",
     shape_greedy},
    {"CTCBeamSearchDecoder", "the likeliest label sequences, found by a beam search",
     shape_beam_search},
};
// clang-format on

const struct op_def_list ctc_ops = {rows, ARRAY_LEN(rows)};
