/* Runs random ops with a state: each execution uses the next part of the node's stream.
 *
 * The state is a counter of blocks, so concurrent executions use different parts. As in TensorFlow,
 * only the part that an execution gets depends on their order. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "common/tensor/element.h"
#include "kernels/cpu/random/random_internal.h"

struct status *random_state_seed(struct random_state *state, const struct node *node) {
    int64_t seed, seed2;
    TRY(node_get_i(node, "seed", &seed));
    TRY(node_get_i(node, "seed2", &seed2));
    bool is_seeded = seed != 0 || seed2 != 0;
    state->start = (struct philox){is_seeded ? (uint64_t)seed : random_u64(), 0,
                                   is_seeded ? (uint64_t)seed2 : random_u64()};
    return NULL;
}

struct status *random_state_init(struct kernel_init *init) {
    init->state = xcalloc(1, sizeof(struct random_state));
    return random_state_seed(init->state, init->node);
}

struct philox random_state_reserve(struct kernel_ctx *ctx, uint64_t n_blocks) {
    struct random_state *state = ctx->instance->state;
    return philox_skip(state->start,
                       atomic_fetch_add_explicit(&state->n_used, n_blocks, memory_order_relaxed));
}

struct status *random_shape(const struct tensor *shape, int64_t dims[SHAPE_MAX_RANK],
                            struct shape *ret) {
    /* the signatures of some ops allow any dtype for the shape */
    if (unlikely(shape->rank != 1 || !dtype_in(tensor_dtype(shape), DTYPES_INDEX)))
        return status_invalid("shape must be a vector of {int32,int64}, got shape %s of %s",
                              TENSOR_SHAPE_TEXT(shape), dtype_name(tensor_dtype(shape)));
    if (unlikely(shape->n_elements > SHAPE_MAX_RANK))
        return status_invalid("Too many dimensions");
    for (int64_t i = 0; i < shape->n_elements; i++) {
        dims[i] = tensor_index_at(shape, i);
        if (unlikely(dims[i] < 0))
            return status_invalid("Dimension %lld must be >= 0", (long long)dims[i]);
    }
    *ret = (struct shape){(int)shape->n_elements, dims};
    return NULL;
}

struct status *random_range(const struct tensor *minval, const struct tensor *maxval, bool is_empty,
                            struct random_fill *fill) {
    const struct tensor *bounds[2] = {minval, maxval};
    for (int i = 0; i < 2; i++) {
        if (likely(bounds[i]->rank == 0))
            continue;
        struct status *st = status_invalid("%s must be 0-D, got shape %s", i ? "maxval" : "minval",
                                           TENSOR_SHAPE_TEXT(bounds[i]));
        return st;
    }
    uint64_t low = (uint64_t)tensor_int_at(minval, 0), high = (uint64_t)tensor_int_at(maxval, 0);
    bool is_unsigned = minval->dtype == DT_UINT32 || minval->dtype == DT_UINT64;
    if (is_empty)
        return NULL;
    if (unlikely(is_unsigned ? low >= high : (int64_t)low >= (int64_t)high)) {
        if (is_unsigned)
            return status_invalid("Need minval < maxval, got %llu >= %llu", (unsigned long long)low,
                                  (unsigned long long)high);
        return status_invalid("Need minval < maxval, got %lld >= %lld", (long long)low,
                              (long long)high);
    }
    fill->low = low;
    fill->range = high - low; /* below 2^32 for 32-bit types */
    return NULL;
}

struct status *random_fill_output(struct kernel_ctx *ctx, const struct random_fill *fill,
                                  const struct device_generator *generator) {
    struct tensor *out = &ctx->outputs[0];
    if (kernel_is_for_device(ctx)) {
        static const struct device_generator in_fill = {NULL, NULL};
        return ctx->instance->engine->random(ctx, fill, generator ? generator : &in_fill,
                                             tensor_data(out), out->n_elements);
    }
    random_fill_run(fill, ctx->pool, tensor_data(out), out->n_elements);
    return NULL;
}

static enum kernel_result stateful_fill(struct kernel_ctx *ctx, enum random_kind kind) {
    int64_t dims[SHAPE_MAX_RANK];
    struct shape shape;
    struct random_fill fill = {.kind = kind, .dtype = (enum dtype)ctx->instance->out_types[0]};
    KERNEL_TRY(ctx, random_shape(kernel_input(ctx, 0), dims, &shape));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, fill.dtype, shape));
    int64_t n = ctx->outputs[0].n_elements;
    if (kind == RANDOM_RANGE)
        KERNEL_TRY(ctx, random_range(kernel_input(ctx, 1), kernel_input(ctx, 2), n == 0, &fill));
    if (n == 0)
        return KERNEL_DONE;
    fill.generator = random_state_reserve(ctx, (uint64_t)n * RANDOM_BLOCKS_PER_OUTPUT);
    KERNEL_TRY(ctx, random_fill_output(ctx, &fill, NULL));
    return KERNEL_DONE;
}

/* RandomUniform, RandomStandardNormal, TruncatedNormal, RandomUniformInt: output of the given
 * shape.
 *   shape   T [rank]           minval, maxval  Tout, scalars (RandomUniformInt)
 *   output  dtype [shape...]
 * Errors    INVALID_ARGUMENT   shape not a vector, a negative or too large one, minval >= maxval */
enum kernel_result random_uniform(struct kernel_ctx *ctx) {
    return stateful_fill(ctx, RANDOM_UNIFORM);
}
enum kernel_result random_normal(struct kernel_ctx *ctx) {
    return stateful_fill(ctx, RANDOM_NORMAL);
}
enum kernel_result random_truncated_normal(struct kernel_ctx *ctx) {
    return stateful_fill(ctx, RANDOM_TRUNCATED);
}
enum kernel_result random_uniform_int(struct kernel_ctx *ctx) {
    return stateful_fill(ctx, RANDOM_RANGE);
}
