/* Runs random ops whose generator is in a resource variable (tf.random.Generator): int64 [3 or
 * more], the Philox counter's lower and upper half and the key. Each execution advances it under
 * the variable's lock. */
#include <stdlib.h>

#include "common/base/clock.h"
#include "kernels/cpu/random/random_internal.h"
#include "kernels/kernel.h"
#include "kernels/support/variable_input.h"
#include "kernels/variable.h"
#include "common/tensor/element.h"

enum { ALG_PHILOX = 1, ALG_THREEFRY = 2, ALG_AUTO = 3, STATE_SIZE = 3 };

/* Is the value a generator? The caller holds the lock. Errors: INVALID_ARGUMENT. */
static struct status *check_state(const struct variable *variable) {
    const struct tensor *value = &variable->value;
    if (!tensor_has_value(value))
        return status_failed_precondition("RNG state variable %s is uninitialized", variable->name);
    if (value->dtype != DT_INT64)
        return status_invalid("dtype of RNG state variable must be int64, not %s",
                              dtype_name((enum dtype)value->dtype));
    if (value->rank != 1)
        return status_invalid("RNG state must have one and only one dimension, not %d",
                              value->rank);
    if (value->n_elements < STATE_SIZE)
        return status_invalid(
            "For the Philox algorithm, the size of state must be at least %d; got %lld", STATE_SIZE,
            (long long)value->n_elements);
    return NULL;
}

static struct status *move_on(struct kernel_ctx *ctx, struct variable *variable, uint64_t n_blocks,
                              struct philox *ret) {
    TRY(check_state(variable));
    TRY(variable_make_writable(ctx, variable));
    uint64_t *words = tensor_data(&variable->value);
    *ret = (struct philox){.lo = words[0], .hi = words[1], .key = words[2]};
    struct philox after = philox_skip(*ret, n_blocks);
    words[0] = after.lo;
    words[1] = after.hi;
    return NULL;
}

static struct status *check_algorithm(int64_t algorithm) {
    if (algorithm == ALG_PHILOX || algorithm == ALG_AUTO)
        return NULL;
    if (algorithm == ALG_THREEFRY)
        return status_unimplemented("Non-XLA devices don't support the ThreeFry algorithm.");
    return status_invalid("Unsupported algorithm id: %lld", (long long)algorithm);
}

struct status *random_take(struct kernel_ctx *ctx, uint64_t n, struct philox *ret) {
    struct variable *variable = NULL;
    TRY(variable_of_input(ctx, 0, &variable));
    pthread_mutex_lock(&variable->lock);
    struct status *st = move_on(ctx, variable, n * RANDOM_BLOCKS_PER_OUTPUT, ret);
    pthread_mutex_unlock(&variable->lock);
    variable_unref(variable);
    return st;
}

/* As random_take, where the generator is on a device. It fills output 0 with *fill, or, where fill
 * is NULL, gives the output the state before. The kernel that reads the state is enqueued before
 * the one that changes it. */
static struct status *take_on_device(struct kernel_ctx *ctx, uint64_t n,
                                     const struct random_fill *fill) {
    const struct device_engine *engine = ctx->instance->engine;
    struct tensor *out = ctx->instance->n_outputs ? &ctx->outputs[0] : NULL;
    struct variable *variable = NULL;
    TRY(variable_of_input(ctx, 0, &variable));
    pthread_mutex_lock(&variable->lock);
    struct status *st = check_state(variable);
    if (!st)
        st = variable_make_writable(ctx, variable);
    uint64_t *words = st ? NULL : tensor_data(&variable->value);
    struct device_generator generator = {NULL, NULL};
    if (words)
        generator = (struct device_generator){.key = words + 2, .counter = words};
    if (!st && fill && out->n_elements > 0)
        st = random_fill_output(ctx, fill, &generator);
    if (!st)
        st = engine->advance(ctx, words, n * RANDOM_BLOCKS_PER_OUTPUT,
                             fill || !out ? NULL : tensor_data(out));
    pthread_mutex_unlock(&variable->lock);
    variable_unref(variable);
    return st;
}

static struct status *require_scalar_input(const struct kernel_ctx *ctx, int input,
                                           const char *name) {
    const struct tensor *t = kernel_input(ctx, input);
    if (likely(t->rank == 0))
        return NULL;
    return status_invalid("%s must have shape [], not %s", name, TENSOR_SHAPE_TEXT(t));
}

