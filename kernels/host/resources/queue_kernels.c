/* Computes the ops that make, fill, drain and close queues. Reads and checks attrs and inputs.
 * queue.c does the waiting. */
#include <stdlib.h>

#include "kernels/host/resources/queue.h"
#include "kernels/support/device_engine.h"
#include "kernels/support/dims.h"
#include "kernels/support/moves.h"
#include "kernels/support/variable_input.h"

extern const struct kernel_list queue_kernels;

/* ---- making ---- */

struct queue_state {
    struct named_resource resource;
    struct queue_options options;
};

static void queue_state_fini(void *arg) {
    struct queue_state *state = arg;
    named_resource_fini(&state->resource);
    queue_options_fini(&state->options);
    free(state);
}

/* The arg of a row. */
struct queue_row {
    enum queue_order order;
};
static const struct queue_row fifo = {QUEUE_FIFO}, padding = {QUEUE_PADDING_FIFO},
                              shuffle = {QUEUE_RANDOM}, priority = {QUEUE_PRIORITY};

static struct status *check_component_shapes(const struct queue_options *options) {
    struct str types = STR_INIT, shapes = STR_INIT;
    struct status *st = NULL;
    types_print(options->types, options->n_components, &types);
    shapes_print(options->shapes, options->n_shapes, &shapes);
    if (options->n_shapes != options->n_components && options->order == QUEUE_PADDING_FIFO)
        st = status_invalid(
            "Shapes must be provided for all components, but received %d dtypes and %d shapes.",
            options->n_components, options->n_shapes);
    else if (options->n_shapes != options->n_components && options->n_shapes > 0)
        st = status_invalid("Different number of component types.  Types: %s, Shapes: %s",
                            str_text(&types), str_text(&shapes));
    for (int i = 0; !st && i < options->n_shapes; i++)
        if (options->shapes[i].rank < 0)
            st = status_invalid("shape %s must have known rank.", SHAPE_TEXT(options->shapes[i]));
    str_fini(&types);
    str_fini(&shapes);
    return st;
}

/* A priority queue has the priority, an int64 scalar, before its declared components. */
static struct status *read_components(const struct node *node, struct queue_options *options) {
    int n_before = options->order == QUEUE_PRIORITY;
    TRY(read_types(node, "component_types", n_before, &options->types, &options->n_components));
    TRY(read_shapes(node, "shapes", n_before, options->order == QUEUE_PADDING_FIFO,
                    &options->shapes, &options->n_shapes));
    if (options->order == QUEUE_PRIORITY) {
        options->types[0] = DT_INT64;
        options->shapes[0] = SHAPE_SCALAR;
        if (options->n_shapes == 1)
            return status_invalid(
                "Node '%s': the component shapes [] of a PriorityQueue must be specified",
                node->name);
    }
    return check_component_shapes(options);
}

static struct status *read_random(const struct node *node, struct queue_options *options) {
    TRY(node_get_i(node, "min_after_dequeue", &options->min_after_dequeue));
    TRY(node_get_i(node, "seed", &options->seed));
    TRY(node_get_i(node, "seed2", &options->seed2));
    if (options->min_after_dequeue < 0)
        return status_invalid("min_after_dequeue %lld must be >= 0",
                              (long long)options->min_after_dequeue);
    if (options->min_after_dequeue >= options->capacity)
        return status_invalid("min_after_dequeue %lld must be < capacity %lld",
                              (long long)options->min_after_dequeue, (long long)options->capacity);
    return NULL;
}

static struct status *queue_init(struct kernel_init *init) {
    const struct queue_row *row = init->arg;
    struct queue_state *state = xcalloc(1, sizeof(*state));
    struct queue_options *options = &state->options;
    init->state = state;
    options->order = row->order;
    options->op = init->node->op->name;
    TRY(named_resource_init(&state->resource, init, &queue_type, RESOURCE_OWN, queue_empty));
    TRY(node_get_i32(init->node, "capacity", &options->capacity));
    if (options->capacity < 0)
        options->capacity = QUEUE_UNBOUNDED;
    TRY(read_components(init->node, options));
    return row->order == QUEUE_RANDOM ? read_random(init->node, options) : NULL;
}

static struct status *make_queue(struct kernel_ctx *ctx, void *arg, struct object **ret) {
    const struct queue_state *state = arg;
    *ret = &queue_new(&state->options, state->resource.name)->object;
    return NULL;
}

