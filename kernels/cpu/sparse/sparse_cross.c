/* Runs SparseCross, SparseCrossV2 and SparseCrossHashed: computes the feature crosses of sparse and
 * dense matrices, as a sparse matrix. */
#include <stdlib.h>

#include "kernels/cpu/sparse/cross.h"
#include "kernels/kernel.h"

extern const struct kernel_list sparse_cross_kernels;

struct cross_state {
    int64_t n_sparse, n_dense, n_buckets, key; /* n_buckets and key are SparseCross's attrs */
    bool refuses_ints;                         /* SparseCross only: the attrs promise strings */
};

static struct status *cross_init(struct kernel_init *init) {
    struct cross_state *state = xcalloc(1, sizeof(*state));
    const struct node *node = init->node;
    const struct attr_value *types;
    int n = 0;
    enum dtype internal = DT_INT64;
    init->state = state;
    TRY(node_get_i(node, "N", &state->n_sparse));
    TRY(node_get_list(node, "sparse_types", &types, &n));
    if (n != state->n_sparse)
        return status_invalid("Expected %lld input values, got %d", (long long)state->n_sparse, n);
    TRY(node_get_list(node, "dense_types", &types, &n));
    state->n_dense = n;
    if (!node_is_op(node, "SparseCross"))
        return NULL;
    TRY(node_get_i(node, "num_buckets", &state->n_buckets));
    TRY(node_get_i(node, "hash_key", &state->key));
    TRY(node_get_type(node, "internal_type", &internal));
    state->refuses_ints = internal == DT_STRING;
    return NULL;
}

struct inputs {
    /* rest: the first of the options that the newer ops have as inputs */
    const struct tensor *indices, *values, *shapes, *dense, *rest;
};

static struct inputs inputs_of(const struct kernel_ctx *ctx) {
    const struct cross_state *state = ctx->instance->state;
    const struct tensor *t = ctx->inputs;
    struct inputs in;
    in.indices = t;
    in.values = t += state->n_sparse;
    in.shapes = t += state->n_sparse;
    in.dense = t += state->n_sparse;
    in.rest = t + state->n_dense;
    return in;
}

static struct status *check_sparse(const struct cross_state *state, const struct inputs *in,
                                   int64_t i) {
    const struct tensor *indices = &in->indices[i], *values = &in->values[i],
                        *shape = &in->shapes[i];
    if (indices->rank != 2)
        return status_invalid(
            "Input indices should be a matrix but received shape %s at position %lld",
            TENSOR_SHAPE_TEXT(indices), (long long)i);
    if (tensor_dim(indices, 1) != 2)
        return status_invalid("Expected D2 of index to be 2 got %lld at position %lld",
                              (long long)tensor_dim(indices, 1), (long long)i);
    if (state->refuses_ints && values->dtype == DT_INT64)
        return status_invalid("Input values should be of internal type string but received int64");
    if (values->rank != 1)
        return status_invalid(
            "Input values should be a vector but received shape %s at position %lld",
            TENSOR_SHAPE_TEXT(values), (long long)i);
    if (values->n_elements != tensor_dim(indices, 0))
        return status_invalid("Expected size of values to be %lld got %lld at position %lld",
                              (long long)tensor_dim(indices, 0), (long long)values->n_elements,
                              (long long)i);
    if (shape->rank != 1)
        return status_invalid(
            "Input shapes should be a vector but received shape %s at position %lld",
            TENSOR_SHAPE_TEXT(shape), (long long)i);
    if (shape->n_elements != 2)
        return status_invalid("shape should imply a 2D tensor, but got %s at position %lld",
                              TENSOR_SHAPE_TEXT(shape), (long long)i);
    return NULL;
}

static struct status *check_inputs(const struct cross_state *state, const struct inputs *in,
                                   int64_t *ret_n_rows) {
    for (int64_t i = 0; i < state->n_sparse; i++)
        TRY(check_sparse(state, in, i));
    for (int64_t i = 0; i < state->n_dense; i++) {
        if (state->refuses_ints && in->dense[i].dtype == DT_INT64)
            return status_invalid(
                "Dense inputs should be of internal type string but received int64");
        if (in->dense[i].rank != 2)
            return status_invalid(
                "Dense inputs should be a matrix but received shape %s at position %lld",
                TENSOR_SHAPE_TEXT(&in->dense[i]), (long long)i);
    }
    int64_t n_rows = state->n_sparse > 0  ? tensor_index_at(&in->shapes[0], 0)
                     : state->n_dense > 0 ? tensor_dim(&in->dense[0], 0)
                                          : 0;
    for (int64_t i = 0; i < state->n_sparse + state->n_dense; i++) {
        int64_t own = i < state->n_sparse ? tensor_index_at(&in->shapes[i], 0)
                                          : tensor_dim(&in->dense[i - state->n_sparse], 0);
        if (own != n_rows || own < 0)
            return status_invalid("Expected batch size %lld got %lld at position %lld",
                                  (long long)n_rows, (long long)own, (long long)i);
    }
    *ret_n_rows = n_rows;
    return NULL;
}

