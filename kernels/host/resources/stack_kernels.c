/* Computes the ops of stacks. A stack of tensors is in the step's own container, and loops keep
 * values for their gradients in it.
 *
 * StackV2 and its ops use a resource handle. Stack and its ops, the first version, use a reference
 * to a string vector {"_stacks", name}. */
#include <stdlib.h>

#include "kernels/host.h"
#include "kernels/kernel.h"
#include "kernels/support/swap.h"
#include "kernels/support/variable_input.h"
#include "kernels/variable.h"

extern const struct kernel_list stack_kernels;

struct stack {
    struct object object;
    pthread_mutex_t lock;
    char *name;
    enum dtype dtype;
    int64_t max_size; /* -1: no limit */
    /* guarded by lock */
    struct tensor *values;
    bool *is_out; /* by value: it was moved from the device's memory to the host's */
    int64_t n, capacity;
    bool is_closed;
};

static void stack_drop(struct stack *stack) {
    for (int64_t i = 0; i < stack->n; i++)
        tensor_clear(&stack->values[i]);
    free(stack->values);
    free(stack->is_out);
    stack->values = NULL;
    stack->is_out = NULL;
    stack->n = stack->capacity = 0;
}

static void stack_free(struct object *object) {
    struct stack *stack = (struct stack *)object;
    stack_drop(stack);
    pthread_mutex_destroy(&stack->lock);
    free(stack->name);
    free(stack);
}

static const struct object_type stack_type = {.name = "Stack", .free = stack_free};

/* ---- making ---- */

struct stack_state {
    char *name;
    enum dtype dtype;
};

static void stack_state_fini(void *arg) {
    struct stack_state *state = arg;
    free(state->name);
    free(state);
}

static struct status *stack_init(struct kernel_init *init) {
    struct stack_state *state = xcalloc(1, sizeof(*state));
    init->state = state;
    struct span name = {0};
    TRY(node_get_s(init->node, "stack_name", &name));
    if (name.len == 0)
        name = span_of(init->node->name);
    state->name = xstrndup(name.data, name.len);
    return node_get_type(init->node, "elem_type", &state->dtype);
}

struct stack_create_args {
    const char *name;
    enum dtype dtype;
    int64_t max_size;
};

static struct status *make_stack(struct kernel_ctx *ctx, void *arg, struct object **ret) {
    const struct stack_create_args *making = arg;
    struct stack *stack = xcalloc(1, sizeof(*stack));
    object_init(&stack->object, &stack_type);
    pthread_mutex_init(&stack->lock, NULL);
    stack->name = xstrdup(making->name);
    stack->dtype = making->dtype;
    stack->max_size = making->max_size;
    *ret = &stack->object;
    return NULL;
}

/* Makes the handle to a new stack, under a name that no other stack has. */
static struct status *stack_make(struct kernel_ctx *ctx, int64_t max_size,
                                 struct resource_handle **ret) {
    const struct stack_state *state = ctx->instance->state;
    struct str name = STR_INIT;
    str_addf(&name, "%s_%llu", state->name, (unsigned long long)ctx->host->unique_id());
    struct stack_create_args making = {
        .name = str_text(&name), .dtype = state->dtype, .max_size = max_size};
    struct resource_handle *handle =
        ctx->host->handle_make(ctx, NULL, making.name, &stack_type, state->dtype);
    struct object *found = NULL;
    struct status *st =
        ctx->host->handle_lookup_or_create(ctx, handle, &stack_type, make_stack, &making, &found);
    str_fini(&name);
    if (st) {
        object_unref(&handle->object);
        return st;
    }
    object_unref(found);
    *ret = handle;
    return NULL;
}

static enum kernel_result stack_compute(struct kernel_ctx *ctx) {
    const struct tensor *max_size = kernel_input(ctx, 0);
    struct resource_handle *handle = NULL;
    if (max_size->rank != 0)
        return kernel_fail(ctx, status_invalid("Stack size must be scalar, but had shape: %s",
                                               TENSOR_SHAPE_TEXT(max_size)));
    int64_t limit = tensor_index_at(max_size, 0);
    KERNEL_TRY(ctx, stack_make(ctx, limit < 0 ? -1 : limit, &handle));
    tensor_init_scalar_object(&ctx->outputs[0], DT_RESOURCE, &handle->object);
    return KERNEL_DONE;
}