/* ---- StatefulUniform and similar ops ---- */

/* StatefulUniform, StatefulUniformFullInt, StatefulUniformInt, StatefulStandardNormalV2,
 * StatefulTruncatedNormal.
 *   resource        the generator
 *   algorithm       int64 scalar
 *   shape           shape_dtype [rank]
 *   minval, maxval  dtype scalars (StatefulUniformInt)
 *   output          dtype [shape...]
 * Errors    INVALID_ARGUMENT   algorithm, shape or bounds wrong, a variable that is no generator
 *           NOT_FOUND          the variable
 *           UNIMPLEMENTED      ThreeFry */
enum kernel_result random_resource_fill(struct kernel_ctx *ctx) {
    int64_t dims[SHAPE_MAX_RANK];
    struct shape shape;
    struct random_fill fill = {.kind = (enum random_kind)(intptr_t)ctx->instance->def->arg,
                               .dtype = (enum dtype)ctx->instance->out_types[0]};
    KERNEL_TRY(ctx, require_scalar_input(ctx, 1, "algorithm"));
    KERNEL_TRY(ctx, check_algorithm(tensor_int_at(kernel_input(ctx, 1), 0)));
    KERNEL_TRY(ctx, random_shape(kernel_input(ctx, 2), dims, &shape));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, fill.dtype, shape));
    int64_t n = ctx->outputs[0].n_elements;
    if (fill.kind == RANDOM_RANGE)
        KERNEL_TRY(ctx, random_range(kernel_input(ctx, 3), kernel_input(ctx, 4), false, &fill));
    if (kernel_is_for_device(ctx)) {
        KERNEL_TRY(ctx, take_on_device(ctx, (uint64_t)n, &fill));
        return KERNEL_DONE;
    }
    KERNEL_TRY(ctx, random_take(ctx, (uint64_t)n, &fill.generator));
    if (n > 0)
        random_fill_run(&fill, ctx->pool, tensor_data(&ctx->outputs[0]), n);
    return KERNEL_DONE;
}

/* RngSkip advances the generator as if `delta` numbers had been made. RngReadAndSkip also returns
 * the state before that, padded to int64 [3]. */
enum kernel_result random_skip(struct kernel_ctx *ctx) {
    struct philox before;
    KERNEL_TRY(ctx, require_scalar_input(ctx, 1, "algorithm"));
    KERNEL_TRY(ctx, require_scalar_input(ctx, 2, "delta"));
    KERNEL_TRY(ctx, check_algorithm(tensor_int_at(kernel_input(ctx, 1), 0)));
    int64_t size = STATE_SIZE;
    uint64_t delta = (uint64_t)tensor_int_at(kernel_input(ctx, 2), 0);
    if (kernel_is_for_device(ctx)) {
        if (ctx->instance->n_outputs > 0)
            KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_INT64, (struct shape){1, &size}));
        KERNEL_TRY(ctx, take_on_device(ctx, delta, NULL));
        return KERNEL_DONE;
    }
    KERNEL_TRY(ctx, random_take(ctx, delta, &before));
    if (ctx->instance->n_outputs == 0)
        return KERNEL_DONE;
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_INT64, (struct shape){1, &size}));
    uint64_t *words = tensor_data(&ctx->outputs[0]);
    words[0] = before.lo;
    words[1] = before.hi;
    words[2] = before.key;
    return KERNEL_DONE;
}

/* NonDeterministicInts: integers over the type's whole range, from the operating system's random
 * numbers.
 *   shape  shape_dtype [rank]      output  dtype [shape...]
 * Errors   INVALID_ARGUMENT   the shape */
enum kernel_result random_non_deterministic(struct kernel_ctx *ctx) {
    int64_t dims[SHAPE_MAX_RANK];
    struct shape shape;
    struct random_fill fill = {.kind = RANDOM_BITS,
                               .dtype = (enum dtype)ctx->instance->out_types[0]};
    fill.generator = (struct philox){random_u64(), random_u64(), random_u64()};
    KERNEL_TRY(ctx, random_shape(kernel_input(ctx, 0), dims, &shape));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, fill.dtype, shape));
    if (ctx->outputs[0].n_elements > 0)
        random_fill_run(&fill, ctx->pool, tensor_data(&ctx->outputs[0]),
                        ctx->outputs[0].n_elements);
    return KERNEL_DONE;
}
