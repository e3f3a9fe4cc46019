/* Runs RaggedCross: computes the feature crosses of ragged, sparse and dense features, as a ragged
 * tensor. */
#include <stdlib.h>

#include "kernels/cpu/sparse/cross.h"
#include "kernels/cpu/sparse/ragged.h"
#include "kernels/kernel.h"

extern const struct kernel_list ragged_cross_kernels;

struct cross_state {
    int64_t n_ragged, n_sparse, n_dense, n_buckets, key;
    struct span order; /* one letter for each feature; borrowed from the node */
};

static struct status *count_list(const struct node *node, const char *attr, int64_t *ret) {
    const struct attr_value *values;
    int n = 0;
    TRY(node_get_list(node, attr, &values, &n));
    *ret = n;
    return NULL;
}

static struct status *ragged_cross_init(struct kernel_init *init) {
    struct cross_state *state = xcalloc(1, sizeof(*state));
    const struct node *node = init->node;
    int64_t n_splits, n_indices, n_letters[3] = {0};
    init->state = state;
    TRY(node_get_i(node, "num_buckets", &state->n_buckets));
    TRY(node_get_i(node, "hash_key", &state->key));
    TRY(node_get_i(node, "Nsparse", &n_indices));
    TRY(node_get_s(node, "input_order", &state->order));
    TRY(count_list(node, "ragged_values_types", &state->n_ragged));
    TRY(count_list(node, "ragged_splits_types", &n_splits));
    TRY(count_list(node, "sparse_values_types", &state->n_sparse));
    TRY(count_list(node, "dense_types", &state->n_dense));
    if (state->n_ragged != n_splits)
        return status_invalid("ragged values and splits must have the same length");
    if (state->n_sparse != n_indices)
        return status_invalid("sparse indices and values must have the same length");
    if ((size_t)(state->n_ragged + state->n_sparse + state->n_dense) != state->order.len)
        return status_invalid("Invalid length for input_order");
    for (size_t i = 0; i < state->order.len; i++)
        n_letters[state->order.data[i] == 'R' ? 0 : state->order.data[i] == 'S' ? 1 : 2]++;
    if (n_letters[0] != state->n_ragged || n_letters[1] != state->n_sparse ||
        n_letters[2] != state->n_dense)
        return status_invalid("input_order \"%.*s\" does not name the inputs that there are",
                              (int)MIN(state->order.len, (size_t)64), state->order.data);
    return NULL;
}

/* The inputs of each kind, as lists of tensors. */
struct inputs {
    const struct tensor *ragged_values, *ragged_splits, *indices, *sparse_values, *shapes, *dense;
};

static struct inputs inputs_of(const struct kernel_ctx *ctx) {
    const struct cross_state *state = ctx->instance->state;
    const struct tensor *t = ctx->inputs;
    struct inputs in;
    in.ragged_values = t;
    in.ragged_splits = t += state->n_ragged;
    in.indices = t += state->n_ragged;
    in.sparse_values = t += state->n_sparse;
    in.shapes = t += state->n_sparse;
    in.dense = t + state->n_sparse;
    return in;
}

static struct status *check_sparse(const struct inputs *in, int64_t i) {
    if (in->indices[i].rank != 2 || in->sparse_values[i].rank != 1 || in->shapes[i].rank != 1)
        return status_invalid("sparse inputs must have indices [N, R], values [N] and a shape [R]");
    int64_t n = tensor_dim(&in->indices[i], 0), rank = tensor_dim(&in->indices[i], 1);
    if (rank != in->shapes[i].n_elements)
        return status_invalid("sparse indices and shape have different sizes: %lld and %lld",
                              (long long)rank, (long long)in->shapes[i].n_elements);
    if (n != in->sparse_values[i].n_elements)
        return status_invalid("sparse indices and values have different sizes: %lld and %lld",
                              (long long)n, (long long)in->sparse_values[i].n_elements);
    if (rank != 2)
        return status_invalid("tf.ragged.cross only supports inputs with rank=2.");
    return NULL;
}

