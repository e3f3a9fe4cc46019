/* Computes the ops of iterators that make and start them, get the next element, and turn iterators'
 * names into strings and back. */
#include <stdlib.h>

#include "kernels/host.h"
#include "kernels/host/data/handle_string.h"
#include "kernels/host/data/iterator.h"
#include "kernels/support/variable_input.h"

extern const struct kernel_list iterator_kernels;

/* ---- nodes that hold an iterator ---- */

struct iterator_node {
    struct named_resource resource;
};

static void node_fini(void *arg) {
    struct iterator_node *node = arg;
    named_resource_fini(&node->resource);
    free(node);
}

/* Called when the session of a private iterator has ended: drops what is buffered, and stops
 * reading ahead. */
static void iterator_empty(struct object *object) {
    struct iterator *iterator = CONTAINER_OF(object, struct iterator, object);
    iterator_clear(iterator);
}

static struct status *handle_init(struct kernel_init *init) {
    struct iterator_node *node = init->state = xcalloc(1, sizeof(*node));
    return named_resource_init(&node->resource, init, &iterator_type, RESOURCE_OWN, iterator_empty);
}

static struct status *create(struct kernel_ctx *ctx, void *arg, struct object **ret) {
    struct iterator *iterator = NULL;
    TRY(iterator_new(ctx, &iterator));
    *ret = &iterator->object;
    return NULL;
}

/* Checks that an iterator that exists under the name declares the same elements. */
static struct status *check_declared(struct kernel_ctx *ctx, const struct iterator *iterator) {
    struct iterator *wanted = NULL;
    TRY(iterator_new(ctx, &wanted));
    struct status *st =
        iterator_check(iterator, wanted->types, wanted->shapes, wanted->n_components);
    object_unref(&wanted->object);
    return st;
}

static enum kernel_result handle_compute(struct kernel_ctx *ctx) {
    struct iterator_node *node = ctx->instance->state;
    struct object *object = NULL;
    KERNEL_TRY(ctx, named_resource_get(ctx, &node->resource, create, NULL, &object));
    struct status *st = check_declared(ctx, CONTAINER_OF(object, struct iterator, object));
    object_unref(object);
    KERNEL_TRY(ctx, st);
    KERNEL_TRY(ctx, named_resource_output(ctx, &node->resource));
    return KERNEL_DONE;
}

/* Only the step that makes an anonymous iterator knows its handle, so it is freed with the step. */
static enum kernel_result anonymous_compute(struct kernel_ctx *ctx) {
    KERNEL_TRY(ctx,
               named_resource_make_anonymous(ctx, "_AnonymousIterator_", &iterator_type, create));
    if (ctx->instance->n_outputs > 1) /* V2's deleter is an empty variant */
        tensor_init_scalar_object(&ctx->outputs[1], DT_VARIANT, NULL);
    return KERNEL_DONE;
}

/* ---- one shot ---- */

/* The first execution calls the function that makes the dataset. Executions that arrive meanwhile
 * wait for it. */
struct one_shot {
    struct iterator_node node;
    pthread_mutex_t lock;
    enum { SHOT_NEW, SHOT_UNDER_WAY, SHOT_DONE } phase; /* guarded by lock, like the fields below */
    struct status *failure;
    struct list waiting; /* struct shot_wait.link */
};

struct shot_wait {
    struct list link;
    struct kernel_ctx *ctx;
};

struct shot {
    struct function_call call;
    struct kernel_ctx *ctx;
    struct dataset_fn fn;
    struct tensor *rets;
};

static void one_shot_fini(void *arg) {
    struct one_shot *one_shot = arg;
    status_unref(one_shot->failure);
    named_resource_fini(&one_shot->node.resource);
    pthread_mutex_destroy(&one_shot->lock);
    free(one_shot);
}

static struct status *one_shot_init(struct kernel_init *init) {
    struct one_shot *one_shot = init->state = xcalloc(1, sizeof(*one_shot));
    CHECK(pthread_mutex_init(&one_shot->lock, NULL) == 0);
    list_init(&one_shot->waiting);
    return named_resource_init(&one_shot->node.resource, init, &iterator_type,
                               RESOURCE_BY_NODE_NAME, NULL);
}

