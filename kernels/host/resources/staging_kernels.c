/* Computes the ops of staging areas and maps (kernels/host/resources/staging.h). Each op names its
 * area by container and shared_name, or by its node's name; the first op that names an area makes
 * it. */
#include <stdlib.h>

#include "kernels/host/resources/staging.h"
#include "kernels/support/variable_input.h"

extern const struct kernel_list staging_kernels;

struct staging_state {
    struct named_resource resource;
    struct staging_options options;
};

static void staging_state_fini(void *arg) {
    struct staging_state *state = arg;
    named_resource_fini(&state->resource);
    free(state);
}

/* The arg of a row is the kind of resource. */
static struct status *staging_init(struct kernel_init *init) {
    struct staging_state *state = xcalloc(1, sizeof(*state));
    const struct attr_value *types = NULL;
    init->state = state;
    TRY(named_resource_init(&state->resource, init, init->arg, RESOURCE_BY_NODE_NAME, NULL));
    TRY(node_get_i(init->node, "capacity", &state->options.capacity));
    TRY(node_get_i(init->node, "memory_limit", &state->options.memory_limit));
    return node_get_list(init->node, "dtypes", &types, &state->options.n_components);
}

static struct status *make_staging(struct kernel_ctx *ctx, void *arg, struct object **ret) {
    const struct staging_state *state = arg;
    *ret = &staging_new(state->resource.type, &state->options)->object;
    return NULL;
}

typedef enum kernel_result staging_fn(struct kernel_ctx *ctx, struct staging *staging);

static enum kernel_result with_staging(struct kernel_ctx *ctx, staging_fn *fn) {
    struct staging_state *state = ctx->instance->state;
    struct object *found = NULL;
    KERNEL_TRY(ctx, named_resource_get(ctx, &state->resource, make_staging, state, &found));
    enum kernel_result result = fn(ctx, (struct staging *)found);
    object_unref(found);
    return result;
}

/* ---- areas ---- */

static enum kernel_result stage(struct kernel_ctx *ctx, struct staging *staging) {
    int n = ctx->instance->n_inputs;
    struct staging_tuple *staged = staging_tuple_new(n);
    struct status *st = NULL;
    for (int i = 0; i < n && !st; i++)
        st = variable_keep(ctx, i, &staged->values[i]);
    if (st) {
        staging_tuple_free(staged);
        return kernel_fail(ctx, st);
    }
    staged->n_present = n;
    return staging_put(staging, ctx, staged);
}
static enum kernel_result stage_compute(struct kernel_ctx *ctx) { return with_staging(ctx, stage); }

static enum kernel_result unstage(struct kernel_ctx *ctx, struct staging *staging) {
    return staging_get(staging, ctx, (struct staging_request){.choice = STAGING_FIRST});
}
static enum kernel_result unstage_compute(struct kernel_ctx *ctx) {
    return with_staging(ctx, unstage);
}

static enum kernel_result peek(struct kernel_ctx *ctx, struct staging *staging) {
    const struct tensor *index = kernel_input(ctx, 0);
    if (index->rank != 0)
        return kernel_fail(ctx, status_invalid("index must be scalar"));
    if (tensor_index_at(index, 0) < 0)
        return kernel_fail(ctx, status_invalid("index must not be negative, but was %lld",
                                               (long long)tensor_index_at(index, 0)));
    struct staging_request request = {
        .choice = STAGING_AT, .is_peek = true, .at = tensor_index_at(index, 0)};
    return staging_get(staging, ctx, request);
}
static enum kernel_result peek_compute(struct kernel_ctx *ctx) { return with_staging(ctx, peek); }

static enum kernel_result size_out(struct kernel_ctx *ctx, int64_t n) {
    tensor_init_scalar_i32(&ctx->outputs[0], (int32_t)MIN(n, (int64_t)INT32_MAX));
    return KERNEL_DONE;
}
static enum kernel_result size_of(struct kernel_ctx *ctx, struct staging *s) {
    return size_out(ctx, staging_size(s));
}
static enum kernel_result incomplete(struct kernel_ctx *ctx, struct staging *s) {
    return size_out(ctx, staging_incomplete_size(s));
}
static enum kernel_result clear(struct kernel_ctx *ctx, struct staging *staging) {
    staging_clear(staging);
    return KERNEL_DONE;
}
static enum kernel_result size_compute(struct kernel_ctx *ctx) {
    return with_staging(ctx, size_of);
}
static enum kernel_result incomplete_compute(struct kernel_ctx *ctx) {
    return with_staging(ctx, incomplete);
}
static enum kernel_result clear_compute(struct kernel_ctx *ctx) { return with_staging(ctx, clear); }

/* ---- maps ---- */

static struct status *read_key(const struct kernel_ctx *ctx, int64_t *ret) {
    const struct tensor *key = kernel_input(ctx, 0);
    if (key->n_elements == 0)
        return status_invalid("key must not be empty");
    if (key->n_elements != 1)
        return status_invalid("key must be an int64 scalar, got tensor with shape: %s",
                              TENSOR_SHAPE_TEXT(key));
    *ret = tensor_index_at(key, 0);
    return NULL;
}

