/* Computes ParseSequenceExample, ParseSequenceExampleV2 and ParseSingleSequenceExample, which read
 * serialized tf.train.SequenceExamples. Their features have two levels: those of the whole example
 * (context), and those of each step (feature lists). */
#include <stdio.h>
#include <stdlib.h>

#include "common/tensor/tensor_proto.h"
#include "kernels/host/text/parsing_features.h"
#include "kernels/host/text/parsing_internal.h"
#include "kernels/host/text/string_internal.h"

struct sequence_state {
    struct feature_types context, lists;
    const struct attr_value *is_optional; /* the first version's list of keys */
    int n_may_miss;
};

/* Reads the attrs "context_…" or "feature_list_…". */
static struct status *read_types(const struct node *node, bool is_context,
                                 struct feature_types *types) {
    const char *prefix = is_context ? "context" : "feature_list";
    char name[64];
    int n_shapes, n_splits, n_keys;
#define ATTR(what) (snprintf(name, sizeof(name), "%s_%s", prefix, what), name)
    TRY(node_get_list_if_any(node, ATTR("sparse_types"), &types->sparse_types, &types->n_sparse));
    TRY(node_get_list_if_any(node, is_context ? "Tcontext_dense" : "feature_list_dense_types",
                             &types->dense_types, &types->n_dense));
    TRY(node_get_list_if_any(node, ATTR("dense_shapes"), &types->dense_shapes, &n_shapes));
    TRY(node_get_list_if_any(node, ATTR("ragged_value_types"), &types->ragged_types,
                             &types->n_ragged));
    TRY(node_get_list_if_any(node, ATTR("ragged_split_types"), &types->split_types, &n_splits));
    TRY(node_get_list_if_any(node, ATTR("sparse_keys"), &types->sparse_keys, &n_keys));
    if (types->sparse_keys && n_keys != types->n_sparse)
        return status_invalid("len(%s_sparse_keys) != len(%s_sparse_types)", prefix, prefix);
    TRY(node_get_list_if_any(node, ATTR("dense_keys"), &types->dense_keys, &n_keys));
    if (types->dense_keys && n_keys != types->n_dense)
        return status_invalid("len(%s_dense_keys) != len(%s_dense_types)", prefix, prefix);
#undef ATTR
    for (int i = 0; i < n_shapes; i++)
        if (!shape_is_full(types->dense_shapes[i].shape))
            return status_invalid("%s_dense_shapes[%d] is not fully defined", prefix, i);
    return feature_types_check(types, n_shapes, n_splits);
}

struct status *parsing_sequence_init(struct kernel_init *init) {
    static const char *const counts[] = {"Ncontext_sparse", "Ncontext_dense",
                                         "Nfeature_list_sparse", "Nfeature_list_dense"};
    struct sequence_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(read_types(init->node, true, &state->context));
    TRY(read_types(init->node, false, &state->lists));
    const int n[] = {state->context.n_sparse, state->context.n_dense, state->lists.n_sparse,
                     state->lists.n_dense};
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        int64_t said;
        if (!node_attr(init->node, counts[i]))
            continue;
        TRY(node_get_i(init->node, counts[i], &said));
        if (said != n[i])
            return status_invalid("%s is %lld, but there are types for %d", counts[i],
                                  (long long)said, n[i]);
    }
    const struct attr_value *is_optional =
        node_attr(init->node, "feature_list_dense_missing_assumed_empty");
    return is_optional ? node_get_list(init->node, "feature_list_dense_missing_assumed_empty",
                                       &state->is_optional, &state->n_may_miss)
                       : NULL;
}

/* ---- keys ---- */

static struct status *attr_keys(const struct attr_value *keys, int n, struct feature *features) {
    for (int i = 0; i < n; i++)
        features[i].key = keys[i].s;
    return NULL;
}

static struct status *scalar_keys(struct kernel_ctx *ctx, int input, int n,
                                  struct feature *features) {
    for (int i = 0; i < n; i++) {
        if (kernel_input(ctx, input + i)->n_elements != 1)
            return status_invalid("Expected key %d to be a scalar", i);
        features[i].key = tensor_string(kernel_input(ctx, input + i), 0);
    }
    return NULL;
}

static struct status *vector_keys(struct kernel_ctx *ctx, int input, const char *what, int n,
                                  struct feature *features) {
    const struct tensor *keys = kernel_input(ctx, input);
    if (keys->rank != 1 || keys->n_elements != n)
        return status_invalid("Expected %s to be a vector of %d keys, got %lld", what, n,
                              (long long)keys->n_elements);
    for (int i = 0; i < n; i++)
        features[i].key = tensor_string(keys, i);
    return NULL;
}