static struct status *make_features(const struct kernel_ctx *ctx, const struct inputs *in,
                                    struct cross *cross) {
    const struct cross_state *state = ctx->instance->state;
    for (int64_t i = 0; i < state->n_sparse; i++)
        TRY(cross_feature_sparse(&cross->features[i], ctx->instance->allocator, &in->indices[i],
                                 &in->values[i], cross->n_rows, false));
    for (int64_t i = 0; i < state->n_dense; i++) {
        struct cross_feature *feature = &cross->features[state->n_sparse + i];
        feature->values = &in->dense[i];
        feature->width = tensor_dim(&in->dense[i], 1);
    }
    return NULL;
}

static struct status *write_crosses(struct kernel_ctx *ctx, const struct cross *cross) {
    int64_t total = 0, most = 0, n, two = 2, at = 0;
    for (int64_t row = 0; row < cross->n_rows; row++) {
        TRY(cross_count(cross, row, &n));
        most = MAX(most, n);
        if (add_overflows_i64(total, n, &total))
            return status_invalid("The crosses are too many to count");
    }
    TRY(kernel_alloc(ctx, 0, DT_INT64, (struct shape){2, (int64_t[]){total, 2}}));
    TRY(kernel_alloc(ctx, 1, (enum dtype)ctx->instance->out_types[1], (struct shape){1, &total}));
    TRY(kernel_alloc(ctx, 2, DT_INT64, (struct shape){1, &two}));
    ((int64_t *)tensor_data(&ctx->outputs[2]))[0] = cross->n_rows;
    ((int64_t *)tensor_data(&ctx->outputs[2]))[1] = most;
    int64_t *places = tensor_data(&ctx->outputs[0]);
    for (int64_t row = 0; row < cross->n_rows; row++) {
        TRY(cross_count(cross, row, &n));
        cross_write(cross, row, at, n, &ctx->outputs[1]);
        for (int64_t i = 0; i < n; i++) {
            places[2 * (at + i)] = row;
            places[2 * (at + i) + 1] = i;
        }
        at += n;
    }
    return NULL;
}

static struct status *run(struct kernel_ctx *ctx, struct cross *cross) {
    const struct cross_state *state = ctx->instance->state;
    struct inputs in = inputs_of(ctx);
    TRY(check_inputs(state, &in, &cross->n_rows));
    cross->n_features = (int)(state->n_sparse + state->n_dense);
    cross->features = cross_features_new(cross->n_features);
    struct status *st = make_features(ctx, &in, cross);
    if (!st)
        st = write_crosses(ctx, cross);
    cross_features_free(cross->features, cross->n_features);
    return st;
}

static enum kernel_result sparse_cross(struct kernel_ctx *ctx) {
    const struct cross_state *state = ctx->instance->state;
    struct cross cross = {.hash =
                              ctx->instance->out_types[1] == DT_STRING ? CROSS_TEXT : CROSS_HASH,
                          .separator = span_of("_X_"),
                          .key = (uint64_t)state->key,
                          .n_buckets = state->n_buckets};
    KERNEL_TRY(ctx, run(ctx, &cross));
    return KERNEL_DONE;
}

static enum kernel_result sparse_cross_v2(struct kernel_ctx *ctx) {
    const struct tensor *separator = inputs_of(ctx).rest;
    if (separator->rank != 0)
        return kernel_fail(ctx, status_invalid("Input separator should be a scalar. Received: %s",
                                               TENSOR_SHAPE_TEXT(separator)));
    struct cross cross = {.hash = CROSS_TEXT, .separator = tensor_string(separator, 0)};
    KERNEL_TRY(ctx, run(ctx, &cross));
    return KERNEL_DONE;
}

static enum kernel_result sparse_cross_hashed(struct kernel_ctx *ctx) {
    const struct tensor *n_buckets = inputs_of(ctx).rest, *strong = n_buckets + 1,
                        *salt = n_buckets + 2;
    if (n_buckets->n_elements != 1)
        return kernel_fail(ctx, status_invalid("Num buckets should be a scalar. Received: %s",
                                               TENSOR_SHAPE_TEXT(n_buckets)));
    if (strong->n_elements != 1)
        return kernel_fail(ctx, status_invalid("Strong hash should be a scalar. Received: %s",
                                               TENSOR_SHAPE_TEXT(strong)));
    if (salt->rank != 1 || salt->n_elements != 2)
        return kernel_fail(ctx, status_invalid("Input \"salt\" must have length 2 but has shape %s",
                                               TENSOR_SHAPE_TEXT(salt)));
    struct cross cross = {
        .hash = CROSS_HASH_SALTED,
        .n_buckets = tensor_index_at(n_buckets, 0),
        .is_strong = *(const bool *)tensor_cdata(strong),
        .salt = {(uint64_t)tensor_index_at(salt, 0), (uint64_t)tensor_index_at(salt, 1)}};
    KERNEL_TRY(ctx, run(ctx, &cross));
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "SparseCross", .constraints = {{"out_type", DTYPE_BIT(DT_INT64) | DTYPE_BIT(DT_STRING)},
        {"internal_type", DTYPE_BIT(DT_INT64) | DTYPE_BIT(DT_STRING)}},
     .compute = sparse_cross, .init = cross_init},
    {.op = "SparseCrossV2", .compute = sparse_cross_v2, .init = cross_init},
    {.op = "SparseCrossHashed", .compute = sparse_cross_hashed, .init = cross_init},
};
// clang-format on

const struct kernel_list sparse_cross_kernels = {rows, ARRAY_LEN(rows)};
