/* CPU kernels of resource variables: the edge carries a handle, and the value is in a container.
 * resource_gather.c has the reads by index, state_scatter.c and state_scatter_nd.c the scattered
 * updates. */
#include <stdio.h>
#include <stdlib.h>

#include "kernels/cpu/state/state_internal.h"
#include "kernels/host.h"
#include "kernels/kernel.h"
#include "kernels/support/variable_input.h"
#include "kernels/variable.h"
#include "kernels/support/dims.h"

extern const struct kernel_list resource_variable_kernels;

/* ---- VarHandleOp ---- */

struct handle_state {
    char *container, *name;
    enum dtype dtype;
    bool is_anonymous;
    _Atomic(struct resource_handle *) handle; /* made by the first execution, constant afterwards */
};

/* TensorFlow's Python passes this shared_name for variables that need a new resource in each
 * execution. */
static const char anonymous_name[] = "cd2c89b7-88b7-44c8-ad83-06c2a9158347";

static void handle_state_fini(void *arg) {
    struct handle_state *state = arg;
    struct resource_handle *handle = atomic_load(&state->handle);
    if (handle)
        object_unref(&handle->object);
    free(state->container);
    free(state->name);
    free(state);
}

static struct status *handle_init(struct kernel_init *init) {
    struct handle_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    struct span container = {0}, name = {0};
    TRY(node_get_s(init->node, "container", &container));
    TRY(node_get_s(init->node, "shared_name", &name));
    TRY(node_get_type(init->node, "dtype", &state->dtype));
    state->is_anonymous = span_is(name, anonymous_name);
    if (name.len == 0)
        name = span_of(node_state_name(init->node));
    state->container = xstrndup(container.data, container.len);
    state->name = xstrndup(name.data, name.len);
    return NULL;
}

static enum kernel_result handle_anonymous(struct kernel_ctx *ctx,
                                           const struct handle_state *state) {
    char name[64];
    snprintf(name, sizeof(name), "_AnonymousVar%llu", (unsigned long long)ctx->host->unique_id());
    struct resource_handle *handle =
        ctx->host->handle_make(ctx, state->container, name, &variable_type, state->dtype);
    tensor_init_scalar_object(&ctx->outputs[0], DT_RESOURCE, &handle->object);
    return KERNEL_DONE;
}

static enum kernel_result handle_compute(struct kernel_ctx *ctx) {
    struct handle_state *state = ctx->instance->state;
    if (unlikely(state->is_anonymous))
        return handle_anonymous(ctx, state);
    struct resource_handle *handle = atomic_load_explicit(&state->handle, memory_order_acquire);
    if (unlikely(!handle)) {
        struct resource_handle *made = ctx->host->handle_make(ctx, state->container, state->name,
                                                              &variable_type, state->dtype);
        if (atomic_compare_exchange_strong(&state->handle, &handle, made))
            handle = made;
        else
            object_unref(&made->object);
    }
    tensor_init_scalar_object(&ctx->outputs[0], DT_RESOURCE, object_ref(&handle->object));
    return KERNEL_DONE;
}

/* ---- ReadVariableOp and similar ops ---- */

/* Words a failed lookup as readers report it. */
static COLD struct status *not_found_for_read(const struct resource_handle *handle,
                                              struct status *why) {
    struct status *st = status_failed_precondition(
        "Could not find variable %s. This could mean that the variable has been deleted. In TF1, "
        "it can also mean the variable is "
        "uninitialized. Debug info: container=%s, status error message=%s",
        handle->name, handle->container, status_message(why));
    status_unref(why);
    return st;
}

static struct status *find_for_read(struct kernel_ctx *ctx, struct variable **ret) {
    const struct resource_handle *handle = NULL;
    struct object *found = NULL;
    TRY(handle_of_input(ctx, 0, &handle));
    struct status *st = ctx->host->handle_lookup(ctx, handle, &variable_type, &found);
    if (unlikely(st != NULL))
        return not_found_for_read(handle, st);
    *ret = variable_of(found);
    return NULL;
}

