/* Lists the nn family: biases, activations, softmax and its losses, the largest entries of a
 * row. */
#include "common/ops/op_def.h"

/* ---- shapes ---- */

static struct status *shape_softmax(struct shape_inference *ctx) {
    TRY(shape_require_rank_at_least(ctx, 0, 1));
    return shape_same_as_input(ctx);
}

/* The index of the channels; -1 while the rank is unknown. */
static struct status *channel_dim(struct shape_inference *ctx, int *ret) {
    TRY(shape_require_rank_at_least(ctx, 0, 2));
    struct span format = {"NHWC", 4};
    if (node_attr(ctx->node, "data_format"))
        TRY(node_get_s(ctx->node, "data_format", &format));
    int rank = ctx->in[0].rank;
    *ret = rank < 0 ? -1 : span_is(format, "NCHW") ? 1 : rank - 1;
    return NULL;
}

static struct status *shape_bias_add(struct shape_inference *ctx) {
    struct shape value = ctx->in[0], bias;
    int channel;
    TRY(channel_dim(ctx, &channel));
    TRY(shape_require_rank(ctx, 1, 1, &bias));
    ctx->out[0] = value;
    if (channel < 0)
        return NULL;
    int64_t *dims = arena_memdup(ctx->arena, value.dims, (size_t)value.rank * sizeof(*dims));
    TRY(shape_merge_dims(dims[channel], bias.dims[0], &dims[channel]));
    ctx->out[0] = (struct shape){value.rank, dims};
    return NULL;
}

static struct status *shape_bias_add_grad(struct shape_inference *ctx) {
    int channel;
    TRY(channel_dim(ctx, &channel));
    ctx->out[0] = channel < 0 ? shape_unknown_of_rank(ctx, 1)
                              : shape_sub(ctx, ctx->in[0], channel, channel + 1);
    return NULL;
}

/* What one operand alone says about a broadcast to a matrix: sizes above 1 are kept, and others are
 * unknown. */
static struct shape open_matrix(struct shape_inference *ctx, struct shape shape) {
    int64_t dims[2] = {-1, -1};
    for (int i = 1; i <= MIN(shape.rank, 2); i++) {
        int64_t dim = shape.dims[shape.rank - i];
        dims[2 - i] = dim == 1 ? -1 : dim;
    }
    return shape_make(ctx, 2, dims);
}

static struct status *shape_softmax_xent(struct shape_inference *ctx) {
    struct shape features = ctx->in[0], labels = ctx->in[1], matrix;
    if (features.rank < 0 || labels.rank < 0)
        matrix = open_matrix(ctx, features.rank < 0 ? labels : features);
    else
        TRY(shape_of_broadcast(ctx, features, labels, &matrix));
    if (MAX(features.rank, labels.rank) > 2 || matrix.rank != 2)
        return status_invalid("Shape must be broadcasted with rank 2, but is rank %d.",
                              MAX(features.rank, labels.rank));
    ctx->out[0] = shape_sub(ctx, matrix, 0, 1);
    ctx->out[1] = matrix;
    return NULL;
}

static struct status *shape_sparse_softmax_xent(struct shape_inference *ctx) {
    struct shape features, labels;
    TRY(shape_require_rank(ctx, 0, 2, &features));
    TRY(shape_require_rank(ctx, 1, 1, &labels));
    int64_t dims[2] = {features.dims[0], features.dims[1]};
    TRY(shape_merge_dims(dims[0], labels.dims[0], &dims[0]));
    ctx->out[0] = shape_make(ctx, 1, dims);
    ctx->out[1] = shape_make(ctx, 2, dims);
    return NULL;
}

static struct status *shape_in_top_k(struct shape_inference *ctx) {
    struct shape predictions, targets;
    TRY(shape_require_rank(ctx, 0, 2, &predictions));
    TRY(shape_require_rank(ctx, 1, 1, &targets));
    int64_t rows;
    TRY(shape_merge_dims(predictions.dims[0], targets.dims[0], &rows));
    ctx->out[0] = shape_make(ctx, 1, &rows);
    return NULL;
}

/* k from the attr or from a constant input; -1 while unknown. */
static struct status *scalar_of(struct shape_inference *ctx, const char *attr, int64_t *ret) {
    *ret = -1;
    if (node_attr(ctx->node, attr)) {
        TRY(node_get_i(ctx->node, attr, ret));
    } else {
        if (ctx->in[1].rank > 0)
            return status_invalid("Input must be scalar but has rank %d", ctx->in[1].rank);
        const struct tensor *value = ctx->in_values[1];
        if (!value)
            return NULL;
        *ret = value->dtype == DT_INT16 ? *(const int16_t *)tensor_cdata(value)
                                        : tensor_index_at(value, 0);
    }
    if (*ret < 0)
        return status_invalid(
            "Dimension size, given by scalar input 1, must be non-negative but is %lld",
            (long long)*ret);
    return NULL;
}

