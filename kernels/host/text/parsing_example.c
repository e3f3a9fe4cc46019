/* Computes ParseExample, ParseExampleV2 and ParseSingleExample, which turn serialized
 * tf.train.Examples into a tensor for each feature. */
#include <stdlib.h>

#include "common/tensor/tensor_proto.h"
#include "kernels/host/text/parsing_features.h"
#include "kernels/host/text/parsing_internal.h"
#include "kernels/host/text/string_internal.h"

struct status *parsing_example_init(struct kernel_init *init) {
    struct feature_types *types = xcalloc(1, sizeof(*types));
    int n_shapes, n_splits, n_sparse_keys, n_dense_keys;
    int64_t n_sparse;
    init->state = types;
    bool is_single = node_is_op(init->node, "ParseSingleExample");
    TRY(node_get_list(init->node, "sparse_types", &types->sparse_types, &types->n_sparse));
    TRY(node_get_list(init->node, "Tdense", &types->dense_types, &types->n_dense));
    TRY(node_get_list(init->node, "dense_shapes", &types->dense_shapes, &n_shapes));
    TRY(node_get_list_if_any(init->node, "ragged_value_types", &types->ragged_types,
                             &types->n_ragged));
    TRY(node_get_list_if_any(init->node, "ragged_split_types", &types->split_types, &n_splits));
    TRY(node_get_list_if_any(init->node, "sparse_keys", &types->sparse_keys, &n_sparse_keys));
    TRY(node_get_list_if_any(init->node, "dense_keys", &types->dense_keys, &n_dense_keys));
    TRY(node_get_i(init->node, node_attr(init->node, "num_sparse") ? "num_sparse" : "Nsparse",
                   &n_sparse));
    if (n_sparse != types->n_sparse || (is_single && n_sparse_keys != types->n_sparse))
        return status_invalid("len(sparse_keys) != len(sparse_types)");
    if (is_single && n_dense_keys != types->n_dense)
        return status_invalid("len(dense_keys) != len(dense_types)");
    return feature_types_check(types, n_shapes, n_splits);
}

void parsing_example_fini(void *state) { free(state); }

/* ---- keys and defaults ---- */

/* Reads keys that are inputs of their own, from `input` on. */
static struct status *scalar_keys(struct kernel_ctx *ctx, int input, int n,
                                  struct feature *features) {
    for (int i = 0; i < n; i++) {
        const struct tensor *key = kernel_input(ctx, input + i);
        if (key->n_elements != 1)
            return status_invalid("Expected key %d to be a scalar", i);
        features[i].key = tensor_string(key, 0);
    }
    return NULL;
}

static struct status *vector_keys(struct kernel_ctx *ctx, int input, const char *what, int n,
                                  struct feature *features) {
    const struct tensor *keys = kernel_input(ctx, input);
    if (keys->n_elements != n)
        return status_invalid("Expected len(%s) == %d, but got: %lld", what, n,
                              (long long)keys->n_elements);
    for (int i = 0; i < n; i++)
        features[i].key = tensor_string(keys, i);
    return NULL;
}

static struct status *defaults(struct kernel_ctx *ctx, int input, struct feature_set *set) {
    for (int i = 0; i < set->types->n_dense; i++)
        TRY(feature_set_default(set, i, kernel_input(ctx, input + i)));
    return NULL;
}

/* ---- examples ---- */

enum { FIELD_FEATURES = 1 };

static struct status *parse_one(struct feature_set *set, struct span example,
                                const struct feature_place *place) {
    struct proto_field field;
    struct span in = example;
    int more;
    feature_set_reset(set);
    while ((more = proto_next(&in, &field)) > 0) {
        if (field.number == FIELD_FEATURES &&
            (field.wire_type != 2 || !feature_set_find(set, field.bytes)))
            more = -1;
        if (more < 0)
            break;
    }
    if (more < 0)
        return status_invalid("Could not parse example input, value: '%.*s'",
                              (int)MIN(example.len, 500), example.data);
    return feature_set_take(set, place);
}

enum { EXAMPLES_PER_POLL = 64 };

struct status *parsing_run_examples(struct kernel_ctx *ctx, struct feature_set *set,
                                    const struct tensor *serialized, const struct tensor *names,
                                    bool is_single) {
    int output = 0;
    feature_set_index(set);
    for (int64_t i = 0; i < serialized->n_elements; i++) {
        struct feature_place place = {names && names->n_elements > 0
                                          ? tensor_string(names, i)
                                          : (struct span){"<unknown>", 9},
                                      i};
        if (i % EXAMPLES_PER_POLL == 0)
            TRY(kernel_check_cancelled(ctx));
        TRY(parse_one(set, tensor_string(serialized, i), &place));
    }
    return feature_set_emit(set, ctx, serialized->n_elements, is_single, false, &output);
}

