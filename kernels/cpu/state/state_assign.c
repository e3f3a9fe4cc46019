/* Changes whole variables, for reference and resource variables alike: AssignAdd, AssignSub,
 * CountUpTo.
 *
 * A variable that is the only holder of its buffer is changed in place. Otherwise the new value is
 * computed in one pass, in the update's own memory when nobody else holds that memory. */
#include <stdlib.h>

#include "kernels/cpu/state/state_internal.h"
#include "kernels/kernel.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/update.h"
#include "kernels/support/variable_input.h"
#include "kernels/variable.h"

const struct assign_update_row assign_update_ref[2] = {{UPDATE_ADD, true}, {UPDATE_SUB, true}};
const struct assign_update_row assign_update_resource[2] = {{UPDATE_ADD, false},
                                                            {UPDATE_SUB, false}};

static COLD struct status *sizes_differ(const struct variable *variable, const struct tensor *by,
                                        bool is_ref) {
    if (is_ref)
        return status_invalid(
            "Parameters and update must be the same size: variable %s has shape %s, the update %s",
            variable->name, TENSOR_SHAPE_TEXT(&variable->value), TENSOR_SHAPE_TEXT(by));
    return status_invalid(
        "Cannot update variable with shape %s using a Tensor with shape %s, shapes must be equal.",
        TENSOR_SHAPE_TEXT(&variable->value), TENSOR_SHAPE_TEXT(by));
}

/* Computes dst = a op b where the values are. */
static struct status *update_elements(struct kernel_ctx *ctx, enum update_op op, enum dtype dtype,
                                      void *dst, const void *a, const void *b, int64_t n) {
    if (!kernel_is_for_device(ctx))
        return update_run(ctx->pool, update_find(op, dtype), dtype, dst, a, b, n);
    return n > 0 ? ctx->instance->engine->update(ctx, op, dtype, dst, a, b, n) : NULL;
}

/* The caller holds the lock. *old receives the value that the variable no longer needs. */
static struct status *update_value(struct kernel_ctx *ctx, struct variable *variable,
                                   const struct assign_update_row *row, struct tensor *old) {
    struct tensor *by = &ctx->inputs[1], *value = &variable->value;
    TRY(device_input(ctx, 1));
    enum dtype dtype = (enum dtype)by->dtype;
    TRY(variable_check(variable, row->is_ref, dtype));
    if (unlikely(!shape_equal(tensor_shape(value), tensor_shape(by))))
        return sizes_differ(variable, by, row->is_ref);
    int64_t n = value->n_elements;
    if (likely(tensor_is_sole(value)))
        return update_elements(ctx, row->op, dtype, tensor_data(value), tensor_cdata(value),
                               tensor_cdata(by), n);
    struct tensor made = TENSOR_INIT;
    if (by->storage == TENSOR_BUFFER && tensor_is_sole(by))
        TRY(variable_keep(ctx, 1, &made));
    else
        TRY(kernel_new(ctx, dtype, tensor_shape(value), &made));
    const void *by_data = by->storage == TENSOR_NONE ? tensor_cdata(&made) : tensor_cdata(by);
    struct status *st =
        update_elements(ctx, row->op, dtype, tensor_data(&made), tensor_cdata(value), by_data, n);
    if (st) {
        tensor_clear(&made);
        return st;
    }
    tensor_move(old, value);
    tensor_move(value, &made);
    return NULL;
}

enum kernel_result assign_update(struct kernel_ctx *ctx) {
    const struct assign_update_row *row = ctx->instance->def->arg;
    struct variable *variable = NULL;
    struct tensor old = TENSOR_INIT;
    KERNEL_TRY(ctx, variable_of_input(ctx, 0, &variable));
    pthread_mutex_lock(&variable->lock);
    struct status *st = update_value(ctx, variable, row, &old);
    pthread_mutex_unlock(&variable->lock);
    tensor_clear(&old);
    variable_unref(variable);
    KERNEL_TRY(ctx, st);
    if (row->is_ref)
        kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

/* ---- CountUpTo ---- */

enum kernel_result count_up_to(struct kernel_ctx *ctx) {
    const struct count_state *state = ctx->instance->state;
    struct variable *variable = NULL;
    bool is_ref = ctx->inputs[0].storage == TENSOR_REF;
    KERNEL_TRY(ctx, variable_of_input(ctx, 0, &variable));
    pthread_mutex_lock(&variable->lock);
    struct status *st = variable_check(variable, is_ref, state->dtype);
    if (!st && variable->value.rank != 0)
        st = status_invalid("input is not a scalar: %s", TENSOR_SHAPE_TEXT(&variable->value));
    if (!st) {
        int64_t now = tensor_index_at(&variable->value, 0);
        if (now >= state->limit) {
            st = status_out_of_range("Reached limit of %lld", (long long)state->limit);
        } else {
            tensor_init_scalar(&ctx->outputs[0], state->dtype, tensor_cdata(&variable->value));
            /* now is below the limit, which init has checked to fit an int32 attr */
            int32_t next_32 = (int32_t)(now + 1);
            int64_t next = now + 1;
            struct tensor old = variable->value;
            tensor_init_scalar(&variable->value, state->dtype,
                               state->dtype == DT_INT32 ? (void *)&next_32 : (void *)&next);
            tensor_clear(&old);
        }
    }
    pthread_mutex_unlock(&variable->lock);
    variable_unref(variable);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

struct status *count_init(struct kernel_init *init) {
    struct count_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_i(init->node, "limit", &state->limit));
    TRY(node_get_type(init->node, "T", &state->dtype));
    /* The count stops at the type's largest number, where TensorFlow's would wrap. */
    if (state->dtype == DT_INT32)
        state->limit = MIN(state->limit, INT32_MAX);
    return NULL;
}

enum kernel_result variable_change(struct kernel_ctx *ctx, variable_change_fn *change,
                                   bool is_ref) {
    struct variable *variable = NULL;
    KERNEL_TRY(ctx, variable_of_input(ctx, 0, &variable));
    pthread_mutex_lock(&variable->lock);
    struct status *st = change(ctx, variable, ctx->instance->def->arg);
    pthread_mutex_unlock(&variable->lock);
    variable_unref(variable);
    KERNEL_TRY(ctx, st);
    if (is_ref)
        kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}
