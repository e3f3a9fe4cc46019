/* Launches elementwise kernels; see elementwise_launch.h. */
#include "kernels/cuda/ops/elementwise_launch.h"

#include <stddef.h>

void elementwise_begin(struct kernel_ctx *ctx, struct elementwise_launch *ret) {
    const struct elementwise_state *state = ctx->instance->state;
    memset(&ret->args, 0, offsetof(struct elementwise_args, dims));
    memset(ret->staged, 0, sizeof(ret->staged));
    ret->args.alpha = state->alpha;
    ret->args.cut_bits = state->cut_bits;
    ret->n_operands = 0;
    ret->largest = 1;
}

void elementwise_drop(struct elementwise_launch *launch) {
    for (int k = 0; k < launch->n_operands; k++)
        buffer_unref(launch->staged[k]);
}

struct status *elementwise_take(struct kernel_ctx *ctx, struct elementwise_launch *launch,
                                int input) {
    const struct elementwise_state *state = ctx->instance->state;
    const struct tensor *t = kernel_input(ctx, input);
    struct elementwise_args *args = &launch->args;
    int k = launch->n_operands++;
    launch->largest = MAX(launch->largest, state->in_bytes[input]);
    if (t->storage != TENSOR_INLINE || t->n_elements == 0) {
        args->in[k] = t->storage == TENSOR_BUFFER ? t->data : NULL;
        return NULL;
    }
    if (t->n_elements == 1) {
        args->is_inline |= 1u << k;
        memcpy(args->values[k], t->bytes, sizeof(args->values[k]));
        return NULL;
    }
    struct status *st = gpu_stage(ctx, t->bytes, tensor_size_bytes(t), &launch->staged[k]);
    if (st)
        elementwise_drop(launch);
    else
        args->in[k] = launch->staged[k]->data;
    return st;
}

/* How many elements a vector has, as a power of 2. Sizes of elements are powers of 2, too. */
static inline int vector_shift(const struct elementwise_launch *launch) {
    return __builtin_ctz(ELEMENTWISE_VECTOR_BYTES) - __builtin_ctz(launch->largest);
}

/* Chooses the form, and fills what it needs. */
static struct status *set_form(struct elementwise_launch *launch, const struct broadcast *plan) {
    struct elementwise_args *args = &launch->args;
    uintptr_t addresses = (uintptr_t)args->out;
    args->n = plan->n_elements;
    args->stretched = plan->inner_stretched | args->is_inline;
    for (int k = 0; k < launch->n_operands; k++)
        if (!(args->stretched >> k & 1))
            addresses |= (uintptr_t)args->in[k];
    args->is_vector = addresses % ELEMENTWISE_VECTOR_BYTES == 0;
    args->form = ELEMENTWISE_FLAT;
    if (plan->rank == 1)
        return NULL;
    if (plan->rank > ELEMENTWISE_MAX_RANK)
        return status_unimplemented(
            "A GPU broadcasts shapes in at most %d separate dimensions, but this takes %d",
            ELEMENTWISE_MAX_RANK, plan->rank);
    int64_t per_vector = INT64_C(1) << vector_shift(launch);
    args->form =
        plan->dims[plan->rank - 1] % per_vector == 0 ? ELEMENTWISE_ROWS : ELEMENTWISE_ANY_BROADCAST;
    args->is_vector &= args->form == ELEMENTWISE_ROWS;
    args->rank = plan->rank;
    for (int i = 0; i < plan->rank; i++) {
        args->dims[i] = gpu_divisor_of(plan->dims[i], plan->n_elements);
        for (int k = 0; k < launch->n_operands; k++)
            args->strides[k][i] = plan->strides[k][i];
    }
    return NULL;
}

enum kernel_result elementwise_run(struct kernel_ctx *ctx, struct elementwise_launch *launch,
                                   const struct broadcast *plan) {
    const struct elementwise_state *state = ctx->instance->state;
    struct tensor *out = &ctx->outputs[0];
    struct status *st = NULL;
    if (plan->n_elements > 0) {
        launch->args.out = out->data;
        launch->largest = MAX(launch->largest, state->out_bytes);
        st = set_form(launch, plan);
        int shift = vector_shift(launch);
        int64_t pieces = plan->n_elements;
        if (launch->args.is_vector)
            pieces = MAX(pieces >> shift, INT64_C(1) << shift);
        if (!st)
            st = gpu_launch(ctx, state->function, gpu_grid_for(ctx, pieces), &launch->args);
    }
    elementwise_drop(launch);
    return st ? kernel_fail(ctx, st) : KERNEL_DONE;
}