static struct status *shape_top_k(struct shape_inference *ctx) {
    struct shape input = ctx->in[0];
    int64_t k;
    TRY(shape_require_rank_at_least(ctx, 0, 1));
    TRY(scalar_of(ctx, "k", &k));
    if (input.rank < 0)
        return NULL;
    int64_t cols = input.dims[input.rank - 1];
    if (cols >= 0 && k > cols)
        return status_invalid("input must have last dimension >= k = %lld but is %lld",
                              (long long)k, (long long)cols);
    int64_t *dims = arena_memdup(ctx->arena, input.dims, (size_t)input.rank * sizeof(*dims));
    dims[input.rank - 1] = k;
    ctx->out[0] = ctx->out[1] = (struct shape){input.rank, dims};
    return NULL;
}

static struct status *shape_nth_element(struct shape_inference *ctx) {
    struct shape input = ctx->in[0];
    int64_t n;
    TRY(shape_require_rank_at_least(ctx, 0, 1));
    TRY(scalar_of(ctx, "n", &n));
    if (input.rank < 0)
        return NULL;
    int64_t cols = input.dims[input.rank - 1];
    if (cols >= 0 && n >= cols)
        return status_invalid("Input must have last dimension > n = %lld but is %lld", (long long)n,
                              (long long)cols);
    ctx->out[0] = shape_sub(ctx, input, 0, input.rank - 1);
    return NULL;
}

/* ---- rows ---- */

// clang-format off
static const struct op_def rows[] = {
    {"BiasAdd", "adds a vector along the channels: the last dimension, or dimension 1 in NCHW",
     shape_bias_add},
    {"BiasAddV1", "adds a vector along the last dimension", shape_bias_add},
    {"BiasAddGrad", "sums over all dimensions but the channels", shape_bias_add_grad},
    {"Relu", "max(features, 0)", shape_same_as_input},
    {"ReluGrad", "gradients where features > 0, else 0", shape_merge_two_inputs},
    {"Relu6", "min(max(features, 0), 6)", shape_same_as_input},
    {"Relu6Grad", "gradients where 0 < features < 6, else 0", shape_merge_two_inputs},
    {"LeakyRelu", "features where positive, else alpha · features", shape_same_as_input},
    {"LeakyReluGrad", "gradients where features > 0, else alpha · gradients",
     shape_merge_two_inputs},
    {"Elu", "features where not negative, else exp(features) - 1", shape_same_as_input},
    {"EluGrad", "gradients where outputs are not negative, else gradients · (outputs + 1)",
     shape_merge_two_inputs},
    {"Selu", "scaled Elu, whose activations tend to mean 0 and variance 1", shape_same_as_input},
    {"SeluGrad", "gradients of Selu, from its outputs", shape_merge_two_inputs},
    {"Softplus", "log(1 + exp(features))", shape_same_as_input},
    {"SoftplusGrad", "gradients / (1 + exp(-features))", shape_merge_two_inputs},
    {"Softsign", "features / (1 + |features|)", shape_same_as_input},
    {"SoftsignGrad", "gradients / (1 + |features|)²", shape_merge_two_inputs},
    {"Softmax", "exp(logits), scaled to sum 1 along the last dimension", shape_softmax},
    {"LogSoftmax", "logits - log(sum of exp(logits)) along the last dimension", shape_softmax},
    {"SoftmaxCrossEntropyWithLogits",
     "cross entropy of softmax(features) with labels, and its gradient", shape_softmax_xent},
    {"SparseSoftmaxCrossEntropyWithLogits",
     "cross entropy of softmax(features) with one class per row, and its gradient",
     shape_sparse_softmax_xent},
    {"InTopK", "is each target among its row's k largest predictions?", shape_in_top_k},
    {"InTopKV2", "is each target among its row's k largest predictions?", shape_in_top_k},
    {"TopK", "the k largest elements of each row, and their columns", shape_top_k},
    {"TopKV2", "the k largest elements of each row, and their columns", shape_top_k},
    {"NthElement", "the element at place n of each row, were it sorted", shape_nth_element},
    {"L2Loss", "half the sum of squares", shape_scalar},
    {"IsotonicRegression", "the closest rows that never rise", shape_same_as_input},
};
// clang-format on

const struct op_def_list nn_ops = {rows, ARRAY_LEN(rows)};