static struct status *parse_all(struct kernel_ctx *ctx, struct feature_set *set,
                                const struct tensor *names) {
    return parsing_run_examples(ctx, set, kernel_input(ctx, 0), names,
                                kernel_input(ctx, 0)->rank == 0);
}

static struct status *check_names(const struct tensor *serialized, const struct tensor *names) {
    if (names->n_elements == 0 ||
        (names->rank == serialized->rank && names->n_elements == serialized->n_elements))
        return NULL;
    return status_invalid("Expected len(names) == len(serialized), but got: %lld vs. %lld",
                          (long long)names->n_elements, (long long)serialized->n_elements);
}

static enum kernel_result end(struct kernel_ctx *ctx, struct feature_set *set, struct status *st) {
    feature_set_fini(set);
    return st ? kernel_fail(ctx, st) : KERNEL_DONE;
}

/* ParseExample: attrs Nsparse, Ndense, sparse_types, Tdense, dense_shapes.
 *   serialized      string [n]
 *   names           string [n] or [0], for errors
 *   sparse_keys, dense_keys   scalars
 *   dense_defaults  a tensor each
 *   of a sparse key   indices int64 [m, 2], values [m], shape int64 [2]
 *   of a dense key    values [n, dense_shape…]; with a first size of -1, as long as the longest,
 *                     padded with the default
 * Errors   INVALID_ARGUMENT   no Example, another type, another number of values, a missing dense
 *                             feature that has no default */
enum kernel_result parsing_example(struct kernel_ctx *ctx) {
    const struct feature_types *types = ctx->instance->state;
    const struct tensor *serialized = kernel_input(ctx, 0);
    struct feature_set set;
    struct status *st = feature_set_init(&set, types, false);
    if (!st && serialized->rank != 1)
        st = status_invalid("Expected serialized to be a vector, got rank %d", serialized->rank);
    if (!st)
        st = check_names(serialized, kernel_input(ctx, 1));
    if (!st)
        st = scalar_keys(ctx, 2, types->n_sparse + types->n_dense, set.features);
    if (!st)
        st = defaults(ctx, 2 + types->n_sparse + types->n_dense, &set);
    return end(ctx, &set, st ? st : parse_all(ctx, &set, kernel_input(ctx, 1)));
}

/* ParseExampleV2: as ParseExample, with vectors of keys. When serialized is a scalar, outputs have
 * no batch dimension.
 *   of a ragged key   values [m], row splits [n + 1]
 * Errors   as ParseExample */
enum kernel_result parsing_example_v2(struct kernel_ctx *ctx) {
    const struct feature_types *types = ctx->instance->state;
    const struct tensor *serialized = kernel_input(ctx, 0);
    struct feature_set set;
    struct status *st = feature_set_init(&set, types, false);
    if (!st && serialized->rank > 1)
        st = status_invalid("Expected serialized to be a scalar or vector, got rank %d",
                            serialized->rank);
    if (!st)
        st = check_names(serialized, kernel_input(ctx, 1));
    if (!st)
        st = vector_keys(ctx, 2, "sparse_keys", types->n_sparse, set.features);
    if (!st)
        st = vector_keys(ctx, 3, "dense_keys", types->n_dense, set.features + types->n_sparse);
    if (!st)
        st = vector_keys(ctx, 4, "ragged_keys", types->n_ragged,
                         set.features + types->n_sparse + types->n_dense);
    if (!st)
        st = defaults(ctx, 5, &set);
    return end(ctx, &set, st ? st : parse_all(ctx, &set, kernel_input(ctx, 1)));
}

/* ParseSingleExample: keys are attrs. serialized is a scalar, and outputs have no batch dimension.
 * Errors   as ParseExample */
enum kernel_result parsing_single_example(struct kernel_ctx *ctx) {
    const struct feature_types *types = ctx->instance->state;
    struct feature_set set;
    struct status *st = feature_set_init(&set, types, false);
    if (!st && kernel_input(ctx, 0)->rank != 0)
        st = status_invalid("Expected serialized to be a scalar, got rank %d",
                            kernel_input(ctx, 0)->rank);
    for (int i = 0; i < types->n_sparse; i++)
        set.features[i].key = types->sparse_keys[i].s;
    for (int i = 0; i < types->n_dense; i++)
        set.features[types->n_sparse + i].key = types->dense_keys[i].s;
    if (!st)
        st = defaults(ctx, 1, &set);
    return end(ctx, &set, st ? st : parse_all(ctx, &set, NULL));
}