static struct status *check_inputs(const struct cross_state *state, const struct inputs *in,
                                   int64_t *ret_n_rows) {
    int64_t n_rows = -1;
    for (int64_t i = 0; i < state->n_ragged; i++) {
        if (in->ragged_values[i].rank != 1 || in->ragged_splits[i].rank != 1)
            return status_invalid("tf.ragged.cross only supports inputs with rank=2.");
        TRY(ragged_check_splits(&in->ragged_splits[i], in->ragged_values[i].n_elements, true));
    }
    for (int64_t i = 0; i < state->n_sparse; i++)
        TRY(check_sparse(in, i));
    for (int64_t i = 0; i < state->n_dense; i++)
        if (in->dense[i].rank != 2)
            return status_invalid("tf.ragged.cross only supports inputs with rank=2.");
    for (int64_t i = 0; i < state->n_ragged + state->n_sparse + state->n_dense; i++) {
        int64_t sparse = i - state->n_ragged, dense = sparse - state->n_sparse;
        int64_t own = sparse < 0  ? in->ragged_splits[i].n_elements - 1
                      : dense < 0 ? tensor_index_at(&in->shapes[sparse], 0)
                                  : tensor_dim(&in->dense[dense], 0);
        if (own < 0 || (n_rows >= 0 && own != n_rows))
            return status_invalid("inputs must all have the same batch dimension size.");
        n_rows = own;
    }
    *ret_n_rows = MAX(n_rows, (int64_t)0);
    return NULL;
}

static struct status *make_features(const struct kernel_ctx *ctx, const struct inputs *in,
                                    struct cross *cross) {
    const struct cross_state *state = ctx->instance->state;
    int64_t ragged = 0, sparse = 0, dense = 0;
    for (int i = 0; i < cross->n_features; i++) {
        struct cross_feature *feature = &cross->features[i];
        switch (state->order.data[i]) {
        case 'R':
            feature->values = &in->ragged_values[ragged];
            feature->splits = &in->ragged_splits[ragged++];
            break;
        case 'S':
            TRY(cross_feature_sparse(feature, ctx->instance->allocator, &in->indices[sparse],
                                     &in->sparse_values[sparse], cross->n_rows, true));
            sparse++;
            break;
        default:
            feature->values = &in->dense[dense];
            feature->width = tensor_dim(&in->dense[dense++], 1);
        }
    }
    return NULL;
}

static struct status *write_crosses(struct kernel_ctx *ctx, const struct cross *cross) {
    enum dtype splits_dtype = (enum dtype)ctx->instance->out_types[1];
    int64_t n_splits = cross->n_rows + 1, total = 0, n;
    TRY(kernel_alloc(ctx, 1, splits_dtype, (struct shape){1, &n_splits}));
    struct tensor *splits = &ctx->outputs[1];
    tensor_set_index(splits, 0, 0);
    for (int64_t row = 0; row < cross->n_rows; row++) {
        TRY(cross_count(cross, row, &n));
        if (add_overflows_i64(total, n, &total) || (splits_dtype == DT_INT32 && total > INT32_MAX))
            return status_invalid("Row splits are too large for out_row_splits_type");
        tensor_set_index(splits, row + 1, total);
    }
    TRY(kernel_alloc(ctx, 0, (enum dtype)ctx->instance->out_types[0], (struct shape){1, &total}));
    for (int64_t row = 0; row < cross->n_rows; row++) {
        int64_t first = tensor_index_at(splits, row);
        cross_write(cross, row, first, tensor_index_at(splits, row + 1) - first, &ctx->outputs[0]);
    }
    return NULL;
}

static enum kernel_result ragged_cross(struct kernel_ctx *ctx) {
    const struct cross_state *state = ctx->instance->state;
    struct inputs in = inputs_of(ctx);
    struct cross cross = {.n_features = (int)state->order.len,
                          .hash =
                              ctx->instance->out_types[0] == DT_STRING ? CROSS_TEXT : CROSS_HASH,
                          .separator = span_of("_X_"),
                          .key = (uint64_t)state->key,
                          .n_buckets = state->n_buckets};
    KERNEL_TRY(ctx, check_inputs(state, &in, &cross.n_rows));
    cross.features = cross_features_new(cross.n_features);
    struct status *st = make_features(ctx, &in, &cross);
    if (!st)
        st = write_crosses(ctx, &cross);
    cross_features_free(cross.features, cross.n_features);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

static const struct kernel_def rows[] = {
    {.op = "RaggedCross",
     .constraints = {{"out_row_splits_type", DTYPES_INDEX}},
     .compute = ragged_cross,
     .init = ragged_cross_init},
};

const struct kernel_list ragged_cross_kernels = {rows, ARRAY_LEN(rows)};