/* Makes the iterator with the dataset, or finds the one that was made under its name meanwhile. */
static struct status *shot_make(struct kernel_ctx *ctx, struct shot *shot) {
    struct one_shot *one_shot = ctx->instance->state;
    struct object *object = NULL;
    struct dataset *dataset = NULL;
    if (shot->fn.function->n_rets != 1)
        return status_invalid(
            "The `dataset_factory` function must return a single scalar of dtype DT_VARIANT.");
    if (shot->rets[0].dtype != DT_VARIANT || shot->rets[0].rank != 0)
        return status_invalid(
            "The `dataset_factory` function must return a single scalar of dtype DT_VARIANT.");
    TRY(dataset_of(&shot->rets[0], &dataset));
    TRY(named_resource_get(ctx, &one_shot->node.resource, create, NULL, &object));
    struct iterator *iterator = CONTAINER_OF(object, struct iterator, object);
    struct status *st = iterator_is_made(iterator) ? NULL : iterator_make(ctx, iterator, dataset);
    object_unref(object);
    return st;
}

static struct status *shot_output(struct kernel_ctx *ctx, struct one_shot *one_shot) {
    return one_shot->failure ? status_ref(one_shot->failure)
                             : named_resource_output(ctx, &one_shot->node.resource);
}

/* Sets the result for good, and ends all waits except that of the first execution. */
static void one_shot_finish(struct one_shot *one_shot, struct status *st) {
    struct list waiting;
    list_init(&waiting);
    pthread_mutex_lock(&one_shot->lock);
    one_shot->failure = st;
    one_shot->phase = SHOT_DONE;
    list_splice_back(&waiting, &one_shot->waiting);
    pthread_mutex_unlock(&one_shot->lock);
    if (list_is_empty(&waiting))
        return;
    const struct kernel_host *host = LIST_ENTRY(waiting.next, struct shot_wait, link)->ctx->host;
    kernel_defer_wakes_begin(host);
    for (struct list *link; (link = list_pop_front(&waiting));) {
        struct shot_wait *wait = LIST_ENTRY(link, struct shot_wait, link);
        struct kernel_ctx *waiter = wait->ctx;
        free(wait);
        struct status *failure = shot_output(waiter, one_shot);
        if (failure)
            kernel_fail(waiter, failure);
        waiter->host->done(waiter);
    }
    kernel_defer_wakes_end(host);
}

static void shot_end(struct shot *shot) {
    struct kernel_ctx *ctx = shot->ctx;
    struct status *st = shot->call.status;
    shot->fn.function->host->function_finish(&shot->call);
    if (!st)
        st = shot_make(ctx, shot);
    element_free(shot->rets, shot->fn.function->n_rets);
    dataset_fn_fini(&shot->fn);
    free(shot);
    one_shot_finish(ctx->instance->state, st);
}

static void on_shot_done(struct function_call *call) {
    struct shot *shot = CONTAINER_OF(call, struct shot, call);
    struct kernel_ctx *ctx = shot->ctx;
    shot_end(shot);
    struct status *failure = shot_output(ctx, ctx->instance->state);
    if (failure)
        kernel_fail(ctx, failure);
    ctx->host->done(ctx);
}

static enum kernel_result shot_start(struct kernel_ctx *ctx) {
    struct shot *shot = xcalloc(1, sizeof(*shot));
    struct one_shot *one_shot = ctx->instance->state;
    struct status *st = dataset_fn_init(ctx, "dataset_factory", 0, 0, &shot->fn);
    if (st) {
        free(shot);
        one_shot_finish(one_shot, status_ref(st));
        return kernel_fail(ctx, st);
    }
    shot->ctx = ctx;
    shot->rets = element_new(shot->fn.function->n_rets);
    shot->call = (struct function_call){
        .function = shot->fn.function, .rets = shot->rets, .on_done = on_shot_done};
    shot->fn.function->host->function_prepare(&shot->call);
    if (shot->fn.function->host->function_call(&shot->call) == KERNEL_PENDING)
        return KERNEL_PENDING;
    shot_end(shot);
    KERNEL_TRY(ctx, shot_output(ctx, one_shot));
    return KERNEL_DONE;
}

static enum kernel_result one_shot_compute(struct kernel_ctx *ctx) {
    struct one_shot *one_shot = ctx->instance->state;
    pthread_mutex_lock(&one_shot->lock);
    bool is_first = one_shot->phase == SHOT_NEW, is_done = one_shot->phase == SHOT_DONE;
    if (is_first)
        one_shot->phase = SHOT_UNDER_WAY;
    if (!is_first && !is_done) {
        struct shot_wait *wait = xmalloc(sizeof(*wait));
        wait->ctx = ctx;
        list_push_back(&one_shot->waiting, &wait->link);
    }
    pthread_mutex_unlock(&one_shot->lock);
    if (is_first)
        return shot_start(ctx);
    if (!is_done)
        return KERNEL_PENDING;
    KERNEL_TRY(ctx, shot_output(ctx, one_shot));
    return KERNEL_DONE;
}