static void allow_missing(struct feature_set *lists, struct span key) {
    struct feature *dense = lists->features + lists->types->n_sparse;
    for (int i = 0; i < lists->types->n_dense; i++)
        if (dense[i].key.len == key.len && memcmp(dense[i].key.data, key.data, key.len) == 0)
            dense[i].is_optional = true;
}

/* ---- examples ---- */

struct sequence {
    struct kernel_ctx *ctx;
    const struct sequence_state *state;
    struct feature_set context, lists;
    const struct tensor *serialized, *names;
};

static struct status *sequence_init(struct sequence *sequence, struct kernel_ctx *ctx,
                                    int names_input) {
    *sequence = (struct sequence){ctx, ctx->instance->state, .serialized = kernel_input(ctx, 0),
                                  .names = kernel_input(ctx, names_input)};
    TRY(feature_set_init(&sequence->context, &sequence->state->context, false));
    TRY(feature_set_init(&sequence->lists, &sequence->state->lists, true));
    sequence->context.is_of_sequence = sequence->lists.is_of_sequence = true;
    return NULL;
}

static enum kernel_result sequence_end(struct sequence *sequence, struct status *st) {
    feature_set_fini(&sequence->context);
    feature_set_fini(&sequence->lists);
    return st ? kernel_fail(sequence->ctx, st) : KERNEL_DONE;
}

static struct status *check_shapes(const struct sequence *sequence, int rank) {
    const struct tensor *serialized = sequence->serialized, *names = sequence->names;
    if (rank >= 0 && serialized->rank != rank)
        return status_invalid("Expected serialized to be a %s, got rank %d",
                              rank ? "vector" : "scalar", serialized->rank);
    if (serialized->rank > 1)
        return status_invalid("Expected serialized to be a scalar or vector, got rank %d",
                              serialized->rank);
    if (names->n_elements != 0 && names->n_elements != serialized->n_elements)
        return status_invalid("Expected len(debug_name) == len(serialized), but got: %lld vs. %lld",
                              (long long)names->n_elements, (long long)serialized->n_elements);
    return NULL;
}

static struct status *defaults(struct sequence *sequence, int input) {
    for (int i = 0; i < sequence->state->context.n_dense; i++)
        TRY(feature_set_default(&sequence->context, i, kernel_input(sequence->ctx, input + i)));
    return NULL;
}

enum { FIELD_CONTEXT = 1, FIELD_LISTS = 2 };

static struct status *parse_one(struct sequence *sequence, struct span example,
                                const struct feature_place *place) {
    struct proto_field field;
    struct span in = example;
    int more;
    feature_set_reset(&sequence->context);
    feature_set_reset(&sequence->lists);
    while ((more = proto_next(&in, &field)) > 0) {
        if (field.number != FIELD_CONTEXT && field.number != FIELD_LISTS)
            continue;
        struct feature_set *set =
            field.number == FIELD_CONTEXT ? &sequence->context : &sequence->lists;
        if (field.wire_type != 2 || !feature_set_find(set, field.bytes)) {
            more = -1;
            break;
        }
    }
    if (more < 0)
        return status_invalid("Invalid protocol message input, example id: %.*s",
                              (int)place->name.len, place->name.data);
    TRY(feature_set_take(&sequence->context, place));
    return feature_set_take(&sequence->lists, place);
}

static struct status *parse_all(struct sequence *sequence, bool has_lengths) {
    const struct tensor *serialized = sequence->serialized, *names = sequence->names;
    int64_t n = serialized->n_elements;
    bool is_single = serialized->rank == 0;
    int output = 0;
    feature_set_index(&sequence->context);
    feature_set_index(&sequence->lists);
    for (int64_t i = 0; i < n; i++) {
        struct feature_place place = {
            names->n_elements > 0 ? tensor_string(names, i) : (struct span){"<unknown>", 9}, i};
        TRY(parse_one(sequence, tensor_string(serialized, i), &place));
    }
    TRY(feature_set_emit(&sequence->context, sequence->ctx, n, is_single, false, &output));
    return feature_set_emit(&sequence->lists, sequence->ctx, n, is_single, has_lengths, &output);
}

/* ---- kernels ---- */

