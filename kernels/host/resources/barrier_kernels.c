/* Computes the ops of barriers (kernels/host/resources/barrier.h). */
#include <stdlib.h>

#include "kernels/host/resources/barrier.h"
#include "kernels/support/dims.h"

extern const struct kernel_list barrier_kernels;

/* ---- making ---- */

struct barrier_state {
    struct named_resource resource;
    uint8_t *types;
    struct shape *shapes;
    int n_components, n_shapes;
};

static void barrier_state_fini(void *arg) {
    struct barrier_state *state = arg;
    named_resource_fini(&state->resource);
    shapes_free(state->shapes, state->n_shapes);
    free(state->types);
    free(state);
}

static struct status *barrier_init(struct kernel_init *init) {
    struct barrier_state *state = xcalloc(1, sizeof(*state));
    int64_t capacity = -1;
    init->state = state;
    TRY(named_resource_init(&state->resource, init, &barrier_type, RESOURCE_OWN, barrier_empty));
    TRY(read_types(init->node, "component_types", 0, &state->types, &state->n_components));
    TRY(read_shapes(init->node, "shapes", 0, false, &state->shapes, &state->n_shapes));
    TRY(node_get_i(init->node, "capacity", &capacity));
    if (state->n_shapes != state->n_components)
        return status_invalid("All of the component shapes must be specified");
    if (capacity != -1)
        return status_invalid("Barrier only accepts capacity=-1.  Feed the inputs to your Barrier "
                              "through a queue to enforce a limited "
                              "capacity.");
    return NULL;
}

static struct status *make_barrier(struct kernel_ctx *ctx, void *arg, struct object **ret) {
    const struct barrier_state *state = arg;
    *ret = &barrier_new(state->types, state->shapes, state->n_components, state->resource.name)
                ->object;
    return NULL;
}

static struct status *check_shared(const struct barrier *barrier,
                                   const struct barrier_state *wanted) {
    struct str have = STR_INIT, want = STR_INIT;
    const char *what = NULL;
    bool same_types = barrier->n_components == wanted->n_components &&
                      memcmp(barrier->types, wanted->types, (size_t)wanted->n_components) == 0;
    if (!same_types) {
        what = "types";
        types_print(barrier->types, barrier->n_components, &have);
        types_print(wanted->types, wanted->n_components, &want);
    }
    for (int i = 0; !what && i < wanted->n_shapes; i++) {
        if (shape_equal(barrier->shapes[i], wanted->shapes[i]))
            continue;
        what = "shapes";
        shapes_print(barrier->shapes, barrier->n_components, &have);
        shapes_print(wanted->shapes, wanted->n_shapes, &want);
    }
    struct status *st =
        !what ? NULL
              : status_invalid(
                    "Shared barrier '%s' has component %s %s but requested component %s were %s",
                    barrier->name, what, str_text(&have), what, str_text(&want));
    str_fini(&have);
    str_fini(&want);
    return st;
}

