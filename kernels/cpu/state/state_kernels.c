/* CPU kernels of reference variables: the variable itself, assignment, initialisation.
 * state_scatter.c has the scattered updates.
 *
 * The edge of a reference variable carries a counted pointer to the variable. An op that takes a
 * reference outputs it again. */

#include <stdlib.h>

#include "kernels/cpu/state/state_internal.h"
#include "kernels/host.h"
#include "kernels/kernel.h"
#include "kernels/support/variable_input.h"
#include "kernels/variable.h"
#include "kernels/support/dims.h"

extern const struct kernel_list state_kernels;

/* ---- Variable, VariableV2, TemporaryVariable ---- */

struct variable_state {
    char *container, *name;
    enum dtype dtype;
    int rank;
    int64_t *dims;
    _Atomic(struct resource_handle *) handle; /* made by the first execution, constant afterwards */
};

static void variable_state_fini(void *arg) {
    struct variable_state *state = arg;
    struct resource_handle *handle = atomic_load(&state->handle);
    if (handle)
        object_unref(&handle->object);
    free(state->container);
    free(state->name);
    free(state->dims);
    free(state);
}

/* As in TensorFlow, an unknown rank means a scalar here. */
static struct status *state_read_shape(const struct node *node, struct variable_state *state) {
    struct shape shape = SHAPE_SCALAR;
    TRY(node_get_shape(node, "shape", &shape));
    if (shape.rank == SHAPE_UNKNOWN_RANK)
        shape = SHAPE_SCALAR;
    if (!shape_is_full(shape))
        return status_invalid("Shape %s is not fully defined", SHAPE_TEXT(shape));
    state->rank = shape.rank;
    state->dims = xcalloc((size_t)shape.rank + 1, sizeof(*state->dims));
    for (int i = 0; i < shape.rank; i++)
        state->dims[i] = shape.dims[i];
    return node_get_type(node, "dtype", &state->dtype);
}

static struct status *variable_init(struct kernel_init *init) {
    struct variable_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    struct span container = {0}, name = {0};
    TRY(node_get_s(init->node, "container", &container));
    TRY(node_get_s(init->node, "shared_name", &name));
    if (name.len == 0)
        name = span_of(node_state_name(init->node));
    state->container = xstrndup(container.data, container.len);
    state->name = xstrndup(name.data, name.len);
    return state_read_shape(init->node, state);
}

/* A variable without elements is initialised from the start. */
static struct status *variable_create(struct kernel_ctx *ctx, void *arg, struct object **ret) {
    const struct variable_state *state = arg;
    struct shape shape = {state->rank, state->dims};
    struct tensor empty = TENSOR_INIT;
    int64_t n = 0;
    TRY(shape_n_elements(shape, &n));
    if (n == 0)
        TRY(tensor_new(ctx->instance->allocator, state->dtype, shape, &empty));
    struct variable *variable = variable_new(state->dtype, state->name);
    variable_declare_shape(variable, shape);
    variable_assign_take(variable, &empty);
    *ret = &variable->object;
    return NULL;
}

static struct resource_handle *variable_handle(struct kernel_ctx *ctx,
                                               struct variable_state *state) {
    struct resource_handle *handle = atomic_load_explicit(&state->handle, memory_order_acquire);
    if (likely(handle))
        return handle;
    struct resource_handle *made =
        ctx->host->handle_make(ctx, state->container, state->name, &variable_type, state->dtype);
    if (atomic_compare_exchange_strong(&state->handle, &handle, made))
        return made;
    object_unref(&made->object);
    return handle;
}

static enum kernel_result variable_compute(struct kernel_ctx *ctx) {
    struct variable_state *state = ctx->instance->state;
    struct object *found = NULL;
    KERNEL_TRY(ctx,
               ctx->host->handle_lookup_or_create(ctx, variable_handle(ctx, state), &variable_type,
                                                  variable_create, state, &found));
    enum dtype dtype = variable_of(found)->dtype;
    if (unlikely(dtype != state->dtype)) {
        object_unref(found);
        return kernel_fail(ctx, status_invalid("Output 0 of type %s_ref does not match declared "
                                               "output type %s_ref for node {{node %s}}",
                                               dtype_name(dtype), dtype_name(state->dtype),
                                               ctx->instance->node->name));
    }
    tensor_init_ref(&ctx->outputs[0], dtype, found);
    return KERNEL_DONE;
}

static struct status *temporary_init(struct kernel_init *init) {
    struct variable_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    struct span name = {0};
    TRY(node_get_s(init->node, "var_name", &name));
    if (name.len == 0)
        name = span_of(init->node->name);
    state->name = xstrndup(name.data, name.len);
    return state_read_shape(init->node, state);
}

struct temporary_creation {
    const struct variable_state *state;
    bool is_new;
};

/* A temporary variable is initialised with zeros. */
static struct status *temporary_create(struct kernel_ctx *ctx, void *arg, struct object **ret) {
    struct temporary_creation *creation = arg;
    const struct variable_state *state = creation->state;
    struct tensor zeros = TENSOR_INIT;
    TRY(tensor_new_zeroed(ctx->instance->allocator, state->dtype,
                          (struct shape){state->rank, state->dims}, &zeros));
    struct variable *variable = variable_new(state->dtype, state->name);
    variable_assign_take(variable, &zeros);
    *ret = &variable->object;
    creation->is_new = true;
    return NULL;
}