static struct status *check_order(const struct tensor *indices) {
    const int32_t *at = tensor_cdata(indices);
    if (indices->n_elements == 0)
        return status_invalid("Indices are empty");
    for (int64_t i = 1; i < indices->n_elements; i++)
        if (at[i] <= at[i - 1])
            return status_invalid("Indices are not strictly ordered");
    return NULL;
}

/* Puts the values of inputs 2 … at their indices in a tuple of n. */
static struct status *place_values(struct kernel_ctx *ctx, struct staging_tuple *staged) {
    const struct tensor *indices = kernel_input(ctx, 1);
    const int32_t *at = tensor_cdata(indices);
    if (indices->n_elements != ctx->instance->n_inputs - 2)
        return status_invalid(
            "There must be an index for each value: received %lld indices and %d values",
            (long long)indices->n_elements, ctx->instance->n_inputs - 2);
    for (int i = 0; i < indices->n_elements; i++) {
        if (at[i] < 0 || at[i] >= staged->n)
            return status_invalid("Index '%d' for key '%lld' was out of bounds '%d'.", at[i],
                                  (long long)staged->key, staged->n);
        TRY(variable_keep(ctx, 2 + i, &staged->values[at[i]]));
        staged->n_present++;
    }
    return NULL;
}

static enum kernel_result map_stage(struct kernel_ctx *ctx, struct staging *staging) {
    int64_t key;
    KERNEL_TRY(ctx, read_key(ctx, &key));
    KERNEL_TRY(ctx, check_order(kernel_input(ctx, 1)));
    struct staging_tuple *staged = staging_tuple_new(staging->options.n_components);
    staged->key = key;
    struct status *st = place_values(ctx, staged);
    if (!st)
        st = variable_keep(ctx, 0, &staged->key_value);
    if (st) {
        staging_tuple_free(staged);
        return kernel_fail(ctx, st);
    }
    return staging_put(staging, ctx, staged);
}
static enum kernel_result map_stage_compute(struct kernel_ctx *ctx) {
    return with_staging(ctx, map_stage);
}

static enum kernel_result get_by_key(struct kernel_ctx *ctx, struct staging *staging,
                                     bool is_peek) {
    struct staging_request request = {
        .choice = STAGING_KEY, .is_peek = is_peek, .indices = kernel_input(ctx, 1)};
    KERNEL_TRY(ctx, read_key(ctx, &request.at));
    KERNEL_TRY(ctx, check_order(request.indices));
    return staging_get(staging, ctx, request);
}
static enum kernel_result map_unstage(struct kernel_ctx *ctx, struct staging *staging) {
    return get_by_key(ctx, staging, false);
}
static enum kernel_result map_peek(struct kernel_ctx *ctx, struct staging *staging) {
    return get_by_key(ctx, staging, true);
}
static enum kernel_result map_unstage_compute(struct kernel_ctx *ctx) {
    return with_staging(ctx, map_unstage);
}
static enum kernel_result map_peek_compute(struct kernel_ctx *ctx) {
    return with_staging(ctx, map_peek);
}

static enum kernel_result map_unstage_any(struct kernel_ctx *ctx, struct staging *staging) {
    struct staging_request request = {
        .choice = STAGING_FIRST, .gives_key = true, .indices = kernel_input(ctx, 0)};
    KERNEL_TRY(ctx, check_order(request.indices));
    return staging_get(staging, ctx, request);
}
static enum kernel_result map_unstage_any_compute(struct kernel_ctx *ctx) {
    return with_staging(ctx, map_unstage_any);
}

#define STAGING(name, fn, kind, more)                                                    \
    {                                                                                    \
        .op = (name), .compute = (fn), .init = staging_init, .fini = staging_state_fini, \
        .arg = &(kind), .flags = KERNEL_STATEFUL | KERNEL_SESSION_STATE | (more)         \
    }
#define MAP(prefix, kind)                                                               \
    STAGING(prefix "MapStage", map_stage_compute, kind, KERNEL_ASYNC),                  \
        STAGING(prefix "MapPeek", map_peek_compute, kind, KERNEL_ASYNC),                \
        STAGING(prefix "MapUnstage", map_unstage_compute, kind, KERNEL_ASYNC),          \
        STAGING(prefix "MapUnstageNoKey", map_unstage_any_compute, kind, KERNEL_ASYNC), \
        STAGING(prefix "MapSize", size_compute, kind, 0),                               \
        STAGING(prefix "MapIncompleteSize", incomplete_compute, kind, 0),               \
        STAGING(prefix "MapClear", clear_compute, kind, 0)

// clang-format off
static const struct kernel_def rows[] = {
    STAGING("Stage", stage_compute, staging_area_type, KERNEL_ASYNC),
    STAGING("Unstage", unstage_compute, staging_area_type, KERNEL_ASYNC),
    STAGING("StagePeek", peek_compute, staging_area_type, KERNEL_ASYNC),
    STAGING("StageSize", size_compute, staging_area_type, 0),
    STAGING("StageClear", clear_compute, staging_area_type, 0),
    MAP("", staging_map_type),
    MAP("Ordered", staging_ordered_map_type),
};
// clang-format on

const struct kernel_list staging_kernels = {rows, ARRAY_LEN(rows)};