static enum kernel_result queue_compute(struct kernel_ctx *ctx) {
    struct queue_state *state = ctx->instance->state;
    struct object *found = NULL;
    KERNEL_TRY(ctx, named_resource_get(ctx, &state->resource, make_queue, state, &found));
    struct status *st = queue_check_shared((struct queue *)found, &state->options);
    if (likely(!st))
        st = named_resource_output(ctx, &state->resource);
    object_unref(found);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

/* Makes a reference of the first form to a queue that has a handle of the second form. */
static enum kernel_result queue_fake(struct kernel_ctx *ctx) {
    const struct resource_handle *handle = NULL;
    struct tensor words = TENSOR_INIT;
    KERNEL_TRY(ctx, handle_of_input(ctx, 0, &handle));
    KERNEL_TRY(ctx, tensor_new(ctx->instance->allocator, DT_STRING,
                               (struct shape){1, (const int64_t[]){2}}, &words));
    tensor_set_string(&words, 0, handle->container, strlen(handle->container));
    tensor_set_string(&words, 1, handle->name, strlen(handle->name));
    struct variable *variable = variable_new(DT_STRING, handle->name);
    variable_assign_take(variable, &words);
    tensor_init_ref(&ctx->outputs[0], DT_STRING, &variable->object);
    return KERNEL_DONE;
}

/* ---- operations ---- */

static struct status *no_timeout_init(struct kernel_init *init) {
    int64_t timeout_ms = -1;
    TRY(node_get_i(init->node, "timeout_ms", &timeout_ms));
    return timeout_ms == -1 ? NULL : status_invalid("Timeout not supported yet.");
}

/* The body of a kernel that works on the queue of input 0. It fails through kernel_fail, like a
 * kernel. */
typedef enum kernel_result queue_fn(struct kernel_ctx *ctx, struct queue *queue);

static enum kernel_result with_queue(struct kernel_ctx *ctx, queue_fn *fn) {
    struct object *found = NULL;
    KERNEL_TRY(ctx, named_resource_of_input(ctx, &queue_type, &found));
    struct queue *queue = (struct queue *)found;
    enum kernel_result result = fn(ctx, queue);
    queue_unref(queue);
    return result;
}

static struct type_list components_of(const struct queue *queue) {
    return (struct type_list){queue->options.types, queue->options.n_components};
}

static COLD struct status *wrong_shape(int component, struct shape expected,
                                       const struct tensor *got) {
    return status_invalid("Shape mismatch in tuple component %d. Expected %s, got %s", component,
                          SHAPE_TEXT(expected), TENSOR_SHAPE_TEXT(got));
}

/* Checks that inputs 1 … are a tuple for this queue. */
static struct status *check_tuple(const struct kernel_ctx *ctx, const struct queue *queue) {
    TRY(check_signature(ctx, components_of(queue), (struct type_list){NULL, 0}));
    for (int i = 0; i < queue->options.n_shapes; i++)
        if (!shape_is_compatible(queue->options.shapes[i], tensor_shape(kernel_input(ctx, 1 + i))))
            return wrong_shape(i, queue->options.shapes[i], kernel_input(ctx, 1 + i));
    return NULL;
}

static struct status *check_batch_shape(const struct tensor *batch, struct shape one, int component,
                                        int64_t n) {
    int64_t dims[SHAPE_MAX_RANK + 1] = {n};
    for (int d = 0; d < one.rank; d++)
        dims[d + 1] = one.dims[d];
    struct shape expected = {one.rank + 1, dims};
    return shape_is_compatible(expected, tensor_shape(batch))
               ? NULL
               : wrong_shape(component, expected, batch);
}

/* Checks that inputs 1 … are batches of equally many tuples for this queue. */
static struct status *check_batch(const struct kernel_ctx *ctx, const struct queue *queue,
                                  int64_t *ret_n) {
    TRY(check_signature(ctx, components_of(queue), (struct type_list){NULL, 0}));
    for (int i = 0; i < queue->options.n_components; i++) {
        const struct tensor *batch = kernel_input(ctx, 1 + i);
        if (batch->rank == 0)
            return status_invalid(
                "All input tensors must have a 0th dimension. Component %d has shape %s", i,
                TENSOR_SHAPE_TEXT(batch));
        if (i == 0)
            *ret_n = tensor_dim(batch, 0);
        if (queue->options.n_shapes > 0)
            TRY(check_batch_shape(batch, queue->options.shapes[i], i, *ret_n));
        else if (tensor_dim(batch, 0) != *ret_n)
            return status_invalid("All input tensors must have the same size in the 0th dimension. "
                                  "Component %d has %lld, and should have "
                                  "%lld",
                                  i, (long long)tensor_dim(batch, 0), (long long)*ret_n);
    }
    return NULL;
}

static int64_t priority_of(const struct queue *queue, const struct queue_element *element) {
    return queue->options.order == QUEUE_PRIORITY
               ? *(const int64_t *)tensor_cdata(&element->components[0])
               : 0;
}

static enum kernel_result enqueue_one(struct kernel_ctx *ctx, struct queue *queue) {
    int n = queue->options.n_components;
    struct status *st = NULL;
    KERNEL_TRY(ctx, check_tuple(ctx, queue));
    struct queue_element *element = queue_element_new(n);
    for (int i = 0; i < n && !st; i++)
        st = variable_keep(ctx, 1 + i, &element->components[i]);
    if (st) {
        queue_element_free(element, n);
        return kernel_fail(ctx, st);
    }
    element->priority = priority_of(queue, element);
    struct queue_element **elements = xmalloc(sizeof(struct queue_element *));
    elements[0] = element;
    return queue_enqueue(queue, ctx, elements, 1);
}
static enum kernel_result queue_enqueue_compute(struct kernel_ctx *ctx) {
    return with_queue(ctx, enqueue_one);
}

static struct status *element_of_row(struct kernel_ctx *ctx, const struct queue *queue, int64_t row,
                                     struct queue_element **ret) {
    int n = queue->options.n_components;
    struct status *st = NULL;
    struct queue_element *element = queue_element_new(n);
    for (int i = 0; i < n && !st; i++)
        st = queue_row(ctx->instance->allocator, kernel_input(ctx, 1 + i), row,
                       &element->components[i]);
    if (st) {
        queue_element_free(element, n);
        return st;
    }
    element->priority = priority_of(queue, element);
    *ret = element;
    return NULL;
}

static enum kernel_result enqueue_many(struct kernel_ctx *ctx, struct queue *queue) {
    int64_t n = 0, n_made = 0;
    struct status *st = NULL;
    KERNEL_TRY(ctx, check_batch(ctx, queue, &n));
    if (n == 0)
        return KERNEL_DONE;
    struct queue_element **elements = calloc((size_t)n, sizeof(struct queue_element *));
    if (!elements)
        return kernel_fail(
            ctx, status_exhausted("Out of memory for the %lld elements to enqueue", (long long)n));
    while (!st && n_made < n) {
        st = element_of_row(ctx, queue, n_made, &elements[n_made]);
        n_made += st == NULL;
    }
    if (!st)
        return queue_enqueue(queue, ctx, elements, n);
    while (n_made > 0)
        queue_element_free(elements[--n_made], queue->options.n_components);
    free(elements);
    return kernel_fail(ctx, st);
}
static enum kernel_result queue_enqueue_many_compute(struct kernel_ctx *ctx) {
    return with_queue(ctx, enqueue_many);
}

static enum kernel_result dequeue_one(struct kernel_ctx *ctx, struct queue *queue) {
    KERNEL_TRY(ctx, check_signature(ctx, (struct type_list){NULL, 0}, components_of(queue)));
    return queue_dequeue(queue, ctx, (struct queue_request){.n = 1});
}
static enum kernel_result queue_dequeue_compute(struct kernel_ctx *ctx) {
    return with_queue(ctx, dequeue_one);
}

static enum kernel_result dequeue_batch(struct kernel_ctx *ctx, struct queue *queue,
                                        bool is_small_allowed) {
    static const uint8_t int32 = DT_INT32;
    static const char *const names[] = {"FIFOQueue", "FIFOQueue", "RandomShuffleQueue",
                                        "PriorityQueue"};
    const struct tensor *n = kernel_input(ctx, 1);
    KERNEL_TRY(ctx, check_signature(ctx, (struct type_list){&int32, 1}, components_of(queue)));
    if (n->n_elements < 1)
        return kernel_fail(
            ctx,
            status_invalid("The number of elements to dequeue must be a scalar, but had shape: %s",
                           TENSOR_SHAPE_TEXT(n)));
    struct queue_request request = {
        .n = tensor_index_at(n, 0), .is_batch = true, .is_small_allowed = is_small_allowed};
    if (request.n < 0)
        return kernel_fail(ctx, status_invalid("Dequeue%sOp requested %lld < 0 elements",
                                               is_small_allowed ? "UpTo" : "Many",
                                               (long long)request.n));
    if (queue->options.n_shapes == 0)
        return kernel_fail(
            ctx,
            status_invalid(
                "%s's DequeueMany and DequeueUpTo require the components to have specified shapes.",
                names[queue->options.order]));
    return queue_dequeue(queue, ctx, request);
}
static enum kernel_result dequeue_many(struct kernel_ctx *ctx, struct queue *queue) {
    return dequeue_batch(ctx, queue, false);
}
static enum kernel_result dequeue_up_to(struct kernel_ctx *ctx, struct queue *queue) {
    return dequeue_batch(ctx, queue, true);
}
static enum kernel_result queue_dequeue_many_compute(struct kernel_ctx *ctx) {
    return with_queue(ctx, dequeue_many);
}
static enum kernel_result queue_dequeue_up_to_compute(struct kernel_ctx *ctx) {
    return with_queue(ctx, dequeue_up_to);
}

static struct status *close_init(struct kernel_init *init) {
    return kernel_init_bool_attr(init, "cancel_pending_enqueues");
}

static enum kernel_result close_queue(struct kernel_ctx *ctx, struct queue *queue) {
    return queue_close(queue, ctx, *(const bool *)ctx->instance->state);
}
static enum kernel_result queue_close_compute(struct kernel_ctx *ctx) {
    return with_queue(ctx, close_queue);
}

static enum kernel_result size_of(struct kernel_ctx *ctx, struct queue *queue) {
    tensor_init_scalar_i32(&ctx->outputs[0], (int32_t)MIN(queue_size(queue), (int64_t)INT32_MAX));
    return KERNEL_DONE;
}
static enum kernel_result queue_size_compute(struct kernel_ctx *ctx) {
    return with_queue(ctx, size_of);
}

static enum kernel_result tell_closed(struct kernel_ctx *ctx, struct queue *queue) {
    bool is_closed = queue_is_closed(queue);
    if (!kernel_is_for_device(ctx)) {
        tensor_init_scalar_bool(&ctx->outputs[0], is_closed);
        return KERNEL_DONE;
    }
    KERNEL_TRY(ctx, kernel_alloc(ctx, 0, DT_BOOL, SHAPE_SCALAR));
    KERNEL_TRY(ctx, move_fill(ctx, DT_BOOL, tensor_data(&ctx->outputs[0]), &is_closed, 1));
    return KERNEL_DONE;
}
static enum kernel_result queue_is_closed_compute(struct kernel_ctx *ctx) {
    return with_queue(ctx, tell_closed);
}

#define QUEUE(name, kind)                                                                     \
    {                                                                                         \
        .op = (name), .compute = queue_compute, .init = queue_init, .fini = queue_state_fini, \
        .arg = &(kind), .flags = KERNEL_STATEFUL | KERNEL_SESSION_STATE                       \
    }
#define WAITS(name, fn)                                         \
    {                                                           \
        .op = (name), .compute = (fn), .init = no_timeout_init, \
        .flags = KERNEL_ASYNC | KERNEL_STATEFUL                 \
    }
#define CLOSES(name)                                                      \
    {                                                                     \
        .op = (name), .compute = queue_close_compute, .init = close_init, \
        .flags = KERNEL_ASYNC | KERNEL_STATEFUL                           \
    }
#define LOOKS(name, fn) \
    { .op = (name), .compute = (fn), .flags = KERNEL_STATEFUL }

// clang-format off
static const struct kernel_def rows[] = {
    QUEUE("FIFOQueue", fifo),                 QUEUE("FIFOQueueV2", fifo),
    QUEUE("PaddingFIFOQueue", padding),       QUEUE("PaddingFIFOQueueV2", padding),
    QUEUE("RandomShuffleQueue", shuffle),     QUEUE("RandomShuffleQueueV2", shuffle),
    QUEUE("PriorityQueue", priority),         QUEUE("PriorityQueueV2", priority),
    LOOKS("FakeQueue", queue_fake),
    WAITS("QueueEnqueue", queue_enqueue_compute),
    WAITS("QueueEnqueueV2", queue_enqueue_compute),
    WAITS("QueueEnqueueMany", queue_enqueue_many_compute),
    WAITS("QueueEnqueueManyV2", queue_enqueue_many_compute),
    WAITS("QueueDequeue", queue_dequeue_compute),
    WAITS("QueueDequeueV2", queue_dequeue_compute),
    WAITS("QueueDequeueMany", queue_dequeue_many_compute),
    WAITS("QueueDequeueManyV2", queue_dequeue_many_compute),
    WAITS("QueueDequeueUpTo", queue_dequeue_up_to_compute),
    WAITS("QueueDequeueUpToV2", queue_dequeue_up_to_compute),
    CLOSES("QueueClose"),                                    CLOSES("QueueCloseV2"),
    LOOKS("QueueSize", queue_size_compute),
    LOOKS("QueueSizeV2", queue_size_compute),
    LOOKS("QueueIsClosed", queue_is_closed_compute),
    LOOKS("QueueIsClosedV2", queue_is_closed_compute),
};
// clang-format on

const struct kernel_list queue_kernels = {rows, ARRAY_LEN(rows)};