static enum kernel_result temporary_compute(struct kernel_ctx *ctx) {
    const struct variable_state *state = ctx->instance->state;
    struct temporary_creation creation = {.state = state};
    struct object *found = NULL;
    KERNEL_TRY(ctx, ctx->host->resource_lookup_or_create(ctx, NULL, state->name, &variable_type,
                                                         temporary_create, &creation, &found));
    if (!creation.is_new) {
        object_unref(found);
        return kernel_fail(ctx, status_new(STATUS_ALREADY_EXISTS,
                                           "Resource __per_step/%s/%s already exists.", state->name,
                                           variable_type.name));
    }
    tensor_init_ref(&ctx->outputs[0], state->dtype, found);
    return KERNEL_DONE;
}

static struct status *destroy_temporary_init(struct kernel_init *init) {
    struct span name = {0};
    TRY(node_get_s(init->node, "var_name", &name));
    init->state = xstrndup(name.data, name.len);
    return NULL;
}

static enum kernel_result destroy_temporary(struct kernel_ctx *ctx) {
    struct variable *variable = NULL;
    KERNEL_TRY(ctx, variable_of_input(ctx, 0, &variable));
    struct status *st = variable_read(variable, &ctx->outputs[0]);
    variable_unref(variable);
    KERNEL_TRY(ctx, st);
    struct resource_handle *handle =
        ctx->host->handle_make(ctx, NULL, ctx->instance->state, &variable_type, DT_INVALID);
    st = ctx->host->resource_delete(ctx, handle);
    object_unref(&handle->object);
    /* from here on the output may be the only holder of the memory */
    tensor_clear(&ctx->inputs[0]);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

static enum kernel_result is_initialized(struct kernel_ctx *ctx) {
    struct variable *variable = NULL;
    KERNEL_TRY(ctx, variable_of_input(ctx, 0, &variable));
    tensor_init_scalar_bool(&ctx->outputs[0], variable_is_initialized(variable));
    variable_unref(variable);
    return KERNEL_DONE;
}

/* ---- Assign ---- */

static struct status *assign_init(struct kernel_init *init) {
    return kernel_init_bool_attr(init, "validate_shape");
}

/* The caller holds the lock. */
static struct status *assign_validate(const struct variable *variable, const struct tensor *value) {
    bool has_value = tensor_has_value(&variable->value);
    if (!has_value && !variable->has_declared_shape)
        return NULL;
    struct shape shape = has_value ? tensor_shape(&variable->value) : variable->declared_shape;
    if (likely(shape_equal(shape, tensor_shape(value))))
        return NULL;
    return status_invalid(
        "Assign requires shapes of both tensors to match. lhs shape= %s rhs shape= %s",
        SHAPE_TEXT(shape), TENSOR_SHAPE_TEXT(value));
}

/* Takes *value, and leaves there what is not needed any more. The caller holds the lock. */
static void replace_value(struct variable *variable, struct tensor *value) {
    struct tensor old = variable->value;
    variable->value = *value;
    *value = old;
    if (likely(!tensor_has_value(&old) || old.n_elements == variable->value.n_elements))
        return;
    *value = variable->former;
    variable->former = old;
}

static enum kernel_result assign(struct kernel_ctx *ctx) {
    const bool *validate_shape = ctx->instance->state;
    struct variable *variable = NULL;
    struct status *st = NULL;
    struct tensor value = TENSOR_INIT;
    KERNEL_TRY(ctx, variable_of_input(ctx, 0, &variable));
    if (variable->dtype != ctx->inputs[1].dtype)
        st = status_invalid("Assign to variable %s of type %s of a value of type %s",
                            variable->name, dtype_name(variable->dtype),
                            dtype_name((enum dtype)ctx->inputs[1].dtype));
    else
        st = variable_keep(ctx, 1, &value);
    if (!st) {
        pthread_mutex_lock(&variable->lock);
        if (*validate_shape)
            st = assign_validate(variable, &value);
        if (!st)
            replace_value(variable, &value);
        pthread_mutex_unlock(&variable->lock);
    }
    tensor_clear(&value); /* the replaced value, or the refused one */
    variable_unref(variable);
    KERNEL_TRY(ctx, st);
    kernel_pass(ctx, 0, 0);
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "Variable", .compute = variable_compute, .init = variable_init,
        .fini = variable_state_fini, .flags = KERNEL_STATEFUL},
    {.op = "VariableV2", .compute = variable_compute, .init = variable_init,
        .fini = variable_state_fini, .flags = KERNEL_STATEFUL},
    {.op = "TemporaryVariable", .compute = temporary_compute, .init = temporary_init,
        .fini = variable_state_fini, .flags = KERNEL_STATEFUL},
    {.op = "DestroyTemporaryVariable", .compute = destroy_temporary, .init = destroy_temporary_init,
        .flags = KERNEL_STATEFUL},
    {.op = "IsVariableInitialized", .compute = is_initialized, .flags = KERNEL_STATEFUL},
    {.op = "Assign", .compute = assign, .init = assign_init, .flags = KERNEL_STATEFUL},
    {.op = "AssignAdd", {{"T", DTYPES_NUMBER}}, .compute = assign_update,
        .arg = &assign_update_ref[0], .flags = KERNEL_STATEFUL},
    {.op = "AssignSub", {{"T", DTYPES_NUMBER}}, .compute = assign_update,
        .arg = &assign_update_ref[1], .flags = KERNEL_STATEFUL},
    {.op = "CountUpTo", {{"T", DTYPES_INDEX}}, .compute = count_up_to, .init = count_init,
        .flags = KERNEL_STATEFUL},
};
// clang-format on

const struct kernel_list state_kernels = {rows, ARRAY_LEN(rows)};
