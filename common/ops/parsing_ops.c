/* Lists the parsing family: ops that make tensors of bytes, records and serialized examples. */
#include "common/ops/op_def.h"

static struct status *append_unknown(struct shape_inference *ctx) {
    int64_t unknown = -1;
    return shape_concat(ctx, ctx->in[0], shape_make(ctx, 1, &unknown), &ctx->out[0]);
}

static struct status *shape_padded_raw(struct shape_inference *ctx) {
    const struct tensor *len = ctx->in_values[1];
    enum dtype dtype;
    int64_t last = -1;
    TRY(shape_require_rank(ctx, 1, 0, NULL));
    TRY(node_get_type(ctx->node, "out_type", &dtype));
    if (len && len->n_elements == 1) {
        int64_t bytes = tensor_index_at(len, 0), size = (int64_t)dtype_size(dtype);
        if (bytes > 0 && bytes % size == 0)
            last = bytes / size;
    }
    return shape_concat(ctx, ctx->in[0], shape_make(ctx, 1, &last), &ctx->out[0]);
}

static struct status *shape_csv(struct shape_inference *ctx) {
    for (int i = 1; i < ctx->node->n_data; i++) {
        struct shape preset = ctx->in[i];
        if (preset.rank > 1)
            return status_invalid(
                "Shape of a default must be a length-0 or length-1 vector, or a scalar.");
        if (preset.rank == 1 && preset.dims[0] > 1)
            return status_invalid(
                "Shape of a default must be a length-0 or length-1 vector, or a scalar.");
    }
    for (int i = 0; i < ctx->node->n_outputs; i++)
        ctx->out[i] = ctx->in[0];
    return NULL;
}

static struct status *shape_parse_tensor(struct shape_inference *ctx) {
    return shape_require_rank(ctx, 0, 0, NULL);
}

static struct status *shape_fingerprint(struct shape_inference *ctx) {
    TRY(shape_require_rank_at_least(ctx, 0, 1));
    TRY(shape_require_rank(ctx, 1, 0, NULL));
    int64_t dims[] = {ctx->in[0].rank > 0 ? ctx->in[0].dims[0] : -1, 8};
    ctx->out[0] = shape_make(ctx, 2, dims);
    return NULL;
}

/* ---- examples ---- */

/* What the shapes of the outputs of one level depend on. */
struct level {
    int n_sparse, n_dense, n_ragged;
    const struct attr_value *dense_shapes;
    bool is_list, has_lengths, is_of_sequence;
};

static void set_vectors(struct shape_inference *ctx, int *output, int n, int64_t size) {
    for (int i = 0; i < n; i++)
        ctx->out[(*output)++] = shape_make(ctx, 1, &size);
}

/* `batch`: the shape of `serialized`, SHAPE_UNKNOWN where it is unknown. */
static struct status *set_level(struct shape_inference *ctx, const struct level *level,
                                struct shape batch, int *output) {
    bool is_known = batch.rank >= 0;
    int64_t rank = is_known ? 1 + level->is_list + batch.rank : -1, indices[] = {-1, rank},
            steps = -1;
    for (int i = 0; i < level->n_sparse; i++)
        ctx->out[(*output)++] = shape_make(ctx, 2, indices);
    set_vectors(ctx, output, level->n_sparse, -1);
    set_vectors(ctx, output, level->n_sparse, rank);
    for (int i = 0; i < level->n_dense; i++) {
        struct shape *out = &ctx->out[(*output)++];
        if (!is_known)
            continue;
        TRY(shape_concat(ctx, batch, level->is_list ? shape_make(ctx, 1, &steps) : SHAPE_SCALAR,
                         out));
        TRY(shape_concat(ctx, *out, level->dense_shapes[i].shape, out));
    }
    for (int i = 0; i < level->n_dense && level->has_lengths; i++)
        ctx->out[(*output)++] = batch;
    set_vectors(ctx, output, level->n_ragged, -1);
    int64_t n_splits = batch.rank == 1 && batch.dims[0] >= 0 && batch.dims[0] < INT64_MAX
                           ? batch.dims[0] + 1
                       : batch.rank == 0 ? 0
                                         : -1;
    if (level->is_of_sequence && batch.rank <= 0) /* a scalar means a single example */
        *output += level->n_ragged;
    else
        set_vectors(ctx, output, level->n_ragged, n_splits);
    if (level->is_list)
        set_vectors(ctx, output, level->n_ragged, -1);
    return NULL;
}

/* Some ops count their outputs by attrs of their own, which a client may set to other numbers than
 * the lengths of the lists. */
static struct status *check_counts(const struct node *node, const struct level *levels,
                                   int n_levels) {
    int n = 0;
    for (int i = 0; i < n_levels; i++)
        n += 3 * levels[i].n_sparse + (1 + levels[i].has_lengths) * levels[i].n_dense +
             (2 + levels[i].is_list) * levels[i].n_ragged;
    return n == node->n_outputs
               ? NULL
               : status_invalid("The features' types ask for %d outputs, but there are %d", n,
                                node->n_outputs);
}

