/* Runs random ops without a state, whose numbers follow from a seed, or from key and counter. */
#include <stdlib.h>

#include "kernels/cpu/random/random_internal.h"

/* Algorithms, with TensorFlow's numbers. TensorFlow has no ThreeFry (2) on CPUs either. */
enum { ALG_PHILOX = 1, ALG_AUTO = 3 };

struct status *random_from_seed(const struct tensor *seed, struct philox *ret) {
    if (unlikely(seed->rank != 1 || seed->n_elements != 2)) {
        struct status *st =
            status_invalid("seed must have shape [2], not %s", TENSOR_SHAPE_TEXT(seed));
        return st;
    }
    if (unlikely(seed->dtype != DT_INT32 && seed->dtype != DT_INT64))
        return status_invalid("Invalid seed type: %s", dtype_name((enum dtype)seed->dtype));
    /* One block under a fixed key mixes the two words, so that neighbouring seeds have nothing in
     * common. */
    uint32_t mixed[PHILOX_BLOCK];
    philox_block(0x02461e293ec8f720u, (uint64_t)tensor_index_at(seed, 0),
                 (uint64_t)tensor_index_at(seed, 1), mixed);
    *ret = (struct philox){philox_u64(mixed[0], mixed[1]), 0, philox_u64(mixed[2], mixed[3])};
    return NULL;
}

static COLD struct status *bad_key(const char *format_before, const struct tensor *t,
                                   const char *after) {
    struct status *st = status_invalid("%s%s%s", format_before, TENSOR_SHAPE_TEXT(t), after);
    return st;
}

struct status *random_from_key(const struct tensor *key, const struct tensor *counter,
                               const struct tensor *alg, struct philox *ret) {
    if (unlikely(alg->rank != 0))
        return bad_key("input 3 (0-based) must have shape [], not ", alg, "");
    if (unlikely(key->rank != 1 || key->n_elements != 1))
        return bad_key("key must have shape [1], not ", key,
                       ". (Note that batched keys are not supported yet.)");
    if (unlikely(counter->rank != 1 || counter->n_elements < 2))
        return bad_key("counter must be a vector with length at least 2; got shape: ", counter,
                       ". (Note that batched counters are not supported yet.)");
    int32_t algorithm = *(const int32_t *)tensor_cdata(alg);
    if (unlikely(algorithm != ALG_PHILOX && algorithm != ALG_AUTO))
        return status_invalid("Unsupported algorithm id: %d", algorithm);
    *ret = (struct philox){0, 0, 0};
    if (tensor_is_on_device(key) || tensor_is_on_device(counter))
        return NULL;
    const uint64_t *words = tensor_cdata(counter);
    *ret = (struct philox){*(const uint64_t *)tensor_cdata(key), words[0], words[1]};
    return NULL;
}

struct stateless_state {
    enum random_kind kind;
    int minval; /* the input that is a range's minimum, -1 without a range */
};

struct status *random_stateless_init(struct kernel_init *init) {
    struct stateless_state *state = xmalloc(sizeof(*state));
    state->kind = (enum random_kind)(intptr_t)init->arg;
    state->minval = state->kind == RANDOM_RANGE ? init->node->n_data - 2 : -1;
    init->state = state;
    return NULL;
}

void random_generator_at(const struct kernel_ctx *ctx, struct philox *generator,
                         struct device_generator *ret) {
    const struct tensor *key = kernel_input(ctx, 1), *counter = kernel_input(ctx, 2);
    if (tensor_is_on_device(key))
        ret->key = tensor_cdata(key);
    else
        generator->key = *(const uint64_t *)tensor_cdata(key);
    if (tensor_is_on_device(counter)) {
        ret->counter = tensor_cdata(counter);
        return;
    }
    const uint64_t *words = tensor_cdata(counter);
    generator->lo = words[0];
    generator->hi = words[1];
}

static enum kernel_result stateless_fill(struct kernel_ctx *ctx, bool is_v2) {
    const struct stateless_state *state = ctx->instance->state;
    int64_t dims[SHAPE_MAX_RANK];
    struct shape shape;
    struct random_fill fill = {.kind = state->kind,
                               .dtype = (enum dtype)ctx->instance->out_types[0]};
    KERNEL_TRY(ctx, random_shape(kernel_input(ctx, 0), dims, &shape));
    if (is_v2)
        KERNEL_TRY(ctx, random_from_key(kernel_input(ctx, 1), kernel_input(ctx, 2),
                                        kernel_input(ctx, 3), &fill.generator));
    else
        KERNEL_TRY(ctx, random_from_seed(kernel_input(ctx, 1), &fill.generator));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, fill.dtype, shape));
    int64_t n = ctx->outputs[0].n_elements;
    if (n == 0)
        return KERNEL_DONE;
    if (state->minval >= 0)
        KERNEL_TRY(ctx, random_range(kernel_input(ctx, state->minval),
                                     kernel_input(ctx, state->minval + 1), false, &fill));
    struct device_generator generator = {NULL, NULL};
    if (is_v2)
        random_generator_at(ctx, &fill.generator, &generator);
    KERNEL_TRY(ctx, random_fill_output(ctx, &fill, &generator));
    return KERNEL_DONE;
}

/* StatelessRandomUniform, …Normal, StatelessTruncatedNormal, …UniformInt, …UniformFullInt:
 * shape, seed [2], bounds → output.
 * Errors   INVALID_ARGUMENT   shape, seed or bounds wrong */
enum kernel_result random_stateless(struct kernel_ctx *ctx) { return stateless_fill(ctx, false); }
/* As above, with key [1], counter [2] and algorithm in place of the seed.
 * Errors   INVALID_ARGUMENT   also for an algorithm that is not Philox */
enum kernel_result random_stateless_v2(struct kernel_ctx *ctx) { return stateless_fill(ctx, true); }

/* StatelessRandomGetKeyCounter(Alg): key uint64 [1], counter uint64 [2] (and algorithm) for a seed
 * [2].
 * Errors   INVALID_ARGUMENT   seed of another shape */
enum kernel_result random_get_key_counter(struct kernel_ctx *ctx) {
    struct philox generator;
    int64_t one = 1, two = 2;
    KERNEL_TRY(ctx, random_from_seed(kernel_input(ctx, 0), &generator));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_UINT64, (struct shape){1, &one}));
    KERNEL_TRY(ctx, kernel_alloc(ctx, 1, DT_UINT64, (struct shape){1, &two}));
    *(uint64_t *)tensor_data(&ctx->outputs[0]) = generator.key;
    uint64_t *counter = tensor_data(&ctx->outputs[1]);
    counter[0] = generator.lo;
    counter[1] = generator.hi;
    if (ctx->instance->n_outputs > 2)
        tensor_init_scalar_i32(&ctx->outputs[2], ALG_PHILOX);
    return KERNEL_DONE;
}

/* StatelessRandomGetAlg returns the algorithm of CPUs. */
enum kernel_result random_get_alg(struct kernel_ctx *ctx) {
    tensor_init_scalar_i32(&ctx->outputs[0], ALG_PHILOX);
    return KERNEL_DONE;
}