static enum kernel_result stack_v1_compute(struct kernel_ctx *ctx) {
    struct resource_handle *handle = NULL;
    struct tensor strings = TENSOR_INIT;
    KERNEL_TRY(ctx, stack_make(ctx, -1, &handle));
    struct status *st = tensor_new(ctx->instance->allocator, DT_STRING,
                                   (struct shape){1, (const int64_t[]){2}}, &strings);
    if (!st) {
        tensor_set_string(&strings, 0, "_stacks", strlen("_stacks"));
        tensor_set_string(&strings, 1, handle->name, strlen(handle->name));
        struct variable *variable = variable_new(DT_STRING, handle->name);
        variable_assign_take(variable, &strings);
        tensor_init_ref(&ctx->outputs[0], DT_STRING, &variable->object);
    }
    object_unref(&handle->object);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- finding ---- */

static struct status *find_by_strings(struct kernel_ctx *ctx, struct object **ret) {
    struct variable *variable = NULL;
    struct tensor strings = TENSOR_INIT;
    TRY(variable_of_input(ctx, 0, &variable));
    struct status *st = variable_read(variable, &strings);
    variable_unref(variable);
    TRY(st);
    if (strings.dtype != DT_STRING || strings.n_elements != 2) {
        tensor_clear(&strings);
        return status_invalid(
            "Stack handle must have two elements, but %s refers to something else",
            ctx->instance->node->name);
    }
    char *name = xstrndup(tensor_string(&strings, 1).data, tensor_string(&strings, 1).len);
    tensor_clear(&strings);
    st = ctx->host->resource_lookup(ctx, NULL, name, &stack_type, ret);
    free(name);
    return st;
}

static struct status *stack_of_input(struct kernel_ctx *ctx, struct stack **ret) {
    const struct resource_handle *handle = NULL;
    struct object *found = NULL;
    if (ctx->inputs[0].storage == TENSOR_REF) {
        TRY(find_by_strings(ctx, &found));
    } else {
        TRY(handle_of_input(ctx, 0, &handle));
        TRY(ctx->host->handle_lookup(ctx, handle, &stack_type, &found));
    }
    *ret = (struct stack *)found;
    return NULL;
}

/* ---- push, pop, close ---- */

static COLD struct status *closed(const struct stack *stack) {
    return status_invalid("Stack[%s] has already been closed.", stack->name);
}

/* The caller holds the lock. */
static struct status *push_locked(struct stack *stack, const struct tensor *value) {
    if (stack->is_closed)
        return closed(stack);
    if (stack->max_size >= 0 && stack->n >= stack->max_size)
        return status_invalid("Stack[%s] overflowed its max_size (%lld)", stack->name,
                              (long long)stack->max_size);
    if (stack->n == stack->capacity) {
        int64_t capacity = MAX(8, 2 * stack->capacity);
        struct tensor *values =
            aligned_alloc(_Alignof(struct tensor), (size_t)capacity * sizeof(*values));
        if (!values)
            return status_exhausted("Out of memory for the %lld values of Stack[%s]",
                                    (long long)capacity, stack->name);
        if (stack->n > 0)
            memcpy(values, stack->values, (size_t)stack->n * sizeof(*values));
        free(stack->values);
        stack->values = values;
        stack->is_out = xreallocarray(stack->is_out, (size_t)capacity, sizeof *stack->is_out);
        stack->capacity = capacity;
    }
    stack->is_out[stack->n] = false;
    tensor_copy(&stack->values[stack->n++], value);
    return NULL;
}

static struct status *push_init(struct kernel_init *init) {
    bool *swaps = xmalloc(sizeof *swaps);
    init->state = swaps;
    init->plain_state_bytes = sizeof *swaps;
    return node_get_b(init->node, "swap_memory", swaps);
}

/* The value at `slot` is on its way to the host's memory. */
struct push_swap {
    struct swap swap;
    struct stack *stack;
    int64_t slot;
    const void *data; /* of the value on the device */
};

/* The value may have been popped meanwhile. */
static struct status *push_swapped(struct swap *swap, struct status *st_take) {
    struct push_swap *push = CONTAINER_OF(swap, struct push_swap, swap);
    struct stack *stack = push->stack;
    pthread_mutex_lock(&stack->lock);
    if (!st_take && push->slot < stack->n && stack->values[push->slot].data == push->data) {
        tensor_clear(&stack->values[push->slot]);
        tensor_move(&stack->values[push->slot], &swap->value);
        stack->is_out[push->slot] = true;
    }
    pthread_mutex_unlock(&stack->lock);
    tensor_clear(&swap->value);
    object_unref(&stack->object);
    free(push);
    return st_take;
}

/* Takes the stack's reference. */
static enum kernel_result push_swap_take(struct kernel_ctx *ctx, struct stack *stack, int64_t slot,
                                         const struct tensor *value) {
    struct push_swap *push = aligned_alloc(_Alignof(struct push_swap), sizeof *push);
    CHECK(push);
    *push = (struct push_swap){
        .swap.finish = push_swapped, .stack = stack, .slot = slot, .data = value->data};
    return swap_out_start(ctx, &push->swap, value);
}

static enum kernel_result stack_push(struct kernel_ctx *ctx) {
    const bool *swaps = ctx->instance->state;
    struct stack *stack = NULL;
    struct status *st;
    int64_t slot = 0;
    KERNEL_TRY(ctx, stack_of_input(ctx, &stack));
    if (ctx->inputs[1].dtype != stack->dtype) {
        st = status_invalid("Must have type %d but got %d: Stack[%s] is of %s, the value of %s",
                            stack->dtype, ctx->inputs[1].dtype, stack->name,
                            dtype_name(stack->dtype), dtype_name((enum dtype)ctx->inputs[1].dtype));
    } else {
        pthread_mutex_lock(&stack->lock);
        st = push_locked(stack, &ctx->inputs[1]);
        slot = stack->n - 1;
        pthread_mutex_unlock(&stack->lock);
    }
    if (!st) {
        kernel_pass(ctx, 1, 0);
        if (*swaps && swap_is_wanted(ctx, &ctx->outputs[0]))
            return push_swap_take(ctx, stack, slot, &ctx->outputs[0]);
    }
    object_unref(&stack->object);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

static enum kernel_result stack_pop(struct kernel_ctx *ctx) {
    struct stack *stack = NULL;
    struct status *st = NULL;
    struct tensor value = TENSOR_INIT;
    bool is_out = false;
    KERNEL_TRY(ctx, stack_of_input(ctx, &stack));
    enum dtype wanted = (enum dtype)ctx->instance->out_types[0];
    pthread_mutex_lock(&stack->lock);
    if (stack->is_closed)
        st = closed(stack);
    else if (stack->dtype != wanted)
        st = status_invalid(
            "Output 0 of type %s does not match declared output type %s for node {{node %s}}",
            dtype_name(stack->dtype), dtype_name(wanted), ctx->instance->node->name);
    else if (stack->n == 0)
        st = status_invalid("Stack[%s] is empty when calling Pop().", stack->name);
    else {
        tensor_move(&value, &stack->values[--stack->n]);
        is_out = stack->is_out[stack->n];
    }
    pthread_mutex_unlock(&stack->lock);
    object_unref(&stack->object);
    KERNEL_TRY(ctx, st);
    if (is_out)
        return swap_in_take(ctx, 0, &value);
    tensor_move(&ctx->outputs[0], &value);
    return KERNEL_DONE;
}

static enum kernel_result stack_close(struct kernel_ctx *ctx) {
    struct stack *stack = NULL;
    KERNEL_TRY(ctx, stack_of_input(ctx, &stack));
    pthread_mutex_lock(&stack->lock);
    stack_drop(stack);
    stack->is_closed = true;
    pthread_mutex_unlock(&stack->lock);
    object_unref(&stack->object);
    return KERNEL_DONE;
}

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "StackV2", .compute = stack_compute, .init = stack_init, .fini = stack_state_fini,
     .flags = KERNEL_STATEFUL},
    {.op = "StackPushV2", .compute = stack_push, .init = push_init, .flags = KERNEL_STATEFUL},
    {.op = "StackPopV2", .compute = stack_pop, .flags = KERNEL_STATEFUL},
    {.op = "StackCloseV2", .compute = stack_close, .flags = KERNEL_STATEFUL},
    {.op = "Stack", .compute = stack_v1_compute, .init = stack_init, .fini = stack_state_fini,
     .flags = KERNEL_STATEFUL},
    {.op = "StackPush", .compute = stack_push, .init = push_init, .flags = KERNEL_STATEFUL},
    {.op = "StackPop", .compute = stack_pop, .flags = KERNEL_STATEFUL},
    {.op = "StackClose", .compute = stack_close, .flags = KERNEL_STATEFUL},
};
// clang-format on

const struct kernel_list stack_kernels = {rows, ARRAY_LEN(rows)};