static COLD struct status *nothing_to_read(const struct kernel_ctx *ctx) {
    const struct resource_handle *handle = NULL;
    TRY(handle_of_input(ctx, 0, &handle));
    return status_failed_precondition("Error while reading resource variable %s from Container: "
                                      "%s. This could mean that the variable was "
                                      "uninitialized.",
                                      handle->name, handle->container);
}

static enum kernel_result read_compute(struct kernel_ctx *ctx) {
    struct variable *variable = NULL;
    struct tensor *out = &ctx->outputs[0];
    KERNEL_TRY(ctx, find_for_read(ctx, &variable));
    pthread_mutex_lock(&variable->lock);
    bool has_value = tensor_has_value(&variable->value);
    if (likely(has_value))
        tensor_copy(out, &variable->value);
    pthread_mutex_unlock(&variable->lock);
    variable_unref(variable);
    if (unlikely(!has_value))
        return kernel_fail(ctx, nothing_to_read(ctx));
    enum dtype wanted = (enum dtype)ctx->instance->out_types[0];
    if (unlikely(out->dtype != wanted)) {
        struct status *st =
            status_invalid("Trying to read variable with wrong dtype. Expected %s got %s",
                           dtype_name(wanted), dtype_name((enum dtype)out->dtype));
        tensor_clear(out);
        return kernel_fail(ctx, st);
    }
    return KERNEL_DONE;
}

/* Our reads are always by reference, so there is nothing to switch off. The op only checks that the
 * variable exists. */
static enum kernel_result disable_copy_on_read(struct kernel_ctx *ctx) {
    struct variable *variable = NULL;
    KERNEL_TRY(ctx, find_for_read(ctx, &variable));
    variable_unref(variable);
    return KERNEL_DONE;
}

static enum kernel_result var_is_initialized(struct kernel_ctx *ctx) {
    struct variable *variable = NULL;
    struct status *st = variable_of_input(ctx, 0, &variable);
    status_unref(st);
    tensor_init_scalar_bool(&ctx->outputs[0], !st && variable_is_initialized(variable));
    variable_unref(variable);
    return KERNEL_DONE;
}

