/* Lists the string family: ops from texts to texts, numbers, hashes and parts. */
#include "common/ops/op_def.h"

/* A scalar is joined with every element. The other inputs have one shape. */
static struct status *shape_join(struct shape_inference *ctx) {
    struct shape joined = SHAPE_SCALAR;
    bool may_be_scalar = true, is_open = false;
    for (int i = 0; i < ctx->node->n_data; i++) {
        if (ctx->in[i].rank < 0) {
            is_open = true;
        } else if (ctx->in[i].rank > 0) {
            TRY(shape_merge(ctx, may_be_scalar ? SHAPE_UNKNOWN : joined, ctx->in[i], &joined));
            may_be_scalar = false;
        }
    }
    ctx->out[0] = may_be_scalar && is_open ? SHAPE_UNKNOWN : joined;
    return NULL;
}

static struct status *shape_substr(struct shape_inference *ctx) {
    struct shape pos = ctx->in[1], len = ctx->in[2];
    if (pos.rank >= 0 && len.rank >= 0 && pos.rank != len.rank)
        return status_invalid("Shape must be rank %d but is rank %d", len.rank, pos.rank);
    TRY(shape_merge(ctx, pos, len, &pos));
    return shape_of_broadcast(ctx, ctx->in[0], pos, &ctx->out[0]);
}

static struct status *shape_split(struct shape_inference *ctx) {
    static const int64_t indices[] = {-1, 2}, values[] = {-1}, dense[] = {2};
    TRY(shape_require_rank(ctx, 0, 1, NULL));
    TRY(shape_require_rank(ctx, 1, 0, NULL));
    ctx->out[0] = (struct shape){2, indices};
    ctx->out[1] = (struct shape){1, values};
    ctx->out[2] = (struct shape){1, dense};
    return NULL;
}

static struct status *shape_segment_join(struct shape_inference *ctx) {
    struct shape inputs = ctx->in[0], ids = ctx->in[1];
    const struct tensor *n_segments = ctx->in_values[2];
    TRY(shape_require_rank(ctx, 2, 0, NULL));
    if (inputs.rank < 0 || ids.rank < 0)
        return NULL;
    if (ids.rank > inputs.rank)
        return status_invalid("Shape must be at least rank %d but is rank %d", ids.rank,
                              inputs.rank);
    TRY(shape_merge(ctx, ids, shape_sub(ctx, inputs, 0, ids.rank), &ids));
    int64_t n = n_segments ? tensor_index_at(n_segments, 0) : -1;
    if (n_segments && n < 0)
        return status_invalid(
            "Dimension size, given by scalar input 2, must be non-negative but is %lld",
            (long long)n);
    return shape_concat(ctx, shape_make(ctx, 1, &n), shape_sub(ctx, inputs, ids.rank, -1),
                        &ctx->out[0]);
}

static struct status *shape_regex_match(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 1, 0, NULL));
    return shape_same_as_input(ctx);
}

static struct status *shape_regex_replace(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 1, 0, NULL));
    TRY(shape_require_rank(ctx, 2, 0, NULL));
    return shape_same_as_input(ctx);
}

static struct status *shape_ngrams(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 0, 1, NULL));
    TRY(shape_require_rank(ctx, 1, 1, &ctx->out[1]));
    ctx->out[0] = shape_unknown_of_rank(ctx, 1);
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"StringLower", "lower case: of ASCII letters, or of all with encoding utf-8",
     shape_same_as_input},
    {"StringUpper", "upper case: of ASCII letters, or of all with encoding utf-8",
     shape_same_as_input},
    {"StringStrip", "without the spaces at both ends", shape_same_as_input},
    {"StringLength", "length in bytes, or in UTF-8 characters", shape_same_as_input},
    {"Substr", "len bytes (characters) from pos on", shape_substr},
    {"StringJoin", "joins strings element by element", shape_join},
    {"ReduceJoin", "joins strings along dimensions", shape_reduction},
    {"UnsortedSegmentJoin", "joins the strings of each segment", shape_segment_join},
    {"AsString", "each element as text", shape_same_as_input},
    {"StringToNumber", "the number in each string", shape_same_as_input},
    {"StringFormat", "a template filled with tensors as text", shape_scalar},
    {"StringToHashBucketFast", "FarmHash fingerprint modulo num_buckets", shape_same_as_input},
    {"StringToHashBucket", "Murmur hash modulo num_buckets", shape_same_as_input},
    {"StringToHashBucketStrong", "keyed SipHash modulo num_buckets", shape_same_as_input},
    {"StaticRegexFullMatch", "does each text as a whole match a pattern?", shape_same_as_input},
    {"RegexFullMatch", "does each text as a whole match a pattern?", shape_regex_match},
    {"StaticRegexReplace", "each text with a pattern's matches replaced", shape_same_as_input},
    {"RegexReplace", "each text with a pattern's matches replaced", shape_regex_replace},
    {"EncodeBase64", "URL-safe base64", shape_same_as_input},
    {"DecodeBase64", "bytes from URL-safe base64", shape_same_as_input},
    {"StringNGrams", "runs of neighbouring strings in each ragged row, joined", shape_ngrams},
    {"StringSplit", "parts between any of the delimiter's bytes, as a sparse matrix", shape_split},
    {"StringSplitV2", "parts between separators, as a sparse matrix", shape_split},
};
// clang-format on

const struct op_def_list string_ops = {rows, ARRAY_LEN(rows)};