/* ---- using an iterator ---- */

static enum kernel_result make_compute(struct kernel_ctx *ctx) {
    struct object *object = NULL;
    struct dataset *dataset = NULL;
    KERNEL_TRY(ctx, dataset_of(kernel_input(ctx, 0), &dataset));
    KERNEL_TRY(ctx, named_resource_of(ctx, 1, &iterator_type, &object));
    struct status *st = iterator_make(ctx, CONTAINER_OF(object, struct iterator, object), dataset);
    object_unref(object);
    KERNEL_TRY(ctx, st);
    return KERNEL_DONE;
}

static enum kernel_result next_of_input(struct kernel_ctx *ctx, bool as_optional) {
    struct object *object = NULL;
    KERNEL_TRY(ctx, named_resource_of(ctx, 0, &iterator_type, &object));
    enum kernel_result result =
        iterator_get_next(ctx, CONTAINER_OF(object, struct iterator, object), as_optional);
    object_unref(object);
    return result;
}
static enum kernel_result get_next_compute(struct kernel_ctx *ctx) {
    return next_of_input(ctx, false);
}
static enum kernel_result get_next_as_optional_compute(struct kernel_ctx *ctx) {
    return next_of_input(ctx, true);
}

static enum kernel_result get_device_compute(struct kernel_ctx *ctx) {
    const struct resource_handle *handle = NULL;
    KERNEL_TRY(ctx, handle_of_input(ctx, 0, &handle));
    KERNEL_TRY(ctx,
               tensor_new(ctx->instance->allocator, DT_STRING, SHAPE_SCALAR, &ctx->outputs[0]));
    tensor_set_string(&ctx->outputs[0], 0, handle->device, strlen(handle->device));
    return KERNEL_DONE;
}

/* ---- handles as strings ---- */

static enum kernel_result to_string_compute(struct kernel_ctx *ctx) {
    return handle_to_string(ctx, &iterator_type);
}

static struct status *check_named(struct kernel_ctx *ctx, struct object *iterator) {
    const struct attr_value *types = node_attr(ctx->instance->node, "output_types");
    if (!types || types->list.n_values == 0)
        return NULL;
    return check_declared(ctx, CONTAINER_OF(iterator, struct iterator, object));
}

static enum kernel_result from_string_compute(struct kernel_ctx *ctx) {
    return handle_from_string(ctx, &iterator_type, check_named);
}

#define HANDLE(name)                                                                     \
    {                                                                                    \
        .op = (name), .compute = handle_compute, .init = handle_init, .fini = node_fini, \
        .flags = KERNEL_STATEFUL | KERNEL_SESSION_STATE                                  \
    }
#define LOOKS(name, fn) \
    { .op = (name), .compute = (fn), .flags = KERNEL_STATEFUL }
#define WAITS(name, fn) \
    { .op = (name), .compute = (fn), .flags = KERNEL_STATEFUL | KERNEL_ASYNC }

// clang-format off
static const struct kernel_def rows[] = {
    HANDLE("Iterator"), HANDLE("IteratorV2"),
    {.op = "OneShotIterator", .compute = one_shot_compute, .init = one_shot_init,
     .fini = one_shot_fini, .flags = KERNEL_STATEFUL | KERNEL_SESSION_STATE | KERNEL_ASYNC},
    LOOKS("AnonymousIterator", anonymous_compute), LOOKS("AnonymousIteratorV2", anonymous_compute),
    LOOKS("AnonymousIteratorV3", anonymous_compute),
    LOOKS("DeleteIterator", named_resource_delete),
    LOOKS("MakeIterator", make_compute),
    WAITS("IteratorGetNext", get_next_compute), WAITS("IteratorGetNextSync", get_next_compute),
    WAITS("IteratorGetNextAsOptional", get_next_as_optional_compute),
    LOOKS("IteratorToStringHandle", to_string_compute),
    LOOKS("IteratorFromStringHandle", from_string_compute),
    LOOKS("IteratorFromStringHandleV2", from_string_compute),
    LOOKS("IteratorGetDevice", get_device_compute),
    LOOKS("ExperimentalIteratorGetDevice", get_device_compute),
};
// clang-format on

const struct kernel_list iterator_kernels = {rows, ARRAY_LEN(rows)};