static enum kernel_result variable_shape(struct kernel_ctx *ctx) {
    struct variable *variable = NULL;
    KERNEL_TRY(ctx, variable_of_input(ctx, 0, &variable));
    struct tensor value = TENSOR_INIT;
    pthread_mutex_lock(&variable->lock);
    bool has_value = tensor_has_value(&variable->value);
    if (has_value)
        tensor_copy(&value, &variable->value);
    pthread_mutex_unlock(&variable->lock);
    variable_unref(variable);
    if (!has_value)
        return kernel_fail(ctx, nothing_to_read(ctx));
    enum dtype dtype = (enum dtype)ctx->instance->out_types[0];
    struct status *st =
        kernel_alloc(ctx, 0, dtype, (struct shape){1, (const int64_t[]){value.rank}});
    void *to = st ? NULL : tensor_data(&ctx->outputs[0]);
    for (int i = 0; !st && i < value.rank; i++) {
        int64_t dim = tensor_dim(&value, i);
        if (dtype == DT_INT64)
            ((int64_t *)to)[i] = dim;
        else if (dim <= INT32_MAX)
            ((int32_t *)to)[i] = (int32_t)dim;
        else
            st =
                status_invalid("Shape output type is 32-bit but dim %d is %lld", i, (long long)dim);
    }
    tensor_clear(&value);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- AssignVariableOp ---- */

struct assign_variable_state {
    enum dtype dtype;
    bool validate_shape;
};

static struct status *assign_variable_init(struct kernel_init *init) {
    struct assign_variable_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    TRY(node_get_type(init->node, "dtype", &state->dtype));
    return node_get_b(init->node, "validate_shape", &state->validate_shape);
}

static struct status *variable_create(struct kernel_ctx *ctx, void *arg, struct object **ret) {
    const struct assign_variable_state *state = ctx->instance->state;
    const struct resource_handle *handle = arg;
    *ret = &variable_new(state->dtype, handle->name)->object;
    return NULL;
}

static enum kernel_result assign_variable(struct kernel_ctx *ctx) {
    const struct assign_variable_state *state = ctx->instance->state;
    const struct resource_handle *handle = NULL;
    struct object *found = NULL;
    struct tensor value = TENSOR_INIT;
    KERNEL_TRY(ctx, handle_of_input(ctx, 0, &handle));
    KERNEL_TRY(ctx, ctx->host->handle_lookup_or_create(ctx, handle, &variable_type, variable_create,
                                                       (void *)(uintptr_t)handle, &found));
    struct variable *variable = variable_of(found);
    struct status *st = NULL;
    if (unlikely(variable->dtype != state->dtype))
        st = status_invalid("Trying to assign variable with wrong dtype. Expected %s got %s",
                            dtype_name(variable->dtype), dtype_name(state->dtype));
    else
        st = variable_keep(ctx, 1, &value);
    if (likely(!st)) {
        pthread_mutex_lock(&variable->lock);
        bool has_value = tensor_has_value(&variable->value);
        if (unlikely(state->validate_shape && has_value &&
                     !shape_equal(tensor_shape(&variable->value), tensor_shape(&value)))) {
            st = status_invalid(
                "Trying to assign to variable with tensor with wrong shape. Expected %s got %s",
                TENSOR_SHAPE_TEXT(&variable->value), TENSOR_SHAPE_TEXT(&value));
        } else {
            struct tensor old = variable->value;
            variable->value = value;
            value = old;
        }
        pthread_mutex_unlock(&variable->lock);
    }
    tensor_clear(&value); /* the replaced value, or the refused one */
    variable_unref(variable);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- DestroyResourceOp ---- */

static struct status *destroy_init(struct kernel_init *init) {
    return kernel_init_bool_attr(init, "ignore_lookup_error");
}

static enum kernel_result destroy(struct kernel_ctx *ctx) {
    const bool *ignores_lookup_error = ctx->instance->state;
    const struct resource_handle *handle = NULL;
    KERNEL_TRY(ctx, handle_of_input(ctx, 0, &handle));
    struct status *st = ctx->host->resource_delete(ctx, handle);
    if (*ignores_lookup_error && status_code(st) == STATUS_NOT_FOUND) {
        status_unref(st);
        st = NULL;
    }
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "VarHandleOp", .compute = handle_compute, .init = handle_init, .fini = handle_state_fini,
        .flags = KERNEL_STATEFUL},
    {.op = "ReadVariableOp", .compute = read_compute, .flags = KERNEL_STATEFUL},
    {.op = "DisableCopyOnRead", .compute = disable_copy_on_read, .flags = KERNEL_STATEFUL},
    {.op = "AssignVariableOp", .compute = assign_variable, .init = assign_variable_init,
        .flags = KERNEL_STATEFUL},
    {.op = "AssignAddVariableOp", {{"dtype", DTYPES_NUMBER}}, .compute = assign_update,
        .arg = &assign_update_resource[0], .flags = KERNEL_STATEFUL},
    {.op = "AssignSubVariableOp", {{"dtype", DTYPES_NUMBER}}, .compute = assign_update,
        .arg = &assign_update_resource[1], .flags = KERNEL_STATEFUL},
    {.op = "VarIsInitializedOp", .compute = var_is_initialized, .flags = KERNEL_STATEFUL},
    {.op = "VariableShape", {{"out_type", DTYPES_INDEX}}, .compute = variable_shape,
        .flags = KERNEL_STATEFUL},
    {.op = "ResourceCountUpTo", {{"T", DTYPES_INDEX}}, .compute = count_up_to, .init = count_init,
        .flags = KERNEL_STATEFUL},
    {.op = "DestroyResourceOp", .compute = destroy, .init = destroy_init, .flags = KERNEL_STATEFUL},
};
// clang-format on

const struct kernel_list resource_variable_kernels = {rows, ARRAY_LEN(rows)};