/* ParseSequenceExample: keys are attrs.
 *   serialized              string [n]
 *   debug_name              string [n] or [0]
 *   context_dense_defaults  a tensor each
 *   context features are as in ParseExample; of feature lists:
 *   sparse   indices int64 [m, 3] (example, step, position), values [m], shape int64 [3]
 *   dense    values [n, most steps, shape…], padded with zeros; lengths int64 [n]
 * Errors   INVALID_ARGUMENT   as ParseExample; a dense list that is missing and not in
 *                             feature_list_dense_missing_assumed_empty */
enum kernel_result parsing_sequence(struct kernel_ctx *ctx) {
    struct sequence s;
    struct status *st = sequence_init(&s, ctx, 1);
    if (!st)
        st = check_shapes(&s, 1);
    if (!st) {
        st = attr_keys(s.state->context.sparse_keys, s.state->context.n_sparse, s.context.features);
        st = attr_keys(s.state->context.dense_keys, s.state->context.n_dense,
                       s.context.features + s.state->context.n_sparse);
        st = attr_keys(s.state->lists.sparse_keys, s.state->lists.n_sparse, s.lists.features);
        st = attr_keys(s.state->lists.dense_keys, s.state->lists.n_dense,
                       s.lists.features + s.state->lists.n_sparse);
        for (int i = 0; i < s.state->n_may_miss; i++)
            allow_missing(&s.lists, s.state->is_optional[i].s);
        st = defaults(&s, 2);
    }
    return sequence_end(&s, st ? st : parse_all(&s, true));
}

static struct status *level_keys(struct kernel_ctx *ctx, int input, struct feature_set *set) {
    const struct feature_types *types = set->types;
    TRY(vector_keys(ctx, input, "sparse_keys", types->n_sparse, set->features));
    TRY(vector_keys(ctx, input + 1, "dense_keys", types->n_dense, set->features + types->n_sparse));
    return vector_keys(ctx, input + 2, "ragged_keys", types->n_ragged,
                       set->features + types->n_sparse + types->n_dense);
}

static struct status *optional_flags(struct kernel_ctx *ctx, int input, struct feature_set *lists) {
    const struct tensor *flags = kernel_input(ctx, input);
    if (flags->n_elements != lists->types->n_dense)
        return status_invalid(
            "Expected len(feature_list_dense_missing_assumed_empty) == %d, but got: %lld",
            lists->types->n_dense, (long long)flags->n_elements);
    for (int64_t i = 0; i < flags->n_elements; i++)
        lists->features[lists->types->n_sparse + i].is_optional =
            ((const bool *)tensor_cdata(flags))[i];
    return NULL;
}

/* ParseSequenceExampleV2: as ParseSequenceExample, with vectors of keys. When serialized is a
 * scalar, outputs have no batch dimension.
 *   ragged lists   values [m], outer_ends splits [n + 1] (steps of each example), inner splits
 *                  [steps + 1]
 * Errors   as ParseSequenceExample */
enum kernel_result parsing_sequence_v2(struct kernel_ctx *ctx) {
    struct sequence s;
    struct status *st = sequence_init(&s, ctx, 1);
    if (!st)
        st = check_shapes(&s, -1);
    if (!st)
        st = level_keys(ctx, 2, &s.context);
    if (!st)
        st = level_keys(ctx, 5, &s.lists);
    if (!st)
        st = optional_flags(ctx, 8, &s.lists);
    if (!st)
        st = defaults(&s, 9);
    return sequence_end(&s, st ? st : parse_all(&s, true));
}

/* ParseSingleSequenceExample: one example, and each key is an input. Outputs have no batch
 * dimension, and dense lists have no lengths.
 * Errors   as ParseSequenceExample */
enum kernel_result parsing_single_sequence(struct kernel_ctx *ctx) {
    const struct sequence_state *state = ctx->instance->state;
    int n_context = state->context.n_sparse + state->context.n_dense,
        n_lists = state->lists.n_sparse + state->lists.n_dense;
    struct sequence s;
    struct status *st = sequence_init(&s, ctx, 2 + n_context + n_lists + state->context.n_dense);
    if (!st)
        st = check_shapes(&s, 0);
    if (!st)
        st = scalar_keys(ctx, 2, n_context, s.context.features);
    if (!st)
        st = scalar_keys(ctx, 2 + n_context, n_lists, s.lists.features);
    if (!st)
        st = defaults(&s, 2 + n_context + n_lists);
    const struct tensor *is_optional = kernel_input(ctx, 1);
    for (int64_t i = 0; !st && i < is_optional->n_elements; i++)
        allow_missing(&s.lists, tensor_string(is_optional, i));
    return sequence_end(&s, st ? st : parse_all(&s, false));
}
