/* Lists the Unicode family: ops from texts to characters and back. */
#include "common/ops/op_def.h"

static struct status *shape_decode(struct shape_inference *ctx) {
    int64_t n = 1;
    for (int i = 0; i < ctx->in[0].rank && n >= 0; i++)
        if (ctx->in[0].dims[i] < 0 || __builtin_mul_overflow(n, ctx->in[0].dims[i], &n))
            n = -1;
    int64_t n_splits = ctx->in[0].rank < 0 || n < 0 || n == INT64_MAX ? -1 : n + 1;
    ctx->out[0] = shape_make(ctx, 1, &n_splits);
    for (int i = 1; i < ctx->node->n_outputs; i++)
        ctx->out[i] = shape_unknown_of_rank(ctx, 1);
    return NULL;
}

static struct status *shape_encode(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 0, 1, NULL));
    TRY(shape_require_rank(ctx, 1, 1, NULL));
    int64_t n = ctx->in[1].rank == 1 ? ctx->in[1].dims[0] : -1;
    if (n == 0)
        return status_invalid("Dimension size must be at least 1: input_splits is empty");
    n = n < 0 ? -1 : n - 1;
    ctx->out[0] = shape_make(ctx, 1, &n);
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"UnicodeDecode", "the characters of texts, as a ragged matrix", shape_decode},
    {"UnicodeDecodeWithOffsets", "the characters of texts and where they begin, as ragged matrices",
     shape_decode},
    {"UnicodeEncode", "texts from their characters", shape_encode},
    {"UnicodeTranscode", "texts in another encoding", shape_same_as_input},
    {"UnicodeScript", "the script of each character, by ICU's numbers", shape_same_as_input},
};
// clang-format on

const struct op_def_list unicode_ops = {rows, ARRAY_LEN(rows)};
