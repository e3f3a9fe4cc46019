/* Lists the io family: files and checkpoints. */
#include "common/io/tensor_slice.h"
#include "common/ops/op_def.h"

static struct status *require_scalars(struct shape_inference *ctx, int n) {
    for (int i = 0; i < n; i++)
        TRY(shape_require_rank(ctx, i, 0, NULL));
    return NULL;
}

static struct status *shape_scalars(struct shape_inference *ctx) {
    TRY(require_scalars(ctx, ctx->node->n_data));
    return ctx->node->n_outputs > 0 ? shape_scalar(ctx) : NULL;
}

/* Inputs [1, end) are vectors with an entry for each tensor. */
static struct status *require_lists(struct shape_inference *ctx, int end, int64_t n) {
    struct shape vector;
    int64_t unused;
    for (int i = 1; i < end; i++) {
        TRY(shape_require_rank(ctx, i, 1, &vector));
        TRY(shape_merge_dims(vector.dims[0], n, &unused));
    }
    return NULL;
}

/* names, specs (with has_specs), tensors follow the file name */
static struct status *shape_save_of(struct shape_inference *ctx, int n_fixed) {
    TRY(require_scalars(ctx, 1));
    return require_lists(ctx, n_fixed, ctx->node->n_data - n_fixed);
}
static struct status *shape_save_v2(struct shape_inference *ctx) { return shape_save_of(ctx, 3); }
static struct status *shape_save(struct shape_inference *ctx) { return shape_save_of(ctx, 2); }

/* The shape of the slice of a known spec; the graph does not know the shape of the tensor. */
static struct status *shape_of_spec(struct shape_inference *ctx, struct span spec,
                                    struct shape *ret) {
    struct shape whole;
    struct tensor_slice slice;
    *ret = SHAPE_UNKNOWN;
    return spec.len > 0 ? tensor_slice_parse_spec(spec, ctx->arena, &whole, &slice, ret) : NULL;
}

static struct status *shape_restore_v2(struct shape_inference *ctx) {
    struct shape names, specs;
    const struct tensor *known = ctx->in_values[2];
    TRY(require_scalars(ctx, 1));
    TRY(shape_require_rank(ctx, 1, 1, &names));
    TRY(shape_require_rank(ctx, 2, 1, &specs));
    TRY(shape_merge(ctx, names, specs, &specs));
    if (!known)
        return NULL;
    if (known->n_elements != ctx->node->n_outputs)
        return status_invalid("The number of shape_and_slice doesn't match tensor outputs.");
    for (int i = 0; i < ctx->node->n_outputs; i++)
        TRY(shape_of_spec(ctx, tensor_string(known, i), &ctx->out[i]));
    return NULL;
}

static struct status *shape_restore(struct shape_inference *ctx) { return require_scalars(ctx, 2); }

static struct status *shape_restore_slice(struct shape_inference *ctx) {
    TRY(require_scalars(ctx, 3));
    return ctx->in_values[2] ? shape_of_spec(ctx, tensor_string(ctx->in_values[2], 0), &ctx->out[0])
                             : NULL;
}

static struct status *shape_merge_v2(struct shape_inference *ctx) {
    TRY(shape_require_rank(ctx, 0, 1, NULL));
    return shape_require_rank(ctx, 1, 0, NULL);
}

static struct status *shape_matching(struct shape_inference *ctx) {
    if (ctx->in[0].rank > 1)
        return status_invalid("Shape must be at most rank 1 but is rank %d", ctx->in[0].rank);
    ctx->out[0] = shape_unknown_of_rank(ctx, 1);
    return NULL;
}

static struct status *shape_vocab_remapping(struct shape_inference *ctx) {
    int64_t n;
    TRY(shape_require_rank(ctx, 0, 0, NULL));
    TRY(shape_require_rank(ctx, 1, 0, NULL));
    TRY(node_get_i(ctx->node, "num_new_vocab", &n));
    ctx->out[0] = shape_make(ctx, 1, &n);
    ctx->out[1] = SHAPE_SCALAR;
    return NULL;
}

static struct status *shape_remap_matrix(struct shape_inference *ctx) {
    int64_t dims[2];
    TRY(node_get_i(ctx->node, "num_rows", &dims[0])); /* the kernel checks the inputs */
    TRY(node_get_i(ctx->node, "num_cols", &dims[1]));
    ctx->out[0] = shape_make(ctx, 2, dims);
    return NULL;
}

// clang-format off
static const struct op_def rows[] = {
    {"SaveV2", "writes tensors as a checkpoint (V2), durably", shape_save_v2},
    {"RestoreV2", "tensors of a checkpoint (V2, or V1)", shape_restore_v2},
    {"MergeV2Checkpoints", "makes one checkpoint of the parts of a sharded save", shape_merge_v2},
    {"Save", "writes tensors as a checkpoint (V1), durably", shape_save},
    {"SaveSlices", "writes tensors and slices as a checkpoint (V1), durably", shape_save_v2},
    {"Restore", "a tensor of a checkpoint (V1)", shape_restore},
    {"RestoreSlice", "a slice of a tensor of a checkpoint (V1)", shape_restore_slice},
    {"ShardedFilename", "the name of a shard's file", shape_scalars},
    {"ShardedFilespec", "the pattern of all shards' names", shape_scalars},
    {"ReadFile", "the contents of a file", shape_scalars},
    {"WriteFile", "writes a file, and the directories above it", shape_scalars},
    {"GenerateVocabRemapping", "where each word of a vocabulary stood in an older one",
     shape_vocab_remapping},
    {"LoadAndRemapMatrix", "a checkpoint's matrix with its rows and columns in other places",
     shape_remap_matrix},
    {"MatchingFiles", "the files that match patterns, sorted", shape_matching},
};
// clang-format on

const struct op_def_list io_ops = {rows, ARRAY_LEN(rows)};
