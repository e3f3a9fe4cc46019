/* Lists the candidate samplers, which choose a few classes that stand for all others in a loss
 * (sampled softmax, NCE). */
#include "common/ops/op_def.h"

/* true_classes [batch, num_true] → sampled [num_sampled], expected counts of the true and of the
 * sampled ones. */
static struct status *shape_sampler(struct shape_inference *ctx) {
    struct shape classes;
    int64_t num_sampled, num_true;
    TRY(shape_require_rank(ctx, 0, 2, &classes));
    TRY(node_get_i(ctx->node, "num_sampled", &num_sampled));
    TRY(node_get_i(ctx->node, "num_true", &num_true));
    int64_t expected[2] = {classes.dims[0], num_true};
    ctx->out[0] = ctx->out[2] = shape_make(ctx, 1, &num_sampled);
    ctx->out[1] = shape_make(ctx, 2, expected);
    return NULL;
}

static struct status *shape_accidental_hits(struct shape_inference *ctx) {
    struct shape classes;
    int64_t num_true;
    TRY(node_get_i(ctx->node, "num_true", &num_true));
    TRY(shape_require_rank(ctx, 0, 2, &classes));
    if (classes.dims[1] >= 0 && classes.dims[1] != num_true)
        return status_invalid("Dimension must be %lld but is %lld", (long long)num_true,
                              (long long)classes.dims[1]);
    for (int i = 0; i < 3; i++)
        ctx->out[i] = shape_unknown_of_rank(ctx, 1);
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"UniformCandidateSampler", "classes drawn evenly, and their expected counts", shape_sampler},
    {"LogUniformCandidateSampler", "classes drawn by Zipf's law, and their expected counts",
     shape_sampler},
    {"LearnedUnigramCandidateSampler", "classes drawn by how often they were seen so far",
     shape_sampler},
    {"ThreadUnsafeUnigramCandidateSampler", "classes drawn by how often they were seen so far",
     shape_sampler},
    {"FixedUnigramCandidateSampler", "classes drawn by given weights", shape_sampler},
    {"AllCandidateSampler", "all classes, each expected once", shape_sampler},
    {"ComputeAccidentalHits", "the positions where sampled classes are true classes",
     shape_accidental_hits},
};
// clang-format on

const struct op_def_list candidate_ops = {rows, ARRAY_LEN(rows)};