static struct status *shape_example(struct shape_inference *ctx) {
    struct level level = {0};
    const struct attr_value *unused;
    int n_shapes, output = 0;
    TRY(node_get_list_if_any(ctx->node, "sparse_types", &unused, &level.n_sparse));
    TRY(node_get_list_if_any(ctx->node, "Tdense", &unused, &level.n_dense));
    TRY(node_get_list_if_any(ctx->node, "ragged_value_types", &unused, &level.n_ragged));
    TRY(node_get_list_if_any(ctx->node, "dense_shapes", &level.dense_shapes, &n_shapes));
    if (n_shapes != level.n_dense)
        return status_invalid("len(dense_keys) != len(dense_shapes): %d vs. %d", level.n_dense,
                              n_shapes);
    TRY(check_counts(ctx->node, &level, 1));
    if (node_is_op(ctx->node, "ParseExample"))
        TRY(shape_require_rank(ctx, 0, 1, NULL));
    if (node_is_op(ctx->node, "ParseSingleExample"))
        TRY(shape_require_rank(ctx, 0, 0, NULL));
    struct shape batch = ctx->in[0];
    if (batch.rank > 1)
        return status_invalid("Shape must be at most rank 1 but is rank %d", batch.rank);
    if (node_is_op(ctx->node, "ParseExample") && batch.rank < 0)
        batch = shape_unknown_of_rank(ctx, 1);
    if (node_is_op(ctx->node, "ParseSingleExample"))
        batch = SHAPE_SCALAR;
    return set_level(ctx, &level, batch, &output);
}

static struct status *shape_sequence(struct shape_inference *ctx) {
    struct level context = {.is_of_sequence = true},
                 lists = {.is_list = true,
                          .is_of_sequence = true,
                          .has_lengths = !node_is_op(ctx->node, "ParseSingleSequenceExample")};
    const struct attr_value *unused;
    int n_shapes, n_list_shapes, output = 0;
    TRY(node_get_list_if_any(ctx->node, "context_sparse_types", &unused, &context.n_sparse));
    TRY(node_get_list_if_any(ctx->node, "Tcontext_dense", &unused, &context.n_dense));
    TRY(node_get_list_if_any(ctx->node, "context_ragged_value_types", &unused, &context.n_ragged));
    TRY(node_get_list_if_any(ctx->node, "context_dense_shapes", &context.dense_shapes, &n_shapes));
    TRY(node_get_list_if_any(ctx->node, "feature_list_sparse_types", &unused, &lists.n_sparse));
    TRY(node_get_list_if_any(ctx->node, "feature_list_dense_types", &unused, &lists.n_dense));
    TRY(node_get_list_if_any(ctx->node, "feature_list_ragged_value_types", &unused,
                             &lists.n_ragged));
    TRY(node_get_list_if_any(ctx->node, "feature_list_dense_shapes", &lists.dense_shapes,
                             &n_list_shapes));
    if (n_shapes != context.n_dense || n_list_shapes != lists.n_dense)
        return status_invalid("len(dense_keys) != len(dense_shapes)");
    TRY(check_counts(ctx->node, (struct level[]){context, lists}, 2));
    struct shape batch = ctx->in[0];
    if (node_is_op(ctx->node, "ParseSequenceExample"))
        TRY(shape_require_rank(ctx, 0, 1, &batch));
    if (node_is_op(ctx->node, "ParseSingleSequenceExample"))
        TRY(shape_require_rank(ctx, 0, 0, &batch));
    if (batch.rank > 1)
        return status_invalid("Shape must be at most rank 1 but is rank %d", batch.rank);
    TRY(set_level(ctx, &context, batch, &output));
    return set_level(ctx, &lists, batch, &output);
}

// clang-format off
static const struct op_def rows[] = {
    {"DecodeRaw", "the bytes of strings as numbers", append_unknown},
    {"DecodePaddedRaw", "the bytes of strings, cut or filled up to one length, as numbers",
     shape_padded_raw},
    {"DecodeCSV", "records of fields between delimiters, a tensor per field", shape_csv},
    {"DecodeJSONExample", "serialized Examples from JSON", shape_same_as_input},
    {"ParseTensor", "a tensor from its serialized proto", shape_parse_tensor},
    {"SerializeTensor", "a tensor's proto, serialized", shape_scalar},
    {"DecodeCompressed", "what zlib or gzip compressed", shape_same_as_input},
    {"Fingerprint", "a 64-bit hash of each row that never changes", shape_fingerprint},
    {"ParseExample", "serialized Examples, a tensor per feature", shape_example},
    {"ParseExampleV2", "serialized Examples, a tensor per feature", shape_example},
    {"ParseSingleExample", "a serialized Example, a tensor per feature", shape_example},
    {"ParseSequenceExample", "serialized SequenceExamples, a tensor per feature and feature list",
     shape_sequence},
    {"ParseSequenceExampleV2", "serialized SequenceExamples, a tensor per feature and feature list",
     shape_sequence},
    {"ParseSingleSequenceExample",
     "a serialized SequenceExample, a tensor per feature and feature list", shape_sequence},
};
// clang-format on

const struct op_def_list parsing_ops = {rows, ARRAY_LEN(rows)};