static enum kernel_result barrier_compute(struct kernel_ctx *ctx) {
    struct barrier_state *state = ctx->instance->state;
    struct object *found = NULL;
    KERNEL_TRY(ctx, named_resource_get(ctx, &state->resource, make_barrier, state, &found));
    struct status *st = check_shared((struct barrier *)found, state);
    if (likely(!st))
        st = named_resource_output(ctx, &state->resource);
    object_unref(found);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* ---- operations ---- */

typedef enum kernel_result barrier_fn(struct kernel_ctx *ctx, struct barrier *barrier);

static enum kernel_result with_barrier(struct kernel_ctx *ctx, barrier_fn *fn) {
    struct object *found = NULL;
    KERNEL_TRY(ctx, named_resource_of_input(ctx, &barrier_type, &found));
    enum kernel_result result = fn(ctx, (struct barrier *)found);
    object_unref(found);
    return result;
}

static struct status *insert_init(struct kernel_init *init) {
    int64_t *component = init->state = xcalloc(1, sizeof(*component));
    return node_get_i(init->node, "component_index", component);
}

static struct status *check_insert(const struct kernel_ctx *ctx, const struct barrier *barrier,
                                   int64_t component) {
    const struct tensor *keys = kernel_input(ctx, 1), *values = kernel_input(ctx, 2);
    if (component < 0 || component >= barrier->n_components)
        return status_invalid("The component ID is out of range %lld > num_components (= %d)",
                              (long long)component, barrier->n_components);
    const uint8_t in[] = {DT_STRING, barrier->types[component]};
    TRY(check_signature(ctx, (struct type_list){in, 2}, (struct type_list){NULL, 0}));
    if (keys->n_elements > 0 && values->n_elements == 0)
        return status_invalid("Tensors with no elements are not supported %s: received shape %s",
                              barrier->name, TENSOR_SHAPE_TEXT(values));
    if (keys->n_elements != (values->rank > 0 ? tensor_dim(values, 0) : 1))
        return status_invalid(
            "There must be a value for each key: received keys of shape %s and values of shape %s",
            TENSOR_SHAPE_TEXT(keys), TENSOR_SHAPE_TEXT(values));
    struct shape one =
        values->rank > 0 ? (struct shape){values->rank - 1, tensor_dims(values) + 1} : SHAPE_SCALAR;
    if (keys->n_elements > 0 && !shape_equal(one, barrier->shapes[component]))
        return status_invalid("Shape mismatch in tuple component %lld. Expected %s, got %s",
                              (long long)component + 2, SHAPE_TEXT(barrier->shapes[component]),
                              SHAPE_TEXT(one));
    return NULL;
}

static enum kernel_result insert_many(struct kernel_ctx *ctx, struct barrier *barrier) {
    int64_t component = *(const int64_t *)ctx->instance->state;
    KERNEL_TRY(ctx, check_insert(ctx, barrier, component));
    KERNEL_TRY(ctx, barrier_insert(barrier, ctx->instance->allocator, (int)component,
                                   kernel_input(ctx, 1), kernel_input(ctx, 2)));
    return KERNEL_DONE;
}
static enum kernel_result barrier_insert_compute(struct kernel_ctx *ctx) {
    return with_barrier(ctx, insert_many);
}

struct take_state {
    bool is_small_allowed;
};

static struct status *take_init(struct kernel_init *init) {
    struct take_state *state = init->state = xcalloc(1, sizeof(*state));
    int64_t timeout_ms = -1;
    TRY(node_get_i(init->node, "timeout_ms", &timeout_ms));
    TRY(node_get_b(init->node, "allow_small_batch", &state->is_small_allowed));
    return timeout_ms == -1 ? NULL : status_invalid("Timeout not supported yet.");
}

static struct status *check_take(const struct kernel_ctx *ctx, const struct barrier *barrier) {
    static const uint8_t in = DT_INT32;
    const struct tensor *n = kernel_input(ctx, 1);
    uint8_t *out = xmalloc((size_t)barrier->n_components + 2);
    out[0] = DT_INT64;
    out[1] = DT_STRING;
    memcpy(out + 2, barrier->types, (size_t)barrier->n_components);
    struct status *st = check_signature(ctx, (struct type_list){&in, 1},
                                        (struct type_list){out, barrier->n_components + 2});
    free(out);
    TRY(st);
    if (n->rank != 0)
        return status_invalid("num_elements must be a scalar.");
    if (tensor_index_at(n, 0) < 0)
        return status_invalid("num_elements must not be negative, but was %lld",
                              (long long)tensor_index_at(n, 0));
    return NULL;
}

static enum kernel_result take_many(struct kernel_ctx *ctx, struct barrier *barrier) {
    const struct take_state *state = ctx->instance->state;
    KERNEL_TRY(ctx, check_take(ctx, barrier));
    return barrier_take(barrier, ctx, tensor_index_at(kernel_input(ctx, 1), 0),
                        state->is_small_allowed);
}
static enum kernel_result barrier_take_compute(struct kernel_ctx *ctx) {
    return with_barrier(ctx, take_many);
}

static struct status *close_init(struct kernel_init *init) {
    return kernel_init_bool_attr(init, "cancel_pending_enqueues");
}

static enum kernel_result close_it(struct kernel_ctx *ctx, struct barrier *barrier) {
    KERNEL_TRY(ctx, barrier_close(barrier, *(const bool *)ctx->instance->state));
    return KERNEL_DONE;
}
static enum kernel_result barrier_close_compute(struct kernel_ctx *ctx) {
    return with_barrier(ctx, close_it);
}

static enum kernel_result size_out(struct kernel_ctx *ctx, int64_t n) {
    tensor_init_scalar_i32(&ctx->outputs[0], (int32_t)MIN(n, (int64_t)INT32_MAX));
    return KERNEL_DONE;
}
static enum kernel_result ready_size(struct kernel_ctx *ctx, struct barrier *b) {
    return size_out(ctx, barrier_ready_size(b));
}
static enum kernel_result incomplete_size(struct kernel_ctx *ctx, struct barrier *b) {
    return size_out(ctx, barrier_incomplete_size(b));
}
static enum kernel_result barrier_ready_compute(struct kernel_ctx *ctx) {
    return with_barrier(ctx, ready_size);
}
static enum kernel_result barrier_incomplete_compute(struct kernel_ctx *ctx) {
    return with_barrier(ctx, incomplete_size);
}

/* The types of values that TensorFlow registers. */
#define INSERTED (DTYPES_NUMBER | DTYPES_OBJECT | DTYPE_BIT(DT_BOOL))

// clang-format off
static const struct kernel_def rows[] = {
    {.op = "Barrier", .compute = barrier_compute, .init = barrier_init, .fini = barrier_state_fini,
     .flags = KERNEL_STATEFUL | KERNEL_SESSION_STATE},
    {.op = "BarrierInsertMany", {{"T", INSERTED}}, .compute = barrier_insert_compute,
     .init = insert_init, .flags = KERNEL_STATEFUL},
    {.op = "BarrierTakeMany", .compute = barrier_take_compute, .init = take_init,
     .flags = KERNEL_ASYNC | KERNEL_STATEFUL},
    {.op = "BarrierClose", .compute = barrier_close_compute, .init = close_init,
     .flags = KERNEL_STATEFUL},
    {.op = "BarrierReadySize", .compute = barrier_ready_compute, .flags = KERNEL_STATEFUL},
    {.op = "BarrierIncompleteSize", .compute = barrier_incomplete_compute,
     .flags = KERNEL_STATEFUL},
};
// clang-format on

const struct kernel_list barrier_kernels = {rows, ARRAY_LEN(rows)};
